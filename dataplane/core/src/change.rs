//! What a new plan means for the listening sockets: the difference between what is wanted and what is there.

use std::collections::BTreeSet;

use crate::plan::{Listens, Plan, SocketKey};

/// What has to be done before and after a plan is published. What is in neither list stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Opened before.
    pub open: Vec<SocketKey>,
    /// Closed after.
    pub close: Vec<SocketKey>,
}

/// Compares the sockets that are `bound` with those that `plan` wants. Each wanted socket that is not bound is opened,
/// whether it is new or could not be bound before.
#[must_use]
pub fn change(bound: &BTreeSet<SocketKey>, plan: &Plan) -> Change {
    let wanted: BTreeSet<SocketKey> = plan
        .frontends()
        .iter()
        .filter(|frontend| frontend.listens() == Listens::Yes)
        .flat_map(|frontend| frontend.sockets().iter().cloned())
        .collect();
    Change {
        open: wanted.difference(bound).cloned().collect(),
        close: bound.difference(&wanted).cloned().collect(),
    }
}
