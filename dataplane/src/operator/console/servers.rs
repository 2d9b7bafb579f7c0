//! Answers about services and endpoints other than the statistics: pure renderings of a snapshot.

use std::num::NonZeroU16;

use ballast_core::counters::WorkerId;
use ballast_core::overrides::Overrides;
use ballast_core::plan::Plan;
use ballast_core::table::State;
use ballast_core::text::Append;

use crate::net::tls::TlsFailure;
use crate::operator::target::Target;
use crate::os::clock::{DATE, utc};
use crate::stats::{EndpointStats, RESULTS, ServiceStats, Snapshot, StatusKind};

/// The services that are meant.
pub(super) fn services<'a>(
    snapshot: &'a Snapshot,
    name: Option<&Target>,
) -> Result<Vec<&'a ServiceStats>, String> {
    match name {
        None => Ok(snapshot.services.iter().collect()),
        Some(name) => service(snapshot, name).map(|service| vec![service]),
    }
}

/// The service that is meant.
pub(super) fn service<'a>(
    snapshot: &'a Snapshot,
    name: &Target,
) -> Result<&'a ServiceStats, String> {
    let found = name.service(snapshot);
    found.ok_or_else(|| "No such backend.".into())
}

/// `show servers state`: what haproxy would read at its next start.
pub(super) fn state(services: &[&ServiceStats], overrides: &Overrides) -> String {
    let mut out = STATE_HEAD.to_owned();
    for service in services {
        // Both in the order of the table.
        for (endpoint, spec) in service.endpoints.iter().zip(&service.spec.endpoints) {
            let by_hand = overrides.of_endpoint(&service.name, &endpoint.address);
            let op = op_state(endpoint);
            let admin = admin_state(by_hand.state, spec.state);
            let (status, result, health, check) = checked(endpoint);
            let table = spec.weight;
            let check_port = endpoint.check_port.map_or(0, NonZeroU16::get);
            let ssl = u8::from(service.spec.tls.is_some());
            let (ip, port) = (endpoint.address.ip(), endpoint.address.port());
            writeln!(
                out,
                "{} {} {} {} {ip} {op} {admin} {} {table} {} {status} {result} {health} {check} 0 0 0 - {port} - {ssl} {check_port} - - 0",
                service.iid,
                service.name,
                endpoint.sid,
                endpoint.name,
                endpoint.user_weight,
                endpoint.changed,
            );
        }
    }
    out
}

/// haproxy's number for how an endpoint fares.
fn op_state(endpoint: &EndpointStats) -> u8 {
    match endpoint.status.kind {
        StatusKind::Down | StatusKind::Maintenance => STOPPED,
        _ if endpoint.growth.is_some() => STARTING,
        StatusKind::Up | StatusKind::Unchecked | StatusKind::Draining => RUNNING,
        StatusKind::Stopping => STOPPING,
    }
}

/// haproxy's number for what an operator, or else the table, wants of an endpoint. It says nothing of the endpoint's checks.
fn admin_state(by_hand: Option<State>, in_table: State) -> u8 {
    match (by_hand, by_hand.unwrap_or(in_table)) {
        (Some(_), State::Disabled) => FORCED_MAINTENANCE,
        (None, State::Disabled) => CONFIGURED_MAINTENANCE,
        (Some(_), State::Draining) => FORCED_DRAIN,
        (None, State::Draining) => INHERITED_DRAIN,
        (_, State::Ready | State::Backup) => 0,
    }
}

/// haproxy's numbers for the last check, its verdict, the health and whether there are checks.
fn checked(endpoint: &EndpointStats) -> (usize, u8, u8, u8) {
    let Some(check) = endpoint.check.as_deref() else {
        return (INITIAL, 0, 1, 0);
    };
    let mut words = RESULTS.iter();
    let status = words.position(|word| *word == check.result);
    let result = match check.result {
        "" => 0,
        word if word.ends_with("OK") => 3,
        "L7OKC" => 4,
        _ => 2,
    };
    let running = u8::from(check.is_running);
    (
        status.unwrap_or(INITIAL),
        result,
        check.health,
        CHECKS_ON | running,
    )
}

/// `show servers conn`. Idle connections that belong to one client are left out, as in haproxy.
pub(super) fn connections(services: &[&ServiceStats], plan: &Plan, workers: u32) -> String {
    let mut out = format!(
        "# bkname/svname bkid/svid addr port - purge_delay used_cur used_max need_est unsafe_nb safe_nb idle_lim idle_cur idle_per_thr[{workers}]\n"
    );
    for service in services {
        let live = plan.service(&service.name);
        for endpoint in &service.endpoints {
            let idle = endpoint.idle_safe + endpoint.idle_unsafe;
            write!(
                out,
                "{}/{} {}/{} {} {} - 0 {} {} {} {} {} 0 {idle}",
                service.name,
                endpoint.name,
                service.iid,
                endpoint.sid,
                endpoint.address.ip(),
                endpoint.address.port(),
                endpoint.current,
                endpoint.peak,
                endpoint.peak,
                endpoint.idle_unsafe,
                endpoint.idle_safe,
            );
            // One without idle connections is not looked for among all those of the plan.
            let live = live.filter(|_| idle > 0).and_then(|service| {
                let mut endpoints = service.endpoints().iter();
                endpoints.find(|live| live.address() == endpoint.address)
            });
            let cells = live.and_then(|live| live.live().all_counters());
            for worker in 0..workers as usize {
                let cells = cells.and_then(|all| all.if_any(WorkerId(worker)));
                let idle = cells.map_or(0, |cells| cells.idle_shared.value());
                write!(out, " {idle}");
            }
            out.push('\n');
        }
    }
    out
}

