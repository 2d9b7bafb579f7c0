//! Ballast's own answers: pages for errors in the form that the client accepts, files of the table, redirects.
//!
//! [`write()`] makes a whole answer of HTTP/1. For HTTP/2 there are [`write_fields`] and [`OwnAnswer::write_body`]. No answer
//! contains bytes that a client sent, but for the location of a redirect, which [`crate::route`] has encoded.

use std::path::Path;

use crate::forward::{
    Edits, HeadWriter, Sink, write_framing, write_hsts, write_persistence, write_status,
};
use crate::http::{Framing, Version};
use crate::table::{HeaderEdits, MaxAge};

mod form;
mod page;

pub use form::Form;
pub use page::reason;

use page::Page;

/// An answer of Ballast's own.
#[derive(Clone, Copy, Debug)]
pub struct OwnAnswer<'a> {
    status: u16,
    /// The status of the answer in whose place it is.
    counted: u16,
    body: Body<'a>,
    location: Option<&'a [u8]>,
    /// Edits of its own, before those of the route and the frontend.
    edits: Option<&'a HeaderEdits>,
}

#[derive(Clone, Copy, Debug)]
enum Body<'a> {
    Page(Page),
    File {
        content_type: &'a str,
        bytes: &'a [u8],
    },
    Empty,
}

/// The properties of a request, its connection and its frontend that decide how an answer is written.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'a> {
    pub version: Version,
    /// Whether the request's method is `HEAD`: the answer then has no body.
    pub asks_for_head: bool,
    /// Whether the client's connection is used again.
    pub keeps_connection: bool,
    /// The frontend's `hsts`.
    pub hsts: Option<MaxAge>,
    /// The edits of the table: [`Edits::of_answer`].
    pub edits: Edits<'a>,
}

impl<'a> OwnAnswer<'a> {
    /// The built-in page for this status, in the form that the client prefers: [`Form::accepted_by`].
    pub fn page_as(status: u16, form: Form) -> Self {
        Self::with(status, Body::Page(Page { status, form }))
    }

    /// An answer whose body is a file that the table names. `content_type` is the table's, or that of [`content_type`].
    pub fn file(status: u16, content_type: &'a str, bytes: &'a [u8]) -> Self {
        let body = Body::File {
            content_type,
            bytes,
        };
        Self::with(status, body)
    }

    /// A redirect. `location` was written by [`Redirect::write_location`](crate::route::Redirect::write_location).
    pub fn redirect(status: u16, location: &'a [u8]) -> Self {
        Self {
            location: Some(location),
            ..Self::with(status, Body::Empty)
        }
    }

    /// This answer in place of one with the status `counted`: a page of the table's `errors`.
    #[must_use]
    pub fn instead_of(self, counted: u16, edits: Option<&'a HeaderEdits>) -> Self {
        Self {
            counted,
            edits,
            ..self
        }
    }

    fn with(status: u16, body: Body<'a>) -> Self {
        Self {
            status,
            counted: status,
            edits: None,
            body: match status {
                NO_CONTENT | RESET_CONTENT | NOT_MODIFIED => Body::Empty,
                _ => body,
            },
            location: None,
        }
    }

    /// The status that the client gets.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The status that is counted and logged: that of the answer in whose place it is, as with haproxy's `errorfile`.
    pub fn counted_status(&self) -> u16 {
        self.counted
    }

    pub fn length(&self) -> usize {
        match self.body {
            Body::Page(page) => {
                let mut length = 0;
                page.write(|piece| length += piece.len());
                length
            }
            Body::File { bytes, .. } => bytes.len(),
            Body::Empty => 0,
        }
    }

    /// Appends the body. A client that asks for the head alone gets none.
    pub fn write_body(&self, out: &mut Vec<u8>) {
        match self.body {
            Body::Page(page) => page.write(|piece| out.extend_from_slice(piece.as_bytes())),
            Body::File { bytes, .. } => out.extend_from_slice(bytes),
            Body::Empty => {}
        }
    }

    fn content_type(&self) -> Option<&'a str> {
        match self.body {
            Body::Page(page) => Some(page.form.content_type()),
            Body::File { content_type, .. } => Some(content_type),
            Body::Empty => None,
        }
    }
}

/// Appends the answer in the syntax of HTTP/1: the head, and the body unless the client asks for the head alone.
pub fn write(out: &mut Vec<u8>, answer: &OwnAnswer<'_>, to: &Recipient<'_>) {
    write_status(out, answer.status, reason(answer.status));
    write_fields(out, answer, to);
    out.extend_from_slice(b"\r\n");
    if !to.asks_for_head {
        answer.write_body(out);
    }
}

pub fn write_fields(out: &mut impl Sink, answer: &OwnAnswer<'_>, to: &Recipient<'_>) {
    if !matches!(answer.status, NO_CONTENT | NOT_MODIFIED) {
        let length = u64::try_from(answer.length()).unwrap_or(u64::MAX);
        write_framing(out, Framing::Length(length));
    }
    let mut head = HeadWriter::new(out, to.edits.after(answer.edits));
    if let Some(content_type) = answer.content_type() {
        head.field("Content-Type", content_type.as_bytes());
    }
    if let Some(location) = answer.location {
        head.field("Location", location);
    }
    if answer.counted >= 400 {
        head.field("Cache-Control", b"no-store");
    }
    if answer.status == METHOD_NOT_ALLOWED {
        head.field("Allow", ALLOWED);
    }
    if let Some(max_age) = to.hsts {
        write_hsts(&mut head, max_age);
    }
    head.edit("");
    write_persistence(head.sink(), to.version, to.keeps_connection);
}

/// The Content-Type of a file of the table, by its name. A file of an unknown kind is a page.
pub fn content_type(file: &Path) -> &'static str {
    let extension = file.extension().and_then(|text| text.to_str());
    let lower = extension.unwrap_or_default().to_ascii_lowercase();
    match lower.as_str() {
        "css" => "text/css; charset=utf-8",
        "gif" => "image/gif",
        "ico" => "image/x-icon",
        "jpg" | "jpeg" => "image/jpeg",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "txt" => "text/plain; charset=utf-8",
        "webp" => "image/webp",
        "xml" => "application/xml",
        _ => "text/html; charset=utf-8",
    }
}

const NO_CONTENT: u16 = 204;
const RESET_CONTENT: u16 = 205;
const NOT_MODIFIED: u16 = 304;
const METHOD_NOT_ALLOWED: u16 = 405;

/// Every usual method but `CONNECT` and `TRACE`.
const ALLOWED: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

#[cfg(test)]
mod tests;
