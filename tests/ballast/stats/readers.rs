//! What others make of our output: a CSV reader, haproxy_exporter, Octavia's amphora agent, a strict Prometheus scraper.

use std::collections::{BTreeMap, BTreeSet};

/// The records of a CSV text, comments left out, as a strict reader sees them: quoted fields, and as many fields in each
/// record as in the first.
pub(crate) fn records(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut records: Vec<Vec<String>> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let record = fields(line)?;
        if let Some(first) = records.first()
            && first.len() != record.len()
        {
            return Err(format!(
                "{} fields, not {}: {line}",
                record.len(),
                first.len()
            ));
        }
        records.push(record);
    }
    Ok(records)
}

fn fields(line: &str) -> Result<Vec<String>, String> {
    let (mut fields, mut field) = (Vec::new(), String::new());
    let mut letters = line.chars().peekable();
    loop {
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next() {
                    Some('"') if letters.next_if_eq(&'"').is_some() => field.push('"'),
                    Some('"') => break,
                    Some(letter) => field.push(letter),
                    None => return Err(format!("an open quote: {line}")),
                }
            }
        }
        match letters.next() {
            Some(',') => fields.push(std::mem::take(&mut field)),
            None => {
                fields.push(field);
                return Ok(fields);
            }
            Some('"') => return Err(format!("a quote inside a field: {line}")),
            Some(letter) => field.push(letter),
        }
    }
}

/// The rows by proxy and server, each by the names of its columns, as a reader with a header line has them.
pub(crate) type Rows = BTreeMap<(String, String), BTreeMap<String, String>>;

pub(crate) fn rows(csv: &str) -> Rows {
    let (header, rest) = csv.split_once('\n').expect("a header");
    let names = fields(header.strip_prefix("# ").expect("a header")).expect("names");
    let mut rows = Rows::new();
    for record in records(rest).expect("records") {
        assert_eq!(record.len(), names.len());
        let key = (record[0].clone(), record[1].clone());
        let row = names.iter().cloned().zip(record).collect();
        assert!(rows.insert(key, row).is_none(), "a row comes twice");
    }
    rows
}

/// What haproxy_exporter makes of a CSV: series by name and labels, and how many fields it could not read.
pub(crate) fn exporter(csv: &str) -> (BTreeMap<String, f64>, usize) {
    let (mut series, mut failures) = (BTreeMap::new(), 0);
    for record in records(csv).expect("records") {
        assert!(record.len() >= 33, "an exporter needs 33 fields");
        let (proxy, server, kind) = (&record[0], &record[1], &record[32]);
        let (fields, prefix, labels): (&[(usize, &str)], _, _) = match kind.as_str() {
            "0" => (&FRONTEND, "frontend", format!("frontend={proxy}")),
            "1" => (&BACKEND, "backend", format!("backend={proxy}")),
            "2" => (
                &SERVER,
                "server",
                format!("backend={proxy},server={server}"),
            ),
            other => panic!("type {other}"),
        };
        for (place, name) in fields {
            let Some(field) = record.get(*place).filter(|field| !field.is_empty()) else {
                continue;
            };
            let value = match place {
                17 => Some(f64::from(u8::from(UP.contains(&field.as_str())))),
                38 | 58..=61 => field.parse().ok().map(|ms: f64| ms / 1000.0),
                _ => field.parse::<i64>().ok().map(|value| value as f64),
            };
            match value {
                Some(value) => {
                    series.insert(format!("haproxy_{prefix}_{name}{{{labels}}}"), value);
                }
                None => failures += 1,
            }
        }
    }
    (series, failures)
}

const UP: [&str; 6] = ["UP", "UP 1/3", "UP 2/3", "OPEN", "no check", "DRAIN"];

const FRONTEND: [(usize, &str); 11] = [
    (4, "current_sessions"),
    (5, "max_sessions"),
    (6, "limit_sessions"),
    (7, "sessions_total"),
    (8, "bytes_in_total"),
    (9, "bytes_out_total"),
    (10, "requests_denied_total"),
    (12, "request_errors_total"),
    (33, "current_session_rate"),
    (35, "max_session_rate"),
    (79, "connections_total"),
];

const BACKEND: [(usize, &str); 21] = [
    (2, "current_queue"),
    (3, "max_queue"),
    (4, "current_sessions"),
    (5, "max_sessions"),
    (7, "sessions_total"),
    (8, "bytes_in_total"),
    (9, "bytes_out_total"),
    (13, "connection_errors_total"),
    (14, "response_errors_total"),
    (15, "retry_warnings_total"),
    (16, "redispatch_warnings_total"),
    (17, "up"),
    (18, "weight"),
    (19, "current_server"),
    (30, "server_selected_total"),
    (33, "current_session_rate"),
    (49, "client_aborts_total"),
    (50, "server_aborts_total"),
    (58, "http_queue_time_average_seconds"),
    (59, "http_connect_time_average_seconds"),
    (61, "http_total_time_average_seconds"),
];

