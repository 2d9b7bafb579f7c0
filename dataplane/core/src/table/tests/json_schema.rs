//! The JSON Schema: it is the one that is shipped, it explains every field, and it takes what reading takes.

use std::time::Duration;

use regex_lite::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::form::mend;
use super::super::parse::tree;
use super::super::schema::{Kind, RULES, schema};
use super::super::strict::Strict;
use super::super::tree::Node;
use super::super::{
    ClientTimeouts, Ejection, EndpointTls, Format, FrontendHttp, HeaderEdits, Http2, Log, Redirect,
    Rewrite, Route, RoutingTable, ServiceHttp, ServiceTimeouts, Stats, Udp, When, parse,
};
use super::whole::{FULL, MINIMAL};

const SHIPPED: &str = include_str!("../../../../../templates/table.schema.json");

fn root() -> Value {
    serde_json::from_str(&schema()).unwrap()
}

#[test]
fn the_template_is_the_schema() {
    assert!(
        SHIPPED == schema(),
        "write it anew: cargo run -p ballast -- schema > templates/table.schema.json"
    );
    assert_eq!(
        root()["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
}

#[test]
fn every_field_and_every_word_has_a_description() {
    fn look(at: &str, schema: &Value, count: &mut usize) {
        let described = |schema: &Value| {
            schema["description"]
                .as_str()
                .is_some_and(|text| text.len() > 4)
        };
        for (key, field) in schema["properties"].as_object().into_iter().flatten() {
            // The values of an enum are described as a whole.
            assert!(described(field) || described(schema), "{at}.{key}");
            *count += 1;
        }
        for choice in schema["oneOf"].as_array().into_iter().flatten() {
            assert!(described(choice), "{at}: {choice}");
            look(at, choice, count);
        }
    }
    let (root, mut count) = (root(), 0);
    look("", &root, &mut count);
    for (name, definition) in root["$defs"].as_object().unwrap() {
        assert!(definition["description"].is_string(), "{name}");
        look(name, definition, &mut count);
    }
    assert!(count > 100, "only {count} fields");
}

/// As much of JSON Schema as the schema of the table uses. Anything else in it is an error.
fn obeys(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    for (word, said) in schema.as_object().ok_or("no schema")? {
        let good = match word.as_str() {
            "$schema" | "$defs" | "title" | "description" | "examples" | "format" => true,
            "$ref" => {
                let name = said.as_str().and_then(|at| at.strip_prefix('#')).unwrap();
                obeys(root, root.pointer(name).unwrap(), value)?;
                true
            }
            "type" => match said.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_u64() || value.is_i64(),
                "boolean" => value.is_boolean(),
                other => return Err(format!("unknown type {other}")),
            },
            "const" => value == said,
            "pattern" => Regex::new(said.as_str().unwrap())
                .unwrap()
                .is_match(value.as_str().unwrap_or_default()),
            "minimum" => value.as_i64() >= said.as_i64(),
            "maximum" => value.as_u64() <= said.as_u64(),
            "minItems" => {
                value.as_array().map(Vec::len)
                    >= said.as_u64().map(|least| usize::try_from(least).unwrap())
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    obeys(root, said, item)?;
                }
                true
            }
            "required" => said
                .as_array()
                .unwrap()
                .iter()
                .all(|key| value.get(key.as_str().unwrap()).is_some()),
            "properties" => {
                for (key, schema) in said.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        obeys(root, schema, value)?;
                    }
                }
                true
            }
            "propertyNames" => {
                for (key, _) in value.as_object().into_iter().flatten() {
                    obeys(root, said, &Value::from(key.as_str()))?;
                }
                true
            }
            "additionalProperties" if *said == json!(false) => {
                let known = |key| schema["properties"].get(key).is_some();
                value.as_object().is_none_or(|map| map.keys().all(known))
            }
            "additionalProperties" => {
                for (_, value) in value.as_object().into_iter().flatten() {
                    obeys(root, said, value)?;
                }
                true
            }
            "anyOf" => said
                .as_array()
                .unwrap()
                .iter()
                .any(|choice| obeys(root, choice, value).is_ok()),
            "oneOf" => {
                said.as_array()
                    .unwrap()
                    .iter()
                    .filter(|choice| obeys(root, choice, value).is_ok())
                    .count()
                    == 1
            }
            other => return Err(format!("unknown word {other}")),
        };
        if !good {
            return Err(format!("{value} does not obey {word}: {said}"));
        }
    }
    Ok(())
}

