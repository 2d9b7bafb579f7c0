//! The part of the file about routers. The fields mean what MetalLB's mean.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ballast_core::table::Wrong;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::values::{duration, duration_if_any, duration_or_zero};

/// The routers that are told, and what they are told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Bgp {
    /// Where BIRD is.
    pub bird: Bird,
    /// The id of this router.
    pub router_id: Ipv4Addr,
    /// The number of this router's autonomous system.
    pub my_asn: u32,
    /// The routers.
    pub peers: Vec<Peer>,
    /// How addresses are advertised. Empty: each by itself, to all peers, with nothing added.
    #[serde(default)]
    pub advertisements: Vec<Advertisement>,
}

/// The files of BIRD.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Bird {
    /// The configuration that is written for it.
    pub config: PathBuf,
    /// Its control socket.
    pub socket: PathBuf,
}

/// A router.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Peer {
    /// Its name, for advertisements and for people.
    pub name: String,
    /// The number of its autonomous system.
    pub peer_asn: u32,
    /// Its address.
    pub peer_address: IpAddr,
    /// The interface that leads to it, which a link-local address needs.
    #[serde(default)]
    pub interface: Option<String>,
    /// Its port.
    #[serde(default = "bgp_port")]
    pub peer_port: u16,
    /// The address of this node that the session comes from.
    #[serde(default)]
    pub source_address: Option<IpAddr>,
    /// The number of this router's autonomous system in this session. `None`: [`Bgp::my_asn`].
    #[serde(default)]
    pub local_asn: Option<u32>,
    /// The id of this router in this session. `None`: [`Bgp::router_id`].
    #[serde(default)]
    pub router_id: Option<Ipv4Addr>,
    /// After so long without a message the session is over. Zero: it does not end by silence.
    #[serde(default = "hold_time", deserialize_with = "duration_or_zero")]
    pub hold_time: Duration,
    /// How often a message is sent. `None`: a third of the hold time.
    #[serde(default, deserialize_with = "duration_if_any")]
    pub keepalive_time: Option<Duration>,
    /// How long until another attempt to connect. `None`: BIRD's own.
    #[serde(default, deserialize_with = "duration_if_any")]
    pub connect_time: Option<Duration>,
    /// The password of TCP-MD5 (RFC 2385).
    #[serde(default)]
    pub password: Option<Password>,
    /// Whether the router is more than one hop away.
    #[serde(default)]
    pub multihop: bool,
    /// The VRF of the session.
    #[serde(default)]
    pub vrf: Option<String>,
    /// Whether the router keeps the routes while BIRD restarts.
    #[serde(default)]
    pub graceful_restart: bool,
    /// How a dead link is found quickly. `None`: by the hold time only.
    #[serde(default)]
    pub bfd: Option<Bfd>,
}

const fn bgp_port() -> u16 {
    179
}

/// MetalLB's.
const fn hold_time() -> Duration {
    Duration::from_secs(90)
}

/// A password, which no log shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl Password {
    /// The password itself, for BIRD's configuration.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a password")
    }
}

/// Bidirectional forwarding detection (RFC 5880).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Bfd {
    /// How often packets may arrive.
    #[serde(default = "bfd_interval", deserialize_with = "duration")]
    pub receive_interval: Duration,
    /// How often packets are sent.
    #[serde(default = "bfd_interval", deserialize_with = "duration")]
    pub transmit_interval: Duration,
    /// How many missing packets end the session.
    #[serde(default = "bfd_multiplier")]
    pub detect_multiplier: u8,
    /// Whether the router begins.
    #[serde(default)]
    pub passive_mode: bool,
}

/// MetalLB's.
const fn bfd_interval() -> Duration {
    Duration::from_millis(300)
}

const fn bfd_multiplier() -> u8 {
    3
}

/// How addresses are advertised.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Advertisement {
    /// The addresses that are advertised so. Empty: all.
    #[serde(default)]
    pub addresses: BTreeSet<IpAddr>,
    /// The length of the prefix that stands for an IPv4 address.
    #[serde(default = "single_v4")]
    pub aggregation_length: u8,
    /// The length of the prefix that stands for an IPv6 address.
    #[serde(default = "single_v6")]
    pub aggregation_length_v6: u8,
    /// The local preference, which only peers of the own system are told.
    #[serde(default)]
    pub local_pref: Option<u32>,
    /// The communities.
    #[serde(default)]
    pub communities: Vec<Community>,
    /// The peers that are told. Empty: all.
    #[serde(default)]
    pub peers: Vec<String>,
}

const fn single_v4() -> u8 {
    32
}

const fn single_v6() -> u8 {
    128
}

impl Default for Advertisement {
    fn default() -> Self {
        Self {
            addresses: BTreeSet::new(),
            aggregation_length: single_v4(),
            aggregation_length_v6: single_v6(),
            local_pref: None,
            communities: Vec::new(),
            peers: Vec::new(),
        }
    }
}

impl Advertisement {
    /// Whether this address is advertised so.
    #[must_use]
    pub fn is_of(&self, address: IpAddr) -> bool {
        self.addresses.is_empty() || self.addresses.contains(&address)
    }

    /// Whether both may be of one address.
    pub(super) fn may_share_with(&self, other: &Self) -> bool {
        self.addresses.is_empty()
            || other.addresses.is_empty()
            || !self.addresses.is_disjoint(&other.addresses)
    }

    /// Whether this peer is told.
    #[must_use]
    pub fn is_for(&self, peer: &str) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|name| name == peer)
    }
}

/// A mark on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Community {
    /// `64512:7` (RFC 1997)
    Standard(u16, u16),
    /// `large:64512:1:2` (RFC 8092)
    Large(u32, u32, u32),
}

impl FromStr for Community {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let parts: Vec<&str> = text.split(':').collect();
        // `parse` would take a sign, too.
        let is_plain = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
        let read = || match parts[..] {
            ["large", one, two, three] if [one, two, three].iter().all(is_plain) => Some(
                Self::Large(one.parse().ok()?, two.parse().ok()?, three.parse().ok()?),
            ),
            [one, two] if [one, two].iter().all(is_plain) => {
                Some(Self::Standard(one.parse().ok()?, two.parse().ok()?))
            }
            _ => None,
        };
        read().ok_or_else(|| Wrong {
            why: "is not a community".to_owned(),
            remedy: "expected two numbers up to 65535 such as 64512:7, or large:64512:1:2"
                .to_owned(),
        })
    }
}

impl<'de> Deserialize<'de> for Community {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        text.parse().map_err(Error::custom)
    }
}
