//! Client affinity by a cookie, for `affinity: {cookie: NAME}`: what its value says, and which cookies a client sent.
//!
//! The value is a hash of the service's name and the endpoint's address, never an index: it means the same endpoint after any
//! change of the table, on every node and in every process. It is an identifier, not a secret: all processes hash with the same
//! key, so a client that knows the service's name can compute the value of any address.

use std::fmt;
use std::net::SocketAddr;

use rustc_hash::FxHashMap;

use crate::hash::endpoint_hash;
use crate::http::Field;
use crate::rng::mix;

/// The value of an affinity cookie: an endpoint of a service. It is written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CookieValue(u64);

impl CookieValue {
    /// The value for the endpoint of this address in the service of this name.
    pub fn of(service: &str, endpoint: SocketAddr) -> Self {
        Self::from_hashes(service_hash(service), endpoint_hash(endpoint))
    }

    fn from_hashes(service: u64, endpoint: u64) -> Self {
        Self(mix(service ^ endpoint))
    }

    /// The value that a client sent; `None` if it cannot be Ballast's.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let is_form = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if value.len() != DIGITS || !value.iter().all(is_form) {
            return None;
        }
        let digits = str::from_utf8(value).ok()?;
        u64::from_str_radix(digits, 16).ok().map(Self)
    }

    /// The first value among the cookies of this name that can be Ballast's.
    #[must_use]
    pub fn find(fields: &[Field<'_>], name: &str) -> Option<Self> {
        SentCookie::find(fields, name).value()
    }
}

/// What a client sent as the affinity cookie of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SentCookie {
    #[default]
    None,
    /// A value that cannot be Ballast's.
    Foreign,
    Value(CookieValue),
}

impl SentCookie {
    /// The first value among the cookies of this name that can be Ballast's, or that there are others.
    #[must_use]
    pub fn find(fields: &[Field<'_>], name: &str) -> Self {
        let mut found = Self::None;
        for pair in all(fields).filter(|pair| pair.is_named(Some(name))) {
            if let Some(value) = pair.value().and_then(CookieValue::parse) {
                return Self::Value(value);
            }
            found = Self::Foreign;
        }
        found
    }

    #[must_use]
    pub fn value(self) -> Option<CookieValue> {
        match self {
            Self::Value(value) => Some(value),
            Self::None | Self::Foreign => None,
        }
    }
}

impl fmt::Display for CookieValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The endpoints of one service by the values of its cookie.
#[derive(Debug)]
pub(crate) struct Cookies {
    service: u64,
    by_value: FxHashMap<CookieValue, u32>,
}

impl Cookies {
    /// The cookies of a service whose endpoints have these hashes.
    pub(crate) fn new(service: &str, endpoints: impl Iterator<Item = u64>) -> Self {
        let service = service_hash(service);
        let values = endpoints.map(|endpoint| CookieValue::from_hashes(service, endpoint));
        Self {
            service,
            by_value: values.zip(0..).collect(),
        }
    }

    /// The value for the endpoint with this hash.
    pub(crate) fn value(&self, endpoint: u64) -> CookieValue {
        CookieValue::from_hashes(self.service, endpoint)
    }

    /// The index of the endpoint that this value is for.
    pub(crate) fn find(&self, value: CookieValue) -> Option<usize> {
        usize::try_from(*self.by_value.get(&value)?).ok()
    }
}

/// The hash of a service's name, with the key that all processes share. It never changes: another hash would invalidate every
/// cookie.
fn service_hash(name: &str) -> u64 {
    let bytes = name.bytes();
    bytes.fold(SERVICES, |hash, byte| mix(hash ^ u64::from(byte)))
}

/// One cookie: `NAME=VALUE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a>(&'a [u8]);

impl<'a> Pair<'a> {
    /// Whether this is the name.
    pub(crate) fn is_named(&self, name: Option<&str>) -> bool {
        let own = self.0.split(|byte| *byte == b'=').next();
        self.equals().is_some()
            && name.is_some_and(|name| own.is_some_and(|own| own.trim_ascii() == name.as_bytes()))
    }

    fn value(&self) -> Option<&'a [u8]> {
        let value = self.0.get(self.equals()? + 1..)?.trim_ascii();
        let quoted = value.strip_prefix(b"\"");
        Some(
            quoted
                .and_then(|value| value.strip_suffix(b"\""))
                .unwrap_or(value),
        )
    }

    /// The cookie as it was sent.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.0
    }

    fn equals(&self) -> Option<usize> {
        memchr::memchr(b'=', self.0)
    }
}

/// All cookies that a client sent. None is empty.
pub(crate) fn all<'a>(fields: &'a [Field<'a>]) -> impl Iterator<Item = Pair<'a>> {
    fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("cookie"))
        .flat_map(|field| field.value.split(|byte| *byte == b';'))
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty())
        .map(Pair)
}

/// The name and value that a `Set-Cookie` field begins with.
pub(crate) fn pair(set_cookie: &[u8]) -> Pair<'_> {
    let mut parts = set_cookie.split(|byte| *byte == b';');
    Pair(parts.next().unwrap_or_default().trim_ascii())
}

const DIGITS: usize = 16;
const SERVICES: u64 = 0x8f2c_51f3_6b07_9ad5;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sent: &[&str]) -> Option<String> {
        let field = |value: &&'static str| Field {
            name: "Cookie",
            value: value.as_bytes(),
        };
        let sent: Vec<&'static str> = sent.iter().map(|text| &*text.to_string().leak()).collect();
        let fields: Vec<Field<'_>> = sent.iter().map(field).collect();
        CookieValue::find(&fields, "SERVERID").map(|value| value.to_string())
    }

    #[test]
    fn the_first_value_of_our_form_counts() {
        let (a, b) = ("0123456789abcdef", "00000000000000ff");
        let cases: [(&[&str], Option<&str>); 14] = [
            (&["SERVERID=0123456789abcdef"], Some(a)),
            (&["x=1; SERVERID=0123456789abcdef; y=2"], Some(a)),
            (&["x=1", "SERVERID=0123456789abcdef"], Some(a)),
            (&["SERVERID = \"0123456789abcdef\" "], Some(a)),
            (&["SERVERID=web1; SERVERID=00000000000000ff"], Some(b)),
            (
                &["SERVERID=0123456789abcdef; SERVERID=00000000000000ff"],
                Some(a),
            ),
            (&["serverid=0123456789abcdef"], None),
            (&["SERVERID2=0123456789abcdef"], None),
            (&["SERVERID=0123456789ABCDEF"], None),
            (&["SERVERID=+123456789abcdef"], None),
            (&["SERVERID=0123456789abcdef0"], None),
            (&["SERVERID=", "SERVERID"], None),
            (&["=;;=SERVERID"], None),
            (&[], None),
        ];
        for (sent, wanted) in cases {
            assert_eq!(found(sent).as_deref(), wanted, "{sent:?}");
        }
    }
}
