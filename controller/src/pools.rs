//! Address pools: what they are, and which Service has which address of them. Pure: objects and allocations in, addresses out.
//!
//! [`read`] makes a [`Pool`] of an object of Ballast, MetalLB or Antrea. [`Pools`] puts them beside one another: of two that overlap
//! the older one has the addresses. An [`Ask`] is what a Service wants. [`Taken`] is the index of what all Services have, made from
//! their statuses. [`give()`] decides for one Service, [`give_all`] for all, and a [`Refusal`] is the text for those who get nothing.
//! [`Announcements`] are what objects say of how addresses are announced. [`Pools::statuses`] says of each pool how much of it is used and what is wrong with it.
//!
//! No step is taken for each address of a range: ranges are counted and searched by their ends ([`range`]).

mod announcements;
mod ask;
mod give;
mod pool;
pub mod range;
pub mod read;
mod refusal;
mod set;
mod status;
mod taken;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub(crate) use announcements::are;
pub use announcements::{Announcements, NodeHere, Routers, Way};
pub use ask::{Ask, Families};
pub use give::{Given, give, give_all, settled};
pub use pool::{Announce, Listed, Pool, Problem, ProblemKind, Selectors, Source};
pub use read::Reservation;
pub use refusal::{Refusal, Spent};
pub use set::{Conflict, Entry, Pools};
pub use status::{Condition, PoolStatus};
pub use taken::{Displaced, Held, Taken, Terms};
