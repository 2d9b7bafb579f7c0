//! Executes commands. Each answers with a text, or with the reason why it cannot be executed.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::SystemTime;

use ballast_core::health::ForcedHealth;
use ballast_core::overrides::OverrideChange;
use ballast_core::table::State;

use super::command::{Change, Command, Form, Only, Server, Show, Stat, Weight};
use super::help::help;
use super::{affinity, certificates, info, servers, sessions};
use crate::operator::target::{self, By, Target, full_name};
use crate::os::clock::{DATE, utc};
use crate::process::config::Level;
use crate::stats::{
    self, Chunks, EndpointStats, Proxy, Selection, ServiceStats, Snapshot, Statistics,
};

/// The answer to a command, or why it was not executed.
pub(super) async fn answer(
    command: Command,
    stats: &Statistics,
    by: By<'static>,
    level: Level,
) -> Result<Chunks, String> {
    let shared = &stats.shared;
    match command {
        // These three are the conversation's own.
        Command::Quit | Command::Prompt(_) | Command::Report => Ok(nothing()),
        Command::Help(about) => Ok(help(&about).into()),
        Command::Show(show) => look(show, stats, level).await,
        Command::Change(change) => self::change(&change, stats, by).await,
        Command::GetWeight(server) => weight(&server, &stats.snapshot()),
        Command::ClearCounters { all } => {
            stats.clear(all);
            by.changed(if all {
                "all counters cleared"
            } else {
                "peaks cleared"
            });
            Ok(nothing())
        }
        Command::ClearTable { service, key } => {
            affinity::clear(&shared.live.plan(), &service, key.as_deref())?;
            let of = key.map_or_else(String::new, |key| format!(" of {key}"));
            by.changed(&format!("{service} affinity{of} cleared"));
            Ok(nothing())
        }
        Command::Shutdown(server) => shutdown(&server, stats, by),
        Command::ShutdownSession(id) => {
            if !sessions::end(shared, id).await {
                return Err("No such session (use 'show sess').".into());
            }
            by.changed(&format!("session {id:#x} cut"));
            Ok(nothing())
        }
        Command::Health(server, health) => force(&server, health, stats, by),
    }
}

fn nothing() -> Chunks {
    String::new().into()
}

async fn look(show: Show, stats: &Statistics, level: Level) -> Result<Chunks, String> {
    let shared = &stats.shared;
    // Connections are listed without a snapshot.
    if let Show::Sess { json } = show {
        let connections = sessions::connections(shared).await;
        return Ok(if json {
            let list = serde_json::to_string(&connections).unwrap_or_default();
            format!("{list}\n").into()
        } else {
            let all = shared.admit.current();
            let all = all.saturating_add(stats::flows(&shared.live.plan()));
            sessions::lines(&connections, all).into()
        });
    }
    let snapshot = stats.snapshot();
    let plan = shared.live.plan();
    Ok(match show {
        Show::Info(how) => info::info(&snapshot.process, how).into(),
        Show::Stat(stat) => return self::stat(&stat, snapshot),
        Show::ServersState(name) => {
            let services = servers::services(&snapshot, name.as_ref())?;
            servers::state(&services, plan.overrides()).into()
        }
        Show::ServersConn(name) => {
            let services = servers::services(&snapshot, name.as_ref())?;
            servers::connections(&services, &plan, snapshot.process.workers).into()
        }
        Show::Backend => servers::backends(&snapshot).into(),
        Show::Errors => {
            let date = utc(SystemTime::now(), DATE).to_string();
            let bad_request = shared.last_bad_request.in_words();
            let tls = Arc::clone(&shared.live.serving().tls);
            let failures = |service: &str| tls.service(service).map(|tls| tls.failed());
            servers::errors(&snapshot, &date, &bad_request, &failures).into()
        }
        Show::Version => format!("{}\n", stats::VERSION).into(),
        Show::Schema => stats::schema().into(),
        Show::Snapshot => stats::api(snapshot, Selection::default()),
        Show::Overrides => servers::overrides(&snapshot, plan.overrides()).into(),
        Show::Table { service, key } => {
            let (only, key) = (service.as_deref(), key.as_deref());
            let seen = (level, shared.clock.now());
            affinity::show(&plan, &snapshot, only, key, seen)?.into()
        }
        Show::Certificates(file) => certificates::show(&snapshot, file.as_deref())?.into(),
        Show::Sess { .. } => nothing(),
    })
}

