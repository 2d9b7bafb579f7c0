//! `least-connections`: the fewest connections by weight. Exact among up to 64 endpoints; the best of 8 samples among more.

use std::sync::atomic::Ordering;

use crate::moment::Moment;
use crate::rng::Rng;
use crate::service::{Endpoint, Service};

use super::tier::Candidates;

/// Up to this number, all endpoints are looked at: one bit for each.
pub(super) const MAX_EXACT: usize = 64;

/// The best of all or of some endpoints in the best tier.
pub(super) fn pick_fast(service: &Service, now: Moment, rng: &mut Rng) -> Option<usize> {
    if service.endpoints.len() > MAX_EXACT {
        return sampled(service, now, rng);
    }
    let mut best: Option<Load> = None;
    let mut equals: u64 = 0;
    for (index, endpoint) in service.endpoints.iter().enumerate() {
        if !endpoint.is_best(now) || endpoint.is_full() {
            continue;
        }
        let load = Load::of(service, endpoint, now);
        let bit = 1 << index;
        match &best {
            Some(best) if best.is_less(&load) => {}
            Some(best) if !load.is_less(best) => equals |= bit,
            _ => (best, equals) = (Some(load), bit),
        }
    }
    let turn = match equals.count_ones() {
        0 => return None,
        // All workers share this counter, so it is only used if there is a choice.
        1 => 0,
        count => service.state().turns.fetch_add(1, Ordering::Relaxed) % u64::from(count),
    };
    nth_bit(equals, turn)
}

/// The best of all candidates; a random one if several are equal.
pub(super) fn choose(candidates: &Candidates<'_>, rng: &mut Rng) -> Option<usize> {
    let mut best: Option<(Load, usize)> = None;
    let mut equals = 0;
    for (index, endpoint) in candidates.open_endpoints() {
        let load = Load::of(candidates.service, endpoint, candidates.now);
        match &best {
            Some((best, _)) if best.is_less(&load) => continue,
            Some((best, _)) if !load.is_less(best) => equals += 1,
            _ => equals = 1,
        }
        if rng.below(equals) == 0 {
            best = Some((load, index));
        }
    }
    best.map(|(_, index)| index)
}

fn sampled(service: &Service, now: Moment, rng: &mut Rng) -> Option<usize> {
    let mut best: Option<(Load, usize)> = None;
    for _ in 0..SAMPLES {
        let index = service.wheel.sample(rng)?;
        let endpoint = service.endpoints.get(index)?;
        if !endpoint.is_best(now) || endpoint.is_full() {
            continue;
        }
        let load = Load::of(service, endpoint, now);
        if best.as_ref().is_none_or(|(best, _)| load.is_less(best)) {
            best = Some((load, index));
        }
    }
    best.map(|(_, index)| index)
}

/// The load of an endpoint with one more connection, relative to its weight.
pub(super) struct Load {
    connections: u64,
    weight: u64,
}

impl Load {
    pub(super) fn of(service: &Service, endpoint: &Endpoint, now: Moment) -> Self {
        Self {
            connections: u64::from(endpoint.live.in_flight()) + 1,
            weight: u64::from(endpoint.weight) * u64::from(service.ramp(endpoint, now)),
        }
    }

    /// At most 2³² connections and weights below 2²⁵: the products fit.
    pub(super) fn is_less(&self, other: &Self) -> bool {
        self.connections * other.weight < other.connections * self.weight
    }
}

fn nth_bit(mut bits: u64, n: u64) -> Option<usize> {
    for _ in 0..n {
        bits &= bits.wrapping_sub(1);
    }
    (bits != 0).then(|| bits.trailing_zeros() as usize)
}

const SAMPLES: usize = 8;
