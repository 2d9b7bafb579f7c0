//! The keys by which a flow is found: the addresses of a datagram, or the flow's id.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::clients::canonical;
use crate::clients::ipv6_halves;

/// The number of a listening socket. The caller assigns it and never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listener(pub u32);

/// The addresses of a client's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The socket that received it.
    pub listener: Listener,
    /// The sender, exactly as the system reports it. Replies go there.
    pub peer: SocketAddr,
    /// The local address that it was sent to. Replies leave from there.
    pub local: IpAddr,
    /// The client: the peer, or the client that the peer's PROXY header names. In canonical form.
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

/// Hashes one or two words instead of single bytes.
fn hash_ip<H: Hasher>(ip: IpAddr, state: &mut H) {
    match ip {
        IpAddr::V4(ip) => state.write_u64(u64::from(ip.to_bits())),
        ip => {
            for half in ipv6_halves(ip) {
                state.write_u64(half);
            }
        }
    }
}

/// A [`Key`], and the endpoint if datagrams are balanced one by one, because each endpoint then has a flow of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FullKey {
    pub(super) key: Key,
    pub(super) endpoint: Option<SocketAddr>,
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

/// A [`FullKey`] in little memory: there is one for each flow, and each datagram compares one. Most are of a peer that is the
/// client itself and has one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Compact {
    V4 {
        listener: Listener,
        peer: Ipv4Addr,
        local: Ipv4Addr,
        port: u16,
    },
    V6 {
        listener: Listener,
        peer: Ipv6Addr,
        scope: u32,
        local: Ipv6Addr,
        port: u16,
    },
    Other(Box<FullKey>),
}

impl Compact {
    /// Makes the compact form of a key, and of the endpoint if the flow is for that endpoint only.
    pub(super) fn new(key: &Key, endpoint: Option<SocketAddr>) -> Self {
        let is_plain = endpoint.is_none() && key.client == canonical(key.peer);
        match (key.peer, key.local) {
            (SocketAddr::V4(peer), IpAddr::V4(local)) if is_plain => Self::V4 {
                listener: key.listener,
                peer: *peer.ip(),
                local,
                port: peer.port(),
            },
            (SocketAddr::V6(peer), IpAddr::V6(local)) if is_plain && peer.flowinfo() == 0 => {
                Self::V6 {
                    listener: key.listener,
                    peer: *peer.ip(),
                    scope: peer.scope_id(),
                    local,
                    port: peer.port(),
                }
            }
            _ => Self::Other(Box::new(FullKey {
                key: *key,
                endpoint,
            })),
        }
    }

    pub(super) fn key(&self) -> Key {
        let (listener, peer, local) = match *self {
            Self::V4 {
                listener,
                peer,
                local,
                port,
            } => (listener, SocketAddrV4::new(peer, port).into(), local.into()),
            Self::V6 {
                listener,
                peer,
                scope,
                local,
                port,
            } => (
                listener,
                SocketAddrV6::new(peer, port, 0, scope).into(),
                local.into(),
            ),
            Self::Other(ref full) => return full.key,
        };
        Key {
            listener,
            peer,
            local,
            client: canonical(peer),
        }
    }
}

impl Hash for Compact {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::V4 {
                listener,
                peer,
                local,
                port,
            } => {
                state.write_u64(u64::from(peer.to_bits()) << 32 | u64::from(local.to_bits()));
                state.write_u64(u64::from(*port) << 32 | u64::from(listener.0));
            }
            Self::V6 {
                listener,
                peer,
                scope,
                local,
                port,
            } => {
                hash_ip((*peer).into(), state);
                hash_ip((*local).into(), state);
                state.write_u64(u64::from(*port) << 32 | u64::from(listener.0));
                state.write_u64(u64::from(*scope));
            }
            Self::Other(full) => full.hash(state),
        }
    }
}
