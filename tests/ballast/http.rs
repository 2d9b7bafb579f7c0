//! `ballast`: HTTP/1 from end to end over real sockets: requests and responses are spelled out byte by byte on both sides.

mod anew;
mod backends;
mod bodies;
mod costs;
mod curl;
mod differential;
mod drain;
mod forwarding;
mod framing;
mod interim;
mod limits;
mod lingering;
mod moved;
mod pipelines;
mod refusals;
mod reuse;
mod swaps;
mod timers;
mod trailers;
mod upgrades;
mod wire;
