//! The facts about framing and connection that the fields of a head state.

use crate::http::{Field, Framing, Version};

use super::{Reject, is_token};

/// The facts about framing and connection that the fields of a head state.
#[derive(Default)]
pub(super) struct HeadFacts<'a> {
    /// The value of the first `Host`.
    pub(super) host: Option<&'a [u8]>,
    /// Whether there is another `Host`.
    pub(super) has_two_hosts: bool,
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
    keeps_alive: bool,
    connection_upgrades: bool,
    /// Whether `Upgrade` occurs.
    has_upgrade: bool,
    /// Whether `Upgrade` names a version of HTTP.
    has_http_upgrade: bool,
    /// Whether `Expect` is `100-continue`.
    pub(super) expects_continue: bool,
    /// Whether `Expect` has another value.
    pub(super) expects_other: bool,
}

impl<'a> HeadFacts<'a> {
    pub(super) fn read(fields: &[Field<'a>], version: Version) -> Result<Self, Reject> {
        let mut facts = Self::default();
        for field in fields {
            facts.add(field)?;
        }
        if facts.is_chunked && facts.length.is_some() {
            return Err(Reject::bad("length-and-chunked"));
        }
        if facts.is_chunked && version == Version::Http10 {
            return Err(Reject::bad("chunked-in-http-1.0"));
        }
        Ok(facts)
    }

    fn add(&mut self, field: &Field<'a>) -> Result<(), Reject> {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        // The length decides first: most fields are none of these, and need no comparison then.
        match field.name.len() {
            4 if is("host") => {
                self.has_two_hosts = self.host.is_some();
                self.host = self.host.or(Some(field.value));
            }
            6 if is("expect") => {
                let continues = field.value.eq_ignore_ascii_case(b"100-continue");
                self.expects_continue |= continues;
                self.expects_other |= !continues;
            }
            7 if is("upgrade") => {
                self.has_upgrade = true;
                self.has_http_upgrade |= items(field.value).any(is_http);
            }
            10 if is("connection") => {
                for option in items(field.value) {
                    self.closes |= option.eq_ignore_ascii_case(b"close");
                    self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    self.connection_upgrades |= option.eq_ignore_ascii_case(b"upgrade");
                }
            }
            14 if is("content-length") => {
                let length = parse_length(field.value).ok_or(Reject::bad("content-length"))?;
                if self.length.replace(length).is_some() {
                    return Err(Reject::bad("content-length-twice"));
                }
            }
            17 if is("transfer-encoding") => {
                if self.is_chunked {
                    return Err(Reject::bad("transfer-encoding-twice"));
                }
                check_codings(field.value)?;
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// The framing that the fields state; `None` if they state none.
    pub(super) fn framing(&self) -> Option<Framing> {
        match self.length {
            _ if self.is_chunked => Some(Framing::Chunked),
            Some(0) => Some(Framing::Empty),
            Some(length) => Some(Framing::Length(length)),
            None => None,
        }
    }

    /// Whether the connection stays open as far as `Connection` and the version say.
    pub(super) fn keep_alive(&self, version: Version) -> bool {
        !self.closes && (version != Version::Http10 || self.keeps_alive)
    }

    /// Whether the fields ask for another protocol than HTTP.
    pub(super) fn upgrades(&self) -> bool {
        self.connection_upgrades && self.has_upgrade && !self.has_http_upgrade
    }
}

/// The items of a list that is separated by commas, each without the white space around it.
fn items(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// `h2c`, `h2`, `HTTP/2.0` and the like, and `TLS/1.0`, inside of which is HTTP again.
fn is_http(protocol: &[u8]) -> bool {
    let begins_with = |text: &[u8]| {
        protocol
            .get(..text.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(text))
    };
    begins_with(b"h2") || begins_with(b"http") || begins_with(b"tls")
}

/// Digits only, and less than 2^63.
fn parse_length(value: &[u8]) -> Option<u64> {
    let mut length: i64 = 0;
    for &byte in value {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        length = length.checked_mul(10)?.checked_add(digit)?;
    }
    u64::try_from(length).ok().filter(|_| !value.is_empty())
}

/// Succeeds for `chunked` alone. Other codings are unknown where the framing would be clear, and malformed elsewhere.
fn check_codings(value: &[u8]) -> Result<(), Reject> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut chunked_before = false;
    for coding in items(value) {
        let is_valid = !coding.is_empty() && coding.iter().all(|&byte| is_token(byte));
        if !is_valid || chunked_before {
            return Err(Reject::bad("transfer-encoding"));
        }
        chunked_before = coding.eq_ignore_ascii_case(b"chunked");
    }
    Err(Reject::new(501, "transfer-coding-unknown"))
}
