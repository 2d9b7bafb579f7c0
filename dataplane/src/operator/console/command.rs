//! Parses a command: words in, a [`Command`] or an error message out. The command is not executed here.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use ballast_core::health::ForcedHealth;
use ballast_core::table::State;

use super::help::HELP;
use crate::operator::target::Target;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Lists the commands: all, or those that begin with these words.
    Help(String),
    /// Closes the connection.
    Quit,
    /// Whether the connection stays open after a line, and whether a prompt is sent.
    Prompt(Prompt),
    /// A last line says whether all commands of the connection were executed.
    Report,
    Show(Show),
    Change(Change),
    /// The weight of an endpoint.
    GetWeight(Server),
    /// Forgets maxima, or everything that was counted.
    ClearCounters {
        all: bool,
    },
    /// Forgets which endpoints the clients of a service had: all clients, or one.
    ClearTable {
        service: String,
        key: Option<String>,
    },
    /// Resets the connections of an endpoint.
    Shutdown(Server),
    /// Ends one connection, by its number.
    ShutdownSession(u64),
    /// Sets the health of an endpoint, until its checks say otherwise.
    Health(Server, ForcedHealth),
}

/// What happens after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// A prompt, if there was none before; else none.
    Toggle,
    /// The connection is closed.
    Over,
    /// More lines may come, without a prompt.
    Silent,
    /// More lines may come, each after a prompt.
    Asking,
}

/// What is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Show {
    Info(Info),
    Stat(Stat),
    ServersState(Option<Target>),
    ServersConn(Option<Target>),
    Backend,
    Errors,
    Sess {
        json: bool,
    },
    /// Which endpoints the clients of services come back to.
    Table {
        service: Option<String>,
        key: Option<String>,
    },
    /// The files of certificates, or one of them in full.
    Certificates(Option<String>),
    Version,
    /// The schema of the JSON.
    Schema,
    /// Ballast's own: the same as `/api/snapshot`.
    Snapshot,
    /// Ballast's own: what was changed by hand.
    Overrides,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Names and values, or CSV.
    #[default]
    Plain,
    Typed,
    Json,
}

/// How `show info` is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) form: Form,
    pub(super) desc: bool,
    pub(super) float: bool,
}

/// What of `show stat`, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) only: Option<Only>,
    pub(super) form: Form,
    pub(super) desc: bool,
    pub(super) up: bool,
    pub(super) no_maint: bool,
}

/// A part of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Only {
    /// A name, a number, or -1 for all.
    pub(super) proxy: String,
    /// 1: frontends, 2: services, 4: endpoints; their sum.
    pub(super) kinds: i64,
    /// -1: all.
    pub(super) sid: i64,
}

/// A change by hand. `None` undoes it: the table decides again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    State(Server, Option<State>),
    Weight(Server, Option<Weight>),
    MaxConnections(Target, Option<NonZeroU32>),
    ServerMaxConnections(Server, Option<NonZeroU32>),
    Address(Server, Option<Address>),
    /// The port of an endpoint's checks; 0: the endpoint's own.
    CheckPort(Server, Option<u16>),
    /// Whether a frontend is closed.
    Closed(Target, bool),
}

/// The address that an endpoint is to have. Without a port it keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) ip: IpAddr,
    pub(super) port: Option<u16>,
}

/// What an endpoint is to weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Absolute(u32),
    /// Of the weight that the table gives it.
    Percent(u32),
}

/// An endpoint: the service's name, a slash, and its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) service: Target,
    pub(super) endpoint: Target,
}

