//! Prints a decision for users: the output of `ballast-controller plan` and of `run --dry`.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use ballast_core::table::{self, Format, Frontend, Problems, RoutingTable};

use crate::decide::{About, Desired, Notice, Status, owner_by_labels};
use crate::observe::{BadDocument, Key};

/// The verdict about each Service, and the routing table.
pub fn print(
    desired: &Desired,
    bad: &[BadDocument],
) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = decided(desired, bad);
    if let Some(table) = &desired.table {
        text.push_str("\n# The table of this node\n");
        text.push_str(&serde_saphyr::to_string(table)?);
    }
    Ok(text)
}

/// The verdict about each Service, and what the routing table changes in the running one.
pub fn print_changes(
    desired: &Desired,
    bad: &[BadDocument],
    running: &RoutingTable,
) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = decided(desired, bad);
    if let Some(table) = &desired.table {
        let changes = changes::changes(running, table)?;
        text.push_str(match changes.is_empty() {
            true => "\nThe running table is the same.\n",
            false => "\n# What changes in the running table\n",
        });
        text.push_str(&changes);
    }
    Ok(text)
}

/// Reads the running table: a file, or the folder that a controller writes.
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
    let bad = bad.iter().map(|document| format!("Warning {document}"));
    let mut lines: Vec<String> = bad.collect();
    let mut notices: BTreeMap<&Key, Vec<&Notice>> = BTreeMap::new();
    for notice in &desired.notices {
        match &notice.about {
            About::Service(key) => notices.entry(key).or_default().push(notice),
            About::Flag(_) | About::Node(_) => lines.push(notice.to_string()),
        }
    }
    let frontends = desired.table.as_deref().map(frontends).unwrap_or_default();
    for status in &desired.statuses {
        let key = &status.service;
        let notices = notices.get(key).map_or(&[][..], Vec::as_slice);
        let frontends = frontends.get(key).map_or(&[][..], Vec::as_slice);
        add_service(&mut lines, notices, status, frontends);
    }
    if desired.table.is_none() {
        lines.push("\nThis node is not a load balancer: it gets no table.".to_owned());
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn add_service(
    lines: &mut Vec<String>,
    notices: &[&Notice],
    status: &Status,
    frontends: &[String],
) {
    let verdict = status.verdict.word().replace('-', " ");
    lines.push(match status.why.as_str() {
        "" => format!("{} {verdict}", status.service),
        why => format!("{} {verdict}: {why}", status.service),
    });
    if !status.ingress.is_empty() {
        let places: Vec<String> = status.ingress.iter().map(ToString::to_string).collect();
        lines.push(format!("  published at {}", places.join(", ")));
    }
    lines.extend(frontends.iter().map(|frontend| format!("  {frontend}")));
    let written = status.annotations.iter();
    lines.extend(written.map(|(key, value)| format!("  annotation {key}: {value}")));
    let stale = status.stale_annotations.iter();
    lines.extend(stale.map(|key| format!("  annotation {key} is removed")));
    for Notice {
        kind,
        reason,
        message,
        ..
    } in notices
    {
        lines.push(format!("  {kind:?} {reason}: {message}"));
    }
}

/// The frontends that lead to each Service, found by the labels of the table's services.
fn frontends(table: &RoutingTable) -> BTreeMap<Key, Vec<String>> {
    let services = table.services.iter().map(|one| (&*one.name, one));
    let services: BTreeMap<&str, &table::Service> = services.collect();
    let mut found: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for frontend in &table.frontends {
        let leads_to = frontend.services().filter_map(|name| services.get(&**name));
        let owners = leads_to.filter_map(|service| owner_by_labels(&service.labels));
        let backends = frontend.backends.iter().map(|backend| &backend.service);
        let all = frontend.service.iter().chain(backends);
        let counts = all.filter_map(|name| Some(services.get(&**name)?.endpoints.len()));
        let line = reach(frontend, counts.reduce(usize::saturating_add));
        for owner in owners.collect::<BTreeSet<Key>>() {
            found.entry(owner).or_default().push(line.clone());
        }
    }
    found
}

fn reach(frontend: &Frontend, endpoints: Option<usize>) -> String {
    let binds: Vec<String> = frontend.bind.iter().map(ToString::to_string).collect();
    let (name, protocol, binds) = (&frontend.name, frontend.protocol, binds.join(", "));
    let count = match endpoints {
        None => String::new(),
        Some(0) => ", no endpoints: it does not listen".to_owned(),
        Some(1) => ", 1 endpoint".to_owned(),
        Some(many) => format!(", {many} endpoints"),
    };
    format!("{name} ({protocol}) at {binds}{count}")
}
