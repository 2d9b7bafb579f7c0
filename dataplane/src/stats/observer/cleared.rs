//! What had been counted when an operator had the counts cleared: it is taken off what is shown. The counts themselves
//! have one writer, the worker, and go on.

use ballast_core::admit::Refusal;
use ballast_core::plan::FrontendState;
use ballast_core::service::EjectionReason;

use super::super::datagrams::Datagrams;
use super::super::snapshot::{Counts, EndpointStats, FrontendStats, ServiceStats};

/// Of a frontend.
#[derive(Debug, Default)]
pub(super) struct OfFrontend {
    connections: u64,
    pub(super) sessions: u64,
    bytes_in: u64,
    pub(super) bytes_out: u64,
    refused: [u64; Refusal::ALL.len()],
    bad_headers: u64,
    late_headers: u64,
    datagrams: Datagrams,
}

impl OfFrontend {
    pub(super) fn now(state: &FrontendState) -> Self {
        let counters = state.counters();
        Self {
            connections: counters.sum(|cells| &cells.connections),
            sessions: counters.sum(|cells| &cells.sessions),
            bytes_in: counters.sum(|cells| &cells.bytes_in),
            bytes_out: counters.sum(|cells| &cells.bytes_out),
            refused: Refusal::ALL
                .map(|refusal| counters.sum(|cells| &cells.refused[refusal.index()])),
            bad_headers: counters.sum(|cells| &cells.bad_headers),
            late_headers: counters.sum(|cells| &cells.late_headers),
            datagrams: Datagrams::of(state),
        }
    }

    pub(super) fn take_off(&self, stats: &mut FrontendStats) {
        take(&mut stats.connections, self.connections);
        take(&mut stats.sessions, self.sessions);
        take(&mut stats.bytes_in, self.bytes_in);
        take(&mut stats.bytes_out, self.bytes_out);
        take(&mut stats.bad_headers, self.bad_headers);
        take(&mut stats.late_headers, self.late_headers);
        take_each(&mut stats.refused, &self.refused);
        if let Some(datagrams) = &mut stats.datagrams {
            **datagrams = datagrams.since(&self.datagrams);
        }
    }
}

/// Of a service.
#[derive(Debug, Default)]
pub(super) struct OfService {
    pub(super) sessions: u64,
    pub(super) unserved: u64,
    pub(super) panics: u64,
    pub(super) ejections: [u64; EjectionReason::ALL.len()],
    pub(super) counts: Counts,
    pub(super) downtime: u32,
    pub(super) downs: u32,
}

impl OfService {
    pub(super) fn take_off(&self, stats: &mut ServiceStats) {
        take(&mut stats.sessions, self.sessions);
        take(&mut stats.unserved, self.unserved);
        take(&mut stats.panics, self.panics);
        take_each(&mut stats.ejections, &self.ejections);
        stats.counts = stats.counts.since(&self.counts);
        stats.downtime = stats.downtime.saturating_sub(self.downtime);
        stats.downs = stats.downs.saturating_sub(self.downs);
    }
}

/// Of an endpoint.
#[derive(Debug, Default)]
pub(super) struct OfEndpoint {
    pub(super) counts: Counts,
    pub(super) downtime: u32,
    pub(super) failures: u64,
    pub(super) downs: u64,
}

impl OfEndpoint {
    pub(super) fn take_off(&self, stats: &mut EndpointStats) {
        stats.counts = stats.counts.since(&self.counts);
        stats.downtime = stats.downtime.saturating_sub(self.downtime);
        if let Some(check) = &mut stats.check {
            take(&mut check.failures, self.failures);
            take(&mut check.downs, self.downs);
        }
    }
}

fn take(count: &mut u64, cleared: u64) {
    *count = count.saturating_sub(cleared);
}

fn take_each(counts: &mut [u64], cleared: &[u64]) {
    for (count, cleared) in counts.iter_mut().zip(cleared) {
        take(count, *cleared);
    }
}
