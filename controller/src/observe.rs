//! The observed state of the cluster, as plain owned data: the input of [`crate::decide`].
//!
//! Owns [`Observed`] and its parts, and the conversion of Kubernetes' objects to them. Nothing here decides what they mean.
//!
//! # The walk
//!
//! [`cluster::watch`] follows an API server: `reflector` lists and watches one kind of object, `object` and `convert` make plain
//! data of each object while it is parsed, `store` keeps the data, `leases` tells which load balancer nodes are live, `proofs` what
//! they serve, `pools` follows address pools.
//! [`folder::watch`] follows a folder of manifests instead ([`read_folder`] reads one once), and keeps their last good content ([`Kept`]). Both pass their state to `debounce`. It
//! looks up the Secrets, ReferenceGrants and DNS names that the last decision wants (`secrets`, `grants`, `names` with `dns`, all run
//! by `lookups`; `turns` says when a name may be looked up, `refusals` when a lookup counts as refused), adds the addresses of an
//! `earlier` table and the `own_addresses` of this machine, waits for a pause between changes (`settle`), and sends a new [`Observed`] if it differs from the last one.

pub mod cluster;
mod convert;
mod debounce;
mod dns;
mod earlier;
pub mod folder;
mod grants;
mod leases;
mod lookups;
mod names;
mod object;
mod own_addresses;
mod pools;
mod proofs;
mod publication;
mod reflector;
mod refusals;
mod secrets;
mod settle;
mod store;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;
use serde::Serialize;

use crate::allocation::Allocated;
use crate::decide;
use crate::lease::{Exceptions, Message, OwnPorts, Versions};
pub(crate) use convert::service;
pub use earlier::Earlier;
pub use folder::{BadDocument, Kept, read_folder};
pub use pools::PoolObjects;
pub(crate) use publication::{FINALIZER, PROGRAMMED, hash};
pub use publication::{KnownCondition, Owned, Publication};

/// The whole input of a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub services: BTreeMap<Key, Arc<Service>>,
    pub slices: BTreeMap<Key, Arc<Slice>>,
    pub nodes: BTreeMap<String, Node>,
    /// The Secrets that were looked up and exist, by name.
    pub secrets: BTreeMap<Key, Secret>,
    /// The ReferenceGrants of the namespaces that were looked up.
    pub grants: BTreeMap<String, Vec<Grant>>,
    /// The live Leases of load balancer nodes, by node. `None`: Leases are not observed, and every node counts as live.
    pub leases: Option<BTreeMap<String, Arc<Lease>>>,
    /// The Leases of load balancer nodes that have lapsed, by node.
    pub silent: BTreeMap<String, Arc<Lease>>,
    /// Those of them whose addresses stay: no node was heard of since, or the first one has just come back.
    pub excused: BTreeSet<String>,
    /// The messages of the Leases that are not live, by node.
    pub others_say: BTreeMap<String, Vec<Message>>,
    /// The addresses of the names of ExternalName Services, sorted: at most one more of a name than are served.
    pub resolved: BTreeMap<String, Vec<IpAddr>>,
    /// The addresses that the table of an earlier process has for ExternalName Services whose names have not been resolved since.
    pub earlier: BTreeMap<Key, Vec<IpAddr>>,
    /// The addresses of this machine, where there is an ExternalName Service.
    pub own_addresses: Vec<IpNet>,
    /// The newest versions of Services that are part of this state. Used by nodes only.
    pub versions: Versions,
    /// Address pools. Not used by nodes of a cluster.
    pub pools: Arc<PoolObjects>,
    /// The versions of the Services that cannot be read. Their last good forms, if any, are in `services`. Not used by nodes.
    pub unreadable: BTreeMap<Key, u64>,
    /// Services whose [`Rival`] has not written for a minute, or never will, because they are in a folder. Not used by nodes.
    pub abandoned: BTreeSet<Key>,
    /// The part of [`Wanted`] that was looked up at least once. The rest comes with a later `Observed`.
    pub looked_up: Arc<Wanted>,
    /// Services that wait for lookups and were not served before: they claim their ports, and nothing of them is served. Empty until
    /// `reconcile` fills it in.
    pub waiting: BTreeSet<Key>,
    /// The last good values of annotations, as the last decision returned them. Empty until `reconcile` fills it in.
    pub remembered: Arc<Remembered>,
}

