//! The routing table: the one contract between those who write tables and the data plane that serves them.
//!
//! Owns the types of every field, how a table is read and written, and every rule that makes one good. People write
//! tables by hand in YAML, the controller writes them in JSON; [`parse()`] takes both and returns a table without a
//! single mistake, or all mistakes at once, each with its place, the reason and the remedy. Nothing here opens a file or
//! decides what a table means for a connection.

mod address;
mod advice;
mod check;
mod entries;
mod fields;
mod files;
mod form;
mod frontend;
mod health;
mod host;
mod http;
mod leaf;
mod locate;
#[cfg(test)]
mod oracle;
mod parse;
mod problems;
mod reach;
mod route;
mod schema;
mod service;
mod span;
mod strict;
#[cfg(test)]
mod tests;
mod text;
mod tls;
mod tree;
mod yaml;

pub use address::{Bind, no_single_host};
pub use advice::advice;
pub use entries::Entries;
pub use fields::{List, OrMap, OrOff};
pub use files::{files, stream_binds};
pub use frontend::{
    AcceptProxy, ClientTimeouts, Frontend, OnLimit, Protocol, ProxyVersion, Transport, Udp,
};
pub use health::{Expect, Health, HealthMode};
pub(crate) use host::is_dns_name;
pub use host::{HostPattern, Scheme, ServerName, Target, UrlPath};
pub use http::{
    ErrorPage, ErrorStatus, FrontendHttp, HeaderEdits, Http2, HttpVersion, Reuse, ServiceHttp,
    XForwarded,
};
pub use leaf::Wrong;
pub use locate::located;
pub use parse::{Format, LARGEST, flaws, parse};
pub use problems::{Problem, Problems, ReadParts, nearest};
pub(crate) use reach::Reach;
pub use route::{Backend, HeaderMatch, PathMatch, QueryMatch, Redirect, Rewrite, Route, When};
pub use schema::schema;
pub use service::{
    Affinity, Algorithm, AllDown, DatagramHeader, Ejection, Endpoint, OnGone, SendProxy,
    SendProxyUdp, Service, ServiceTimeouts, State, Tlv,
};
pub use span::{MaxAge, Shown, Size, parse as parse_duration};
pub use text::{
    Alpn, File, LabelKey, Name, Needle, Parameter, ParameterValue, Payload, Tag, Text, Token, Value,
};
pub use tls::{
    Certificate, ClientAuth, ClientAuthMode, EndpointTls, FrontendTls, HealthTls, TlsVersion,
    UnknownName,
};
pub use yaml::{Comments, yaml};

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use fields::{exact, is_default};
use leaf::{AsText, Leaf, leaf};

/// The routing table: what Ballast listens on, and where connections go.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "The routing table of Ballast")]
pub struct RoutingTable {
    /// The version of the table's form: 1.
    pub version: u32,
    /// A number of your own. It comes back in the ack and in the metrics; it orders nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub generation: Option<u64>,
    /// The addresses of the page, the metrics and the health of Ballast itself. Flags of `ballast run` come first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stats: Stats,
    /// Access lines: one for each connection or request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub log: Log,
    /// A file with the keys of TLS session tickets, for nodes that share them. Absent: random keys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ticket_keys: Option<File>,
    /// What clients connect to.
    #[serde(
        default,
        deserialize_with = "exact",
        skip_serializing_if = "is_default"
    )]
    pub frontends: Vec<Frontend>,
    /// Where connections and requests go.
    #[serde(
        default,
        deserialize_with = "exact",
        skip_serializing_if = "is_default"
    )]
    pub services: Vec<Service>,
}

/// The admin addresses. Flags of `ballast run` come before them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Stats {
    /// Addresses of the page, the metrics and the health of Ballast itself. Default: 127.0.0.1:1936.
    #[serde(skip_serializing_if = "is_default")]
    pub bind: Option<List<Bind>>,
    /// Addresses that answer `/healthz` and nothing else, or off. Default: off.
    #[serde(skip_serializing_if = "is_default")]
    pub healthz: OrOff<List<Bind>>,
    /// Clients with these addresses may see the page, the metrics and the API. Default: loopback, link-local, private and shared (100.64.0.0/10)
    /// addresses; everybody where a `--stats-auth-file` guards them.
    #[serde(
        with = "AsText::<Option<List<IpNet>>>",
        skip_serializing_if = "is_default"
    )]
    pub source_ranges: Option<List<IpNet>>,
}

impl Stats {
    /// Where the admin side listens; by default at 127.0.0.1:1936.
    pub fn bind(&self) -> &[Bind] {
        self.bind.as_deref().unwrap_or(&ADMIN)
    }
}

/// Access lines.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Log {
    /// The form of access lines, or off. Default: off.
    #[serde(skip_serializing_if = "is_default")]
    pub access: Access,
    /// Where access lines go. A reader that is too slow loses lines and delays nobody. Default: stdout.
    #[serde(skip_serializing_if = "is_stdout")]
    pub to: List<LogTarget>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            access: Access::Off,
            to: List::new(vec![LogTarget::Stdout]),
        }
    }
}

fn is_stdout(targets: &List<LogTarget>) -> bool {
    **targets == [LogTarget::Stdout]
}

/// The form of access lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a form of access lines")]
pub enum Access {
    /// There are no access lines.
    #[default]
    Off,
    /// haproxy's tcplog and httplog.
    Haproxy,
    /// One JSON object a line.
    Json,
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
    const NAME: &'static str = "LogTarget";
    const WHAT: &'static str = "a place for access lines";
    const FORM: &'static str = "stdout, unix:PATH or udp:IP:PORT";
    const PATTERN: &'static str = r"^(stdout|unix:.+|udp:.+:[0-9]+)$";
    const EXAMPLE: &'static str = "stdout";

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
}

leaf!(LogTarget);

const ADMIN: [Bind; 1] = [Bind::Exact(SocketAddr::V4(SocketAddrV4::new(
    Ipv4Addr::LOCALHOST,
    1936,
)))];
