//! Maps of the table whose keys are free: labels, header edits, error bodies.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserializer, Serializer};

use super::record::{Field, Given, Leaf, Taken};
use super::tree::Node;
use super::walk::{Walk, quoted};

/// A short map, in the order of its keys. No key comes twice.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Entries<K, V>(Box<[(K, V)]>);

impl<K: Ord, V> Entries<K, V> {
    /// The map of these entries; of two with one key the first stays.
    #[must_use]
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

impl<K: Leaf + Ord, V: Field> Field for Entries<K, V> {
    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(EntriesVisitor(PhantomData))
    }

    fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
        let map = walk.entries(node)?;
        let mut entries = Vec::with_capacity(map.len());
        for (key, value) in map {
            walk.below(key, |walk| {
                let value = V::read(value, walk);
                match K::parse(key) {
                    Ok(key) => entries.push((key, value.unwrap_or_else(V::stand_in))),
                    Err(wrong) => {
                        walk.report(format!("{} {}", quoted(key), wrong.why), wrong.remedy);
                    }
                }
            });
        }
        Some(Self::new(entries))
    }

    fn stand_in() -> Self {
        Self::default()
    }

    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_map(
            self.0
                .iter()
                .map(|(key, value)| (key.text().to_string(), Given(value))),
        )
    }
}

struct EntriesVisitor<K, V>(PhantomData<(K, V)>);

impl<'de, K: Leaf + Ord, V: Field> Visitor<'de> for EntriesVisitor<K, V> {
    type Value = Entries<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(K, V)> = Vec::new();
        while let Some(TakenKey(key)) = map.next_key()? {
            let Taken(value) = map.next_value()?;
            entries.push((key, value));
        }
        let count = entries.len();
        let entries = Entries::new(entries);
        match entries.len() == count {
            true => Ok(entries),
            false => Err(A::Error::custom("a key comes twice")),
        }
    }
}

struct TakenKey<K>(K);

impl<'de, K: Leaf> serde::Deserialize<'de> for TakenKey<K> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source
            .deserialize_str(super::record::LeafVisitor::new())
            .map(TakenKey)
    }
}
