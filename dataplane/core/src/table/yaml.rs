//! A table as YAML for people: in the order of the reference, only what is not the default, short things on one line.

use super::RoutingTable;
use super::tree::Node;

/// Comments above the frontends and services, by their places.
#[derive(Clone, Debug, Default)]
pub struct Comments {
    /// Lines above each frontend.
    pub frontends: Vec<Vec<String>>,
    /// Lines above each service.
    pub services: Vec<Vec<String>>,
}

/// Writes a table as YAML, with these lines of comment at its head.
pub fn yaml(table: &RoutingTable, comments: &Comments, head: &[String]) -> String {
    let mut out = String::from("# yaml-language-server: $schema=table.schema.json\n");
    for line in head {
        comment(&mut out, 0, line);
    }
    // JSON has all fields in the order of the types, which is that of the reference.
    let node = serde_json::to_string(table)
        .ok()
        .and_then(|json| serde_json::from_str(&json).ok());
    let Some(Node::Map(entries)) = node else {
        return out;
    };
    for (key, value) in entries.iter() {
        let key: &str = key;
        let above = match key {
            "frontends" => Some(&comments.frontends),
            "services" => Some(&comments.services),
            _ => None,
        };
        match (above, value) {
            (Some(above), Node::List(items)) => {
                out.push_str(&format!("\n{key}:\n"));
                for (index, item) in items.iter().enumerate() {
                    for line in above.get(index).into_iter().flatten() {
                        comment(&mut out, 2, line);
                    }
                    list_item(&mut out, 2, item);
                }
            }
            _ => entry(&mut out, 0, key, value),
        }
    }
    out
}

fn comment(out: &mut String, indent: usize, text: &str) {
    let plain: String = text
        .chars()
        .map(|letter| {
            if letter.is_control() || UNWRITTEN.contains(&letter) {
                ' '
            } else {
                letter
            }
        })
        .collect();
    let line = format!("{:indent$}# {plain}", "");
    out.push_str(&format!("{}\n", line.trim_end()));
}

/// `key: value`, on one line where it is short.
fn entry(out: &mut String, indent: usize, key: &str, value: &Node) {
    let key = scalar(key);
    let flow = flow(value);
    if is_leaf(value) || flow.len() + indent + key.len() + 2 <= WIDTH {
        out.push_str(&format!("{:indent$}{key}: {flow}\n", ""));
        return;
    }
    out.push_str(&format!("{:indent$}{key}:\n", ""));
    match value {
        Node::Map(entries) => {
            for (key, value) in entries {
                entry(out, indent + 2, key, value);
            }
        }
        Node::List(items) if items.iter().all(is_leaf) => filled(out, indent + 2, items),
        Node::List(items) => {
            for item in items {
                list_item(out, indent + 2, item);
            }
        }
        _ => {}
    }
}

/// A long list of short things, on as few lines as it takes.
fn filled(out: &mut String, indent: usize, items: &[Node]) {
    let mut line = format!("{:indent$}[", "");
    for (index, item) in items.iter().enumerate() {
        let comma = if index + 1 < items.len() { "," } else { "]" };
        let word = format!("{}{comma}", flow(item));
        if line.len() + word.len() > WIDTH {
            out.push_str(&format!("{}\n", line.trim_end()));
            line = format!("{:indent$} ", "");
        }
        line.push_str(&word);
        line.push(' ');
    }
    out.push_str(&format!("{}\n", line.trim_end()));
}

fn list_item(out: &mut String, indent: usize, item: &Node) {
    let flow = flow(item);
    let short = flow.len() + indent + 2 <= WIDTH;
    match item {
        // A frontend or a service is a block of its own, whatever its length.
        Node::Map(entries) if indent == 2 && entries.len() > 2 || !short => {
            let Node::Map(entries) = item else {
                out.push_str(&format!("{:indent$}- {flow}\n", ""));
                return;
            };
            let mut lines = String::new();
            for (key, value) in entries {
                entry(&mut lines, indent + 2, key, value);
            }
            let rest = lines.get(indent + 2..).unwrap_or_default();
            out.push_str(&format!("{:indent$}- {rest}", ""));
        }
        _ => {
            out.push_str(&format!("{:indent$}- {flow}\n", ""));
        }
    }
}

fn is_leaf(node: &Node) -> bool {
    !matches!(node, Node::List(_) | Node::Map(_))
}

/// A value on one line.
fn flow(node: &Node) -> String {
    match node {
        Node::Null | Node::Refused => "null".into(),
        Node::Truth(truth) => truth.to_string(),
        Node::Number(number) => number.to_string(),
        Node::Negative(number) => number.to_string(),
        Node::Fraction(number) => number.to_string(),
        Node::Text(text) => scalar(text),
        Node::List(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Node::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", scalar(key), flow(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// A text that YAML reads as this text.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
        && !["true", "false", "null", "yes", "no", "on"]
            .contains(&text.to_ascii_lowercase().as_str());
    // A number and its unit, such as 5s and 64KiB.
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let measure = digits > 0
        && text
            .get(digits..)
            .is_some_and(|unit| matches!(unit, "ms" | "s" | "m" | "h" | "d" | "KiB" | "MiB" | "B"));
    if plain || measure {
        return text.into();
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            _ if letter.is_control() || UNWRITTEN.contains(&letter) => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Columns of a line that holds a map or a list.
const WIDTH: usize = 110;

/// Letters that are no part of a YAML text.
const UNWRITTEN: [char; 5] = ['\u{feff}', '\u{fffe}', '\u{ffff}', '\u{2028}', '\u{2029}'];
