//! Any sequence of the frames of a message, and what becomes of it between HTTP/1 and HTTP/2, in both directions.
#![no_main]

use std::mem::MaybeUninit;

use ballast_core::forward::{
    Client, Edits, Sink, ToClient, ToEndpoint, Trailing, framing_to, request, response, response_fields,
};
use ballast_core::http::{Field, Framing, Host, Request, Response, Scheme, Version};
use ballast_core::http1::{
    Body, HeadSearch, Limits, Piece, parse_request, parse_response, parse_trailers, write_data,
    write_end,
};
use ballast_core::http2::{Config, Connection, Event, Fields, Key, PREFACE, request_block};
use ballast_core::moment::Moment;
use ballast_core::table::{FrontendHttp, HttpVersion};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the writers of heads, whose own tests hold them to these with the same corpus.
#[path = "../../../dataplane/core/src/forward/tests/translation.rs"]
mod translation;

fuzz_target!(|bytes: &[u8]| translation::check(bytes));
