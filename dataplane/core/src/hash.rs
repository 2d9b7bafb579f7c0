//! The hashes by which all workers, processes and machines agree on a client's endpoint. They are never seeded and never
//! change: a release with other hashes would assign the clients of its neighbours elsewhere.

use std::net::{IpAddr, SocketAddr};

use crate::clients::ipv6_halves;
use crate::rng::mix;

/// The hash of a client, by its address or by its address and port.
pub(crate) fn client_hash(client: SocketAddr, with_port: bool) -> u64 {
    let ip = ip_hash(client.ip());
    if with_port {
        mix(ip ^ u64::from(client.port()).wrapping_mul(CLIENT_PORTS))
    } else {
        ip
    }
}

/// The hash of an endpoint's `IP:PORT`, which is its identity in its service.
pub(crate) fn endpoint_hash(address: SocketAddr) -> u64 {
    mix(ip_hash(address.ip()) ^ u64::from(address.port()).wrapping_mul(ENDPOINT_PORTS))
}

/// The hash of an IPv6 address. An IPv4 address is hashed as the IPv6 address that it is mapped to.
fn ip_hash(ip: IpAddr) -> u64 {
    let [high, low] = ipv6_halves(ip);
    mix(mix(high ^ ADDRESSES) ^ low)
}

const ADDRESSES: u64 = 0x2545_f491_4f6c_dd1d;
const CLIENT_PORTS: u64 = 0x9fb2_1c65_1e98_df25;
const ENDPOINT_PORTS: u64 = 0xd6e8_feb8_6659_fd93;