/// `show backend`.
pub(super) fn backends(snapshot: &Snapshot) -> String {
    let mut out = String::from("# name\n");
    for service in &snapshot.services {
        writeln!(out, "{}", service.name);
    }
    out
}

/// `show errors`: how often what went wrong, why the latest table was refused, and the last bad request.
/// `tls_failures` are those of a service.
pub(super) fn errors(
    snapshot: &Snapshot,
    date: &str,
    bad_request: &str,
    tls_failures: &dyn Fn(&str) -> Option<Vec<TlsFailure>>,
) -> String {
    let mut lines = String::new();
    let mut total = 0;
    let mut note = |whose: &str, name: &str, counts: &mut dyn Iterator<Item = (&str, u64)>| {
        let counts = counts.filter(|(_, count)| *count > 0);
        let counts = counts.map(|(reason, count)| {
            total += count;
            format!("{reason} {count}")
        });
        let counts: Vec<String> = counts.collect();
        if !counts.is_empty() {
            writeln!(lines, "  {whose} {name}: {}", counts.join(", "));
        }
    };
    for frontend in &snapshot.frontends {
        note("frontend", &frontend.name, &mut frontend.failures());
    }
    for service in &snapshot.services {
        note(
            "backend",
            &service.name,
            &mut service.failures().into_iter(),
        );
    }
    let endpoints = tls_lines(snapshot, tls_failures);
    for (errno, count) in &snapshot.process.accept_errors {
        let failed = [("failed", *count)];
        note("accept", &format!("errno {errno}"), &mut failed.into_iter());
    }
    lines.push_str(&endpoints);
    if let Some(refusal) = &snapshot.process.refusal {
        lines.push_str("  table refused:\n");
        for line in refusal.lines().filter(|line| !line.trim().is_empty()) {
            writeln!(lines, "    {line}");
        }
    }
    format!("Total events captured on [{date}] : {total}\n{lines}{bad_request}")
}

/// A line for each endpoint and reason for which TLS with it failed. Connections count as errors of their service already.
fn tls_lines(
    snapshot: &Snapshot,
    tls_failures: &dyn Fn(&str) -> Option<Vec<TlsFailure>>,
) -> String {
    let mut lines = String::new();
    for service in &snapshot.services {
        for failure in tls_failures(&service.name).unwrap_or_default() {
            let mut endpoints = service.endpoints.iter();
            let endpoint = endpoints.find(|endpoint| endpoint.address == failure.endpoint);
            let address = failure.endpoint.to_string();
            let name = endpoint.map_or(&*address, |endpoint| &endpoint.name);
            writeln!(
                lines,
                "  server {}/{name}: TLS failed {}, last at [{}]: {}",
                service.name,
                failure.count,
                utc(failure.last, DATE),
                failure.why,
            );
        }
    }
    lines
}

/// `show overrides`: what was changed by hand, in words that undo it if `default` takes the value's place, or `enable` that of
/// `disable`.
pub(super) fn overrides(snapshot: &Snapshot, overrides: &Overrides) -> String {
    let mut out = String::new();
    for service in &snapshot.services {
        for endpoint in &service.endpoints {
            let by_hand = overrides.of_endpoint(&service.name, &endpoint.address);
            let server = format!("{}/{}", service.name, endpoint.name);
            if let Some(state) = by_hand.state {
                let word = state_word(state);
                writeln!(out, "set server {server} state {word}");
            }
            if let Some(weight) = by_hand.weight {
                writeln!(out, "set server {server} weight {weight}");
            }
            if let Some(max) = by_hand.max_connections {
                writeln!(out, "set maxconn server {server} {max}");
            }
            if let Some(address) = by_hand.address {
                writeln!(out, "set server {server} addr {address}");
            }
            if let Some(port) = by_hand.check_port {
                writeln!(out, "set server {server} check-port {port}");
            }
        }
    }
    for frontend in &snapshot.frontends {
        if let Some(max) = overrides.max_connections(&frontend.name) {
            writeln!(out, "set maxconn frontend {} {max}", frontend.name);
        }
        if overrides.is_closed(&frontend.name) {
            writeln!(out, "disable frontend {}", frontend.name);
        }
    }
    out
}

fn state_word(state: State) -> &'static str {
    match state {
        State::Ready | State::Backup => "ready",
        State::Draining => "drain",
        State::Disabled => "maint",
    }
}

const STATE_HEAD: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n";
const STOPPED: u8 = 0;
const STARTING: u8 = 1;
const RUNNING: u8 = 2;
const STOPPING: u8 = 3;
const FORCED_MAINTENANCE: u8 = 0x01;
const CONFIGURED_MAINTENANCE: u8 = 0x04;
const FORCED_DRAIN: u8 = 0x08;
const INHERITED_DRAIN: u8 = 0x10;
/// There are checks, and they run.
const CHECKS_ON: u8 = 6;
const INITIAL: usize = 1;
