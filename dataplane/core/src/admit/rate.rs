//! A rate limit: a token bucket that holds the tokens of one second, stored as one number.
//!
//! The number is the moment at which the bucket would be full again. Taking a token moves it forward by `1/rate` seconds, and a
//! token is available while it lies less than one second ahead. Time alone refills the bucket.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::moment::Moment;

/// The moment at which the bucket is full again, in nanoseconds since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket(u64);

impl Bucket {
    /// Takes a token at `rate` tokens a second, or returns when there will be one.
    pub(crate) fn take(self, rate: u32, now: Moment) -> Result<Self, Moment> {
        let now = nanos(now);
        let taken = Self(self.0.max(now).saturating_add(price(rate)));
        let free = taken.0.saturating_sub(SECOND);
        if free <= now {
            return Ok(taken);
        }
        Err(Moment(free.div_ceil(MILLISECOND)))
    }

    /// When the bucket is full and need not be remembered any more.
    pub(crate) fn full_at(self) -> Moment {
        Moment(self.0.div_ceil(MILLISECOND))
    }
}

/// A [`Bucket`] that all workers share.
#[derive(Debug, Default)]
pub(crate) struct SharedBucket(AtomicU64);

impl SharedBucket {
    pub(crate) fn take(&self, rate: u32, now: Moment) -> Result<(), Moment> {
        let mut before = self.0.load(Ordering::Relaxed);
        loop {
            let after = Bucket(before).take(rate, now)?;
            let taken =
                self.0
                    .compare_exchange_weak(before, after.0, Ordering::Relaxed, Ordering::Relaxed);
            match taken {
                Ok(_) => return Ok(()),
                Err(other) => before = other,
            }
        }
    }

    /// Returns an unused token that was taken at `rate`.
    pub(crate) fn give_back(&self, rate: u32) {
        // Later calls only increased the number, so it is at least the price of one token.
        self.0.fetch_sub(price(rate), Ordering::Relaxed);
    }
}

/// The price of a token in nanoseconds. Rounded down, so that a full bucket holds `rate` tokens.
fn price(rate: u32) -> u64 {
    SECOND / u64::from(rate.max(1))
}

fn nanos(moment: Moment) -> u64 {
    moment.0.saturating_mul(MILLISECOND)
}

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(bucket: &SharedBucket, rate: u32, now: u64) -> u32 {
        let mut taken = 0;
        while bucket.take(rate, Moment(now)).is_ok() {
            taken += 1;
        }
        taken
    }

    #[test]
    fn it_holds_one_second_and_fills_with_time() {
        for rate in [1, 2, 3, 7, 10, 333, 1000, 4096] {
            let bucket = SharedBucket::default();
            assert_eq!(takes(&bucket, rate, 5_000), rate, "at first");
            assert_eq!(takes(&bucket, rate, 5_000), 0);
            assert_eq!(takes(&bucket, rate, 6_000), rate, "a second later");
            assert_eq!(takes(&bucket, rate, 6_500), rate / 2, "half a second later");
            assert_eq!(
                takes(&bucket, rate, 60_000),
                rate,
                "never more than a second's"
            );
        }
    }

    #[test]
    fn it_says_when_there_is_one() {
        let bucket = SharedBucket::default();
        assert_eq!(takes(&bucket, 3, 1_000), 3);
        let when = bucket.take(3, Moment(1_000)).unwrap_err();
        assert_eq!(when, Moment(1_334));
        assert!(bucket.take(3, Moment(when.0 - 1)).is_err());
        assert!(bucket.take(3, when).is_ok());
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let bucket = SharedBucket::default();
        assert_eq!(takes(&bucket, 5, 1_000), 5);
        bucket.give_back(5);
        assert_eq!(takes(&bucket, 5, 1_000), 1);
    }

    #[test]
    fn it_is_worth_remembering_until_it_is_full() {
        let bucket = Bucket::default().take(2, Moment(1_000)).unwrap();
        assert_eq!(bucket.full_at(), Moment(1_500));
    }

    #[test]
    fn no_rate_and_no_moment_panics() {
        for rate in [0, 1, u32::MAX] {
            for now in [0, u64::MAX] {
                let bucket = SharedBucket::default();
                let taken = (0..3).filter(|_| bucket.take(rate, Moment(now)).is_ok());
                assert!(taken.count() >= 1);
            }
        }
    }
}
