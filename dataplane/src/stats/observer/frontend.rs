//! What is kept of a frontend from one reading to the next, and of removed frontends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use ballast_core::counters::Counts;
use ballast_core::flow::UdpCounts;
use ballast_core::plan::{Frontend, FrontendCounts, FrontendState, Listens, SocketKey};

use super::super::history::{History, Second};
use super::super::meter::Rate;
use super::super::snapshot::{FrontendStats, Process};
use super::routes;
use super::{mode, seconds_of};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) counts: FrontendCounts,
    pub(super) datagrams: UdpCounts,
}

impl Counted {
    pub(super) fn of(state: &FrontendState) -> Self {
        Self {
            counts: state.counts(),
            datagrams: state.udp_counts(),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.datagrams.merge(&other.datagrams);
    }

    fn subtract(&mut self, cleared: &Self) {
        self.counts.subtract(&cleared.counts);
        self.datagrams.subtract(&cleared.datagrams);
    }

    /// Its part of a history, in sum over all seconds.
    fn totals(&self) -> Second {
        Second {
            sessions: self.counts.sessions,
            current: 0,
            bytes_in: self.counts.bytes_in,
            bytes_out: self.counts.bytes_out,
            errors: self.counts.failed() + self.datagrams.failed(),
        }
    }
}

/// A frontend as it was read last.
#[derive(Debug)]
pub(super) struct ObservedFrontend {
    pub(super) iid: u32,
    pub(super) frontend: Arc<Frontend>,
    sessions: Rate,
    connections: Rate,
    requests: Rate,
    seen: Second,
    pub(super) history: History,
    /// What had been counted when an operator had the counters cleared: it is subtracted from what is shown.
    pub(super) cleared: Option<Box<Counted>>,
    cleared_routes: routes::Cleared,
}

impl ObservedFrontend {
    pub(super) fn new(iid: u32, frontend: &Arc<Frontend>, is_first: bool) -> Self {
        // What was counted before the first reading did not all come in the last second; but at the start it did.
        let seen = if is_first {
            Counted::default()
        } else {
            Counted::of(frontend.state())
        };
        Self {
            iid,
            frontend: Arc::clone(frontend),
            sessions: Rate::since(seen.counts.sessions),
            connections: Rate::since(seen.counts.connections),
            requests: Rate::since(seen.counts.requests),
            seen: seen.totals(),
            history: History::default(),
            cleared: None,
            cleared_routes: routes::Cleared::default(),
        }
    }

    pub(super) fn remove(mut self, rings: &mut usize) -> RemovedFrontend {
        self.history.forget(rings);
        RemovedFrontend {
            state: Arc::clone(self.frontend.state()),
            cleared: self.cleared,
        }
    }

    pub(super) fn clear(&mut self, all: bool) {
        self.sessions.forget_max();
        self.connections.forget_max();
        self.requests.forget_max();
        self.frontend.state().admit().forget_peak();
        if all {
            self.cleared = Some(Box::new(Counted::of(self.frontend.state())));
            self.cleared_routes = routes::Cleared::of(&self.frontend);
        }
    }

    pub(super) fn tick(&mut self, elapsed: u64, rings: &mut usize) -> (Counted, Second) {
        let state = self.frontend.state();
        let counted = Counted::of(state);
        self.sessions.tick(counted.counts.sessions, elapsed);
        self.connections.tick(counted.counts.connections, elapsed);
        self.requests.tick(counted.counts.requests, elapsed);
        let totals = counted.totals();
        let second = totals.one_since(self.seen, state.admit().current(), elapsed);
        self.history.push(second, seconds_of(elapsed), rings);
        self.seen = totals;
        (counted, second)
    }

    /// `counted` is everything that was ever counted: what had been counted when the counters were cleared is subtracted.
    pub(super) fn stats(
        &self,
        mut counted: Counted,
        process: &Process,
        open: &BTreeMap<SocketKey, SocketAddr>,
    ) -> FrontendStats {
        let frontend = &self.frontend;
        let (state, spec, limits) = (frontend.state(), frontend.spec(), frontend.limits());
        let is_udp = spec.protocol.is_udp();
        let most = if is_udp {
            process.most_flows
        } else {
            process.limit
        };
        let mut sockets = frontend.sockets().iter();
        if let Some(cleared) = &self.cleared {
            counted.subtract(cleared);
        }
        FrontendStats {
            name: frontend.name().clone(),
            iid: self.iid,
            spec: Arc::clone(spec),
            mode: mode(spec.protocol),
            is_open: frontend.listens() == Listens::Yes
                && sockets.any(|socket| open.contains_key(socket)),
            is_paused: frontend.listens() == Listens::Closed,
            exceptions: process
                .of_frontends
                .get(frontend.name())
                .cloned()
                .unwrap_or_default(),
            current: state.admit().current(),
            peak: state.admit().peak(),
            limit: limits.connections.map_or(most, |limit| limit.min(most)),
            is_overridden: limits.connections != spec.max_connections.map(NonZeroU32::get),
            counts: counted.counts,
            datagrams: is_udp.then(|| Box::new(counted.datagrams)),
            routes: frontend
                .records()
                .map(|records| self.cleared_routes.stats(records))
                .unwrap_or_default(),
            session_rate: self.sessions,
            connection_rate: self.connections,
            certificates: None,
            request_rate: self.requests,
        }
    }
}

/// A frontend that is not in the table any more. Its connections may still count there, and it may come back.
#[derive(Debug)]
pub(super) struct RemovedFrontend {
    pub(super) state: Arc<FrontendState>,
    pub(super) cleared: Option<Box<Counted>>,
}
