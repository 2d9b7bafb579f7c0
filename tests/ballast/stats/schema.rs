//! The schema that is told, and what it says of what is told.

use ballast::stats::{self, Selection};
use serde_json::Value;

use crate::stats::{text, varied};
use support::{Ballast, get};

#[test]
fn what_is_told_obeys_the_schema_that_is_told() {
    let ballast = Ballast::serve(&varied(), 1);
    let (status, body) = get(ballast.running.admin()[0], "/;json-schema");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let schema: Value = serde_json::from_str(&body).unwrap();
    let stats = ballast.running.stats();
    let rows = text(stats::json(stats.snapshot(), Selection::default()));
    let rows: Value = serde_json::from_str(&rows).unwrap();
    obeys(&schema, &schema, &rows).unwrap();

    let mut wrong = rows;
    wrong[0][0]["tags"]["origin"] = "Nowhere".into();
    assert!(obeys(&schema, &schema, &wrong).is_err(), "it can say no");
}

/// As much of JSON schema as this one uses. Anything else in it is an error.
fn obeys(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    for (word, said) in schema.as_object().ok_or("no schema")? {
        let is_obeyed = match word.as_str() {
            "$schema" | "title" | "definitions" => true,
            "$ref" => {
                let place = said.as_str().and_then(|place| place.strip_prefix('#'));
                let referred = place.and_then(|place| root.pointer(place));
                obeys(root, referred.ok_or("no such definition")?, value)?;
                true
            }
            "type" => match said.as_str() {
                Some("array") => value.is_array(),
                Some("object") => value.is_object(),
                Some("string") => value.is_string(),
                Some("integer") => value.is_u64() || value.is_i64(),
                Some("number") => value.is_number(),
                _ => false,
            },
            "enum" => said.as_array().is_some_and(|words| words.contains(value)),
            "minimum" => value.as_f64() >= said.as_f64(),
            "maximum" => value.as_f64() <= said.as_f64(),
            "oneOf" => {
                let schemas = said.as_array().into_iter().flatten();
                let obeyed = schemas.filter(|schema| obeys(root, schema, value).is_ok());
                obeyed.count() == 1
            }
            "anyOf" => {
                let mut schemas = said.as_array().into_iter().flatten();
                schemas.any(|schema| obeys(root, schema, value).is_ok())
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    obeys(root, said, item)?;
                }
                true
            }
            "properties" => {
                for (name, schema) in said.as_object().ok_or("no properties")? {
                    if let Some(value) = value.get(name) {
                        obeys(root, schema, value)?;
                    }
                }
                true
            }
            "required" => {
                let names = said.as_array().into_iter().flatten();
                let mut names = names.filter_map(Value::as_str);
                names.all(|name| value.get(name).is_some())
            }
            "additionalProperties" => {
                let known = schema["properties"].as_object().ok_or("no properties")?;
                let mut names = value.as_object().into_iter().flat_map(|all| all.keys());
                names.all(|name| known.contains_key(name))
            }
            _ => false,
        };
        if !is_obeyed {
            let value: String = value.to_string().chars().take(200).collect();
            return Err(format!("{word} {said}: {value}"));
        }
    }
    Ok(())
}
