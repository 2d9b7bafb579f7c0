//! Which addresses BIRD tells routers of, as far as that is known.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

/// The addresses of the routes in a BIRD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    has: BTreeSet<IpAddr>,
    may_have: BTreeSet<IpAddr>,
    /// Networks of several addresses that an earlier process gave it. It may tell of any of their addresses.
    networks: BTreeSet<IpNet>,
}

impl Routes {
    /// The routes that an earlier process left in BIRD, which had these addresses when it was seen last.
    #[must_use]
    pub fn left(has: BTreeSet<IpAddr>) -> Self {
        let may_have = has.clone();
        let networks = BTreeSet::new();
        Self {
            has,
            may_have,
            networks,
        }
    }

    /// An earlier process wrote these into BIRD's configuration.
    pub(crate) fn written(&mut self, routes: &[IpNet]) {
        for route in routes {
            match route.prefix_len() == route.max_prefix_len() {
                true => self.may_have.insert(route.addr()),
                false => self.networks.insert(*route),
            };
        }
    }

    /// Whether BIRD has a route to the address.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.has.contains(&address)
    }

    /// Whether it is not known that BIRD has none.
    #[must_use]
    pub fn may_have(&self, address: IpAddr) -> bool {
        let mut networks = self.networks.iter();
        self.may_have.contains(&address) || networks.any(|network| network.contains(&address))
    }

    /// The single addresses of which it is not known that BIRD has none.
    pub(crate) fn possible(&self) -> impl Iterator<Item = IpAddr> {
        self.may_have.iter().copied()
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
        self.networks.clear();
    }

    /// Something else has configured BIRD.
    pub(crate) fn forget(&mut self) {
        self.has.clear();
    }

    /// With the routes that another BIRD may have.
    pub(crate) fn beside(&mut self, other: &Self) {
        self.may_have.extend(&other.may_have);
        self.networks.extend(&other.networks);
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
        assert_eq!(known(&routes), ["has", "has not"]);
        routes.attempt(&[a, b]);
        assert_eq!(known(&routes), ["has", "may have"]);
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

    #[test]
    fn what_an_earlier_process_wrote_may_be_there_until_bird_has_taken_another_configuration() {
        let mut routes = Routes::default();
        let written = ["192.0.2.1/32", "198.51.100.0/24", "2001:db8::1/128"];
        routes.written(&written.map(|one| one.parse().unwrap()));
        let possible: Vec<String> = routes.possible().map(|one| one.to_string()).collect();
        assert_eq!(possible, ["192.0.2.1", "2001:db8::1"]);
        let may_have = |routes: &Routes, address: &str| routes.may_have(address.parse().unwrap());
        assert!(may_have(&routes, "192.0.2.1") && !may_have(&routes, "192.0.2.2"));
        assert!(may_have(&routes, "198.51.100.7") && !may_have(&routes, "198.51.101.7"));
        assert!(!routes.has("192.0.2.1".parse().unwrap()));
        let mut others = Routes::default();
        others.beside(&routes);
        assert_eq!(others, routes);
        routes.attempt(&[]);
        assert!(may_have(&routes, "198.51.100.7"));
        routes.applied(&[]);
        assert_eq!(routes, Routes::default());
    }
}
