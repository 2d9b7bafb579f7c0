//! The PROXY protocol, versions 1 and 2: reads the header in which a trusted proxy names its client, and writes the header that
//! names the client to an endpoint.
//!
//! The accept path and the UDP loop call [`step`] with everything that a peer has sent so far. The dial and the health checks
//! call [`encode_v1`], [`encode_v2`] and [`encode_local`] with the addresses to send. This module never reads a socket, never
//! guesses whether a header is present (the table says so), never allocates while reading, and keeps no state between calls.
//! The caller enforces the timeout.
//!
//! A header is refused at the first byte that cannot be part of a header, so that a browser or a TLS client at the wrong port
//! is refused after one to three bytes. A well-formed header that does not name a client of this listener (`LOCAL`, `UNKNOWN`,
//! an unspecified or UNIX address, UDP on a TCP listener) leaves the socket's own addresses in force.
//!
//! ```
//! use ballast_core::preamble::{Parsed, Transport, Versions, step};
//!
//! let read = |bytes| step(bytes, Versions::Both, Transport::Tcp);
//! assert!(matches!(read(b"PROXY TCP4 192.0.2.1 198."), Parsed::Need(2)));
//! assert!(matches!(read(b"GET / HTTP/1.1\r\n"), Parsed::Reject(_)));
//! let Parsed::Header(header) = read(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\nhello") else {
//!     panic!("a complete header");
//! };
//! assert_eq!(header.length, 45);
//! assert_eq!(header.addresses.source.to_string(), "192.0.2.1:56324");
//! ```

mod encode;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod properties;
mod reason;
#[cfg(test)]
mod tests;
mod tlv;
mod v1;
mod v2;
#[cfg(test)]
mod vectors;

use std::net::SocketAddr;

use crate::clients::canonical;
pub use crate::table::Transport;

pub use encode::{ClientCertificate, Extras, Ssl, encode_local, encode_v1, encode_v2};
pub use reason::Reason;
pub use tlv::{Tlv, Tlvs};

/// Judges the bytes that have arrived so far.
///
/// `bytes` begins with the first byte of the connection or datagram and may extend beyond the header. Every verdict but
/// [`Parsed::Need`] is final: more bytes do not change it. A datagram holds its whole header or none, so for
/// [`Transport::Udp`] the verdict is never `Need`.
#[must_use]
pub fn step(bytes: &[u8], accepted: Versions, transport: Transport) -> Parsed<'_> {
    let verdict = match bytes.first() {
        None => Parsed::Need(accepted.shortest_header()),
        Some(&v1::FIRST_BYTE) if accepted.v1() => v1::step(bytes, transport),
        Some(&v2::FIRST_BYTE) if accepted.v2() => v2::step(bytes, transport),
        Some(&(v1::FIRST_BYTE | v2::FIRST_BYTE)) => Parsed::Reject(Reason::VersionNotAccepted),
        Some(_) => Parsed::Reject(Reason::Signature),
    };
    match (verdict, transport) {
        (Parsed::Need(_), Transport::Udp) => Parsed::Reject(Reason::Truncated),
        (verdict, _) => verdict,
    }
}

/// The verdict on the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The header is not complete: at least this many more bytes belong to it. A caller that reads no more than that never
    /// takes a byte that follows the header.
    Need(usize),
    /// A header that names the client.
    Header(Header<'a>),
    /// A header that leaves the socket's own addresses in force.
    Local {
        /// The length of the header in bytes; the data follows it.
        length: usize,
    },
    /// Not an acceptable header: the connection is to be closed.
    Reject(Reason),
}

/// A complete header that names the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The length of the header in bytes; the data follows it.
    pub length: usize,
    /// The client and the address that it connected to, exactly as written. An IPv4 address may be in IPv4-mapped form (see
    /// [`Addresses::canonical`]).
    pub addresses: Addresses,
    /// The sender's additional fields; empty in version 1.
    pub tlvs: Tlvs<'a>,
}

/// The two ends of the connection or flow that a header describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// What the client connected to.
    pub destination: SocketAddr,
}

impl Addresses {
    /// The same ends, with `::ffff:192.0.2.1` written as `192.0.2.1`.
    #[must_use]
    pub fn canonical(self) -> Self {
        Self {
            source: canonical(self.source),
            destination: canonical(self.destination),
        }
    }
}

/// Which versions of the header a listener accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// The text line only.
    V1,
    /// The binary header only.
    V2,
    /// Either.
    #[default]
    Both,
}

impl Versions {
    fn v1(self) -> bool {
        matches!(self, Self::V1 | Self::Both)
    }

    fn v2(self) -> bool {
        matches!(self, Self::V2 | Self::Both)
    }

    fn shortest_header(self) -> usize {
        if self.v1() { v1::SHORTEST } else { v2::FIXED }
    }
}
