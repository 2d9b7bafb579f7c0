//! Raw bytes and what is understood of them, one row for each variant.

use std::mem::MaybeUninit;

use crate::http::Host;

use super::*;

mod bodies;
mod properties;
mod requests;
mod responses;

/// The verdict on a request, in one line: `more`; or a status and a reason; or method, target, host, framing and the facts about
/// the connection. `+N`: N bytes follow the head.
fn request(bytes: &[u8]) -> String {
    request_within(bytes, &Limits::default())
}

fn request_within(bytes: &[u8], limits: &Limits) -> String {
    oracle::check(bytes);
    let mut fields = [const { MaybeUninit::uninit() }; 128];
    let head = match parse_request(bytes, &mut HeadSearch::default(), &mut fields, limits) {
        Ok(Some(head)) => head,
        Ok(None) => return "more".into(),
        Err(Reject { status, reason }) => return format!("{status} {reason}"),
    };
    let request = head.request;
    let mut text = format!("{} {}", request.method, request.path);
    if let Some(query) = request.query {
        text += &format!(" ?{query}");
    }
    match request.host {
        None => text += " nowhere",
        Some(Host { name, port: None }) => text += &format!(" {name}"),
        Some(Host {
            name,
            port: Some(port),
        }) => text += &format!(" {name}:{port}"),
    }
    text += &format!(" {:?}", head.framing);
    for (is, word) in [
        (request.version == Version::Http10, " 1.0"),
        (!head.keep_alive, " close"),
        (head.expects_continue, " continue"),
        (head.upgrades, " upgrade"),
    ] {
        text += if is { word } else { "" };
    }
    match bytes.len() - head.length {
        0 => text,
        behind => format!("{text} +{behind}"),
    }
}

/// Likewise of a response: status, reason in brackets, framing and what is said about the connection.
fn response(method: &str, bytes: &[u8]) -> String {
    oracle::check(bytes);
    let mut fields = [const { MaybeUninit::uninit() }; 128];
    let limits = Limits::default();
    let mut search = HeadSearch::default();
    let head = match parse_response(bytes, &mut search, &mut fields, &limits, method) {
        Ok(Some(head)) => head,
        Ok(None) => return "more".into(),
        Err(Reject { status, reason }) => return format!("{status} {reason}"),
    };
    let Response { status, reason, .. } = head.response;
    let mut text = format!("{status} [{reason}] {:?}", head.framing);
    for (is, word) in [
        (head.response.version == Version::Http10, " 1.0"),
        (!head.keep_alive, " close"),
        (head.kind == ResponseKind::Interim, " interim"),
        (head.kind == ResponseKind::Upgraded, " upgraded"),
    ] {
        text += if is { word } else { "" };
    }
    match bytes.len() - head.length {
        0 => text,
        behind => format!("{text} +{behind}"),
    }
}
