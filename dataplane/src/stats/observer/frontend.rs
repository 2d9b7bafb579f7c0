//! What is remembered of a frontend, and of those that left.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use ballast_core::admit::Refusal;
use ballast_core::counters::Cell;
use ballast_core::plan::{Frontend, FrontendState, Listens, SocketKey};

use super::super::datagrams::Datagrams;
use super::super::history::{History, Second};
use super::super::meter::{Rate, fresh};
use super::super::snapshot::{FrontendStats, Process};
use super::{cleared, mode, seconds_of};

/// What is remembered of a frontend.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) iid: u32,
    pub(super) frontend: Arc<Frontend>,
    sessions: Rate,
    connections: Rate,
    seen: Totals,
    pub(super) history: History,
    pub(super) cleared: Option<Box<cleared::OfFrontend>>,
}

impl Front {
    pub(super) fn new(iid: u32, frontend: &Arc<Frontend>, is_first: bool) -> Self {
        // What was counted before anybody looked did not all come in the last second; but at the start it did.
        let seen = if is_first {
            Totals::default()
        } else {
            Totals::of(frontend.state())
        };
        Self {
            iid,
            frontend: Arc::clone(frontend),
            sessions: Rate::since(seen.sessions),
            connections: Rate::since(seen.connections),
            seen,
            history: History::default(),
            cleared: None,
        }
    }

    pub(super) fn leave(mut self, rings: &mut usize) -> Leaving {
        self.history.forget(rings);
        Leaving {
            state: Arc::clone(self.frontend.state()),
            cleared: self.cleared,
        }
    }

    pub(super) fn clear(&mut self, all: bool) {
        self.sessions.forget_max();
        self.connections.forget_max();
        self.frontend.state().admit().forget_peak();
        if all {
            let now = cleared::OfFrontend::now(self.frontend.state());
            self.cleared = Some(Box::new(now));
        }
    }

    pub(super) fn is_udp(&self) -> bool {
        self.frontend.spec().protocol.is_udp()
    }

    pub(super) fn tick(&mut self, elapsed: u64, rings: &mut usize) -> (Totals, Second) {
        let totals = Totals::of(self.frontend.state());
        self.sessions.tick(totals.sessions, elapsed);
        self.connections.tick(totals.connections, elapsed);
        let current = self.frontend.state().admit().current();
        let second = totals.second(&self.seen, current, elapsed);
        self.history.push(second, seconds_of(elapsed), rings);
        self.seen = totals;
        (totals, second)
    }

    pub(super) fn stats(
        &self,
        process: &Process,
        open: &BTreeMap<SocketKey, SocketAddr>,
    ) -> FrontendStats {
        let frontend = &self.frontend;
        let most = match self.is_udp() {
            true => process.most_flows,
            false => process.limit,
        };
        let (state, limits) = (frontend.state(), frontend.limits());
        let counters = state.counters();
        let listens = frontend.listens() == Listens::Yes
            && frontend
                .sockets()
                .iter()
                .any(|socket| open.contains_key(socket));
        let mut stats = FrontendStats {
            name: frontend.name().clone(),
            iid: self.iid,
            spec: Arc::clone(frontend.spec()),
            mode: mode(frontend.spec().protocol),
            is_open: listens,
            current: state.admit().current(),
            peak: state.admit().peak(),
            limit: limits.connections.map_or(most, |limit| limit.min(most)),
            is_overridden: limits.connections
                != frontend.spec().max_connections.map(NonZeroU32::get),
            connections: counters.sum(|cells| &cells.connections),
            sessions: counters.sum(|cells| &cells.sessions),
            bytes_in: counters.sum(|cells| &cells.bytes_in),
            bytes_out: counters.sum(|cells| &cells.bytes_out),
            refused: Refusal::ALL
                .map(|refusal| counters.sum(|cells| &cells.refused[refusal.index()])),
            bad_headers: counters.sum(|cells| &cells.bad_headers),
            late_headers: counters.sum(|cells| &cells.late_headers),
            datagrams: self.is_udp().then(|| Box::new(Datagrams::of(state))),
            session_rate: self.sessions,
            connection_rate: self.connections,
        };
        if let Some(cleared) = &self.cleared {
            cleared.take_off(&mut stats);
        }
        stats
    }
}

/// A frontend that left the table. Its connections may still count there, and it may come back.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) state: Arc<FrontendState>,
    pub(super) cleared: Option<Box<cleared::OfFrontend>>,
}

/// What rates and histories are made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) connections: u64,
    pub(super) sessions: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) errors: u64,
}

impl Totals {
    pub(super) fn of(state: &FrontendState) -> Self {
        let mut totals = Self::default();
        for cells in state.counters().each() {
            totals.connections += cells.connections.value();
            totals.sessions += cells.sessions.value();
            totals.bytes_in += cells.bytes_in.value();
            totals.bytes_out += cells.bytes_out.value();
            totals.errors += cells.bad_headers.value() + cells.late_headers.value();
            totals.errors += cells.refused.iter().map(Cell::value).sum::<u64>();
        }
        totals.errors += Datagrams::of(state).lost();
        totals
    }

    /// Both together.
    pub(super) fn and(self, other: &Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            sessions: self.sessions + other.sessions,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
            errors: self.errors + other.errors,
        }
    }

    /// One of the seconds since `before`.
    pub(super) fn second(&self, before: &Self, current: u32, elapsed: u64) -> Second {
        let each = |now: u64, before: u64| (fresh(now, before) * 1000).div_ceil(elapsed.max(1));
        Second {
            sessions: each(self.sessions, before.sessions),
            current: current.into(),
            bytes_in: each(self.bytes_in, before.bytes_in),
            bytes_out: each(self.bytes_out, before.bytes_out),
            errors: each(self.errors, before.errors),
        }
    }
}
