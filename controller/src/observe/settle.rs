//! Debounces changes: tells when a burst of changes is over. Pure: the time is an argument. Used by `debounce`.

use std::time::Duration;

use tokio::time::Instant;

/// Waits for a pause between changes, for a limited time.
#[derive(Debug, Default)]
pub(super) struct Settle {
    /// The times of the first and the last change that were not sent yet.
    burst: Option<(Instant, Instant)>,
}

impl Settle {
    pub(super) fn changed(&mut self, now: Instant) {
        let first = self.burst.map_or(now, |(first, _)| first);
        self.burst = Some((first, now));
    }

    /// The time at which to send; `None`: there is no change.
    pub(super) fn due(&self) -> Option<Instant> {
        let (first, last) = self.burst?;
        Some((last + QUIET).min(first + AT_MOST))
    }

    pub(super) fn sent(&mut self) {
        self.burst = None;
    }
}

const QUIET: Duration = Duration::from_millis(50);
const AT_MOST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    /// The time at which changes at these times are due, in milliseconds.
    fn due(changes: &[u64]) -> Option<u64> {
        let begin = Instant::now();
        let mut settle = Settle::default();
        for change in changes {
            settle.changed(begin + Duration::from_millis(*change));
        }
        let due = settle.due()?.duration_since(begin).as_millis();
        Some(u64::try_from(due).expect("it is small"))
    }

    #[test]
    fn a_change_waits_for_a_pause_of_limited_time() {
        let cases: [(&[u64], Option<u64>); 6] = [
            (&[], None),
            (&[0], Some(50)),
            (&[0, 30], Some(80)),
            (&[0, 40, 80, 120], Some(170)),
            (&[0, 40, 80, 120, 160], Some(200)),
            (&[7, 50, 90, 130, 170, 206], Some(207)),
        ];
        for (changes, expected) in cases {
            assert_eq!(due(changes), expected, "{changes:?}");
        }
    }

    #[test]
    fn changes_that_were_sent_are_not_due_again() {
        let now = Instant::now();
        let mut settle = Settle::default();
        settle.changed(now);
        settle.sent();
        assert_eq!(settle.due(), None);
        settle.changed(now + AT_MOST);
        assert_eq!(settle.due(), Some(now + AT_MOST + QUIET));
    }
}
