//! Every decision of the Ballast load balancer, and none of its acts.
//!
//! Which endpoint a client gets, who is turned away, what a table means, what a PROXY header says: all of that is decided
//! here, by plain values and functions. There is no socket, no clock, no task and no dice in this crate: time is a
//! [`Moment`](moment::Moment) that the caller brings, randomness an [`Rng`](rng::Rng) that the caller seeded. So every
//! decision can be tested without a network, and replayed. The crate `ballast` is the shell that acts.
//!
//! # The map
//!
//! From text to plan, whenever a table changes; `apply` in the shell calls these in this order:
//!
//! | module | decides |
//! |---|---|
//! | [`table`] | what may be asked for, and every mistake in it: [`table::parse()`] |
//! | [`mod@compile`] | what a table means: [`compile::compile()`], the only maker of a [`Plan`](plan::Plan) |
//! | [`loops`] | which endpoints are Ballast's own frontends, and which of those no client may be sent to |
//! | [`mod@change`] | which sockets to open and to close, and which endpoints have gone: [`change::change()`] |
//! | [`ack`] | what is answered: [`Ack`](ack::Ack) |
//!
//! For each connection, read from the [`plan`] by a worker that nothing makes wait:
//!
//! | module | decides |
//! |---|---|
//! | [`admit`] | who comes in: source ranges, limits at once and per second, for all and per client |
//! | [`preamble`] | who the client is, where a trusted proxy says so, and how to tell an endpoint: the PROXY protocol |
//! | [`mod@pick`] | which endpoint it gets: [`Service::pick`](service::Service::pick), six algorithms, one file each |
//! | [`affinity`] | which endpoint it had |
//! | [`mod@queue`] | whose turn it is when every endpoint is full |
//! | [`flow`] | for each datagram instead: which endpoint it goes to, which client an answer, and when that is over |
//!
//! What lives longer than a plan, found again by identity:
//!
//! | module | knows |
//! |---|---|
//! | [`endpoint`] | an endpoint's connections, health and ejection, by service and address; a [`Lease`](endpoint::Lease) counts one connection |
//! | [`service`] | a service as the plan has it, its state by name, its nodes, and who is ejected after a failed dial |
//! | [`plan`] | a frontend's state by name ([`FrontendState`](plan::FrontendState)), beside the plan itself |
//! | [`counters`] | what workers count, a cell each |
//!
//! And by themselves: [`moment`], [`rng`], [`deadlines`] (a timer wheel) and [`mod@backoff`] for what is tried again.
//!
//! # The lexicon
//!
//! One word means one thing, in names, comments, messages and metrics.
//!
//! - **frontend**: what clients connect to. [`table::Frontend`] as it is asked for, [`plan::Frontend`] as it is served.
//! - **service**: a set of endpoints and how to choose among them. [`table::Service`], [`service::Service`].
//! - **endpoint**: one address of a service. [`table::Endpoint`], [`service::Endpoint`], and
//!   [`endpoint::EndpointState`] for what is known of it.
//! - **node**: the machine that endpoints run on. [`service::Node`].
//! - **route**: which host and path lead to which service. [`table::Route`].
//! - **flow**: the conversation of one UDP client. [`flow::FlowTable`].
//! - **table**: what is asked for. [`table::RoutingTable`].
//! - **problem**: a mistake in a table, with its place, the reason and the remedy. [`table::Problem`].
//! - **plan**: a table's compiled form, swapped as a whole and never changed. [`plan::Plan`].
//! - **generation**: the label that a table's author gave it.
//! - **lease**: one connection counted on an endpoint. [`endpoint::Lease`].
//! - **ejection**: an endpoint that cannot be reached is left out for a while. [`service::Ejection`].
//! - **refusal**: a no to a client, with its name. [`admit::Refusal`].
//! - **ack**: the answer to a table. [`ack::Ack`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod ack;
pub mod admit;
pub mod affinity;
pub mod backoff;
pub mod change;
pub mod compile;
pub mod counters;
pub mod deadlines;
pub mod endpoint;
pub mod flow;
pub mod health;
pub mod loops;
pub mod moment;
pub mod overrides;
pub mod pick;
pub mod plan;
pub mod preamble;
pub mod queue;
pub mod rng;
pub mod service;
pub mod table;

mod chains;
