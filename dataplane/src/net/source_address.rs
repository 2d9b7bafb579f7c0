//! The source address from which an endpoint is reached. A service's source addresses are used in turn; each one adds its local
//! ports.
//!
//! Used by all modules that connect to endpoints: `connect`, `udp` and `probe`.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::os::sys;

/// The source addresses to try, one after the other: those of the endpoint's family, beginning with the one whose turn it is.
/// `turn` is only called if there are several. Without any, the one candidate is `None`, and the kernel chooses.
pub(crate) fn candidates(
    sources: &[IpAddr],
    endpoint: SocketAddr,
    turn: impl FnOnce() -> usize,
) -> impl Iterator<Item = Option<IpAddr>> + Clone {
    let fitting = sources
        .iter()
        .filter(move |source| source.is_ipv4() == endpoint.is_ipv4());
    let most = fitting.clone().count().max(1);
    let turn = if most > 1 { turn() % most } else { 0 };
    (turn..turn + most).map(move |place| fitting.clone().nth(place % most).copied())
}

/// Creates a non-blocking socket that has begun to connect.
pub(crate) fn begin_connect(
    endpoint: SocketAddr,
    source: Option<IpAddr>,
    kind: Type,
) -> io::Result<Socket> {
    begin_connect_with(endpoint, source, kind, |_| Ok(()))
}

/// The same, with socket options that `prepare` sets before it connects.
pub(crate) fn begin_connect_with(
    endpoint: SocketAddr,
    source: Option<IpAddr>,
    kind: Type,
    prepare: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<Socket> {
    let kind_and_flags = kind.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(endpoint), kind_and_flags, None)?;
    prepare(&socket)?;
    if let Some(source) = source {
        sys::bind_address_without_port(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&SockAddr::from(endpoint)) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket),
    }
}

/// Whether all local ports of a source address are in use towards this endpoint. Another source address has its own ports.
pub(crate) fn has_no_port(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_of_the_family_has_as_many_turns_as_any_other() {
        let sources = [
            "10.0.0.1",
            "2001:db8::1",
            "10.0.0.2",
            "2001:db8::2",
            "10.0.0.3",
        ]
        .map(|ip| ip.parse().unwrap());
        for (endpoint, family) in [
            ("192.0.2.1:80", [0, 2, 4].as_slice()),
            ("[2001:db8::9]:80", &[1, 3]),
        ] {
            let mut first = [0; 5];
            for turn in 0..60 {
                let tried: Vec<_> =
                    candidates(&sources, endpoint.parse().unwrap(), || turn).collect();
                assert_eq!(tried.len(), family.len(), "each is tried once");
                for place in family {
                    assert!(tried.contains(&Some(sources[*place])));
                    first[*place] += usize::from(tried[0] == Some(sources[*place]));
                }
            }
            for place in family {
                assert_eq!(first[*place], 60 / family.len(), "{endpoint}");
            }
        }
    }

    #[test]
    fn where_there_is_none_of_the_family_the_kernel_chooses() {
        let v6 = ["2001:db8::1".parse().unwrap()];
        for sources in [&v6[..], &[]] {
            let endpoint = "192.0.2.1:80".parse().unwrap();
            let tried: Vec<_> = candidates(sources, endpoint, || unreachable!()).collect();
            assert_eq!(tried, [None]);
        }
    }
}
