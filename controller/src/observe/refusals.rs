//! When an object that the API server refuses to show counts as refused. Pure: the time is an argument. Used by `secrets` and `grants`.

use std::time::Duration;

use tokio::time::Instant;

/// The refusals of the API server in a row, for one object. A server that has just started may refuse for a moment what it allows: an
/// object that is known stays as it is until refusals last.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    is_known: bool,
    count: u32,
    /// The time of the first one.
    since: Option<Instant>,
}

impl Refusals {
    /// Notes that the object was read.
    pub(super) fn answered(&mut self) {
        *self = Self {
            is_known: true,
            ..Self::default()
        };
    }

    /// Notes a failure that is no refusal.
    pub(super) fn interrupted(&mut self) {
        (self.count, self.since) = (0, None);
    }

    /// Notes a refusal. Returns whether the object counts as refused.
    pub(super) fn are_believed(&mut self, now: Instant) -> bool {
        self.count = self.count.saturating_add(1);
        let since = *self.since.get_or_insert(now);
        !self.is_known || (self.count >= REFUSALS && now >= since + REFUSED_FOR)
    }
}

/// The refusals in a row, and their time, after which a known object counts as refused.
const REFUSALS: u32 = 3;
const REFUSED_FOR: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    fn at(seconds: u64) -> Instant {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        *BEGIN.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn an_object_that_is_not_known_is_refused_at_once() {
        let mut refusals = Refusals::default();
        assert!(refusals.are_believed(at(0)));
        refusals.interrupted();
        assert!(refusals.are_believed(at(1)));
    }

    #[test]
    fn a_known_object_is_refused_after_several_refusals_over_some_seconds() {
        let mut refusals = Refusals::default();
        refusals.answered();
        for second in 0..10 {
            assert!(!refusals.are_believed(at(second)), "{second}");
        }
        assert!(refusals.are_believed(at(10)));
        assert!(refusals.are_believed(at(11)));
        // Few refusals prove nothing, however much time lies between them.
        refusals.answered();
        assert!(!refusals.are_believed(at(20)));
        assert!(!refusals.are_believed(at(90)));
        assert!(refusals.are_believed(at(160)));
    }

    #[test]
    fn refusals_in_a_row_begin_anew_after_any_other_answer() {
        let mut refusals = Refusals::default();
        refusals.answered();
        for second in [0, 4, 8] {
            assert!(!refusals.are_believed(at(second)), "{second}");
        }
        refusals.interrupted();
        for second in [12, 16, 20] {
            assert!(!refusals.are_believed(at(second)), "{second}");
        }
        assert!(refusals.are_believed(at(22)));
    }
}
