//! The real `ballast`, run as a stranger would run it: arguments, signals, files, descriptors, exit codes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod addresses;
mod admin;
mod answers;
mod certificates;
mod check;
mod crash;
mod datagrams;
mod demo;
mod descriptors;
mod ending;
mod handover;
mod hostile;
mod import;
mod import_random;
mod install;
mod listeners;
mod log;
mod memory;
mod operators;
mod peers;
mod process;
mod rights;
mod run;
mod secrets;
mod streams;
mod succession;
mod systemd;
mod usage;
