//! The values that any part of the table may have: lists, numbers in a range, what may be `off`; and defaults.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::strict::Strict;

/// A list that is never empty where it is written down.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct List<T>(Box<[T]>);

impl<T> List<T> {
    /// The list of these items. It is empty only for a field that is absent.
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

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
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

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let items = Vec::deserialize(source)?;
        if items.is_empty() {
            Err(D::Error::custom("the list is empty"))
        } else {
            Ok(Self::new(items))
        }
    }
}

impl<T: JsonSchema> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("List_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": generator.subschema_for::<T>(), "minItems": 1})
    }
}

/// A long list that may be empty, read without room for items that never come.
pub(crate) fn exact<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    source: D,
) -> Result<Vec<T>, D::Error> {
    source.deserialize_seq(ExactVisitor(PhantomData))
}

struct ExactVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ExactVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        // A tree knows the length of its lists, which are in memory; JSON does not.
        let mut list = Vec::with_capacity(items.size_hint().unwrap_or(0));
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        list.shrink_to_fit();
        Ok(list)
    }
}

/// A value, or the word `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OrOff<T> {
    /// `off`
    #[default]
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

    pub(crate) fn as_ref(&self) -> OrOff<&T> {
        match self {
            Self::Off => OrOff::Off,
            Self::On(value) => OrOff::On(value),
        }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> OrOff<U> {
        match self {
            Self::Off => OrOff::Off,
            Self::On(value) => OrOff::On(change(value)),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(OrOffVisitor(PhantomData))
    }
}

struct OrOffVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OrOffVisitor<T> {
    type Value = OrOff<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, or off")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OrOff<T>, E> {
        match text {
            "off" => Ok(OrOff::Off),
            _ => T::deserialize(text.into_deserializer()).map(OrOff::On),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<OrOff<T>, E> {
        T::deserialize(number.into_deserializer()).map(OrOff::On)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OrOff<T>, A::Error> {
        T::deserialize(Strict(SeqAccessDeserializer::new(items))).map(OrOff::On)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<OrOff<T>, A::Error> {
        T::deserialize(Strict(MapAccessDeserializer::new(entries))).map(OrOff::On)
    }
}

impl<T: Serialize> Serialize for OrOff<T> {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => sink.serialize_str("off"),
            Self::On(value) => value.serialize(sink),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OrOff<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_off", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [generator.subschema_for::<T>(), {"const": "off"}]})
    }
}

/// A value, or a map that says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrMap<V, M> {
    /// The value.
    Value(V),
    /// The map.
    Map(M),
}

impl<'de, V: Deserialize<'de>, M: Deserialize<'de>> Deserialize<'de> for OrMap<V, M> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(OrMapVisitor(PhantomData))
    }
}

struct OrMapVisitor<V, M>(PhantomData<(V, M)>);

impl<'de, V: Deserialize<'de>, M: Deserialize<'de>> Visitor<'de> for OrMapVisitor<V, M> {
    type Value = OrMap<V, M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, or a map")
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<OrMap<V, M>, E> {
        V::deserialize(truth.into_deserializer()).map(OrMap::Value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OrMap<V, M>, E> {
        V::deserialize(text.into_deserializer()).map(OrMap::Value)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<OrMap<V, M>, A::Error> {
        M::deserialize(Strict(MapAccessDeserializer::new(entries))).map(OrMap::Map)
    }
}

impl<V: Serialize, M: Serialize> Serialize for OrMap<V, M> {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(sink),
            Self::Map(map) => map.serialize(sink),
        }
    }
}

impl<V: JsonSchema, M: JsonSchema> JsonSchema for OrMap<V, M> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_{}", V::schema_name(), M::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [generator.subschema_for::<V>(), generator.subschema_for::<M>()]})
    }
}

/// `Display` of an enum of words: the word that the table has for it.
macro_rules! shown_as_written {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        }
    };
}

pub(crate) use shown_as_written;

/// For `#[serde(with = …)]`: a whole number from `LEAST` to `MOST`, as in `Within::<1, 100>`.
pub(crate) struct Within<const LEAST: u32, const MOST: u32>;

impl<const LEAST: u32, const MOST: u32> Within<LEAST, MOST> {
    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Number>(
        source: D,
    ) -> Result<T, D::Error> {
        let number = u32::deserialize(source)?;
        let is_within = (LEAST..=MOST).contains(&number);
        let number = is_within.then(|| T::of(number)).flatten();
        number.ok_or_else(|| D::Error::custom("the number is out of range"))
    }

    pub(crate) fn serialize<S: Serializer, T: Serialize>(
        value: &T,
        sink: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(sink)
    }
}

impl<const LEAST: u32, const MOST: u32> JsonSchema for Within<LEAST, MOST> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("From_{LEAST}_to_{MOST}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": LEAST, "maximum": MOST})
    }
}

/// The type of a field whose numbers are [`Within`] a range.
pub(crate) trait Number: Sized {
    /// The number, if the type has it.
    fn of(number: u32) -> Option<Self>;
}

impl Number for u8 {
    fn of(number: u32) -> Option<Self> {
        Self::try_from(number).ok()
    }
}

impl Number for u16 {
    fn of(number: u32) -> Option<Self> {
        Self::try_from(number).ok()
    }
}

impl Number for u32 {
    fn of(number: u32) -> Option<Self> {
        Some(number)
    }
}

impl<T: Number> Number for Option<T> {
    fn of(number: u32) -> Option<Self> {
        T::of(number).map(Some)
    }
}

// For `#[serde(default = …, skip_serializing_if = …)]`: a field that has its default is not written.

/// Whether a value is the default of its type.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The number `N`.
pub(crate) fn number<const N: u8, T: From<u8>>() -> T {
    N.into()
}

/// Whether a number is `N`.
pub(crate) fn is<const N: u16, T: Copy + Into<u16>>(value: &T) -> bool {
    (*value).into() == N
}

/// So many seconds.
pub(crate) fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}

/// Whether a duration is so many seconds.
pub(crate) fn is_seconds<const N: u64>(value: &Duration) -> bool {
    *value == seconds::<N>()
}
