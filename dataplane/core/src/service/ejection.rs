//! What becomes of dials: who is kept out of the choice for a while because it could not be reached.
//!
//! Called by whoever dials, in its own worker. A success costs one load; only a failure takes the service's lock, so
//! that `share` and the last endpoint are counted by one at a time.

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
    /// The host answered that nobody listens.
    Refused,
    /// Something on the way answered that there is no way. Counts as refused.
    Unreachable,
}

/// What a failed dial led to.
#[derive(Clone, Debug, Default)]
#[must_use = "an ejection is worth a log line, and a silent node concerns every service"]
pub struct FailureNews {
    /// The endpoint was ejected.
    pub ejection: Option<Ejection>,
    /// Another endpoint of its node timed out just before: call [`Plan::eject_node`](crate::plan::Plan::eject_node).
    pub silent_node: Option<Arc<Node>>,
}

/// An endpoint is kept out of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Why.
    pub reason: EjectionReason,
    /// Until when, unless a connection or a check succeeds before.
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
    /// All of them, in the order of [`EjectionReason::index`].
    pub const ALL: [Self; 3] = [Self::Timeout, Self::Refused, Self::Node];

    /// Its word, as the table's reference has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Node => "node",
        }
    }

    /// Its place in an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A machine on which endpoints run, by the name that the table gives it.
#[derive(Debug)]
pub struct Node {
    name: Box<str>,
    /// The last dial to it that timed out.
    silent: Mutex<Option<(Moment, SocketAddr)>>,
}

impl Node {
    /// A node that has always answered.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            silent: Mutex::new(None),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of its endpoints timed out. Says whether another one did just before; it takes two new ones to say it again.
    fn timed_out(&self, address: SocketAddr, now: Moment) -> bool {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent =
            silent.is_some_and(|(when, other)| other != address && now.since(when) <= TOGETHER);
        *silent = (!is_silent).then_some((now, address));
        is_silent
    }
}

impl Service {
    /// A dial to the endpoint at `index` succeeded: it is no longer ejected.
    pub fn connected(&self, index: usize, now: Moment) {
        if let Some(endpoint) = self.endpoints.get(index) {
            endpoint.live.connected(now);
        }
    }

    /// A dial to the endpoint at `index`, begun at `began`, failed.
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
                        // A service that gives its endpoints next to no time must not speak for others.
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

    /// The endpoint at `index` was tried after its ejection, and is not back: until when it stays out now.
    pub fn tried_in_vain(&self, index: usize, now: Moment) -> Option<Moment> {
        let rule = self.spec.ejection.on()?;
        let endpoint = self.endpoints.get(index)?;
        endpoint.live.eject_longer(rule.first, rule.longest, now)
    }

    /// Ejects the endpoints that run on `node`, as far as `ejection` allows it here. Says how many that were.
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

    /// Whether `share` allows one more, and somebody else is left to be picked.
    fn can_spare(&self, endpoint: &Endpoint, share: u8, now: Moment) -> bool {
        let (mut eligible, mut ejected, mut others) = (0, 0, 0);
        for other in self.endpoints.iter().filter(|other| other.is_eligible()) {
            eligible += 1;
            if other.live.is_ejected(now) {
                ejected += 1;
            } else if other.live.is_passing() && !Arc::ptr_eq(&other.live, &endpoint.live) {
                others += 1;
            }
        }
        let allowed = (eligible * usize::from(share) / 100).max(1);
        ejected < allowed && others > 0
    }
}

/// Time-outs of one node that are no further apart are one event.
const TOGETHER: Duration = Duration::from_secs(2);

/// A dial must have been given so long for its time-out to count against its node.
const SILENCE: Duration = Duration::from_millis(250);