const SERVER: [(usize, &str); 18] = [
    (2, "current_queue"),
    (4, "current_sessions"),
    (5, "max_sessions"),
    (6, "limit_sessions"),
    (7, "sessions_total"),
    (8, "bytes_in_total"),
    (9, "bytes_out_total"),
    (13, "connection_errors_total"),
    (14, "response_errors_total"),
    (15, "retry_warnings_total"),
    (16, "redispatch_warnings_total"),
    (17, "up"),
    (18, "weight"),
    (21, "check_failures_total"),
    (24, "downtime_seconds_total"),
    (30, "server_selected_total"),
    (38, "check_duration_seconds"),
    (49, "client_aborts_total"),
];

/// A pool as Octavia reports it: its status, and those of its members.
pub(crate) type Pool = (String, BTreeMap<String, String>);

/// What Octavia's agent makes of a CSV of servers and backends whose names are `POOL:LISTENER`.
pub(crate) fn octavia(csv: &str) -> BTreeMap<String, Pool> {
    let mut pools: BTreeMap<String, Pool> = BTreeMap::new();
    for ((proxy, server), row) in rows(csv) {
        if row["type"] == "0" {
            continue;
        }
        let (pool, _listener) = proxy.split_once(':').expect("POOL:LISTENER");
        let (status, members) = pools.entry(pool.into()).or_default();
        if server == "BACKEND" {
            status.clone_from(&row["status"]);
        } else if row["status"] == "UP" && row["weight"] == "0" {
            members.insert(server, "DRAIN".into());
        } else {
            members.insert(server, row["status"].clone());
        }
    }
    pools
}

/// The families of a text in Prometheus' format: kind, and series with their values. Fails on whatever a strict
/// scraper would refuse.
pub(crate) fn families(text: &str) -> Result<BTreeMap<String, Family>, String> {
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "no line feed at the end"
    );
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut helped, mut current) = (None, String::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, _) = help.split_once(' ').ok_or("HELP without a text")?;
            helped = Some(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').ok_or("TYPE without a kind")?;
            if helped.take().as_deref() != Some(name) {
                return Err(format!("TYPE without HELP: {line}"));
            }
            let family = Family {
                kind: kind.into(),
                series: BTreeMap::new(),
            };
            if families.insert(name.into(), family).is_some() {
                return Err(format!("a family comes twice: {name}"));
            }
            current = name.into();
        } else {
            let (series, value) = sample(line)?;
            let name = series.split('{').next().unwrap_or_default();
            let family = families
                .get_mut(&current)
                .ok_or("a sample before any TYPE")?;
            let own = name == current
                || (family.kind == "histogram"
                    && ["_bucket", "_sum", "_count"]
                        .iter()
                        .any(|end| name.strip_suffix(end) == Some(&current)));
            if !own {
                return Err(format!("not in its family {current}: {line}"));
            }
            if family.series.insert(series, value).is_some() {
                return Err(format!("a series comes twice: {line}"));
            }
        }
    }
    Ok(families)
}

#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) series: BTreeMap<String, f64>,
}

/// One line: the series with its labels unescaped, and its value.
fn sample(line: &str) -> Result<(String, f64), String> {
    let wrong = || format!("no sample: {line}");
    let (name, labels, value) = match line.split_once('{') {
        None => {
            let (name, value) = line.split_once(' ').ok_or_else(wrong)?;
            (name, Vec::new(), value)
        }
        Some((name, rest)) => {
            let (labels, value) = labels(rest).ok_or_else(wrong)?;
            (name, labels, value)
        }
    };
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let keys: BTreeSet<&String> = labels.iter().map(|(key, _)| key).collect();
    if !is_name(name) || keys.len() != labels.len() || !keys.iter().all(|key| is_name(key)) {
        return Err(wrong());
    }
    let value = value.parse().map_err(|_| wrong())?;
    let labels: Vec<String> = labels
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let series = if labels.is_empty() {
        name.into()
    } else {
        format!("{name}{{{}}}", labels.join(","))
    };
    Ok((series, value))
}

/// The labels behind a `{`, and what follows `} `.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        let (key, value) = rest.split_once("=\"")?;
        let mut text = String::new();
        let mut letters = value.char_indices();
        let end = loop {
            match letters.next()? {
                (_, '\\') => text.push(match letters.next()?.1 {
                    'n' => '\n',
                    letter @ ('\\' | '"') => letter,
                    _ => return None,
                }),
                (at, '"') => break at,
                (_, letter) => text.push(letter),
            }
        };
        labels.push((key.into(), text));
        rest = value.get(end + 1..)?;
        if let Some(value) = rest.strip_prefix("} ") {
            return Some((labels, value));
        }
        rest = rest.strip_prefix(',')?;
    }
}
