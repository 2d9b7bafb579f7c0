//! Every rule of the table, one row each; how tables are read and written; whole tables made at random.

mod forms;
mod forwarding;
mod halves;
mod json_schema;
mod properties;
mod protocols;
mod routes;
mod rules;
mod schema;
mod services;
mod whole;

use super::parse::tree;
use super::tree::Node;
use super::{Format, Problem, RoutingTable, parse};

/// What is wrong with a table in YAML.
fn problems_of(yaml: &str) -> Vec<Problem> {
    match parse(yaml.as_bytes(), Format::Yaml) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.into(),
    }
}

/// A good table.
fn good(yaml: &str) -> RoutingTable {
    match parse(yaml.as_bytes(), Format::Yaml) {
        Ok(table) => table,
        Err(problems) => panic!("{yaml}\n{problems}"),
    }
}

/// A table of these frontends and services, both without their brackets.
fn table(frontends: &str, services: &str) -> String {
    format!("{{version: 1, frontends: [{frontends}], services: [{services}]}}")
}

/// A table with one frontend `f` of this protocol, with more fields perhaps, and the services `s` and `other`.
fn frontend(protocol: &str, fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    let frontend = format!("{{name: f, bind: ['*:80'], protocol: {protocol}{comma} {fields}}}");
    table(&frontend, "{name: s}, {name: other}")
}

/// A table with one https frontend that has these fields too.
fn https(fields: &str) -> String {
    frontend(
        "https",
        &format!("tls: {{certificates: [{{cert: c}}]}}, {fields}"),
    )
}

/// A table whose only service has these fields.
fn service(fields: &str) -> String {
    table("", &format!("{{name: s, {fields}}}"))
}

/// A table with one endpoint of these fields.
fn endpoint(fields: &str) -> String {
    service(&format!("endpoints: [{{{fields}}}]"))
}

/// What one row of a table of rules says: this text has this one Problem.
struct Row {
    text: String,
    at: &'static str,
    why: &'static str,
    remedy: &'static str,
}

fn row(text: String, at: &'static str, why: &'static str, remedy: &'static str) -> Row {
    Row {
        text,
        at,
        why,
        remedy,
    }
}

/// Checks that every row has its Problem, and no other one: in YAML, and in the JSON that says the same.
fn hold(rows: Vec<Row>) {
    for Row {
        text,
        at,
        why,
        remedy,
    } in rows
    {
        let problems = problems_of(&text);
        let told: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let [problem] = problems.as_slice() else {
            panic!("{text}\nexpected one problem at {at}, found {told:#?}");
        };
        assert_eq!(problem.at, at, "{text}\n{problem}");
        assert!(
            problem.why.contains(why),
            "{text}\n{problem}\nexpected why: {why}"
        );
        assert!(
            problem.remedy.contains(remedy),
            "{text}\n{problem}\nexpected remedy: {remedy}"
        );
        let mut json = String::new();
        write_json(&tree(text.as_bytes(), Format::Yaml).unwrap(), &mut json);
        let in_json: Vec<Problem> = parse(json.as_bytes(), Format::Json).unwrap_err().into();
        assert_eq!(in_json, problems, "{text}");
    }
}

fn write_json(node: &Node, json: &mut String) {
    match node {
        Node::Null | Node::Refused => json.push_str("null"),
        Node::Truth(truth) => json.push_str(&truth.to_string()),
        Node::Number(number) => json.push_str(&number.to_string()),
        Node::Negative(number) => json.push_str(&number.to_string()),
        Node::Fraction(number) => json.push_str(&number.to_string()),
        Node::Text(text) => json.push_str(&serde_json::to_string(text).unwrap()),
        Node::List(items) => {
            json.push('[');
            for (index, item) in items.iter().enumerate() {
                json.push_str(if index > 0 { "," } else { "" });
                write_json(item, json);
            }
            json.push(']');
        }
        Node::Map(entries) => {
            json.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                json.push_str(if index > 0 { "," } else { "" });
                json.push_str(&serde_json::to_string(&**key).unwrap());
                json.push(':');
                write_json(value, json);
            }
            json.push('}');
        }
    }
}
