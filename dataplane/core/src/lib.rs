//! Every decision of the Ballast load balancer, and none of its acts.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod ack;
pub mod admit;
pub mod affinity;
pub mod backoff;
pub mod change;
pub mod compile;
pub mod counters;
pub mod endpoint;
pub mod moment;
pub mod overrides;
pub mod pick;
pub mod plan;
pub mod preamble;
pub mod queue;
pub mod rng;
pub mod service;
pub mod table;
