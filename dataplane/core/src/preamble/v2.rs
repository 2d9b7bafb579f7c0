//! Version 2: the binary header, parsed as far as it has arrived.
//!
//! Used by [`super::step`] only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Addresses, Header, Parsed, Reason, Tlvs, Transport};

/// The first byte of every header.
pub(super) const FIRST_BYTE: u8 = SIGNATURE[0];
/// Twelve bytes that no other protocol begins with.
pub(super) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and transport, length: what comes before the addresses.
pub(super) const FIXED: usize = 16;
/// The longest accepted value of the length field. Legitimate senders need no more, and a peer must not make us store more.
pub(super) const LONGEST_BODY: usize = 4096;

pub(super) fn step(bytes: &[u8], transport: Transport) -> Parsed<'_> {
    read(bytes, transport).unwrap_or_else(Parsed::Reject)
}

fn read(bytes: &[u8], transport: Transport) -> Result<Parsed<'_>, Reason> {
    if bytes
        .iter()
        .zip(&SIGNATURE)
        .any(|(byte, expected)| byte != expected)
    {
        return Err(Reason::Signature);
    }
    let command = bytes.get(12).map(|byte| Command::read(*byte)).transpose()?;
    // After `LOCAL` all other fields are ignored, even an unknown family.
    let body = match (command, bytes.get(13)) {
        (Some(Command::Proxy), Some(byte)) => Body::read(*byte)?,
        _ => Body::Ignored,
    };
    let Some(&[high, low]) = bytes.get(14..FIXED) else {
        return Ok(Parsed::Need(FIXED - bytes.len()));
    };
    let declared = usize::from(u16::from_be_bytes([high, low]));
    if declared > LONGEST_BODY {
        return Err(Reason::TooLong);
    }
    if declared < body.address_size() {
        return Err(Reason::TooShort);
    }
    let length = FIXED + declared;
    let Some(header) = bytes.get(..length) else {
        return Ok(Parsed::Need(length - bytes.len()));
    };
    finish(header, body, transport)
}

/// Judges a complete header.
fn finish(header: &[u8], body: Body, transport: Transport) -> Result<Parsed<'_>, Reason> {
    let length = header.len();
    if let Body::Ignored = body {
        return Ok(Parsed::Local { length });
    }
    // A header that is not used here is still refused if it is malformed.
    let tlvs = Tlvs::check(header, FIXED + body.address_size())?;
    let block = header.get(FIXED..).ok_or(Reason::TooShort)?;
    let found = match body {
        Body::Inet(described) if described == transport => addresses::<Ipv4Addr, 4>(block),
        Body::Inet6(described) if described == transport => addresses::<Ipv6Addr, 16>(block),
        _ => return Ok(Parsed::Local { length }),
    };
    let addresses = found.ok_or(Reason::TooShort)?;
    Ok(Parsed::Header(Header {
        length,
        addresses,
        tlvs,
    }))
}

#[derive(Clone, Copy)]
enum Command {
    Local,
    Proxy,
}

impl Command {
    fn read(byte: u8) -> Result<Self, Reason> {
        match (byte >> 4, byte & 0x0f) {
            (2, 0) => Ok(Self::Local),
            (2, 1) => Ok(Self::Proxy),
            (2, _) => Err(Reason::Command),
            _ => Err(Reason::Version),
        }
    }
}

/// The content after the fixed part.
#[derive(Clone, Copy)]
enum Body {
    /// Ignored: `LOCAL`, or an unspecified family or transport.
    Ignored,
    Inet(Transport),
    Inet6(Transport),
    Unix,
}

impl Body {
    fn read(byte: u8) -> Result<Self, Reason> {
        let transport = match byte & 0x0f {
            0 => None,
            1 => Some(Transport::Tcp),
            2 => Some(Transport::Udp),
            _ => return Err(Reason::Transport),
        };
        match (byte >> 4, transport) {
            (0, _) | (1..=3, None) => Ok(Self::Ignored),
            (1, Some(transport)) => Ok(Self::Inet(transport)),
            (2, Some(transport)) => Ok(Self::Inet6(transport)),
            (3, Some(_)) => Ok(Self::Unix),
            _ => Err(Reason::Family),
        }
    }

    fn address_size(self) -> usize {
        match self {
            Self::Ignored => 0,
            Self::Inet(_) => 12,
            Self::Inet6(_) => 36,
            Self::Unix => 216,
        }
    }
}

/// Two addresses of the family `A`, which has `N` bytes, and two ports.
fn addresses<A: From<[u8; N]> + Into<IpAddr>, const N: usize>(
    mut bytes: &[u8],
) -> Option<Addresses> {
    let source = A::from(take(&mut bytes)?).into();
    let destination = A::from(take(&mut bytes)?).into();
    Some(Addresses {
        source: SocketAddr::new(source, u16::from_be_bytes(take(&mut bytes)?)),
        destination: SocketAddr::new(destination, u16::from_be_bytes(take(&mut bytes)?)),
    })
}

/// Takes the first `N` bytes off `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}
