//! The JSON Schema of the table, made of its types: for editors, and for [`super::form`], which finds mistakes by it.

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Map, Value};

use super::RoutingTable;
use super::address::Bind;
use super::health::Expect;
use super::host::{HostPattern, Scheme, ServerName, Target, UrlPath};
use super::http::ErrorStatus;
use super::leaf::{Leaf, Wrong};
use super::span::{MaxAge, Size};
use super::text::{
    Alpn, File, LabelKey, Name, Needle, Parameter, ParameterValue, Payload, Tag, Text, Token,
    Value as HeaderValue,
};
use super::tree::Node;

/// The JSON Schema (draft 2020-12) of the table, as `ballast schema` prints it.
pub fn schema() -> String {
    format!("{:#}\n", root().as_value())
}

fn root() -> Schema {
    let generator = SchemaSettings::draft2020_12()
        .with_transform(RecursiveTransform(without_null))
        .into_generator();
    generator.into_root_schema_for::<RoutingTable>()
}

/// A field may be left out, but null is not a value: takes back what `schemars` adds for an `Option`.
fn without_null(schema: &mut Schema) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [kind] = types.as_mut_slice() {
            let kind = kind.take();
            schema.insert("type".to_owned(), kind);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        if let [Value::Object(only)] = choices.as_mut_slice() {
            let only = std::mem::take(only);
            schema.remove("anyOf");
            for (word, said) in only {
                schema.entry(word).or_insert(said);
            }
        }
    }
}

/// What the schema says of one value, in the form that is quick to look things up in.
#[derive(Debug)]
pub(super) enum Kind {
    /// A text that is read by a rule of its own.
    Leaf(&'static Rule),
    /// One of a few words.
    Words { what: String, words: Vec<String> },
    /// A whole number.
    Number(Range),
    /// true or false.
    Truth,
    /// A list.
    List { item: Box<Self>, may_be_empty: bool },
    /// A map of known keys.
    Map(Vec<Field>),
    /// A map of known keys of which exactly one is there.
    OneOf {
        what: String,
        forms: Vec<String>,
        fields: Vec<Field>,
    },
    /// A map whose keys are free.
    Free {
        key: &'static Rule,
        value: Box<Self>,
    },
    /// A value, or the word `off`.
    OrOff(Box<Self>),
    /// A value, or a map.
    OrMap { value: Box<Self>, map: Box<Self> },
}

/// A known key of a map.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) kind: Kind,
    pub(super) is_required: bool,
}

/// The values of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) least: u64,
    pub(super) most: u64,
    /// It is a limit, which does not hold where it is absent; users may take 0 for "unlimited".
    pub(super) is_limit: bool,
}

/// How a [`Leaf`] is read, and what people are told about it.
#[derive(Debug)]
pub(super) struct Rule {
    name: &'static str,
    pub(super) what: &'static str,
    pub(super) form: &'static str,
    pub(super) example: &'static str,
    pub(super) parse: fn(&str) -> Result<(), Wrong>,
    pub(super) doubt: fn(&str) -> Option<Wrong>,
}

impl Rule {
    const fn of<T: Leaf>() -> Self {
        Self {
            name: T::NAME,
            what: T::WHAT,
            form: T::FORM,
            example: T::EXAMPLE,
            parse: |text| T::parse(text).map(drop),
            doubt: T::doubt,
        }
    }
}

