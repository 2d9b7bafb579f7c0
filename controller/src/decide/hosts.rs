//! Which namespace a host name on the shared ports belongs to: that of the oldest Service with a route for it, and with it every
//! name under a wildcard. Another namespace gets no route for such a host.

use std::collections::{BTreeMap, BTreeSet};

use ballast_core::table::HostPattern;

use super::notice::Reason;
use super::service_plan::ServicePlan;
use crate::observe::Key;

/// The hosts that have an owner: the oldest Service with a route for each.
#[derive(Default)]
pub(super) struct Hosts<'a>(BTreeMap<HostPattern, &'a Key>);

impl<'a> Hosts<'a> {
    /// Takes the hosts of a Service, which is younger than those before, and drops its routes for hosts of other namespaces.
    pub(super) fn take(&mut self, plan: &mut ServicePlan<'a>) {
        let key = &plan.service.key;
        let mut taken: BTreeMap<HostPattern, &Key> = BTreeMap::new();
        plan.routes.retain(|route| {
            let Some(host) = &route.route.host else {
                return true;
            };
            match self
                .owner(host)
                .filter(|owner| owner.namespace != key.namespace)
            {
                Some(owner) => {
                    taken.insert(host.clone(), owner);
                    false
                }
                None => {
                    self.0.entry(host.clone()).or_insert(key);
                    true
                }
            }
        });
        for (host, owner) in taken {
            let message = format!(
                "the host {host} belongs to namespace {}, since {owner} has the oldest route for it; the routes of this Service for that host are not served (--host-ownership)",
                owner.namespace
            );
            plan.warn(Reason::HostTaken, message);
        }
    }

    /// The owner of a host, by a route for it or by a wildcard above it.
    fn owner(&self, host: &HostPattern) -> Option<&'a Key> {
        let own = self.0.get(host);
        let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
        let parents = name
            .match_indices('.')
            .filter_map(|(dot, _)| name.get(dot + 1..));
        let mut above = parents.filter_map(|parent| self.0.get(&HostPattern::Under(parent.into())));
        own.or_else(|| above.next()).copied()
    }
}

/// The namespaces that have routes for hosts, or certificates.
pub(super) fn namespaces<'p>(plans: &'p [ServicePlan<'_>]) -> BTreeSet<&'p str> {
    let with_hosts = plans.iter().filter(|plan| {
        let mut routes = plan.routes.iter();
        routes.any(|route| route.route.host.is_some() || route.certificate.is_some())
    });
    with_hosts
        .map(|plan| plan.service.key.namespace.as_str())
        .collect()
}
