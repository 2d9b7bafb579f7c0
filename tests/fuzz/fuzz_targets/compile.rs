//! Any tables, one after the other, held against the promises of compiling, of what is opened and closed, and of choosing.
#![no_main]

use ballast_core::change::change;
use ballast_core::compile::{CompileContext, compile};
use ballast_core::loops::LOOPBACK_ONLY;
use ballast_core::moment::Moment;
use ballast_core::pick::{Key, Tried};
use ballast_core::plan::{Listens, Plan};
use ballast_core::rng::Rng;
use ballast_core::socket_key::SocketKey;
use ballast_core::table::{self, Format, RoutingTable};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the compiler, whose own tests hold it to them with the same corpus.
#[path = "../../../dataplane/core/src/compile/tests/oracle.rs"]
mod oracle;

fuzz_target!(|text: &[u8]| {
    oracle::check(text);
});
