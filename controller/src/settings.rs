//! From arguments to [`Settings`], validated once.
//!
//! Owns the flags of the controller and those of the old service-loadbalancer, with their meaning. Called by `main` and
//! by the tests; [`crate::decide`] reads the result. An invalid value is refused with the name of its flag.

mod cfg;
mod live;
mod reserved;
mod run;
mod selector;
mod tcp_services;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use ballast_core::table::{Algorithm, parse_duration};
use clap::{ArgAction, Args, ValueEnum};
use ipnet::IpNet;

use crate::allocation::NodePort;
use crate::lease::OwnPorts;
use crate::pools::Source;
use cfg::Cfg;
pub(crate) use live::follow as follow_cfg;
pub use reserved::ReservedPorts;
pub use run::{AdminAddress, AdminFlags, AnnounceFlags, ClusterFlags, PublishFlags, RunFlags};
pub use selector::Selector;
pub use tcp_services::{TcpService, TcpServices};

/// The flags that decide what is served.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Flags {
    /// The node whose table is written [default: any; for hosts without Kubernetes, and other clusters]
    #[arg(long, env = "NODE_NAME", value_name = "NAME", value_parser = non_empty)]
    pub node_name: Option<String>,
    /// Which nodes are load balancers, as a label selector
    #[arg(
        long,
        env = "BALLAST_NODE_SELECTOR",
        value_name = "SELECTOR",
        default_value = "role=loadbalancer"
    )]
    pub node_selector: Selector,
    /// Use only endpoints on nodes with these labels, with externalTrafficPolicy Local or --endpoints-via=nodeport
    #[arg(long, value_name = "SELECTOR")]
    pub target_node_selector: Option<Selector>,
    /// Serve on nodes that are excluded from external load balancers, too
    #[arg(long, env = "BALLAST_IGNORE_EXCLUDE_LB", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub ignore_exclude_lb: bool,
    /// The namespace that this process runs in, where Leases are kept [default: that of the kubeconfig's context, or of the pod]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", value_parser = non_empty)]
    pub own_namespace: Option<String>,
    /// A namespace whose Services are served; repeatable [default: all]
    #[arg(long, env = "BALLAST_NAMESPACE", value_name = "NAME", value_delimiter = ',', value_parser = non_empty)]
    pub namespace: Vec<String>,
    /// The loadBalancerClass of the Services that are served [default: Services without one]
    #[arg(long, env = "BALLAST_LB_CLASS", value_name = "CLASS", value_parser = non_empty)]
    pub lb_class: Option<String>,
    /// Serve Services without a class beside those of --lb-class
    #[arg(long, env = "BALLAST_DEFAULT_CLASS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub default_class: bool,
    /// Where connections go [default: pod]; together with --kubeconfig, the cluster is another one than that of this node
    #[arg(long, value_name = "WAY", value_enum)]
    pub endpoints_via: Option<EndpointsVia>,
    /// The systems whose annotations are read
    #[arg(long, env = "BALLAST_COMPAT", value_name = "FAMILY", value_enum, value_delimiter = ',', default_values_t = Compat::value_variants().iter().copied())]
    pub compat: Vec<Compat>,
    /// Which Services the shared port 80 leads to
    #[arg(
        long,
        env = "BALLAST_HTTP_SERVICES",
        value_name = "WHICH",
        value_enum,
        default_value_t
    )]
    pub http_services: HttpServices,
    /// Services with a port of their own: name:port, namespace/name:port, name:port@external
    #[arg(
        long,
        env = "BALLAST_TCP_SERVICES",
        value_name = "LIST",
        default_value = ""
    )]
    pub tcp_services: TcpServices,
    /// Serve this Service only, by name
    #[arg(long, env = "BALLAST_TARGET_SERVICE", value_name = "NAME", value_parser = non_empty)]
    pub target_service: Option<String>,
    /// Connect to ClusterIPs, not to pods
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub forward_services: bool,
    /// How many ports of one Service are served at most, in the order of its spec
    #[arg(long, env = "BALLAST_MAX_PORTS_PER_SERVICE", value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_ports_per_service: u16,
    /// How many routes of one Service are served at most: hosts, paths and ports that its annotations ask for, in their order
    #[arg(long, env = "BALLAST_MAX_ROUTES_PER_SERVICE", value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub max_routes_per_service: u16,
    /// Whether Services of type ExternalName are served
    #[arg(
        long,
        env = "BALLAST_EXTERNAL_NAMES",
        value_name = "WHETHER",
        value_enum,
        default_value_t
    )]
    pub external_names: ExternalNames,
    /// Addresses to which the name of no ExternalName Service may lead; repeatable
    #[arg(
        long,
        env = "BALLAST_EXTERNAL_NAME_DENY",
        value_name = "RANGE",
        value_delimiter = ','
    )]
    pub external_name_deny: Vec<IpNet>,
    /// How long at least the addresses of such a name are used before it is looked up again
    #[arg(long, env = "BALLAST_DNS_MIN_TTL", value_name = "TIME", default_value = "5s", value_parser = dns_min_ttl)]
    pub dns_min_ttl: Duration,
    /// Whether a host name on the shared ports belongs to one namespace
    #[arg(
        long,
        env = "BALLAST_HOST_OWNERSHIP",
        value_enum,
        value_name = "OWNERS",
        default_value_t
    )]
    pub host_ownership: HostOwnership,
    /// TCP ports of nodes that no Service gets; or none
    #[arg(long, env = "BALLAST_RESERVED_PORTS", value_name = "PORTS", default_value = ReservedPorts::DEFAULT)]
    pub reserved_ports: ReservedPorts,
    /// The systems whose address pools are read
    #[arg(long, env = "BALLAST_POOLS", value_name = "SYSTEM", value_enum, value_delimiter = ',', default_values_t = Source::value_variants().iter().copied())]
    pub pools: Vec<Source>,
    /// Whether Services get addresses of nodes where a pool is for them and has none left
    #[arg(
        long,
        env = "BALLAST_NODE_ADDRESSES",
        value_enum,
        value_name = "WHETHER",
        default_value_t
    )]
    pub node_addresses: NodeAddresses,
    /// The default certificate with its key, PEM
    #[arg(long, value_name = "PATH")]
    pub ssl_cert: Option<PathBuf>,
    /// The CA that must have signed the certificates of clients, PEM
    #[arg(long, value_name = "PATH")]
    pub ssl_ca_cert: Option<PathBuf>,
    /// The body of the answer to requests that lead to no Service: file:// or http(s)://
    #[arg(long, value_name = "URL", value_parser = error_page)]
    pub error_page: Option<ErrorPage>,
    /// The status of that answer
    #[arg(long, value_name = "CODE", default_value_t = 404, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub default_return_code: u16,
    /// The algorithm of Services that name none [default: round-robin]
    #[arg(long, value_name = "ALGORITHM", value_parser = algorithm)]
    pub balance_algorithm: Option<Algorithm>,
    /// The shared HTTP port
    #[arg(long, env = "BALLAST_HTTP_PORT", value_name = "PORT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    pub http_port: u16,
    /// The port at which the data plane shows its statistics
    #[arg(long, env = "BALLAST_STATS_PORT", value_name = "PORT", default_value_t = STATS_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub stats_port: u16,
    /// Clients that may see the statistics; repeatable [default: loopback, link-local, private and shared (100.64.0.0/10) addresses]
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    pub stats_source_ranges: Vec<IpNet>,
    /// Write access lines in haproxy's format
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub syslog: bool,
    /// service-loadbalancer's loadbalancer.json
    #[arg(long, value_name = "PATH")]
    pub cfg: Option<PathBuf>,
}

