//! `show info`: what concerns the process. What means nothing here is left out.

use ballast_core::text::Append;

use serde_json::json;

use super::command::{Form, Info};
use crate::stats::{self, FIELDS, Process, Value};

pub(super) fn info(process: &Process, how: Info) -> String {
    let mut out = Vec::new();
    let mut objects = Vec::new();
    for (position, field) in FIELDS.iter().enumerate() {
        let Some(of) = field.of else {
            continue;
        };
        let value = match of(process) {
            Value::Seconds(time) if how.float => Value::Exact(time),
            value => value,
        };
        let (name, tags, kind) = (field.name, field.tags, value.kind());
        match how.form {
            Form::Plain => write!(out, "{name}: "),
            Form::Typed => write!(out, "{position}.{name}.1:{tags}V:{kind}:"),
            Form::Json => {
                let [origin, nature, scope] = stats::words(tags);
                objects.push(json!({
                    "field": {"pos": position, "name": name},
                    "processNum": 1,
                    "tags": {"origin": origin, "nature": nature, "scope": scope},
                    "value": {"type": kind, "value": value},
                }));
                continue;
            }
        }
        value.write(&mut out);
        if how.desc {
            write!(out, ":\"{}\"", field.help);
        }
        out.push(b'\n');
    }
    if how.form == Form::Json {
        return format!("{}\n", serde_json::Value::from(objects));
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn process() -> Process {
        Process {
            node: "edge-1\nx".into(),
            pid: 7,
            started: 1_700_000_000,
            uptime: Duration::from_millis(93_784_250),
            workers: 2,
            limit: 100,
            descriptors: 1024,
            connections: 12,
            idle: 99,
            ..Process::default()
        }
    }

    #[test]
    fn every_line_is_a_name_a_colon_and_a_value() {
        let text = info(&process(), Info::default());
        for line in text.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            assert!(!name.is_empty() && !value.is_empty(), "{line}");
        }
        for line in [
            "Name: Ballast",
            "Uptime: 1d 2h03m04s",
            "Uptime_sec: 93784",
            "Maxconn: 100",
            "CurrConns: 0",
            "CumConns: 12",
            "Idle_pct: 99",
            "node: edge-1",
            "Unstoppable Jobs: 0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }

    #[test]
    fn the_typed_form_has_place_name_tags_type_and_value() {
        let how = Info {
            form: Form::Typed,
            desc: true,
            float: true,
        };
        let text = info(&process(), how);
        assert_eq!(
            text.lines().next(),
            Some("0.Name.1:POSV:str:Ballast:\"The name of this program\"")
        );
        assert!(
            text.contains("\n8.Uptime_sec.1:MDPV:flt:93784.250000:\""),
            "{text}"
        );
        assert!(text.contains("\n15.Maxconn.1:CLPV:u32:100:\""), "{text}");
    }

    #[test]
    fn the_json_form_is_one_line_with_the_same_values() {
        let how = Info {
            form: Form::Json,
            ..Info::default()
        };
        let text = info(&process(), how);
        assert_eq!(text.lines().count(), 1);
        let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let of = |name: &str| {
            list.iter()
                .find(|one| one["field"]["name"] == name)
                .unwrap()
        };
        assert_eq!(of("Maxconn")["value"], json!({"type": "u32", "value": 100}));
        assert_eq!(of("Name")["tags"]["origin"], "Product");
        assert_eq!(of("Uptime")["value"]["value"], "1d 2h03m04s");
    }
}
