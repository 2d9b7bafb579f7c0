//! HTTP: the connections of clients in both versions, and the exchange of each request with an endpoint.
//!
//! [`h1`] and [`h2`] read the requests of a client's connection. Both ask [`request`] where a request goes, hand it to the one
//! [`exchange`], and send the answers of Ballast's own that [`answers`] makes. Each request reads the plan in force, so a new table
//! applies to connections that are already open.
//!
//! An exchange joins two [`side`]s, each of which speaks either version. A connection of HTTP/2, towards a client or an endpoint, is a
//! [`mux`](crate::net::mux). Connections to endpoints that wait for requests, and those that serve many at once, are in the worker's
//! [`pool`](crate::worker::pool).

mod account;
mod answers;
mod exchange;
mod h1;
mod h2;
mod idle_policy;
mod idle_timer;
mod linger;
mod peer;
mod refuse;
mod request;
mod send_all;
mod side;

pub(crate) use h1::serve;
pub(crate) use refuse::Refusing;
