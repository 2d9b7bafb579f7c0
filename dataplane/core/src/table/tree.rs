//! A table as it was written: what a walk needs to name every mistake.
//!
//! Unlike `serde_json::Value` it keeps the order of the file and keys that come twice. Built only where a table is
//! YAML or has a mistake.

use std::fmt;
use std::ops::Deref;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::text::Shared;

/// One value of a JSON or YAML text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Truth(bool),
    Number(u64),
    Negative(i64),
    Fraction(f64),
    Text(Box<str>),
    List(Box<[Self]>),
    Map(Box<[Entry]>),
}

/// A key of a map and its value.
pub(crate) type Entry = (Key, Node);

impl Node {
    /// The text, where it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What it is, for people: `5 is a number`.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Null => "nothing stands here".to_owned(),
            Self::Truth(truth) => format!("{truth} is true or false"),
            Self::Number(number) => format!("{number} is a number"),
            Self::Negative(number) => format!("{number} is a number"),
            Self::Fraction(number) => format!("{number} is a number"),
            Self::Text(text) => format!("{} is a text", super::walk::quoted(text)),
            Self::List(_) => "this is a list".to_owned(),
            Self::Map(_) => "this is a map".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Truth(truth))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        Ok(u64::try_from(number).map_or(Node::Negative(number), Node::Number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Fraction(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key()? {
            map.push((key, entries.next_value()?));
        }
        Ok(Node::Map(map.into()))
    }
}

/// A key, which in YAML may look like a number. A large table has the same few of them in each of its maps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key(Shared);

impl Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Key, E> {
        Ok(text.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Key, E> {
        Ok(number.to_string().as_str().into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Key, E> {
        Ok(number.to_string().as_str().into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Key, E> {
        Ok(number.to_string().as_str().into())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Key, E> {
        Ok(truth.to_string().as_str().into())
    }

    fn visit_unit<E: Error>(self) -> Result<Key, E> {
        Ok("null".into())
    }
}
