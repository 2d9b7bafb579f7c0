//! How a part of the table is written down once: its fields, their defaults and ranges.
//!
//! [`record!`] makes the struct, its fast serde reading, its short serde writing and the walk that finds every
//! mistake from one list of fields; [`words!`] does the same for a field that takes one of a few words. Used by the
//! types of the table only. Nothing here knows what a field means.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::tree::Node;
use super::walk::Walk;

/// What may stand behind a key of the table.
pub(crate) trait Field: Sized + PartialEq {
    /// The names of its fields, where it is a map of known keys.
    const FIELDS: &[&str] = &[];

    /// Reads it fast; any mistake ends the reading, and [`Field::read`] then finds the words for it.
    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error>;

    /// Reads it from a tree and reports every mistake. `None`: nothing could be read, and that was reported.
    fn read(node: &Node, walk: &mut Walk) -> Option<Self>;

    /// What stands where nothing could be read, so that the rest can still be looked at. Never served.
    fn stand_in() -> Self;

    /// Writes it.
    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error>;
}

/// A field that is one piece of text.
pub(crate) trait Leaf: Sized + PartialEq {
    /// What it is, as in "5 is a number, not `WHAT`".
    const WHAT: &'static str;

    /// What to write, after "expected ".
    const FORM: &'static str;

    /// Reads the text.
    fn parse(text: &str) -> Result<Self, Wrong>;

    /// Writes it so that it can be read again.
    fn text(&self) -> impl fmt::Display;

    /// See [`Field::stand_in`].
    fn stand_in() -> Self;
}

/// Why a text is not what it should be. The text itself stands before `why`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct Wrong {
    /// What is wrong, as in "is not an address".
    pub why: String,
    /// What would be right, as in "expected IP:PORT".
    pub remedy: String,
}

impl Wrong {
    pub(crate) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// The text is not of the form of a `T`.
    pub(crate) fn form<T: Leaf>() -> Self {
        Self::new(
            format!("is not {}", T::WHAT),
            format!("expected {}", T::FORM),
        )
    }
}

/// Makes a part of the table: the struct and its [`Field`], `Deserialize` and `Serialize`.
///
/// A field without `= default` is required; `in range` holds for the value inside an `Option` or an `OrOff` too.
macro_rules! record {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $( $(#[$field_doc:meta])* $field:ident: $type:ty $(= $default:expr)? $(, in $range:expr)?; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $type, )*
        }

        const _: () = {
            use $crate::table::record::{Field, give, present};
            use $crate::table::tree::Node;
            use $crate::table::walk::Walk;

            #[derive(serde::Deserialize)]
            #[serde(rename_all = "kebab-case", deny_unknown_fields)]
            struct Draft {
                $( #[serde(default, deserialize_with = "present")] $field: Option<$type>, )*
            }

            #[derive(serde::Serialize)]
            #[serde(rename_all = "kebab-case")]
            struct Print<'a> {
                $(
                    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "give")]
                    $field: Option<&'a $type>,
                )*
            }

            impl Field for $name {
                const FIELDS: &[&str] = &[$( stringify!($field) ),*];

                fn take<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                    let draft: Draft = $crate::table::record::from_map(source)?;
                    $( $( $crate::table::record::check_range(&draft.$field, &$range)?; )? )*
                    Ok(Self {
                        $( $field: match draft.$field {
                            Some(value) => value,
                            None => $crate::table::record::absent!(take $field, $($default)?),
                        }, )*
                    })
                }

                fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
                    let map = walk.map(node, Self::FIELDS)?;
                    $( let $field: Option<$type> = $crate::table::record::read_field!(
                        walk,
                        map,
                        stringify!($field),
                        $crate::table::record::absent!(required $($default)?)
                        $(, $range)?
                    ); )*
                    Some(Self {
                        $( $field: match $field {
                            Some(value) => value,
                            None => $crate::table::record::absent!(read $($default)?),
                        }, )*
                    })
                }

                fn stand_in() -> Self {
                    Self { $( $field: $crate::table::record::absent!(read $($default)?), )* }
                }

                fn give<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                    let print = Print {
                        $( $field: {
                            let absent: Option<$type> = $crate::table::record::absent!(give $($default)?);
                            (absent.as_ref() != Some(&self.$field)).then_some(&self.$field)
                        }, )*
                    };
                    serde::Serialize::serialize(&print, sink)
                }
            }

            $crate::table::record::serde_by_field!($name);
        };
    };
}

/// What to do about a field that is not there, by whether it has a default.
macro_rules! absent {
    (take $field:ident, $default:expr) => {
        $default
    };
    (take $field:ident,) => {
        return Err(serde::de::Error::missing_field(stringify!($field)))
    };
    (required $default:expr) => {
        false
    };
    (required) => {
        true
    };
    (read $default:expr) => {
        $default
    };
    (read) => {
        Field::stand_in()
    };
    (give $default:expr) => {
        Some($default)
    };
    (give) => {
        None
    };
}

/// Reads a field, with or without a range.
macro_rules! read_field {
    ($walk:ident, $map:ident, $field:expr, $required:expr) => {
        $walk.field($map, $field, $required)
    };
    ($walk:ident, $map:ident, $field:expr, $required:expr, $range:expr) => {
        $walk.field_in($map, $field, $required, &$range)
    };
}

/// `Deserialize` and `Serialize` of a type that is a [`Field`].
macro_rules! serde_by_field {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                $crate::table::record::Field::take(source)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                $crate::table::record::Field::give(self, sink)
            }
        }
    };
}

