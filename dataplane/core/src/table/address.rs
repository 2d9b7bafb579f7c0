//! Where clients connect to, where endpoints are, and ranges of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};

use super::leaf::{Leaf, Wrong, leaf};

/// Where a frontend, or the admin side, listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bind {
    /// `*:PORT`: 0.0.0.0 and, where the kernel has IPv6, `[::]`.
    Any {
        /// The port; 0 lets the kernel choose.
        port: u16,
    },
    /// One address. IPv6 sockets never take IPv4 clients.
    Exact(SocketAddr),
}

impl Bind {
    /// The port; 0 lets the kernel choose.
    pub fn port(&self) -> u16 {
        match self {
            Self::Any { port } => *port,
            Self::Exact(address) => address.port(),
        }
    }

    /// The addresses of its sockets.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let (first, second) = match *self {
            Self::Any { port } => (
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
                Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
            ),
            Self::Exact(address) => (address, None),
        };
        std::iter::once(first).chain(second)
    }

    /// Whether a socket of the one has the very address of one of the other.
    pub fn meets(&self, other: &Self) -> bool {
        self.addresses()
            .any(|one| other.addresses().any(|two| one == two))
    }

    /// Whether a socket of the one may not listen while one of the other does, unless both share their port.
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = |one: SocketAddr, two: SocketAddr| {
            let (a, b) = (one.ip(), two.ip());
            a == b || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
        };
        self.port() == other.port()
            && self.port() != 0
            && self
                .addresses()
                .any(|one| other.addresses().any(|two| meet(one, two)))
    }

    /// Those of them that this kernel can have.
    pub fn addresses_here(&self, has_ipv6: bool) -> impl Iterator<Item = SocketAddr> + use<> {
        let is_any = matches!(self, Self::Any { .. });
        self.addresses()
            .filter(move |address| has_ipv6 || !is_any || address.is_ipv4())
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any { port } => write!(f, "*:{port}"),
            Self::Exact(address) => write!(f, "{address}"),
        }
    }
}

impl Leaf for Bind {
    const NAME: &'static str = "Bind";
    const WHAT: &'static str = "an address";
    const FORM: &'static str = "IP:PORT, [IP6]:PORT or *:PORT";
    const PATTERN: &'static str = r"^[0-9A-Za-z_.:%*\[\]-]+:[0-9]+$";
    const EXAMPLE: &'static str = "*:80";

    fn parse(text: &str) -> Result<Self, Wrong> {
        match text.strip_prefix("*:") {
            Some(port) => match parse_port(port) {
                Some(port) => Ok(Self::Any { port }),
                None => Err(Wrong::new(no_port(0), "expected *:PORT")),
            },
            None => parse_address(text, Self::FORM, 0).map(Self::Exact),
        }
    }

    fn text(&self) -> impl fmt::Display {
        self
    }
}

leaf!(Bind);

impl Leaf for SocketAddr {
    const NAME: &'static str = "Address";
    const WHAT: &'static str = "an address";
    const FORM: &'static str = "IP:PORT";
    const PATTERN: &'static str = r"^[0-9A-Fa-f.:%\[\]]+:[0-9]+$";
    const EXAMPLE: &'static str = "10.1.0.7:80";

    fn parse(text: &str) -> Result<Self, Wrong> {
        parse_address(text, Self::FORM, 1)
    }

    fn text(&self) -> impl fmt::Display {
        self
    }
}

impl Leaf for IpAddr {
    const NAME: &'static str = "IpAddress";
    const WHAT: &'static str = "an IP address";
    const FORM: &'static str = "an IP address without a port";
    const PATTERN: &'static str = r"^[0-9A-Fa-f.:]+$";
    const EXAMPLE: &'static str = "10.1.0.7";

    fn parse(text: &str) -> Result<Self, Wrong> {
        let address: Self = text.parse().map_err(|_| Wrong::form::<Self>())?;
        Ok(address.to_canonical())
    }

    fn text(&self) -> impl fmt::Display {
        self
    }
}

