//! The data plane of Ballast: sockets, tasks, files and clocks around the decisions of [`ballast_core`].
//!
//! # The walk of a connection
//! The accept loop of a listening socket (`tcp`) asks the plan in [`live`] whose client has come, and admits it or resets
//! it. A trusted peer owes a PROXY header (`preamble`). `dial` takes a lease on an endpoint, tries others when it
//! cannot be reached, and `relay` moves the bytes of both directions until the end, which is counted.
//!
//! # The walk of a datagram
//! A worker receives datagrams in batches (`udp`) and asks the [`FlowTable`](ballast_core::flow::FlowTable) about each: on to
//! the endpoint of its flow, by a new socket to an endpoint, or nowhere. What comes back by a flow's socket leaves from
//! the address that the client spoke to.
//!
//! # The walk of a table
//! `intake` sees a change; `apply` parses, compiles, opens what is new, publishes, closes what is gone and answers. It
//! is the only one that writes [`live`].
//!
//! # The walk of a verdict
//! `probe` asks the endpoints as the plan says, [`ballast_core::health`] makes a verdict of the answers, and each is one
//! atomic of the endpoint, which the next choice reads. Nothing is rebuilt for health.
//!
//! # Threads
//! [`start`] makes a thread for each `worker`, one for `apply`, one for `probe`, one for `admin` and one that renders the
//! lines of `access`. Only the last four are ever slow. Lines are written by further threads, one for standard error, one for
//! standard output and one for each syslog server ([`log`]): they alone wait for whoever reads the lines.
//! What a panic ends is told in `panics`.

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
mod by_hand;
mod console;
mod fault;
mod guard;
mod intake;
mod listen;
mod operator;
mod panics;
mod poller;
mod ports;
mod probe;
mod relay;
mod reserve;
mod runtime;
mod source;
mod start_error;
mod tcp;
mod threads;
mod udp;
mod worker;

pub use by_hand::Unchanged;
pub use config::Config;
pub use guard::Ending;
pub use intake::{check, warnings};
pub use runtime::{Running, start};
pub use start_error::StartError;
pub use worker::{Load, Shared};
