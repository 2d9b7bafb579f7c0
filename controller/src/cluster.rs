//! The writers of `publish`: for each decision they write the status, the finalizer and the annotations of Services, the status of
//! AddressPools, and events. No other part of the program writes these.
//!
//! `leader` elects the publisher that writes, by a Lease; `handover` is what it waits for at first. `status` applies the part of
//! Services that is ours, `pool_status` that of AddressPools, `events` writes events. `tell` tells nodes what they cannot know.
//! `release` removes everything, for an uninstallation.

mod events;
mod handover;
pub(crate) mod leader;
mod pool_status;
mod release;
mod status;
mod tell;

pub(crate) use events::EventWriter;
pub(crate) use leader::{Campaign, campaign};
pub(crate) use pool_status::PoolStatusWriter;
pub use release::{ReleaseFlags, release};
pub(crate) use status::StatusWriter;
pub(crate) use tell::tell_nodes;
