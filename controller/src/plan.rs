//! A decision, printed for people. Called by `ballast-controller plan`.

use std::fmt::Write;

use ballast_core::table::{Frontend, RoutingTable};

use crate::decide::{About, Desired, Ingress, Status, Verdict};
use crate::observe::BadDocument;

/// What was decided, Service by Service, and the table.
///
/// # Errors
/// The table cannot be written as YAML.
pub fn print(
    desired: &Desired,
    bad: &[BadDocument],
) -> Result<String, serde_saphyr::SerializeError> {
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
    for status in &desired.statuses {
        service(&mut text, desired, status);
    }
    match &desired.table {
        None => line(
            &mut text,
            format_args!("\nThis node is no load balancer: it gets no table."),
        ),
        Some(table) => {
            line(&mut text, format_args!("\n# The table of this node"));
            text.push_str(&serde_saphyr::to_string(table)?);
        }
    }
    Ok(text)
}

fn service(text: &mut String, desired: &Desired, status: &Status) {
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
    for (frontend, table) in frontends(desired, status) {
        line(text, format_args!("  {}", reach(frontend, table)));
    }
    for (key, value) in &status.annotations {
        line(text, format_args!("  annotation {key}: {value}"));
    }
    let about = About::Service(status.service.clone());
    for notice in desired
        .notices
        .iter()
        .filter(|notice| notice.about == about)
    {
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

/// The frontends that lead to a Service.
fn frontends<'a>(
    desired: &'a Desired,
    status: &'a Status,
) -> impl Iterator<Item = (&'a Frontend, &'a RoutingTable)> {
    desired.table.iter().flat_map(move |table| {
        let labelled = |name: &str| {
            let known = table.services.iter().find(|service| *service.name == *name);
            known.is_some_and(|service| {
                let has = |key: &str, value: &str| {
                    service
                        .labels
                        .iter()
                        .any(|(k, v)| **k == *key && **v == *value)
                };
                has("namespace", &status.service.namespace) && has("service", &status.service.name)
            })
        };
        let leads_there =
            move |frontend: &&Frontend| frontend.services().any(|name| labelled(name));
        table
            .frontends
            .iter()
            .filter(leads_there)
            .map(move |frontend| (frontend, table))
    })
}

fn reach(frontend: &Frontend, table: &RoutingTable) -> String {
    let binds: Vec<String> = frontend.bind.iter().map(ToString::to_string).collect();
    let endpoints = frontend
        .service
        .as_ref()
        .and_then(|name| table.services.iter().find(|service| service.name == *name));
    let count = endpoints.map_or_else(String::new, |service| match service.endpoints.len() {
        0 => ", no endpoints: it does not listen".to_owned(),
        1 => ", 1 endpoint".to_owned(),
        many => format!(", {many} endpoints"),
    });
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