impl Observed {
    /// Whether resourceVersions of Services differ from those in `before`, or labels by which no pool selects, and nothing else does:
    /// no decision depends on those.
    pub(crate) fn differs_in_versions_alone(&self, before: &Self) -> bool {
        let reads_labels = self.pools.select_services();
        let is_the_same_but_for_its_version = |service: &Service, before: &Service| {
            let mut service = service.clone();
            if !reads_labels {
                service.labels.clone_from(&before.labels);
            }
            service.publication.version = before.publication.version;
            service == *before
        };
        let pairs = self.services.values().zip(before.services.values());
        let mut differ = pairs.filter(|(service, before)| !Arc::ptr_eq(service, before));
        let mut any = self.versions != before.versions || self.unreadable != before.unreadable;
        differ.all(|(service, before)| {
            any = true;
            is_the_same_but_for_its_version(service, before)
        }) && any
            && self.services.len() == before.services.len()
            && *before
                == Self {
                    services: before.services.clone(),
                    versions: before.versions.clone(),
                    unreadable: before.unreadable.clone(),
                    ..self.clone()
                }
    }
}

/// The last good value of each knob of each Service: the knob (with its port), then annotation and value.
pub type Remembered = BTreeMap<Key, Arc<BTreeMap<String, (String, String)>>>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_str(self)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub key: Key,
    /// Its UID; empty in manifests.
    pub uid: String,
    /// The time of its creation, in seconds of Unix time; `None` in manifests.
    pub created: Option<i64>,
    pub annotations: BTreeMap<String, String>,
    /// Its labels. Not kept by nodes.
    pub labels: BTreeMap<String, String>,
    /// Its selector, as text. Not kept by nodes.
    pub selector: String,
    pub kind: ServiceKind,
    pub class: Option<String>,
    pub ports: Vec<Port>,
    /// The addresses in the cluster; none for a headless Service.
    pub cluster_ips: Vec<IpAddr>,
    /// The families of its addresses, in their order; empty where the Service does not say.
    pub families: Vec<Family>,
    /// Whether it must have addresses of both families.
    pub requires_both: bool,
    /// `sessionAffinity: ClientIP`, in seconds.
    pub affinity: Option<u32>,
    pub local: bool,
    /// The port at which kube-proxy answers health checks.
    pub health_check_node_port: Option<u16>,
    pub source_ranges: Vec<String>,
    pub load_balancer_ip: Option<String>,
    pub deleting: bool,
    /// Whether it carries the finalizer of load balancers.
    pub finalizer: bool,
    /// The addresses and names that its status publishes.
    pub ingress: Vec<String>,
    /// The field managers that wrote its status.
    pub status_managers: BTreeSet<String>,
    /// The other controller that wrote the published addresses last.
    pub rival: Option<Rival>,
    /// The addresses and ports that it was given.
    pub allocated: Option<Allocated>,
    /// The state that the publisher compares with the state that it would write.
    pub publication: Publication,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    pub manager: String,
    /// The time of its last write, in seconds of Unix time.
    pub written: Option<i64>,
}

impl Service {
    /// Whether nodes serve it as they serve another state of it.
    pub(crate) fn is_served_as(&self, other: &Self) -> bool {
        let as_nodes_see_it = |service: &Self| {
            let mut service = service.clone();
            service.forget_publication();
            service
        };
        as_nodes_see_it(self) == as_nodes_see_it(other)
    }

    /// Removes the fields that only the publisher reads and writes, so that its writes cause no decision on nodes.
    pub(crate) fn forget_publication(&mut self) {
        if !decide::is_foreign(self) {
            self.ingress.clear();
            self.status_managers.clear();
        }
        self.rival = None;
        self.publication = Publication::default();
        self.finalizer = false;
        self.labels.clear();
        self.selector.clear();
        self.annotations.remove(decide::ADDRESS);
        if self.annotations.get(decide::ID) == Some(&self.uid) {
            self.annotations.remove(decide::ID);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// `ClusterIP`, headless or not.
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty for the only one.
    pub name: String,
    pub number: u16,
    pub protocol: Protocol,
    /// The port of the pods.
    pub target: Target,
    pub node_port: Option<u16>,
    pub app_protocol: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Number(u16),
    /// The name of a container's port.
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub service: Key,
    /// The family of the addresses; `None`: the slice has names.
    pub family: Option<Family>,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: String,
    /// The number; `None` means all ports, to which no connection can be made.
    pub number: Option<u16>,
    pub protocol: Protocol,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: Option<IpAddr>,
    /// Whether it is ready and not terminating.
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    pub node: Option<String>,
    pub zone: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// The keys of its taints.
    pub taints: BTreeSet<String>,
    /// Whether its network is out of order.
    pub network_unavailable: bool,
    /// Its addresses inside the cluster.
    pub internal: Vec<IpAddr>,
    /// Its addresses outside the cluster.
    pub external: Vec<IpAddr>,
}

/// The content of the live Lease of a load balancer node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The newest versions of Services that its data plane serves as they are.
    pub served: Versions,
    /// The binds and Secrets that do not work on the node.
    pub exceptions: Exceptions,
    /// A hash of the settings that it should have in common with the publisher; empty in a Lease without it.
    pub settings: String,
    /// The ports that the node keeps for itself.
    pub ports: OwnPorts,
    /// What the publisher has told the node of how many nodes there are.
    pub told_nodes: u32,
}

/// The result of reading a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    Readable(Material),
    /// The API server refused the read.
    Forbidden,
}

