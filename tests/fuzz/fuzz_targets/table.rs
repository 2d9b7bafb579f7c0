//! Any text at all, held against the promises of the table's reader.
#![no_main]

use ballast_core::table::{Format, files, parse};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the reader, whose own tests hold it to them with the same corpus.
#[path = "../../../dataplane/core/src/table/oracle.rs"]
mod oracle;

fuzz_target!(|text: &[u8]| oracle::check(text));
