//! The time in which a certificate is valid, and when an operator should look at it.

use crate::words;

/// The time in which a certificate is valid, in seconds since 1970. Both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

words! {
    /// Whether a certificate is valid, from the best case to the worst. Whatever the case, it is served.
    #[derive(PartialOrd, Ord)]
    pub enum Validity {
        Valid = "valid",
        /// It is valid, and ends within seven days, or is in the last third of a period that is shorter than three weeks.
        ExpiresSoon = "expires-soon",
        /// Its time has not begun.
        NotYetValid = "not-yet-valid",
        /// Its time is over.
        Expired = "expired",
    }
}

impl Period {
    /// Whether a certificate with this period is valid `now`, in seconds since 1970.
    #[must_use]
    pub const fn at(self, now: u64) -> Validity {
        let length = self.not_after.saturating_sub(self.not_before);
        let soon = if length / 3 < SOON { length / 3 } else { SOON };
        if now > self.not_after {
            Validity::Expired
        } else if now < self.not_before {
            Validity::NotYetValid
        } else if self.not_after - now <= soon {
            Validity::ExpiresSoon
        } else {
            Validity::Valid
        }
    }
}

/// Seven days.
const SOON: u64 = 7 * DAY;
const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_valid_from_its_first_second_to_its_last() {
        use Validity::{Expired, ExpiresSoon, NotYetValid, Valid};
        let start = 1_800_000_000;
        let of_days = |days| Period {
            not_before: start,
            not_after: start + days * DAY,
        };
        for (days, after_start, expected) in [
            (90, 0, Valid),
            (90, 83 * DAY - 1, Valid),
            (90, 83 * DAY, ExpiresSoon),
            (90, 90 * DAY, ExpiresSoon),
            (90, 90 * DAY + 1, Expired),
            (21, 14 * DAY - 1, Valid),
            (21, 14 * DAY, ExpiresSoon),
            // One that is replaced every few days is not always about to expire.
            (6, 4 * DAY - 1, Valid),
            (6, 4 * DAY, ExpiresSoon),
            (6, 6 * DAY + 1, Expired),
            (0, 0, ExpiresSoon),
            (0, 1, Expired),
        ] {
            let found = of_days(days).at(start + after_start);
            assert_eq!(
                found, expected,
                "{days} days, {after_start} s after the start"
            );
        }
        assert_eq!(of_days(90).at(start - 1), NotYetValid);
        assert_eq!(of_days(90).at(0), NotYetValid);
        let backwards = Period {
            not_before: start,
            not_after: start - DAY,
        };
        assert_eq!(backwards.at(start), Expired);
        assert_eq!(backwards.at(start - 2 * DAY), NotYetValid);
        let forever = Period {
            not_before: 0,
            not_after: u64::MAX,
        };
        assert_eq!(forever.at(start), Valid);
    }
}
