//! Ready endpoints arranged by weight, for turns and for samples.
//!
//! A wheel with the circumference W, the sum of the weights without their common divisor, has an arc for each endpoint. Turn t
//! is at position t·k mod W. For equal weights k is 1, which is the plain order. Otherwise k is the number nearest to W/φ that
//! is coprime to W. Then W turns visit each position once, so each endpoint gets exactly its weight's share; and consecutive
//! turns are far apart, so no endpoint gets all its turns at once. No schedule is stored, and no state but t.

use crate::rng::Rng;
use crate::service::Endpoint;

/// The arcs of the ready endpoints.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    /// Where each arc ends; empty if all arcs have length 1.
    ends: Box<[u32]>,
    /// The endpoints of the arcs; empty if these are all endpoints in order.
    members: Box<[u32]>,
    circumference: u32,
    stride: u32,
}

impl Wheel {
    /// A wheel with arcs of the length of the weights.
    pub(crate) fn by_weight(endpoints: &[Endpoint]) -> Self {
        Self::new(endpoints, |endpoint| endpoint.weight)
    }

    /// A wheel with arcs of equal length.
    pub(crate) fn evenly(endpoints: &[Endpoint]) -> Self {
        Self::new(endpoints, |_| 1)
    }

    fn new(endpoints: &[Endpoint], weight: impl Fn(&Endpoint) -> u16) -> Self {
        let ready = || {
            (0_u32..)
                .zip(endpoints)
                .filter(|(_, endpoint)| endpoint.is_ready())
        };
        let divisor = ready().fold(0, |divisor, (_, endpoint)| {
            common_divisor(divisor, weight(endpoint).into())
        });
        let mut end: u32 = 0;
        let ends: Box<[u32]> = ready()
            .map(|(_, endpoint)| {
                end += u32::from(weight(endpoint)) / u32::try_from(divisor.max(1)).unwrap_or(1);
                end
            })
            .collect();
        let is_even = ends.len() == end as usize;
        let is_everybody = ends.len() == endpoints.len();
        Self {
            members: if is_everybody {
                Box::default()
            } else {
                ready().map(|(index, _)| index).collect()
            },
            ends: if is_even { Box::default() } else { ends },
            circumference: end,
            stride: if is_even {
                PLAIN
            } else {
                u32::try_from(stride(end.into())).unwrap_or(PLAIN)
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.circumference == 0
    }

    /// The endpoint of turn number `turn`.
    pub(crate) fn turn(&self, turn: u64) -> Option<usize> {
        let circumference = u64::from(self.circumference);
        let turn = turn.checked_rem(circumference)?;
        self.at(stand(turn, self.stride.into(), circumference))
    }

    /// A random endpoint, with a probability by the length of its arc.
    pub(crate) fn sample(&self, rng: &mut Rng) -> Option<usize> {
        self.at(rng.below(self.circumference.into()))
    }

    fn at(&self, position: u64) -> Option<usize> {
        let position = usize::try_from(position).ok()?;
        let arc = if self.ends.is_empty() {
            position
        } else {
            self.ends.partition_point(|end| *end as usize <= position)
        };
        if self.members.is_empty() {
            Some(arc)
        } else {
            self.members.get(arc).map(|index| *index as usize)
        }
    }
}

/// The position of turn number `turn` on a wheel of this circumference, far from those of the neighbouring turns.
pub(crate) fn spread(turn: u64, circumference: u64) -> u64 {
    stand(turn, stride(circumference), circumference)
}

fn stand(turn: u64, stride: u64, circumference: u64) -> u64 {
    match stride {
        BY_HALVES => turn % 2 * (circumference / 2) + turn / 2,
        stride => turn * stride % circumference,
    }
}

/// The distance between two consecutive turns on a wheel of this circumference.
fn stride(circumference: u64) -> u64 {
    if circumference == SIX {
        return BY_HALVES;
    }
    let golden = u64::try_from((u128::from(circumference) * GOLDEN) >> 64).unwrap_or(1);
    (0..circumference)
        .flat_map(|off| [golden.checked_sub(off), golden.checked_add(off)])
        .flatten()
        .find(|stride| *stride > 0 && common_divisor(*stride, circumference) == 1)
        .unwrap_or(1)
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

const PLAIN: u32 = 1;
/// Turns alternate between the first and the second half of the wheel.
const BY_HALVES: u64 = 0;
/// Above four, six is the only circumference where every stride but 1 and 5 has a common divisor with it. With either of these,
/// consecutive turns would be adjacent.
const SIX: u64 = 6;
/// 2⁶⁴/φ.
const GOLDEN: u128 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_has_one_turn_and_turns_in_a_row_stand_apart() {
        for circumference in 1..=300 {
            let stands: Vec<_> = (0..circumference)
                .map(|turn| spread(turn, circumference))
                .collect();
            let mut all = stands.clone();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..circumference), "{circumference}");
            for pair in stands.windows(2).filter(|_| circumference > 4) {
                let apart = pair[0].abs_diff(pair[1]);
                let apart = apart.min(circumference - apart);
                assert!(4 * apart >= circumference, "{circumference}: {stands:?}");
            }
        }
    }
}
