//! Opens listening sockets. No other module does.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use ballast_core::loops::HostAddresses;
use ballast_core::plan::{SocketKey, Transport};
use socket2::{Domain, Socket, Type};

use crate::net::relay::keepalive;
use crate::os::limits::Buffers;
use crate::os::rights::first_unprivileged_port;
use crate::os::socket_error;
use crate::os::sys::{addresses, datagrams};

/// Binds `count` sockets to one address, one for each worker. The kernel distributes clients over the sockets by their number,
/// so all of them are bound before any is read.
pub(crate) fn open(
    key: &SocketKey,
    count: usize,
    buffers: Option<Buffers>,
) -> io::Result<Vec<Socket>> {
    let bind = |address| match key.transport {
        Transport::Tcp => bind(address, buffers),
        Transport::Udp => bind_datagrams(address),
    };
    let first = bind(key.address)?;
    // Port 0 means any port, but for the same port of all sockets.
    let bound = first.local_addr()?.as_socket().unwrap_or(key.address);
    let mut sockets = vec![first];
    while sockets.len() < count {
        sockets.push(bind(bound)?);
    }
    if key.transport == Transport::Tcp {
        for socket in &sockets {
            socket.listen(BACKLOG)?;
        }
    }
    Ok(sockets)
}

/// Prepares sockets that the process before handed over, and opens further ones beside them, until there is one for each worker.
/// Where that fails, those that are there serve alone.
pub(crate) fn adopt(
    key: &SocketKey,
    mut sockets: Vec<Socket>,
    count: usize,
    buffers: Option<Buffers>,
) -> Vec<Socket> {
    let local = sockets.first().and_then(|socket| socket.local_addr().ok());
    let bound = local.and_then(|local| local.as_socket());
    if key.transport == Transport::Tcp {
        for socket in &sockets {
            // That process may have been closing it. Without a filter this fails.
            socket.detach_filter().ok();
            if let Some(Err(error)) = buffers.map(|buffers| buffers.limit(socket)) {
                tracing::warn!(address = %key, %error, "the buffers of a socket that was handed over stay as they are");
            }
        }
    }
    match beside(key, bound, count.saturating_sub(sockets.len()), buffers) {
        Ok(more) => sockets.extend(more),
        Err(error) => {
            let why = explain(key.address, &error);
            tracing::warn!(
                "{why}; the {} sockets of it that were handed over are served, which is fewer than one for each worker",
                sockets.len()
            );
        }
    }
    sockets
}

/// Binds further sockets to an address: all of them, or none.
fn beside(
    key: &SocketKey,
    bound: Option<SocketAddr>,
    count: usize,
    buffers: Option<Buffers>,
) -> io::Result<Vec<Socket>> {
    match bound {
        Some(address) if count > 0 => {
            let key = SocketKey {
                address,
                ..key.clone()
            };
            open(&key, count, buffers)
        }
        _ => Ok(Vec::new()),
    }
}

/// Binds one socket without SO_REUSEPORT, for the admin side.
pub(crate) fn open_alone(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        None,
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(ADMIN_BACKLOG)?;
    Ok(socket.into())
}

fn bind(address: SocketAddr, buffers: Option<Buffers>) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        None,
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted connections inherit these options, which saves calls for each of them.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive())?;
    if let Some(buffers) = buffers {
        buffers.limit(&socket)?;
    }
    bind_freely(&socket, address)?;
    Ok(socket)
}

fn bind_datagrams(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM.nonblocking().cloexec(),
        None,
    )?;
    // Not SO_REUSEADDR: for UDP, it would let any process take over the address.
    socket.set_reuse_port(true)?;
    datagrams::enable_ancillary_data(&socket, address.is_ipv4())?;
    datagrams::allow_fragments(&socket, address.is_ipv4())?;
    // The kernel reduces this to what it allows.
    socket.set_recv_buffer_size(DATAGRAM_BUFFER)?;
    bind_freely(&socket, address)?;
    Ok(socket)
}

/// Binds the socket even if this node does not hold the address yet.
fn bind_freely(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
    } else {
        socket.set_freebind_v4(true)?;
    }
    socket.bind(&address.into())
}

/// Whether this node holds the address now. An address that it does not hold can be bound, but no client reaches it.
pub(crate) fn is_local(address: IpAddr) -> bool {
    // Any other error, such as a lack of descriptors, says nothing about the address.
    let is_foreign = |error: io::Error| error.kind() == io::ErrorKind::AddrNotAvailable;
    address.is_unspecified() || !UdpSocket::bind((address, 0)).is_err_and(is_foreign)
}

/// The addresses that this host has now, without loopback.
pub(crate) fn host_addresses() -> io::Result<HostAddresses> {
    Ok(addresses::of_host()?.into_iter().collect())
}

/// Whether the kernel supports IPv6.
pub(crate) fn has_ipv6() -> bool {
    Socket::new(Domain::IPV6, Type::STREAM, None).is_ok()
}

