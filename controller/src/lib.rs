//! Ballast's controller: one program with two roles.
//!
//! `run` is on every load balancer node: it watches Services, EndpointSlices and its own Node, and writes the node's table and
//! the node's Lease. `publish` runs anywhere, as two replicas of which one leads: it watches Services, Nodes, Leases and address
//! pools, and writes the status, the finalizer and the annotations of Services, and events. Both make the same pure decision.
//!
//! # The map
//!
//! | module | owns |
//! |---|---|
//! | [`settings`] | flags, checked once |
//! | [`observe`] | what is seen of the cluster, or of a folder of manifests, as plain data |
//! | [`mod@decide`] | every decision: [`decide::decide()`], pure |
//! | `reconcile` | the loop from one to the other, paced |
//! | `node` | `run`: the table and the node's Lease |
//! | `cluster` | `publish`: leader election, statuses, events; and `release` |
//! | [`lease`] | what Leases say |
//! | [`pools`] | address pools, and which Service has which address of them: pure |
//! | [`plan`] | the output of `plan`: a decision, printed for users |
//!
//! # A Service, from event to status
//!
//! On a node: `observe::reflector` receives the event, `observe::convert` makes plain data of it, `observe::debounce` waits until
//! no more events come (50 ms, at most 200 ms), `reconcile` calls [`decide::decide()`]. `decide::load_balancer` reads the
//! annotations and finds the endpoints, `decide::allocate` keeps the ports that the Service was given, `decide::table` assembles
//! the table. `node::table` writes it, the data plane answers in a file that `node::acks` follows, and `node::lease` says in the
//! node's Lease up to which version Services are served. At the publisher: `decide::allocate` gives addresses and ports to Services that have
//! none, `cluster::status` writes what was given; `observe::leases` knows which nodes live, `observe::proofs` what they serve,
//! [`decide::decide()`] which addresses may be published, and `cluster::status` writes those too.
//!
//! In this crate a *Service* is Kubernetes'; the table's own is always written `table::Service`.
#![forbid(unsafe_code)]

use std::sync::LazyLock;

pub mod admin;
pub mod allocation;
mod client;
mod clock;
pub mod cluster;
pub mod decide;
mod follow;
pub mod lease;
mod leaving;
pub mod log;
mod metrics;
mod node;
pub mod observe;
mod pem;
pub mod plan;
pub mod pools;
pub mod publish;
mod reconcile;
mod replace;
mod request;
pub mod run;
pub mod settings;
mod waiting;

/// The version, and the commit of the source, which the build script names, as `--version` prints them.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("BALLAST_COMMIT").unwrap_or("unknown");
    format!("{} (commit {commit})", env!("CARGO_PKG_VERSION"))
});