fn stat(stat: &Stat, snapshot: Arc<Snapshot>) -> Result<Chunks, String> {
    let mut selection = match &stat.only {
        Some(only) => selection(only, &snapshot)?,
        None => Selection::default(),
    };
    selection.only_up = stat.up;
    selection.no_maintenance = stat.no_maint;
    selection.described = stat.desc;
    Ok(match stat.form {
        Form::Plain => stats::csv(snapshot, selection),
        Form::Typed => stats::typed(snapshot, selection),
        Form::Json => stats::json(snapshot, selection),
    })
}

/// A name goes before a number, as haproxy has it.
fn selection(only: &Only, snapshot: &Snapshot) -> Result<Selection, String> {
    let word = only.proxy.as_str();
    let is_named = snapshot
        .frontends
        .iter()
        .any(|frontend| *frontend.name == *word)
        || snapshot
            .services
            .iter()
            .any(|service| *service.name == *word);
    let proxy = match word.parse::<i64>() {
        _ if is_named => Proxy::Named(word.into()),
        Ok(-1) => Proxy::Any,
        Ok(number) => Proxy::Numbered(u32::try_from(number).unwrap_or(0)),
        Err(_) => return Err("No such proxy.".into()),
    };
    let has = |bit| only.kinds & bit != 0;
    let sid = (only.sid != -1).then(|| u32::try_from(only.sid).unwrap_or(0));
    Ok(Selection::of_objects(proxy, [has(1), has(2), has(4)], sid))
}

/// A change of the overrides, in words, and its answer.
struct Wanted {
    change: OverrideChange,
    what: String,
    answer: String,
}

async fn change(change: &Change, stats: &Statistics, by: By<'static>) -> Result<Chunks, String> {
    let snapshot = stats.snapshot();
    let Wanted {
        change,
        what,
        answer,
    } = wanted(change, &snapshot)?;
    let changed = stats.shared.change(vec![change]).await;
    changed.map_err(|why| why.to_string())?;
    by.changed(&what);
    Ok(answer.into())
}

fn wanted(change: &Change, snapshot: &Snapshot) -> Result<Wanted, String> {
    let mut answer = String::new();
    let (change, what) = match change {
        Change::State(server, state) => {
            let (service, endpoint) = find(server, snapshot)?;
            let wanted = match state {
                Some(State::Ready) => Some(target::ready(service, endpoint)),
                state => *state,
            };
            (
                OverrideChange::State(service.name.clone(), endpoint.in_table(), wanted),
                target::state_in_words(service, endpoint, wanted),
            )
        }
        Change::Weight(server, weight) => {
            let (service, endpoint) = find(server, snapshot)?;
            let wanted = match weight {
                Some(weight) => Some(weight_of(*weight, table_weight(service, endpoint))?),
                None => None,
            };
            (
                OverrideChange::Weight(service.name.clone(), endpoint.in_table(), wanted),
                in_words(service, endpoint, "weight", wanted),
            )
        }
        Change::ServerMaxConnections(server, max) => {
            let (service, endpoint) = find(server, snapshot)?;
            let (name, address) = (service.name.clone(), endpoint.in_table());
            (
                OverrideChange::EndpointMaxConnections(name, address, *max),
                in_words(service, endpoint, "maxconn", *max),
            )
        }
        Change::Address(server, address) => {
            let (service, endpoint) = find(server, snapshot)?;
            let (name, before) = (service.name.clone(), endpoint.address);
            let wanted = address.map(|wanted| {
                SocketAddr::new(wanted.ip, wanted.port.unwrap_or_else(|| before.port()))
            });
            answer = moved(before, wanted.or(endpoint.moved_from).unwrap_or(before));
            (
                OverrideChange::Address(name, endpoint.in_table(), wanted),
                in_words(service, endpoint, "addr", wanted),
            )
        }
        Change::CheckPort(server, port) => {
            let (service, endpoint) = find(server, snapshot)?;
            let (name, address) = (service.name.clone(), endpoint.in_table());
            let own = endpoint.address.port();
            let wanted = port.map(|port| if port == 0 { own } else { port });
            let wanted = wanted.and_then(NonZeroU16::new);
            (
                OverrideChange::CheckPort(name, address, wanted),
                in_words(service, endpoint, "check-port", wanted),
            )
        }
        Change::Closed(name, is_closed) => closed(name, *is_closed, snapshot)?,
        Change::MaxConnections(name, max) => {
            let frontend = name.frontend(snapshot).ok_or("No such frontend.")?;
            (
                OverrideChange::MaxConnections(frontend.name.clone(), *max),
                target::limit_in_words(frontend, *max),
            )
        }
    };
    Ok(Wanted {
        change,
        what,
        answer,
    })
}

