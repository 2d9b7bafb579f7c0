//! Another controller rewrites the status of a Service: how often ours is written again. Times are arguments; called by
//! [`super::apply`].
//!
//! A controller with another name is found by the conflict with its fields, or by addresses that are gone. Another Ballast writes in
//! our name: then the status is not as it was left here.

use std::collections::VecDeque;
use std::time::Duration;

use crate::observe::{Publication, hash};

/// The rewrites of one Service.
#[derive(Clone, Debug, Default)]
pub(super) struct Rewrites {
    /// The times of the rewrites within the window.
    times: VecDeque<Duration>,
    pause: Duration,
    until: Duration,
    /// Whether addresses of ours were written since the last rewrite.
    is_ours: bool,
    /// [`hash`] of the addresses that this process wrote last, or found written.
    written: u64,
    /// A hash of the status as this process wrote it last, or found it written.
    left: Option<u64>,
}

impl Rewrites {
    /// The Service publishes these addresses, which are ours. Says whether they are others than the last time.
    pub(super) fn written(&mut self, addresses: &[&str]) -> bool {
        self.is_ours = !addresses.is_empty();
        let before = std::mem::replace(&mut self.written, hash(addresses));
        self.written != before
    }

    /// The Service has the status that it must have.
    pub(super) fn left(&mut self, found: &Publication) {
        self.left = Some(found.text());
    }

    /// Whether the status is another one than it was left here. It says so once for each time that it was left.
    pub(super) fn is_another(&mut self, found: &Publication) -> bool {
        let is_another = self.left.take_if(|left| *left != found.text()).is_some();
        self.is_ours |= is_another;
        is_another
    }

    /// This process leads no more: others write now.
    pub(super) fn rest(&mut self) {
        self.left = None;
    }

    /// Whether the Service published addresses of ours when it was looked at last.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Notes that the addresses that we wrote are not in the status any more. One rewrite counts once, however often it is seen.
    /// Returns the time until which the status is left alone; `None`: our addresses are written again.
    pub(super) fn rewritten(&mut self, now: Duration) -> Option<Duration> {
        if now < self.until {
            return Some(self.until);
        }
        if !std::mem::take(&mut self.is_ours) {
            return None;
        }
        self.times.push_back(now);
        while self.times.front().is_some_and(|then| *then + WINDOW < now) {
            self.times.pop_front();
        }
        let was_paused = !self.pause.is_zero() && now < self.until + WINDOW;
        if !was_paused && self.times.len() < MOST {
            return None;
        }
        self.pause = match was_paused {
            true => (self.pause * 2).min(LONGEST),
            false => FIRST,
        };
        self.until = now + self.pause;
        self.times.clear();
        Some(self.until)
    }
}

/// So many rewrites within the window are too many.
const MOST: usize = 3;
const WINDOW: Duration = Duration::from_secs(300);
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// We write, and the other controller writes then.
    fn fight(rewrites: &mut Rewrites, now: u64) -> Option<Duration> {
        rewrites.written(&["10.0.0.1"]);
        rewrites.rewritten(at(now))
    }

    #[test]
    fn the_third_rewrite_within_five_minutes_is_left_alone() {
        let mut rewrites = Rewrites::default();
        assert_eq!(fight(&mut rewrites, 1), None);
        assert_eq!(fight(&mut rewrites, 2), None);
        assert_eq!(fight(&mut rewrites, 3), Some(at(33)));
        assert_eq!(rewrites.rewritten(at(10)), Some(at(33)));
        assert_eq!(rewrites.rewritten(at(33)), None, "another try");
    }

    #[test]
    fn a_status_that_was_left_otherwise_is_a_rewrite_unless_another_process_led_since() {
        let status = |version: u64, ingress: u64| {
            let mut status = Publication::default();
            (status.version, status.ingress) = (version, ingress);
            status
        };
        let mut rewrites = Rewrites::default();
        assert!(!rewrites.is_another(&status(1, 1)), "nothing was written");
        let mut found = Vec::new();
        for now in 1..=3 {
            rewrites.left(&status(1, 1));
            assert!(!rewrites.is_another(&status(2, 1)), "another version alone");
            assert!(rewrites.is_another(&status(3, 2)));
            assert!(!rewrites.is_another(&status(3, 2)), "once");
            found.push(rewrites.rewritten(at(now)));
        }
        assert_eq!(found, [None, None, Some(at(33))]);
        rewrites.left(&status(1, 1));
        rewrites.rest();
        assert!(!rewrites.is_another(&status(3, 2)));
    }

    #[test]
    fn a_rewrite_that_could_not_be_answered_yet_counts_once() {
        let mut rewrites = Rewrites::default();
        rewrites.written(&["10.0.0.1"]);
        for seconds in 0..10 {
            assert_eq!(rewrites.rewritten(at(seconds)), None);
        }
    }

    #[test]
    fn rewrites_that_are_far_apart_are_no_fight() {
        let mut rewrites = Rewrites::default();
        for times in 1..10 {
            assert_eq!(fight(&mut rewrites, times * 151), None, "{times}");
        }
    }

    #[test]
    fn the_pause_doubles_up_to_five_minutes_while_the_rival_goes_on() {
        let mut rewrites = Rewrites::default();
        let mut now = 0;
        for _ in 0..2 {
            assert_eq!(fight(&mut rewrites, now), None);
        }
        for pause in [30, 60, 120, 240, 300, 300] {
            assert_eq!(fight(&mut rewrites, now), Some(at(now + pause)));
            now += pause;
            assert_eq!(rewrites.rewritten(at(now)), None);
            now += 1;
        }
    }

    #[test]
    fn after_five_quiet_minutes_it_begins_anew() {
        let mut rewrites = Rewrites::default();
        for _ in 0..3 {
            fight(&mut rewrites, 0);
        }
        assert_eq!(fight(&mut rewrites, 330), None);
    }
}
