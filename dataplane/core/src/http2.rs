//! HTTP/2 (RFC 9113) without sockets: one [`Connection`] is one end of a connection, the server's towards clients or the client's
//! towards endpoints.
//!
//! Bytes of the peer go into [`Connection::receive`], which reports what they mean as [`Event`]s; bytes for the peer come out of
//! [`Connection::output`]. In between, a connection is a set of streams, each named by its [`Key`], with a head and a body in each
//! direction.
//!
//! The memory of a connection is bounded by what its owner decides: a peer may send as many bytes of a body as the window of the
//! stream allows, and a window is opened again only by [`Connection::release`], when the bytes have gone on. The window of the
//! connection as a whole is as large as it can be and opened at once, so that no stream can hold up another one. An idle connection
//! owns no buffer.
//!
//! Header compression: what the peer compresses is decoded with the usual dynamic table. Ballast's own heads refer to the static
//! table only, so a header block can be made before it is known which connection will carry it.

mod connection;
mod control;
mod frame;
mod head;
mod headers;
pub(crate) mod hpack;
mod receive;
mod send;
mod stream;

pub use connection::{Config, Connection, Event};
pub use frame::ErrorCode;
pub use head::Head;
pub use send::{Fields, request_block};
pub use stream::{Key, Reset};

/// What a client sends first (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[cfg(test)]
mod tests;
