//! Version 1: one line of text, parsed as far as it has arrived.
//!
//! Used by [`super::step`] only. Each field is judged while it is incomplete: a field that no further byte could make valid is
//! refused at once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Addresses, Header, Parsed, Reason, Tlvs, Transport};

/// The first byte of every line.
pub(super) const FIRST_BYTE: u8 = b'P';
/// `PROXY UNKNOWN` and CR LF.
pub(super) const SHORTEST: usize = 15;
/// The bound of the protocol, CR LF included.
pub(super) const LONGEST: usize = 107;

pub(super) fn step(bytes: &[u8], transport: Transport) -> Parsed<'_> {
    if transport == Transport::Udp {
        return Parsed::Reject(Reason::TextInDatagram);
    }
    let line = bytes.get(..LONGEST).unwrap_or(bytes);
    match read(line) {
        Ok((Some(addresses), rest)) => Parsed::Header(Header {
            length: line.len() - rest.len(),
            addresses,
            tlvs: Tlvs::default(),
        }),
        Ok((None, rest)) => Parsed::Local {
            length: line.len() - rest.len(),
        },
        Err(Stop::Wrong(reason)) => Parsed::Reject(reason),
        Err(Stop::Open) if line.len() == LONGEST => Parsed::Reject(Reason::LineTooLong),
        Err(Stop::Open) => Parsed::Need(missing(line)),
    }
}

/// Why reading went no further.
enum Stop {
    /// Valid so far, but the line has not ended yet.
    Open,
    Wrong(Reason),
}

/// The value of a piece of the line, and the bytes after it.
type Read<'a, T> = Result<(T, &'a [u8]), Stop>;

fn read(line: &[u8]) -> Read<'_, Option<Addresses>> {
    let ((), rest) = literal(line, b"PROXY ", Reason::Signature)?;
    if rest.first() == Some(&b'U') {
        let ((), rest) = unknown(rest)?;
        return Ok((None, rest));
    }
    let ((), rest) = literal(rest, b"TCP", Reason::Protocol)?;
    let (addresses, rest) = match rest.first() {
        None => return Err(Stop::Open),
        Some(b'4') => ends::<Ipv4Addr>(literal(rest, b"4 ", Reason::Protocol)?.1)?,
        Some(_) => ends::<Ipv6Addr>(literal(rest, b"6 ", Reason::Protocol)?.1)?,
    };
    Ok((Some(addresses), rest))
}

/// `UNKNOWN`, then the end of the line, or a space and anything, which is ignored.
fn unknown(bytes: &[u8]) -> Read<'_, ()> {
    let ((), rest) = literal(bytes, b"UNKNOWN", Reason::Protocol)?;
    match rest.first() {
        None => Err(Stop::Open),
        Some(b'\r') => literal(rest, b"\r\n", Reason::LineEnd),
        Some(b' ') => {
            let end = rest
                .windows(2)
                .position(|pair| pair == b"\r\n")
                .ok_or(Stop::Open)?;
            Ok(((), &rest[end + 2..]))
        }
        Some(_) => Err(Stop::Wrong(Reason::Protocol)),
    }
}

/// Two addresses of the family `A`, two ports and the end of the line.
fn ends<A: FromStr + Into<IpAddr>>(bytes: &[u8]) -> Read<'_, Addresses> {
    let (source, rest) = field(
        bytes,
        b' ',
        address::<A>,
        begins_address::<A>,
        Reason::SourceAddress,
    )?;
    let (destination, rest) = field(
        rest,
        b' ',
        address::<A>,
        begins_address::<A>,
        Reason::DestinationAddress,
    )?;
    let (source_port, rest) = field(rest, b' ', port, begins_port, Reason::SourcePort)?;
    let (destination_port, rest) = field(rest, b'\r', port, begins_port, Reason::DestinationPort)?;
    let ((), rest) = literal(rest, b"\n", Reason::LineEnd)?;
    let addresses = Addresses {
        source: SocketAddr::new(source.into(), source_port),
        destination: SocketAddr::new(destination.into(), destination_port),
    };
    Ok((addresses, rest))
}

fn literal<'a>(bytes: &'a [u8], expected: &[u8], otherwise: Reason) -> Read<'a, ()> {
    match bytes.strip_prefix(expected) {
        Some(rest) => Ok(((), rest)),
        None if expected.starts_with(bytes) => Err(Stop::Open),
        None => Err(Stop::Wrong(otherwise)),
    }
}

/// A field that ends before the byte `end`. While that has not arrived, whether the field may still become valid.
fn field<T>(
    bytes: &[u8],
    end: u8,
    whole: fn(&[u8]) -> Option<T>,
    begins: fn(&[u8]) -> bool,
    otherwise: Reason,
) -> Read<'_, T> {
    let mut parts = bytes.splitn(2, |byte| *byte == end);
    let text = parts.next().unwrap_or_default();
    match parts.next() {
        Some(rest) => Ok((whole(text).ok_or(Stop::Wrong(otherwise))?, rest)),
        None if begins(text) => Err(Stop::Open),
        None => Err(Stop::Wrong(otherwise)),
    }
}

fn address<A: FromStr>(text: &[u8]) -> Option<A> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// Whether an address may begin like this: it may if one of a few endings completes it.
fn begins_address<A: FromStr>(text: &[u8]) -> bool {
    ENDINGS.iter().any(|ending| {
        let mut buffer = [0; LONGEST + 8];
        let Some(trial) = buffer.get_mut(..text.len() + ending.len()) else {
            return false;
        };
        let (front, back) = trial.split_at_mut(text.len());
        front.copy_from_slice(text);
        back.copy_from_slice(ending);
        address::<A>(trial).is_some()
    })
}

fn port(text: &[u8]) -> Option<u16> {
    if text.is_empty() || (text.len() > 1 && text.starts_with(b"0")) {
        return None;
    }
    text.iter().try_fold(0_u16, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        number.checked_mul(10)?.checked_add(u16::from(digit))
    })
}

fn begins_port(text: &[u8]) -> bool {
    text.is_empty() || port(text).is_some()
}

/// The least number of bytes missing from an incomplete line.
fn missing(line: &[u8]) -> usize {
    let line_end = if line.ends_with(b"\r") { 1 } else { 2 };
    SHORTEST.saturating_sub(line.len()).max(line_end)
}

/// The endings that can complete an address cut at any place: for IPv4 its last octets; for IPv6 the rest of a `::`, a last
/// group, or the last octets of an embedded IPv4 address.
const ENDINGS: [&[u8]; 10] = [
    b"", b"0", b":", b"::", b".0", b"0.0", b".0.0", b"0.0.0", b".0.0.0", b"0.0.0.0",
];
