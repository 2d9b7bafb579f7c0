//! The test vectors: the bytes sent, and the expected result on a TCP listener that accepts both versions.

use std::net::SocketAddr;

use super::Addresses;

pub(super) struct Vector {
    pub(super) name: &'static str,
    pub(super) sent: Sent,
    pub(super) expected: Expected,
    /// Whether the crate `proxy-protocol` 0.5.0 judges it differently, or panics.
    pub(super) oracle: Oracle,
}

#[derive(Clone, Copy)]
pub(super) enum Sent {
    Text(&'static [u8]),
    /// Hexadecimal, where `S` is the signature, `@4` the addresses of [`FOUR`], `@6` those of [`SIX`], and `75*128` the byte 75
    /// repeated 128 times.
    Hex(&'static str),
}

#[derive(Clone, Copy)]
pub(super) enum Expected {
    /// These ends, and this many bytes after the header.
    Named(Ends, usize),
    /// The socket's own ends, and no bytes after the header.
    Local,
    Need,
    /// Refused once this many bytes have arrived.
    RejectAt(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Oracle {
    Agrees,
    Differs,
}

/// Source and destination.
type Ends = (&'static str, &'static str);

impl Sent {
    pub(super) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.to_vec(),
            Self::Hex(words) => words.split(' ').flat_map(decode).collect(),
        }
    }
}

pub(super) fn addresses((source, destination): Ends) -> Addresses {
    let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
    Addresses {
        source: parse(source),
        destination: parse(destination),
    }
}

fn decode(word: &str) -> Vec<u8> {
    match word {
        "S" => b"\r\n\r\n\0\r\nQUIT\n".to_vec(),
        "@4" => decode("c0000201c6336402dc0401bb"),
        "@6" => decode("20010db800000000000000000000000120010db8000000000000000000000002dc0401bb"),
        _ => match word.split_once('*') {
            Some((byte, times)) => decode(byte).repeat(times.parse().unwrap()),
            None => word.as_bytes().chunks(2).map(hex_byte).collect(),
        },
    }
}

fn hex_byte(pair: &[u8]) -> u8 {
    u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()
}

const fn text(name: &'static str, sent: &'static [u8], expected: Expected) -> Vector {
    Vector {
        name,
        sent: Sent::Text(sent),
        expected,
        oracle: Oracle::Agrees,
    }
}

const fn hex(name: &'static str, sent: &'static str, expected: Expected) -> Vector {
    Vector {
        name,
        sent: Sent::Hex(sent),
        expected,
        oracle: Oracle::Agrees,
    }
}

impl Vector {
    const fn differs(mut self) -> Self {
        self.oracle = Oracle::Differs;
        self
    }
}

const FOUR: Ends = ("192.0.2.1:56324", "198.51.100.2:443");
const SIX: Ends = ("[2001:db8::1]:56324", "[2001:db8::2]:443");
const ALL_ONES: &str = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";

use Expected::{Local, Named, Need, RejectAt};

#[rustfmt::skip]
pub(super) const VECTORS: [Vector; 71] = [
    text("a01", b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET", Named(("192.168.0.1:56324", "192.168.0.11:443"), 3)),
    text("a02", b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", Named(("255.255.255.255:65535", "255.255.255.255:65535"), 0)),
    text("a03", b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", Named((ALL_ONES, ALL_ONES), 0)),
    text("a04", b"PROXY UNKNOWN\r\n", Local),
    text("a05", b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", Local),
    text("a06", b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 655350\r\n", RejectAt(107)).differs(),
    text("a07", b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\nGET / HTTP/1.0\r\n\r\n", RejectAt(44)),
    text("a08", b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\rGET / HTTP/1.0\r\n\r\n", RejectAt(45)),
    text("a09", b"PROXY TCP4 192.000.002.001 198.51.100.2 56324 443\r\n", RejectAt(17)),
    text("a10", b"PROXY TCP4 192.0.2.1 198.51.100.2 056324 443\r\n", RejectAt(36)),
    text("a11", b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n", RejectAt(39)),
    text("a12", b"PROXY TCP4 192.0.2.1 198.51.100.2 +80 443\r\n", RejectAt(35)).differs(),
    text("a13", b"PROXY  TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", RejectAt(7)),
    text("a14", b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 \r\n", RejectAt(44)),
    text("a15", b"proxy tcp4 192.0.2.1 198.51.100.2 56324 443\r\n", RejectAt(1)),
    text("a16", b"PROXY TCP4 2001:db8::1 2001:db8::2 56324 443\r\n", RejectAt(15)),
    text("a17", b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 56324 443\r\n", Named(("[::ffff:192.0.2.1]:56324", "[2001:db8::2]:443"), 0)),
    text("a18", b"PROXY TCP6 fe80::1%1 2001:db8::2 56324 443\r\n", RejectAt(19)),
    text("a19", b"PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n", RejectAt(40)),
    text("a20", b"PROXY UDP4 192.0.2.1 198.51.100.2 56324 443\r\n", RejectAt(8)).differs(),
    text("a21", b"PROXY\tTCP4 192.0.2.1 198.51.100.2 56324 443\r\n", RejectAt(6)),
    text("a22", b"PROXY UNKNOWNX\r\n", RejectAt(14)).differs(),
    text("a23", b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 44", Need).differs(),
    text("a24", b"PRO", Need).differs(),
    text("a25", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RejectAt(3)),
    text("a26", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", RejectAt(1)),
    hex("a27", "1603010200010001fc0303", RejectAt(1)),
    text("a28", b"G", RejectAt(1)),
    text("a29", b"PROXY UNKNOWN \xff\xfe\r\n", Local),
    text("a30", b"PROXY TCP4 192.0.2.1 198.51.100.2 0 0\r\n", Named(("192.0.2.1:0", "198.51.100.2:0"), 0)),
    hex("b01", "S 21 11 000c @4 474554", Named(FOUR, 3)),
    hex("b02", "S 21 21 0024 @6", Named(SIX, 0)),
    hex("b03", "S 21 12 000c @4", Local),
    hex("b04", "S 20 00 0000", Local),
    hex("b05", "S 20 11 000c @4", Local),
    hex("b06", "S 20 00 0007 0000040a0b0c0d", Local),
    hex("b07", "S 20 41 0003 010203", Local).differs(),
    hex("b08", "S 21 00 0000", Local),
    hex("b09", "S 21 00 000c 99*12", Local),
    hex("b10", "S 21 31 00d8 2f61 00*106 2f62 00*106", Local),
    hex("b11", "S 31 11 000c @4", RejectAt(13)),
    hex("b12", "S 22 11 000c @4", RejectAt(13)),
    hex("b13", "S 21 41 000c @4", RejectAt(14)),
    hex("b14", "S 21 13 000c @4", RejectAt(14)),
    hex("b15", "S 21 11 000b c0000201c6336402dc0401", RejectAt(16)),
    hex("b16", "S 21 21 0023 20010db800000000000000000000000120010db8000000000000000000000002dc0401", RejectAt(16)),
    hex("b17", "S 21 11 001a @4 02000b6578616d706c652e636f6d", Named(FOUR, 0)),
    hex("b18", "S 21 11 0014 @4 02000a3132333435", RejectAt(36)).differs(),
    hex("b19", "S 21 11 0014 @4 0200043132333404", RejectAt(36)).differs(),
    hex("b20", "S 21 11 0013 @4 03000420ec9549", Named(FOUR, 0)),
    hex("b21", "S 21 11 0013 @4 03000420ec9548", RejectAt(35)).differs(),
    hex("b22", "S 21 11 0012 @4 030003000000", RejectAt(34)).differs(),
    hex("b23", "S 21 11 001f @4 0400050000000000030004181adb5a02000168", Named(FOUR, 0)),
    hex("b24", "S 21 11 000f @4 040000", Named(FOUR, 0)),
    hex("b25", "S 21 11 008f @4 050080 75*128", Named(FOUR, 0)),
    hex("b26", "S 21 11 0090 @4 050081 75*129", RejectAt(160)).differs(),
    hex("b27", "S 21 11 0037 @4 2000280100000000210007544c5376312e33230016544c535f4145535f3132385f47434d5f534841323536", Named(FOUR, 0)),
    hex("b28", "S 21 11 0013 @4 20000401000000", RejectAt(35)).differs(),
    hex("b29", "S 21 11 001a @4 20000b0100000000210009544c53", RejectAt(42)).differs(),
    // Refused by the limit of the length, so as soon as the length has arrived.
    hex("b30", "S 21 11 ffff @4", RejectAt(16)).differs(),
    hex("b31", "0d0a0d0a000d0a51554954", Need).differs(),
    hex("b32", "S 21", Need).differs(),
    hex("b33", "S 21 11 000c c0000201c6336402dc0401", Need).differs(),
    hex("b34", "0d0a0d0a000d0a515549540b2111000c @4", RejectAt(12)),
    hex("b35", "0d0a0d0a000d0a51554958", RejectAt(11)),
    hex("b36", "S 21 11 000c @4 50524f585920544350342031302e302e302e312031302e302e302e32203120320d0a", Named(FOUR, 34)),
    hex("b37", "S 20 00 0007 030004a9b87e8f", Local),
    hex("b38", "S 21 10 000c @4", Local).differs(),
    hex("b39", "S 21 01 000c @4", Local),
    hex("b40", "S 21 11 0020 @4 ee0007014c494e4b4944ea000701767063652d78", Named(FOUR, 0)),
    hex("b41", "S 21 31 012c 00*216", Need).differs(),
];
