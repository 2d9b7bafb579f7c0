//! What of a snapshot is shown, and how it looks to people.

use std::time::{Duration, UNIX_EPOCH};

use ballast_core::ack::IN_PART;
use ballast_core::text::Append;

use serde_json::{Map, Value};

use super::What;
use crate::operator::console::age;
use crate::os::clock::utc;

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// On a terminal.
    Coloured,
    /// Anywhere else.
    Plain,
}

/// Whether an answer has what a `ballast` says of `what`.
pub(super) fn is_of_ballast(what: What, answer: &Value) -> bool {
    match what {
        What::Connections => answer.is_array(),
        _ => {
            answer["info"]["name"] == "ballast"
                && answer["frontends"].is_array()
                && answer["services"].is_array()
        }
    }
}

/// The process and its table: one map.
pub(super) fn info(answer: &Value) -> Value {
    let mut map = Map::new();
    for (key, value) in answer["info"].as_object().into_iter().flatten() {
        match value {
            // A rate is what it is now, and the most that it was.
            Value::Object(rate) => {
                for (which, value) in rate {
                    let name = if which == "now" {
                        key.clone()
                    } else {
                        format!("{which}_{key}")
                    };
                    map.insert(name, value.clone());
                }
            }
            value => {
                map.insert(key.clone(), value.clone());
            }
        }
    }
    map.into()
}

/// The same for people: times are dates, and how long ago; the rest is as it was.
pub(super) fn in_words(mut info: Value, now: u64) -> Value {
    let Some(map) = info.as_object_mut() else {
        return info;
    };
    for key in ["applied", "started"] {
        if let Some(at) = map.get(key).and_then(Value::as_u64) {
            let date = utc(
                UNIX_EPOCH + Duration::from_secs(at),
                "%Y-%m-%d %H:%M:%S UTC",
            );
            let ago = age(now.saturating_sub(at));
            map.insert(key.to_owned(), format!("{date}, {ago} ago").into());
        }
    }
    if let Some(seconds) = map
        .remove("uptime_seconds")
        .and_then(|value| value.as_u64())
    {
        map.insert("uptime".to_owned(), age(seconds).into());
    }
    info
}

/// A map for each thing of this kind, with its columns.
pub(super) fn rows(what: What, answer: &Value) -> Vec<Value> {
    let services = list(&answer["services"]);
    match what {
        What::Frontends => list(&answer["frontends"])
            .map(|frontend| {
                let datagrams = &frontend["datagrams"];
                let own = [
                    ("datagrams_in", datagrams["in"].clone()),
                    ("datagrams_out", datagrams["out"].clone()),
                    ("trouble", frontend["trouble"].clone()),
                    ("exceptions", frontend["exceptions"].clone()),
                ];
                row(what, frontend, own)
            })
            .collect(),
        What::Services => services
            .map(|service| {
                let usable = [&service["usable"], &service["usable_backups"]];
                let usable: u64 = usable.into_iter().filter_map(Value::as_u64).sum();
                let endpoints = list(&service["endpoints"]).count();
                let own = [("endpoints", endpoints.into()), ("usable", usable.into())];
                row(what, service, own)
            })
            .collect(),
        What::Endpoints => services
            .flat_map(|service| {
                let endpoints = list(&service["endpoints"]);
                endpoints.map(|one| row(what, one, [("service", service["name"].clone())]))
            })
            .collect(),
        What::Info | What::Connections => answer.as_array().cloned().unwrap_or_default(),
    }
}

/// The columns of `of`, but for those that are computed.
fn row<const N: usize>(what: What, of: &Value, computed: [(&str, Value); N]) -> Value {
    let columns = columns(what).iter();
    let columns = columns.map(|column| ((*column).to_owned(), of[*column].clone()));
    let computed = computed.map(|(column, value)| (column.to_owned(), value));
    columns.chain(computed).collect()
}

