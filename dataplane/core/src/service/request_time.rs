//! The buckets of the histogram of HTTP requests by how long they took.

use std::time::Duration;

use crate::words;

words! {
    /// A bucket: times above the bound of the bucket before it, up to its own. The word is its bound in seconds, as metrics
    /// write it.
    pub enum RequestTime {
        /// Up to 500 µs.
        Us500 = "0.0005",
        /// Up to 1 ms.
        Ms1 = "0.001",
        /// Up to 2.5 ms.
        Us2500 = "0.0025",
        /// Up to 5 ms.
        Ms5 = "0.005",
        /// Up to 10 ms.
        Ms10 = "0.01",
        /// Up to 25 ms.
        Ms25 = "0.025",
        /// Up to 50 ms.
        Ms50 = "0.05",
        /// Up to 100 ms.
        Ms100 = "0.1",
        /// Up to 250 ms.
        Ms250 = "0.25",
        /// Up to 500 ms.
        Ms500 = "0.5",
        /// Up to 1 s.
        S1 = "1",
        /// Up to 2.5 s.
        Ms2500 = "2.5",
        /// Up to 5 s.
        S5 = "5",
        /// Up to 10 s.
        S10 = "10",
        /// More than 10 s.
        Longer = "+Inf",
    }
}

impl RequestTime {
    /// The bucket of this time.
    pub fn of(took: Duration) -> Self {
        let fits = |bucket: &Self| took <= bucket.bound();
        Self::ALL.into_iter().find(fits).unwrap_or(Self::Longer)
    }

    const fn bound(self) -> Duration {
        Duration::from_micros(match self {
            Self::Us500 => 500,
            Self::Ms1 => 1_000,
            Self::Us2500 => 2_500,
            Self::Ms5 => 5_000,
            Self::Ms10 => 10_000,
            Self::Ms25 => 25_000,
            Self::Ms50 => 50_000,
            Self::Ms100 => 100_000,
            Self::Ms250 => 250_000,
            Self::Ms500 => 500_000,
            Self::S1 => 1_000_000,
            Self::Ms2500 => 2_500_000,
            Self::S5 => 5_000_000,
            Self::S10 => 10_000_000,
            Self::Longer => return Duration::MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_bounds_and_the_places_are_in_order() {
        for (place, bucket) in RequestTime::ALL.into_iter().enumerate() {
            assert_eq!(bucket.index(), place);
            if bucket != RequestTime::Longer {
                assert_eq!(bucket.word(), bucket.bound().as_secs_f64().to_string());
            }
        }
        assert!(RequestTime::ALL.is_sorted_by_key(|bucket| bucket.bound()));
    }

    #[test]
    fn a_time_that_equals_a_bound_is_within_it() {
        for (micros, bucket) in [
            (0, RequestTime::Us500),
            (500, RequestTime::Us500),
            (501, RequestTime::Ms1),
            (10_000_000, RequestTime::S10),
            (10_000_001, RequestTime::Longer),
        ] {
            assert_eq!(RequestTime::of(Duration::from_micros(micros)), bucket);
        }
    }
}
