//! Reading that takes nothing but what the table's interface names.
//!
//! Derived types take more than that by themselves: null for an absent option, a list for a struct, and `{tcp: null}` for
//! the word `tcp`. [`Strict`] stands between a format and the types and refuses these three.

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

/// A deserializer, or a part that serde asks it for, made strict.
pub(super) struct Strict<T>(pub(super) T);

/// Passes on what needs no care: scalars hold no other values.
macro_rules! pass {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(visitor)
        }
    )* };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    pass! {
        deserialize_bool deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_str deserialize_string deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Strict(visitor))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_seq(Strict(visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(OfMap(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_map(visitor)
    }

    /// A field that is there has a value.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(OfEnum(visitor))
    }

    /// Nothing in a table is written as null.
    fn deserialize_unit<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(Error::custom("null"))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit_struct newtype_struct tuple tuple_struct ignored_any
    }
}

/// Passes a scalar on to the visitor behind.
macro_rules! visit {
    ($($method:ident: $type:ty,)*) => { $(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )* };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(f)
    }

    visit! { visit_bool: bool, visit_u64: u64, visit_str: &str, }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(entries))
    }
}

/// The visitor of a struct or a map, which a list cannot stand for.
struct OfMap<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for OfMap<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(entries))
    }
}

/// The visitor of an enum, which is a word, or a map of one key where the variant has a value.
struct OfEnum<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for OfEnum<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(f)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<V::Value, E> {
        self.0.visit_enum(word.into_deserializer())
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0
            .visit_enum(MapAccessDeserializer::new(Strict(entries)))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(source))
    }
}
