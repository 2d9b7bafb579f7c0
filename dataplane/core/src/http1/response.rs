//! Parses the head of a response.

use std::mem::MaybeUninit;

use httparse::{Error, Status};

use crate::http::{Field, Framing, Response, Version};

use super::facts::HeadFacts;
use super::search::Head;
use super::{Reject, ResponseHead, ResponseKind, fields_reject, version};

pub(super) fn parse<'h, 'b: 'h>(
    head: Head<'b>,
    fields: &'h mut [MaybeUninit<Field<'b>>],
    method: &str,
) -> Result<ResponseHead<'h>, Reject> {
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut parsed, head.bytes, fields) {
        Ok(Status::Complete(length)) if length == head.bytes.len() => {}
        Ok(_) | Err(Error::Status | Error::Version) => return Err(Reject::bad("status-line")),
        Err(error) => return Err(fields_reject(error)),
    }
    let (Some(status @ 100..), Some(reason)) = (parsed.code, parsed.reason) else {
        return Err(Reject::bad("status-line"));
    };
    let version = version(parsed.version);
    let fields: &'h [Field<'b>] = parsed.headers;
    let facts = HeadFacts::read(fields, version)?;
    let kind = match status {
        101 if version == Version::Http10 => return Err(Reject::bad("upgraded-in-http-1.0")),
        101 => ResponseKind::Upgraded,
        100..=199 => ResponseKind::Interim,
        _ => ResponseKind::Final,
    };
    let stated = facts.framing();
    let never_has_body = matches!(status, 100..=199 | 204);
    let framing = if never_has_body || status == 304 || method == "HEAD" {
        Framing::Empty
    } else {
        stated.unwrap_or(Framing::UntilClose)
    };
    // A response of such a status must not have a body, but the endpoint may send one nevertheless.
    let may_have_more = never_has_body && stated.is_some_and(|stated| stated != Framing::Empty);
    Ok(ResponseHead {
        response: Response {
            status,
            reason,
            version,
            fields,
        },
        length: head.length,
        kind,
        framing,
        keep_alive: facts.keep_alive(version) && framing != Framing::UntilClose && !may_have_more,
    })
}
