//! HTTP: the connections of clients in both versions, and the exchange of each request with an endpoint.
//!
//! [`h1`] and [`h2`] read the requests of a client's connection. Both ask [`request`] where a request goes, hand it to the one
//! [`exchange`], and send the answers of Ballast's own that [`answers`] makes. Each request reads the plan in force, so a new table
//! applies to connections that are already open.
//!
//! An exchange joins two [`side`]s, each of which speaks either version. A connection of HTTP/2, towards a client or an endpoint, is a
//! [`mux`]. Connections to endpoints that wait for requests are in the [`pool`], those that serve many requests at once in its
//! [`links`].

mod account;
mod answers;
mod bad_request;
mod buffers;
mod by_owner;
mod exchange;
mod h1;
mod h2;
mod idle_policy;
mod idle_timer;
mod linger;
mod links;
mod mux;
mod peer;
mod pool;
mod refuse;
mod request;
mod send_all;
mod side;

pub(crate) use bad_request::LastBadRequest;
pub(crate) use buffers::Buffers;
pub(crate) use by_owner::Owner;
pub(crate) use h1::serve;
pub(crate) use links::{Announced, Connecting, Found, Links, Multiplexed, Outcome, Use};
pub(crate) use pool::Pool;
pub(crate) use refuse::Refusing;
