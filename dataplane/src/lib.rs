//! The data plane of Ballast: the sockets, tasks, files and clocks that carry out the decisions of [`ballast_core`].
//!
//! # The walk of a connection
//! The accept loop of a listening socket (`tcp`) asks the plan in [`live`] which frontend the socket serves, and admits the
//! connection or resets it. A trusted peer must first send a PROXY header (`tcp::preamble`). `connect` takes a lease on an
//! endpoint, tries other endpoints while none can be reached, and `net::relay` moves the bytes of both directions until the end,
//! which is counted.
//!
//! # The walk of a datagram
//! A worker receives datagrams in batches (`udp`) and asks the [`FlowTable`](ballast_core::flow::FlowTable) about each one: it
//! goes to the endpoint of its flow, by a new socket to an endpoint, or is dropped. Replies of a flow's endpoint leave from the
//! address to which the client sent.
//!
//! # The walk of a table
//! `intake` notices a change; `apply` parses and compiles the table, opens new sockets, publishes the plan, closes old sockets
//! and writes the ack. `apply` is the only writer of [`live`].
//!
//! # The walk of a health result
//! `probe` checks the endpoints as the plan says. [`ballast_core::health`] turns the results into a verdict. The verdict is one
//! atomic of the endpoint, which the next pick reads; nothing is rebuilt for it.
//!
//! # The walk of a hand-over
//! With `--handover PATH` the next process gets the sockets of the one that runs (`process::handover`): it asks at PATH, `apply`
//! and the admin side of the running process lend what they have, and `apply` of the next one takes them with its first table.
//!
//! # The rooms
//! Each folder imports only those above it in this list; `tests/layering.rs` holds the order.
//!
//! | room | what it is for |
//! |---|---|
//! | `os` | the operating system: system calls, the clock, threads, descriptors and memory, files, the log |
//! | `net` | sockets, and what moves bytes between them: listening, readiness, TLS, HTTP/2, the relay |
//! | `process` | one process among others: its settings, its rights, its locks, its successor, why it does not start |
//! | `access` | the access log: what a line says, and who writes it |
//! | `worker` | what a worker owns, what it shares with other threads, the orders that it is given |
//! | `connect` | connections to endpoints: the dial, its queue, the PROXY header |
//! | `http`, `tcp`, `udp` | what serves clients; a frontend of HTTP begins in `tcp` |
//! | `probe` | health checks |
//! | `stats` | all counters as one snapshot, and its renderings |
//! | `operator` | what operators see and do: the admin addresses, the runtime socket, `ballast show` |
//! | `table` | reads a table, and puts it in force |
//! | `runtime` | starts and ends everything |
//!
//! The program's arguments, signals and exit codes are in `bin/ballast`.
//!
//! # Threads
//! [`start`] creates one thread for each `worker`, one for `apply`, one for `probe`, one for `admin`, and one that renders the
//! lines of `access`. Only the last four may be slow. Further threads write lines: one for standard error, one for standard
//! output, and one for each syslog server ([`log`]). Only they wait for the readers of these lines. `panics` describes what a
//! panic ends.
#![warn(clippy::match_bool)]

mod access;
mod connect;
mod http;
mod net;
mod operator;
mod os;
mod probe;
mod process;
mod runtime;
pub mod stats;
mod table;
mod tcp;
mod udp;
mod worker;

pub use operator::admin::EarlyAdmin;
pub use operator::show;
pub use os::{clock, limits, log, sys};
pub use process::account;
pub use process::config::{self, Config};
pub use process::handover::{GOES_ON, Inherited, TakenOver, is_end, is_served};
pub use process::instance_lock::LockName;
pub use process::rights::{GivenUp, Rights};
pub use process::start_error::StartError;
pub use process::succession::{Holder, Predecessor, RELEASES_WITHIN};
pub use process::version::{COMMIT, VERSION};
pub use runtime::{Running, demo, start, start_on};
pub use table::intake::{Checked, FirstTable, Verdict, check};
pub use worker::override_request::OverrideError;
pub use worker::{Load, Shared, live, status};
