//! The tasks of `run` that act on decisions: they write the table and the node's Lease, and nothing else.
//!
//! `table` writes the table and its files through `folder`, `fetch` downloads pages, `acks` reads the answers of the data plane.
//! `lease` renews the node's Lease: `readyz` asks whether the data plane serves, `renew` decides when to write, `recent` names the
//! Services that changed, `exceptions` lists everything that is not served as decided.

mod acks;
mod exceptions;
mod fetch;
mod folder;
mod lease;
mod readyz;
mod renew;
mod table;

pub(crate) use acks::follow as follow_acks;
pub(crate) use fetch::{Pages, follow as fetch_pages};
pub(crate) use folder::Folder;
pub(crate) use lease::LeaseRenewer;
pub(crate) use table::{TableWriter, Written};