/// Parses one command. An error message is one or more lines.
pub(super) fn parse(words: &[String]) -> Result<Command, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words.last().is_some_and(|word| word.starts_with("<<")) {
        return Err("No command here takes a payload (<<).".into());
    }
    let show = |show| Ok(Command::Show(show));
    let state = |server, state| Ok(Command::Change(Change::State(server_of(server)?, state)));
    match words.as_slice() {
        ["help", about @ ..] => Ok(Command::Help(about.join(" "))),
        ["quit"] => Ok(Command::Quit),
        ["prompt", how @ ..] => prompt(how).map(Command::Prompt),
        ["report"] => Ok(Command::Report),
        ["show", "info", how @ ..] => show(Show::Info(info(how)?)),
        ["show", "stat", how @ ..] => show(Show::Stat(stat(how)?)),
        ["show", "servers", "state"] => show(Show::ServersState(None)),
        ["show", "servers", "state", service] => show(Show::ServersState(Some(name(service)?))),
        ["show", "servers", "conn"] => show(Show::ServersConn(None)),
        ["show", "servers", "conn", service] => show(Show::ServersConn(Some(name(service)?))),
        ["show", "backend"] => show(Show::Backend),
        ["show", "errors"] => show(Show::Errors),
        ["show", "sess"] => show(Show::Sess { json: false }),
        ["show", "sess", "json"] => show(Show::Sess { json: true }),
        ["show", "table", how @ ..] => {
            let [service, key] = table(how)
                .ok_or("'show table' expects '<backend>' and 'key <address>', or nothing.")?;
            show(Show::Table { service, key })
        }
        ["clear", "table", how @ ..] => match table(how) {
            Some([Some(service), key]) => Ok(Command::ClearTable { service, key }),
            _ => Err("Required arguments: <table> or <table> key <key>".into()),
        },
        ["show", "ssl", "cert"] => show(Show::Certificates(None)),
        ["show", "ssl", "cert", file] => show(Show::Certificates(Some((*file).to_owned()))),
        ["show", "version"] => show(Show::Version),
        ["show", "schema", "json"] => show(Show::Schema),
        ["show", "snapshot"] => show(Show::Snapshot),
        ["show", "overrides"] => show(Show::Overrides),
        ["get", "weight", server] => server_of(server).map(Command::GetWeight),
        ["clear", "counters"] => Ok(Command::ClearCounters { all: false }),
        ["clear", "counters", "all"] => Ok(Command::ClearCounters { all: true }),
        ["clear", "counters", ..] => Err("'clear counters' expects 'all' or nothing.".into()),
        ["shutdown", "sessions", "server", server] => server_of(server).map(Command::Shutdown),
        ["shutdown", "session", id] => session(id).map(Command::ShutdownSession),
        ["shutdown", "session", ..] => Err("Session pointer expected (use 'show sess').".into()),
        ["enable", "server", server] | ["set", "server", server, "state", "ready"] => {
            state(server, Some(State::Ready))
        }
        ["disable", "server", server] | ["set", "server", server, "state", "maint"] => {
            state(server, Some(State::Disabled))
        }
        ["set", "server", server, "state", "drain"] => state(server, Some(State::Draining)),
        ["set", "server", server, "state", "default"] => state(server, None),
        ["set", "server", _, "state", _] => Err(STATE_USAGE.into()),
        ["set", "server", server, "weight", weight] | ["set", "weight", server, weight] => {
            let (server, weight) = (server_of(server)?, weight_of(weight)?);
            Ok(Command::Change(Change::Weight(server, weight)))
        }
        ["set", "server", server, "addr", address @ ..] => {
            let (server, address) = (server_of(server)?, address_of(address)?);
            Ok(Command::Change(Change::Address(server, address)))
        }
        ["set", "server", server, "check-port", port] => {
            let (server, port) = (server_of(server)?, check_port_of(port)?);
            Ok(Command::Change(Change::CheckPort(server, port)))
        }
        ["set", "server", server, "health", health] => {
            Ok(Command::Health(server_of(server)?, health_of(health)?))
        }
        ["set", "server", ..] => Err(SET_USAGE.into()),
        ["disable", "frontend", frontend] => {
            Ok(Command::Change(Change::Closed(name(frontend)?, true)))
        }
        ["enable", "frontend", frontend] => {
            Ok(Command::Change(Change::Closed(name(frontend)?, false)))
        }
        ["set", "maxconn", "server", server, max] => {
            let (server, max) = (server_of(server)?, max_of(max)?);
            Ok(Command::Change(Change::ServerMaxConnections(server, max)))
        }
        ["set", "maxconn", "frontend", frontend, max] => {
            let (frontend, max) = (name(frontend)?, max_of(max)?);
            Ok(Command::Change(Change::MaxConnections(frontend, max)))
        }
        ["set", "maxconn", ..] => Err(
            "'set maxconn' expects 'frontend <f> <n>|default' or 'server <b>/<s> <n>|default'."
                .into(),
        ),
        _ => Err(unknown(&words)),
    }
}

fn unknown(words: &[&str]) -> String {
    let said: String = words.join(" ").chars().take(LONGEST_ECHO).collect();
    format!(
        "Unknown command: '{}'. There are:\n{HELP}",
        said.escape_debug()
    )
}

/// A service and a key, or neither.
fn table(how: &[&str]) -> Option<[Option<String>; 2]> {
    let owned = |word: &str| Some(word.to_owned());
    match how {
        [] => Some([None, None]),
        [service] => Some([owned(service), None]),
        [service, "key", key] => Some([owned(service), owned(key)]),
        _ => None,
    }
}

fn prompt(how: &[&str]) -> Result<Prompt, String> {
    match how {
        [] => Ok(Prompt::Toggle),
        ["n"] => Ok(Prompt::Over),
        ["i"] => Ok(Prompt::Silent),
        ["p"] => Ok(Prompt::Asking),
        _ => Err("'prompt' expects 'n', 'i', 'p' or nothing.".into()),
    }
}

fn info(how: &[&str]) -> Result<Info, String> {
    let mut info = Info::default();
    for word in how {
        match *word {
            "typed" => info.form = Form::Typed,
            "json" => info.form = Form::Json,
            "desc" => info.desc = true,
            "float" => info.float = true,
            _ => return Err("'show info' expects 'typed', 'json', 'desc' and 'float'.".into()),
        }
    }
    Ok(info)
}

