//! Classification of socket errors: is the endpoint at fault, or a local resource?
//!
//! Used by all modules that open sockets: `connect`, `tcp`, `udp` and `probe`. It also reports what a failure has led to.

use std::io;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::service::{Failure, FailureNews};
use rustix::io::Errno;

/// Whether descriptors or memory are exhausted. That passes when connections end.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    is_one_of(error, &EXHAUSTED)
}

/// Whether a local resource is missing. Such an error says nothing about a peer.
pub(crate) fn is_local(error: &io::Error) -> bool {
    is_exhausted(error) || is_one_of(error, &LOCAL)
}

/// The endpoint's failure that an error means. `None`: the error is local, concerns one datagram, or is unknown.
pub(crate) fn endpoint_failure(error: &io::Error) -> Option<Failure> {
    match error.kind() {
        io::ErrorKind::TimedOut => Some(Failure::TimedOut),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Some(Failure::Refused),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some(Failure::Unreachable)
        }
        _ => is_one_of(error, &[Errno::HOSTDOWN]).then_some(Failure::Unreachable),
    }
}

/// Logs what a failure of this endpoint has led to, and ejects the other endpoints of its node if the node is silent.
pub(crate) fn report_failure(
    endpoint: &EndpointState,
    news: &FailureNews,
    plan: &Plan,
    now: Moment,
) {
    if let Some(ejection) = &news.ejection {
        tracing::info!(
            service = endpoint.service().name(),
            endpoint = %endpoint.address(),
            reason = ejection.reason.word(),
            for_ms = u64::try_from(ejection.until.since(now).as_millis()).unwrap_or(u64::MAX),
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

fn is_one_of(error: &io::Error, of: &[Errno]) -> bool {
    let number = error.raw_os_error();
    of.iter().any(|errno| number == Some(errno.raw_os_error()))
}

const EXHAUSTED: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
const LOCAL: [Errno; 4] = [
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
        for (errno, failure, is_local_) in cases {
            let error = io::Error::from(errno);
            assert_eq!(endpoint_failure(&error), failure, "{error}");
            assert_eq!(is_local(&error), is_local_, "{error}");
        }
        let late = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(endpoint_failure(&late), Some(Failure::TimedOut));
    }
}
