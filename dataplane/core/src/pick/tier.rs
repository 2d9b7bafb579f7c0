//! The tiers: which endpoints may be picked now, and in what order.
//!
//! Used when `pick_fast` has found nothing. It hands the algorithms the [`Candidates`].

use std::sync::atomic::Ordering;

use crate::moment::Moment;
use crate::service::{Endpoint, Service};
use crate::table::State;

use super::Tried;

/// The order in which endpoints are picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// Ready, its checks pass, not ejected.
    Ready,
    /// Ready, its checks pass.
    ReadyEjected,
    /// Backup, its checks pass, not ejected.
    Backup,
    /// Backup, its checks pass.
    BackupEjected,
    /// Ready or backup, with `all-down: try-all`.
    Anybody,
}

impl Service {
    /// Whether an endpoint other than the one at `index` is left to be picked, now or when it has room.
    pub fn has_another(&self, index: usize, tried: &Tried) -> bool {
        let others = self.endpoints.iter().enumerate();
        others
            .filter(|(other, _)| *other != index)
            .any(|(_, other)| other.has_tier(self.try_all) && !tried.has(other))
    }

    /// Whether an endpoint is left to be picked for a client without affinity, now or when it has room.
    pub fn is_usable(&self, tried: &Tried) -> bool {
        let mut endpoints = self.endpoints.iter();
        endpoints.any(|endpoint| endpoint.has_tier(self.try_all) && !tried.has(endpoint))
    }

    /// The best tier that has an untried endpoint, and how many of its endpoints have room.
    pub(super) fn best_tier(&self, tried: &Tried, now: Moment) -> Option<BestTier> {
        let mut best: Option<BestTier> = None;
        for endpoint in &self.endpoints {
            let Some(tier) = endpoint.tier(now, self.try_all) else {
                continue;
            };
            let known = best.as_ref().map(|found| found.tier);
            if known.is_some_and(|known| known < tier) || tried.has(endpoint) {
                continue;
            }
            let open = usize::from(!endpoint.is_full());
            let elsewhere = if tried.avoids(endpoint) { 0 } else { open };
            match &mut best {
                Some(found) if found.tier == tier => {
                    found.open += open;
                    found.elsewhere += elsewhere;
                }
                worse_or_none => {
                    *worse_or_none = Some(BestTier {
                        tier,
                        open,
                        elsewhere,
                    });
                }
            }
        }
        best
    }
}

impl Endpoint {
    /// Its present tier; `None` if clients without affinity never get it.
    pub(super) fn tier(&self, now: Moment, try_all: bool) -> Option<Tier> {
        if !self.is_eligible() {
            return None;
        }
        if self.live.is_stopping() {
            return None;
        }
        let is_backup = self.state == State::Backup;
        match (self.live.is_passing(), self.live.is_ejected(now)) {
            (true, false) if is_backup => Some(Tier::Backup),
            (true, true) if is_backup => Some(Tier::BackupEjected),
            (true, false) => Some(Tier::Ready),
            (true, true) => Some(Tier::ReadyEjected),
            (false, _) => try_all.then_some(Tier::Anybody),
        }
    }

    /// Whether it is in any tier. Its state, which other workers write, is read only if needed.
    pub(super) fn has_tier(&self, try_all: bool) -> bool {
        self.is_eligible() && (self.live.takes_newcomers() || (try_all && !self.live.is_stopping()))
    }

    /// Whether it could be in the best tier, whatever its health.
    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready && self.is_eligible()
    }

    /// Whether it is in the best tier.
    pub(super) fn is_best(&self, now: Moment) -> bool {
        self.is_ready() && self.live.takes_newcomers() && !self.live.is_ejected(now)
    }
}

pub(super) struct BestTier {
    pub(super) tier: Tier,
    /// How many endpoints of the tier have room.
    pub(super) open: usize,
    /// How many of those are on nodes that need not be avoided.
    pub(super) elsewhere: usize,
}

/// The endpoints that one pick may choose from: of one tier, untried, with room.
pub(super) struct Candidates<'a> {
    pub(super) service: &'a Service,
    pub(super) tried: &'a Tried,
    pub(super) tier: Tier,
    pub(super) spare_nodes: bool,
    pub(super) now: Moment,
}

impl<'a> Candidates<'a> {
    pub(super) fn open(&self) -> impl Iterator<Item = usize> {
        self.open_endpoints().map(|(index, _)| index)
    }

    pub(super) fn open_endpoints(&self) -> impl Iterator<Item = (usize, &'a Endpoint)> {
        self.service
            .endpoints
            .iter()
            .enumerate()
            .filter(|(_, endpoint)| {
                let avoided = self.spare_nodes && self.tried.avoids(endpoint);
                endpoint.tier(self.now, self.service.try_all) == Some(self.tier)
                    && !endpoint.is_full()
                    && !self.tried.has(endpoint)
                    && !avoided
            })
    }

    /// The weight of an endpoint, reduced during its slow start. Only for comparison with others.
    pub(super) fn weight(&self, endpoint: &Endpoint) -> u64 {
        let weight = u64::from(endpoint.weight);
        match self.service.slow_start {
            0 => weight,
            _ => weight * u64::from(self.service.ramp(endpoint, self.now)),
        }
    }

    /// Selects a candidate by weight. `position` is given the sum of the weights, and returns a position below it.
    pub(super) fn weighted(&self, position: impl FnOnce(u64) -> u64) -> Option<usize> {
        let total = self
            .open_endpoints()
            .map(|(_, endpoint)| self.weight(endpoint))
            .sum();
        let mut left = position(total);
        let mut last = None;
        for (index, endpoint) in self.open_endpoints() {
            let weight = self.weight(endpoint);
            if left < weight {
                return Some(index);
            }
            left -= weight;
            last = Some(index);
        }
        // An endpoint filled up or failed since the sum was computed.
        last
    }

    pub(super) fn next_detour(&self) -> u64 {
        self.service.state().detours.fetch_add(1, Ordering::Relaxed)
    }
}
