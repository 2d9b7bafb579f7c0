//! What counts as one client of the admin side.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// An IPv4 address, or an IPv6 /64 network, in which a host may use any address. All link-local addresses of IPv6 are in one such network: each of
/// them is one client, with its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client(IpAddr, u32);

impl Client {
    pub(super) fn of(from: SocketAddr) -> Self {
        match (from.ip().to_canonical(), from) {
            (IpAddr::V6(v6), SocketAddr::V6(from)) if v6.is_unicast_link_local() => {
                Self(v6.into(), from.scope_id())
            }
            (IpAddr::V6(v6), _) => Self(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(), 0),
            (v4, _) => Self(v4, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network() {
        for (one, other, is_same) in [
            ("192.0.2.1:5", "192.0.2.1:6", true),
            ("192.0.2.1:5", "[::ffff:192.0.2.1]:6", true),
            ("192.0.2.1:5", "192.0.2.2:5", false),
            ("[2001:db8::1]:5", "[2001:db8::ffff:2]:6", true),
            ("[2001:db8::1]:5", "[2001:db8:0:1::1]:5", false),
            ("[fe80::1%2]:5", "[fe80::1%2]:6", true),
            ("[fe80::1%2]:5", "[fe80::2%2]:5", false),
            ("[fe80::1%2]:5", "[fe80::1%3]:5", false),
        ] {
            let [first, second] = [one, other].map(|from| Client::of(from.parse().unwrap()));
            assert_eq!(first == second, is_same, "{one} {other}");
        }
    }
}
