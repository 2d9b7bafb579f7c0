//! Opens listening sockets. No other module does.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use ballast_core::loops::HostAddresses;
use ballast_core::plan::{SocketKey, Transport};
use socket2::{Domain, Socket, Type};

use crate::net::relay::keepalive;
use crate::os::limits::Buffers;
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
    // Port 0 stands for any port, but for the same port of all sockets.
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
        io::ErrorKind::PermissionDenied if (1..unprivileged()).contains(&address.port()) => {
            format!(
                "bind {address}: no right to a port below {}; give the process CAP_NET_BIND_SERVICE, or lower net.ipv4.ip_unprivileged_port_start",
                unprivileged()
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

/// The first port that an unprivileged process may bind.
fn unprivileged() -> u16 {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.ok().and_then(|first| first.trim().parse().ok());
    first.unwrap_or(1024)
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
            let words = match (1..unprivileged()).contains(&port) {
                true => "CAP_NET_BIND_SERVICE",
                false => "a security policy forbids it",
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
        // The kernel doubles what it is told.
        assert_eq!(accepted(Some(buffers)), [32 << 10; 2]);
        assert!(accepted(None)[1] > 32 << 10);
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