impl Leaf for IpNet {
    const NAME: &'static str = "IpRange";
    const WHAT: &'static str = "a range of addresses";
    const FORM: &'static str = "IP/LENGTH, such as 10.0.0.0/8 or 2001:db8::/32";
    const PATTERN: &'static str = r"^[0-9A-Fa-f.:]+/[0-9]+$";
    const EXAMPLE: &'static str = "10.0.0.0/8";

    fn parse(text: &str) -> Result<Self, Wrong> {
        if let Ok(address) = text.parse::<IpAddr>() {
            let whole = Self::from(address.to_canonical());
            return Err(Wrong::new(
                "is a single address, not a range",
                format!("expected {whole}"),
            ));
        }
        let range: Self = text.parse().map_err(|_| Wrong::form::<Self>())?;
        unmapped(range).ok_or_else(|| {
            Wrong::new(
                "belongs to neither IPv4 nor IPv6",
                "expected a range of one family: IPv4 as 10.0.0.0/8, IPv6 as 2001:db8::/32",
            )
        })
    }

    fn doubt(text: &str) -> Option<Wrong> {
        let range: Self = text.parse().ok()?;
        let meant = unmapped(range)?;
        let one = Self::from(range.addr().to_canonical());
        (range.addr() != range.network()).then(|| {
            Wrong::new(
                format!(
                    "means all of {meant}: {} is not its first address",
                    range.addr()
                ),
                format!("write {meant}, or {one} for this address alone"),
            )
        })
    }

    fn text(&self) -> impl fmt::Display {
        self
    }
}

/// The range without host bits, and as one of IPv4 where it lies among the IPv4-mapped addresses. `None`: it begins
/// there, and reaches further.
fn unmapped(range: IpNet) -> Option<IpNet> {
    let IpAddr::V6(address) = range.addr() else {
        return Some(range.trunc());
    };
    let Some(mapped) = address.to_ipv4_mapped() else {
        return Some(range.trunc());
    };
    let length = range.prefix_len().checked_sub(96)?;
    let range = Ipv4Net::new(mapped, length).ok()?;
    Some(range.trunc().into())
}

/// What an address is that does not belong to one host, and so can be no endpoint's.
pub fn no_single_host(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        address if address.is_unspecified() => Some("no address that one can connect to"),
        address if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("the broadcast address"),
        _ => None,
    }
}

/// Reads `IP:PORT`, with IPv4-mapped IPv6 as IPv4, or says what it is instead. `form` is what would be right, with ports
/// from `least` on.
fn parse_address(text: &str, form: &str, least: u16) -> Result<SocketAddr, Wrong> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        // A scope counts, and no IPv4 address has one.
        return Ok(SocketAddr::new(address.ip().to_canonical(), address.port())).map(|canonical| {
            if canonical.is_ipv6() {
                address
            } else {
                canonical
            }
        });
    }
    let remedy = format!("expected {form}");
    if text.parse::<IpAddr>().is_ok() {
        return Err(Wrong::new("has no port", remedy));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(if looks_like_a_name(text) {
            is_a_name(form)
        } else {
            Wrong::new("is not an address", remedy)
        });
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if parse_port(port).is_none() && bare.unwrap_or(host).parse::<IpAddr>().is_ok() {
        return Err(Wrong::new(no_port(least), remedy));
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return Err(Wrong::new(
            "is not an address",
            format!("expected [{host}]:{port}"),
        ));
    }
    if looks_like_a_name(host) {
        Err(is_a_name(form))
    } else {
        Err(Wrong::new("is not an address", remedy))
    }
}

fn is_a_name(form: &str) -> Wrong {
    Wrong::new(
        "is a name, not an address",
        format!("expected {form}; only the controller resolves names"),
    )
}

fn no_port(least: u16) -> String {
    format!("has no port from {least} to {}", u16::MAX)
}

fn looks_like_a_name(host: &str) -> bool {
    host.bytes().any(|byte| byte.is_ascii_alphabetic())
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn parse_port(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}