impl Flags {
    /// Refuses flags that contradict one another.
    fn validate(&self) -> Result<(), WrongFlag> {
        let (http, stats) = (self.http_port, self.stats_port);
        let code = self.default_return_code;
        let (flag, why) = if self.ssl_ca_cert.is_some() && self.ssl_cert.is_none() {
            (
                "--ssl-ca-cert",
                "has no effect without --ssl-cert".to_owned(),
            )
        } else if self.error_page.is_some() && [204, 205, 304].contains(&code) {
            let why = format!("an answer with status {code} has no body, and --error-page is one");
            ("--default-return-code", why)
        } else if [stats, HTTPS_PORT].contains(&http) {
            let why = format!("{http} is the stats port or the shared HTTPS port");
            ("--http-port", why)
        } else if stats == HTTPS_PORT {
            let why = format!("{HTTPS_PORT} is the shared HTTPS port");
            ("--stats-port", why)
        } else {
            return Ok(());
        };
        Err(WrongFlag { flag, why })
    }
}

/// The validated flags, and what follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The flags, with what `--cfg` adds to them.
    pub flags: Flags,
    /// The algorithm of Services that do not name one.
    pub algorithm: Algorithm,
    /// Flags and fields without effect, for the log.
    pub remarks: Vec<String>,
    /// The cluster is another one than this process runs in, and has no Node for it.
    pub another_cluster: bool,
    pub role: Role,
    /// Services that another controller published are taken over once it writes no more.
    pub take_over: bool,
    /// The namespace of this process and of its Leases.
    pub own_namespace: String,
    /// The port of `--admin`, if this process answers at one.
    pub admin_port: Option<u16>,
    /// Whether this process writes the file of an announcer.
    pub announces: bool,
    /// How long this node serves on when it is no load balancer any more.
    pub shutdown_delay: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A table and statuses, from everything: a folder of manifests, and `plan`.
    #[default]
    Whole,
    /// The table of one node of a cluster (`run`).
    Node,
    /// The statuses of a cluster's Services (`publish`): without their endpoints, Secrets and names.
    Publisher,
}

