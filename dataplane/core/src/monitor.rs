//! The state that checks give an endpoint: rise and fall, and the last result.
//!
//! A [`Monitor`] is kept with the endpoint's other state, so it survives swaps. Only [`Checks`](crate::health::Checks) changes it; readers get
//! a copy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::moment::Moment;
use crate::table::Health;

mod outcome;
mod service_checks;

pub use outcome::Outcome;
pub use service_checks::ServiceChecks;

/// The state of one check.
///
/// This is haproxy's counter. The endpoint is up while its points are at `rise` or above. While it is down, each passed check
/// adds a point, and the one that brings it up sets all points. While it is up, each failed check takes a point, and the one
/// that takes it down clears all. A new check starts one result away from the other state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Passed checks in a row that bring the endpoint up (`check_rise`).
    pub rise: u8,
    /// Failed checks in a row that take the endpoint down (`check_fall`).
    pub fall: u8,
    /// Its points: 0 to rise + fall - 1 (`check_health`).
    pub points: u8,
    /// Whether a check is running.
    pub is_running: bool,
    /// The last result; `None` if there was none yet.
    pub last: Option<CheckResult>,
    /// Since when it has been up or down in this process.
    pub since: Moment,
    /// For how long it had been so in the process before.
    pub earlier: Duration,
    /// Failed checks while the endpoint was up (`chkfail`).
    pub failed: u64,
    /// How often the endpoint went down (`chkdown`).
    pub downs: u64,
    /// How often the endpoint went down within a minute of having come back.
    pub flaps: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckResult {
    pub outcome: Outcome,
    pub took: Duration,
    /// The moment of the end.
    pub at: Moment,
}

/// The health that an operator gives an endpoint, until its checks say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForcedHealth {
    /// It gets clients.
    Up,
    /// It gets only clients that have affinity.
    Stopping,
    /// It gets no clients.
    Down,
}

/// The direction of a changed verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The endpoint is up again.
    Up,
    /// The endpoint is down.
    Down,
}

impl Monitor {
    /// Creates the monitor of a new check, whose first result decides. Until then the verdict is `passing`.
    pub fn unproven(health: &Health, passing: bool, now: Moment) -> Self {
        // The table does not allow a rise below 1; with 0, there would be no points below it.
        let rise = health.rise.max(1);
        Self {
            rise,
            fall: health.fall.max(1),
            points: if passing { rise } else { rise - 1 },
            is_running: false,
            last: None,
            since: now,
            earlier: Duration::ZERO,
            failed: 0,
            downs: 0,
            flaps: 0,
        }
    }

    /// The monitor of a new check of the same endpoint: its first result decides, but the history is kept. One that has no result
    /// yet, such as that of another process, goes on where it is.
    pub fn renewed(&self, health: &Health) -> Self {
        let is_same = (self.rise, self.fall) == (health.rise.max(1), health.fall.max(1));
        if self.last.is_none() && is_same {
            return *self;
        }
        Self {
            since: self.since,
            earlier: self.earlier,
            failed: self.failed,
            downs: self.downs,
            flaps: self.flaps,
            ..Self::unproven(health, self.is_up(), self.since)
        }
    }

    /// Notes a result. Returns the transition, if the verdict has changed.
    pub fn observe(&mut self, now: Moment, outcome: Outcome, took: Duration) -> Option<Transition> {
        self.is_running = false;
        self.last = Some(CheckResult {
            outcome,
            took,
            at: now,
        });
        match (outcome.passed()?, self.is_up()) {
            (true, true) => {
                self.points = self.most();
                None
            }
            (true, false) => {
                self.points += 1;
                self.is_up().then(|| self.rise(now))
            }
            (false, true) => {
                self.failed += 1;
                self.points -= 1;
                (!self.is_up()).then(|| self.fall(now))
            }
            (false, false) => {
                self.points = 0;
                None
            }
        }
    }

    /// Sets the state by hand, as far from the other one as it can be.
    pub(crate) fn force(&mut self, up: bool, now: Moment) {
        match (up, self.is_up()) {
            (true, false) => _ = self.rise(now),
            (false, true) => _ = self.fall(now),
            (true, true) => self.points = self.most(),
            (false, false) => self.points = 0,
        }
    }

    fn rise(&mut self, now: Moment) -> Transition {
        self.points = self.most();
        (self.since, self.earlier) = (now, Duration::ZERO);
        Transition::Up
    }

    fn fall(&mut self, now: Moment) -> Transition {
        self.points = 0;
        if self.downs > 0 && self.age(now) < STEADY {
            self.flaps += 1;
        }
        self.downs += 1;
        (self.since, self.earlier) = (now, Duration::ZERO);
        Transition::Down
    }

    /// For how long it has been up or down.
    #[must_use]
    pub fn age(&self, now: Moment) -> Duration {
        now.since(self.since).saturating_add(self.earlier)
    }

    /// Whether the endpoint is up.
    pub fn is_up(&self) -> bool {
        self.points >= self.rise
    }

    /// Whether the next results may change the verdict, so that they are wanted soon.
    pub fn is_changing(&self) -> bool {
        self.points != 0 && self.points != self.most()
    }

    /// The number of last results in a row that keep the endpoint up, or speak for its coming up, and the number that is needed.
    pub fn reached(&self) -> (u8, u8) {
        if self.is_up() {
            (self.points - self.rise + 1, self.fall)
        } else {
            (self.points, self.rise)
        }
    }

    fn most(&self) -> u8 {
        self.rise + self.fall - 1
    }
}

