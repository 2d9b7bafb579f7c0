//! The flags of the commands `run` and `publish`: where the cluster is, where the table goes, what is written, where the process
//! answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use ballast_announce::file::Return;
use ballast_core::table::parse_duration;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use serde::Deserialize;
use serde::de::{self, IntoDeserializer};

use super::{ErrorPage, Flags, HEALTHZ_PORT, HttpServices, Role, Settings, WrongFlag};
use crate::log;
use crate::pem::{CERT, KEY};

#[derive(Clone, Debug, Args)]
pub struct ClusterFlags {
    /// How to reach the cluster [default: as a pod of it]
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Reach the cluster as a pod of it; false: by a kubeconfig [default: true without --kubeconfig and --context]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub use_kubernetes_cluster_service: Option<bool>,
}

impl ClusterFlags {
    /// Whether the cluster is reached by a kubeconfig.
    pub fn by_kubeconfig(&self) -> Result<bool, WrongFlag> {
        let is_told = self.kubeconfig.is_some() || self.context.is_some();
        match self.use_kubernetes_cluster_service {
            Some(true) if is_told => Err(WrongFlag::new(
                "--use-kubernetes-cluster-service",
                "does not go with --kubeconfig and --context",
            )),
            Some(is_pod) => Ok(!is_pod),
            None => Ok(is_told),
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// Serve from this folder of manifests, watched, and no cluster
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "use_kubernetes_cluster_service"])]
    pub manifests: Option<PathBuf>,
    /// The folder that `ballast run --table` is given
    #[arg(
        long,
        value_name = "DIR",
        env = "BALLAST_TABLE",
        required_unless_present = "dry"
    )]
    pub table_dir: Option<PathBuf>,
    /// Print what would be served, and why, once; change nothing
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry: bool,
    /// Where the data plane answers /readyz [default: 127.0.0.1 at --stats-port]
    #[arg(long, value_name = "ADDR")]
    pub dataplane: Option<SocketAddr>,
    /// How long this node's Lease holds without renewal; it is renewed three times as often
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = lease_duration)]
    pub lease_duration: Duration,
    /// How long a node that is no load balancer any more serves on, once it has given its Lease back
    #[arg(long, value_name = "TIME", env = "BALLAST_SHUTDOWN_DELAY", default_value = "5s", value_parser = shutdown_delay)]
    pub shutdown_delay: Duration,
    #[command(flatten)]
    pub announce: AnnounceFlags,
    #[command(flatten)]
    pub process: AdminFlags,
    #[command(flatten)]
    pub flags: Flags,
}

/// What `run` writes for the announcer of its node.
#[derive(Clone, Debug, Args)]
pub struct AnnounceFlags {
    /// Write the file of `ballast-controller announce` here: the addresses of pools that this node serves
    #[arg(long, env = "BALLAST_ANNOUNCE_FILE", value_name = "PATH")]
    pub announce_file: Option<PathBuf>,
    /// Where the announcer writes its ack [default: announce-ack.json beside --announce-file]
    #[arg(long, env = "BALLAST_ANNOUNCE_ACK", value_name = "PATH")]
    pub announce_ack: Option<PathBuf>,
    /// The UDP port at which the announcers of all nodes take datagrams of each other
    #[arg(long, env = "BALLAST_ANNOUNCE_PORT", value_name = "PORT", default_value_t = super::MEMBERS_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub announce_port: u16,
    /// The file with their keys, as the announcer reaches it: absolute, or beside --announce-file
    #[arg(
        long,
        env = "BALLAST_ANNOUNCE_KEY",
        value_name = "PATH",
        default_value = "members.key"
    )]
    pub announce_key: PathBuf,
    /// The runtime socket of the data plane, as the announcer reaches it [default: only /readyz is asked]
    #[arg(long, env = "BALLAST_ANNOUNCE_SOCKET", value_name = "PATH")]
    pub announce_socket: Option<PathBuf>,
    /// The folder with BIRD's configuration, which the announcer writes, and its control socket [default: that of the file]
    #[arg(long, env = "BALLAST_ANNOUNCE_BIRD", value_name = "DIR")]
    pub announce_bird: Option<PathBuf>,
    /// When a node that was away gets its addresses back
    #[arg(
        long,
        env = "BALLAST_ANNOUNCE_RETURN",
        value_name = "WHEN",
        value_parser = return_parser(),
        default_value = "delayed"
    )]
    pub announce_return: Return,
}

