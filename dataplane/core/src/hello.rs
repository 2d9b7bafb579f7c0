//! Reads the server name and the protocols from the ClientHello of TLS, which is not encrypted. Nothing is consumed: the caller
//! still gives the bytes to the endpoint, or to the TLS session that ends here.
//!
//! The data plane calls [`step`] with all bytes that have arrived so far, until it returns something else than
//! [`Hello::Need`]. The verdict does not depend on how the bytes were cut into segments or TLS records.

use std::fmt;
use std::net::IpAddr;

use crate::table::is_dns_name;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

/// The verdict on the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// The beginning of a ClientHello: more bytes are needed.
    Need,
    /// A whole ClientHello.
    Found(ClientHello),
    /// Not a ClientHello. No further bytes change that.
    Reject(Reason),
}

/// The fields of a ClientHello that decide where a connection goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The host name that the client asks for, in lower case and without a dot at the end. `None` if the client names none, or an
    /// address, which RFC 6066 does not allow and some clients send.
    pub sni: Option<Box<str>>,
    /// The protocols that the client offers (ALPN), in the client's order of preference.
    pub alpn: Vec<Box<[u8]>>,
}

/// Why bytes are not an acceptable ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The bytes are not TLS. A ClientHello of SSL 2.0 is not TLS either.
    NotTls,
    /// The first message of the handshake is not a ClientHello.
    NotClientHello,
    /// The ClientHello does not end within [`LONGEST`] bytes.
    TooLong,
    /// The structure of the ClientHello is broken.
    Malformed,
    /// The server name is not a host name.
    BadServerName,
}

impl Reason {
    /// The reason as a sentence.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotTls => "these bytes are not TLS",
            Self::NotClientHello => "the handshake does not begin with a ClientHello",
            Self::TooLong => "the ClientHello is longer than 16 KiB",
            Self::Malformed => "the ClientHello is malformed",
            Self::BadServerName => "the server name in the ClientHello is not a host name",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The most bytes that a ClientHello may take, with the headers of its records.
pub const LONGEST: usize = 16 * 1024;

/// Reads the ClientHello at the beginning of `bytes`.
#[must_use]
pub fn step(bytes: &[u8]) -> Hello {
    let is_whole = bytes.len() >= LONGEST;
    let found = handshake(bytes.get(..LONGEST).unwrap_or(bytes));
    match found.and_then(|message| message.map(|message| client_hello(&message)).transpose()) {
        Ok(Some(hello)) => Hello::Found(hello),
        Ok(None) if is_whole => Hello::Reject(Reason::TooLong),
        Ok(None) => Hello::Need,
        Err(reason) => Hello::Reject(reason),
    }
}

/// The body of the first handshake message, put together from its records; `None` if it is not complete.
fn handshake(bytes: &[u8]) -> Result<Option<Vec<u8>>, Reason> {
    let mut message = Vec::new();
    let mut records = bytes;
    loop {
        let Some((payload, rest)) = record(records)? else {
            return Ok(None);
        };
        message.extend_from_slice(payload);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Reason::NotClientHello);
        }
        if let Some([_, a, b, c]) = message.first_chunk() {
            let length = 4 + (usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c));
            if length > LONGEST {
                return Err(Reason::TooLong);
            }
            if let Some(body) = message.get(4..length) {
                return Ok(Some(body.to_vec()));
            }
        }
        let Some(rest) = rest else {
            return Ok(None);
        };
        records = rest;
    }
}

