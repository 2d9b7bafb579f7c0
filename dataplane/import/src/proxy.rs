//! What a `defaults`, `frontend`, `listen` or `backend` section says, before it becomes a part of the table.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_core::table::{Algorithm, Redirect, Reuse, Text};

use super::bind::BindLine;
use super::check::Check;
use super::condition::Rule;
use super::pages::{Answer, Pages};
use super::pattern::PathPattern;
use super::server::{Server, Settings};
use super::words::Line;

/// What a section says. That of `defaults` is where others begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Proxy {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) head: Line,
    pub(super) is_http: bool,
    pub(super) is_disabled: bool,
    pub(super) description: Option<Text>,

    pub(super) binds: Vec<BindLine>,
    pub(super) acls: Vec<Line>,
    /// Lines of ACLs that cannot be read.
    pub(super) unread_acls: Vec<Line>,
    pub(super) connections: Vec<Rule<Access>>,
    pub(super) requests: Vec<Rule<Does>>,
    pub(super) redirects: Vec<Rule<Does>>,
    pub(super) use_backends: Vec<Rule<Does>>,
    pub(super) default_backend: Option<(Line, String)>,
    pub(super) max_connections: Option<u32>,
    pub(super) max_rate: Option<u32>,
    pub(super) logs: bool,
    pub(super) inspect_delay: Option<Duration>,
    /// A line that says who may not come, and cannot be read.
    pub(super) unread: Option<usize>,
    /// Whether a rule gives clients another address than that of their connections.
    pub(super) sets_src: bool,
    /// Whether a rule has requests read from here on, in mode tcp.
    pub(super) switches_mode: bool,
    /// Whether a rule gives connections another port than that of the bind.
    pub(super) sets_port: bool,

    pub(super) forwarded_for: Option<Line>,
    /// A line sets another field of `X-Forwarded-` to what Ballast writes there, so that Ballast writes all of them.
    pub(super) forwards_all: Option<Line>,
    /// What clients send as `X-Forwarded-For` does not reach the endpoints.
    pub(super) drops_forwarded_for: Option<Line>,
    pub(super) hsts: Option<(Line, u64)>,
    pub(super) edits: Vec<Edit>,
    pub(super) errors: Pages,
    /// `errorfiles`, until all sections are known.
    pub(super) errorfiles: Vec<Line>,
    pub(super) monitor: Option<Line>,
    pub(super) timeouts: Timeouts,

    pub(super) algorithm: Algorithm,
    pub(super) stick: Stick,
    pub(super) cookie: Option<(Line, String)>,
    pub(super) retries: Option<(Line, u16)>,
    /// Whether an attempt that is repeated may go to another server.
    pub(super) redispatches: bool,
    pub(super) reuse: Reuse,
    pub(super) source: Option<Line>,
    /// The paths of which endpoints do not see the beginning, which is the text of the pattern.
    pub(super) strip: Option<(Line, PathPattern)>,
    pub(super) check: Check,
    pub(super) default_server: Settings,
    pub(super) servers: Vec<Server>,
    pub(super) all_backups: bool,

    pub(super) stats: Option<Line>,
    pub(super) stats_users: Option<Line>,
}

impl Proxy {
    /// Brings the rules into the order in which haproxy asks them.
    pub(super) fn sort_rules(&mut self) {
        self.connections.sort_by_key(|rule| Stage::of(&rule.line));
        self.requests
            .sort_by_key(|rule| rule.line.word(0) != "block");
    }

    /// The words of all ACLs and conditions.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &[String]> {
        let acls = self.acls.iter().map(|line| line.from(2));
        let rules = self.connections.iter().map(|rule| &*rule.condition);
        let requests = self.requests.iter().chain(&self.redirects);
        let requests = requests.chain(&self.use_backends);
        let requests = requests.map(|rule| &*rule.condition);
        acls.chain(rules).chain(requests)
    }

    /// Whether it has no server that is in use.
    pub(super) fn serves_nobody(&self) -> bool {
        let mut servers = self.servers.iter();
        servers.all(|server| server.settings.is_disabled)
    }

    /// Whether endpoints get the client's address in `X-Forwarded-For`.
    pub(super) fn tells_clients(&self) -> bool {
        self.forwarded_for.is_some() || self.forwards_all.is_some()
    }
}

