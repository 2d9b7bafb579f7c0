//! Notices: events of Services and Nodes, and warnings about flags.

use std::fmt;

use serde::Serialize;

use crate::lease::Message;
use crate::observe::Key;

/// A message for users. `cluster::events` writes it as an event, `reconcile` logs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Notice {
    pub about: About,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub reason: Reason,
    pub message: String,
}

impl Notice {
    pub(super) fn warning(about: About, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            about,
            kind: Kind::Warning,
            reason,
            message: message.into(),
        }
    }

    pub(super) fn normal(about: About, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            about,
            kind: Kind::Normal,
            reason,
            message: message.into(),
        }
    }

    /// The notice for a message in the Lease of a node. An unknown reason becomes a general one.
    pub(super) fn from_node(about: About, message: &Message) -> Self {
        Self {
            about,
            kind: match message.warning {
                true => Kind::Warning,
                false => Kind::Normal,
            },
            reason: Reason::of_nodes(&message.reason),
            message: message.text.clone(),
        }
    }

    /// The message for this node's Lease.
    pub(crate) fn to_message(&self) -> Message {
        Message {
            warning: self.kind == Kind::Warning,
            reason: self.reason.to_string(),
            text: self.message.clone(),
        }
    }
}

impl Reason {
    /// The reasons of messages in the Leases of nodes.
    fn of_nodes(word: &str) -> Self {
        let known = [
            Self::AddressAnnounced,
            Self::AddressConflict,
            Self::AddressNotPermitted,
            Self::AllocationFailed,
            Self::LeftOut,
            Self::NoActiveCheck,
            Self::NotAnnounced,
            Self::RefNotPermitted,
            Self::SecretUnreadable,
            Self::TableRefused,
            Self::TooLarge,
        ];
        let mut known = known.into_iter();
        let found = known.find(|reason| reason.to_string() == word);
        found.unwrap_or(Self::SyncLoadBalancerFailed)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} {}: {}",
            self.kind, self.reason, self.about, self.message
        )
    }
}

/// The object that a notice is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    Flag(&'static str),
    Node(String),
    Service(Key),
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => f.write_str(name),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Service(key) => write!(f, "service {key}"),
        }
    }
}

impl About {
    /// The name of the object.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Flag(name) => name,
            Self::Node(name) => name,
            Self::Service(key) => &key.name,
        }
    }
}

impl Serialize for About {
    fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_str(self)
    }
}

/// The type of an event, as Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    Normal,
    /// A user or an operator must change something.
    Warning,
}

impl Kind {
    /// The word that Kubernetes has for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // MetalLB's spelling, which its users search for.
            Self::DeprecatedAnnotation => f.write_str("deprecatedAnnotation"),
            _ => fmt::Debug::fmt(self, f),
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_str(self)
    }
}

/// The reason of an event. Users search for these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The network leads the address of the Service to a node.
    AddressAnnounced,
    /// A host that is no load balancer node has the address.
    AddressConflict,
    /// The name of an ExternalName Service leads to an address to which it may not lead.
    AddressNotPermitted,
    /// The address or a port that the Service asks for is not available.
    AllocationFailed,
    AnnotationConflict,
    AnnotationIgnored,
    /// The Service is given other addresses than those which it had.
    ClearAssignment,
    DeprecatedAnnotation,
    /// How externalTrafficPolicy Local is understood.
    ExternalTrafficPolicyLocal,
    /// Another controller publishes the Service.
    ForeignStatus,
    /// The host of a route belongs to another namespace.
    HostTaken,
    InvalidAnnotation,
    /// The Service is left out of the table: a bug of Ballast.
    LeftOut,
    /// The bare name belongs to another Service.
    NameTaken,
    /// No active health check can be made.
    NoActiveCheck,
    /// An address is not announced, or a part of an object about announcing is not followed.
    NotAnnounced,
    /// A flag, or `ballast.dev/canary-of`, names a Service that does not exist.
    NoSuchService,
    /// A node is selected as a load balancer and excluded from load balancing.
    NodeExcluded,
    /// The Secret is in another namespace, which does not permit its use.
    RefNotPermitted,
    /// A LoadBalancer owns the port that routes of `--http-services=all` need.
    RoutesWithdrawn,
    /// A node runs with other settings than the publisher.
    SettingsDiffer,
    /// The data plane of a node refuses the newest table.
    TableRefused,
    /// The Secret cannot be used.
    SecretUnreadable,
    /// A part of the Service cannot be served.
    SyncLoadBalancerFailed,
    /// The table would be too large, and the Service is of the namespace with the largest share of it.
    TooLarge,
    /// The Service has more ports than --max-ports-per-service.
    TooManyPorts,
    /// The Service asks for more routes than --max-routes-per-service.
    TooManyRoutes,
    /// No node is available.
    UnAvailableLoadBalancer,
}
