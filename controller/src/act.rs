//! Acting on decisions. Each part follows the stream of [`Decision`]s and acts only where its own share of one changed.
//!
//! Called by `run`: one task for each part. `publish` writes the table, `report` keeps this node's Lease; `status` writes what
//! Services publish, and `events` tells people, only while this process leads, but for what concerns this node alone. Nobody here decides what should be.

mod acks;
mod events;
mod exceptions;
mod fetch;
mod folder;
mod modes;
mod publish;
mod pulse;
mod readyz;
mod report;
mod status;

use std::sync::Arc;

use tokio::sync::watch;

pub(crate) use acks::follow as follow_acks;
pub(crate) use events::{Events, Teller};
pub(crate) use fetch::{Pages, follow as fetch_pages};
pub(crate) use folder::Folder;
pub(crate) use publish::{Publish, Written};
pub(crate) use report::Report;
pub(crate) use status::{Statuses, take_back};

use crate::decide::Desired;
use crate::observe::Observed;

/// What was seen, and what must be.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What was seen.
    pub observed: Arc<Observed>,
    /// What must be.
    pub desired: Arc<Desired>,
}

/// The newest decision; none before everything was seen once.
pub type Decisions = watch::Receiver<Option<Decision>>;
