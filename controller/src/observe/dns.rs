//! Resolves names, with the time to live of the answers, which getaddrinfo(3) does not give. Used by `names`.
//!
//! The name of an ExternalName Service is a whole one, as a CNAME's is: the search domains are tried only for a name without a dot
//! that does not exist. The hosts file comes first. Name servers are asked in the order of resolv.conf, over UDP, and over TCP where
//! an answer does not fit. Both files are read again for every lookup.
//!
//! Each request is made by a resolver of hickory-resolver with one name server: given several, the crate asks no other one after a
//! SERVFAIL, or after a server that is silent for the whole timeout.

mod config;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::time::timeout;

use config::Config;

/// The addresses of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The addresses of each family; `None`: no server answered.
    v4: Option<Vec<IpAddr>>,
    v6: Option<Vec<IpAddr>>,
    /// The time to live.
    pub(super) ttl: Duration,
}

impl Resolved {
    /// A name with these addresses only.
    #[cfg(test)]
    pub(super) fn only(v4: &[IpAddr], ttl: Duration) -> Self {
        Self {
            v4: Some(v4.to_vec()),
            v6: Some(Vec::new()),
            ttl,
        }
    }

    /// Replaces the addresses of each family that `new` has an answer for.
    pub(super) fn update(&mut self, new: Self) {
        self.v4 = new.v4.or_else(|| self.v4.take());
        self.v6 = new.v6.or_else(|| self.v6.take());
        self.ttl = new.ttl;
    }

    /// The addresses of both families, sorted: servers rotate theirs with every answer.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let both = [&self.v4, &self.v6].into_iter().flatten().flatten();
        let mut addresses: Vec<IpAddr> = both.copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// The reason for which a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("there is no such name, or it has no address")]
    NoAddress,
    #[error("is no name")]
    NotAName,
    #[error("no name server answered: {0}")]
    Unanswered(String),
}

/// The addresses of a name, at least one.
pub(super) async fn look_up(name: &str) -> Result<Resolved, ResolveError> {
    let hosts = fs::read_to_string(HOSTS).unwrap_or_default();
    if let Some(found) = config::in_hosts(&hosts, name) {
        return Ok(found);
    }
    let config = Config::read(&fs::read_to_string(RESOLV_CONF).unwrap_or_default());
    look_up_with(&config, name).await
}

async fn look_up_with(config: &Config, name: &str) -> Result<Resolved, ResolveError> {
    for name in config.candidates(name) {
        let name = Name::from_ascii(format!("{name}.")).ok();
        let name = name
            .filter(|name| !name.is_root())
            .ok_or(ResolveError::NotAName)?;
        let (v4, v6) = tokio::join!(
            ask(config, &name, RecordType::A),
            ask(config, &name, RecordType::AAAA)
        );
        let mut found = Resolved {
            ttl: Duration::MAX,
            ..Resolved::default()
        };
        let mut failed = None;
        for (answer, of_family) in [(v4, &mut found.v4), (v6, &mut found.v6)] {
            match answer {
                Ok(answer) => {
                    found.ttl = found.ttl.min(answer.ttl);
                    *of_family = Some(answer.addresses);
                }
                Err(error) => failed = Some(error),
            }
        }
        if !found.addresses().is_empty() {
            return Ok(found);
        }
        // The name may exist: the same name in a search domain is another one.
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Err(ResolveError::NoAddress)
}

/// The addresses of one family.
struct FamilyAddresses {
    addresses: Vec<IpAddr>,
    /// The shortest time to live of the addresses and their aliases. The longest possible where there are no addresses.
    ttl: Duration,
}

impl FamilyAddresses {
    fn new(lookup: &Lookup, name: &Name, kind: RecordType) -> Self {
        let answers = lookup.answers().iter();
        let answers = answers.filter(|record| record.record_type() == kind);
        // Behind an alias, the crate returns the records of its target only. Otherwise, there may be records of other names.
        let has_own = answers.clone().any(|record| record.name == *name);
        let of_name = answers.filter(|record| !has_own || record.name == *name);
        let mut answer = Self {
            addresses: Vec::new(),
            ttl: Duration::MAX,
        };
        for record in of_name {
            answer.addresses.extend(record.data.ip_addr());
            answer.ttl = answer.ttl.min(Duration::from_secs(record.ttl.into()));
        }
        answer
    }
}

/// The answer of the first server that has one. No records are an answer, too.
async fn ask(
    config: &Config,
    name: &Name,
    kind: RecordType,
) -> Result<FamilyAddresses, ResolveError> {
    let mut why = "there is none".to_owned();
    for _ in 0..config.attempts {
        for server in &config.servers {
            let asked = timeout(config.timeout, ask_one(*server, config, name, kind)).await;
            why = match asked {
                Ok(Ok(lookup)) => return Ok(FamilyAddresses::new(&lookup, name, kind)),
                Ok(Err(error)) if error.is_no_records_found() => {
                    return Ok(FamilyAddresses {
                        addresses: Vec::new(),
                        ttl: Duration::MAX,
                    });
                }
                Ok(Err(error)) => format!("{server}: {error}"),
                Err(_) => format!("{server} did not answer in time"),
            };
        }
    }
    Err(ResolveError::Unanswered(why))
}

async fn ask_one(
    server: SocketAddr,
    config: &Config,
    name: &Name,
    kind: RecordType,
) -> Result<Lookup, NetError> {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    let connections = connections.map(|mut connection| {
        connection.port = server.port();
        connection
    });
    let server = NameServerConfig::new(server.ip(), true, connections.into());
    let servers = ResolverConfig::from_name_servers(vec![server]);
    let mut builder = TokioResolver::builder_with_config(servers, TokioRuntimeProvider::default());
    let options: &mut ResolverOpts = builder.options_mut();
    options.timeout = config.timeout;
    options.attempts = 0;
    options.cache_size = 0;
    options.edns0 = false;
    options.use_hosts_file = ResolveHosts::Never;
    options.preserve_intermediates = false;
    builder.build()?.lookup(name.clone(), kind).await
}

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

#[cfg(test)]
mod tests;
