//! The real `ballast`, run as a stranger would run it: arguments, signals, files, descriptors, exit codes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod addresses;
mod admin;
mod answers;
mod certificates;
mod check;
#[path = "../common/claims.rs"]
mod claims;
mod datagrams;
mod demo;
mod descriptors;
mod ending;
mod import;
mod import_random;
mod install;
mod listeners;
mod log;
mod memory;
mod operators;
#[allow(
    dead_code,
    reason = "only certificates and their files are needed here"
)]
#[path = "../tls/papers.rs"]
mod papers;
mod peers;
mod process;
#[path = "../http2/raw.rs"]
mod raw;
mod run;
#[path = "../common/skip.rs"]
mod skip;
mod streams;
mod succession;
mod systemd;
mod usage;
