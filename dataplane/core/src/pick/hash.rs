//! The hashes by which all workers, processes and machines agree where a client goes. Never seeded, never changed: a
//! release that hashes otherwise sends the clients of its neighbours elsewhere.

use std::net::{IpAddr, SocketAddr};

use crate::rng::mix;

use super::{Key, Way};

/// Of a client, by its address or by its address and port.
pub(super) fn client_hash(key: &Key, way: Way) -> u64 {
    let ip = ip_hash(key.client.ip());
    match way {
        Way::ByClientAndPort => mix(ip ^ u64::from(key.client.port()).wrapping_mul(CLIENT_PORTS)),
        Way::ByClient | Way::Rotate | Way::Least | Way::TwoChoices | Way::First => ip,
    }
}

/// Of an endpoint's `IP:PORT`, which is its identity in its service.
pub(crate) fn endpoint_hash(address: SocketAddr) -> u64 {
    mix(ip_hash(address.ip()) ^ u64::from(address.port()).wrapping_mul(ENDPOINT_PORTS))
}

/// Of the 16 bytes of an IPv6 address; an IPv4 address is hashed as the IPv6 address that it is mapped to.
fn ip_hash(ip: IpAddr) -> u64 {
    let bits = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .to_bits();
    let [high, low] = [bits >> 64, bits & u128::from(u64::MAX)]
        .map(|half| u64::try_from(half).unwrap_or_default());
    mix(mix(high ^ ADDRESSES) ^ low)
}

const ADDRESSES: u64 = 0x2545_f491_4f6c_dd1d;
const CLIENT_PORTS: u64 = 0x9fb2_1c65_1e98_df25;
const ENDPOINT_PORTS: u64 = 0xd6e8_feb8_6659_fd93;
