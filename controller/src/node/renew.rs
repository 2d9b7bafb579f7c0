//! Decides when this node's Lease is renewed, and when it is released. Pure: the time is an argument. Used by [`super::lease`].

use std::sync::Arc;
use std::time::Duration;

/// The answer of the data plane's `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// The data plane serves.
    Ready,
    /// The data plane answers that it does not serve, or not for long.
    NotReady,
    /// There was no answer.
    Unreachable,
}

/// The annotations of the node's Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseContent {
    /// Hashes of where the data plane listens for which Services, in order. They are not written.
    pub(super) listens: Arc<[u64]>,
    /// The newest versions of Services that the data plane serves, as [`Versions`](crate::lease::Versions) writes them.
    pub(super) served: String,
    /// The binds and Secrets that do not work on this node, as [`Exceptions`](crate::lease::Exceptions) writes them.
    pub(super) exceptions: String,
    /// A hash of the settings that nodes and the publisher have in common.
    pub(super) settings: String,
    /// The ports that this node keeps for itself, as [`OwnPorts`](crate::lease::OwnPorts) writes them.
    pub(super) ports: String,
}

impl LeaseContent {
    /// Whether the publisher decides something else by this content than by `written`, so that it is not to wait for the next
    /// renewal. Newer versions of Services let it publish those that are listened for newly, and nothing else.
    fn is_news(&self, written: &Self) -> bool {
        let known = |content: &Self| Self {
            served: String::new(),
            listens: Arc::default(),
            ..content.clone()
        };
        let knows = |content: &Self| !content.served.is_empty();
        let is_known = |place: &u64| written.listens.binary_search(place).is_ok();
        knows(self) != knows(written)
            || known(self) != known(written)
            || (!Arc::ptr_eq(&self.listens, &written.listens) && !self.listens.iter().all(is_known))
    }
}

/// The next step for the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing is due.
    Wait,
    /// This node does not serve, or is not known to serve: the Lease is not renewed.
    Expire,
    /// The Lease is written with its content and the time.
    Renew,
    /// The Lease is given back.
    Release,
}

/// The state from which the next step follows.
#[derive(Debug)]
pub(super) struct RenewalSchedule {
    interval: Duration,
    is_held: bool,
    /// The time of the last answer that was [`Readiness::Ready`].
    ready: Option<Duration>,
    pace: Pace,
    /// The time of the first of the last answers in a row that were [`Readiness::NotReady`].
    not_ready_since: Option<Duration>,
    renewed: Option<(Duration, LeaseContent)>,
    /// The last time that something else was written than at the write before.
    told: Option<Duration>,
    not_before: Duration,
}

/// How soon this node writes what is new: at once after a quiet time, and only at its own turns while there is more and more. The turns
/// of all nodes are spread over one round, which is longer where there are more nodes.
#[derive(Clone, Copy, Debug)]
struct Pace {
    round: Duration,
    /// The turn within a round.
    turn: Duration,
}

impl Pace {
    /// `place` is a number by which nodes differ.
    fn new(interval: Duration, nodes: u32, place: u64) -> Self {
        let round = (BETWEEN_NODES * nodes).clamp(BETWEEN_CHANGES, interval * 9 / 8);
        let millis = u64::try_from(round.as_millis()).unwrap_or(u64::MAX);
        Self {
            round,
            turn: Duration::from_millis(place % millis.max(1)),
        }
    }

    /// When something new is written, after a write at `last`, and one with something new at `told`.
    fn due(self, last: Duration, told: Option<Duration>) -> Duration {
        let quiet = told.map_or(Duration::ZERO, |told| told + self.round);
        quiet.min(self.turn_after(last)).max(last + BETWEEN_CHANGES)
    }

