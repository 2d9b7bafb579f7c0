//! Reads an object of a manifest as its Kubernetes type, and notes what serde alone does not tell: the keys that the type does not
//! have, and the place of a value that it does not take. Used by [`super`].

use std::cell::RefCell;
use std::fmt;
use std::sync::LazyLock;

use ballast_core::table::{Problem, nearest};
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Error, Map, Value};

/// An object as its type, with the unknown keys in `unknown`. Places begin with `at`.
///
/// # Errors
/// The place and the reason for which it is not of this type.
pub(super) fn typed<T: DeserializeOwned>(
    value: &Value,
    at: &str,
    unknown: &mut Vec<Problem>,
) -> Result<T, (String, String)> {
    let notes = Notes::default();
    let read = T::deserialize(Checked {
        value,
        notes: &notes,
        at: &At::Whole(at),
    });
    unknown.append(&mut notes.unknown.borrow_mut());
    let place = || {
        notes
            .wrong
            .borrow_mut()
            .take()
            .unwrap_or_else(|| at.to_owned())
    };
    read.map_err(|error| (place(), error.to_string()))
}

/// The keys of an object of Ballast's own kinds that its definition does not have.
pub(super) fn unknown_keys(object: &Value, at: &str) -> Vec<Problem> {
    let notes = Notes::default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let defined = DEFINITIONS
        .iter()
        .find(|one| one["spec"]["names"]["kind"] == kind);
    if let Some(defined) = defined {
        let schema = &defined["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            let whole = At::Whole(at);
            let (at, schema) = (At::Key(&whole, part), &schema["properties"][part]);
            walk(&object[part], schema, &at, &notes);
        }
    }
    notes.unknown.into_inner()
}

fn walk(value: &Value, schema: &Value, at: &At<'_>, notes: &Notes) {
    match value {
        Value::Object(map) => {
            let Some(known) = schema["properties"].as_object() else {
                return;
            };
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            notes.look(map, &names, at);
            for (key, value) in map {
                if let Some(schema) = known.get(key) {
                    walk(value, schema, &At::Key(at, key), notes);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &schema["items"], &At::Item(at, index), notes);
            }
        }
        _ => {}
    }
}

/// The definitions of Ballast's own kinds.
static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let texts = [
        include_str!("../../../../templates/crds/addresspools.yaml"),
        include_str!("../../../../templates/crds/addressreservations.yaml"),
        include_str!("../../../../templates/crds/announcements.yaml"),
    ];
    let read = texts.into_iter().map(serde_saphyr::from_str);
    read.filter_map(Result::ok).collect()
});

/// What was noted.
#[derive(Default)]
struct Notes {
    unknown: RefCell<Vec<Problem>>,
    /// The innermost place of the first value that was not taken.
    wrong: RefCell<Option<String>>,
}

impl Notes {
    /// Notes the keys of a map that are none of these.
    fn look(&self, map: &Map<String, Value>, known: &[&str], at: &At<'_>) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let remedy = match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known here: {}", known.join(", ")),
            };
            let (place, why) = (
                At::Key(at, key).to_string(),
                "is not a known key, and is not read",
            );
            self.unknown
                .borrow_mut()
                .push(Problem::new(place, why, remedy));
        }
    }
}

/// A place in an object.
enum At<'a> {
    Whole(&'a str),
    Key(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(at) => f.write_str(at),
            Self::Key(Self::Whole(""), key) => f.write_str(key),
            Self::Key(before, key) => write!(f, "{before}.{key}"),
            Self::Item(before, index) => write!(f, "{before}[{index}]"),
        }
    }
}

/// A value, and its place.
#[derive(Clone, Copy)]
struct Checked<'de, 'n> {
    value: &'de Value,
    notes: &'n Notes,
    at: &'n At<'n>,
}

impl<'de> Checked<'de, '_> {
    /// Reads a part of the value, which stands at this place.
    fn part<S: DeserializeSeed<'de>>(
        self,
        seed: S,
        value: &'de Value,
        at: &At<'_>,
    ) -> Result<S::Value, Error> {
        let notes = self.notes;
        let read = seed.deserialize(Checked { value, notes, at });
        if read.is_err() {
            let mut wrong = notes.wrong.borrow_mut();
            wrong.get_or_insert_with(|| at.to_string());
        }
        read
    }
}

impl<'de> Deserializer<'de> for Checked<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(map) => visitor.visit_map(Entries {
                of: self,
                left: map.iter(),
                next: None,
            }),
            Value::Array(items) => visitor.visit_seq(Items {
                of: self,
                left: items.iter().enumerate(),
            }),
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Value::Object(map) = self.value {
            self.notes.look(map, fields, self.at);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct
        map enum identifier ignored_any
    }
}

struct Entries<'de, 'n> {
    of: Checked<'de, 'n>,
    left: serde_json::map::Iter<'de>,
    next: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.next = self.left.next().map(|(key, value)| (key.as_str(), value));
        let Some((key, _)) = self.next else {
            return Ok(None);
        };
        let key: StrDeserializer<'_, Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (key, value) = self.next.take().unwrap_or(("", &Value::Null));
        self.of.part(seed, value, &At::Key(self.of.at, key))
    }
}

struct Items<'de, 'n> {
    of: Checked<'de, 'n>,
    left: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some((index, value)) = self.left.next() else {
            return Ok(None);
        };
        let read = self.of.part(seed, value, &At::Item(self.of.at, index));
        read.map(Some)
    }
}
