//! HTTP/1 from end to end over real sockets: requests and responses are spelled out byte by byte on both sides.

#[path = "common/apart.rs"]
mod apart;
mod common;
#[path = "common/peers.rs"]
mod peers;
#[path = "common/skip.rs"]
mod skip;

#[path = "http/backends.rs"]
mod backends;
#[path = "http/bodies.rs"]
mod bodies;
#[path = "http/costs.rs"]
mod costs;
#[path = "http/curl.rs"]
mod curl;
#[path = "http/differential.rs"]
mod differential;
#[path = "http/drain.rs"]
mod drain;
#[path = "http/forwarding.rs"]
mod forwarding;
#[path = "http/framing.rs"]
mod framing;
#[path = "http/interim.rs"]
mod interim;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/lingering.rs"]
mod lingering;
#[path = "http/moved.rs"]
mod moved;
#[path = "http/pipelines.rs"]
mod pipelines;
#[path = "http/refusals.rs"]
mod refusals;
#[path = "http/reuse.rs"]
mod reuse;
#[path = "http2/strict.rs"]
mod strict;
#[path = "http/swaps.rs"]
mod swaps;
#[path = "http/timers.rs"]
mod timers;
#[path = "http/trailers.rs"]
mod trailers;
#[path = "http/upgrades.rs"]
mod upgrades;
#[path = "http/wire.rs"]
mod wire;