    /// The first turn after a time.
    fn turn_after(self, time: Duration) -> Duration {
        let round = self.round.as_nanos().max(1);
        let begun = time.saturating_sub(self.turn).as_nanos() / round;
        let rounds = match time < self.turn {
            true => 0,
            false => begun + 1,
        };
        self.turn + self.round * u32::try_from(rounds).unwrap_or(u32::MAX)
    }
}

impl RenewalSchedule {
    /// A schedule for a Lease that an earlier process may have left held.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            pace: Pace::new(interval, 1, 0),
            interval,
            is_held: true,
            ready: None,
            not_ready_since: None,
            renewed: None,
            told: None,
            not_before: Duration::ZERO,
        }
    }

    /// Notes the result of a check.
    pub(super) fn checked(&mut self, now: Duration, readiness: Readiness) {
        if readiness == Readiness::Ready {
            self.ready = Some(now);
        }
        self.not_ready_since = match readiness {
            Readiness::NotReady => Some(self.not_ready_since.unwrap_or(now)),
            Readiness::Ready | Readiness::Unreachable => None,
        };
    }

    /// The next step, where the Lease would have this content.
    pub(super) fn action(&self, now: Duration, content: &LeaseContent) -> Action {
        if now < self.not_before {
            return Action::Wait;
        }
        if self
            .not_ready_since
            .is_some_and(|since| now >= since + GRACE)
        {
            return self.release_action();
        }
        if self.ready.is_none_or(|ready| now > ready + GRACE) {
            return Action::Expire;
        }
        let Some((at, written)) = &self.renewed else {
            return Action::Renew;
        };
        let due = match content.is_news(written) {
            // Every write is an event of each publisher's watch.
            true => self.pace.due(*at, self.told),
            false => *at + self.interval,
        };
        match now < due {
            true => Action::Wait,
            false => Action::Renew,
        }
    }

    /// Takes in how many nodes there are about. `place` is a number by which they differ.
    pub(super) fn keep_pace(&mut self, nodes: u32, place: u64) {
        self.pace = Pace::new(self.interval, nodes, place);
    }

    /// The next step where the decision is that this node serves nothing.
    pub(super) fn release_action(&self) -> Action {
        match self.is_held {
            true => Action::Release,
            false => Action::Expire,
        }
    }

    /// Notes that the Lease was renewed.
    pub(super) fn renewed(&mut self, now: Duration, content: LeaseContent) {
        self.is_held = true;
        let written = self.renewed.as_ref();
        if written.is_some_and(|(_, written)| content.is_news(written)) {
            self.told = Some(now);
        }
        self.renewed = Some((now, content));
    }

    /// Notes that the Lease was released.
    pub(super) fn released(&mut self) {
        self.is_held = false;
        self.renewed = None;
        self.told = None;
    }

    /// Notes that the Lease could not be written.
    pub(super) fn failed(&mut self, now: Duration) {
        self.not_before = now + RETRY_PAUSE;
    }
}

