//! The operating system as the process uses it: system calls, the clock, threads and panics, descriptors and memory, the log.
//! It imports no other room.

pub mod clock;
pub mod limits;
pub(crate) mod listening;
pub mod log;
pub mod sys;

pub(crate) mod files;
pub(crate) mod panics;
pub(crate) mod reserve;
pub(crate) mod rights;
pub(crate) mod socket_error;
pub(crate) mod threads;
