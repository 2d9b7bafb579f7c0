//! Any bytes at all, held against the promises of the reader of ClientHellos.
#![no_main]

use ballast_core::hello::{Hello, LONGEST, step};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the reader, whose own tests hold it to them with the same corpus.
#[path = "../../../dataplane/core/src/hello/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| oracle::check(bytes));
