//! What people are told: events of Services and Nodes, and remarks on flags.

use std::fmt;

use serde::Serialize;

use crate::lease::Message;
use crate::observe::Key;

/// One thing to tell. Acting on it, as an event or in a log, is for others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Notice {
    /// What it is about.
    pub about: About,
    /// How bad it is.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The event's reason.
    pub reason: Reason,
    /// For people.
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
}

impl Notice {
    /// What a node's Lease asks to be told. A reason that is not known here is a common one.
    pub(super) fn said_by_node(about: About, message: &Message) -> Self {
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

    /// The same, as a node's Lease says it.
    pub(crate) fn to_message(&self) -> Message {
        Message {
            warning: self.kind == Kind::Warning,
            reason: self.reason.to_string(),
            text: self.message.clone(),
        }
    }
}

impl Reason {
    /// Those that nodes alone find out about.
    fn of_nodes(word: &str) -> Self {
        let known = [
            Self::LeftOut,
            Self::NoActiveCheck,
            Self::RefNotPermitted,
            Self::SecretUnreadable,
            Self::TableRefused,
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

/// What a notice is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A flag of the process.
    Flag(&'static str),
    /// A Node.
    Node(String),
    /// A Service.
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

impl Serialize for About {
    fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_str(self)
    }
}

/// How bad something is, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    /// Good to know.
    Normal,
    /// Somebody must do something.
    Warning,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // MetalLB's word, which its users know.
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

/// The reason of an event; users search for these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No address, or no port of it, is to be had.
    AllocationFailed,
    /// Two annotations do not go together.
    AnnotationConflict,
    /// An annotation that means nothing here.
    AnnotationIgnored,
    /// An annotation with another name today.
    DeprecatedAnnotation,
    /// What Local means here.
    ExternalTrafficPolicyLocal,
    /// Somebody else publishes this Service.
    ForeignStatus,
    /// The API server drops `ipMode`: kube-proxy takes what is sent to published addresses.
    IPModeUnsupported,
    /// A value that cannot be read.
    InvalidAnnotation,
    /// What would make a table that is refused: a fault of Ballast's own.
    LeftOut,
    /// A bare name that belongs to another Service.
    NameTaken,
    /// A check that cannot be made.
    NoActiveCheck,
    /// A flag names a Service that is not there.
    NoSuchService,
    /// A node that is a load balancer and excluded from load balancing.
    NodeExcluded,
    /// A Secret of another namespace that does not permit its use.
    RefNotPermitted,
    /// A LoadBalancer has the port that the routes of `--http-services=all` were on.
    RoutesWithdrawn,
    /// A node's settings are not the publisher's.
    SettingsDiffer,
    /// The data plane of a node refuses the newest table.
    TableRefused,
    /// A Secret that cannot be used.
    SecretUnreadable,
    /// Something of this Service cannot be served.
    SyncLoadBalancerFailed,
    /// A Service with more ports than one may have.
    TooManyPorts,
    /// No node is there to serve.
    UnAvailableLoadBalancer,
    /// Keys that take effect with address pools.
    WaitsForPools,
}
