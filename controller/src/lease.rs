//! The names of Leases and of what they say: between whoever writes one (`act::report`, `leader`) and whoever reads it
//! (`observe`).

/// The Lease of whoever leads.
pub(crate) const LEADER: &str = "ballast-leader";
/// The annotation with the hash of what a node serves.
pub(crate) const SERVED: &str = "ballast.dev/served";
/// The annotation with a line `FRONTEND BIND STATE` for each bind that does not listen as asked.
pub(crate) const EXCEPTIONS: &str = "ballast.dev/exceptions";

/// The Lease of a node.
pub(crate) fn of_node(node: &str) -> String {
    match format!("{PREFIX}{node}") {
        // A node may have any name, this one as well.
        taken if taken == LEADER => NODE_LEADER.to_owned(),
        name => name,
    }
}

/// Whose Lease it is, if it is a node's.
pub(crate) fn node_of(lease: &str) -> Option<&str> {
    match lease {
        LEADER => None,
        NODE_LEADER => LEADER.strip_prefix(PREFIX),
        name => name.strip_prefix(PREFIX),
    }
}

const PREFIX: &str = "ballast-";
const NODE_LEADER: &str = "ballast.leader";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_lease_of_its_own_and_none_is_the_leaders() {
        for node in ["edge-1", "leader", "leader.example.com", "a.b"] {
            let lease = of_node(node);
            assert_ne!(lease, LEADER, "{node}");
            assert_eq!(node_of(&lease), Some(node));
        }
        for other in [LEADER, "kube-scheduler", "ballast", "ballast.other"] {
            assert_eq!(node_of(other), None, "{other}");
        }
    }
}
