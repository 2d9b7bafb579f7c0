//! What an error means that a socket to an endpoint, or a listening one, has had: is it the endpoint's doing or our own?
//!
//! Asked by all who open such sockets: `tcp`, `dial`, `udp` and `probe`. What a failure has led to is said here, too.

use std::io;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::service::{Failure, FailureNews};
use rustix::io::Errno;

/// Whether descriptors or memory have run out: it passes when something ends.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    is_any(error, &EXHAUSTED)
}

/// Whether it is for want of something of our own. That says nothing about anybody else.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    is_exhausted(error) || is_any(error, &OURS)
}

/// What an error says of the endpoint. `None`: nothing for certain; it is our own, or one datagram's, or unknown.
pub(crate) fn of_endpoint(error: &io::Error) -> Option<Failure> {
    match error.kind() {
        io::ErrorKind::TimedOut => Some(Failure::TimedOut),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Some(Failure::Refused),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some(Failure::Unreachable)
        }
        _ => is_any(error, &[Errno::HOSTDOWN]).then_some(Failure::Unreachable),
    }
}

/// Says what a failure of this endpoint has led to, and leaves out the others of its node if that is silent.
pub(crate) fn announce(endpoint: &EndpointState, news: &FailureNews, plan: &Plan, now: Moment) {
    if let Some(ejection) = &news.ejection {
        tracing::info!(
            service = endpoint.service().name(),
            endpoint = %endpoint.address(),
            reason = ejection.reason.word(),
            for_ms = ejection.until.since(now).as_millis(),
            "endpoint ejected"
        );
    }
    if let Some(node) = &news.silent_node {
        let ejected = plan.eject_node(node, now);
        tracing::warn!(
            node = node.name(),
            ejected,
            "node is silent; its endpoints are ejected"
        );
    }
}

fn is_any(error: &io::Error, of: &[Errno]) -> bool {
    let number = error.raw_os_error();
    of.iter().any(|errno| number == Some(errno.raw_os_error()))
}

const EXHAUSTED: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
const OURS: [Errno; 4] = [
    Errno::ADDRNOTAVAIL,
    Errno::ADDRINUSE,
    Errno::AFNOSUPPORT,
    Errno::AGAIN,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_endpoints_or_our_own_or_says_nothing() {
        let cases = [
            (Errno::TIMEDOUT, Some(Failure::TimedOut), false),
            (Errno::CONNREFUSED, Some(Failure::Refused), false),
            (Errno::CONNRESET, Some(Failure::Refused), false),
            (Errno::HOSTUNREACH, Some(Failure::Unreachable), false),
            (Errno::NETUNREACH, Some(Failure::Unreachable), false),
            (Errno::HOSTDOWN, Some(Failure::Unreachable), false),
            (Errno::MFILE, None, true),
            (Errno::NFILE, None, true),
            (Errno::NOBUFS, None, true),
            (Errno::NOMEM, None, true),
            (Errno::ADDRNOTAVAIL, None, true),
            (Errno::AGAIN, None, true),
            (Errno::MSGSIZE, None, false),
            (Errno::PERM, None, false),
        ];
        for (errno, of_endpoint_, is_ours_) in cases {
            let error = io::Error::from(errno);
            assert_eq!(of_endpoint(&error), of_endpoint_, "{error}");
            assert_eq!(is_ours(&error), is_ours_, "{error}");
        }
        let late = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(of_endpoint(&late), Some(Failure::TimedOut));
    }
}
