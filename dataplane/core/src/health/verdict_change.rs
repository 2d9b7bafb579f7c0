//! A changed verdict, and its log line.

use std::fmt;
use std::sync::Arc;

use crate::endpoint::EndpointState;
use crate::moment::whole_millis;
use crate::service::{Endpoint, Service};
use crate::table::State;

use super::{Monitor, Outcome, Transition};

/// The verdict on an endpoint has changed. Displayed as haproxy's log line.
#[derive(Clone, Debug)]
pub struct VerdictChange {
    /// The direction of the change.
    pub transition: Transition,
    /// The endpoint's monitor after the change.
    pub monitor: Monitor,
    /// The result that caused the change.
    pub outcome: Outcome,
    /// Whether no endpoint of its service with passing checks is left.
    pub nobody_left: bool,
    pub(super) service: Arc<Service>,
    pub(super) index: usize,
}

impl VerdictChange {
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    pub fn endpoint(&self) -> Option<&Arc<EndpointState>> {
        self.service.endpoints().get(self.index).map(Endpoint::live)
    }
}

impl fmt::Display for VerdictChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.service.spec();
        let endpoint = spec.endpoints.get(self.index);
        let backup = match endpoint.map(|endpoint| endpoint.state) {
            Some(State::Backup) => "backup ",
            _ => "",
        };
        write!(f, "Health check for {backup}server {}/", spec.name)?;
        match endpoint.map(|endpoint| (&endpoint.name, endpoint.address)) {
            Some((Some(name), _)) => write!(f, "{name}")?,
            Some((None, address)) => write!(f, "{address}")?,
            None => {}
        }
        let (word, state) = match self.transition {
            Transition::Up => ("succeeded", "UP"),
            Transition::Down => ("failed", "DOWN"),
        };
        write!(f, " {word}, reason: {}", self.outcome.description())?;
        if let Some(code) = self.outcome.code() {
            write!(f, ", code: {code}")?;
        }
        if let Some(info) = self.outcome.info() {
            write!(f, ", info: \"{info}\"")?;
        }
        let took = self.monitor.last.map_or(0, |seen| whole_millis(seen.took));
        let (reached, of) = self.monitor.reached();
        write!(
            f,
            ", check duration: {took}ms, status: {reached}/{of} {state}."
        )
    }
}
