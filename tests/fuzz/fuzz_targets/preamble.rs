//! Any bytes at all, held against the promises of the PROXY protocol reader.
#![no_main]

use ballast_core::preamble::{
    Addresses, Extras, Header, Reason, Parsed, Transport, Versions, encode_v1, encode_v2, step,
};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the reader, whose own tests hold it to them with the same corpus.
#[path = "../../../dataplane/core/src/preamble/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| oracle::check(bytes));