impl Kind {
    /// What the schema says of the whole table.
    pub(super) fn of_table() -> &'static Self {
        static TABLE: LazyLock<Kind> = LazyLock::new(|| {
            let root = root();
            let none = Map::new();
            let definitions = root.get("$defs").and_then(Value::as_object);
            Kind::of(root.as_value(), definitions.unwrap_or(&none))
        });
        &TABLE
    }

    fn of(schema: &Value, definitions: &Map<String, Value>) -> Self {
        let of = |schema: &Value| Self::of(schema, definitions);
        if let Some(name) = defined(schema) {
            return match RULES.iter().find(|rule| rule.name == name) {
                Some(rule) => Self::Leaf(rule),
                None => definitions.get(name).map_or(Self::Truth, of),
            };
        }
        let what = text(&schema["title"]);
        match schema["anyOf"].as_array().map(Vec::as_slice) {
            Some([value, off]) if off.get("const").is_some() => {
                return Self::OrOff(Box::new(of(value)));
            }
            Some([value, map]) => {
                return Self::OrMap {
                    value: Box::new(of(value)),
                    map: Box::new(of(map)),
                };
            }
            Some(_) | None => {}
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let words: Vec<String> = choices
                .iter()
                .filter_map(|choice| choice.get("const").map(text))
                .collect();
            if words.len() == choices.len() {
                return Self::Words { what, words };
            }
            return Self::OneOf {
                what,
                forms: choices
                    .iter()
                    .map(|choice| text(&choice["title"]))
                    .collect(),
                fields: choices
                    .iter()
                    .flat_map(|choice| fields(choice, &of))
                    .collect(),
            };
        }
        match schema["type"].as_str() {
            Some("array") => Self::List {
                item: Box::new(of(&schema["items"])),
                may_be_empty: schema.get("minItems").is_none(),
            },
            Some("integer") => Self::Number(range(schema)),
            Some("object") => match defined(&schema["propertyNames"]).and_then(rule) {
                Some(key) => Self::Free {
                    key,
                    value: Box::new(of(&schema["additionalProperties"])),
                },
                None => Self::Map(fields(schema, &of)),
            },
            _ => Self::Truth,
        }
    }

    /// A value of this kind, which takes the place of one that was refused.
    pub(super) fn stand_in(&self) -> Node {
        match self {
            Self::Leaf(rule) => Node::Text(rule.example.into()),
            Self::Words { words, .. } => {
                Node::Text(words.first().cloned().unwrap_or_default().into())
            }
            Self::Number(range) => Node::Number(range.least),
            Self::Truth => Node::Truth(false),
            Self::List { may_be_empty, .. } if *may_be_empty => Node::List(Box::default()),
            Self::List { item, .. } => Node::List(Box::from([item.stand_in()])),
            Self::Map(fields) => fields
                .iter()
                .filter(|field| field.is_required)
                .map(Field::stand_in)
                .collect(),
            Self::OneOf { fields, .. } => fields.iter().take(1).map(Field::stand_in).collect(),
            Self::Free { .. } => Node::Map(Box::default()),
            Self::OrOff(_) => Node::Text("off".into()),
            Self::OrMap { value, .. } => value.stand_in(),
        }
    }
}

impl Field {
    pub(super) fn stand_in(&self) -> (super::tree::Key, Node) {
        (self.key.as_str().into(), self.kind.stand_in())
    }
}

/// The name of the definition that the schema refers to.
fn defined(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/$defs/")
}

fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

fn fields(schema: &Value, of: &dyn Fn(&Value) -> Kind) -> Vec<Field> {
    let required = schema["required"].as_array();
    let is_required = |key: &str| required.is_some_and(|keys| keys.iter().any(|one| one == key));
    let properties = schema["properties"].as_object();
    let field = |(key, schema): (&String, &Value)| Field {
        key: key.clone(),
        kind: of(schema),
        is_required: is_required(key),
    };
    properties.into_iter().flatten().map(field).collect()
}

fn range(schema: &Value) -> Range {
    let least = schema["minimum"].as_u64().unwrap_or(0);
    let is_u32 = schema["format"] == "uint32";
    let most_of_type = if is_u32 {
        u64::from(u32::MAX)
    } else {
        u64::MAX
    };
    Range {
        least,
        most: schema["maximum"].as_u64().unwrap_or(most_of_type),
        is_limit: least == 1 && is_u32,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Every [`Leaf`].
pub(super) static RULES: [Rule; 27] = [
    Rule::of::<super::LogTarget>(),
    Rule::of::<std::net::IpAddr>(),
    Rule::of::<std::net::SocketAddr>(),
    Rule::of::<ipnet::IpNet>(),
    Rule::of::<std::time::Duration>(),
    Rule::of::<Alpn>(),
    Rule::of::<Bind>(),
    Rule::of::<ErrorStatus>(),
    Rule::of::<Expect>(),
    Rule::of::<File>(),
    Rule::of::<HeaderValue>(),
    Rule::of::<HostPattern>(),
    Rule::of::<LabelKey>(),
    Rule::of::<MaxAge>(),
    Rule::of::<Name>(),
    Rule::of::<Needle>(),
    Rule::of::<Parameter>(),
    Rule::of::<ParameterValue>(),
    Rule::of::<Payload>(),
    Rule::of::<Scheme>(),
    Rule::of::<ServerName>(),
    Rule::of::<Size>(),
    Rule::of::<Tag>(),
    Rule::of::<Target>(),
    Rule::of::<Text>(),
    Rule::of::<Token>(),
    Rule::of::<UrlPath>(),
];
