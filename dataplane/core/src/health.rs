//! Active health checks: when each one is due, what is sent, what the answer means, and the resulting state of the endpoint.
//!
//! The data plane's `probe` carries them out. It gives every plan to [`Checks::follow`], runs what [`Checks::next`] returns (an
//! [`CheckExchange`] makes the bytes and judges the answer), and passes the [`Outcome`] to [`Checks::ended`]. There the endpoint's
//! [`Monitor`] decides, the verdict becomes the one atomic that `pick` reads, and a [`VerdictChange`] is returned for the log.
//! The statistics read [`EndpointState::monitor`].
//!
//! A check is identified by (endpoint, `health`): while both stay the same, a swap changes nothing. With another `health`, the
//! endpoint keeps its verdict until the new check has one. Without `health`, it counts as healthy again.
//!
//! [`EndpointState::monitor`]: crate::endpoint::EndpointState::monitor

mod checks;
mod exchange;
mod http;
mod schedule;
mod search;
mod verdict_change;

pub use crate::monitor::{CheckResult, ForcedHealth, Monitor, Outcome, ServiceChecks, Transition};
pub use crate::slots::SlotId as CheckId;
pub use checks::{Check, Checks};
pub use exchange::CheckExchange;
pub use verdict_change::VerdictChange;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