/// Makes a [`Leaf`] a [`Field`].
macro_rules! leaf {
    ($name:ty) => {
        impl $crate::table::record::Field for $name {
            fn take<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                source.deserialize_str($crate::table::record::LeafVisitor::new())
            }

            fn read(
                node: &$crate::table::tree::Node,
                walk: &mut $crate::table::walk::Walk,
            ) -> Option<Self> {
                walk.leaf(node)
            }

            fn stand_in() -> Self {
                $crate::table::record::Leaf::stand_in()
            }

            fn give<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                sink.collect_str(&$crate::table::record::Leaf::text(self))
            }
        }
    };
}

/// Makes an enum whose values are words of the table.
macro_rules! words {
    (
        $(#[$doc:meta])*
        pub enum $name:ident: $what:literal {
            $( $(#[$word_doc:meta])* $variant:ident = $word:literal, )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$word_doc])* $variant, )*
        }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &[Self] = &[$( Self::$variant ),*];

            /// The word that the table has for it.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl $crate::table::record::Leaf for $name {
            const WHAT: &'static str = $what;
            const FORM: &'static str = "one of its words";

            fn parse(text: &str) -> Result<Self, $crate::table::record::Wrong> {
                match text {
                    $( $word => Ok(Self::$variant), )*
                    _ => Err($crate::table::walk::not_a_word($what, text, &[$( $word ),*])),
                }
            }

            fn text(&self) -> impl std::fmt::Display {
                self.word()
            }

            fn stand_in() -> Self {
                Self::ALL[0]
            }
        }

        $crate::table::record::leaf!($name);
        $crate::table::record::serde_by_field!($name);
    };
}

/// Makes a checked text: a newtype over `Box<str>` or `Arc<str>` that can only be made from a good text.
macro_rules! text {
    (
        $(#[$doc:meta])*
        pub struct $name:ident($store:ty): $what:literal, $form:literal, $check:expr, $stand_in:literal;
    ) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($store);

        impl $name {
            /// The text.
            #[must_use]
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

        impl $crate::table::record::Leaf for $name {
            const WHAT: &'static str = $what;
            const FORM: &'static str = $form;

            fn parse(text: &str) -> Result<Self, $crate::table::record::Wrong> {
                let good: fn(&str) -> bool = $check;
                match good(text) {
                    true => Ok(Self(text.into())),
                    false => Err($crate::table::record::Wrong::form::<Self>()),
                }
            }

            fn text(&self) -> impl std::fmt::Display {
                &*self.0
            }

            fn stand_in() -> Self {
                Self($stand_in.into())
            }
        }

        $crate::table::record::leaf!($name);
        $crate::table::record::serde_by_field!($name);
        $crate::table::record::parsed!($name);
    };
}

/// `FromStr` of a [`Leaf`].
macro_rules! parsed {
    ($name:ident) => {
        impl std::str::FromStr for $name {
            type Err = $crate::table::record::Wrong;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::table::record::Leaf::parse(text)
            }
        }
    };
}

pub(crate) use {absent, leaf, parsed, read_field, record, serde_by_field, text, words};

/// Reads a struct from a map. By itself serde would take a list of its fields as well.
pub(crate) fn from_map<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    source: D,
) -> Result<T, D::Error> {
    source.deserialize_map(MapVisitor(PhantomData))
}

struct MapVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for MapVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries))
    }
}

/// Reads a field that is there.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Field>(
    source: D,
) -> Result<Option<T>, D::Error> {
    T::take(source).map(Some)
}

/// Writes a field that is there.
pub(crate) fn give<S: Serializer, T: Field>(
    field: &Option<&T>,
    sink: S,
) -> Result<S::Ok, S::Error> {
    match field {
        Some(value) => value.give(sink),
        None => sink.serialize_none(),
    }
}

/// A field whose value may be held to a range.
pub(crate) trait Ranged<B> {
    /// The value; `None` where there is none.
    fn bounded(&self) -> Option<&B>;
}

impl<B, T: Ranged<B>> Ranged<B> for Option<T> {
    fn bounded(&self) -> Option<&B> {
        self.as_ref().and_then(Ranged::bounded)
    }
}

/// Whether the value, if there is one, lies in the range.
pub(crate) fn lies_in<B: PartialOrd>(value: &impl Ranged<B>, range: &RangeInclusive<B>) -> bool {
    value.bounded().is_none_or(|value| range.contains(value))
}

/// [`lies_in`] as serde wants it.
pub(crate) fn check_range<B: PartialOrd, E: Error>(
    value: &impl Ranged<B>,
    range: &RangeInclusive<B>,
) -> Result<(), E> {
    match lies_in(value, range) {
        true => Ok(()),
        false => Err(E::custom("out of range")),
    }
}

pub(crate) struct LeafVisitor<T>(PhantomData<T>);

impl<T> LeafVisitor<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Leaf> Visitor<'_> for LeafVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::parse(text).map_err(|wrong| E::custom(wrong.why))
    }
}

/// A [`Field`] where serde asks for a `Deserialize`.
pub(crate) struct Taken<T>(pub(crate) T);

impl<'de, T: Field> Deserialize<'de> for Taken<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        T::take(source).map(Self)
    }
}

/// A [`Field`] where serde asks for a `Serialize`.
pub(crate) struct Given<'a, T>(pub(crate) &'a T);

impl<T: Field> Serialize for Given<'_, T> {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        self.0.give(sink)
    }
}
