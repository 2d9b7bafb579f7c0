//! Handshakes with endpoints that failed: counted by endpoint and reason, and logged now and then.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ballast_core::moment::Moment;

use crate::os::log::LogLimiter;

/// The failures of the endpoints of one service, each reported once a minute.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<(SocketAddr, &'static str), Known>>);

/// One reason of one endpoint.
#[derive(Debug)]
struct Known {
    limiter: LogLimiter,
    count: u64,
    last: SystemTime,
}

/// How often TLS with an endpoint failed for one reason, and when it did so last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlsFailure {
    pub(crate) endpoint: SocketAddr,
    pub(crate) why: &'static str,
    pub(crate) count: u64,
    pub(crate) last: SystemTime,
}

impl Failures {
    /// All that have happened since the service's TLS was changed, by endpoint and reason.
    pub(super) fn all(&self) -> Vec<TlsFailure> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failure =
            |((endpoint, why), known): (&(SocketAddr, &'static str), &Known)| TlsFailure {
                endpoint: *endpoint,
                why,
                count: known.count,
                last: known.last,
            };
        let mut all: Vec<TlsFailure> = known.iter().map(failure).collect();
        all.sort_by_key(|failure| (failure.endpoint, failure.why));
        all
    }

    /// Counts a handshake with this endpoint that failed for this reason. Whether to log it: `Some` has the number of failures since the
    /// last line.
    pub(super) fn allow(
        &self,
        endpoint: SocketAddr,
        why: &'static str,
        now: Moment,
    ) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (endpoint, why);
        // Endpoints come and go while the service stays.
        if said.len() >= MOST_KNOWN && !said.contains_key(&key) {
            said.clear();
        }
        let known = said.entry(key).or_insert_with(|| Known {
            limiter: LogLimiter::every(INTERVAL),
            count: 0,
            last: SystemTime::UNIX_EPOCH,
        });
        known.count += 1;
        known.last = SystemTime::now();
        known.limiter.allow(now)
    }
}

const INTERVAL: Duration = Duration::from_secs(60);
const MOST_KNOWN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_each_endpoint_is_logged_once_a_minute() {
        let failures = Failures::default();
        let [one, two] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(failures.allow(one, "a", Moment(0)), Some(0));
        assert_eq!(failures.allow(one, "a", Moment(59_999)), None);
        assert_eq!(failures.allow(one, "b", Moment(59_999)), Some(0));
        assert_eq!(failures.allow(two, "a", Moment(59_999)), Some(0));
        assert_eq!(failures.allow(one, "a", Moment(60_000)), Some(1));
        let all = failures.all();
        let counted = all.iter().map(|one| (one.endpoint, one.why, one.count));
        assert!(
            counted.eq([(one, "a", 3), (one, "b", 1), (two, "a", 1)]),
            "{all:?}"
        );
        for port in 0..5_000 {
            failures.allow(SocketAddr::from(([127, 0, 0, 2], port)), "a", Moment(0));
        }
        assert!(failures.0.lock().unwrap().len() <= MOST_KNOWN);
    }
}