/// The payload of the first record as far as it is there, and what follows the record; `None` if not even its header is there.
#[expect(
    clippy::type_complexity,
    reason = "two slices, of which the second may be missing"
)]
fn record(bytes: &[u8]) -> Result<Option<(&[u8], Option<&[u8]>)>, Reason> {
    if bytes.first().is_some_and(|kind| *kind != HANDSHAKE)
        || bytes.get(1).is_some_and(|major| *major != TLS)
    {
        return Err(Reason::NotTls);
    }
    let Some(([_, _, _, high, low], rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length == 0 || length > LONGEST_RECORD {
        return Err(Reason::Malformed);
    }
    Ok(Some(match rest.split_at_checked(length) {
        Some((payload, rest)) => (payload, Some(rest)),
        None => (rest, None),
    }))
}

fn client_hello(body: &[u8]) -> Result<ClientHello, Reason> {
    let mut body = Reader(body);
    let version = body.u16()?;
    let _random = body.take(32)?;
    let session = body.vector8()?;
    let ciphers = body.vector16()?;
    let compressions = body.vector8()?;
    if version >> 8 != u16::from(TLS)
        || session.0.len() > 32
        || ciphers.0.is_empty()
        || ciphers.0.len() % 2 != 0
        || compressions.0.is_empty()
    {
        return Err(Reason::Malformed);
    }
    let mut hello = ClientHello::default();
    if body.is_empty() {
        return Ok(hello);
    }
    let mut extensions = body.vector16()?;
    body.end()?;
    let (mut has_names, mut has_protocols) = (false, false);
    while !extensions.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        // A second one could name another host to a reader that takes the last one.
        match kind {
            SERVER_NAME if !has_names => {
                has_names = true;
                hello.sni = server_name(content)?;
            }
            ALPN if !has_protocols => {
                has_protocols = true;
                hello.alpn = protocols(content)?;
            }
            SERVER_NAME | ALPN => return Err(Reason::Malformed),
            _ => {}
        }
    }
    Ok(hello)
}

fn server_name(mut content: Reader<'_>) -> Result<Option<Box<str>>, Reason> {
    let mut names = content.vector16()?;
    content.end()?;
    if names.is_empty() {
        return Err(Reason::Malformed);
    }
    let mut host = None;
    while !names.is_empty() {
        let kind = names.u8()?;
        let name = names.vector16()?;
        if kind == HOST_NAME && host.replace(name.0).is_some() {
            return Err(Reason::Malformed);
        }
    }
    host.map_or(Ok(None), host_name)
}

fn host_name(name: &[u8]) -> Result<Option<Box<str>>, Reason> {
    let name = std::str::from_utf8(name).map_err(|_| Reason::BadServerName)?;
    if name.parse::<IpAddr>().is_ok() {
        return Ok(None);
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if !is_dns_name(name) {
        return Err(Reason::BadServerName);
    }
    Ok(Some(name.to_ascii_lowercase().into()))
}

fn protocols(mut content: Reader<'_>) -> Result<Vec<Box<[u8]>>, Reason> {
    let mut names = content.vector16()?;
    content.end()?;
    if names.is_empty() {
        return Err(Reason::Malformed);
    }
    let mut protocols = Vec::new();
    while !names.is_empty() {
        let name = names.vector8()?;
        if name.is_empty() {
            return Err(Reason::Malformed);
        }
        protocols.push(name.0.into());
    }
    Ok(protocols)
}

/// The bytes of a structure that have not been read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn end(&self) -> Result<(), Reason> {
        self.is_empty().then_some(()).ok_or(Reason::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Reason> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Reason::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Reason> {
        let (byte, rest) = self.0.split_first().ok_or(Reason::Malformed)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn u16(&mut self) -> Result<u16, Reason> {
        Ok(u16::from(self.u8()?) << 8 | u16::from(self.u8()?))
    }

    /// A vector with one byte of length.
    fn vector8(&mut self) -> Result<Self, Reason> {
        let length = self.u8()?;
        self.take(length.into()).map(Self)
    }

    /// A vector with two bytes of length.
    fn vector16(&mut self) -> Result<Self, Reason> {
        let length = self.u16()?;
        self.take(length.into()).map(Self)
    }
}

/// The content type of handshake records.
const HANDSHAKE: u8 = 22;
/// The major version of every TLS.
const TLS: u8 = 3;
/// The type of the handshake message.
const CLIENT_HELLO: u8 = 1;
/// The most plaintext of one record.
const LONGEST_RECORD: usize = 1 << 14;
/// Types of extensions.
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// The only type of server name.
const HOST_NAME: u8 = 0;
