//! The data plane of Ballast: the sockets, tasks, files and clocks that carry out the decisions of [`ballast_core`].
//!
//! # The walk of a connection
//! The accept loop of a listening socket (`tcp`) asks the plan in [`live`] which frontend the socket serves, and admits the
//! connection or resets it. A trusted peer must first send a PROXY header (`tcp::preamble`). `tcp::dial` takes a lease on an
//! endpoint, tries other endpoints while none can be reached, and `relay` moves the bytes of both directions until the end,
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
//! # Threads
//! [`start`] creates one thread for each `worker`, one for `apply`, one for `probe`, one for `admin`, and one that renders the
//! lines of `access`. Only the last four may be slow. Further threads write lines: one for standard error, one for standard
//! output, and one for each syslog server ([`log`]). Only they wait for the readers of these lines. `panics` describes what a
//! panic ends.

pub mod clock;
pub mod config;
pub mod demo;
pub mod limits;
pub mod live;
pub mod log;
pub mod show;
pub mod stats;
pub mod status;
pub mod sys;

mod access;
mod admin;
mod apply;
mod auth;
mod console;
mod http;
mod instance_lock;
mod intake;
mod listen;
mod operator;
mod override_request;
mod panics;
mod poller;
mod ports;
mod probe;
mod relay;
mod reserve;
mod runtime;
mod send_proxy;
mod socket_error;
mod source_address;
mod start_error;
mod succession;
mod tcp;
mod threads;
mod tls;
mod udp;
mod worker;

pub use config::Config;
pub use instance_lock::LockName;
pub use intake::{Checked, FirstTable, Verdict, check};
pub use override_request::OverrideError;
pub use runtime::{Running, start, start_on};
pub use start_error::StartError;
pub use succession::{Holder, Predecessor};
pub use worker::{Load, Shared};
