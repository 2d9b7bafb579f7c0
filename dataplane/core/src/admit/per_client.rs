//! The limits per client: how many connections a client has, and how fast it opens new ones.
//!
//! Created for a frontend when the first client comes while such a limit is set. An entry lives while its client has a
//! connection or has opened one within the last second, so other limits bound the number of entries.

use std::net::IpAddr;

use crate::clients::{ClientKey, Entry, NEVER, Shards};
use crate::moment::Moment;

use super::Refusal;
use super::rate::Bucket;

#[derive(Debug)]
pub(super) struct Clients(Shards<Usage>);

impl Clients {
    pub(super) fn new(seed: [u64; 2]) -> Self {
        Self(Shards::new(seed, ROOM))
    }

    /// Counts one more connection of `client`. [`Clients::leave`] reverts it.
    pub(super) fn enter(
        &self,
        client: IpAddr,
        connections: Option<u32>,
        rate: Option<u32>,
        now: Moment,
    ) -> Result<ClientKey, Refusal> {
        let client = ClientKey::network(client);
        self.0
            .with_or_new(client, now, Usage::default, |usage| {
                if connections.is_some_and(|max| usage.connections >= max) {
                    return Err(Refusal::MaxConnectionsPerClient);
                }
                if let Some(rate) = rate {
                    usage.bucket = usage
                        .bucket
                        .take(rate, now)
                        .map_err(|_| Refusal::MaxConnectionRatePerClient)?;
                }
                usage.connections = usage.connections.saturating_add(1);
                Ok(client)
            })
            .unwrap_or(Ok(client))
    }

    pub(super) fn leave(&self, client: ClientKey) {
        self.0.forget_if(client, |usage| {
            usage.connections = usage.connections.saturating_sub(1);
            usage.connections == 0 && usage.bucket == Bucket::default()
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Debug, Default)]
struct Usage {
    connections: u32,
    bucket: Bucket,
}

impl Entry for Usage {
    fn until(&self) -> Moment {
        if self.connections > 0 {
            return NEVER;
        }
        self.bucket.full_at()
    }
}

/// The entries of a shard above which clients without a connection are evicted: 262,144 clients in all.
const ROOM: usize = 4096;
