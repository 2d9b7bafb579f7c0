//! `source-hash`, `source-port-hash` and the first choice of `affinity.client-ip`: weighted rendezvous hashing.
//!
//! For each client, every endpoint draws a number from its own hash and the client's, the same on all machines; the best draw
//! wins. Nothing is stored, the order of the table does not matter, only the clients of a removed endpoint move, and the second
//! best is the winner without the first. With unequal weights, the winner is the endpoint with the smallest -log2(u)/weight,
//! where u is the draw as a fraction of 1; that gives each endpoint exactly its weight's share. All arithmetic is in integers,
//! so machines agree to the last bit.

use std::hint::select_unpredictable;

use crate::endpoint::FULL_SHARE;
use crate::hash::client_hash;
use crate::moment::Moment;
use crate::rng::mix;
use crate::service::{Endpoint, Service};

use super::tier::Candidates;
use super::{Key, PickMethod};

/// The winner among all ready endpoints, if it can take the client.
pub(super) fn pick_fast(service: &Service, key: &Key, now: Moment) -> Option<usize> {
    let client = key_hash(key, service.method);
    let index = if service.even {
        best_draw(client, &service.endpoints)
    } else {
        let all = service.endpoints.iter().enumerate();
        best_rank(client, all.filter(|(_, endpoint)| endpoint.is_ready()))
    }?;
    let endpoint = service.endpoints.get(index)?;
    let takes = endpoint.is_best(now)
        && !endpoint.is_full()
        && has_grown_to(service, client, endpoint, now);
    takes.then_some(index)
}

/// The winner among the candidates. Endpoints whose slow start has not reached this client yet are used last.
pub(super) fn choose(candidates: &Candidates<'_>, key: &Key) -> Option<usize> {
    let client = key_hash(key, candidates.service.method);
    let grown = candidates
        .open_endpoints()
        .filter(|(_, endpoint)| has_grown_to(candidates.service, client, endpoint, candidates.now));
    best_rank(client, grown).or_else(|| best_rank(client, candidates.open_endpoints()))
}

fn key_hash(key: &Key, method: PickMethod) -> u64 {
    client_hash(key.client, method == PickMethod::ByClientAndPort)
}

/// The winner among ready endpoints of equal weight. The comparison is unpredictable for the processor, and a mispredicted
/// branch costs more than the whole draw, so the loop has no branch.
fn best_draw(client: u64, endpoints: &[Endpoint]) -> Option<usize> {
    let mut best = 0;
    let mut winner = usize::MAX;
    for (index, endpoint) in endpoints.iter().enumerate() {
        let draw = draw(client, endpoint);
        let wins = (draw >= best) & endpoint.is_ready();
        best = select_unpredictable(wins, draw, best);
        winner = select_unpredictable(wins, index, winner);
    }
    (winner < endpoints.len()).then_some(winner)
}

/// The winner among endpoints of any weight.
fn best_rank<'a>(
    client: u64,
    mut endpoints: impl Iterator<Item = (usize, &'a Endpoint)>,
) -> Option<usize> {
    let (mut winner, first) = endpoints.next()?;
    let mut best = Rank::of(client, first);
    for (index, endpoint) in endpoints {
        let rank = Rank::of(client, endpoint);
        let wins = rank.is_before(&best);
        best = select_unpredictable(wins, rank, best);
        winner = select_unpredictable(wins, index, winner);
    }
    Some(winner)
}

/// Whether the endpoint's slow start has reached this client. Each client has its own threshold at each endpoint, so clients
/// move to a growing endpoint one after another, and none moves back and forth.
fn has_grown_to(service: &Service, client: u64, endpoint: &Endpoint, now: Moment) -> bool {
    let ramp = service.ramp(endpoint, now);
    if ramp == FULL_SHARE {
        return true;
    }
    let threshold = mix(draw(client, endpoint) ^ THRESHOLDS) >> 48;
    threshold < u64::from(ramp)
}

/// The draw of an endpoint for a client. Different endpoints never draw the same number.
fn draw(client: u64, endpoint: &Endpoint) -> u64 {
    mix(client ^ endpoint.hash)
}

/// The rank of an endpoint for a client; a smaller one is better.
#[derive(Clone, Copy, Debug)]
struct Rank {
    /// -log2 of the draw.
    distance: u64,
    weight: u64,
    draw: u64,
}

impl Rank {
    fn of(client: u64, endpoint: &Endpoint) -> Self {
        Self::new(draw(client, endpoint), endpoint.weight)
    }