/// The change of an endpoint, as the log words it.
fn in_words(
    service: &ServiceStats,
    endpoint: &EndpointStats,
    word: &str,
    value: Option<impl ToString>,
) -> String {
    let name = full_name(service, endpoint);
    let value = value.map_or_else(|| target::DEFAULT.into(), |value| value.to_string());
    format!("{name} {word} {value}")
}

fn closed(
    name: &Target,
    is_closed: bool,
    snapshot: &Snapshot,
) -> Result<(OverrideChange, String), String> {
    let frontend = name.frontend(snapshot).ok_or("No such frontend.")?;
    let (known, word) = if is_closed {
        ("All sockets are already disabled.", "disabled")
    } else {
        ("All sockets are already enabled.", "enabled")
    };
    if frontend.is_paused == is_closed {
        return Err(known.into());
    }
    Ok((
        OverrideChange::Closed(frontend.name.clone(), is_closed),
        format!("{} {word}", frontend.name),
    ))
}

/// haproxy's answer to a new address.
fn moved(before: SocketAddr, after: SocketAddr) -> String {
    let mut answer = if before.ip() == after.ip() {
        "no need to change the addr".to_owned()
    } else {
        format!("IP changed from '{}' to '{}'", before.ip(), after.ip())
    };
    if before.port() != after.port() {
        let (before, after) = (before.port(), after.port());
        answer += &format!(", port changed from '{before}' to '{after}'");
    }
    answer + " by 'stats socket command'\n"
}

/// Sets the health of an endpoint. Its checks go on from there.
fn force(
    server: &Server,
    health: ForcedHealth,
    stats: &Statistics,
    by: By<'static>,
) -> Result<Chunks, String> {
    let snapshot = stats.snapshot();
    let (service, endpoint) = find(server, &snapshot)?;
    if !target::force(&stats.shared, &service.name, endpoint.address, health) {
        return Err(NO_SERVER.into());
    }
    let word = match health {
        ForcedHealth::Up => "up",
        ForcedHealth::Stopping => "stopping",
        ForcedHealth::Down => "down",
    };
    by.changed(&format!("{} health {word}", full_name(service, endpoint)));
    Ok(nothing())
}

/// The weight that the table gives this endpoint.
fn table_weight(service: &ServiceStats, endpoint: &EndpointStats) -> u16 {
    target::spec(service, endpoint).map_or(0, |spec| spec.weight)
}

fn weight_of(weight: Weight, table: u16) -> Result<u16, String> {
    let absolute = match weight {
        Weight::Absolute(weight) => weight.into(),
        // As in haproxy: rounded down, perhaps to 0, and never above the heaviest.
        Weight::Percent(percent) => {
            (u64::from(table) * u64::from(percent) / 100).min(HEAVIEST.into())
        }
    };
    u16::try_from(absolute)
        .ok()
        .filter(|weight| *weight <= HEAVIEST)
        .ok_or_else(|| "Absolute weight can only be between 0 and 256 inclusive.".into())
}

fn weight(server: &Server, snapshot: &Snapshot) -> Result<Chunks, String> {
    let (service, endpoint) = find(server, snapshot)?;
    let table = table_weight(service, endpoint);
    Ok(format!("{} (initial {table})\n", endpoint.user_weight).into())
}

fn shutdown(server: &Server, stats: &Statistics, by: By<'static>) -> Result<Chunks, String> {
    let snapshot = stats.snapshot();
    let (service, endpoint) = find(server, &snapshot)?;
    if !target::cut(&stats.shared, &service.name, &[endpoint.address]) {
        return Err(NO_SERVER.into());
    }
    by.changed(&format!("{} {}", full_name(service, endpoint), target::CUT));
    Ok(nothing())
}

fn find<'a>(
    server: &Server,
    snapshot: &'a Snapshot,
) -> Result<(&'a ServiceStats, &'a EndpointStats), String> {
    let service = servers::service(snapshot, &server.service)?;
    let endpoint = server.endpoint.endpoint(service).ok_or(NO_SERVER)?;
    Ok((service, endpoint))
}

const NO_SERVER: &str = "No such server.";
/// As the table has it.
const HEAVIEST: u16 = 256;