/// What editors say of a table is what Ballast says.
#[test]
fn every_template_obeys_the_schema() {
    let root = root();
    let demo = include_str!("../../../../../templates/demo.yaml")
        .replace("PORT", "80")
        .replace("ONE", "127.0.0.1:1")
        .replace("TWO", "127.0.0.1:2");
    for template in [MINIMAL, FULL, &demo] {
        let mut json = String::new();
        super::write_json(&tree(template.as_bytes(), Format::Yaml).unwrap(), &mut json);
        let value = serde_json::from_str(&json).unwrap();
        assert_eq!(obeys(&root, &root, &value), Ok(()));
        let table = parse(template.as_bytes(), Format::Yaml).unwrap();
        let written = serde_json::to_value(&table).unwrap();
        assert_eq!(obeys(&root, &root, &written), Ok(()));
    }
    for bad in [
        json!({"version": "1"}),
        json!({"version": 1, "frontend": []}),
        json!({"version": 1, "generation": null}),
        json!({"version": 1, "stats": {"bind": []}}),
        json!({"version": 1, "services": [{"name": "s", "ejection": "on"}]}),
        json!({"version": 1, "frontends": [{"name": "f", "bind": ["*:80"], "protocol": "http", "http": {"http2": "no"}}]}),
        json!({"version": 1, "frontends": [{"name": "f", "bind": ["*:80"], "protocol": "http", "http": {"http2": {"streams": 0}}}]}),
        json!({"version": 1, "frontends": [{"name": "f", "bind": ["*:80"], "protocol": "http", "routes": [{"status": 200, "rewrite": true}]}]}),
        json!({"version": 1, "services": [{"name": "s", "affinity": {"client-ip": "3h", "cookie": "a"}}]}),
        json!({"version": 1, "services": [{"name": "s", "endpoints": [{"address": "shop:80", "weight": 1}]}]}),
        json!({"version": 1, "services": [{"name": "s", "endpoints": [{"address": "10.0.0.1:80", "weight": 257}]}]}),
    ] {
        assert!(obeys(&root, &root, &bad).is_err(), "{bad}");
        let text = bad.to_string();
        assert!(parse(text.as_bytes(), Format::Json).is_err(), "{bad}");
    }
}

/// An editor must not complain about what Ballast takes.
#[test]
fn good_texts_match_the_pattern_that_editors_look_at() {
    fn matches<T: Leaf>(texts: &[&str]) {
        let pattern = Regex::new(T::PATTERN).unwrap();
        for text in texts {
            assert!(T::parse(text).is_ok(), "{} {text:?}", T::NAME);
            assert!(pattern.is_match(text), "{} {text:?}", T::NAME);
        }
    }
    use super::super::*;
    matches::<Duration>(&["1ms", "250ms", "5s", "24d"]);
    matches::<MaxAge>(&["1000ms", "36500d"]);
    matches::<Size>(&["512B", "64KiB", "1MiB"]);
    matches::<Bind>(&[
        "*:80",
        "[2001:DB8::1]:80",
        "[::ffff:10.0.0.1]:80",
        "[fe80::1%3]:80",
    ]);
    matches::<SocketAddr>(&["10.0.0.1:1", "[fe80::1%3]:80"]);
    matches::<std::net::IpAddr>(&["10.0.0.1", "::ffff:10.0.0.1"]);
    matches::<IpNet>(&["10.0.0.0/8", "::/0", "::ffff:10.1.2.3/104"]);
    matches::<HostPattern>(&[
        "Shop.Example.com.",
        "*.a_b.org",
        "[2001:db8::1]",
        "10.0.0.1",
    ]);
    matches::<Expect>(&["200, 204,300-399", "\t200"]);
    matches::<LogTarget>(&["stdout", "unix:/dev/log", "udp:[::1]:514"]);
    matches::<Text>(&["", "Aufträge ✓", " "]);
    matches::<Value>(&["", "a\tb", "ü"]);
    matches::<Tag>(&["w1", "ü:/"]);
    matches::<Needle>(&["\n", " ", "ok"]);
    matches::<Payload>(&[r"\x00ping", "\n", "\u{85}"]);
    matches::<File>(&["tls/a b.pem", "/ü"]);
    matches::<UrlPath>(&["/", "/~a%20b"]);
    matches::<Target>(&["/?a=b&c", "/"]);
    matches::<Parameter>(&["v", "a%20b", "!\"$'?"]);
    matches::<ParameterValue>(&["", "a=b", "%26"]);
    matches::<Token>(&["!#$%&'*+-.^_`|~aZ0"]);
    matches::<ErrorStatus>(&["400", "599"]);
    for rule in &RULES {
        assert!((rule.parse)(rule.example).is_ok(), "{rule:?}");
    }
}

