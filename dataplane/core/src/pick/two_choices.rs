//! `random`: of two that are drawn by weight, the one with fewer connections for its weight.

use crate::moment::Moment;
use crate::rng::Rng;
use crate::service::Service;

use super::tier::Among;

/// Draws until one of a pair can take it.
pub(super) fn glance(service: &Service, now: Moment, rng: &mut Rng) -> Option<usize> {
    if service.wheel.is_empty() {
        return None;
    }
    let draw = |rng: &mut Rng| {
        service
            .wheel
            .sample(rng)
            .filter(|index| service.is_open(*index, now) && service.ramp_lets(*index, now, rng))
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

/// The same among all that are left.
pub(super) fn choose(among: &Among<'_>, rng: &mut Rng) -> Option<usize> {
    let one = among.weighted(|total| rng.below(total))?;
    let other = among.weighted(|total| rng.below(total))?;
    Some(better(among.service, one, other))
}

/// The first of the two unless the second has less to do: where nobody has anything to do, weights alone decide.
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