/// Explains why an address could not be bound, with a remedy.
pub(crate) fn explain(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "bind {address}: address in use; is another server running on this port? `ss -ltnp` names it"
            )
        }
        io::ErrorKind::PermissionDenied
            if (1..first_unprivileged_port()).contains(&address.port()) =>
        {
            format!(
                "bind {address}: no right to a port below {}; give the process CAP_NET_BIND_SERVICE, or lower net.ipv4.ip_unprivileged_port_start",
                first_unprivileged_port()
            )
        }
        io::ErrorKind::PermissionDenied => format!(
            "bind {address}: {error}; a security policy forbids it (SELinux, AppArmor, seccomp): allow it there, or choose another port"
        ),
        _ if socket_error::is_exhausted(error) => format!(
            "bind {address}: {error}; raise the limit of open files (ulimit -n), or serve fewer addresses"
        ),
        _ => format!("bind {address}: {error}"),
    }
}

/// The kernel reduces this to what it allows.
const BACKLOG: i32 = 4096;
const ADMIN_BACKLOG: i32 = 128;
/// Receive buffer for bursts that arrive while a worker is busy.
const DATAGRAM_BUFFER: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_explained_by_the_port() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        for port in [0, 1, 79, 1_023, 1_024, 40_000, 65_535] {
            let words = if (1..first_unprivileged_port()).contains(&port) {
                "CAP_NET_BIND_SERVICE"
            } else {
                "a security policy forbids it"
            };
            let said = explain(SocketAddr::from(([127, 0, 0, 1], port)), &denied);
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn accepted_connections_inherit_the_sizes_of_buffers_only_where_there_are_some() {
        let buffers = Buffers {
            socket: 16 << 10,
            read: 0,
        };
        let accepted = |buffers| {
            let key = SocketKey {
                address: SocketAddr::from(([127, 0, 0, 1], 0)),
                transport: Transport::Tcp,
                asked_by: None,
            };
            let listening = open(&key, 1, buffers).unwrap().remove(0);
            let address = listening.local_addr().unwrap().as_socket().unwrap();
            let _client = std::net::TcpStream::connect(address).unwrap();
            listening.set_nonblocking(false).unwrap();
            let (socket, _) = listening.accept().unwrap();
            let sizes = [socket.recv_buffer_size(), socket.send_buffer_size()];
            sizes.map(Result::unwrap)
        };
        // The kernel doubles the number that it is given.
        assert_eq!(accepted(Some(buffers)), [32 << 10; 2]);
        assert!(accepted(None)[1] > 32 << 10);
    }

    #[test]
    fn sockets_that_were_handed_over_accept_again_and_get_company() {
        for (transport, had, wanted, has) in [
            (Transport::Tcp, 1, 3, 3),
            (Transport::Tcp, 3, 1, 3),
            (Transport::Udp, 1, 3, 3),
            (Transport::Udp, 3, 1, 3),
        ] {
            let key = SocketKey {
                address: SocketAddr::from(([127, 0, 0, 1], 0)),
                transport,
                asked_by: None,
            };
            let sockets = open(&key, had, None).unwrap();
            let address = sockets[0].local_addr().unwrap().as_socket().unwrap();
            if transport == Transport::Tcp {
                // Nothing comes through.
                let nothing = socket2::SockFilter::new(0x06, 0, 0, 0);
                sockets[0].attach_filter(&[nothing]).unwrap();
            }
            let adopted = adopt(&key, sockets, wanted, None);
            assert_eq!(adopted.len(), has, "{transport:?} {had} {wanted}");
            for socket in &adopted {
                assert_eq!(socket.local_addr().unwrap().as_socket(), Some(address));
            }
            if transport == Transport::Tcp {
                let within = std::time::Duration::from_secs(10);
                std::net::TcpStream::connect_timeout(&address, within).unwrap();
            }
        }
    }

    #[test]
    fn sockets_that_were_handed_over_stay_where_no_further_one_can_be_bound() {
        let key = SocketKey {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            transport: Transport::Tcp,
            asked_by: None,
        };
        // One without SO_REUSEPORT allows no other one at its address.
        let alone = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        alone.bind(&key.address.into()).unwrap();
        alone.listen(1).unwrap();
        let address = alone.local_addr().unwrap().as_socket().unwrap();
        let adopted = adopt(&key, vec![alone], 3, None);
        assert_eq!(adopted.len(), 1);
        let within = std::time::Duration::from_secs(10);
        std::net::TcpStream::connect_timeout(&address, within).unwrap();
    }

    #[test]
    fn an_address_of_a_documentation_network_is_not_here() {
        for (address, is_here) in [
            ("127.0.0.1", true),
            ("127.7.7.7", true),
            ("0.0.0.0", true),
            ("192.0.2.1", false),
        ] {
            assert_eq!(is_local(address.parse().unwrap()), is_here, "{address}");
        }
    }
}
