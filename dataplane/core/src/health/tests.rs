use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::compile::{CompileContext, compile};
use crate::endpoint::EndpointState;
use crate::loops::LOOPBACK_ONLY;
use crate::moment::Moment;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::table::{self, Format};

mod answers;
mod following;
mod timing;

const TOOK: Duration = Duration::from_millis(1);
const REFUSED: Outcome = Outcome::Unreached("Connection refused");

/// Plans and checks of one process.
pub(super) struct Process {
    pub(super) plan: Plan,
    pub(super) checks: Checks,
    pub(super) rng: Rng,
    pub(super) now: Moment,
}

impl Process {
    pub(super) fn new(rate: u32) -> Self {
        let mut rng = Rng::new(7);
        Self {
            plan: Plan::default(),
            checks: Checks::new(rate, &mut rng),
            rng,
            // A process that has run for some time.
            now: Moment(1_234_567),
        }
    }

    /// Applies this list of services, in YAML.
    pub(super) fn serve(&mut self, services: &str) -> Option<u64> {
        let text = format!("version: 1\nservices: {services}");
        let table = table::parse(text.as_bytes(), Format::Yaml).unwrap();
        let mut context = CompileContext {
            now: self.now,
            workers: 1,
            ipv6: true,
            host: &LOOPBACK_ONLY,
            rng: &mut self.rng,
        };
        self.plan = compile(table, &self.plan, &mut context);
        self.checks.follow(&self.plan, self.now)
    }

    /// One service `s` with checks on these ports of 127.0.0.1.
    fn serve_ports(&mut self, health: &str, ports: &[u16]) -> Option<u64> {
        let endpoints: Vec<String> = ports
            .iter()
            .map(|port| format!("{{address: \"127.0.0.1:{port}\"}}"))
            .collect();
        self.serve(&format!(
            "[{{name: s, health: {health}, endpoints: [{}]}}]",
            endpoints.join(", ")
        ))
    }

    /// Runs all checks for this time; each one ends at once with the outcome of `judge`. Returns the changes as log lines.
    fn run(
        &mut self,
        time: Duration,
        mut judge: impl FnMut(Moment, SocketAddr) -> Outcome,
    ) -> Vec<String> {
        let end = self.now.after(time);
        let mut changes = Vec::new();
        while let Some(due) = self.checks.next_due() {
            if due >= end {
                break;
            }
            self.now = self.now.max(due);
            while let Some(check) = self.checks.next(self.now) {
                let outcome = judge(self.now, check.address);
                changes.extend(self.end(&check, outcome));
            }
        }
        self.now = end;
        changes
    }

    fn end(&mut self, check: &Check, outcome: Outcome) -> Option<String> {
        let change = self
            .checks
            .ended(check.id, outcome, TOOK, self.now, &mut self.rng);
        change.map(|change| change.to_string())
    }

    fn asks_nobody(&mut self) -> bool {
        let mut asked = 0;
        self.run(seconds(3600), |_, _| {
            asked += 1;
            Outcome::Connected
        });
        asked == 0
    }

    /// Waits for the next check.
    fn next(&mut self) -> Check {
        self.now = self.now.max(self.checks.next_due().unwrap());
        self.checks.next(self.now).unwrap()
    }

    pub(super) fn endpoint(&self, port: u16) -> Arc<EndpointState> {
        let endpoints = self.plan.services()[0].endpoints();
        let endpoint = endpoints
            .iter()
            .find(|endpoint| endpoint.address().port() == port);
        Arc::clone(endpoint.unwrap().live())
    }

    fn monitor(&self, port: u16) -> Monitor {
        self.endpoint(port).monitor().unwrap()
    }
}

fn well(_: Moment, _: SocketAddr) -> Outcome {
    Outcome::Connected
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
