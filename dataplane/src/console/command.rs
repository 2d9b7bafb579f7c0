//! What a command says: words in, a [`Command`] or what is wrong with them out. Knows nothing of what is served.

use std::num::NonZeroU32;

use super::help::HELP;
use crate::operator::Target;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Says what there is, all of it or what begins with these words.
    Help(String),
    /// Ends the conversation.
    Quit,
    /// Whether there are more lines to come, and whether each is asked for.
    Prompt(Prompt),
    Show(Show),
    Change(Change),
    /// The weight of an endpoint.
    GetWeight(Server),
    /// Forgets maxima, or everything that was counted.
    ClearCounters {
        all: bool,
    },
    /// Resets the connections of an endpoint.
    Shutdown(Server),
}

/// How a conversation goes on after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// The other way than now.
    Toggle,
    /// It ends.
    Over,
    /// More lines may come.
    Silent,
    /// More lines may come, and are asked for.
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
    Version,
    /// What the JSON looks like.
    Schema,
    /// Ballast's own: what `/api/snapshot` says.
    Snapshot,
    /// Ballast's own: what was changed by hand.
    Overrides,
}

/// How a thing is written.
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

/// A change by hand. `None`: as the table says, again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    State(Server, Option<State>),
    Weight(Server, Option<Weight>),
    MaxConnections(Target, Option<NonZeroU32>),
}

/// What an endpoint is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Drain,
    Maint,
}

/// What an endpoint is to weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Absolute(u32),
    /// Of what the table says.
    Percent(u32),
}

/// An endpoint: the service's name, a slash, and its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) service: Target,
    pub(super) endpoint: Target,
}

/// Reads one command. What is wrong with it is said in lines.
pub(super) fn parse(words: &[String]) -> Result<Command, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words.last().is_some_and(|word| word.starts_with("<<")) {
        return Err("No command here takes a payload (<<).".into());
    }
    match words.as_slice() {
        ["help", about @ ..] => Ok(Command::Help(about.join(" "))),
        ["quit"] => Ok(Command::Quit),
        ["prompt", how @ ..] => prompt(how).map(Command::Prompt),
        ["show", what @ ..] => show(what)
            .unwrap_or_else(|| Err(unknown(&words)))
            .map(Command::Show),
        ["get", "weight", server] => server_of(server).map(Command::GetWeight),
        ["clear", "counters"] => Ok(Command::ClearCounters { all: false }),
        ["clear", "counters", "all"] => Ok(Command::ClearCounters { all: true }),
        ["clear", "counters", ..] => Err("'clear counters' expects 'all' or nothing.".into()),
        ["shutdown", "sessions", "server", server] => server_of(server).map(Command::Shutdown),
        ["set" | "enable" | "disable", ..] => change(&words)
            .unwrap_or_else(|| Err(unknown(&words)))
            .map(Command::Change),
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

fn prompt(how: &[&str]) -> Result<Prompt, String> {
    match how {
        [] => Ok(Prompt::Toggle),
        ["n"] => Ok(Prompt::Over),
        ["i"] => Ok(Prompt::Silent),
        ["p"] => Ok(Prompt::Asking),
        _ => Err("'prompt' expects 'n', 'i', 'p' or nothing.".into()),
    }
}

/// `None`: nobody knows such a thing.
fn show(what: &[&str]) -> Option<Result<Show, String>> {
    let shown = match what {
        ["info", how @ ..] => return Some(info(how).map(Show::Info)),
        ["stat", how @ ..] => return Some(stat(how).map(Show::Stat)),
        ["servers", "state"] => Show::ServersState(None),
        ["servers", "state", service] => {
            return Some(name(service).map(|name| Show::ServersState(Some(name))));
        }
        ["servers", "conn"] => Show::ServersConn(None),
        ["servers", "conn", service] => {
            return Some(name(service).map(|name| Show::ServersConn(Some(name))));
        }
        ["backend"] => Show::Backend,
        ["errors"] => Show::Errors,
        ["sess"] => Show::Sess { json: false },
        ["sess", "json"] => Show::Sess { json: true },
        ["version"] => Show::Version,
        ["schema", "json"] => Show::Schema,
        ["snapshot"] => Show::Snapshot,
        ["overrides"] => Show::Overrides,
        _ => return None,
    };
    Some(Ok(shown))
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

/// `None`: nobody knows such a thing.
fn change(words: &[&str]) -> Option<Result<Change, String>> {
    Some(match words {
        ["enable", "server", server] => state_of(server, Some(State::Ready)),
        ["disable", "server", server] => state_of(server, Some(State::Maint)),
        ["set", "server", server, "state", state] => match *state {
            "ready" => state_of(server, Some(State::Ready)),
            "drain" => state_of(server, Some(State::Drain)),
            "maint" => state_of(server, Some(State::Maint)),
            "default" => state_of(server, None),
            _ => Err("'set server <b>/<s> state' expects 'ready', 'drain', 'maint' or 'default'.".into()),
        },
        ["set", "server", server, "weight", weight] | ["set", "weight", server, weight] => {
            server_of(server).and_then(|server| Ok(Change::Weight(server, weight_of(weight)?)))
        }
        ["set", "server", ..] => Err(
            "'set server <b>/<s>' expects 'state' or 'weight' and a value; all else is the table's to say.".into(),
        ),
        ["set", "maxconn", "frontend", frontend, max] => {
            name(frontend).and_then(|frontend| Ok(Change::MaxConnections(frontend, max_of(max)?)))
        }
        ["set", "maxconn", ..] => Err("'set maxconn' expects 'frontend <f> <n>|default'.".into()),
        _ => return None,
    })
}

fn state_of(server: &str, state: Option<State>) -> Result<Change, String> {
    server_of(server).map(|server| Change::State(server, state))
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

const STAT_USAGE: &str = "'show stat' expects '<iid>|<proxy> <type> <sid>', 'typed', 'json', 'desc', 'up' and 'no-maint'.";
/// So much of what nobody understands is said again.
const LONGEST_ECHO: usize = 60;

#[cfg(test)]
mod tests;
