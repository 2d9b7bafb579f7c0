//! Durations and sizes as the table writes them: `250ms`, `1h`, `64KiB`.

use std::fmt;
use std::time::Duration;

use super::leaf::{Leaf, Wrong, leaf};

/// A duration for people, in the largest unit that shows it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown(pub Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        for (unit, length) in UNITS {
            let length = u128::from(length);
            if millis >= length && millis.is_multiple_of(length) {
                return write!(f, "{}{unit}", millis / length);
            }
        }
        write!(f, "{millis}ms")
    }
}

/// A duration from 1 ms to 24 d in the words of the table, for those who read one elsewhere.
pub fn parse(text: &str) -> Result<Duration, Wrong> {
    let millis = millis(text).ok_or_else(Wrong::form::<Duration>)?;
    if (1..=LONGEST).contains(&millis) {
        Ok(Duration::from_millis(millis))
    } else {
        Err(Wrong::new(
            "is out of range",
            "expected a duration from 1ms to 24d",
        ))
    }
}

impl Leaf for Duration {
    const NAME: &'static str = "Duration";
    const WHAT: &'static str = "a duration";
    const FORM: &'static str = "a number with its unit, such as 250ms, 5s, 3m, 1h or 2d";
    const PATTERN: &'static str = r"^[0-9]+(ms|s|m|h|d)$";
    const EXAMPLE: &'static str = "5s";

    fn parse(text: &str) -> Result<Self, Wrong> {
        parse(text)
    }

    fn text(&self) -> impl fmt::Display {
        Shown(*self)
    }
}

/// How long browsers are told to insist on https. It may exceed 24 d, and counts in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxAge(u64);

impl MaxAge {
    /// In seconds.
    pub fn seconds(self) -> u64 {
        self.0
    }
}

impl Leaf for MaxAge {
    const NAME: &'static str = "MaxAge";
    const WHAT: &'static str = "a duration";
    const FORM: &'static str = "a number of whole seconds or more, such as 1h or 180d";
    const PATTERN: &'static str = r"^[0-9]+(ms|s|m|h|d)$";
    const EXAMPLE: &'static str = "180d";

    fn parse(text: &str) -> Result<Self, Wrong> {
        let millis = millis(text).ok_or_else(Wrong::form::<Self>)?;
        let seconds = millis / 1000;
        if millis.is_multiple_of(1000) && (1..=LONGEST_AGE).contains(&seconds) {
            Ok(Self(seconds))
        } else {
            Err(Wrong::new(
                "is out of range",
                "expected whole seconds, from 1s to 36500d",
            ))
        }
    }

    fn text(&self) -> impl fmt::Display {
        Shown(Duration::from_secs(self.0))
    }
}

leaf!(MaxAge);

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u32);

impl Size {
    /// So many KiB.
    pub const fn kib(count: u32) -> Self {
        Self(count * 1024)
    }

    /// In bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, length) in SIZES {
            if self.0 >= length && self.0.is_multiple_of(length) {
                return write!(f, "{}{unit}", self.0 / length);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Leaf for Size {
    const NAME: &'static str = "Size";
    const WHAT: &'static str = "a size";
    const FORM: &'static str = "a number with its unit, such as 512B, 64KiB or 1MiB";
    const PATTERN: &'static str = r"^[0-9]+(B|KiB|MiB)$";
    const EXAMPLE: &'static str = "64KiB";

    fn parse(text: &str) -> Result<Self, Wrong> {
        let (count, unit) = split(text).ok_or_else(Wrong::form::<Self>)?;
        let length = SIZES
            .iter()
            .find(|(known, _)| *known == unit)
            .map(|(_, length)| *length);
        let bytes = length.and_then(|length| u32::try_from(count).ok()?.checked_mul(length));
        match (length, bytes) {
            (None, _) => Err(Wrong::new(
                format!("is not {}", Self::WHAT),
                "expected a number with its unit: B, KiB (1024 bytes) or MiB (1024 KiB), such as 64KiB",
            )),
            (_, None) => Err(Wrong::new("is out of range", "expected less than 4096MiB")),
            (_, Some(bytes)) => Ok(Self(bytes)),
        }
    }

    fn text(&self) -> impl fmt::Display {
        self
    }
}

leaf!(Size);

/// The milliseconds of a duration; `None` where the text is none.
fn millis(text: &str) -> Option<u64> {
    let (count, unit) = split(text)?;
    let (_, length) = UNITS.iter().find(|(known, _)| *known == unit)?;
    Some(count.saturating_mul(*length))
}

/// A whole number and the unit behind it. A number that is too large for anything counts as the largest.
fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits)?;
    match digits {
        0 => None,
        1..=18 => Some((count.parse().ok()?, unit)),
        _ => Some((u64::MAX, unit)),
    }
}

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

const SIZES: [(&str, u32); 3] = [("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// 24 d, in milliseconds.
const LONGEST: u64 = 24 * 86_400_000;

/// 100 years, in seconds.
const LONGEST_AGE: u64 = 36_500 * 86_400;
