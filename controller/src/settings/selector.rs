//! Selectors of nodes by their labels: `role=loadbalancer, zone, !spare`. Used by flags and annotations.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Which labels a node must have. Every part holds, or the selector does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Is(String, String),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Whether a node with these labels is meant.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|part| match part {
            Part::Is(key, value) => labels.get(key) == Some(value),
            Part::Exists(key) => labels.contains_key(key),
            Part::Absent(key) => !labels.contains_key(key),
        })
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Option<Vec<Part>> = text
            .split(',')
            .map(|part| Part::read(part.trim()))
            .collect();
        parts.map(Self).ok_or_else(|| {
            "is not a selector of nodes; expected key=value, key or !key, comma separated"
                .to_owned()
        })
    }
}

impl Part {
    /// Everything after the first `=` is the value, as OpenStack's users have it.
    fn read(text: &str) -> Option<Self> {
        if let Some(key) = text.strip_prefix('!') {
            return is_key(key).then(|| Self::Absent(key.to_owned()));
        }
        match text.split_once('=') {
            Some((key, value)) => {
                let (key, value) = (key.trim(), value.trim());
                is_key(key).then(|| Self::Is(key.to_owned(), value.to_owned()))
            }
            None => is_key(text).then(|| Self::Exists(text.to_owned())),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match part {
                Part::Is(key, value) => write!(f, "{comma}{key}={value}")?,
                Part::Exists(key) => write!(f, "{comma}{key}")?,
                Part::Absent(key) => write!(f, "{comma}!{key}")?,
            }
        }
        Ok(())
    }
}

fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
}