pub(super) fn columns(what: What) -> &'static [&'static str] {
    match what {
        What::Info => &[],
        What::Frontends => &[
            "name",
            "protocol",
            "status",
            "sessions",
            "bytes_in",
            "bytes_out",
            "datagrams_in",
            "datagrams_out",
            "errors",
        ],
        What::Services => &["name", "algorithm", "endpoints", "usable", "sessions"],
        What::Endpoints => &["service", "name", "address", "status", "weight", "sessions"],
        What::Connections => &[
            "id", "client", "protocol", "frontend", "service", "endpoint", "seconds",
        ],
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A line for each key and its value.
pub(super) fn pairs(map: &Value, paint: Paint) -> String {
    let pairs: Vec<[String; 2]> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| [key.clone(), cell(value)])
        .collect();
    let width = pairs.iter().map(|[key, _]| key.chars().count()).max();
    let width = width.unwrap_or(0);
    let mut out = String::new();
    for [key, value] in pairs {
        let padding = " ".repeat(width - key.chars().count());
        let key = painted(&key, BOLD, paint);
        writeln!(out, "{key}{padding}  {value}");
    }
    out
}

/// The rows for people: beside a status stands what is wrong all the same.
pub(super) fn with_trouble(mut rows: Vec<Value>) -> Vec<Value> {
    for row in &mut rows {
        if let (Some(status), Some(trouble)) = (row["status"].as_str(), row["trouble"].as_str()) {
            row["status"] = format!("{status}, {trouble}").into();
        }
    }
    rows
}

/// A line for each address that is not served as the table asks, behind an empty one.
pub(super) fn exceptions(rows: &[Value]) -> String {
    let all = rows.iter().flat_map(|row| list(&row["exceptions"]));
    let lines = all.map(|one| {
        let [frontend, bind, state, why] =
            ["frontend", "bind", "state", "why"].map(|key| cell(&one[key]));
        // The address accepts clients: `failed` would say the opposite.
        let state = if why.starts_with(IN_PART) {
            String::new()
        } else {
            format!("{state}: ")
        };
        format!("\n{frontend} {bind} {state}{why}")
    });
    let lines: String = lines.collect();
    if lines.is_empty() {
        lines
    } else {
        format!("{lines}\n")
    }
}

/// Aligned columns with a head: numbers to the right, words to the left.
pub(super) fn table(columns: &[&str], rows: &[Value], paint: Paint) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| columns.iter().map(|column| cell(&row[column])).collect())
        .collect();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(place, column)| {
            let widths = cells.iter().filter_map(|row| row.get(place));
            let widest = widths.map(|cell| cell.chars().count()).max();
            widest.unwrap_or(0).max(column.len())
        })
        .collect();
    let is_number = |place: usize| {
        let column = columns.get(place).copied().unwrap_or_default();
        rows.iter().any(|row| row[column].is_number())
    };
    let mut out = String::new();
    let heads = columns.iter().map(|column| column.to_uppercase()).collect();
    for (line, row) in [heads].iter().chain(&cells).enumerate() {
        for (place, (text, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width.saturating_sub(text.chars().count()));
            let colour = match columns.get(place) {
                _ if line == 0 => BOLD,
                Some(&"status") => colour(text),
                _ => "",
            };
            let text = painted(text, colour, paint);
            let gap = if place == 0 { "" } else { "  " };
            if is_number(place) {
                write!(out, "{gap}{padding}{text}");
            } else {
                write!(out, "{gap}{text}{padding}");
            }
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// A value in a cell. Nothing that it holds moves a terminal's cursor.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(visible).collect()
}

fn colour(status: &str) -> &'static str {
    match status.split(' ').next() {
        Some("UP" | "OPEN") => GREEN,
        Some("OPEN,") => YELLOW,
        Some("DOWN") => RED,
        Some("DRAIN" | "MAINT" | "STOP") => YELLOW,
        _ => "",
    }
}

fn painted(text: &str, colour: &str, paint: Paint) -> String {
    if paint == Paint::Plain || colour.is_empty() {
        return text.to_owned();
    }
    format!("\u{1b}[{colour}m{text}\u{1b}[0m")
}

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!({
            "info": {"name": "ballast", "generation": null, "session_rate": {"now": 2, "max": 5}},
            "frontends": [
                {"name": "web", "protocol": "tcp", "status": "OPEN", "sessions": 3, "bytes_in": 10, "bytes_out": 20, "errors": 0},
                {"name": "dns", "protocol": "udp", "status": "OPEN", "sessions": 2, "bytes_in": 40, "bytes_out": 90,
                    "datagrams": {"in": 4, "out": 3}, "errors": 1},
            ],
            "services": [{
                "name": "web", "algorithm": "least-connections", "usable": 1, "usable_backups": 1, "sessions": 12,
                "endpoints": [
                    {"name": "a", "address": "10.0.0.1:80", "status": "UP 1/3", "weight": 1, "sessions": 12},
                    {"name": "b\u{1b}[2J", "address": "10.0.0.2:80", "status": "DOWN", "weight": 100, "sessions": 0},
                ],
            }],
        })
    }

    #[test]
    fn columns_are_aligned() {
        let text = table(
            columns(What::Endpoints),
            &rows(What::Endpoints, &answer()),
            Paint::Plain,
        );
        assert_eq!(
            text,
            "\
SERVICE  NAME   ADDRESS      STATUS  WEIGHT  SESSIONS
web      a      10.0.0.1:80  UP 1/3       1        12
web      b [2J  10.0.0.2:80  DOWN       100         0
"
        );
        let columns = &["name", "protocol", "sessions", "datagrams_in", "errors"];
        assert_eq!(
            table(columns, &rows(What::Frontends, &answer()), Paint::Plain),
            "\
NAME  PROTOCOL  SESSIONS  DATAGRAMS_IN  ERRORS
web   tcp              3             -       0
dns   udp              2             4       1
"
        );
        let text = table(
            &["name", "usable"],
            &rows(What::Services, &answer()),
            Paint::Plain,
        );
        assert_eq!(text, "NAME  USABLE\nweb        2\n");
        assert_eq!(table(&["name"], &[], Paint::Plain), "NAME\n");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let rows = rows(What::Endpoints, &answer());
        let text = table(&["status", "sessions"], &rows, Paint::Coloured);
        assert!(
            text.contains("\u{1b}[32mUP 1/3\u{1b}[0m        12\n"),
            "{text:?}"
        );
        assert!(
            text.contains("\u{1b}[31mDOWN\u{1b}[0m           0\n"),
            "{text:?}"
        );
    }

    #[test]
    fn info_is_one_map_without_maps_in_it() {
        let info = info(&answer());
        assert_eq!(
            info,
            json!({"name": "ballast", "generation": null, "session_rate": 2, "max_session_rate": 5})
        );
        let text = pairs(&info, Paint::Plain);
        assert!(text.contains("generation        -\n"), "{text}");
    }

    #[test]
    fn times_are_dates_for_people() {
        let info =
            json!({"started": 1_700_000_000, "applied": null, "uptime_seconds": 7500, "pid": 1});
        assert_eq!(
            in_words(info, 1_700_007_500),
            json!({"started": "2023-11-14 22:13:20 UTC, 2h5m ago", "applied": null, "uptime": "2h5m", "pid": 1})
        );
    }
}