    fn new(draw: u64, weight: u16) -> Self {
        Self {
            distance: distance(draw),
            weight: weight.into(),
            draw,
        }
    }

    /// Distances are below 2⁴⁷ and weights at most 2⁸, so the products fit. If the distances are too coarse to differ, the
    /// larger draw wins, so equal weights are always ranked by the draw alone.
    fn is_before(&self, other: &Self) -> bool {
        let mine = self.distance * other.weight;
        let theirs = other.distance * self.weight;
        (mine < theirs) | ((mine == theirs) & (self.draw > other.draw))
    }
}

/// -log2(draw / 2⁶⁴) with 40 fractional bits: the integer part by counting zeros, the rest from the table with linear
/// interpolation. It never grows with the draw, and is never 0.
fn distance(draw: u64) -> u64 {
    let draw = draw | 1;
    let zeros = draw.leading_zeros();
    let [high, ..] = (draw << zeros << 1).to_be_bytes();
    // The 31 bits after the first eight fractional bits.
    let between = (draw << zeros << 9) >> 33;
    let segment = usize::from(high);
    let (Some(low), Some(next)) = (LOG2.get(segment), LOG2.get(segment + 1)) else {
        return 0;
    };
    let log2 = low + (((next - low) * between) >> 31);
    (u64::from(zeros + 1) << POINT) - log2
}

/// log2(1 + i/256), with [`POINT`] fractional bits.
const LOG2: [u64; 257] = {
    let mut table = [0; 257];
    let mut i = 0;
    while i < 256 {
        table[i] = log2_of_fraction(256 + i as u64);
        i += 1;
    }
    table[256] = 1 << POINT;
    table
};

/// log2(x / 256) for x from 256 to 511, bit by bit: if the square exceeds 2, the next bit of the logarithm is 1.
const fn log2_of_fraction(x: u64) -> u64 {
    let mut square = (x as u128) << 54;
    let mut log2 = 0;
    let mut bit = 0;
    while bit < POINT {
        square = (square * square) >> 62;
        log2 <<= 1;
        if square >> 63 > 0 {
            square >>= 1;
            log2 |= 1;
        }
        bit += 1;
    }
    log2
}

const POINT: u32 = 40;
const THRESHOLDS: u64 = 0x94d0_49bb_1331_11eb;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exact(draw: u64) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a comparison within a thousandth"
        )]
        let fraction = (draw | 1) as f64 / 2_f64.powi(64);
        -fraction.log2()
    }

    fn fixed(draw: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "below 2⁵³")]
        let distance = distance(draw) as f64;
        distance / 2_f64.powi(40)
    }

    #[test]
    fn the_distance_is_right_at_the_edges() {
        assert_eq!(distance(0), 64 << POINT);
        assert_eq!(distance(1), 64 << POINT);
        assert_eq!(distance(1 << 63), 1 << POINT);
        assert_eq!(distance(1 << 62), 2 << POINT);
        assert!(distance(u64::MAX) > 0);
        assert_eq!(LOG2[0], 0);
        assert!(LOG2.windows(2).all(|pair| pair[0] < pair[1]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_distance_is_near_the_logarithm(draws in prop::collection::vec((any::<u64>(), 0_u32..64), 100)) {
            for (draw, shift) in draws {
                // Small ones and ones close to the end, where winners are.
                for draw in [draw >> shift, !(draw >> shift)] {
                    let off = (fixed(draw) - exact(draw)).abs();
                    prop_assert!(off <= exact(draw) / 500.0 + 4e-12, "{}: {} not {}", draw, fixed(draw), exact(draw));
                }
            }
        }

        #[test]
        fn the_distance_never_grows_with_the_draw(draws in prop::collection::vec((any::<u64>(), 0_u32..64, 0_u64..70_000), 100)) {
            for (draw, shift, step) in draws {
                for draw in [draw >> shift, !(draw >> shift)] {
                    let larger = draw.saturating_add(step);
                    prop_assert!(distance(larger) <= distance(draw));
                }
            }
        }

        #[test]
        fn equal_weights_rank_by_the_draw_alone(a in any::<u64>(), step in 0_u64..1000, weight in 1_u16..=256) {
            for b in [a.wrapping_add(step), a ^ step] {
                let before = Rank::new(a, weight).is_before(&Rank::new(b, weight));
                prop_assert_eq!(before, a > b);
            }
        }
    }
}
