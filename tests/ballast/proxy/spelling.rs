//! Headers and their fields, as the protocol's own text spells them.

use std::net::{IpAddr, SocketAddr};

/// A client, and what it connected to.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// The header that an endpoint hears of these two.
pub(crate) fn header_of(send: &str, (source, destination): Ends) -> Vec<u8> {
    match send {
        "off" => Vec::new(),
        "v1" => v1(source, destination),
        _ => v2(source, destination, &[]),
    }
}

pub(crate) fn ends(source: &str, destination: &str) -> Ends {
    let parsed = |text: &str| text.parse().expect("an address");
    (parsed(source), parsed(destination))
}

pub(crate) fn v1(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let family = if source.is_ipv4() { 4 } else { 6 };
    let (from, to) = (source.ip(), destination.ip());
    let (from_port, to_port) = (source.port(), destination.port());
    format!("PROXY TCP{family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
}

pub(crate) fn v2(source: SocketAddr, destination: SocketAddr, fields: &[u8]) -> Vec<u8> {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let family = if source.is_ipv4() { 0x11 } else { 0x21 };
    let block = [
        octets(source.ip()),
        octets(destination.ip()),
        source.port().to_be_bytes().to_vec(),
        destination.port().to_be_bytes().to_vec(),
        fields.to_vec(),
    ];
    headed([0x21, family], &block.concat())
}

/// A header of version 2 with these bytes for what it is, and this behind its length.
pub(crate) fn headed(kind: [u8; 2], block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).expect("a short block");
    [
        &b"\r\n\r\n\0\r\nQUIT\n"[..],
        &kind,
        &length.to_be_bytes(),
        block,
    ]
    .concat()
}

/// What a field is, and what it says.
pub(crate) type Field<'a> = (u8, &'a [u8]);

pub(crate) fn fields(fields: &[Field<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in fields {
        bytes.push(*kind);
        bytes.extend(u16::try_from(value.len()).expect("short").to_be_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

/// Bit by bit, as the definition says.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0x82f6_3b78 * (sum & 1));
        }
    }
    !sum
}

pub(crate) const AUTHORITY: u8 = 0x02;
pub(crate) const CRC32C: u8 = 0x03;
pub(crate) const UNIQUE_ID: u8 = 0x05;
