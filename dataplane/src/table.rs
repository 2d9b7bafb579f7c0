//! The walk of a table: from a changed file to the plan in force. `intake` reads, `apply` puts in force.

pub(crate) mod apply;
pub(crate) mod intake;
