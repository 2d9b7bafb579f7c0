//! Any bytes of a peer, held against the promises of one end of an HTTP/2 connection, the server's or the client's.
#![no_main]

use ballast_core::http2::{Config, Connection, ErrorCode, Event, Key, PREFACE, Reset};
use ballast_core::moment::Moment;
use libfuzzer_sys::fuzz_target;

// The promises stand beside the connection, whose own tests hold it to them with the same corpus.
#[path = "../../../dataplane/core/src/http2/tests/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| oracle::check(bytes));
