//! Writes the header that is sent to an endpoint before anything else.
//!
//! The dial, the UDP loop and the health checks use it. Everything is appended to the caller's buffer, which can be reused:
//! with enough capacity nothing is allocated. [`super::step`] can read whatever is written here.

use std::net::IpAddr;

use crate::text::Append;

use super::tlv::{CRC32C, LONGEST_UNIQUE_ID};
use super::v2::SIGNATURE;
use super::{Addresses, Tlv, Transport};

/// Appends a version 1 line to `out`: 22 to 104 bytes, CR LF included.
///
/// If both ends are IPv4, also in IPv4-mapped form, it says `TCP4`; otherwise `TCP6`, and an IPv4 end is written
/// `::ffff:192.0.2.1`. A zone or a flow label is not sent.
pub fn encode_v1(addresses: Addresses, out: &mut Vec<u8>) {
    let [source, destination] = in_one_family(addresses);
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (source_port, destination_port) = (addresses.source.port(), addresses.destination.port());
    write!(
        out,
        "PROXY {family} {source} {destination} {source_port} {destination_port}\r\n"
    );
}

/// Appends a version 2 header to `out`: exactly 28 bytes for IPv4 or 52 for IPv6 without `extras`,
/// with them up to 1,230. The family is chosen as in [`encode_v1`].
pub fn encode_v2(
    addresses: Addresses,
    transport: Transport,
    extras: &Extras<'_>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let ends = in_one_family(addresses);
    let family = if ends[0].is_ipv4() { 0x10 } else { 0x20 };
    let transport = match transport {
        Transport::Tcp => 1,
        Transport::Udp => 2,
    };
    out.extend_from_slice(&SIGNATURE);
    out.extend_from_slice(&[VERSION_AND_PROXY, family | transport]);
    with_length(out, |out| {
        for ip in ends {
            match ip {
                IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
            }
        }
        out.extend_from_slice(&addresses.source.port().to_be_bytes());
        out.extend_from_slice(&addresses.destination.port().to_be_bytes());
        extras.write(out);
    });
    if extras.has_checksum {
        fill_in_checksum(out.split_at_mut(start).1);
    }
}

/// Appends the 16 bytes of a version 2 header without a client to `out`: for connections of our own, such as health checks.
pub fn encode_local(out: &mut Vec<u8>) {
    out.extend_from_slice(&SIGNATURE);
    out.extend_from_slice(&[VERSION_AND_LOCAL, 0, 0, 0]);
}

/// The optional fields of a version 2 header. A field that is absent, empty or too long is left out; the others are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras<'a> {
    /// The host name that the client asked for, up to 255 bytes.
    pub authority: Option<&'a str>,
    /// An id of the connection, up to 128 bytes.
    pub unique_id: Option<&'a [u8]>,
    /// How the client used TLS with us.
    pub ssl: Option<Ssl<'a>>,
    /// Whether to add a CRC32c of the whole header.
    pub has_checksum: bool,
}

/// How the client used TLS. Texts are sent up to 255 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ssl<'a> {
    /// Whether the client presented a certificate.
    pub certificate: ClientCertificate,
    /// The result of verifying it: 0 means success, anything else failure. Without a certificate there is no success.
    pub verify: u32,
    /// The TLS version, such as `TLSv1.3`.
    pub version: Option<&'a str>,
    /// The cipher suite, by name.
    pub cipher: Option<&'a str>,
    /// The common name of the client's certificate.
    pub common_name: Option<&'a str>,
}

/// When a TLS client presented its certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificate {
    /// Never.
    #[default]
    Absent,
    /// Earlier in the session that this connection resumes.
    InSession,
    InConnection,
}

impl Extras<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        write_text(out, Tlv::AUTHORITY, self.authority);
        if let Some(id) = self
            .unique_id
            .filter(|id| !id.is_empty() && id.len() <= LONGEST_UNIQUE_ID)
        {
            write_tlv(out, Tlv::UNIQUE_ID, |out| out.extend_from_slice(id));
        }
        if let Some(ssl) = self.ssl {
            write_tlv(out, Tlv::SSL, |out| ssl.write(out));
        }
        if self.has_checksum {
            // The last field, filled with zeros: the sum is inserted once the rest is known.
            write_tlv(out, Tlv::CRC32C, |out| out.extend_from_slice(&[0; 4]));
        }
    }
}

impl Ssl<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(match self.certificate {
            ClientCertificate::Absent => SSL_USED,
            ClientCertificate::InSession => SSL_USED | SSL_CERTIFICATE_IN_SESSION,
            ClientCertificate::InConnection => {
                SSL_USED | SSL_CERTIFICATE_IN_CONNECTION | SSL_CERTIFICATE_IN_SESSION
            }
        });
        out.extend_from_slice(&self.verify.to_be_bytes());
        write_text(out, Tlv::SSL_VERSION, self.version);
        write_text(out, Tlv::SSL_COMMON_NAME, self.common_name);
        write_text(out, Tlv::SSL_CIPHER, self.cipher);
    }
}

/// The source and the destination in one family: IPv4 if both are, else IPv6.
fn in_one_family(addresses: Addresses) -> [IpAddr; 2] {
    let Addresses {
        source,
        destination,
    } = addresses.canonical();
    match [source.ip(), destination.ip()] {
        ends @ [IpAddr::V4(_), IpAddr::V4(_)] => ends,
        ends => ends.map(|end| match end {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().into(),
            ip => ip,
        }),
    }
}

fn write_text(out: &mut Vec<u8>, kind: u8, text: Option<&str>) {
    if let Some(text) = text.filter(|text| !text.is_empty() && text.len() <= LONGEST_TEXT) {
        write_tlv(out, kind, |out| out.extend_from_slice(text.as_bytes()));
    }
}

fn write_tlv(out: &mut Vec<u8>, kind: u8, value: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    with_length(out, value);
}

/// Appends the output of `content`, preceded by its length in two bytes.
fn with_length(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let place = out.len();
    out.extend_from_slice(&[0; 2]);
    content(out);
    let length = u16::try_from(out.len() - place - 2);
    debug_assert!(length.is_ok(), "every field is bounded");
    if let (Some(field), Ok(length)) = (out.get_mut(place..place + 2), length) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// Replaces the last four bytes of the header, which are zeros, by its checksum.
fn fill_in_checksum(header: &mut [u8]) {
    let sum = CRC32C.checksum(header);
    if let Some(field) = header.last_chunk_mut() {
        *field = sum.to_be_bytes();
    }
}

/// The longest text to send: enough for any host name, and the most that haproxy accepts.
const LONGEST_TEXT: usize = 255;
const VERSION_AND_LOCAL: u8 = 0x20;
const VERSION_AND_PROXY: u8 = 0x21;
const SSL_USED: u8 = 0x01;
const SSL_CERTIFICATE_IN_CONNECTION: u8 = 0x02;
const SSL_CERTIFICATE_IN_SESSION: u8 = 0x04;
