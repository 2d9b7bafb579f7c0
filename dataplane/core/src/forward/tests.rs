use std::mem::MaybeUninit;

use super::*;
use crate::affinity::cookie::CookieValue;
use crate::http::{Field, Framing, Host, Request, Response, Scheme, Version};
use crate::http1::{
    Body, HeadSearch, Limits, Piece, parse_request, parse_response, parse_trailers, write_data,
    write_end,
};
use crate::http2::{Config, Connection, Event, Fields, Key, PREFACE, request_block};
use crate::moment::Moment;
use crate::route::Rewrite;
use crate::table::{FrontendHttp, HeaderEdits, HttpVersion, Route};

mod edits;
mod map_back;
mod properties;
mod requests;
mod responses;
mod translation;

/// The head in the text, whose lines may end in `\n` alone and need no blank line after them.
fn lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().map(str::trim).collect();
    lines.join("\r\n") + "\r\n\r\n"
}

/// Runs `test` with the fields below the first line.
fn with_fields<T>(text: &str, test: impl FnOnce(&str, &[Field<'_>]) -> T) -> T {
    let text = lines(text);
    let (first, rest) = text.split_once("\r\n").unwrap();
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let parsed = httparse::parse_headers(rest.as_bytes(), &mut fields).unwrap();
    test(first, parsed.unwrap().1)
}

fn host(text: &str) -> Host<'_> {
    match text
        .rsplit_once(':')
        .filter(|(_, port)| !port.ends_with(']'))
    {
        Some((name, port)) => Host {
            name,
            port: Some(port.parse().unwrap()),
        },
        None => Host {
            name: text,
            port: None,
        },
    }
}

fn edits(json: &str) -> HeaderEdits {
    serde_json::from_str(json).unwrap()
}

fn options(json: &str) -> FrontendHttp {
    serde_json::from_str(json).unwrap()
}

/// One head written, without its blank line, for comparison with another.
fn shown(head: &[u8]) -> String {
    let text = str::from_utf8(head).unwrap();
    let text = text
        .strip_suffix("\r\n\r\n")
        .expect("a blank line at the end");
    text.trim_end().replace("\r\n", "\n")
}

fn expected(text: &str) -> String {
    lines(text).trim_end().replace("\r\n", "\n")
}

/// The rewriting of a route for everything below `from`.
fn rewrite(from: &str, to: &str) -> Rewrite {
    let route = Route {
        path: Some(serde_json::from_value(from.into()).unwrap()),
        ..Route::default()
    };
    let to = crate::table::Rewrite {
        prefix: Some(to.parse().unwrap()),
        ..Default::default()
    };
    Rewrite::new(&to, &route)
}
