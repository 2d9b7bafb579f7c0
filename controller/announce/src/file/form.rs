//! Mistakes of form: everything in the file that [`super::spec`] does not know. What is refused is replaced by a stand-in, so that
//! the rest can be read and its meaning checked.

use ballast_core::table::{Problem, nearest};
use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

use super::spec::{FILE, Field, Kind, Least, Map as Fields, Rule};

/// Mistakes, and the places about which nothing more is to be said.
#[derive(Default)]
pub(super) struct Found {
    pub(super) problems: Vec<Problem>,
    doubt: Vec<String>,
}

impl Found {
    /// Whether the value at this place, or one around it, was refused.
    pub(super) fn doubts(&self, at: &str) -> bool {
        self.doubt.iter().any(|place| {
            at.strip_prefix(place.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    fn refuse(&mut self, at: &str, why: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(Problem::new(at, why, remedy));
        self.doubt.push(at.to_owned());
    }
}

/// The text as a tree, or why it is none.
pub(super) fn tree(text: &[u8]) -> Result<Value, Problem> {
    if text.len() > LARGEST {
        let why = "the file has more bytes than the announcer takes";
        return Err(Problem::new("", why, "expected at most 16MiB"));
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        let why = format!("byte {} is not UTF-8", error.valid_up_to());
        Problem::new("", why, "expected a text in UTF-8")
    })?;
    if text.trim().is_empty() {
        return Err(Problem::new("", "the file is empty", A_FILE));
    }
    // A node takes two bytes at least.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: LARGEST,
            max_nodes: LARGEST / 2,
            max_total_scalar_bytes: LARGEST,
            max_documents: 1,
            max_depth: 64,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    };
    let tree = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let at = error
            .location()
            .map(|place| format!("line {}, column {}", place.line(), place.column()));
        let words = error.without_snippet().to_string();
        let first = words.split(['\n']).next().unwrap_or_default();
        let first = first.split(" at line ").next().unwrap_or_default();
        let why = format!("is not YAML: {first}");
        Problem::new(
            at.unwrap_or_default(),
            why,
            "expected one whole YAML document, each key once",
        )
    })?;
    match tree {
        Value::Object(_) => Ok(tree),
        _ => Err(Problem::new("", "this is no map of keys", A_FILE)),
    }
}

/// Finds every mistake of form, and puts stand-ins in place of what is refused.
pub(super) fn mend(tree: &mut Value) -> Found {
    let mut found = Found::default();
    value(&mut found, "", tree, &Kind::Map(&FILE));
    found
}

/// Whether the value is of this kind. If it is not, that was reported.
fn value(found: &mut Found, at: &str, node: &mut Value, kind: &Kind) -> bool {
    let remedy = match (kind, &mut *node) {
        (Kind::Text(rule) | Kind::OneOrList(rule), Value::String(text)) => {
            return leaf(found, at, text, rule);
        }
        (Kind::Words(words), Value::String(text)) => return word(found, at, text, words),
        (Kind::Number(least, most), Value::Number(number)) => {
            let is_good = number
                .as_u64()
                .is_some_and(|number| (*least..=*most).contains(&number));
            if !is_good {
                let remedy = match least == most {
                    true => format!("expected {least}"),
                    false => format!("expected a whole number, {least} to {most}"),
                };
                found.refuse(at, format!("{number} is out of range"), remedy);
            }
            return is_good;
        }
        (Kind::Truth, Value::Bool(_)) => return true,
        (Kind::List(item, least), Value::Array(items)) => {
            return list(found, at, items, item, *least);
        }
        (Kind::OneOrList(rule), Value::Array(items)) => {
            return list(found, at, items, &Kind::Text(rule), Least::One);
        }
        (Kind::Map(fields), Value::Object(entries)) => {
            map(found, at, entries, fields);
            return true;
        }
        (Kind::Text(rule) | Kind::OneOrList(rule), _) => format!("expected {}", rule.form),
        (Kind::Words(words), _) => format!("expected {}", all(words)),
        (Kind::Number(..), _) => "expected a whole number, without quotes".to_owned(),
        (Kind::Truth, _) => "expected true or false, without quotes".to_owned(),
        (Kind::List(..), _) => "expected [ITEM, …]".to_owned(),
        (Kind::Map(_), _) => "expected KEY: VALUE lines, or {KEY: VALUE, …}".to_owned(),
    };
    let why = match kind {
        Kind::Text(rule) if rule.is_secret() => "this is no text".to_owned(),
        _ => shown(node),
    };
    found.refuse(at, why, remedy);
    false
}

