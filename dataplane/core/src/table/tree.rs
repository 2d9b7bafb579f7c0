//! A table as it was written, for what the types cannot tell: the order of the file, keys that come twice, and every
//! mistake at once.
//!
//! Unlike `serde_json::Value` a [`Node`] keeps the order of the file and keys that come twice. Built where a table is YAML
//! or has a mistake. The types of the table are read from it as from JSON.

use std::fmt;
use std::ops::Deref;

use serde::de::value::{Error as ReadError, MapDeserializer, SeqDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use super::problems::quoted;
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
    /// A value that was refused. Its key keeps its position in the map, but reading passes over it.
    Refused,
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
            Self::Null | Self::Refused => "nothing stands here".to_owned(),
            Self::Truth(truth) => format!("{truth} is a boolean"),
            Self::Number(number) => format!("{number} is a number"),
            Self::Negative(number) => format!("{number} is a number"),
            // 1.0 is to be shown as it is written.
            Self::Fraction(number) => format!("{number:?} is a number"),
            Self::Text(text) => format!("{} is a text", quoted(text)),
            Self::List(_) => "this is a list".to_owned(),
            Self::Map(_) => "this is a map".to_owned(),
        }
    }
}

impl FromIterator<Entry> for Node {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self::Map(entries.into_iter().collect())
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self {
            Node::Null | Node::Refused => visitor.visit_unit(),
            Node::Truth(truth) => visitor.visit_bool(*truth),
            Node::Number(number) => visitor.visit_u64(*number),
            Node::Negative(number) => visitor.visit_i64(*number),
            Node::Fraction(number) => visitor.visit_f64(*number),
            Node::Text(text) => visitor.visit_borrowed_str(text),
            Node::List(items) => {
                let mut items = SeqDeserializer::new(items.iter());
                let list = visitor.visit_seq(&mut items)?;
                items.end().map(|()| list)
            }
            Node::Map(entries) => {
                let there = entries.iter().filter(|(_, value)| *value != Node::Refused);
                let mut there = MapDeserializer::new(there.map(|(key, value)| (&**key, value)));
                let map = visitor.visit_map(&mut there)?;
                there.end().map(|()| map)
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        let text = match Node::deserialize(source)? {
            Node::Text(text) => return Ok((&*text).into()),
            Node::Number(number) => number.to_string(),
            Node::Negative(number) => number.to_string(),
            Node::Fraction(number) => number.to_string(),
            Node::Truth(truth) => truth.to_string(),
            Node::Null | Node::Refused => "null".to_owned(),
            Node::List(_) | Node::Map(_) => return Err(D::Error::custom("a key is one word")),
        };
        Ok(text.as_str().into())
    }
}
