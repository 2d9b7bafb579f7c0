//! Ballast's controller: Kubernetes in; a routing table, status and events out.
//!
//! # The map
//!
//! | module | owns |
//! |---|---|
//! | [`settings`] | what the process was told: flags, checked once |
//! | [`observe`] | what is seen of the cluster, or of a folder of manifests, as plain data |
//! | [`mod@decide`] | the whole brain: [`decide::decide()`], pure |
//! | [`act`] | one decision, made true part by part |
//! | [`plan`] | that decision, printed for people |
//!
//! Whoever acts on a decision acts on one part of it, and only when that part changed. In this crate a *Service* is
//! Kubernetes'; the table's own is always written `table::Service`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod act;
pub mod admin;
mod clock;
pub mod decide;
mod follow;
mod leader;
mod lease;
pub mod log;
mod metrics;
pub mod observe;
pub mod plan;
mod request;
pub mod run;
pub mod settings;