/// The entries of a Secret that are used. They are never logged.
#[derive(Clone, Default)]
pub struct Material(Arc<Entries>);

#[derive(Default)]
struct Entries {
    entries: BTreeMap<String, Vec<u8>>,
    /// The entries that are not kept, since they have more bytes than [`Material::LARGEST`].
    too_large: BTreeMap<String, usize>,
    /// The annotation with the namespaces from which it may be used.
    allow_from: Option<String>,
    /// The reason for which the certificate and the key cannot be used, if there is one. Computed at the first use, and kept for
    /// later decisions.
    flaw: OnceLock<Option<String>>,
}

impl Material {
    /// The entries that are used: a certificate and its key, or the password of a router.
    pub(crate) const USED: [&str; 3] = ["tls.crt", "tls.key", "password"];
    /// The most bytes of an entry that is kept. A Secret may have a MiB, and tenants choose how many Secrets are read.
    pub(crate) const LARGEST: usize = 64 << 10;

    /// The content of a Secret with these entries.
    pub fn new(entries: BTreeMap<String, Vec<u8>>) -> Self {
        Self::allowed(entries, None)
    }

    /// The content of a Secret with these entries, and with the value of the annotation `ballast.dev/allow-from`.
    pub(crate) fn allowed(entries: BTreeMap<String, Vec<u8>>, allow_from: Option<String>) -> Self {
        let used = entries.into_iter();
        let used = used.filter(|(name, _)| Self::USED.contains(&name.as_str()));
        let (entries, large): (BTreeMap<_, _>, BTreeMap<_, _>) =
            used.partition(|(_, bytes)| bytes.len() <= Self::LARGEST);
        let large = large.into_iter();
        let too_large = large.map(|(name, bytes)| (name, bytes.len())).collect();
        Self(Arc::new(Entries {
            entries,
            too_large,
            allow_from,
            flaw: OnceLock::new(),
        }))
    }

    /// Whether its annotation allows Services of another namespace to use it.
    pub(crate) fn allows(&self, namespace: &str) -> bool {
        let mut words = self.0.allow_from.iter().flat_map(|text| text.split(','));
        words.any(|word| ["*", namespace].contains(&word.trim()))
    }

    /// The bytes of one entry.
    pub fn entry(&self, name: &str) -> Option<&[u8]> {
        self.0.entries.get(name).map(Vec::as_slice)
    }

    /// The bytes of an entry that is not kept, since it is too large.
    pub(crate) fn too_large(&self, name: &str) -> Option<usize> {
        self.0.too_large.get(name).copied()
    }

    /// The result of `find` for these entries. `find` is called at the first use only.
    pub(crate) fn flaw(&self, find: impl FnOnce(&Self) -> Option<String>) -> Option<&str> {
        self.0.flaw.get_or_init(|| find(self)).as_deref()
    }
}

impl PartialEq for Material {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&*self.0, &*other.0);
        (&one.entries, &one.too_large, &one.allow_from)
            == (&other.entries, &other.too_large, &other.allow_from)
    }
}

impl Eq for Material {}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.entries.keys()).finish()
    }
}

/// The permissions of a ReferenceGrant (gateway.networking.k8s.io) for Services to use Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The namespaces of the Services.
    pub from: BTreeSet<String>,
    /// The names of the Secrets; `None`: every Secret of the grant's namespace.
    pub to: Option<BTreeSet<String>>,
}

impl Grant {
    /// Whether Services of a namespace may use a Secret of the grant's namespace.
    pub(crate) fn permits(&self, namespace: &str, secret: &str) -> bool {
        self.from.contains(namespace) && self.to.as_ref().is_none_or(|names| names.contains(secret))
    }
}

/// The lookups that the last decision asked for, beside the watched objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// Secrets to read.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub secrets: BTreeSet<Key>,
    /// Names of ExternalName Services to resolve. Their lookups are paced by `turns`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub names: BTreeSet<String>,
    /// Whether the decision depends on other nodes than this one.
    #[serde(skip)]
    pub nodes: bool,
    /// Namespaces whose ReferenceGrants to read.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub grants: BTreeSet<String>,
}

/// The most addresses of one ExternalName Service that are served.
pub(crate) const MOST_ADDRESSES: usize = 64;

impl Wanted {
    /// Adds the lookups of another decision.
    pub(crate) fn extend(&mut self, other: Self) {
        self.secrets.extend(other.secrets);
        self.names.extend(other.names);
        self.grants.extend(other.grants);
        self.nodes |= other.nodes;
    }

    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.names.is_empty() && self.grants.is_empty()
    }
}
