//! Turns: which part of the sum of all weights is next.

/// A position below `total`, the sum of the weights, for the choice with this number. In each hundred choices from a multiple of a
/// hundred on, a range of positions is met as often as its length says, rounded up or down; over many hundreds the rounding
/// evens out. Returns 0 if `total` is 0.
///
/// A hundred choices meet a hundred evenly spaced points. Their order is scattered, so that a small share is not met many times
/// in a row; and each hundred has its points shifted by another part of the space between two of them.
pub(super) fn position(turn: u64, total: u64) -> u64 {
    let (hundred, step) = (turn / HUNDRED, turn % HUNDRED);
    let point = step * SCATTER % HUNDRED;
    let part = u128::from(hundred.wrapping_mul(GOLDEN)) * u128::from(total);
    // Below `total`, because a product of 64 bits with `total` was divided by 2^64.
    let shift = u64::try_from(part >> 64).unwrap_or(0);
    (point * total + shift) / HUNDRED
}

const HUNDRED: u64 = 100;
/// The golden section of a hundred. It has no factor in common with a hundred, so a hundred steps meet each point once.
const SCATTER: u64 = 61;
/// The golden section of 2^64: its multiples are spread evenly, however many there are.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
