//! What `publish` does with decisions: the status, the finalizer and the annotations of Services, and events. It alone writes them.
//!
//! `leader` says which publisher writes, by a Lease. `status` writes to Services where they are not as decided, `events` tells
//! people; `modes` is what is told where the API server drops `ipMode`. `release` takes everything back, for an uninstallation.

mod events;
pub(crate) mod leader;
mod modes;
mod release;
mod status;

pub(crate) use events::EventWriter;
pub(crate) use leader::{Campaign, campaign};
pub use release::{ReleaseFlags, release};
pub(crate) use status::StatusWriter;
