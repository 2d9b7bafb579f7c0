//! Which addresses BIRD tells routers of, as far as that is known.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The addresses of the routes in a BIRD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    has: BTreeSet<IpAddr>,
    may_have: BTreeSet<IpAddr>,
}

impl Routes {
    /// The routes of a BIRD that had these when it was seen last.
    #[must_use]
    pub fn left(may_have: BTreeSet<IpAddr>) -> Self {
        let has = BTreeSet::new();
        Self { has, may_have }
    }

    /// Whether BIRD has a route to the address.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.has.contains(&address)
    }

    /// Whether it is not known that BIRD has none.
    #[must_use]
    pub fn may_have(&self, address: IpAddr) -> bool {
        self.may_have.contains(&address)
    }

    /// BIRD is about to be given exactly these.
    pub(crate) fn attempt(&mut self, wanted: &[IpAddr]) {
        let wanted: BTreeSet<IpAddr> = wanted.iter().copied().collect();
        self.has.retain(|address| wanted.contains(address));
        self.may_have.extend(wanted);
    }

    /// BIRD has taken exactly these.
    pub(crate) fn applied(&mut self, wanted: &[IpAddr]) {
        self.has = wanted.iter().copied().collect();
        self.may_have.clone_from(&self.has);
    }

    /// Something else has configured BIRD.
    pub(crate) fn forget(&mut self) {
        self.has.clear();
    }

    /// With the routes that another BIRD may have.
    pub(crate) fn beside(&mut self, other: &Self) {
        self.may_have.extend(&other.may_have);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_withdrawn_only_when_bird_has_taken_a_configuration_without_it() {
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|one| one.parse().unwrap());
        let known = |routes: &Routes| {
            [a, b].map(|one| match (routes.has(one), routes.may_have(one)) {
                (true, true) => "has",
                (false, true) => "may have",
                (false, false) => "has not",
                (true, false) => "a contradiction",
            })
        };
        let mut routes = Routes::left([a].into());
        assert_eq!(known(&routes), ["may have", "has not"]);
        routes.attempt(&[a, b]);
        assert_eq!(known(&routes), ["may have", "may have"]);
        routes.applied(&[a, b]);
        assert_eq!(known(&routes), ["has", "has"]);
        routes.attempt(&[b]);
        assert_eq!(known(&routes), ["may have", "has"]);
        // The attempt failed, and so does the next one.
        routes.attempt(&[]);
        assert_eq!(known(&routes), ["may have", "may have"]);
        routes.applied(&[b]);
        assert_eq!(known(&routes), ["has not", "has"]);
        routes.forget();
        assert_eq!(known(&routes), ["has not", "may have"]);
    }
}
