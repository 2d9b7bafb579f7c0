//! `round-robin`: smooth weighted rotation, one order over all workers.
//!
//! A turn that falls on an endpoint that cannot take it moves the cursor on, so that the endpoint's turns are spread over
//! all others and not given to its neighbour.

use std::sync::atomic::Ordering;

use crate::moment::Moment;
use crate::rng::Rng;
use crate::service::Service;

use super::tier::Among;
use super::wheel::spread;

/// The next turns, until one falls on an endpoint that can take it.
pub(super) fn glance(service: &Service, now: Moment, rng: &mut Rng) -> Option<usize> {
    let turns = &service.state().turns;
    let most = (2 * service.endpoints.len()).min(MOST_TURNS);
    (0..most)
        .map_while(|_| service.wheel.turn(turns.fetch_add(1, Ordering::Relaxed)))
        .find(|index| service.is_open(*index, now) && service.ramp_lets(*index, now, rng))
}

/// The same among all that are left, on a wheel of their own.
pub(super) fn choose(among: &Among<'_>, rng: &mut Rng) -> Option<usize> {
    let detour = among.next_detour();
    among.weighted(|total| match among.service.slow_start {
        0 => match detour.checked_rem(total) {
            Some(turn) => spread(turn, total),
            None => 0,
        },
        // Weights that grow leave no cycle to be exact over.
        _ => rng.below(total),
    })
}

const MOST_TURNS: usize = 32;
