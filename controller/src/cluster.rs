//! The writers of `publish`: for each decision they write the status, the finalizer and the annotations of Services, and events. No
//! other part of the program writes these.
//!
//! `leader` elects the publisher that writes, by a Lease. `status` applies the part of Services that is ours, `events` writes
//! events; `ip_mode` is the warning where the API server drops `ipMode`. `release` removes everything, for an uninstallation.

mod events;
mod ip_mode;
pub(crate) mod leader;
mod release;
mod status;

pub(crate) use events::EventWriter;
pub(crate) use leader::{Campaign, campaign};
pub use release::{ReleaseFlags, release};
pub(crate) use status::StatusWriter;