fn reads(tree: &Node) -> bool {
    RoutingTable::deserialize(Strict(tree)).is_ok()
}

#[test]
fn what_stands_in_for_refused_values_can_be_read() {
    let mut tree = Kind::of_table().stand_in();
    assert!(reads(&tree));
    assert!(mend(&mut tree).0.is_empty());
    // A table with every field, in which no value is right.
    fn spoil(node: &mut Node) {
        match node {
            Node::List(items) => items.iter_mut().for_each(spoil),
            Node::Map(entries) => entries.iter_mut().for_each(|(_, value)| spoil(value)),
            other => *other = Node::Fraction(0.5),
        }
    }
    let mut tree = super::schema::full();
    spoil(&mut tree);
    assert!(!reads(&tree));
    assert!(!mend(&mut tree).0.is_empty());
    assert!(reads(&tree));
}

/// The types hold the same ranges as the schema.
#[test]
fn numbers_are_read_where_the_schema_takes_them() {
    let near = [
        0,
        1,
        10,
        20,
        100,
        199,
        200,
        256,
        599,
        1000,
        10_000,
        65_535,
        4_294_967_295,
    ];
    let mut tried = 0;
    for (way, at, value) in super::schema::values(&super::schema::full()) {
        if !matches!(value, Node::Number(_)) {
            continue;
        }
        for number in near.into_iter().flat_map(|number| [number, number + 1]) {
            let mut tree = super::schema::full();
            *super::schema::at_way(&mut tree, &way) = Node::Number(number);
            let is_read = reads(&tree);
            assert_eq!(mend(&mut tree).0.is_empty(), is_read, "{at}: {number}");
            tried += 1;
        }
    }
    assert!(tried > 300, "only {tried} numbers were tried");
}

/// Derived types take these by themselves.
#[test]
fn json_is_read_as_strictly_as_yaml() {
    for fields in [
        r#""description": null"#,
        r#""health": null"#,
        r#""algorithm": {"random": null}"#,
        r#""timeouts": []"#,
        r#""timeouts": ["1s"]"#,
        r#""ejection": [3, "1s", "30s", 50]"#,
        r#""ejection": null"#,
        r#""affinity": "client-ip""#,
        r#""affinity": ["client-ip", "3h"]"#,
        r#""affinity": {"client-ip": "3h", "cookie": "a"}"#,
        r#""labels": {"a": "b", "a": "b"}"#,
        r#""retries": 3.0"#,
        r#""source": []"#,
        r#""endpoints": [["10.0.0.1:80"]]"#,
        r#""name": "again""#,
    ] {
        let text = format!(r#"{{"version": 1, "services": [{{"name": "s", {fields}}}]}}"#);
        assert!(parse(text.as_bytes(), Format::Json).is_err(), "{fields}");
        assert!(parse(text.as_bytes(), Format::Yaml).is_err(), "{fields}");
    }
}

/// The default stands in two places for each of these fields: where it is read and where it is left out.
#[test]
fn defaults_are_not_written() {
    let nothing = json!({});
    for written in [
        serde_json::to_value(Stats::default()),
        serde_json::to_value(Log::default()),
        serde_json::to_value(ClientTimeouts::default()),
        serde_json::to_value(Udp::default()),
        serde_json::to_value(FrontendHttp::default()),
        serde_json::to_value(Route::default()),
        serde_json::to_value(Redirect::default()),
        serde_json::to_value(Rewrite::default()),
        serde_json::to_value(When::default()),
        serde_json::to_value(Http2::default()),
        serde_json::to_value(ServiceTimeouts::default()),
        serde_json::to_value(Ejection::default()),
        serde_json::to_value(ServiceHttp::default()),
        serde_json::to_value(HeaderEdits::default()),
        serde_json::to_value(EndpointTls::default()),
    ] {
        assert_eq!(written.unwrap(), nothing);
    }
    let bare = r#"{"version":1,"frontends":[{"name":"f","bind":["*:80"],"protocol":"https","tls":{"certificates":[{"cert":"c"}],"client-auth":{"ca":"c"}}}],"services":[{"name":"s","health":{"mode":"off"},"endpoints":[{"address":"10.0.0.1:80"}]}]}"#;
    let table = parse(bare.as_bytes(), Format::Json).unwrap();
    assert_eq!(serde_json::to_string(&table).unwrap(), bare);
}
