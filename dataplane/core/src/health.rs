//! Active checks, decided: when each one is due, what is asked, what an answer means, and what that makes of an endpoint.
//!
//! The data plane's `probe` is the only caller that acts. It gives every plan to [`Checks::follow`], runs what
//! [`Checks::next`] hands out (the bytes come from an [`Exchange`], which also judges the answer), and tells the
//! [`Outcome`] to [`Checks::ended`]. There the endpoint's [`Monitor`] decides, the verdict becomes the one atomic that
//! `pick` reads, and a [`Change`] comes back for the log. Who shows endpoints reads [`EndpointState::monitor`].
//!
//! A check is (endpoint, `health`): while both stay, a swap changes nothing. Another `health` begins unproven, and
//! the endpoint keeps its verdict until the new check has one. Without `health` it is well again.
//!
//! [`EndpointState::monitor`]: crate::endpoint::EndpointState::monitor

mod change;
mod checks;
mod exchange;
mod http;
mod monitor;
mod outcome;
mod schedule;
mod search;
mod tally;

pub use change::Change;
pub use checks::{Check, CheckId, Checks};
pub use exchange::Exchange;
pub use monitor::{Monitor, Seen, Status, Transition};
pub use outcome::Outcome;
pub use tally::Tally;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
