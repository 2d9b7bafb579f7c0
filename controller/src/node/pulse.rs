//! When this node's Lease is renewed, and when it is given back. Times are arguments; [`super::report`] does what is said.

use std::time::Duration;

/// What the data plane said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It serves.
    Ready,
    /// It is there and does not serve, or not for long.
    Leaving,
    /// There was no answer.
    Nothing,
}

/// The annotations of the node's Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The hashes of what the data plane serves, as [`Served`](crate::lease::Served) writes them.
    pub(super) served: String,
    /// The binds and Secrets that do not work on this node, as [`Exceptions`](crate::lease::Exceptions) writes them.
    pub(super) exceptions: String,
    /// A hash of the settings by which ports are given to Services.
    pub(super) settings: String,
}

/// What to do about the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing now.
    Rest,
    /// This node does not serve, or it is not known to: the Lease is not renewed.
    Silent,
    /// Write it, with what it says and the time.
    Renew,
    /// Give it back.
    Release,
}

/// The state of this node's Lease.
#[derive(Debug)]
pub(super) struct Pulse {
    every: Duration,
    is_held: bool,
    ready: Option<Duration>,
    leaving_since: Option<Duration>,
    renewed: Option<(Duration, Content)>,
    not_before: Duration,
}

impl Pulse {
    /// An earlier process may have left the Lease running.
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            is_held: true,
            ready: None,
            leaving_since: None,
            renewed: None,
            not_before: Duration::ZERO,
        }
    }

    /// Takes note of an answer.
    pub(super) fn heard(&mut self, now: Duration, heard: Heard) {
        match heard {
            Heard::Ready => self.ready = Some(now),
            Heard::Leaving | Heard::Nothing => {}
        }
        self.leaving_since = match heard {
            Heard::Leaving => Some(self.leaving_since.unwrap_or(now)),
            Heard::Ready | Heard::Nothing => None,
        };
    }

    /// What to do now; `content` is what a Lease would say.
    pub(super) fn act(&self, now: Duration, content: &Content) -> Act {
        if now < self.not_before {
            return Act::Rest;
        }
        if self.leaving_since.is_some_and(|since| now >= since + GRACE) {
            return self.give_back();
        }
        if self.ready.is_none_or(|ready| now > ready + GRACE) {
            return Act::Silent;
        }
        let Some((at, said)) = &self.renewed else {
            return Act::Renew;
        };
        let wait = match said == content {
            true => self.every,
            // However much changes: each write is one of every publisher's watch, too.
            false => CHANGES_EVERY,
        };
        if now < *at + wait {
            Act::Rest
        } else {
            Act::Renew
        }
    }

    /// What to do where this node serves nothing by decision.
    pub(super) fn give_back(&self) -> Act {
        match self.is_held {
            true => Act::Release,
            false => Act::Silent,
        }
    }

    /// The Lease was written.
    pub(super) fn renewed(&mut self, now: Duration, content: Content) {
        self.is_held = true;
        self.renewed = Some((now, content));
    }

    /// The Lease was given back.
    pub(super) fn released(&mut self) {
        self.is_held = false;
        self.renewed = None;
    }

    /// It could not be written.
    pub(super) fn failed(&mut self, now: Duration) {
        self.not_before = now + PAUSE;
    }
}

/// What a restart of the data plane may take.
const GRACE: Duration = Duration::from_secs(1);
const CHANGES_EVERY: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn content(served: &str) -> Content {
        Content {
            served: served.to_owned(),
            ..Content::default()
        }
    }

    /// A pulse that renewed at zero.
    fn beating() -> Pulse {
        let mut pulse = Pulse::new(at(3_000));
        pulse.heard(at(0), Heard::Ready);
        assert_eq!(pulse.act(at(0), &content("a")), Act::Renew);
        pulse.renewed(at(0), content("a"));
        pulse
    }

    #[test]
    fn nothing_is_written_before_the_data_plane_answered() {
        let mut pulse = Pulse::new(at(3_000));
        assert_eq!(pulse.act(at(0), &content("a")), Act::Silent);
        pulse.heard(at(100), Heard::Nothing);
        assert_eq!(pulse.act(at(5_000), &content("a")), Act::Silent);
    }

    #[test]
    fn a_ready_data_plane_is_reported_every_three_seconds_and_news_at_once() {
        let mut pulse = beating();
        pulse.heard(at(2_900), Heard::Ready);
        assert_eq!(pulse.act(at(2_900), &content("a")), Act::Rest);
        assert_eq!(pulse.act(at(2_900), &content("b")), Act::Renew);
        pulse.heard(at(3_000), Heard::Ready);
        assert_eq!(pulse.act(at(3_000), &content("a")), Act::Renew);
    }

    #[test]
    fn however_much_changes_there_are_five_writes_a_second_at_most() {
        let mut pulse = beating();
        let mut writes = 0;
        for millis in 1..=1000 {
            pulse.heard(at(millis), Heard::Ready);
            let content = content(&millis.to_string());
            if pulse.act(at(millis), &content) == Act::Renew {
                pulse.renewed(at(millis), content);
                writes += 1;
            }
        }
        assert_eq!(writes, 5);
    }

    #[test]
    fn a_second_of_503_is_a_goodbye_and_is_said_once() {
        let mut pulse = beating();
        pulse.heard(at(100), Heard::Leaving);
        assert_eq!(pulse.act(at(1_099), &content("a")), Act::Silent);
        pulse.heard(at(1_100), Heard::Leaving);
        assert_eq!(pulse.act(at(1_100), &content("a")), Act::Release);
        pulse.released();
        pulse.heard(at(1_350), Heard::Leaving);
        assert_eq!(pulse.act(at(1_350), &content("a")), Act::Silent);
    }

    #[test]
    fn a_shorter_503_is_none() {
        let mut pulse = beating();
        for millis in [100, 900] {
            pulse.heard(at(millis), Heard::Leaving);
        }
        pulse.heard(at(1_000), Heard::Ready);
        pulse.heard(at(1_500), Heard::Leaving);
        assert_eq!(pulse.act(at(2_000), &content("a")), Act::Rest);
    }

    #[test]
    fn silence_ends_renewal_after_a_second_and_releases_nothing() {
        let mut pulse = beating();
        pulse.heard(at(2_500), Heard::Ready);
        pulse.heard(at(2_750), Heard::Nothing);
        assert_eq!(pulse.act(at(3_400), &content("a")), Act::Renew, "the grace");
        pulse.heard(at(3_600), Heard::Nothing);
        assert_eq!(pulse.act(at(3_600), &content("a")), Act::Silent);
        assert_eq!(pulse.act(at(60_000), &content("b")), Act::Silent);
        pulse.heard(at(60_000), Heard::Ready);
        assert_eq!(pulse.act(at(60_000), &content("a")), Act::Renew);
    }

    #[test]
    fn a_lease_of_an_earlier_process_is_given_back_too() {
        let mut pulse = Pulse::new(at(3_000));
        pulse.heard(at(0), Heard::Leaving);
        pulse.heard(at(1_000), Heard::Leaving);
        assert_eq!(pulse.act(at(1_000), &content("a")), Act::Release);
    }

    #[test]
    fn what_failed_is_tried_again_soon_but_not_at_once() {
        let mut pulse = beating();
        pulse.heard(at(3_000), Heard::Ready);
        pulse.failed(at(3_000));
        assert_eq!(pulse.act(at(3_499), &content("a")), Act::Rest);
        assert_eq!(pulse.act(at(3_500), &content("a")), Act::Renew);
    }
}
