//! What operators see and do: the admin addresses, the runtime socket, and the commands that ask them. It imports `stats` and what
//! is below.

pub(crate) mod admin;
pub(crate) mod console;
pub mod show;

mod target;
