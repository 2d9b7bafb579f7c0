//! Endpoints that fail and recover at random under changing tables, against a model that only counts results in a row.
//!
//! 32 seeds in an ordinary run; `SEED=n` replays one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tests::Process;
use super::{Check, Outcome, Transition};
use crate::moment::Moment;
use crate::rng::Rng;
use crate::simulation::try_seeds;

#[test]
fn every_verdict_has_its_cause() {
    let changes = AtomicU64::new(0);
    try_seeds(32, |seed| {
        let mut world = World::new(seed);
        for _ in 0..2_000 {
            world.step();
        }
        changes.fetch_add(world.changes, Ordering::Relaxed);
    });
    let changes = changes.into_inner();
    let is_replay = std::env::var_os("SEED").is_some();
    assert!(
        is_replay || changes > 1_000,
        "only {changes} changes: nothing was tried"
    );
}

struct World {
    process: Process,
    dice: Rng,
    /// By port.
    endpoints: BTreeMap<u16, Model>,
    asked: Vec<Health>,
    running: Vec<(Moment, Check, u64, bool)>,
    checks: u64,
    changes: u64,
}

/// What the table says of all checks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Health {
    rise: usize,
    fall: usize,
}

/// The expected state of an endpoint.
struct Model {
    is_up: bool,
    is_alive: bool,
    is_disabled: bool,
    /// The number of its present check; 0 without a check.
    check: u64,
    /// Its results.
    results: Vec<bool>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            process: Process::new(1000),
            dice: Rng::new(seed),
            endpoints: BTreeMap::new(),
            asked: Vec::new(),
            running: Vec::new(),
            checks: 0,
            changes: 0,
        };
        world.swap();
        world
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.dice.below(n) == 0
    }

    fn step(&mut self) {
        if self.one_in(100) {
            self.swap();
        }
        let (process, dice) = (&mut self.process, &mut self.dice);
        process.now = process.now.after(Duration::from_millis(dice.below(200)));
        for model in self.endpoints.values_mut() {
            if self.dice.below(50) == 0 {
                model.is_alive = !model.is_alive;
            }
        }
        while let Some(check) = self.process.checks.next(self.process.now) {
            let model = &self.endpoints[&check.address.port()];
            assert!(model.check > 0, "{} is not to be asked", check.address);
            let answer = model.is_alive ^ (self.dice.below(10) == 0);
            let end = self
                .process
                .now
                .after(Duration::from_millis(self.dice.below(900)));
            self.running.push((end, check, model.check, answer));
        }
        let now = self.process.now;
        let ended: Vec<_> = self.running.extract_if(.., |run| run.0 <= now).collect();
        for (_, check, number, answer) in ended {
            self.end(&check, number, answer);
        }
        for (port, model) in &self.endpoints {
            let endpoint = self.process.endpoint(*port);
            assert_eq!(endpoint.is_passing(), model.is_up, "port {port}");
            assert!(endpoint.monitor().is_some() || model.check == 0);
        }
    }

    fn end(&mut self, check: &Check, number: u64, answer: bool) {
        let outcome = if answer {
            Outcome::Answered(Some(200))
        } else {
            Outcome::WrongStatus(500)
        };
        let process = &mut self.process;
        let took = Duration::from_millis(1);
        let change = process
            .checks
            .ended(check.id, outcome, took, process.now, &mut process.rng);
        let transition = change.map(|change| change.transition);
        let model = self.endpoints.get_mut(&check.address.port());
        let expected = match (model, self.asked.first()) {
            (Some(model), Some(health)) if model.check == number => model.observe(answer, *health),
            _ => None,
        };
        assert_eq!(transition, expected, "{}", check.address);
        self.changes += u64::from(transition.is_some());
    }

    /// A random table: other endpoints, another check, no check, or no change.
    fn swap(&mut self) {
        let before = self.asked.first().copied();
        if self.one_in(3) || before.is_none() {
            self.asked = match self.dice.below(5) {
                0 => Vec::new(),
                n => vec![Health {
                    rise: 1 + usize::try_from(n % 2).unwrap(),
                    fall: 1 + usize::try_from(n % 3).unwrap(),
                }],
            };
        }
        let after = self.asked.first().copied();
        for port in 1..=5 {
            if self.one_in(4) {
                self.endpoints.remove(&port);
                continue;
            }
            let is_disabled = self.one_in(5);
            let model = self.endpoints.entry(port).or_insert(Model {
                is_up: true,
                is_alive: true,
                is_disabled,
                check: 0,
                results: Vec::new(),
            });
            model.is_up |= after.is_none();
            model.is_disabled = is_disabled;
            let goes_on = before == after && model.check > 0;
            if is_disabled || after.is_none() {
                model.check = 0;
            } else if !goes_on {
                self.checks += 1;
                model.check = self.checks;
                model.results.clear();
            }
        }
        let health = after.map_or_else(
            || "{mode: off}".into(),
            |health| {
                format!(
                    "{{mode: http, interval: 1s, rise: {}, fall: {}}}",
                    health.rise, health.fall
                )
            },
        );
        let endpoints: Vec<String> = self
            .endpoints
            .iter()
            .map(|(port, model)| {
                let state = if model.is_disabled {
                    "disabled"
                } else {
                    "ready"
                };
                format!("{{address: \"127.0.0.1:{port}\", state: {state}}}")
            })
            .collect();
        self.process.serve(&format!(
            "[{{name: s, health: {health}, endpoints: [{}]}}]",
            endpoints.join(", ")
        ));
    }
}

impl Model {
    fn observe(&mut self, passed: bool, health: Health) -> Option<Transition> {
        self.results.push(passed);
        let in_a_row = self
            .results
            .iter()
            .rev()
            .take_while(|result| **result == passed)
            .count();
        let enough = match self.results.len() {
            1 => 1,
            _ if passed => health.rise,
            _ => health.fall,
        };
        if passed == self.is_up || in_a_row < enough {
            return None;
        }
        self.is_up = passed;
        Some(if passed {
            Transition::Up
        } else {
            Transition::Down
        })
    }
}
