//! `/;json-schema` and `show schema json`: what the JSON of haproxy's shape looks like, for programs that check it.

use serde_json::{Value, json};

use super::super::value::MOST_EXACT;

/// A schema that `/;json`, `show stat json` and `show info json` obey.
pub fn schema() -> String {
    let list =
        |of: &str| json!({"type": "array", "items": {"$ref": format!("#/definitions/{of}")}});
    let schema = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": "What Ballast says of its process and of its traffic",
        "anyOf": [
            {"title": "show info json", "type": "array", "items": figure(&[])},
            {"title": "show stat json", "type": "array", "items": {"$ref": "#/definitions/row"}},
        ],
        "definitions": {
            "row": list("column"),
            "column": figure(&[
                ("objType", json!({"enum": ["Frontend", "Backend", "Server"]})),
                ("proxyId", number(0, MOST_SMALL)),
                ("id", number(0, MOST_SMALL)),
            ]),
            "field": object(&[
                ("pos", number(0, MOST_SMALL)),
                ("name", json!({"type": "string"})),
            ]),
            "tags": object(&[
                ("origin", json!({"enum": ["Metric", "Status", "Key", "Config", "Product"]})),
                ("nature", json!({"enum": [
                    "Age", "Avg", "Counter", "Duration", "Gauge", "Limit", "Max", "Name", "Output", "Position", "Rate"
                ]})),
                ("scope", json!({"enum": ["Process", "Service"]})),
            ]),
            "value": {"oneOf": [
                value("s32", &number(-(1 << 31), (1 << 31) - 1)),
                value("u32", &number(0, MOST_SMALL)),
                value("u64", &number(0, MOST_EXACT.cast_signed())),
                value("flt", &json!({"type": "number"})),
                value("str", &json!({"type": "string"})),
            ]},
        },
    });
    format!("{schema}\n")
}

/// A named value, and what else is said of it.
fn figure(more: &[(&str, Value)]) -> Value {
    let reference = |to: &str| json!({"$ref": format!("#/definitions/{to}")});
    let own = [
        ("field", reference("field")),
        ("processNum", number(1, 1)),
        ("tags", reference("tags")),
        ("value", reference("value")),
    ];
    object(&[more, &own].concat())
}

fn value(kind: &str, of: &Value) -> Value {
    object(&[("type", json!({"enum": [kind]})), ("value", of.clone())])
}

/// All of these, and nothing else.
fn object(properties: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> = properties
        .iter()
        .map(|(name, of)| ((*name).to_owned(), of.clone()))
        .collect();
    json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
}

fn number(least: i64, most: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

const MOST_SMALL: i64 = (1 << 32) - 1;
