//! How a flow is found: by where a datagram came from and went to, or by its number.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use crate::pick::Picked;

/// A listening socket, by a number that the shell gives it and never gives again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listener(pub u32);

/// Where a datagram of a client came from and went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The socket that it came to.
    pub listener: Listener,
    /// Who sent it, exactly as the system says: answers go there.
    pub peer: SocketAddr,
    /// The address of ours that it was sent to: answers come from there.
    pub local: IpAddr,
    /// Whose it is: the peer, or whom a PROXY header of the peer names; an IPv4 address in its one form.
    pub client: SocketAddr,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_ip(self.peer.ip(), state);
        hash_ip(self.local, state);
        let ports = u64::from(self.peer.port()) << 16 | u64::from(self.client.port());
        state.write_u64(ports << 32 | u64::from(self.listener.0));
        if self.client.ip() != self.peer.ip() {
            hash_ip(self.client.ip(), state);
        }
    }
}

/// A word or two instead of a byte at a time.
fn hash_ip<H: Hasher>(ip: IpAddr, state: &mut H) {
    match ip {
        IpAddr::V4(ip) => state.write_u64(u64::from(ip.to_bits())),
        IpAddr::V6(ip) => {
            let [high, low] = [ip.to_bits() >> 64, ip.to_bits() & u128::from(u64::MAX)];
            state.write_u64(u64::try_from(high).unwrap_or(0));
            state.write_u64(u64::try_from(low).unwrap_or(0));
        }
    }
}

/// A [`Key`], and where datagrams are balanced one by one the endpoint, of which each has a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FullKey {
    pub(super) key: Key,
    pub(super) endpoint: Option<SocketAddr>,
}

impl FullKey {
    /// Of a datagram that goes to whom was picked for it alone.
    pub(super) fn to(key: Key, picked: &Picked) -> Self {
        Self {
            key,
            endpoint: Some(picked.lease.address()),
        }
    }
}

impl Hash for FullKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
        if let Some(endpoint) = self.endpoint {
            hash_ip(endpoint.ip(), state);
            state.write_u64(endpoint.port().into());
        }
    }
}

/// A flow. One that has ended has a number that no other flow gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    pub(super) place: u32,
    pub(super) turn: u32,
}

impl FlowId {
    /// As one number, for the system to give back.
    #[must_use]
    pub fn bits(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.place)
    }

    /// From what [`FlowId::bits`] made of it.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, rest @ ..] = bits.to_be_bytes();
        Self {
            place: u32::from_be_bytes(rest),
            turn: u32::from_be_bytes([a, b, c, d]),
        }
    }
}
