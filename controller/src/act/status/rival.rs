//! When somebody else writes what a Service publishes: no endless fight. Times are arguments; called by [`super`].

use std::collections::VecDeque;
use std::time::Duration;

/// What happened at one Service.
#[derive(Clone, Debug, Default)]
pub(super) struct Rivalry {
    rewrites: VecDeque<Duration>,
    pause: Duration,
    until: Duration,
    /// It was left alone, and ours not written since.
    is_paused: bool,
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
    /// What we wrote is not there any more.
    pub(super) fn rewritten(&mut self, now: Duration) -> Answer {
        if now < self.until {
            return Answer::LeaveAlone(self.until);
        }
        if std::mem::take(&mut self.is_paused) {
            // One more try: whether the rival still writes is seen by what becomes of it.
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
        self.is_paused = true;
        Answer::LeaveAlone(self.until)
    }
}

const MOST: usize = 3;
const WINDOW: Duration = Duration::from_mins(5);
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_third_rewrite_within_five_minutes_is_left_alone() {
        let mut rivalry = Rivalry::default();
        assert_eq!(rivalry.rewritten(at(1)), Answer::Rewrite);
        assert_eq!(rivalry.rewritten(at(2)), Answer::Rewrite);
        assert_eq!(rivalry.rewritten(at(3)), Answer::LeaveAlone(at(33)));
        assert_eq!(rivalry.rewritten(at(10)), Answer::LeaveAlone(at(33)));
    }

    #[test]
    fn rewrites_that_are_far_apart_are_no_fight() {
        let mut rivalry = Rivalry::default();
        for times in 1..10 {
            assert_eq!(
                rivalry.rewritten(at(times * 151)),
                Answer::Rewrite,
                "{times}"
            );
        }
    }

    #[test]
    fn the_pause_doubles_up_to_five_minutes_while_the_rival_goes_on() {
        let mut rivalry = Rivalry::default();
        let mut now = 0;
        for _ in 0..2 {
            assert_eq!(rivalry.rewritten(at(now)), Answer::Rewrite);
        }
        let pauses = [30, 60, 120, 240, 300, 300].map(|pause| {
            let answer = rivalry.rewritten(at(now));
            assert_eq!(answer, Answer::LeaveAlone(at(now + pause)));
            // We write once more, and so does the rival.
            now += pause;
            assert_eq!(rivalry.rewritten(at(now)), Answer::Rewrite);
            now += 1;
            pause
        });
        assert_eq!(pauses[5], 300);
    }

    #[test]
    fn after_five_quiet_minutes_it_begins_anew() {
        let mut rivalry = Rivalry::default();
        for _ in 0..3 {
            rivalry.rewritten(at(0));
        }
        assert_eq!(rivalry.rewritten(at(330)), Answer::Rewrite);
    }
}
