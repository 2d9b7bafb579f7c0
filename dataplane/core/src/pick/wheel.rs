//! Ready endpoints laid out by weight, for turns and for samples.
//!
//! A wheel of the circumference W, the sum of the weights without their common divisor, has an arc for each endpoint. Turn
//! t stands at position t·k mod W. For equal weights k is 1: the plain order. Otherwise it is the number without a common
//! divisor nearest to W/φ: W turns stand once at each position, so everybody gets exactly its weight, and turns near to
//! each other stand far apart, so nobody gets its weight at once. No schedule is stored, and nothing is remembered but t.

use crate::rng::Rng;
use crate::service::Endpoint;

/// The arcs of the ready endpoints.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    /// Where each arc ends; empty where all are 1 long.
    ends: Box<[u32]>,
    /// Whose arcs they are; empty where they are all endpoints', in order.
    members: Box<[u32]>,
    circumference: u32,
    stride: u32,
}

impl Wheel {
    /// Arcs as long as the weights.
    pub(crate) fn by_weight(endpoints: &[Endpoint]) -> Self {
        Self::new(endpoints, |endpoint| endpoint.weight)
    }

    /// Arcs of the same length.
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
                1
            } else {
                u32::try_from(stride(end.into())).unwrap_or(1)
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.circumference == 0
    }

    /// Whose turn number `turn` is.
    pub(crate) fn turn(&self, turn: u64) -> Option<usize> {
        let circumference = u64::from(self.circumference);
        let turn = turn.checked_rem(circumference)?;
        self.at(turn * u64::from(self.stride) % circumference)
    }

    /// A random one, as often as its arc is long.
    pub(crate) fn sample(&self, rng: &mut Rng) -> Option<usize> {
        self.at(rng.below(self.circumference.into()))
    }

    fn at(&self, position: u64) -> Option<usize> {
        let position = usize::try_from(position).ok()?;
        let arc = match self.ends.is_empty() {
            true => position,
            false => self.ends.partition_point(|end| *end as usize <= position),
        };
        match self.members.is_empty() {
            true => Some(arc),
            false => self.members.get(arc).map(|index| *index as usize),
        }
    }
}

/// How far apart two turns in a row stand on a wheel of this circumference.
pub(crate) fn stride(circumference: u64) -> u64 {
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

/// 2⁶⁴/φ.
const GOLDEN: u128 = 0x9e37_79b9_7f4a_7c15;
