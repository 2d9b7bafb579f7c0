//! The standing of this node as an owner, over time: when it begins, when it comes back, and when it was wrongly declared dead.

use std::time::Duration;

use crate::file::Return;
use crate::owner::Standing;

/// The standing of this node.
#[derive(Debug)]
pub struct Career {
    phase: Phase,
    /// When this node was declared dead while it lived, in the last [`REMEMBERED`].
    flaps: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// This node has just begun, and finds the other members.
    Beginning {
        until: Duration,
    },
    Flapping {
        until: Duration,
    },
    Returning {
        since: Duration,
    },
    Settled,
    /// This node can hold nothing now.
    Unable,
}

impl Career {
    /// A node that begins. One without members need not listen.
    #[must_use]
    pub fn begin(now: Duration, is_alone: bool) -> Self {
        let phase = match is_alone {
            true => Phase::Settled,
            false => Phase::Beginning {
                until: now + LISTEN,
            },
        };
        Self {
            phase,
            flaps: Vec::new(),
        }
    }

    /// The standing; `None`: it can hold nothing.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        match self.phase {
            Phase::Beginning { .. } | Phase::Unable => None,
            Phase::Flapping { .. } => Some(Standing::Flapping),
            Phase::Returning { .. } => Some(Standing::Returning),
            Phase::Settled => Some(Standing::Settled),
        }
    }

    /// Whether it does not know the others yet.
    #[must_use]
    pub fn is_beginning(&self) -> bool {
        matches!(self.phase, Phase::Beginning { .. })
    }

    /// Whether others declared it dead, and may have what it had.
    #[must_use]
    pub fn is_flapping(&self) -> bool {
        matches!(self.phase, Phase::Flapping { .. })
    }

    /// When [`Career::tick`] is to be called.
    #[must_use]
    pub fn deadline(&self, how: Return) -> Option<Duration> {
        match self.phase {
            Phase::Returning { .. } if how == Return::Never => None,
            Phase::Beginning { until } | Phase::Flapping { until } => Some(until),
            Phase::Returning { since } => Some(since + Return::DELAY),
            Phase::Settled | Phase::Unable => None,
        }
    }

    /// Goes on, as time and the others have it. `is_able`: this node could hold addresses. `has_settled`: another living member is
    /// settled.
    pub fn tick(&mut self, now: Duration, how: Return, is_able: bool, has_settled: bool) {
        let back = || match how {
            Return::AtOnce => Phase::Settled,
            _ if !has_settled => Phase::Settled,
            _ => Phase::Returning { since: now },
        };
        self.phase = match self.phase {
            Phase::Beginning { until } if now < until => return,
            Phase::Flapping { until } if now < until && is_able => return,
            // A node that cannot serve for a moment still waits as long as it was to wait.
            Phase::Flapping { until } if now < until => Phase::Flapping { until },
            _ if !is_able => Phase::Unable,
            Phase::Returning { since } => {
                let is_over = how == Return::Delayed && now.saturating_sub(since) >= Return::DELAY;
                match is_over || how == Return::AtOnce || !has_settled {
                    true => Phase::Settled,
                    false => Phase::Returning { since },
                }
            }
            Phase::Settled => Phase::Settled,
            Phase::Beginning { .. } | Phase::Flapping { .. } | Phase::Unable => back(),
        };
    }

    /// Others, who are the larger part, declared this node dead, and it lives.
    pub fn was_declared_dead(&mut self, now: Duration) {
        // The one that died is an earlier process of this node.
        if self.is_beginning() {
            return;
        }
        self.flaps.retain(|at| now.saturating_sub(*at) < REMEMBERED);
        self.flaps.push(now);
        // More than these make the wait no longer.
        let more = self.flaps.len().saturating_sub(MOST_FLAPS);
        self.flaps.drain(..more);
        let doublings = u32::try_from(self.flaps.len() - 1).unwrap_or(u32::MAX);
        let wait = REJOIN
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(LONGEST);
        if self.phase != Phase::Unable {
            self.phase = Phase::Flapping { until: now + wait };
        }
    }
}

/// How long a node that begins listens who is there.
const LISTEN: Duration = Duration::from_secs(1);
const REJOIN: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(80);
const REMEMBERED: Duration = Duration::from_secs(600);
const MOST_FLAPS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use Standing::{Flapping, Returning, Settled};

    const S: fn(u64) -> Duration = Duration::from_secs;

    /// The standing at each second, of a node beside settled ones.
    fn standings(
        how: Return,
        has_settled: impl Fn(u64) -> bool,
        until: u64,
    ) -> Vec<Option<Standing>> {
        let mut career = Career::begin(S(0), false);
        let at = |second| {
            career.tick(S(second), how, true, has_settled(second));
            career.standing()
        };
        (0..=until).map(at).collect()
    }

    #[test]
    fn a_node_beside_settled_ones_comes_back_as_the_file_says() {
        let delayed = standings(Return::Delayed, |_| true, 40);
        assert_eq!(
            [delayed[0], delayed[1], delayed[30], delayed[31]],
            [None, Some(Returning), Some(Returning), Some(Settled)]
        );
        let never = standings(Return::Never, |second| second < 500, 600);
        assert_eq!(
            [never[1], never[499], never[500]],
            [Some(Returning), Some(Returning), Some(Settled)]
        );
        let at_once = standings(Return::AtOnce, |_| true, 1);
        assert_eq!(at_once, [None, Some(Settled)]);
        let alone = standings(Return::Delayed, |_| false, 1);
        assert_eq!(alone, [None, Some(Settled)]);
        assert_eq!(Career::begin(S(0), true).standing(), Some(Settled));
    }

    #[test]
    fn one_that_could_not_hold_anything_comes_back_as_one_that_was_away() {
        let mut career = Career::begin(S(0), true);
        career.tick(S(5), Return::Delayed, false, true);
        assert_eq!(career.standing(), None);
        career.tick(S(6), Return::Delayed, true, true);
        assert_eq!(career.standing(), Some(Returning));
        career.tick(S(36), Return::Delayed, true, true);
        assert_eq!(career.standing(), Some(Settled));
    }

    #[test]
    fn a_process_that_begins_is_not_the_one_that_was_declared_dead() {
        let mut career = Career::begin(S(0), false);
        career.was_declared_dead(S(0));
        assert!(career.is_beginning());
        career.tick(S(1), Return::Delayed, true, false);
        assert_eq!(career.standing(), Some(Settled));
    }

    #[test]
    fn each_flap_within_ten_minutes_doubles_the_wait_up_to_80_seconds() {
        let mut career = Career::begin(S(0), true);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..6 {
            career.was_declared_dead(S(now));
            let mut wait = 0;
            while career.standing() == Some(Flapping) {
                wait += 1;
                career.tick(S(now + wait), Return::AtOnce, true, true);
            }
            waits.push(wait);
            now += wait;
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 80]);
        career.was_declared_dead(S(now + 600));
        assert_eq!(career.deadline(Return::Never), Some(S(now + 605)));
    }
}
