//! Writes YAML as a person would: a value that fits is on one line, and the keys that name an item come first.

use serde_json::{Map, Value};

/// A document, with a line feed at its end; nothing for an empty map.
pub(crate) fn print(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if map.is_empty() => {}
        Value::Object(map) => entries(map, 0, &mut text),
        _ => text = inline(value) + "\n",
    }
    text
}

/// One line for each key that fits; the lines of the others are indented.
fn entries(map: &Map<String, Value>, indent: usize, text: &mut String) {
    for (index, (key, value)) in sorted(map).into_iter().enumerate() {
        // The first key of a list's item follows its dash.
        if index > 0 || !text.ends_with("- ") {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(&scalar(key));
        text.push(':');
        let line = inline(value);
        match value {
            Value::Object(map) if !fits(indent + key.len() + 2, &line) => {
                text.push('\n');
                entries(map, indent + 2, text);
            }
            Value::Array(items) if !fits(indent + key.len() + 2, &line) => {
                text.push('\n');
                list(items, indent, text);
            }
            _ => {
                text.push(' ');
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
}

fn list(items: &[Value], indent: usize, text: &mut String) {
    for item in items {
        text.push_str(&" ".repeat(indent));
        text.push_str("- ");
        let line = inline(item);
        match item {
            Value::Object(map) if !fits(indent + 2, &line) => entries(map, indent + 2, text),
            _ => {
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries: Vec<String> = sorted(map)
                .into_iter()
                .map(|(key, value)| format!("{}: {}", scalar(key), inline(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// A text, in quotes if YAML would read something else than a text.
fn scalar(text: &str) -> String {
    let is_plain = text
        .starts_with(|first: char| first.is_ascii_alphabetic() || "/$".contains(first))
        && text.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '/')
        && text
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || " ./:@_-$".contains(one))
        && !text.contains(": ")
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    let place = |key: &str| {
        let first = FIRST.iter().position(|first| *first == key);
        first.unwrap_or(FIRST.len())
    };
    entries.sort_by_key(|(key, _)| (place(key), *key));
    entries
}

fn fits(indent: usize, line: &str) -> bool {
    indent + line.len() <= WIDTH
}

const WIDTH: usize = 110;
/// The keys that come before all others.
const FIRST: [&str; 10] = [
    "kind",
    "about",
    "type",
    "reason",
    "name",
    "namespace",
    "service",
    "verdict",
    "why",
    "table",
];
/// Words that some version of YAML does not read as text.
const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
