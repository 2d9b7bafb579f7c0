//! Which namespace a host name on the shared ports belongs to: that of the oldest Service with a route for it, and with it every
//! name under a wildcard. Another namespace gets no route for such a host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ballast_core::table::HostPattern;

use super::grant::Grant;
use super::notice::Reason;
use crate::observe::Key;

/// The hosts that have an owner: the oldest Service with a route for each.
#[derive(Default)]
pub(super) struct Hosts(BTreeMap<HostPattern, Key>);

impl Hosts {
    /// Takes the hosts of a Service, which is younger than those before, and drops its routes for hosts of other namespaces.
    pub(super) fn take(&mut self, grant: &mut Grant) {
        let plan = Arc::clone(&grant.plan);
        let key = &plan.service.key;
        let mut taken: BTreeMap<HostPattern, Key> = BTreeMap::new();
        grant.retain_routes(|route| {
            let Some(host) = &route.route.host else {
                return true;
            };
            match self
                .owner(host)
                .filter(|owner| owner.namespace != key.namespace)
            {
                Some(owner) => {
                    taken.insert(host.clone(), owner.clone());
                    false
                }
                None => {
                    self.0.entry(host.clone()).or_insert_with(|| key.clone());
                    true
                }
            }
        });
        for (host, owner) in taken {
            let message = format!(
                "the host {host} belongs to namespace {}, since {owner} has the oldest route for it; the routes of this Service for that host are not served (--host-ownership)",
                owner.namespace
            );
            grant.warn(Reason::HostTaken, message);
        }
    }

    /// The owner of a host, by a route for it or by a wildcard above it.
    fn owner(&self, host: &HostPattern) -> Option<&Key> {
        let own = self.0.get(host);
        let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
        let parents = name
            .match_indices('.')
            .filter_map(|(dot, _)| name.get(dot + 1..));
        let mut above = parents.filter_map(|parent| self.0.get(&HostPattern::Under(parent.into())));
        own.or_else(|| above.next())
    }
}

/// The namespaces that have routes for hosts, or certificates.
pub(super) fn namespaces(grants: &[Grant]) -> BTreeSet<&str> {
    let with_hosts = grants.iter().filter(|grant| {
        let mut routes = grant.routes();
        routes.any(|route| route.route.host.is_some() || route.certificate.is_some())
    });
    with_hosts
        .map(|grant| grant.service().key.namespace.as_str())
        .collect()
}
