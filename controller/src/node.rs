//! The tasks of `run` that act on decisions: they write the table, the announcer's file and the node's Lease, and nothing else.
//!
//! `table` writes the table and its files through `folder`, `fetch` downloads pages, `acks` reads the answers of the data plane.
//! `announcer` writes the file of this node's announcer, as `announcement` makes it of the decision and those answers.
//! `lease` renews the node's Lease: `readyz` asks whether the data plane serves, `renew` decides when to write, `recent` names the
//! Services that changed, `exceptions` lists everything that is not served as decided.

mod acks;
mod announcement;
mod announcer;
mod exceptions;
mod fetch;
mod folder;
mod lease;
mod readyz;
mod renew;
mod table;

pub(crate) use acks::{follow as follow_acks, follow_announcer};
pub(crate) use announcement::Target;
pub(crate) use announcer::Announcer;
pub(crate) use fetch::{Pages, follow as fetch_pages};
pub(crate) use folder::Folder;
pub(crate) use lease::LeaseRenewer;
pub(crate) use table::{TableWriter, Written};
