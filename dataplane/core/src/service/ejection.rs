//! Ejection: endpoints that could not be reached are left out for a while.
//!
//! The dialing worker calls this. A success costs one load. Only a failure takes the service's lock, so that the limit `share`
//! and the last endpoint are evaluated by one worker at a time.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::moment::Moment;

use super::{Endpoint, Service};

/// How a dial failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing answered in time.
    TimedOut,
    /// The host refused the connection.
    Refused,
    /// The network reported that the host cannot be reached. Counts as refused.
    Unreachable,
}

/// The consequences of a failed dial.
#[derive(Clone, Debug, Default)]
#[must_use = "an ejection is worth a log line, and a silent node concerns every service"]
pub struct FailureNews {
    /// The endpoint was ejected.
    pub ejection: Option<Ejection>,
    /// The node, if another of its endpoints timed out just before: call [`Plan::eject_node`](crate::plan::Plan::eject_node).
    pub silent_node: Option<Arc<Node>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    pub reason: EjectionReason,
    /// The end of the ejection, unless a connection or a check succeeds before.
    pub until: Moment,
}

/// Why an endpoint was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EjectionReason {
    /// A dial timed out.
    Timeout,
    /// Too many dials in a row were refused.
    Refused,
    /// Its node is silent.
    Node,
}

impl EjectionReason {
    /// All reasons, in the order of [`EjectionReason::index`].
    pub const ALL: [Self; 3] = [Self::Timeout, Self::Refused, Self::Node];

    /// Its word in the table's reference.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Node => "node",
        }
    }

    /// Its index in an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A machine on which endpoints run, by its name in the table.
#[derive(Debug)]
pub struct Node {
    name: Box<str>,
    /// The last dial to it that timed out.
    silent: Mutex<Option<(Moment, SocketAddr)>>,
}

impl Node {
    /// Creates a node without time-outs.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            silent: Mutex::new(None),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes that one of its endpoints timed out. Returns whether another one did just before. After that, two new time-outs
    /// are needed to return true again.
    fn timed_out(&self, address: SocketAddr, now: Moment) -> bool {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent =
            silent.is_some_and(|(when, other)| other != address && now.since(when) <= TOGETHER);
        *silent = (!is_silent).then_some((now, address));
        is_silent
    }
}

impl Service {
    /// Notes a failed dial to the endpoint at `index` that began at `began`.
    pub fn failed(
        &self,
        index: usize,
        failure: Failure,
        began: Moment,
        now: Moment,
    ) -> FailureNews {
        let (Some(endpoint), Some(rule)) = (self.endpoints.get(index), self.spec.ejection.on())
        else {
            return FailureNews::default();
        };
        match failure {
            Failure::TimedOut => FailureNews {
                ejection: self.eject(endpoint, EjectionReason::Timeout, began, now),
                silent_node: endpoint
                    .node()
                    .filter(|node| {
                        // A service with a very short connect timeout must not affect others.
                        now.since(began) >= SILENCE && node.timed_out(endpoint.address(), now)
                    })
                    .cloned(),
            },
            Failure::Refused | Failure::Unreachable => {
                if endpoint.live.refused(began) < rule.failures {
                    return FailureNews::default();
                }
                FailureNews {
                    ejection: self.eject(endpoint, EjectionReason::Refused, began, now),
                    silent_node: None,
                }
            }
        }
    }

    /// Notes that a trial of the endpoint at `index` after its ejection failed. Returns the end of the new ejection.
    pub fn trial_failed(&self, index: usize, now: Moment) -> Option<Moment> {
        let rule = self.spec.ejection.on()?;
        let endpoint = self.endpoints.get(index)?;
        endpoint.live.eject_longer(rule.first, rule.longest, now)
    }

    /// Ejects the endpoints that run on `node`, as far as `ejection` allows it here. Returns their number.
    pub fn eject_node(&self, node: &Arc<Node>, now: Moment) -> usize {
        self.endpoints
            .iter()
            .filter(|endpoint| endpoint.node().is_some_and(|on| Arc::ptr_eq(on, node)))
            .filter(|endpoint| {
                self.eject(endpoint, EjectionReason::Node, now, now)
                    .is_some()
            })
            .count()
    }

    fn eject(
        &self,
        endpoint: &Endpoint,
        reason: EjectionReason,
        began: Moment,
        now: Moment,
    ) -> Option<Ejection> {
        let rule = self.spec.ejection.on()?;
        if endpoint.live.is_ejected(now) {
            return None;
        }
        let deciding = self
            .state
            .ejecting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if endpoint.is_eligible() && !self.can_spare(endpoint, rule.share, now) {
            return None;
        }
        let until = endpoint.live.eject(rule.first, rule.longest, began, now)?;
        drop(deciding);
        if let Some(count) = self.state.ejections.get(reason.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Some(Ejection { reason, until })
    }

    /// Whether `share` allows one more ejection, and another endpoint is left to be picked.
    fn can_spare(&self, endpoint: &Endpoint, share: u8, now: Moment) -> bool {
        let (mut eligible, mut ejected, mut others) = (0, 0, 0);
        for other in self.endpoints.iter().filter(|other| other.is_eligible()) {
            eligible += 1;
            if other.live.is_ejected(now) {
                ejected += 1;
            } else if other.live.takes_newcomers() && !Arc::ptr_eq(&other.live, &endpoint.live) {
                others += 1;
            }
        }
        let allowed = (eligible * usize::from(share) / 100).max(1);
        ejected < allowed && others > 0
    }
}

/// Time-outs of one node within this time are one event.
const TOGETHER: Duration = Duration::from_secs(2);

/// The shortest dial whose time-out counts against its node.
const SILENCE: Duration = Duration::from_millis(250);
