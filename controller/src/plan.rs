//! Prints a decision for users: the output of `ballast-controller plan` and of `run --dry`.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use ballast_core::table::{self, Format, Frontend, Problems, RoutingTable};

use crate::decide::{About, Desired, Ingress, Notice, Status, Verdict};
use crate::observe::BadDocument;

/// The verdict about each Service, and the routing table.
///
/// # Errors
/// The table cannot be written as YAML.
pub fn print(
    desired: &Desired,
    bad: &[BadDocument],
) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = decided(desired, bad);
    if let Some(table) = &desired.table {
        line(&mut text, format_args!("\n# The table of this node"));
        text.push_str(&serde_saphyr::to_string(table)?);
    }
    Ok(text)
}

/// The verdict about each Service, and what the routing table changes in the running one.
///
/// # Errors
/// A table cannot be written as YAML.
pub fn print_changes(
    desired: &Desired,
    bad: &[BadDocument],
    running: &RoutingTable,
) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = decided(desired, bad);
    let Some(table) = &desired.table else {
        return Ok(text);
    };
    let changes = changes::changes(running, table)?;
    match changes.is_empty() {
        true => line(&mut text, format_args!("\nThe running table is the same.")),
        false => {
            line(
                &mut text,
                format_args!("\n# What changes in the running table"),
            );
            text.push_str(&changes);
        }
    }
    Ok(text)
}

/// Reads the running table: a file, or the folder that a controller writes.
///
/// # Errors
/// The file cannot be read, or is no routing table.
pub fn running(path: &Path) -> Result<RoutingTable, NoTable> {
    let path = match path.is_dir() {
        false => path.to_owned(),
        true => {
            let names = ["table.json", "table.yaml"].map(|name| path.join(name));
            let [json, _] = &names;
            let found = names.iter().find(|path| path.exists());
            found.unwrap_or(json).clone()
        }
    };
    let format = match path.extension().is_some_and(|ending| ending == "json") {
        true => Format::Json,
        false => Format::Yaml,
    };
    let text = fs::read(&path).map_err(|error| NoTable::Unreadable(path.clone(), error))?;
    table::parse(&text, format).map_err(|problems| NoTable::Wrong(path, problems))
}

/// Why there is no running table to compare with.
#[derive(Debug, thiserror::Error)]
pub enum NoTable {
    /// The file cannot be read.
    #[error("{}: {_1}", _0.display())]
    Unreadable(PathBuf, io::Error),
    /// The file is no table.
    #[error("{}: {_1}", _0.display())]
    Wrong(PathBuf, Problems),
}

/// The verdict about each Service.
fn decided(desired: &Desired, bad: &[BadDocument]) -> String {
    let mut text = String::new();
    for document in bad {
        line(&mut text, format_args!("Warning {document}"));
    }
    for notice in desired
        .notices
        .iter()
        .filter(|notice| !matches!(notice.about, About::Service(_)))
    {
        line(&mut text, format_args!("{notice}"));
    }
    let reached = desired.table.as_deref().map(frontends).unwrap_or_default();
    let mut notices: BTreeMap<&About, Vec<&Notice>> = BTreeMap::new();
    for notice in &desired.notices {
        notices.entry(&notice.about).or_default().push(notice);
    }
    for status in &desired.statuses {
        let key = &status.service;
        let said = notices
            .remove(&About::Service(key.clone()))
            .unwrap_or_default();
        let reached = reached.get(&(key.namespace.as_str(), key.name.as_str()));
        service(&mut text, &said, status, reached.map_or(&[], Vec::as_slice));
    }
    if desired.table.is_none() {
        line(
            &mut text,
            format_args!("\nThis node is not a load balancer: it gets no table."),
        );
    }
    text
}

fn service(text: &mut String, notices: &[&Notice], status: &Status, frontends: &[String]) {
    let verdict = match status.verdict {
        Verdict::Served => "served",
        Verdict::Pending => "pending",
        Verdict::Routed => "routed",
        Verdict::Released => "released",
        Verdict::LeftAlone => "left alone",
    };
    let why = if status.why.is_empty() {
        String::new()
    } else {
        format!(": {}", status.why)
    };
    line(text, format_args!("{} {verdict}{why}", status.service));
    if !status.ingress.is_empty() {
        let places: Vec<String> = status.ingress.iter().map(place).collect();
        line(text, format_args!("  published at {}", places.join(", ")));
    }
    for frontend in frontends {
        line(text, format_args!("  {frontend}"));
    }
    for (key, value) in &status.annotations {
        line(text, format_args!("  annotation {key}: {value}"));
    }
    for key in &status.stale_annotations {
        line(text, format_args!("  annotation {key} is removed"));
    }
    for notice in notices {
        line(
            text,
            format_args!("  {:?} {}: {}", notice.kind, notice.reason, notice.message),
        );
    }
}

fn place(ingress: &Ingress) -> String {
    match ingress {
        Ingress::Ip(address) => address.to_string(),
        Ingress::Hostname(name) => name.clone(),
    }
}

/// The frontends that lead to each Service, found by the labels of the table's services.
fn frontends(table: &RoutingTable) -> BTreeMap<(&str, &str), Vec<String>> {
    let services: BTreeMap<&str, &table::Service> = table
        .services
        .iter()
        .map(|service| (&*service.name, service))
        .collect();
    let mut found: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for frontend in &table.frontends {
        let leads_to = frontend.services().filter_map(|name| services.get(&**name));
        let owners: BTreeSet<(&str, &str)> = leads_to
            .map(|service| (label(service, "namespace"), label(service, "service")))
            .collect();
        let endpoints = frontend
            .service
            .as_ref()
            .and_then(|name| services.get(&**name));
        let line = reach(frontend, endpoints.map(|service| service.endpoints.len()));
        for owner in owners {
            found.entry(owner).or_default().push(line.clone());
        }
    }
    found
}

fn label<'a>(service: &'a table::Service, key: &str) -> &'a str {
    let found = service.labels.iter().find(|(name, _)| **name == *key);
    found.map_or("", |(_, value)| value)
}

fn reach(frontend: &Frontend, endpoints: Option<usize>) -> String {
    let binds: Vec<String> = frontend.bind.iter().map(ToString::to_string).collect();
    let count = match endpoints {
        None => String::new(),
        Some(0) => ", no endpoints: it does not listen".to_owned(),
        Some(1) => ", 1 endpoint".to_owned(),
        Some(many) => format!(", {many} endpoints"),
    };
    format!(
        "{} ({}) at {}{count}",
        frontend.name,
        frontend.protocol,
        binds.join(", ")
    )
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // A String takes everything.
    _ = writeln!(text, "{arguments}");
}
