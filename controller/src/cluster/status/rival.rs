//! When another controller rewrites what a Service publishes: how often we write ours again. Times are arguments; called by [`super`].

use std::collections::VecDeque;
use std::time::Duration;

/// What happened at one Service.
#[derive(Clone, Debug, Default)]
pub(super) struct Rivalry {
    rewrites: VecDeque<Duration>,
    pause: Duration,
    until: Duration,
    /// Whether ours was written since the last rewrite.
    is_ours: bool,
}

/// What to do about a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Write ours again.
    Rewrite,
    /// Leave it alone until then.
    LeaveAlone(Duration),
}

impl Rivalry {
    /// Ours is written.
    pub(super) fn written(&mut self) {
        self.is_ours = true;
    }

    /// What we wrote is not there any more. One rewrite counts once, however often it is seen.
    pub(super) fn rewritten(&mut self, now: Duration) -> Answer {
        if now < self.until {
            return Answer::LeaveAlone(self.until);
        }
        if !std::mem::take(&mut self.is_ours) {
            return Answer::Rewrite;
        }
        self.rewrites.push_back(now);
        while self
            .rewrites
            .front()
            .is_some_and(|then| *then + WINDOW < now)
        {
            self.rewrites.pop_front();
        }
        let was_paused = !self.pause.is_zero() && now < self.until + WINDOW;
        if !was_paused && self.rewrites.len() < MOST {
            return Answer::Rewrite;
        }
        self.pause = match was_paused {
            true => (self.pause * 2).min(LONGEST),
            false => FIRST,
        };
        self.until = now + self.pause;
        self.rewrites.clear();
        Answer::LeaveAlone(self.until)
    }
}

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
    fn fight(rivalry: &mut Rivalry, now: u64) -> Answer {
        rivalry.written();
        rivalry.rewritten(at(now))
    }

    #[test]
    fn the_third_rewrite_within_five_minutes_is_left_alone() {
        let mut rivalry = Rivalry::default();
        assert_eq!(fight(&mut rivalry, 1), Answer::Rewrite);
        assert_eq!(fight(&mut rivalry, 2), Answer::Rewrite);
        assert_eq!(fight(&mut rivalry, 3), Answer::LeaveAlone(at(33)));
        assert_eq!(rivalry.rewritten(at(10)), Answer::LeaveAlone(at(33)));
        assert_eq!(rivalry.rewritten(at(33)), Answer::Rewrite, "another try");
    }

    #[test]
    fn a_rewrite_that_could_not_be_answered_yet_counts_once() {
        let mut rivalry = Rivalry::default();
        rivalry.written();
        for seconds in 0..10 {
            assert_eq!(rivalry.rewritten(at(seconds)), Answer::Rewrite);
        }
    }

    #[test]
    fn rewrites_that_are_far_apart_are_no_fight() {
        let mut rivalry = Rivalry::default();
        for times in 1..10 {
            assert_eq!(fight(&mut rivalry, times * 151), Answer::Rewrite, "{times}");
        }
    }

    #[test]
    fn the_pause_doubles_up_to_five_minutes_while_the_rival_goes_on() {
        let mut rivalry = Rivalry::default();
        let mut now = 0;
        for _ in 0..2 {
            assert_eq!(fight(&mut rivalry, now), Answer::Rewrite);
        }
        for pause in [30, 60, 120, 240, 300, 300] {
            assert_eq!(
                fight(&mut rivalry, now),
                Answer::LeaveAlone(at(now + pause))
            );
            now += pause;
            assert_eq!(rivalry.rewritten(at(now)), Answer::Rewrite);
            now += 1;
        }
    }

    #[test]
    fn after_five_quiet_minutes_it_begins_anew() {
        let mut rivalry = Rivalry::default();
        for _ in 0..3 {
            fight(&mut rivalry, 0);
        }
        assert_eq!(fight(&mut rivalry, 330), Answer::Rewrite);
    }
}
