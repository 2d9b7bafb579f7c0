//! Values that are one piece of text and mean more than it: interfaces, durations.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ballast_core::table::{Wrong, parse_duration};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The interfaces that may carry an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Interfaces {
    /// The one whose network has the address, else that of the default route.
    #[default]
    Auto,
    /// The first one that one of these patterns matches.
    Named(Vec<Pattern>),
}

impl<'de> Deserialize<'de> for Interfaces {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum OneOrSeveral {
            One(String),
            Several(Vec<String>),
        }
        let names = match OneOrSeveral::deserialize(source)? {
            OneOrSeveral::One(word) if word == "auto" => return Ok(Self::Auto),
            OneOrSeveral::One(name) => vec![name],
            OneOrSeveral::Several(names) => names,
        };
        let patterns = names.iter().map(|name| name.parse());
        let patterns: Result<_, Wrong> = patterns.collect();
        patterns.map(Self::Named).map_err(Error::custom)
    }
}

/// The name of an interface, in which `*` stands for any letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Whether an interface of this name is meant.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            match rest.split_once(part) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        true
    }
}

impl FromStr for Pattern {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let is_good = |letter: char| letter.is_ascii_graphic() && letter != '/';
        match (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(is_good) {
            true => Ok(Self(text.to_owned())),
            false => Err(Wrong {
                why: "is not the name of an interface".to_owned(),
                remedy: "expected auto, or 1 to 15 letters such as eth0 or bond*".to_owned(),
            }),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a duration such as `250ms` or `5s`.
pub(super) fn duration<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(source)?;
    parse_duration(&text).map_err(Error::custom)
}

/// The same for one that may also be `0s`.
pub(super) fn duration_or_zero<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    parse_or_zero(&String::deserialize(source)?).map_err(Error::custom)
}

pub(super) fn parse_or_zero(text: &str) -> Result<Duration, Wrong> {
    match text {
        "0s" => Ok(Duration::ZERO),
        _ => parse_duration(text),
    }
}

/// The same for a field that may be left out.
pub(super) fn duration_if_any<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<Duration>, D::Error> {
    duration(source).map(Some)
}

/// Linux's IFNAMSIZ, without the byte that ends it.
const LONGEST_NAME: usize = 15;