impl Settings {
    /// Reads what the flags name.
    pub fn new(mut flags: Flags) -> Result<Self, WrongFlag> {
        let mut remarks = Vec::new();
        let mut algorithm = flags.balance_algorithm;
        if let Some(path) = &flags.cfg {
            let cfg = read_cfg(path)?;
            algorithm = algorithm.or(cfg.algorithm);
            flags.tcp_services.merge(cfg.tcp_services);
            remarks.extend(cfg.remark);
        }
        flags.validate()?;
        if flags.default_class && flags.lb_class.is_none() {
            remarks.push("--default-class changes nothing without --lb-class".to_owned());
        }
        Ok(Self {
            algorithm: algorithm.unwrap_or(Algorithm::RoundRobin),
            another_cluster: false,
            role: Role::default(),
            take_over: false,
            own_namespace: "default".to_owned(),
            admin_port: None,
            announces: false,
            shutdown_delay: Duration::ZERO,
            flags,
            remarks,
        }
        .in_namespace("default"))
    }

    /// The same process and cluster, with the file of `--cfg` read again.
    pub fn read_again(&self, flags: Flags) -> Result<Self, WrongFlag> {
        Ok(Self {
            another_cluster: self.another_cluster,
            own_namespace: self.own_namespace.clone(),
            admin_port: self.admin_port,
            announces: self.announces,
            shutdown_delay: self.shutdown_delay,
            role: self.role,
            take_over: self.take_over,
            ..Self::new(flags)?
        })
    }

    /// The same settings, in the namespace of the client's configuration unless a flag names one.
    pub fn in_namespace(self, configured: &str) -> Self {
        let own_namespace = self.flags.own_namespace.clone();
        Self {
            own_namespace: own_namespace.unwrap_or_else(|| configured.to_owned()),
            ..self
        }
    }

    /// The same settings, for the cluster of these flags. It is another cluster if a kubeconfig names it, and --endpoints-via or
    /// `--use-kubernetes-cluster-service=false` is set.
    pub fn of(self, cluster: &ClusterFlags) -> Result<Self, WrongFlag> {
        let is_said = self.flags.endpoints_via.is_some()
            || cluster.use_kubernetes_cluster_service == Some(false);
        Ok(Self {
            another_cluster: cluster.by_kubeconfig()? && is_said,
            ..self
        })
    }

    /// The same settings, for decisions of this role.
    pub fn in_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// The settings by which ports are given to Services, as text. Nodes and the publisher must have the same.
    pub fn in_common(&self) -> String {
        let flags = &self.flags;
        let mut namespaces: Vec<&String> = flags.namespace.iter().collect();
        namespaces.sort();
        format!(
            "{} {} {namespaces:?} {:?} {} {:?} {:?} {:?} {} {} {:?} {} {} {:?}",
            flags.node_selector,
            flags.ignore_exclude_lb,
            flags.lb_class,
            flags.default_class,
            flags.compat,
            flags.http_services,
            flags.tcp_services,
            flags.http_port,
            flags.stats_port,
            flags.target_service,
            flags.ssl_cert.is_some(),
            flags.max_ports_per_service,
            flags.host_ownership,
        )
    }

