//! Any bytes as haproxy's configuration, held against the promises of the import.
#![no_main]

use ballast_core::compile::{CompileContext, compile};
use ballast_core::loops::HostAddresses;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{Format, parse};
use ballast_import::{Imported, Source, World, translate};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the import, whose own tests hold it to them with the same corpus.
#[path = "../../../dataplane/import/src/tests/oracle.rs"]
mod oracle;

fuzz_target!(|text: &[u8]| oracle::check(text));
