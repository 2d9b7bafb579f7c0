//! The JSON Schema of the file, for editors: made of [`super::spec`].

use serde_json::{Map, Value, json};

use super::spec::{FILE, Kind, Least, Map as Fields, Rule};

/// The JSON Schema (draft 2020-12) of the file; `templates/announce.schema.json` is the same.
#[must_use]
pub fn schema() -> String {
    let mut root = of_map(&FILE);
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = FILE.about.into();
    format!("{root:#}\n")
}

fn of(kind: &Kind) -> Value {
    match kind {
        Kind::Text(rule) => of_text(rule),
        Kind::Words(words) => {
            let each = words.iter();
            let each = each.map(|(word, about)| json!({"const": word, "description": about}));
            json!({"oneOf": each.collect::<Vec<_>>()})
        }
        Kind::Number(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Kind::Truth => json!({"type": "boolean"}),
        Kind::List(item, least) => of_list(of(item), *least),
        Kind::OneOrList(rule) => {
            json!({"anyOf": [of_text(rule), of_list(of_text(rule), Least::One)]})
        }
        Kind::Map(fields) => of_map(fields),
    }
}

fn of_text(rule: &Rule) -> Value {
    json!({"type": "string", "pattern": rule.pattern, "examples": [rule.example]})
}

fn of_list(item: Value, least: Least) -> Value {
    match least {
        Least::Any => json!({"type": "array", "items": item}),
        Least::One => json!({"type": "array", "items": item, "minItems": 1}),
    }
}

fn of_map(fields: &Fields) -> Value {
    let property = |field: &super::spec::Field| {
        let mut schema = of(&field.kind);
        schema["description"] = field.about.into();
        (field.key.to_owned(), schema)
    };
    let properties: Map<String, Value> = fields.fields.iter().map(property).collect();
    let required = fields.fields.iter().filter(|field| field.is_required);
    let required: Vec<&str> = required.map(|field| field.key).collect();
    json!({
        "type": "object",
        "description": fields.about,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}
