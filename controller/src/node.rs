//! What `run` does with decisions on a load balancer node: the table, and the node's Lease. Nothing else is written.
//!
//! `table` writes the table and its files through `folder`, `fetch` has pages that are at an address, `acks` follows what the
//! data plane answers. `report` keeps the Lease: `readyz` asks whether the data plane serves, `pulse` says when to write,
//! `recent` which Services changed, `exceptions` what is not served as decided.

mod acks;
mod exceptions;
mod fetch;
mod folder;
mod pulse;
mod readyz;
mod recent;
mod report;
mod table;

pub(crate) use acks::follow as follow_acks;
pub(crate) use fetch::{Pages, follow as fetch_pages};
pub(crate) use folder::Folder;
pub(crate) use report::LeaseKeeper;
pub(crate) use table::{TableWriter, Written};
