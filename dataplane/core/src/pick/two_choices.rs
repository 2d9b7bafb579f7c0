//! `random`: of two endpoints drawn by weight, the one with fewer connections for its weight.

use crate::moment::Moment;
use crate::rng::Rng;
use crate::service::Service;

use super::tier::Candidates;

/// Draws pairs until one of a pair can take the client.
pub(super) fn pick_fast(service: &Service, now: Moment, rng: &mut Rng) -> Option<usize> {
    if service.wheel.is_empty() {
        return None;
    }
    let draw = |rng: &mut Rng| {
        service
            .wheel
            .sample(rng)
            .filter(|index| service.is_open(*index, now) && service.ramp_admits(*index, now, rng))
    };
    for _ in 0..PAIRS {
        let one = draw(rng);
        let mut other = draw(rng);
        if one.is_some() && other == one {
            other = draw(rng);
        }
        match (one, other) {
            (Some(one), Some(other)) => return Some(better(service, one, other)),
            (Some(only), None) | (None, Some(only)) => return Some(only),
            (None, None) => {}
        }
    }
    None
}

/// Draws a pair among the candidates.
pub(super) fn choose(candidates: &Candidates<'_>, rng: &mut Rng) -> Option<usize> {
    let one = candidates.weighted(|total| rng.below(total))?;
    let other = candidates.weighted(|total| rng.below(total))?;
    Some(better(candidates.service, one, other))
}

/// The first of the two, unless the second has a smaller load. If neither has any load, the weights alone decide.
fn better(service: &Service, one: usize, other: usize) -> usize {
    let load = |index: usize| {
        let endpoint = service.endpoints.get(index)?;
        Some((
            u64::from(endpoint.live.in_flight()),
            u64::from(endpoint.weight),
        ))
    };
    match (load(one), load(other)) {
        (Some((a, weight_a)), Some((b, weight_b))) if b * weight_a < a * weight_b => other,
        _ => one,
    }
}

const PAIRS: usize = 4;