/// Reads the words of the announcer's file.
fn return_parser() -> impl TypedValueParser<Value = Return> {
    let words = [
        ("delayed", "After 30 s of good health"),
        ("never", "When no other node can hold them"),
        ("at-once", "As soon as it is back"),
    ];
    let words = words.map(|(word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(words).try_map(|word| {
        Return::deserialize(word.into_deserializer()) as Result<_, de::value::Error>
    })
}

/// Where a process answers, and how it logs.
#[derive(Clone, Debug, Args)]
pub struct AdminFlags {
    /// Where this process answers /healthz, /readyz and /metrics, or `none`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:1937", value_parser = admin_address)]
    pub admin: AdminAddress,
    /// How lines on stderr look
    #[arg(long, value_name = "F", value_enum, default_value_t)]
    pub log_format: log::Format,
    /// Which lines there are on stderr: these, and all that matter more
    #[arg(long, value_name = "L", value_enum, default_value_t)]
    pub log_level: log::Level,
}

/// The flags of `publish`. Those that decide which Service gets which port must be the same as for `run`.
#[derive(Clone, Debug, Args)]
pub struct PublishFlags {
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// Add a finalizer to Services, so that their addresses are removed before they are deleted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    pub finalizer: bool,
    /// Publish Services that another controller has published, once it has not written their status for a minute
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub take_over: bool,
    #[command(flatten)]
    pub process: AdminFlags,
    #[command(flatten)]
    pub flags: Flags,
}

impl PublishFlags {
    /// The settings of decisions; an error names the flag that is refused.
    pub fn settings(&self) -> Result<Settings, WrongFlag> {
        Ok(Settings {
            take_over: self.take_over,
            role: Role::Publisher,
            ..Settings::new(self.flags.clone())?.of(&self.cluster)?
        })
    }
}

impl RunFlags {
    /// The settings of decisions; an error names the flag that is refused.
    pub fn settings(&self) -> Result<Settings, WrongFlag> {
        let flags = &self.flags;
        if let Some(folder) = &self.manifests {
            fs::read_dir(folder).map_err(unreadable("--manifests", folder))?;
        }
        let page = flags.error_page.as_ref().and_then(|page| match page {
            ErrorPage::File(path) => Some(path),
            ErrorPage::Url(_) => None,
        });
        let files = [
            ("--ssl-cert", flags.ssl_cert.as_ref(), &[CERT, KEY][..]),
            ("--ssl-ca-cert", flags.ssl_ca_cert.as_ref(), &[CERT]),
            ("--error-page", page, &[]),
        ];
        for (flag, path, parts) in files {
            let Some(path) = path else { continue };
            let bytes = fs::read(path).map_err(unreadable(flag, path))?;
            if let Some(flaw) = parts.iter().find_map(|part| part.flaw(&bytes)) {
                return Err(WrongFlag::new(flag, format!("{} {flaw}", path.display())));
            }
        }
        self.addresses_agree()?;
        if self.announce.announce_file.is_some() && flags.node_name.is_none() {
            let why = "needs --node-name: the announcer calls this node so";
            return Err(WrongFlag::new("--announce-file", why));
        }
        Ok(Settings {
            admin_port: match self.process.admin {
                AdminAddress::At(address) => Some(address.port()),
                AdminAddress::Nowhere => None,
            },
            announces: self.announce.announce_file.is_some(),
            shutdown_delay: self.shutdown_delay,
            ..Settings::new(flags.clone())?.of(&self.cluster)?
        })
    }

    /// Refuses a port of this process that the data plane has too.
    fn addresses_agree(&self) -> Result<(), WrongFlag> {
        let AdminAddress::At(admin) = self.process.admin else {
            return Ok(());
        };
        let (port, dataplane) = (admin.port(), self.dataplane());
        let is_unspecified = admin.ip().is_unspecified() || dataplane.ip().is_unspecified();
        let is_one_host = is_unspecified || admin.ip() == dataplane.ip();
        let is_all = self.flags.http_services == HttpServices::All;
        let flag = match port {
            _ if port == self.flags.stats_port => "--stats-port",
            _ if port == self.flags.http_port => "--http-port",
            HEALTHZ_PORT if is_all => {
                let why = format!("{HEALTHZ_PORT} is the health port of --http-services=all");
                return Err(WrongFlag::new("--admin", why));
            }
            _ if port == dataplane.port() && is_one_host => "--dataplane",
            _ => return Ok(()),
        };
        let why = format!("{port} is where this process answers for itself (--admin)");
        Err(WrongFlag::new(flag, why))
    }

    /// The address at which the data plane is asked.
    pub fn dataplane(&self) -> SocketAddr {
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, self.flags.stats_port));
        self.dataplane.unwrap_or(own)
    }
}

fn unreadable(flag: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WrongFlag {
    move |error| WrongFlag::new(flag, format!("{}: {error}", path.display()))
}

/// The address of the admin server, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    Nowhere,
    At(SocketAddr),
}

fn admin_address(text: &str) -> Result<AdminAddress, String> {
    if text == "none" {
        return Ok(AdminAddress::Nowhere);
    }
    // An IPv6 address without brackets is taken too: Kubernetes gives that of a pod so.
    let apart = || {
        let (address, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
    };
    let place = text.parse().ok().or_else(apart).map(AdminAddress::At);
    place.ok_or_else(|| "expected IP:PORT or none".to_owned())
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(seconds @ 3..=300) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected 3s to 300s".to_owned()),
    }
}

/// As the data plane reads its own: a bare number is seconds, and it may be none.
fn shutdown_delay(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u64>().map(|seconds| format!("{seconds}s"));
    match seconds.as_deref().unwrap_or(text) {
        "0s" => Ok(Duration::ZERO),
        text => parse_duration(text).map_err(|wrong| wrong.to_string()),
    }
}