    /// Whether endpoints are chosen, or reached, by the nodes that they are on, or addresses announced with other nodes.
    pub fn needs_all_nodes(&self) -> bool {
        self.announces
            || self.flags.target_node_selector.is_some()
            || self.flags.endpoints_via == Some(EndpointsVia::NodePort)
    }

    /// Whether `/healthz` is answered as service-loadbalancer did: at a port of its own, and on the shared ports.
    pub(crate) fn answers_healthz(&self) -> bool {
        self.flags.http_services == HttpServices::All
    }

    /// What a port of the nodes is reserved for, if no Service is given it: a port of Ballast itself, or of `--reserved-ports`.
    pub(crate) fn reserved(&self, port: NodePort) -> Option<String> {
        if let Some(name) = self.own_port(port.number) {
            return Some(format!("{name} ({})", port.number));
        }
        let reserved = &self.flags.reserved_ports;
        (!port.udp && reserved.contains(port.number))
            .then(|| "what runs on nodes (--reserved-ports)".to_owned())
    }

    /// The use of a port that every node keeps for Ballast itself.
    pub(crate) fn own_port(&self, number: u16) -> Option<&'static str> {
        let mut own = self.own_ports().into_iter();
        own.find(|(own, _)| *own == number).map(|(_, name)| name)
    }

    /// The TCP ports that every node keeps for Ballast itself, and what each is. The defaults are among them where a flag moves
    /// a port: another node, or a process that starts later, may use them. A port that one node alone keeps is among them where
    /// there is no other node; in a cluster such a port costs a Service that node only.
    pub fn own_ports(&self) -> Vec<(u16, &'static str)> {
        let mut ports = vec![(self.flags.stats_port, "the stats port")];
        let admin = self.admin_port.filter(|_| self.role == Role::Whole);
        ports.extend(admin.map(|port| (port, "the controller's port")));
        ports.push((STATS_PORT, "the default stats port"));
        ports.push((ADMIN_PORT, "the controller's default port"));
        ports.push((ANNOUNCER_PORT, "the announcer's default port"));
        ports.push((MEMBERS_PORT, "the default port between announcers"));
        ports
    }

    /// The TCP ports that this process and its data plane have on the node, each with its use in a word: for the node's Lease.
    pub(crate) fn ports_here(&self) -> OwnPorts {
        let stats = [("stats", self.flags.stats_port)].into_iter();
        let controller = self.admin_port.map(|port| ("controller", port));
        OwnPorts::of(stats.chain(controller))
    }

    /// Whether the annotations of a family are read.
    pub fn reads(&self, family: Compat) -> bool {
        self.flags.compat.contains(&family)
    }

    /// Whether the address pools of a system are read.
    pub fn reads_pools_of(&self, system: Source) -> bool {
        self.flags.pools.contains(&system)
    }

    /// Whether Services of a namespace are considered.
    pub fn looks_at(&self, namespace: &str) -> bool {
        self.flags.namespace.is_empty() || self.flags.namespace.iter().any(|name| name == namespace)
    }

    /// Whether Services without a class are ours.
    pub fn takes_classless(&self) -> bool {
        self.flags.default_class || self.flags.lb_class.is_none()
    }

    /// Whether LoadBalancer Services of a class are ours.
    pub fn takes(&self, class: Option<&str>) -> bool {
        match class {
            Some(class) => self.flags.lb_class.as_deref() == Some(class),
            None => self.takes_classless(),
        }
    }

    /// The home namespace, whose Services own their bare names.
    pub fn home(&self) -> &str {
        match self.flags.namespace.as_slice() {
            [only] => only,
            _ => "default",
        }
    }
}

/// The shared HTTPS port, as service-loadbalancer had it.
pub const HTTPS_PORT: u16 = 443;

/// The port of service-loadbalancer's `/healthz`.
pub(crate) const HEALTHZ_PORT: u16 = 8081;

