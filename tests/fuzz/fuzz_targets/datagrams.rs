//! Any datagrams of members that have the key, held against the promises of the announcer's membership.
#![no_main]

use ballast_announce::membership::{Identity, Membership, State};
use libfuzzer_sys::fuzz_target;

// The promises stand beside the members, whose own tests hold them to these with the same corpus.
#[path = "../../../controller/announce/src/membership/tests/oracle.rs"]
mod oracle;

fuzz_target!(|bytes: &[u8]| oracle::check(bytes));
