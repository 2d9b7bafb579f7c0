//! Rewrites the heads of forwarded messages: of requests for endpoints, and of responses for clients.
//!
//! | written by | from |
//! |---|---|
//! | [`request()`], [`request_fields`] | a client's request, for an endpoint: [`ToEndpoint`] |
//! | [`response()`], [`response_fields`] | an endpoint's response, for a client: [`ToClient`] |
//!
//! Both keep the same rules. Fields that concern one connection end here, and so do those that the sender's `Connection` names,
//! but a field that Ballast writes cannot be removed that way. The fields that frame the body are written again from a
//! [`Framing`](crate::http::Framing), so there is never more than one. The [`Edits`] of the table come last: they also change
//! fields that Ballast writes.
//!
//! Heads go into a [`Sink`]: lines of HTTP/1 in a `Vec<u8>`, or the fields of an HTTP/2 library. Names and values come from
//! parsers that refuse control characters; values of other origin are escaped here.

mod edits;
mod fields;
mod forwarded;
mod map_back;
mod request;
mod response;
mod trailing;

pub use edits::Edits;
pub(crate) use fields::{HeadWriter, write_framing};
pub use map_back::MapBack;
pub use request::{Client, Subject, ToEndpoint, request, request_fields};
pub use response::{Sticky, ToClient, framing_to, response, response_fields};
pub(crate) use response::{write_hsts, write_persistence, write_status};
pub use trailing::Trailing;

/// Where the fields of a head are written.
pub trait Sink {
    /// Adds a field whose value `value` appends to the buffer that it is given, which may hold other bytes already.
    fn field_with(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>));

    fn field(&mut self, name: &str, value: &[u8]) {
        self.field_with(name, |out| out.extend_from_slice(value));
    }
}

/// Lines of HTTP/1.
impl Sink for Vec<u8> {
    fn field_with(&mut self, name: &str, value: impl FnOnce(&mut Self)) {
        self.extend_from_slice(name.as_bytes());
        self.extend_from_slice(b": ");
        value(self);
        self.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
