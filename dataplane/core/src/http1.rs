//! HTTP/1 from bytes: heads of requests and responses, and where each message ends.
//!
//! Strict by design: a message that two readers could understand differently is refused, so that an endpoint never sees another
//! message than the one that was routed. Nothing here allocates.
//!
//! | decision | by |
//! |---|---|
//! | where a head ends | [`HeadSearch`] |
//! | what a head means, and whether it is refused | [`parse_request()`], [`parse_response()`] |
//! | where a body ends, and what in it is data | [`Body`] |
//!
//! Where the RFCs leave a choice:
//! - A request line that does not end within the limit is answered with 414, every other head over the limits with 431.
//! - `CONNECT` is answered with 405, an expectation other than `100-continue` with 417.
//! - Targets consist of visible ASCII characters without `#`. An absolute target names `http` or `https`.
//! - An empty `Host` is accepted, and the request has no host then. A missing one is refused in HTTP/1.1.
//! - `Transfer-Encoding` is `chunked` and nothing else, once. A list of valid codings that ends in `chunked`, or lacks it, is
//!   answered with 501.
//! - `Content-Length` occurs once, and a second one is refused even if it is equal.
//! - Lengths and chunk sizes are below 2^63: to a reader with signed numbers a larger one would be negative.
//! - Requests for `h2c` or another HTTP are not upgrades, because the endpoint would then serve requests that were never routed.
//!   Requests with a body are none either.

use std::mem::MaybeUninit;

use crate::http::{Field, Framing, Request, Response, Version};

pub use body::{Body, BodyError, Decoded, Piece, Pieces, parse_trailers};
pub use search::HeadSearch;
pub use write::{Relayed, write_data, write_end, write_trailers};

mod body;
mod facts;
mod request;
mod response;
mod search;
mod write;

/// How large a head may be, and likewise the trailers of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes, line ends included.
    pub bytes: usize,
    /// The most fields.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 * 1024,
            fields: 128,
        }
    }
}

/// Why a message is refused. The connection that it came from must be closed, because the end of the message is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The status for the client: 400, 405, 414, 417, 431, 501 or 505 for a request, 502 for a response.
    pub status: u16,
    /// The name of the reason, for logs.
    pub reason: &'static str,
}

impl Reject {
    const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }

    const fn bad(reason: &'static str) -> Self {
        Self::new(400, reason)
    }
}

/// The head of a request, and what it says about the connection.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    pub request: Request<'a>,
    /// The length of the head in bytes, an empty line before it included. The body follows it.
    pub length: usize,
    /// Where the body ends; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// Whether the client will send another request after this one.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether the client asks for another protocol that may be relayed opaquely after a 101 response. Where this is false,
    /// `Upgrade` must not be forwarded.
    pub upgrades: bool,
}

/// The head of a response, and what it says about the connection.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The response. Its reason phrase is empty if it contains bytes outside of ASCII.
    pub response: Response<'a>,
    /// The length of the head in bytes. The body follows it.
    pub length: usize,
    /// The role of the response among the responses to one request.
    pub kind: ResponseKind,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the connection may be used for another request after this response. If an interim response says no, it
    /// may not be used after the final response either.
    pub keep_alive: bool,
}

/// The role of a response among the responses to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// An interim response: another one to the same request follows. The status is 1xx, but not 101.
    Interim,
    /// Bytes of another protocol follow the head: the status is 101. Valid only if the request was an upgrade, which the caller
    /// checks.
    Upgraded,
    Final,
}

/// Parses the head of a request at the beginning of `bytes`. Returns `None` if more bytes are needed.
///
/// `search` is a new [`HeadSearch`] for each request, and the same one in every call for that request; in each of them `bytes`
/// begins with the bytes of the call before. Bytes that were searched before are not read again until the head is complete.
/// The request may have as many fields as both `limits` and the length of `fields` allow.
pub fn parse_request<'h, 'b: 'h>(
    bytes: &'b [u8],
    search: &mut HeadSearch,
    fields: &'h mut [MaybeUninit<Field<'b>>],
    limits: &Limits,
) -> Result<Option<RequestHead<'h>>, Reject> {
    let Some(head) = search.request(bytes, limits.bytes)? else {
        return Ok(None);
    };
    request::parse(head, shortened(fields, limits)).map(Some)
}

/// Parses the head of a response to a request with this method, at the beginning of `bytes`. Returns `None` if more bytes are
/// needed. The arguments are those of [`parse_request()`].
pub fn parse_response<'h, 'b: 'h>(
    bytes: &'b [u8],
    search: &mut HeadSearch,
    fields: &'h mut [MaybeUninit<Field<'b>>],
    limits: &Limits,
    method: &str,
) -> Result<Option<ResponseHead<'h>>, Reject> {
    let head = match search.response(bytes, limits.bytes) {
        Ok(Some(head)) => response::parse(head, shortened(fields, limits), method),
        Ok(None) => return Ok(None),
        Err(reject) => Err(reject),
    };
    head.map(Some).map_err(|Reject { reason, .. }| Reject {
        status: 502,
        reason,
    })
}

fn shortened<'h, 'b>(
    fields: &'h mut [MaybeUninit<Field<'b>>],
    limits: &Limits,
) -> &'h mut [MaybeUninit<Field<'b>>] {
    let most = fields.len().min(limits.fields);
    fields.split_at_mut(most).0
}

/// The reason for an error of httparse behind the first line.
fn fields_reject(error: httparse::Error) -> Reject {
    match error {
        httparse::Error::TooManyHeaders => Reject::new(431, "too-many-fields"),
        httparse::Error::HeaderName => Reject::bad("field-name"),
        httparse::Error::HeaderValue => Reject::bad("field-value"),
        _ => Reject::bad("line-end"),
    }
}

fn version(minor: Option<u8>) -> Version {
    match minor {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    }
}

/// Whether a token, such as a method or the name of a field, may contain this byte.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
