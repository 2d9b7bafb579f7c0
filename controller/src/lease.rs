//! The names of Leases and of what they say: between whoever writes one (`act::report`, `leader`) and whoever reads it
//! (`observe`).

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The Lease of whoever leads.
pub(crate) const LEADER: &str = "ballast-leader";
/// The annotation with the hash of what a node serves.
pub(crate) const SERVED: &str = "ballast.dev/served";
/// The annotation with a line `FRONTEND BIND STATE` for each bind that does not listen as asked.
pub(crate) const EXCEPTIONS: &str = "ballast.dev/exceptions";

/// The name of a node's Lease.
pub(crate) fn of_node(node: &str) -> String {
    match format!("{PREFIX}{node}") {
        // A node may have any name, this one as well.
        taken if taken == LEADER => NODE_LEADER.to_owned(),
        name if name.len() > LONGEST => shortened(&name),
        name => name,
    }
}

/// The node whose Lease has this name, if it is a node's. The name alone does not tell a node whose name had to be shortened;
/// the holder of that Lease does.
pub(crate) fn node_of<'a>(lease: &'a str, holder: Option<&'a str>) -> Option<&'a str> {
    match lease {
        LEADER => None,
        NODE_LEADER => LEADER.strip_prefix(PREFIX),
        name => {
            let holder = holder.filter(|node| name.len() > SHORTENED && of_node(node) == name);
            holder.or_else(|| name.strip_prefix(PREFIX))
        }
    }
}

/// A name that is too long for an object: its beginning and a hash of the whole.
fn shortened(name: &str) -> String {
    // Node names are ASCII.
    let beginning = name.get(..SHORTENED).unwrap_or_default();
    // A dash may not follow a dot.
    let mut shortened = format!("{}-", beginning.trim_end_matches(['.', '-']));
    for byte in Sha256::digest(name).iter().take(HASHED) {
        // A String takes everything.
        _ = write!(shortened, "{byte:02x}");
    }
    shortened
}

const PREFIX: &str = "ballast-";
const NODE_LEADER: &str = "ballast.leader";
/// The most bytes that the name of an object has; the name of a Node may have as many.
const LONGEST: usize = 253;
/// How much of a name that is too long stays, in bytes.
const SHORTENED: usize = 180;
/// Bytes of the hash.
const HASHED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_lease_of_its_own_and_none_is_the_leaders() {
        for node in ["edge-1", "leader", "leader.example.com", "a.b"] {
            let lease = of_node(node);
            assert_ne!(lease, LEADER, "{node}");
            for holder in [None, Some(""), Some(node), Some("another")] {
                assert_eq!(node_of(&lease, holder), Some(node));
            }
        }
        for other in [LEADER, "kube-scheduler", "ballast", "ballast.other"] {
            assert_eq!(node_of(other, None), None, "{other}");
        }
    }

    #[test]
    fn a_node_with_a_name_of_any_length_has_a_lease() {
        let node = |last: &str| format!("{}{last}", "a.".repeat(125));
        let names = [node("b"), node("c"), "x".repeat(253), "x".repeat(245)];
        let mut seen = Vec::new();
        for node in &names {
            let lease = of_node(node);
            assert!(lease.len() <= 253, "{} bytes", lease.len());
            let is_label =
                |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
            assert!(lease.split('.').all(is_label), "{lease}");
            assert_eq!(node_of(&lease, Some(node)), Some(&**node));
            assert!(!seen.contains(&lease), "{lease}");
            seen.push(lease);
        }
        assert_eq!(
            of_node(&"x".repeat(245)).len(),
            253,
            "as it is, while it fits"
        );
    }
}