fn stat(how: &[&str]) -> Result<Stat, String> {
    let mut stat = Stat::default();
    let mut rest = how;
    if let ["domain", domain, others @ ..] = rest {
        if *domain != "proxy" {
            return Err("There are no statistics but those of the domain 'proxy'.".into());
        }
        rest = others;
    }
    while let [word, others @ ..] = rest {
        rest = others;
        match *word {
            "typed" => stat.form = Form::Typed,
            "json" => stat.form = Form::Json,
            "desc" => stat.desc = true,
            "up" => stat.up = true,
            "no-maint" => stat.no_maint = true,
            proxy => {
                let [kinds, sid, others @ ..] = others else {
                    return Err(STAT_USAGE.into());
                };
                let (Ok(kinds), Ok(sid), None) = (kinds.parse(), sid.parse(), &stat.only) else {
                    return Err(STAT_USAGE.into());
                };
                let proxy = proxy.to_owned();
                stat.only = Some(Only { proxy, kinds, sid });
                rest = others;
            }
        }
    }
    Ok(stat)
}

fn weight_of(word: &str) -> Result<Option<Weight>, String> {
    if word == "default" {
        return Ok(None);
    }
    let (digits, is_percent) = match word.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (word, false),
    };
    let number = digits.parse().map_err(
        |_| "A weight is a number from 0 to 256, a percentage such as 50%, or 'default'.",
    )?;
    Ok(Some(if is_percent {
        Weight::Percent(number)
    } else {
        Weight::Absolute(number)
    }))
}

/// `IP`, `IP:PORT`, `IP port PORT` or `default`.
fn address_of(words: &[&str]) -> Result<Option<Address>, String> {
    let (word, port) = match words {
        ["default"] => return Ok(None),
        [word] => (word, None),
        [word, "port", port] => (word, Some(port)),
        _ => return Err(ADDRESS_USAGE.into()),
    };
    let whole = word
        .parse()
        .map(|whole: SocketAddr| (whole.ip(), Some(whole.port())));
    let alone = word.trim_start_matches('[').trim_end_matches(']').parse();
    let (ip, own) = match (whole, alone) {
        (Ok(whole), _) if port.is_none() => whole,
        (_, Ok(ip)) => (ip, None),
        _ => {
            return Err(format!(
                "Invalid addr '{}': {ADDRESS_USAGE}",
                word.escape_debug()
            ));
        }
    };
    let port = match port {
        Some(port) => {
            let number = port.parse().ok().filter(|port: &u16| *port > 0);
            let wrong = || {
                format!(
                    "Invalid port '{}': expected 1 to 65535.",
                    port.escape_debug()
                )
            };
            Some(number.ok_or_else(wrong)?)
        }
        None => own,
    };
    Ok(Some(Address {
        ip: ip.to_canonical(),
        port,
    }))
}

fn check_port_of(word: &str) -> Result<Option<u16>, String> {
    if word == "default" {
        return Ok(None);
    }
    let port = word.parse().map_err(|_| {
        "provided port is not an integer: expected 1 to 65535, 0 for the server's own, or 'default'"
    })?;
    Ok(Some(port))
}

fn health_of(word: &str) -> Result<ForcedHealth, String> {
    match word {
        "up" => Ok(ForcedHealth::Up),
        "stopping" => Ok(ForcedHealth::Stopping),
        "down" => Ok(ForcedHealth::Down),
        _ => Err("'set server <srv> health' expects 'up', 'stopping', or 'down'.".into()),
    }
}

/// The number of a session, as `show sess` prints it.
fn session(word: &str) -> Result<u64, String> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let number = u64::from_str_radix(digits, 16);
    number.map_err(|_| "Session pointer expected (use 'show sess').".into())
}

fn max_of(word: &str) -> Result<Option<NonZeroU32>, String> {
    if word == "default" {
        return Ok(None);
    }
    let max = word
        .parse()
        .map_err(|_| "Integer value expected: 1 or more, or 'default'.")?;
    Ok(Some(max))
}

fn server_of(word: &str) -> Result<Server, String> {
    let (service, endpoint) = word.split_once('/').ok_or("Require 'backend/server'.")?;
    Ok(Server {
        service: name(service)?,
        endpoint: name(endpoint)?,
    })
}

fn name(word: &str) -> Result<Target, String> {
    Target::of(word).ok_or_else(|| "A number is expected behind '#'.".into())
}

const STATE_USAGE: &str =
    "'set server <b>/<s> state' expects 'ready', 'drain', 'maint' or 'default'.";
const ADDRESS_USAGE: &str =
    "'set server <b>/<s> addr' expects an IP, IP:PORT, IP port PORT, or 'default'.";
const SET_USAGE: &str = "'set server <b>/<s>' expects 'addr', 'check-port', 'health', 'state' or 'weight' and a value; everything else is set in the table.";
const STAT_USAGE: &str = "'show stat' expects '<iid>|<proxy> <type> <sid>', 'typed', 'json', 'desc', 'up' and 'no-maint'.";
/// Characters of an unknown command that the error message repeats.
const LONGEST_ECHO: usize = 60;

#[cfg(test)]
mod tests;
