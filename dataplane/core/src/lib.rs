//! Every decision of the Ballast load balancer, and none of its actions.
//!
//! Which endpoint a client gets, who is refused, what a table means, what a PROXY header says: all of that is decided here, by
//! plain values and functions. This crate has no socket, clock, task or source of randomness: time is a
//! [`Moment`](moment::Moment) argument, randomness an [`Rng`](rng::Rng) argument. So every decision can be tested without a
//! network, and replayed. The crate `ballast` carries the decisions out.
//!
//! # The map
//!
//! From text to plan, whenever a table changes; `apply` in the data plane calls these in this order:
//!
//! | module | decides |
//! |---|---|
//! | [`table`] | what a table may contain, and every mistake in it: [`table::parse()`] |
//! | [`mod@compile`] | what a table means: [`compile::compile()`], the only constructor of a [`Plan`](plan::Plan) |
//! | [`overrides`] | which values operators override: an input of `compile`, kept across swaps |
//! | [`loops`] | which endpoints are Ballast's own frontends, and to which of them no client may be sent |
//! | [`mod@change`] | which sockets to open and to close, and which endpoints were removed: [`change::change()`] |
//! | [`ack`] | what the controller is answered: [`Ack`](ack::Ack); [`announce_ack`]: what the announcer answers, who has which address |
//!
//! For each connection, by a worker that reads the [`plan`] and never waits:
//!
//! | module | decides |
//! |---|---|
//! | [`admit`] | which clients are admitted: source ranges, limits of connections and of rates, for all clients and for each |
//! | [`preamble`] | which client a trusted proxy names, and how the client is named to an endpoint: the PROXY protocol |
//! | [`hello`] | what a TLS client asks for, before anything is encrypted: the server name and the protocols |
//! | [`certificate`] | which certificates it is offered: by the server name, [`CertificateNames`](certificate::CertificateNames) |
//! | [`handshake`] | how a TLS handshake ends, by name |
//! | [`route`] | where an HTTP request or a TLS connection goes, how its path changes, and where a redirect leads |
//! | [`mod@backends`] | which service the client gets where several share a route or a frontend: by affinity, else by weight |
//! | [`mod@pick`] | which endpoint the client gets: [`Service::pick`](service::Service::pick), six algorithms, one file each |
//! | [`affinity`] | which endpoint the client had before: by its address, or by its cookie |
//! | [`mod@queue`] | which client is next when every endpoint is full |
//! | [`forward`] | what of a request an endpoint gets, and what of a response its client gets: heads of HTTP |
//! | [`answer`] | what Ballast answers by itself: pages for errors, redirects |
//! | [`http1`] | where messages of HTTP/1 end, and which ones are refused: [`http1::parse_request()`], [`http1::Body`] |
//! | [`http2`] | HTTP/2 from bytes and to bytes: streams, windows, limits, and how a connection ends: [`http2::Connection`] |
//! | [`flow`] | for each UDP datagram: its endpoint, the client of a reply, and when the flow ends; [`udp_counters`] counts both |
//!
//! For each endpoint:
//!
//! | module | decides |
//! |---|---|
//! | [`health`] | when it is checked, and what the answer means |
//! | [`mod@monitor`] | whether it is up |
//!
//! State that outlives a plan, found again by identity:
//!
//! | module | holds |
//! |---|---|
//! | [`endpoint`] | an endpoint's connections, health and ejection, by service and address; a [`Lease`](endpoint::Lease) counts one connection |
//! | [`service`] | a service's compiled form, its state by name, its nodes, and the ejection of endpoints after failed dials |
//! | [`plan`] | a frontend's state by name ([`FrontendState`](plan::FrontendState)), in addition to the plan itself |
//! | [`records`] | what is counted of a frontend's routes and backends |
//! | [`mod@counters`] | the workers' counters, one cell for each worker |
//!
//! Tools: [`http`] (requests, responses and the kinds of their fields), [`moment`] (time), [`rng`] (randomness), [`deadlines`] (a timer
//! wheel), [`mod@backoff`] (delays between retries), [`mod@text`] (appending text), and [`mod@words`] (enums whose variants have
//! words).
//!
//! # The lexicon
//!
//! One word means one thing, in names, comments, messages and metrics.
//!
//! - **frontend**: what clients connect to. [`table::Frontend`] in the table, [`plan::Frontend`] compiled.
//! - **service**: a set of endpoints and the algorithm that chooses among them. [`table::Service`], [`service::Service`].
//! - **endpoint**: one address of a service. [`table::Endpoint`], [`service::Endpoint`], and its state
//!   [`endpoint::EndpointState`].
//! - **node**: the machine that endpoints run on. [`service::Node`].
//! - **route**: host and path that lead to a service. [`table::Route`] in the table, [`route::Route`] compiled.
//! - **backend**: one of several services that share a route or a frontend by weight. [`table::Backend`],
//!   [`backends::Backends`].
//! - **flow**: the conversation of one UDP client with one endpoint. [`flow::FlowTable`].
//! - **request**, **reply**: a datagram of a client, of an endpoint.
//! - **table**: the configuration as written. [`table::RoutingTable`].
//! - **problem**: a mistake in a table, with its place, the reason and the remedy. [`table::Problem`].
//! - **plan**: the compiled form of a table, swapped as a whole and never changed. [`plan::Plan`].
//! - **override**: a value that an operator set in place of the table's. [`overrides::Overrides`].
//! - **generation**: the number that a table's author gave it.
//! - **lease**: one connection counted on an endpoint. [`endpoint::Lease`].
//! - **ejection**: leaving out an endpoint that cannot be reached, for a while. [`service::Ejection`].
//! - **refusal**: the named reason for which a client is not served. [`admit::Refusal`].
//! - **ack**: the data plane's answer to a table. [`ack::Ack`].
#![forbid(unsafe_code)]
#![warn(clippy::match_bool)]

pub mod ack;
pub mod admit;
pub mod affinity;
pub mod announce_ack;
pub mod answer;
pub mod backends;
pub mod backoff;
pub mod certificate;
pub mod change;
pub mod compile;
pub mod counters;
pub mod deadlines;
pub mod endpoint;
pub mod flow;
pub mod forward;
pub mod handover;
pub mod handshake;
pub mod health;
pub mod hello;
pub mod http;
pub mod http1;
pub mod http2;
pub mod loops;
pub mod moment;
pub mod monitor;
pub mod overrides;
pub mod pick;
pub mod plan;
pub mod preamble;
pub mod queue;
pub mod records;
pub mod rng;
pub mod route;
pub mod service;
pub mod socket_key;
pub mod table;
pub mod text;
pub mod udp_counters;
pub mod words;

mod chains;
mod clients;
mod gauge;
mod hash;
#[cfg(test)]
mod simulation;
mod slots;