/// An endpoint that goes down within this time after it came back is flapping.
const STEADY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(3);

    fn health(rise: u8, fall: u8) -> Health {
        serde_json::from_value(serde_json::json!({"mode": "tcp", "rise": rise, "fall": fall}))
            .unwrap()
    }

    fn monitor(rise: u8, fall: u8) -> Monitor {
        Monitor::unproven(&health(rise, fall), true, Moment(0))
    }

    /// Feeds one result for each letter, a second apart: `+` passed, `-` failed, `?` neither. Says what each led to:
    /// `U`, `D` or a dot.
    fn led_to(monitor: &mut Monitor, results: &str, from: u64) -> String {
        results
            .chars()
            .zip(from..)
            .map(|(result, second)| {
                let outcome = match result {
                    '+' => Outcome::Connected,
                    '-' => Outcome::Unreached("Connection refused"),
                    _ => Outcome::NoCheck("No file descriptors available"),
                };
                match monitor.observe(Moment(second * 1000), outcome, TOOK) {
                    Some(Transition::Up) => 'U',
                    Some(Transition::Down) => 'D',
                    None => '.',
                }
            })
            .collect()
    }

    #[test]
    fn rise_and_fall_count_results_in_a_row() {
        for (rise, fall, results, expected) in [
            (2, 3, "+---", "...D"),
            (2, 3, "+--+--+---", ".........D"),
            (2, 3, "+---++", "...D.U"),
            (2, 3, "+---+-+-++", "...D.....U"),
            (1, 1, "+-+-", ".DUD"),
            (1, 3, "+---+---", "...DU..D"),
            (3, 1, "-+++-", "D..UD"),
            (10, 20, "+", "."),
            // What says nothing counts for neither side.
            (2, 3, "+-?-?-", ".....D"),
            (2, 3, "-+?+", "D..U"),
        ] {
            let led_to = led_to(&mut monitor(rise, fall), results, 0);
            assert_eq!(led_to, expected, "{rise}/{fall}: {results}");
        }
    }

    #[test]
    fn the_first_result_of_a_new_endpoint_decides() {
        for fall in 1..=20 {
            assert_eq!(led_to(&mut monitor(2, fall), "-", 0), "D", "{fall}");
        }
        let mut proven = monitor(2, 3);
        assert_eq!(led_to(&mut proven, "+--", 0), "...");
        assert!(proven.is_up());
    }

    #[test]
    fn alternating_results_never_flap() {
        let results = "+-".repeat(500);
        let mut monitor = monitor(2, 3);
        assert!(!led_to(&mut monitor, &results, 0).contains(['U', 'D']));
        assert_eq!((monitor.flaps, monitor.downs), (0, 0));
        assert_eq!(monitor.failed, 500);
    }

    #[test]
    fn another_check_keeps_the_verdict_until_it_has_one() {
        for (before, first, expected) in [
            ("+", "+", "."),
            ("+", "-", "D"),
            ("-", "+", "U"),
            ("-", "-", "."),
        ] {
            let mut monitor = monitor(3, 3);
            led_to(&mut monitor, before, 0);
            let mut renewed = monitor.renewed(&health(2, 5));
            assert_eq!(renewed.is_up(), monitor.is_up());
            assert_eq!(renewed.last, None);
            assert_eq!(
                led_to(&mut renewed, first, 10),
                expected,
                "{before}, {first}"
            );
            assert!(renewed.downs >= monitor.downs);
        }
    }

    #[test]
    fn the_state_is_shown_in_haproxys_words() {
        let mut monitor = monitor(2, 3);
        let word = |monitor: &Monitor| monitor.last.map_or("", |seen| seen.outcome.word());
        let status = |monitor: &Monitor| {
            let (reached, of) = monitor.reached();
            let progress = monitor.is_changing().then(|| format!(" {reached}/{of}"));
            let state = if monitor.is_up() { "UP" } else { "DOWN" };
            state.to_owned() + &progress.unwrap_or_default()
        };
        let mut shown = vec![(status(&monitor), word(&monitor))];
        for result in ["+", "-", "-", "-", "+", "+"] {
            led_to(&mut monitor, result, 0);
            shown.push((status(&monitor), word(&monitor)));
        }
        let shown: Vec<_> = shown
            .iter()
            .map(|(status, word)| (status.as_str(), *word))
            .collect();
        assert_eq!(
            shown,
            [
                ("UP 1/3", ""),
                ("UP", "L4OK"),
                ("UP 2/3", "L4CON"),
                ("UP 1/3", "L4CON"),
                ("DOWN", "L4CON"),
                ("DOWN 1/2", "L4OK"),
                ("UP", "L4OK"),
            ]
        );
        assert_eq!(monitor.reached(), (3, 3));
        assert_eq!(monitor.points, 4);
    }

    #[test]
    fn flaps_are_counted() {
        let mut monitor = monitor(1, 1);
        led_to(&mut monitor, "+-", 0);
        assert_eq!(monitor.since, Moment(1000));
        led_to(&mut monitor, "+", 11);
        assert_eq!(
            (monitor.downs, monitor.flaps),
            (1, 0),
            "the first time is no flap"
        );
        led_to(&mut monitor, "-", 70);
        assert_eq!(
            (monitor.downs, monitor.flaps),
            (2, 1),
            "59 s after it came back"
        );
        led_to(&mut monitor, "+", 80);
        led_to(&mut monitor, "-", 140);
        assert_eq!((monitor.downs, monitor.flaps), (3, 1), "it held for 60 s");
    }
}
