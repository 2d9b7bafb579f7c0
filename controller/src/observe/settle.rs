//! When a burst of changes is over. Pure: the time is an argument. Used by `debounce`.

use std::time::Duration;

use tokio::time::Instant;

/// Waits for a pause between changes, but not for ever.
#[derive(Debug, Default)]
pub(super) struct Settle {
    /// When the first change came that was not sent yet, and the last one.
    burst: Option<(Instant, Instant)>,
}

impl Settle {
    /// Something changed.
    pub(super) fn changed(&mut self, now: Instant) {
        let first = self.burst.map_or(now, |(first, _)| first);
        self.burst = Some((first, now));
    }

    /// When to send what changed; `None`: nothing did.
    pub(super) fn due(&self) -> Option<Instant> {
        let (first, last) = self.burst?;
        Some((last + QUIET).min(first + AT_MOST))
    }

    /// It was sent.
    pub(super) fn sent(&mut self) {
        self.burst = None;
    }
}

const QUIET: Duration = Duration::from_millis(50);
const AT_MOST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    /// When changes come, and when they are due, in milliseconds.
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
    fn a_change_waits_for_quiet_but_not_for_ever() {
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
    fn what_was_sent_is_not_due_again() {
        let now = Instant::now();
        let mut settle = Settle::default();
        settle.changed(now);
        settle.sent();
        assert_eq!(settle.due(), None);
        settle.changed(now + AT_MOST);
        assert_eq!(settle.due(), Some(now + AT_MOST + QUIET));
    }
}
