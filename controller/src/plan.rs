//! Prints a decision for users: the output of `ballast-controller plan` and of `run --dry`.

mod changes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use ballast_core::table::{self, Format, Frontend, Problems, Protocol, RoutingTable};

use crate::decide::{
    About, AnnouncedAddress, Desired, Mode, Notice, PoolRow, Status, Verdict, owner_by_labels,
};
use crate::observe::{BadDocument, Key};

/// The verdict about each Service, and the routing table if it is asked for.
pub fn print(
    desired: &Desired,
    bad: &[BadDocument],
    with_table: bool,
) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = decided(desired, bad);
    if let Some(table) = desired.table.as_ref().filter(|_| with_table) {
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
    let mut frontends = desired.table.as_deref().map(frontends).unwrap_or_default();
    for one in &desired.announced.addresses {
        for service in &one.services {
            let lines = frontends.entry(service.clone()).or_default();
            lines.push(announced(one));
        }
    }
    for status in &desired.statuses {
        let key = &status.service;
        let notices = notices.get(key).map_or(&[][..], Vec::as_slice);
        let frontends = frontends.get(key).map_or(&[][..], Vec::as_slice);
        add_service(&mut lines, notices, status, frontends);
    }
    lines.extend(desired.pools.iter().map(pool));
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
    if frontends.is_empty() && status.verdict == Verdict::Routed {
        lines.push("  nothing on this node leads to it".to_owned());
    }
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

/// The line about an address that the network is to lead to nodes.
fn announced(one: &AnnouncedAddress) -> String {
    let nodes = match &*one.nodes {
        [] => "this host".to_owned(),
        nodes => nodes.join(", "),
    };
    match one.mode {
        Mode::L2 if one.nodes.len() < 2 => format!("{} is announced by {nodes} (l2)", one.address),
        Mode::L2 => format!("{} is announced by one of {nodes} (l2)", one.address),
        Mode::Bgp => format!("{} is announced by {nodes} (bgp)", one.address),
    }
}

/// How much of a pool is used, and what is wrong with it.
fn pool(row: &PoolRow) -> String {
    let PoolRow {
        name,
        source,
        status,
        ..
    } = row;
    let (used, total) = (status.used, status.total);
    let mut line = format!("{} {name}: {used} of {total} addresses used", source.kind());
    for condition in status.conditions.iter().filter(|one| one.is_wrong()) {
        line.push_str(&format!("\n  {}: {}", condition.reason, condition.message));
    }
    line
}

/// The frontends that lead to each Service, found by the labels of the table's services.
fn frontends(table: &RoutingTable) -> BTreeMap<Key, Vec<String>> {
    let services = table.services.iter().map(|one| (&*one.name, one));
    let services: BTreeMap<&str, &table::Service> = services.collect();
    let mut found: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for frontend in &table.frontends {
        let names: BTreeSet<&str> = frontend.services().map(|name| &**name).collect();
        let mut endpoints: BTreeMap<Key, usize> = BTreeMap::new();
        let mut total = 0;
        for service in names.iter().filter_map(|name| services.get(name)) {
            total += service.endpoints.len();
            if let Some(owner) = owner_by_labels(&service.labels) {
                *endpoints.entry(owner).or_default() += service.endpoints.len();
            }
        }
        for (owner, count) in endpoints {
            let line = reach(frontend, count, total);
            found.entry(owner).or_default().push(line);
        }
    }
    found
}

/// The line about a frontend that leads to these endpoints of one Service, and to so many in all.
fn reach(frontend: &Frontend, endpoints: usize, total: usize) -> String {
    let binds: Vec<String> = frontend.bind.iter().map(ToString::to_string).collect();
    let (name, protocol, binds) = (&frontend.name, frontend.protocol, binds.join(", "));
    let count = match (endpoints, protocol) {
        (0, Protocol::Http | Protocol::Https) => "no endpoints: it answers 503".to_owned(),
        (0, _) if total == 0 => "no endpoints: it does not listen".to_owned(),
        (0, _) => "no endpoints".to_owned(),
        (1, _) => "1 endpoint".to_owned(),
        (many, _) => format!("{many} endpoints"),
    };
    format!("{name} ({protocol}) at {binds}, {count}")
}
