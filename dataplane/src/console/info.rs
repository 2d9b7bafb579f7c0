//! `show info`: haproxy's names for what concerns the process, in haproxy's order. What means nothing here is left out.

use std::fmt::{self, Write};
use std::time::Duration;

use serde_json::json;

use super::command::{Form, Info};
use crate::stats::{self, Process};

mod fields;

use fields::FIELDS;

/// The answer.
pub(super) fn info(process: &Process, how: Info) -> String {
    let mut out = String::new();
    let mut objects = Vec::new();
    for (position, field) in FIELDS.iter().enumerate() {
        let Some(of) = field.of else {
            continue;
        };
        let value = match of(process) {
            Figure::Time(time) if how.float => Figure::Float(time.as_secs_f64()),
            value => value,
        };
        let (name, tags) = (field.name, field.tags);
        match how.form {
            Form::Plain => write!(out, "{name}: {value}"),
            Form::Typed => write!(out, "{position}.{name}.1:{tags}V:{}:{value}", value.kind()),
            Form::Json => {
                objects.push(object(position, field, &value));
                continue;
            }
        }
        // Writing into a string cannot fail.
        .unwrap_or_default();
        if how.desc {
            write!(out, ":\"{}\"", field.help).unwrap_or_default();
        }
        out.push('\n');
    }
    if how.form == Form::Json {
        return format!("{}\n", serde_json::Value::from(objects));
    }
    out
}

fn object(position: usize, field: &Field, value: &Figure<'_>) -> serde_json::Value {
    let [origin, nature, scope] = stats::words(field.tags);
    let figure = match value {
        Figure::Text(text) => json!(text),
        Figure::Float(float) => json!(float),
        Figure::Count(count) => json!(count),
        Figure::Level(level) => json!(level),
        Figure::Time(time) => json!(time.as_secs()),
        Figure::Days(_) => json!(value.to_string()),
    };
    json!({
        "field": {"pos": position, "name": field.name},
        "processNum": 1,
        "tags": {"origin": origin, "nature": nature, "scope": scope},
        "value": {"type": value.kind(), "value": figure},
    })
}

/// One name. `of` is nothing where it means nothing here; its place is kept all the same.
struct Field {
    name: &'static str,
    tags: &'static str,
    help: &'static str,
    of: Option<fn(&Process) -> Figure<'_>>,
}

/// A value.
enum Figure<'a> {
    Text(&'a str),
    Level(u32),
    Count(u64),
    Float(f64),
    /// In seconds.
    Time(Duration),
    /// In days, hours, minutes and seconds.
    Days(Duration),
}

impl Figure<'_> {
    /// What haproxy calls its type.
    fn kind(&self) -> &'static str {
        match self {
            Figure::Text(_) | Figure::Days(_) => "str",
            Figure::Level(_) | Figure::Time(_) => "u32",
            Figure::Count(_) => "u64",
            Figure::Float(_) => "flt",
        }
    }
}

impl fmt::Display for Figure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Nothing may look like the end of the answer.
            Figure::Text(text) => f.write_str(text.lines().next().unwrap_or_default()),
            Figure::Level(level) => write!(f, "{level}"),
            Figure::Count(count) => write!(f, "{count}"),
            Figure::Float(float) => write!(f, "{float:.6}"),
            Figure::Time(time) => write!(f, "{}", time.as_secs()),
            Figure::Days(time) => {
                let seconds = time.as_secs();
                let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
                write!(
                    f,
                    "{days}d {hours}h{:02}m{:02}s",
                    seconds / 60 % 60,
                    seconds % 60
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
