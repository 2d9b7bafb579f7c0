//! `round-robin`: smooth weighted rotation, one order over all workers.
//!
//! A turn of an endpoint that cannot take it moves the cursor on, so that the endpoint's turns are distributed over all others
//! instead of being given to its neighbour.

use std::sync::atomic::Ordering;

use crate::moment::Moment;
use crate::rng::Rng;
use crate::service::Service;

use super::tier::Candidates;
use super::wheel::spread;

/// Takes turns until an endpoint can take one.
pub(super) fn pick_fast(service: &Service, now: Moment, rng: &mut Rng) -> Option<usize> {
    let turns = &service.state().turns;
    let most = (2 * service.endpoints.len()).min(MAX_TURNS);
    (0..most)
        .map_while(|_| service.wheel.turn(turns.fetch_add(1, Ordering::Relaxed)))
        .find(|index| service.is_open(*index, now) && service.ramp_admits(*index, now, rng))
}

/// Takes a turn among the candidates, on a wheel of their own.
pub(super) fn choose(candidates: &Candidates<'_>, rng: &mut Rng) -> Option<usize> {
    let detour = candidates.next_detour();
    candidates.weighted(|total| match candidates.service.slow_start {
        0 => match detour.checked_rem(total) {
            Some(turn) => spread(turn, total),
            None => 0,
        },
        // Weights that change during slow start have no exact cycle.
        _ => rng.below(total),
    })
}

const MAX_TURNS: usize = 32;
