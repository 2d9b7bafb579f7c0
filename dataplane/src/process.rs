//! One process among others: its settings, its rights, the locks that it holds, how it gives way to the next one, and why it does
//! not start. It imports `net` and `os`.

pub mod account;
pub mod config;
pub(crate) mod fd_store;
pub(crate) mod handover;
pub(crate) mod instance_lock;
pub(crate) mod rights;
pub(crate) mod socket_file;
pub(crate) mod start_error;
pub(crate) mod succession;
pub(crate) mod version;
