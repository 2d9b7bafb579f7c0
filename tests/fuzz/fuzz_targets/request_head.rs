//! Any bytes at all, held against the promises of the HTTP/1 reader: heads of requests and of responses, and bodies.
#![no_main]

use ballast_core::http::{Field, Framing};
use ballast_core::http1::{
    Body, BodyError, HeadSearch, Limits, Piece, Reject, parse_request, parse_response, parse_trailers,
};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the reader, whose own tests hold it to them with the same corpus.
#[path = "../../../dataplane/core/src/http1/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| oracle::check(bytes));
