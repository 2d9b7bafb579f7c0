//! Ends the TCP connections of addresses that leave this node (sock_diag(7), `ss --kill`).
//!
//! What clients send on such a connection goes to the node that has the address now, and what this node sends has no address to come
//! from. So the process here would wait for it until its own patience ends, and so would a client that is owed an answer. The kernel
//! resets such a connection if it is told to while the address is still there.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Ends the connections of these addresses.
///
/// # Errors
/// The kernel does not list its sockets, or ends none.
pub(super) fn end(addresses: &BTreeSet<IpAddr>) -> io::Result<()> {
    let protocol = Protocol::from(libc::NETLINK_SOCK_DIAG);
    let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    // A socket of IPv6 may have a connection of IPv4.
    for family in [AF_INET, AF_INET6] {
        for id in connections(&socket, family, addresses)? {
            socket.send(&request(SOCK_DESTROY, ANSWER, family, &id))?;
            let answer = receive(&socket, |_, _| {});
            // It may have ended by itself.
            if let Err(error) = answer
                && error.raw_os_error() != Some(libc::ENOENT)
            {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// What the kernel calls a socket: ports, addresses, interface and a cookie.
type Id = [u8; 48];

/// The connections of these addresses on sockets of a family.
fn connections(socket: &Socket, family: u8, addresses: &BTreeSet<IpAddr>) -> io::Result<Vec<Id>> {
    socket.send(&request(SOCK_DIAG_BY_FAMILY, DUMP, family, &[0; 48]))?;
    let mut found = Vec::new();
    let listed = receive(socket, |kind, payload| {
        let id = payload.get(4..).and_then(|rest| rest.first_chunk());
        if let Some(id) = id.filter(|_| kind == SOCK_DIAG_BY_FAMILY)
            && addresses.contains(&local(family, id))
        {
            found.push(*id);
        }
    });
    match listed {
        Ok(()) => Ok(found),
        // A kernel without IPv6.
        Err(error) if family == AF_INET6 && error.raw_os_error() == Some(libc::ENOENT) => Ok(found),
        Err(error) => Err(error),
    }
}

/// The own address of a connection.
fn local(family: u8, id: &Id) -> IpAddr {
    let [_, _, _, _, octets @ ..] = id;
    let octets: [u8; 16] = octets.first_chunk().copied().unwrap_or_default();
    let [a, b, c, d, ..] = octets;
    match family {
        AF_INET => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(octets).to_canonical(),
    }
}

/// A message to the kernel: `nlmsghdr`, and `inet_diag_req_v2`.
fn request(kind: u16, flags: u16, family: u8, id: &Id) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LENGTH as usize);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | flags).to_ne_bytes());
    // The number of the message, and the sender, whom the kernel knows.
    bytes.extend([0; 8]);
    bytes.extend([family, IPPROTO_TCP, 0, 0]);
    bytes.extend(CONNECTED.to_ne_bytes());
    bytes.extend(id);
    bytes
}

/// Receives messages, each with its kind, until the kernel has said everything.
fn receive(socket: &Socket, mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let mut socket = socket;
        let length = socket.read(&mut buffer)?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Some((kind, payload, after)) = message(rest) {
            match kind {
                DONE => return Ok(()),
                ERROR => {
                    let code = payload.first_chunk().copied().map_or(0, i32::from_ne_bytes);
                    return match code {
                        0 => Ok(()),
                        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                    };
                }
                kind => each(kind, payload),
            }
            rest = after;
        }
    }
}

/// The kind of the first message, what it says, and the rest.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
    let payload = bytes.get(HEADER..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((u16::from_ne_bytes(*kind), payload, after))
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// The kinds of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// Their flags.
const REQUEST: u16 = 1;
const ANSWER: u16 = 4;
const DUMP: u16 = 0x300;
const HEADER: usize = 16;
/// Of a request.
const LENGTH: u32 = 72;
/// A bit for each state of a connection, but for TIME_WAIT, CLOSE and LISTEN.
const CONNECTED: u32 = 0x1fff & !(1 << 6 | 1 << 7 | 1 << 10);
/// The kernel answers at once.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_address_of_a_connection_is_read_and_nothing_of_half_a_message() {
        let mut id = [0; 48];
        id[4..8].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(local(AF_INET, &id), IpAddr::from([192, 0, 2, 1]));
        id[4..20].copy_from_slice(&Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped().octets());
        assert_eq!(local(AF_INET6, &id), IpAddr::from([192, 0, 2, 2]));
        let bytes = request(SOCK_DESTROY, ANSWER, AF_INET6, &id);
        assert_eq!(bytes.len(), 72);
        let (kind, payload, rest) = message(&bytes).unwrap();
        assert_eq!((kind, payload.len(), rest.len()), (SOCK_DESTROY, 56, 0));
        for length in 0..72 {
            assert_eq!(message(&bytes[..length]), None);
        }
    }

    #[test]
    fn without_addresses_nothing_ends() {
        end(&BTreeSet::new()).unwrap();
    }
}