/// The kind of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Defaults,
    Frontend,
    Listen,
    Backend,
}

impl Kind {
    pub(super) fn has_frontend(self) -> bool {
        matches!(self, Self::Frontend | Self::Listen)
    }

    pub(super) fn has_service(self) -> bool {
        matches!(self, Self::Backend | Self::Listen)
    }
}

/// When a `tcp-request` rule is asked: each stage begins with all whom the one before let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stage {
    Connection,
    Session,
    Content,
}

impl Stage {
    /// The stage that the second word of the line names.
    pub(super) fn of(line: &Line) -> Self {
        match line.word(1) {
            "connection" => Self::Connection,
            "session" => Self::Session,
            _ => Self::Content,
        }
    }
}

/// What a `tcp-request` rule does with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Accept,
    Reject,
    /// The client must begin with a PROXY header.
    ExpectProxy,
    /// The client is counted from here on.
    Track(Track),
}

/// How a `tcp-request … track-sc…` rule counts clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// The number of the counter.
    pub(super) number: u8,
    /// Whether it counts the client's address, and nothing else.
    pub(super) is_by_address: bool,
    /// The section that has the table; `None`: this one.
    pub(super) table: Option<String>,
}

/// What an `http-request`, `redirect` or `use_backend` rule does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Allow,
    Deny(Answer),
    /// An answer that is no denial.
    Answer(Answer),
    Redirect(Redirect),
    Backend(String),
    /// The rules behind it are asked about all whom the ones before it let through.
    NextStage,
    /// The default backend has it.
    Default,
    /// It changes what rules behind it look at, which Ballast does not.
    Changes(What),
}

/// A part of a request that a rule changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Host,
    Path,
    /// Host and path.
    Address,
}

/// The lines of rules that changed host or path of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changed {
    pub(super) host: Option<usize>,
    pub(super) path: Option<usize>,
}

impl Changed {
    pub(super) fn add(&mut self, what: What, line: &Line) {
        if what != What::Path {
            self.host.get_or_insert(line.number);
        }
        if what != What::Host {
            self.path.get_or_insert(line.number);
        }
    }
}

impl Does {
    pub(super) fn denies(&self) -> bool {
        matches!(self, Self::Deny(_))
    }

    /// Whether it answers by itself, and leads nowhere.
    pub(super) fn answers(&self) -> bool {
        self.denies() || matches!(self, Self::Answer(_))
    }

    /// Whether it denies, or answers as a denial does.
    pub(super) fn refuses(&self) -> bool {
        self.denies() || matches!(self, Self::Answer(answer) if answer.status >= 400)
    }

    /// Whether it chooses a backend.
    pub(super) fn chooses(&self) -> bool {
        matches!(self, Self::Backend(_) | Self::Default)
    }
}

/// A header field that is set or removed.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub(super) line: Line,
    pub(super) of: Of,
    pub(super) name: String,
    pub(super) change: Change,
}

/// The heads in which a field is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Requests,
    /// Answers of endpoints.
    Responses,
    /// All answers: redirects, denials and errors too.
    AllAnswers,
}

/// What becomes of a header field.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Set(String),
    /// It is added beside those of its name.
    Add(String),
    Remove,
}

/// The timeouts of a section by haproxy's names; `None`: for ever.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeouts(pub(super) BTreeMap<String, Option<Duration>>);

impl Timeouts {
    /// One that may be for ever, which is `Some(None)`.
    pub(super) fn idle(&self, name: &str) -> Option<Option<Duration>> {
        self.0.get(name).copied()
    }

    pub(super) fn get(&self, name: &str) -> Option<Duration> {
        self.idle(name).flatten()
    }
}

/// `stick-table` and `stick on src`.
#[derive(Clone, Debug, Default)]
pub(super) struct Stick {
    pub(super) table: Option<Line>,
    pub(super) expire: Option<Duration>,
    pub(super) on_client: bool,
    /// Whether it counts the connections that a client has at once.
    pub(super) counts_connections: bool,
    /// The time over which it counts new connections of a client.
    pub(super) rate_period: Option<Duration>,
}