fn leaf(found: &mut Found, at: &str, text: &str, rule: &Rule) -> bool {
    match (rule.check)(text) {
        Ok(()) => true,
        Err(wrong) => {
            let text = match rule.is_secret() {
                true => "this text".to_owned(),
                false => quoted(text),
            };
            found.refuse(at, format!("{text} {}", wrong.why), wrong.remedy);
            false
        }
    }
}

fn word(found: &mut Found, at: &str, text: &str, words: &[(&str, &str)]) -> bool {
    let is_good = words.iter().any(|(word, _)| *word == text);
    if !is_good {
        let near = nearest(text, words.iter().map(|(word, _)| *word));
        let remedy = match near {
            Some(near) => format!("did you mean {near}? known: {}", all(words)),
            None => format!("expected {}", all(words)),
        };
        found.refuse(at, format!("{} is not known here", quoted(text)), remedy);
    }
    is_good
}

fn list(found: &mut Found, at: &str, items: &mut [Value], kind: &Kind, least: Least) -> bool {
    if items.is_empty() && least == Least::One {
        let remedy = "put something in, or leave the key out";
        found.refuse(at, "this list is empty", remedy);
        return false;
    }
    for (index, item) in items.iter_mut().enumerate() {
        if !value(found, &format!("{at}[{index}]"), item, kind) {
            *item = stand_in(kind);
        }
    }
    true
}

fn map(found: &mut Found, at: &str, entries: &mut Map<String, Value>, fields: &Fields) {
    let below = |key: &str| match at {
        "" => plain(key),
        _ => format!("{at}.{}", plain(key)),
    };
    for field in fields.fields {
        let place = below(field.key);
        let is_good = match entries.get_mut(field.key) {
            Some(node) => value(found, &place, node, &field.kind),
            None if field.is_required => {
                let why = format!("{} is missing", field.key);
                found.problems.push(Problem::new(at, why, add(field)));
                found.doubt.push(place);
                false
            }
            None => true,
        };
        match is_good {
            true => {}
            false if field.is_required => {
                entries.insert(field.key.to_owned(), stand_in(&field.kind));
            }
            false => {
                entries.remove(field.key);
            }
        }
    }
    let known = || fields.fields.iter().map(|field| field.key);
    entries.retain(|key, _| {
        let is_known = known().any(|known| known == key);
        if !is_known {
            let remedy = match nearest(key, known()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known keys are {}", known().collect::<Vec<_>>().join(", ")),
            };
            found.refuse(&below(key), "is not a known key", remedy);
        }
        is_known
    });
}

/// The remedy where a key is missing.
fn add(field: &Field) -> String {
    match &field.kind {
        Kind::Number(least, most) if least == most => format!("add {}: {least}", field.key),
        Kind::Text(rule) => format!("add {}: such as {}", field.key, rule.example),
        _ => format!("add {}", field.key),
    }
}

fn stand_in(kind: &Kind) -> Value {
    match kind {
        Kind::Text(rule) | Kind::OneOrList(rule) => rule.example.into(),
        Kind::Words(words) => words.first().map_or("", |(word, _)| word).into(),
        Kind::Number(least, _) => (*least).into(),
        Kind::Truth => false.into(),
        Kind::List(..) => Value::Array(Vec::new()),
        Kind::Map(fields) => {
            let required = fields.fields.iter().filter(|field| field.is_required);
            let entries = required.map(|field| (field.key.to_owned(), stand_in(&field.kind)));
            Value::Object(entries.collect())
        }
    }
}

fn all(words: &[(&str, &str)]) -> String {
    let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    words.join(", ")
}

/// A value of the wrong kind, for people.
fn shown(node: &Value) -> String {
    match node {
        Value::Null => "no value stands here".to_owned(),
        Value::Bool(truth) => format!("{truth} is true or false"),
        Value::Number(number) => format!("{number} is a number"),
        Value::String(text) => format!("{} is a text", quoted(text)),
        Value::Array(_) => "this is a list".to_owned(),
        Value::Object(_) => "this is a map".to_owned(),
    }
}

/// In quotes, on one line and not too long.
pub(super) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    format!("{short:?}")
}

fn plain(key: &str) -> String {
    match key.len() <= SHOWN && !key.chars().any(char::is_control) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

/// Characters of a text that a mistake shows.
const SHOWN: usize = 60;

/// The most bytes of a file: ten thousand addresses, each with the names of 25 nodes of a cloud.
pub const LARGEST: usize = 16 << 20;

pub(super) const A_FILE: &str = "templates/announce-minimal.yaml is an example";
