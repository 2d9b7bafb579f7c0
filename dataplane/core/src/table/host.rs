//! Names of hosts and paths, as routes and checks use them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::leaf::{Leaf, Wrong, leaf, text};

text! {
    /// The DNS name that TLS asks for.
    pub struct ServerName(Box<str>): "a DNS name", "a DNS name such as shop.example.com",
        r"^[A-Za-z0-9_.-]+$", "shop.example.com", is_dns_name;
}

text! {
    /// The path of a route: absolute, without a query.
    pub struct UrlPath(Box<str>): "a path", "an absolute path without a query, such as /shop",
        r"^/[!-~]*$", "/shop", is_path;
}

text! {
    /// What a check asks for: an absolute path, with a query perhaps.
    pub struct Target(Box<str>): "a path", "an absolute path such as /healthz",
        r"^/[!-~]*$", "/healthz", is_target;
}

text! {
    /// The scheme that a redirect leads to.
    pub struct Scheme(Box<str>): "a scheme", "http or https",
        r"^https?$", "https", |text| matches!(text, "http" | "https");
}

/// Which hosts a route is for. Lower case, without a dot at the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// This host alone.
    Exact(Box<str>),
    /// `*.NAME`: every host with any number of labels before `NAME`.
    Under(Box<str>),
}

impl HostPattern {
    /// Whether it is an IP address. Requests have such hosts, but TLS has no such server names.
    pub fn is_address(&self) -> bool {
        match self {
            Self::Exact(name) => name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok(),
            Self::Under(_) => false,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Under(name) => write!(f, "*.{name}"),
        }
    }
}

impl Leaf for HostPattern {
    const NAME: &'static str = "HostPattern";
    const WHAT: &'static str = "a host";
    const FORM: &'static str = "a name such as shop.example.com or *.example.com, without a port";
    const PATTERN: &'static str = r"^(\*\.)?[A-Za-z0-9_.-]+$|^\[[0-9A-Fa-f.:]+\]$";
    const EXAMPLE: &'static str = "shop.example.com";

    fn parse(text: &str) -> Result<Self, Wrong> {
        if text == "*" {
            return Err(Wrong::new(
                "is not a host",
                "expected a name, or *. before one; a route without host is for any host",
            ));
        }
        if !text.is_ascii() {
            return Err(Wrong::new(
                "is not a host as clients send it",
                "expected its ASCII form, xn--…",
            ));
        }
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_suffix('.').unwrap_or(&lower);
        match name.strip_prefix("*.") {
            Some(rest) if is_dns_name(rest) => Ok(Self::Under(rest.into())),
            None if is_dns_name(name) || is_ip6_in_brackets(name) => Ok(Self::Exact(name.into())),
            _ => Err(Wrong::form::<Self>()),
        }
    }

    fn text(&self) -> impl fmt::Display {
        self
    }
}

leaf!(HostPattern);

/// Whether the text is labels of letters, digits, `-` and `_`, as DNS and the names of virtual hosts have them.
pub(crate) fn is_dns_name(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
}

fn is_ip6_in_brackets(text: &str) -> bool {
    text.strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .is_some_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#')
}

fn is_target(text: &str) -> bool {
    text.starts_with('/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}
