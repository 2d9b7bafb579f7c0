//! Any routes and any request, held against the promises of the search for a route.
#![no_main]

use ballast_core::compile::{CompileContext, compile};
use ballast_core::http::{Field, Host, Request, Version};
use ballast_core::loops::LOOPBACK_ONLY;
use ballast_core::moment::Moment;
use ballast_core::plan::{Plan, Serves};
use ballast_core::rng::Rng;
use ballast_core::route::Target;
use ballast_core::table::{Format, parse};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the search, whose own tests hold it to them with the same corpus.
#[path = "../../../dataplane/core/src/route/tests/oracle.rs"]
mod oracle;

fuzz_target!(|text: &str| {
    oracle::check(text);
});
