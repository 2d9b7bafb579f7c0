//! Any bytes of the other process, held against the promises of the messages of a hand-over.
#![no_main]

use ballast_core::compile::{CompileContext, compile};
use ballast_core::handover::{LENGTH, Message, State, length};
use ballast_core::loops::LOOPBACK_ONLY;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{Format, parse};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the messages, whose own tests hold them to these with the same corpus.
#[path = "../../../dataplane/core/src/handover/tests/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| oracle::check(bytes));