const STATS_PORT: u16 = 1936;

const ADMIN_PORT: u16 = 1937;

const ANNOUNCER_PORT: u16 = 1938;

const MEMBERS_PORT: u16 = 7956;

fn read_cfg(path: &Path) -> Result<Cfg, WrongFlag> {
    let read = fs::read(path).map_err(|error| error.to_string());
    let wrong = |why| WrongFlag::new("--cfg", format!("{}: {why}", path.display()));
    read.and_then(|text| Cfg::read(&text)).map_err(wrong)
}

/// A flag whose value is refused.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {why}")]
pub struct WrongFlag {
    pub flag: &'static str,
    pub why: String,
}

impl WrongFlag {
    pub(crate) fn new(flag: &'static str, why: impl fmt::Display) -> Self {
        let why = why.to_string();
        Self { flag, why }
    }
}

/// Where connections go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EndpointsVia {
    /// To the pods.
    #[default]
    Pod,
    /// To the Service's own address; kube-proxy chooses.
    #[value(name = "clusterip")]
    ClusterIp,
    /// To the node ports.
    #[value(name = "nodeport")]
    NodePort,
}

/// A family of annotations that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compat {
    /// service-loadbalancer.
    Contrib,
    /// The OpenStack cloud controller.
    Openstack,
    /// The Exoscale cloud controller.
    Exoscale,
    /// Antrea.
    Antrea,
    /// MetalLB.
    Metallb,
}

/// Which Services the shared port leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HttpServices {
    /// Every one, as service-loadbalancer did.
    All,
    /// Those that ask for it by an annotation.
    #[default]
    Annotated,
    /// None.
    None,
}

/// To whom a host name on the shared ports belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HostOwnership {
    /// To the namespace of the oldest Service with a route for it.
    #[default]
    Namespace,
    /// To nobody.
    None,
}

/// Whether Services that a pool is for get addresses of nodes where it has none left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NodeAddresses {
    #[default]
    Never,
    Fallback,
}

/// Where the body of the default answer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorPage {
    File(PathBuf),
    /// A URL that is fetched once.
    Url(String),
}

#[cfg(test)]
impl Settings {
    /// The settings of a process that is given no flag.
    pub(crate) fn without_flags() -> Self {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            flags: Flags,
        }
        let cli: Cli = clap::Parser::parse_from(["x"]);
        Self::new(cli.flags).expect("defaults that fit together")
    }
}

/// Whether Services of type ExternalName are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExternalNames {
    #[default]
    On,
    Off,
}

fn dns_min_ttl(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|wrong| wrong.to_string())?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    match allowed.contains(&time) {
        true => Ok(time),
        false => Err("expected 1s to 1h".to_owned()),
    }
}

/// Refuses an empty name, which is most often an environment variable that is not set.
fn non_empty(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("is empty; leave the flag out, or give a name".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Parses an algorithm, in the words of every system whose annotations are read.
pub(crate) fn algorithm(text: &str) -> Result<Algorithm, String> {
    Ok(match text.trim() {
        "round-robin" | "roundrobin" | "ROUND_ROBIN" => Algorithm::RoundRobin,
        "least-connections" | "leastconn" | "LEAST_CONNECTIONS" => Algorithm::LeastConnections,
        "source-hash" | "source" | "maglev" | "maglev-hash" | "SOURCE_IP" => Algorithm::SourceHash,
        "source-port-hash" | "SOURCE_IP_PORT" => Algorithm::SourcePortHash,
        "random" => Algorithm::Random,
        "first" => Algorithm::First,
        _ => {
            return Err("is not an algorithm; expected round-robin, least-connections, source-hash, source-port-hash, random or first".to_owned());
        }
    })
}

fn error_page(text: &str) -> Result<ErrorPage, String> {
    if let Some(path) = text.strip_prefix("file://")
        && path.starts_with('/')
    {
        return Ok(ErrorPage::File(path.into()));
    }
    let host = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    match host {
        Some(host) if !host.is_empty() && !host.starts_with('/') => {
            Ok(ErrorPage::Url(text.to_owned()))
        }
        _ => Err("expected file:///PATH, http://HOST/PATH or https://HOST/PATH".to_owned()),
    }
}
