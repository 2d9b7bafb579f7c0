//! The status of a Service that is decided: its verdict, what `status.loadBalancer` lists, and the annotations that are written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::{Serialize, Serializer};

use super::annotations::{ADDRESS, ID, LAST_GOOD};
use crate::allocation::Allocation;
use crate::observe::{Key, Port, Protocol, Service};
use crate::pools::{PoolStatus, Source};
use crate::request::is_our_name;
use crate::settings::{Compat, Settings};

/// The decision about one Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    pub service: Key,
    pub verdict: Verdict,
    /// The reason for the verdict, for users.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What `status.loadBalancer.ingress` must list. It is written only for the verdicts served, pending and released.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<Ingress>,
    /// Ports that are not served, for `ingress[].ports`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port_errors: Vec<PortError>,
    /// Annotations to write, whatever the verdict.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Annotations of ours to remove, whatever the verdict.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub stale_annotations: BTreeSet<String>,
    /// The addresses that are kept for a later Service of its name, when it goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserves: Vec<IpAddr>,
    /// Whether the nodes at which it is published are not heard of.
    #[serde(skip)]
    pub is_unheard: bool,
    /// What it was given, or the reason for which it was not.
    #[serde(skip)]
    pub allotment: Option<Allotment>,
    /// The field manager whose published addresses are replaced, if the Service is taken over.
    #[serde(skip)]
    pub taken_from: Option<String>,
}

/// The condition `ballast.dev/Allocated`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allotment {
    Given(Allocation),
    /// The reason for which nothing was given.
    Failed(String),
}

/// How much of an address pool is used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolRow {
    pub name: String,
    #[serde(serialize_with = "kind")]
    pub source: Source,
    /// When the pool was created, in seconds of Unix time.
    #[serde(skip)]
    pub created: Option<i64>,
    #[serde(flatten)]
    pub status: PoolStatus,
}

fn kind<S: Serializer>(source: &Source, sink: S) -> Result<S::Ok, S::Error> {
    sink.serialize_str(source.kind())
}

/// The decision about a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A LoadBalancer that is served and published.
    Served,
    /// A LoadBalancer of our class that is not served or not published.
    Pending,
    /// Served by a shared port or by `--tcp-services`. Its status is not written.
    Routed,
    /// No longer ours: its addresses and the finalizer are removed.
    Released,
    /// Not ours: it is not written at all.
    LeftAlone,
}

impl Verdict {
    pub(crate) const ALL: [Self; 5] = [
        Self::Served,
        Self::Pending,
        Self::Routed,
        Self::Released,
        Self::LeftAlone,
    ];

    /// The word for metrics.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Pending => "pending",
            Self::Routed => "routed",
            Self::Released => "released",
            Self::LeftAlone => "left-alone",
        }
    }
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ingress {
    /// An address; its mode is always Proxy.
    Ip(IpAddr),
    Hostname(String),
}

impl fmt::Display for Ingress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Hostname(name) => f.write_str(name),
        }
    }
}

/// A port that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortError {
    pub port: u16,
    /// The protocol, as Kubernetes spells it.
    pub protocol: &'static str,
    /// The reason in CamelCase, as the API requires it. One that is not of the API has a domain before it.
    pub error: &'static str,
}

impl PortError {
    pub(super) fn unsupported(port: u16, protocol: Protocol) -> Self {
        Self {
            port,
            protocol: protocol.word(),
            error: "UnsupportedProtocol",
        }
    }

    /// Another Service has the port, or Ballast itself, or what runs on nodes.
    pub(super) fn taken(port: &Port) -> Self {
        Self::of(port, "ballast.dev/PortTaken")
    }

    /// An event says why.
    pub(super) fn not_served(port: &Port) -> Self {
        Self::of(port, "ballast.dev/NotServed")
    }

    fn of(port: &Port, error: &'static str) -> Self {
        Self {
            port: port.number,
            protocol: port.protocol.word(),
            error,
        }
    }
}

impl Status {
    pub(crate) fn new(service: &Service, verdict: Verdict, why: impl Into<String>) -> Self {
        Self {
            service: service.key.clone(),
            verdict,
            why: why.into(),
            ingress: Vec::new(),
            port_errors: Vec::new(),
            annotations: BTreeMap::new(),
            stale_annotations: BTreeSet::new(),
            reserves: Vec::new(),
            is_unheard: false,
            allotment: None,
            taken_from: None,
        }
    }

    pub(super) fn left_alone(service: &Service, why: impl Into<String>) -> Self {
        Self::new(service, Verdict::LeftAlone, why)
    }

    pub(super) fn released(service: &Service, why: impl Into<String>, settings: &Settings) -> Self {
        let there = |key: &str| service.annotations.get(key);
        let is_openstack = settings.reads(Compat::Openstack);
        let stale = [
            (LAST_GOOD, there(LAST_GOOD).is_some()),
            (ADDRESS, there(ADDRESS).is_some() && is_openstack),
            // Any other value was set by the user.
            (ID, there(ID) == Some(&service.uid) && is_openstack),
        ];
        let stale = stale.into_iter().filter(|(_, is_ours)| *is_ours);
        Self {
            stale_annotations: stale.map(|(key, _)| key.to_owned()).collect(),
            ..Self::new(service, Verdict::Released, why)
        }
    }

    pub(super) fn pending(service: &Service, why: impl Into<String>) -> Self {
        Self::new(service, Verdict::Pending, why)
    }
}

/// Whether another controller publishes a Service that has no class.
pub(crate) fn is_foreign(service: &Service) -> bool {
    service.class.is_none()
        && !service.ingress.is_empty()
        && !service.status_managers.iter().any(|name| is_our_name(name))
}

/// Whether a Service that is no longer ours still has our finalizer or addresses. What other controllers wrote is not removed.
pub(super) fn must_be_released(service: &Service, settings: &Settings) -> bool {
    let managers = &service.status_managers;
    match managers.iter().any(|name| is_our_name(name)) {
        true => {
            let is_alone = managers.iter().all(|name| is_our_name(name));
            service.finalizer || (is_alone && !service.ingress.is_empty())
        }
        // The finalizer is added before the status is written.
        false => service.finalizer && managers.is_empty() && settings.takes_classless(),
    }
}