/// The time that a restart of the data plane may take.
const GRACE: Duration = Duration::from_secs(1);
const BETWEEN_CHANGES: Duration = Duration::from_millis(200);
/// While there is more and more that is new, all nodes together write once in this time.
const BETWEEN_NODES: Duration = Duration::from_millis(100);
const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn content(exceptions: &str) -> LeaseContent {
        LeaseContent {
            exceptions: exceptions.to_owned(),
            ..LeaseContent::default()
        }
    }

    #[test]
    fn newer_versions_alone_wait_for_the_next_renewal() {
        let mut schedule = renewed_at_zero();
        schedule.checked(at(2_900), Readiness::Ready);
        let with = |served: &str, listens: &[u64]| LeaseContent {
            served: served.to_owned(),
            listens: listens.into(),
            ..content("a")
        };
        schedule.renewed(at(0), with("rv=1", &[5, 7]));
        for (served, listens, action) in [
            ("rv=2", &[5, 7][..], Action::Wait),
            // A port that closes opens no Service: the publisher can learn of it at the next renewal.
            ("rv=2", &[5], Action::Wait),
            ("rv=2", &[], Action::Wait),
            ("rv=2", &[5, 7, 8], Action::Renew),
            ("rv=2", &[8], Action::Renew),
            ("", &[5, 7], Action::Renew),
        ] {
            let content = with(served, listens);
            assert_eq!(schedule.action(at(2_900), &content), action, "{listens:?}");
        }
    }

    /// A schedule that renewed at zero.
    fn renewed_at_zero() -> RenewalSchedule {
        let mut schedule = RenewalSchedule::new(at(3_000));
        schedule.checked(at(0), Readiness::Ready);
        assert_eq!(schedule.action(at(0), &content("a")), Action::Renew);
        schedule.renewed(at(0), content("a"));
        schedule
    }

    #[test]
    fn nothing_is_written_before_the_data_plane_answered() {
        let mut schedule = RenewalSchedule::new(at(3_000));
        assert_eq!(schedule.action(at(0), &content("a")), Action::Expire);
        schedule.checked(at(100), Readiness::Unreachable);
        assert_eq!(schedule.action(at(5_000), &content("a")), Action::Expire);
    }

    #[test]
    fn a_ready_data_plane_is_reported_every_three_seconds_and_changes_at_once() {
        let mut schedule = renewed_at_zero();
        schedule.checked(at(2_900), Readiness::Ready);
        assert_eq!(schedule.action(at(2_900), &content("a")), Action::Wait);
        assert_eq!(schedule.action(at(2_900), &content("b")), Action::Renew);
        schedule.checked(at(3_000), Readiness::Ready);
        assert_eq!(schedule.action(at(3_000), &content("a")), Action::Renew);
    }

    #[test]
    fn however_much_changes_there_are_five_writes_a_second_at_most() {
        let mut schedule = renewed_at_zero();
        let mut writes = 0;
        for millis in 1..=1000 {
            schedule.checked(at(millis), Readiness::Ready);
            let content = content(&millis.to_string());
            if schedule.action(at(millis), &content) == Action::Renew {
                schedule.renewed(at(millis), content);
                writes += 1;
            }
        }
        assert_eq!(writes, 5);
    }

    /// How often a node of so many writes within a minute, while something is new each 50 ms, after it was quiet.
    fn writes_in_a_minute(nodes: u32, place: u64) -> Vec<Duration> {
        let mut schedule = RenewalSchedule::new(at(4_000));
        schedule.keep_pace(nodes, place);
        schedule.checked(at(100_000), Readiness::Ready);
        schedule.renewed(at(100_000), content("a"));
        let mut writes = Vec::new();
        for millis in (100_050..160_050).step_by(50) {
            schedule.checked(at(millis), Readiness::Ready);
            let content = content(&millis.to_string());
            if schedule.action(at(millis), &content) == Action::Renew {
                schedule.renewed(at(millis), content);
                writes.push(at(millis));
            }
        }
        writes
    }

    #[test]
    fn a_node_of_many_writes_fifteen_times_a_minute_at_most() {
        for (nodes, most) in [(1, 300), (2, 300), (8, 77), (32, 20), (64, 15), (5_000, 15)] {
            for place in [0, 1, 199, 777, 2_250, 4_499, u64::MAX] {
                let writes = writes_in_a_minute(nodes, place);
                assert!(writes.len() <= most, "{nodes} {place}: {}", writes.len());
                let first = writes.first().expect("some");
                assert!(*first <= at(100_250), "the first one at once: {first:?}");
                let gaps = writes
                    .windows(2)
                    .filter_map(|two| two[1].checked_sub(two[0]));
                let longest = gaps.max().unwrap_or_default();
                assert!(longest <= at(4_550), "{nodes} {place}: {longest:?}");
            }
        }
    }

    #[test]
    fn the_turns_of_nodes_are_spread_over_a_round() {
        let round = |nodes, place| {
            let writes = writes_in_a_minute(nodes, place);
            *writes.last().expect("some")
        };
        let times: std::collections::BTreeSet<_> =
            (0..50).map(|node| round(64, node * 90)).collect();
        assert!(times.len() > 40, "{}", times.len());
    }

    #[test]
    fn after_a_quiet_round_something_new_is_written_at_once() {
        let mut schedule = RenewalSchedule::new(at(4_000));
        schedule.keep_pace(64, 4_000);
        schedule.checked(at(9_000), Readiness::Ready);
        schedule.renewed(at(9_000), content("a"));
        // The turns are at 4.0 s, 8.5 s, 13.0 s, 17.5 s.
        for (now, said, action) in [
            (9_100, "b", Action::Wait),
            (9_200, "b", Action::Renew),
            (9_500, "c", Action::Wait),
            (12_999, "c", Action::Wait),
            (13_000, "c", Action::Renew),
            (13_300, "d", Action::Wait),
            (17_000, "c", Action::Renew),
            (17_300, "d", Action::Wait),
            (17_500, "d", Action::Renew),
            (21_500, "d", Action::Renew),
            (22_200, "e", Action::Renew),
        ] {
            schedule.checked(at(now), Readiness::Ready);
            assert_eq!(schedule.action(at(now), &content(said)), action, "{now}");
            if action == Action::Renew {
                schedule.renewed(at(now), content(said));
            }
        }
    }

    #[test]
    fn a_second_of_503_releases_the_lease_once() {
        let mut schedule = renewed_at_zero();
        schedule.checked(at(100), Readiness::NotReady);
        assert_eq!(schedule.action(at(1_099), &content("a")), Action::Expire);
        schedule.checked(at(1_100), Readiness::NotReady);
        assert_eq!(schedule.action(at(1_100), &content("a")), Action::Release);
        schedule.released();
        schedule.checked(at(1_350), Readiness::NotReady);
        assert_eq!(schedule.action(at(1_350), &content("a")), Action::Expire);
    }

    #[test]
    fn a_shorter_503_releases_nothing() {
        let mut schedule = renewed_at_zero();
        for millis in [100, 900] {
            schedule.checked(at(millis), Readiness::NotReady);
        }
        schedule.checked(at(1_000), Readiness::Ready);
        schedule.checked(at(1_500), Readiness::NotReady);
        assert_eq!(schedule.action(at(2_000), &content("a")), Action::Wait);
    }

    #[test]
    fn no_answer_ends_renewal_after_a_second_and_releases_nothing() {
        let mut schedule = renewed_at_zero();
        schedule.checked(at(2_500), Readiness::Ready);
        schedule.checked(at(2_750), Readiness::Unreachable);
        assert_eq!(
            schedule.action(at(3_400), &content("a")),
            Action::Renew,
            "the grace"
        );
        schedule.checked(at(3_600), Readiness::Unreachable);
        assert_eq!(schedule.action(at(3_600), &content("a")), Action::Expire);
        assert_eq!(schedule.action(at(60_000), &content("b")), Action::Expire);
        schedule.checked(at(60_000), Readiness::Ready);
        assert_eq!(schedule.action(at(60_000), &content("a")), Action::Renew);
    }

    #[test]
    fn a_lease_of_an_earlier_process_is_released_too() {
        let mut schedule = RenewalSchedule::new(at(3_000));
        schedule.checked(at(0), Readiness::NotReady);
        schedule.checked(at(1_000), Readiness::NotReady);
        assert_eq!(schedule.action(at(1_000), &content("a")), Action::Release);
    }

    #[test]
    fn a_failed_write_is_tried_again_soon_but_not_at_once() {
        let mut schedule = renewed_at_zero();
        schedule.checked(at(3_000), Readiness::Ready);
        schedule.failed(at(3_000));
        assert_eq!(schedule.action(at(3_499), &content("a")), Action::Wait);
        assert_eq!(schedule.action(at(3_500), &content("a")), Action::Renew);
    }
}
