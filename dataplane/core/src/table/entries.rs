//! Maps of the table whose keys are free: labels, header edits, error bodies.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A short map, in the order of its keys. No key comes twice.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Entries<K, V>(Box<[(K, V)]>);

impl<K: Ord, V> Entries<K, V> {
    /// The map of these entries; of two with one key the first stays.
    pub fn new(mut entries: Vec<(K, V)>) -> Self {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, first| later.0 == first.0);
        Self(entries.into_boxed_slice())
    }
}

impl<K, V> Default for Entries<K, V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<K, V> Deref for Entries<K, V> {
    type Target = [(K, V)];

    fn deref(&self) -> &[(K, V)] {
        &self.0
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Entries<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|(key, value)| (key, value)))
            .finish()
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Entries<K, V> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<K, V>(PhantomData<(K, V)>);

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<K, V> {
    type Value = Entries<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(K, V)> = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        let count = entries.len();
        let entries = Entries::new(entries);
        if entries.len() == count {
            Ok(entries)
        } else {
            Err(A::Error::custom("a key comes twice"))
        }
    }
}

impl<K: Serialize, V: Serialize> Serialize for Entries<K, V> {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<K: JsonSchema, V: JsonSchema> JsonSchema for Entries<K, V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_by_{}", V::schema_name(), K::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": generator.subschema_for::<K>(),
            "additionalProperties": generator.subschema_for::<V>(),
        })
    }
}
