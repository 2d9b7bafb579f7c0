//! `show table` and `clear table`: which endpoint the clients of a service with `affinity: {client-ip: …}` come back to.

use std::net::{IpAddr, SocketAddr};

use ballast_core::affinity::{Affinity, MOST_CLIENTS};
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::service::Service;
use ballast_core::table;
use ballast_core::text::Append;

use crate::process::config::Level;
use crate::stats::Snapshot;

/// `show table [<service> [key <address>]]`, in haproxy's form.
pub(super) fn show(
    plan: &Plan,
    snapshot: &Snapshot,
    only: Option<&str>,
    key: Option<&str>,
    (level, now): (Level, Moment),
) -> Result<String, String> {
    let Some(name) = only else {
        let tables = plan.services().iter().filter(|service| is_table(service));
        let heads: Vec<String> = tables.map(|service| head(service)).collect();
        return Ok(heads.join("\n"));
    };
    let service = find(plan, name)?;
    let mut out = head(service);
    if level < Level::Operator {
        out.push_str("# contents not dumped due to insufficient privileges\n");
        return Ok(out);
    }
    let remembered = service.state().affinity();
    let clients = match (remembered, key) {
        (None, _) => Vec::new(),
        (Some(all), None) => all.list(MOST_CLIENTS, now),
        (Some(all), Some(key)) => {
            let client = client(key)?;
            let found = all.find(client, now);
            found
                .into_iter()
                .map(|(hash, until)| (client, hash, until))
                .collect()
        }
    };
    if key.is_some() && clients.is_empty() {
        return Ok(String::new());
    }
    for (number, (client, hash, until)) in (1_u64..).zip(clients) {
        let address = service.address_of(hash);
        let endpoint = address.and_then(|address| endpoint(snapshot, name, address));
        let left = until.since(now).as_millis();
        write!(out, "{number:#x}: key={client} use=0 exp={left}");
        if let Some((id, name)) = endpoint {
            write!(out, " server_id={id} server_key={name}");
        }
        out.push('\n');
    }
    Ok(out)
}

/// `clear table <service> [key <address>]`.
pub(super) fn clear(plan: &Plan, name: &str, key: Option<&str>) -> Result<(), String> {
    let Some(remembered) = find(plan, name)?.state().affinity() else {
        return Ok(());
    };
    match key {
        None => remembered.clear(),
        Some(key) => remembered.forget(client(key)?),
    }
    Ok(())
}

fn is_table(service: &Service) -> bool {
    matches!(service.spec().affinity, Some(table::Affinity::ClientIp(_)))
}

fn find<'p>(plan: &'p Plan, name: &str) -> Result<&'p Service, String> {
    let service = plan.service(name).filter(|service| is_table(service));
    service
        .map(AsRef::as_ref)
        .ok_or_else(|| "No such table".into())
}

fn client(key: &str) -> Result<IpAddr, String> {
    key.parse::<IpAddr>()
        .map(|client| client.to_canonical())
        .map_err(|_| "A key is the address of a client.".into())
}

fn head(service: &Service) -> String {
    let used = service.state().affinity().map_or(0, Affinity::len);
    format!(
        "# table: {}, type: ip, size:{MOST_CLIENTS}, used:{used}\n",
        service.spec().name
    )
}

fn endpoint<'s>(
    snapshot: &'s Snapshot,
    service: &str,
    address: SocketAddr,
) -> Option<(u32, &'s str)> {
    let mut services = snapshot.services.iter();
    let service = services.find(|one| *one.name == *service)?;
    let mut endpoints = service.endpoints.iter();
    let endpoint = endpoints.find(|endpoint| endpoint.address == address)?;
    Some((endpoint.sid, &endpoint.name))
}
