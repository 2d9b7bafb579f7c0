//! What a `defaults`, `frontend`, `listen` or `backend` section says, before it becomes a part of the table.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
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
    /// In the order in which haproxy asks them, once the section is read.
    pub(super) rules: Vec<Rule>,
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
    /// The line that gives `X-Forwarded-For` a fixed value.
    pub(super) fixes_forwarded_for: Option<Line>,
    pub(super) hsts: Option<(Line, u64)>,
    pub(super) edits: Vec<Edit>,
    pub(super) errors: Pages,
    /// `errorfiles`, until all sections are known.
    pub(super) errorfiles: Vec<Line>,
    pub(super) monitor: Option<Line>,
    pub(super) timeouts: Timeouts,

    pub(super) algorithm: Algorithm,
    /// The line that bounds the load of a server where the hash is consistent.
    pub(super) hash_balance: Option<Line>,
    pub(super) hashes_consistently: bool,
    pub(super) stick: Stick,
    pub(super) cookie: Option<(Line, String)>,
    pub(super) retries: Option<(Line, u16)>,
    /// Whether an attempt that is repeated may go to another server.
    pub(super) redispatches: bool,
    pub(super) reuse: Reuse,
    /// A connection to an endpoint has one request.
    pub(super) closes: bool,
    pub(super) source: Option<Line>,
    /// The paths of which endpoints do not see the beginning, which is the text of the pattern.
    pub(super) strip: Option<(Line, PathPattern)>,
    pub(super) check: Check,
    pub(super) default_server: Settings,
    pub(super) servers: Vec<Server>,
    pub(super) all_backups: bool,

    pub(super) stats: Option<Line>,
    pub(super) stats_users: Option<Line>,
    /// Where the page is.
    pub(super) stats_uri: Option<String>,
}

impl Proxy {
    /// Brings the rules into the order in which haproxy asks them.
    pub(super) fn sort_rules(&mut self) {
        self.rules
            .sort_by_key(|rule| (rule.stage, rule.line.word(0) != "block"));
    }

    /// The rules of some stages.
    pub(super) fn rules_of(&self, stages: RangeInclusive<Stage>) -> impl Iterator<Item = &Rule> {
        let rules = self.rules.iter();
        rules.filter(move |rule| stages.contains(&rule.stage))
    }

    /// About how many lines a section has from it.
    pub(super) fn weight(&self) -> usize {
        let acls = self.acls.len() + self.unread_acls.len();
        1 + self.rules.len() + self.edits.len() + acls
    }

    /// The words of all ACLs and conditions.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &[String]> {
        let acls = self.acls.iter().map(|line| line.from(2));
        acls.chain(self.rules.iter().map(|rule| &*rule.condition))
    }

    /// Whether it has no server that is in use.
    pub(super) fn serves_nobody(&self) -> bool {
        let mut servers = self.servers.iter();
        servers.all(|server| server.settings.is_disabled || server.settings.weight == Some(0))
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

/// When a rule is asked. Each stage of `tcp-request` begins with all whom the one before let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stage {
    Connection,
    Session,
    Content,
    Request,
    Redirect,
    Choice,
}

impl Stage {
    /// Those of `tcp-request`.
    pub(super) const CONNECTIONS: RangeInclusive<Self> = Self::Connection..=Self::Content;
    /// Those of `http-request` and `redirect`.
    pub(super) const REQUESTS: RangeInclusive<Self> = Self::Request..=Self::Redirect;

    pub(super) fn of(line: &Line, does: &Does) -> Self {
        match (line.word(0), line.word(1)) {
            ("redirect", _) => Self::Redirect,
            ("use_backend", _) => Self::Choice,
            ("tcp-request", _) if matches!(does, Does::Changes(_)) => Self::Request,
            ("tcp-request", "connection") => Self::Connection,
            ("tcp-request", "session") => Self::Session,
            ("tcp-request", _) => Self::Content,
            _ => Self::Request,
        }
    }
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

/// What a rule does with a connection or a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// The client must begin with a PROXY header.
    ExpectProxy,
    /// The client is counted from here on.
    Track(Track),
    Allow,
    Deny(Answer),
    /// An answer that is no denial.
    Answer(Answer),
    Redirect(Redirect),
    /// An answer or a redirect that a table cannot have.
    Lost,
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

    /// Whether it denies, or answers as a denial does.
    pub(super) fn refuses(&self) -> bool {
        self.denies() || matches!(self, Self::Answer(answer) if answer.status >= 400)
    }

    /// Whether it keeps requests from the backend.
    pub(super) fn turns_away(&self) -> bool {
        let answers = matches!(self, Self::Answer(_) | Self::Redirect(_) | Self::Lost);
        answers || self.denies()
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

impl Edit {
    pub(super) fn new(line: &Line, of: Of, name: &str, change: Change) -> Self {
        Self {
            line: line.clone(),
            of,
            name: name.into(),
            change,
        }
    }

    /// Whether it takes `X-Forwarded-For` out of requests.
    pub(super) fn drops_forwarded_for(&self) -> bool {
        self.of == Of::Requests
            && matches!(self.change, Change::Remove)
            && self.name.eq_ignore_ascii_case("X-Forwarded-For")
    }
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
    /// The line by which clients go where the table says.
    pub(super) matches: Option<Line>,
    /// The line by which the table is told where a client went.
    pub(super) stores: Option<Line>,
    /// Whether other processes write into the table.
    pub(super) has_peers: bool,
    /// Whether it counts the connections that a client has at once.
    pub(super) counts_connections: bool,
    /// The time over which it counts new connections of a client.
    pub(super) rate_period: Option<Duration>,
}
