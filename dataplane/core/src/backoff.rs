//! Delays between retries: each one up to twice as long as the one before, with random variation.
//!
//! Used for operations that the process itself retries. A failed dial is not one of them: it goes on to another endpoint at
//! once.

use std::time::Duration;

use crate::rng::Rng;

/// Delays that double from `first` to `longest`, each shortened at random by up to half.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// The upper bound of the next delay.
    next: Duration,
}

impl Backoff {
    /// Begins with a delay of at most `first`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let first = first.min(longest);
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The delay after one more failure.
    pub fn next(&mut self, rng: &mut Rng) -> Duration {
        let whole = self.next;
        self.next = whole.saturating_mul(2).min(self.longest);
        let half = whole / 2;
        let spread = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        whole - half + Duration::from_nanos(rng.below(spread.saturating_add(1)))
    }

    /// Notes a success: the next failure begins with the first delay again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_to_the_longest_and_vary_below() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let mut rng = Rng::new(1);
        for whole in [100, 200, 400, 800, 1000, 1000, 1000] {
            let wait = backoff.next(&mut rng);
            let whole = Duration::from_millis(whole);
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
    }

    #[test]
    fn a_success_begins_anew() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let mut rng = Rng::new(2);
        for _ in 0..9 {
            assert!(backoff.next(&mut rng) <= LONGEST);
        }
        backoff.reset();
        assert!(backoff.next(&mut rng) <= FIRST);
    }

    #[test]
    fn odd_bounds_are_harmless() {
        let mut rng = Rng::new(3);
        assert_eq!(
            Backoff::new(Duration::ZERO, Duration::ZERO).next(&mut rng),
            Duration::ZERO
        );
        assert!(Backoff::new(LONGEST, FIRST).next(&mut rng) <= FIRST);
        let mut endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert!(endless.next(&mut rng) >= Duration::MAX / 2);
        assert!(endless.next(&mut rng) <= Duration::MAX);
    }
}
