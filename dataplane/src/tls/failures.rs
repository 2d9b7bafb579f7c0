//! The log lines about handshakes with endpoints that failed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ballast_core::moment::Moment;

use crate::log::LogLimiter;

/// The failures of the endpoints of one service, each reported once a minute.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<(SocketAddr, &'static str), LogLimiter>>);

impl Failures {
    /// Whether to log that the handshake with this endpoint failed for this reason. `Some` has the number of failures since the
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
        let limiter = said.entry(key);
        limiter
            .or_insert_with(|| LogLimiter::every(INTERVAL))
            .allow(now)
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
        for port in 0..5_000 {
            failures.allow(SocketAddr::from(([127, 0, 0, 2], port)), "a", Moment(0));
        }
        assert!(failures.0.lock().unwrap().len() <= MOST_KNOWN);
    }
}
