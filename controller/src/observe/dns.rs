//! Resolves names, with how long that holds: getaddrinfo(3) does not say. Used by `names`.
//!
//! A name of an ExternalName Service is a whole one, as a CNAME's is: only if it has no dot, and does not exist, is it
//! looked for in the search domains. The hosts file comes first. Name servers are asked in their order, over UDP, and
//! over TCP where an answer does not fit.

mod config;
mod exchange;
mod message;

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use config::Config;
use exchange::ask;
use message::{Answer, Family};

/// The addresses of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// For each family; `None`: that could not be found out.
    v4: Option<Vec<IpAddr>>,
    v6: Option<Vec<IpAddr>>,
    /// How long that holds.
    pub(super) ttl: Duration,
}

impl Found {
    /// What a name has, if that is all.
    #[cfg(test)]
    pub(super) fn only(v4: &[IpAddr], ttl: Duration) -> Self {
        Self {
            v4: Some(v4.to_vec()),
            v6: Some(Vec::new()),
            ttl,
        }
    }

    /// Takes over what is known better now.
    pub(super) fn update(&mut self, new: Self) {
        self.v4 = new.v4.or_else(|| self.v4.take());
        self.v6 = new.v6.or_else(|| self.v6.take());
        self.ttl = new.ttl;
    }

    /// All of them, in order: servers turn theirs round with every answer.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let both = [&self.v4, &self.v6].into_iter().flatten().flatten();
        let mut addresses: Vec<IpAddr> = both.copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotFound {
    #[error("there is no such name, or it has no address")]
    Nowhere,
    #[error("is no name")]
    NotAName,
    #[error("no name server answered: {0}")]
    Unanswered(String),
}

/// The addresses of a name, at least one.
pub(super) async fn look_up(name: &str) -> Result<Found, NotFound> {
    let hosts = fs::read_to_string(HOSTS).unwrap_or_default();
    if let Some(addresses) = config::in_hosts(&hosts, name) {
        let of = |v4: bool| {
            let family = addresses.iter().filter(|address| address.is_ipv4() == v4);
            Some(family.copied().collect())
        };
        return Ok(Found {
            v4: of(true),
            v6: of(false),
            ttl: Duration::from_secs(5),
        });
    }
    let config = Config::read(&fs::read_to_string(RESOLV_CONF).unwrap_or_default());
    look_up_with(&config, name).await
}

async fn look_up_with(config: &Config, name: &str) -> Result<Found, NotFound> {
    for name in config.candidates(name) {
        let (v4, v6) = tokio::join!(
            ask(config, &name, Family::V4),
            ask(config, &name, Family::V6)
        );
        let mut found = Found {
            v4: None,
            v6: None,
            ttl: Duration::MAX,
        };
        let mut failed = None;
        for (answer, of_family) in [(v4, &mut found.v4), (v6, &mut found.v6)] {
            match answer {
                Ok(Answer::Records { addresses, ttl }) => {
                    // What is not there says nothing about how long the rest holds.
                    if !addresses.is_empty() {
                        found.ttl = found.ttl.min(ttl);
                    }
                    *of_family = Some(addresses);
                }
                Ok(_) => *of_family = Some(Vec::new()),
                Err(error) => failed = Some(error),
            }
        }
        if !found.addresses().is_empty() {
            return Ok(found);
        }
        // Somebody else's name instead of one that may exist: no.
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Err(NotFound::Nowhere)
}

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

#[cfg(test)]
mod tests;
