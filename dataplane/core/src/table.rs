//! The routing table: the one contract between those who write tables and the data plane that serves them.
//!
//! Owns the types of every field, how a table is read and written, and every rule that makes one good. People write
//! tables by hand in YAML, the controller writes them in JSON; [`parse()`] takes both and returns a table without a
//! single mistake, or all mistakes at once, each with its place, the reason and the remedy. Nothing here opens a file or
//! decides what a table means for a connection.

mod address;
mod check;
mod entries;
mod fields;
mod files;
mod frontend;
mod health;
mod host;
mod http;
#[cfg(test)]
mod oracle;
mod parse;
mod problems;
mod record;
mod service;
mod span;
#[cfg(test)]
mod tests;
mod text;
mod tls;
mod tree;
mod walk;

pub use address::{Bind, no_single_host};
pub use entries::Entries;
pub use fields::{List, OrOff};
pub use files::files;
pub use frontend::{AcceptProxy, ClientTimeouts, Frontend, OnLimit, Protocol, ProxyVersion, Udp};
pub use health::{Expect, Health, HealthMode};
pub use host::{HostPattern, Scheme, ServerName, Target, UrlPath};
pub use http::{
    ErrorStatus, FrontendHttp, HeaderEdits, HttpVersion, PathMatch, Redirect, Reuse, Route,
    ServiceHttp, XForwarded,
};
pub use parse::{Format, LARGEST, flaws, parse};
pub use problems::{Problem, Problems};
pub use record::Wrong;
pub use service::{
    Affinity, Algorithm, AllDown, Ejection, Endpoint, OnGone, SendProxy, SendProxyUdp, Service,
    ServiceTimeouts, State, Tlv,
};
pub use span::{MaxAge, Shown, Size, parse as parse_duration};
pub use text::{Alpn, File, LabelKey, Name, Needle, Payload, Tag, Text, Token, Value};
pub use tls::{
    Certificate, ClientAuth, ClientAuthMode, EndpointTls, FrontendTls, HealthTls, TlsVersion,
    UnknownName,
};

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use ipnet::IpNet;
use record::{Leaf, leaf, parsed, record, serde_by_field, words};

record! {
    /// Everything that is asked for.
    pub struct RoutingTable {
        /// Of the contract: 1.
        version: u32;
        /// A label, not an order.
        generation: Option<u64> = None;
        /// The admin addresses.
        stats: Stats = Stats::ABSENT;
        /// Access lines.
        log: Log = Log::absent();
        /// TLS ticket keys that several nodes share. Absent: random ones.
        ticket_keys: Option<File> = None;
        /// What clients connect to.
        frontends: Vec<Frontend> = Vec::new();
        /// Where they go.
        services: Vec<Service> = Vec::new();
    }
}

record! {
    /// The admin addresses. The flags of `ballast run` win.
    pub struct Stats {
        /// Absent: see [`Stats::bind`].
        bind: Option<List<Bind>> = None;
        /// Where `/healthz` alone is answered.
        healthz: OrOff<List<Bind>> = OrOff::Off;
        /// Who may see the page. Absent: see `docs/table.md`.
        source_ranges: Option<List<IpNet>> = None;
    }
}

impl Stats {
    const ABSENT: Self = Self {
        bind: None,
        healthz: OrOff::Off,
        source_ranges: None,
    };

    /// Where the admin side listens; by default at 127.0.0.1:1936.
    #[must_use]
    pub fn bind(&self) -> &[Bind] {
        self.bind.as_deref().unwrap_or(&ADMIN)
    }
}

record! {
    /// Access lines.
    pub struct Log {
        /// Whether there are any, and of which form.
        access: Access = Access::Off;
        /// Where they go.
        to: List<LogTarget> = List::new(vec![LogTarget::Stdout]);
    }
}

impl Log {
    /// What a table without `log` has.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            access: Access::Off,
            to: List::new(vec![LogTarget::Stdout]),
        }
    }
}

words! {
    /// The form of access lines.
    pub enum Access: "a form of access lines" {
        /// There are none.
        Off = "off",
        /// haproxy's tcplog and httplog.
        Haproxy = "haproxy",
        /// One JSON object a line.
        Json = "json",
    }
}

/// Where access lines go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogTarget {
    /// `stdout`
    Stdout,
    /// `unix:PATH`, a syslog socket.
    Unix(File),
    /// `udp:IP:PORT`, a syslog server.
    Udp(SocketAddr),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

impl Leaf for LogTarget {
    const WHAT: &'static str = "a place for access lines";
    const FORM: &'static str = "stdout, unix:PATH or udp:IP:PORT";

    fn parse(text: &str) -> Result<Self, Wrong> {
        if text == "stdout" {
            return Ok(Self::Stdout);
        }
        match text.split_once(':') {
            Some(("unix", path)) => Leaf::parse(path)
                .map(Self::Unix)
                .map_err(|_| Wrong::form::<Self>()),
            Some(("udp", address)) => <SocketAddr as Leaf>::parse(address)
                .map(Self::Udp)
                .map_err(|wrong| Wrong::new(wrong.why, format!("expected {}", Self::FORM))),
            _ => Err(Wrong::form::<Self>()),
        }
    }

    fn text(&self) -> impl fmt::Display {
        self
    }

    fn stand_in() -> Self {
        Self::Stdout
    }
}

leaf!(LogTarget);
serde_by_field!(LogTarget);
parsed!(LogTarget);

const ADMIN: [Bind; 1] = [Bind::Exact(SocketAddr::V4(SocketAddrV4::new(
    Ipv4Addr::LOCALHOST,
    1936,
)))];
