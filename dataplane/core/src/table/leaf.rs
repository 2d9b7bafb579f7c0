//! Values that are one piece of text: names, addresses, durations, files.
//!
//! A [`Leaf`] says how its text is read and written, and what people are told about it. [`leaf!`] makes a type's serde
//! and JSON Schema of that, [`text!`] makes a checked string, and [`AsText`] does the same for fields whose type belongs to
//! another crate.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::fields::{List, OrOff};

/// A value that is written as one piece of text.
pub(crate) trait Leaf: Sized {
    /// The name of its definition in the schema.
    const NAME: &'static str;

    /// What it is, as in "5 is a number, not `WHAT`".
    const WHAT: &'static str;

    /// What to write, after "expected ".
    const FORM: &'static str;

    /// A regular expression that every good text matches. Editors look at it; reading is stricter.
    const PATTERN: &'static str;

    /// A good text. Editors show it, and it stands in for a text that was refused, so that the rest can be checked.
    const EXAMPLE: &'static str;

    /// Reads the text.
    fn parse(text: &str) -> Result<Self, Wrong>;

    /// What a good text hardly means, and what to write instead.
    fn doubt(_text: &str) -> Option<Wrong> {
        None
    }

    /// The text that is read as this value.
    fn text(&self) -> impl fmt::Display;
}

/// Why a text is not what it should be. The text itself stands before `why`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct Wrong {
    /// The reason, as in "is not an address".
    pub why: String,
    /// The remedy, as in "expected IP:PORT".
    pub remedy: String,
}

impl Wrong {
    pub(crate) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// The text does not have the form of a `T`.
    pub(crate) fn form<T: Leaf>() -> Self {
        Self::new(
            format!("is not {}", T::WHAT),
            format!("expected {}", T::FORM),
        )
    }
}

/// Reads a [`Leaf`] from the text that serde offers.
pub(crate) fn read<'de, T: Leaf, D: Deserializer<'de>>(source: D) -> Result<T, D::Error> {
    source.deserialize_str(LeafVisitor(PhantomData))
}

struct LeafVisitor<T>(PhantomData<T>);

impl<T: Leaf> Visitor<'_> for LeafVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::parse(text).map_err(E::custom)
    }
}

/// The definition of a [`Leaf`] in the schema.
pub(crate) struct Definition<T>(PhantomData<T>);

impl<T: Leaf> JsonSchema for Definition<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "title": T::WHAT,
            "description": format!("Expected: {}.", T::FORM),
            "pattern": T::PATTERN,
            "examples": [T::EXAMPLE],
        })
    }
}

/// Serde, `FromStr` and the schema of a [`Leaf`] of this crate.
macro_rules! leaf {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                $crate::table::leaf::read(source)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                sink.collect_str(&$crate::table::leaf::Leaf::text(self))
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <Self as $crate::table::leaf::Leaf>::NAME.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                generator.subschema_for::<$crate::table::leaf::Definition<Self>>()
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::table::leaf::Wrong;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::table::leaf::Leaf::parse(text)
            }
        }
    };
}

/// Makes a checked text: a newtype over `Box<str>` or `Arc<str>` that can only be made from a good text.
macro_rules! text {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($store:ty): $what:literal, $form:literal, $pattern:literal, $example:literal, $check:expr;
    ) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($store);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl $crate::table::leaf::Leaf for $name {
            const NAME: &'static str = stringify!($name);
            const WHAT: &'static str = $what;
            const FORM: &'static str = $form;
            const PATTERN: &'static str = $pattern;
            const EXAMPLE: &'static str = $example;

            fn parse(text: &str) -> Result<Self, $crate::table::leaf::Wrong> {
                let good: fn(&str) -> bool = $check;
                if good(text) {
                    Ok(Self(text.into()))
                } else {
                    Err($crate::table::leaf::Wrong::form::<Self>())
                }
            }

            fn text(&self) -> impl std::fmt::Display {
                &*self.0
            }
        }

        $crate::table::leaf::leaf!($name);
    };
}

pub(crate) use {leaf, text};

/// A value whose type belongs to another crate, or a container of such values, where serde and schemars ask for their traits. It is
/// written as a text of the table. For fields, `#[serde(with = "AsText::<Option<Duration>>")]`.
pub(crate) struct AsText<T>(T);

impl<T: Textual> AsText<T> {
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<T, D::Error> {
        T::read(source)
    }

    pub(crate) fn serialize<S: Serializer>(value: &T, sink: S) -> Result<S::Ok, S::Error> {
        value.write(sink)
    }
}

impl<'de, T: Textual> Deserialize<'de> for AsText<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        T::read(source).map(Self)
    }
}

impl<T: Textual> Serialize for AsText<&T> {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        self.0.write(sink)
    }
}

impl<T: Textual> JsonSchema for AsText<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AsText".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::schema(generator)
    }
}

/// What [`AsText`] can hold: a [`Leaf`], or leaves in the containers of the table.
pub(crate) trait Textual: Sized {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error>;
    fn write<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error>;
    fn schema(generator: &mut SchemaGenerator) -> Schema;
}

impl<T: Leaf> Textual for T {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        read(source)
    }

    fn write<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_str(&self.text())
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Definition<Self>>()
    }
}

impl<T: Textual> Textual for Option<T> {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        T::read(source).map(Some)
    }

    fn write<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(value) => value.write(sink),
            None => sink.serialize_none(),
        }
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        T::schema(generator)
    }
}

impl<T: Textual> Textual for OrOff<T> {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        OrOff::<AsText<T>>::deserialize(source).map(|value| value.map(|AsText(value)| value))
    }

    fn write<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(AsText).serialize(sink)
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        OrOff::<AsText<T>>::json_schema(generator)
    }
}

impl<T: Textual> Textual for List<T> {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let items = List::<AsText<T>>::deserialize(source)?;
        Ok(items.into_iter().map(|AsText(item)| item).collect())
    }

    fn write<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_seq(self.iter().map(AsText))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        List::<AsText<T>>::json_schema(generator)
    }
}
