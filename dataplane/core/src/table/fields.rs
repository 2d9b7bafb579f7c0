//! The values that any part of the table may have: numbers, lists, options, what may be `off`.

use std::fmt;
use std::marker::PhantomData;
use std::num::{NonZeroU16, NonZeroU32};
use std::ops::{Deref, RangeInclusive};
use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::breath;

use super::record::{Field, Given, Ranged, Taken, give};
use super::tree::Node;
use super::walk::{Bound, Walk};

/// A list that says something: one that was written down is never empty.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct List<T>(Box<[T]>);

impl<T> List<T> {
    /// The list of these items. It is only empty for a field that is absent.
    #[must_use]
    pub fn new(items: Vec<T>) -> Self {
        Self(items.into_boxed_slice())
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value, or the word `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrOff<T> {
    /// `off`
    Off,
    /// The value.
    On(T),
}

impl<T> OrOff<T> {
    /// The value; `None` where it is off.
    pub fn on(&self) -> Option<&T> {
        match self {
            Self::Off => None,
            Self::On(value) => Some(value),
        }
    }
}

impl<B, T: Ranged<B>> Ranged<B> for OrOff<T> {
    fn bounded(&self) -> Option<&B> {
        self.on().and_then(Ranged::bounded)
    }
}

macro_rules! number {
    ($($type:ident)*) => { $(
        impl Field for $type {
            fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                Self::deserialize(source)
            }

            fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
                walk.number(node, Self::MAX.into()).and_then(|number| Self::try_from(number).ok())
            }

            fn stand_in() -> Self {
                1
            }

            fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                self.serialize(sink)
            }
        }

        impl Ranged<Self> for $type {
            fn bounded(&self) -> Option<&Self> {
                Some(self)
            }
        }

        impl Bound for $type {
            fn numbers(range: &RangeInclusive<Self>) -> Option<(u64, u64)> {
                Some(((*range.start()).into(), (*range.end()).into()))
            }

            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )* };
}

number!(u8 u16 u32 u64);

/// A number from 1 on; `$read` has the words for 0.
macro_rules! nonzero {
    ($($nonzero:ident $type:ident $read:ident,)*) => { $(
        impl Field for $nonzero {
            fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                Self::deserialize(source)
            }

            fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
                walk.$read(node, $type::MAX.into())
                    .and_then(|number| $type::try_from(number).ok())
                    .and_then(Self::new)
            }

            fn stand_in() -> Self {
                Self::MIN
            }

            fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                self.serialize(sink)
            }
        }
    )* };
}

nonzero!(NonZeroU16 u16 positive, NonZeroU32 u32 limit,);

impl Ranged<Self> for Duration {
    fn bounded(&self) -> Option<&Self> {
        Some(self)
    }
}

impl Field for bool {
    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Self::deserialize(source)
    }

    fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
        walk.truth(node)
    }

    fn stand_in() -> Self {
        false
    }

    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        self.serialize(sink)
    }
}

impl<T: Field> Field for Option<T> {
    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        T::take(source).map(Some)
    }

    fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
        T::read(node, walk).map(Some)
    }

    fn stand_in() -> Self {
        None
    }

    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        give(&self.as_ref(), sink)
    }
}

impl<T: Field> Field for Box<T> {
    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        T::take(source).map(Self::new)
    }

    fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
        T::read(node, walk).map(Self::new)
    }

    fn stand_in() -> Self {
        Self::new(T::stand_in())
    }

    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        T::give(self, sink)
    }
}

impl<T: Field> Field for Vec<T> {
    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_seq(VecVisitor(PhantomData))
    }

    fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
        walk.list(node)
    }

    fn stand_in() -> Self {
        Self::new()
    }

    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_seq(self.iter().map(Given))
    }
}

struct VecVisitor<T>(PhantomData<T>);

impl<'de, T: Field> Visitor<'de> for VecVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(Taken(item)) = items.next_element()? {
            list.push(item);
            breath::take();
        }
        list.shrink_to_fit();
        Ok(list)
    }
}

impl<T: Field> Field for List<T> {
    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let items = Vec::take(source)?;
        if items.is_empty() {
            return Err(D::Error::custom("empty list"));
        }
        Ok(Self::new(items))
    }

    fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
        let items = walk.list(node)?;
        if items.is_empty() {
            walk.report_empty_list();
            return None;
        }
        Some(Self::new(items))
    }

    fn stand_in() -> Self {
        Self::default()
    }

    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_seq(self.iter().map(Given))
    }
}

impl<T: Field> Field for OrOff<T> {
    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(OrOffVisitor(PhantomData))
    }

    fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
        if node.text() == Some("off") {
            return Some(Self::Off);
        }
        walk.or_off(node).map(Self::On)
    }

    fn stand_in() -> Self {
        Self::Off
    }

    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => sink.serialize_str("off"),
            Self::On(value) => value.give(sink),
        }
    }
}

struct OrOffVisitor<T>(PhantomData<T>);

impl<'de, T: Field> Visitor<'de> for OrOffVisitor<T> {
    type Value = OrOff<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, or off")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OrOff<T>, E> {
        match text {
            "off" => Ok(OrOff::Off),
            _ => T::take(text.into_deserializer()).map(OrOff::On),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<OrOff<T>, E> {
        T::take(number.into_deserializer()).map(OrOff::On)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OrOff<T>, A::Error> {
        T::take(SeqAccessDeserializer::new(items)).map(OrOff::On)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<OrOff<T>, A::Error> {
        T::take(MapAccessDeserializer::new(entries)).map(OrOff::On)
    }
}
