//! The shared HTTP and HTTPS ports: which Services ask for them, who has them, and what becomes of the routes when another Service does.

use std::sync::Arc;

use super::context::Context;
use super::grant::Grant;
use super::notice::Reason;
use super::service_plan::shared_number;
use super::status::Verdict;
use crate::allocation::NodePort;
use crate::observe::Service;
use crate::settings::{HttpServices, Settings};

/// Which shared ports exist.
#[derive(Clone, Copy)]
pub(super) struct SharedPorts {
    pub(super) http: bool,
    pub(super) https: bool,
}

impl SharedPorts {
    /// Those for which a Service has a route; with `--http-services=all` also HTTP and, with `--ssl-cert`, HTTPS.
    pub(super) fn of(settings: &Settings, grants: &[Grant]) -> Self {
        let all = settings.flags.http_services == HttpServices::All;
        let mut routes = grants.iter().flat_map(Grant::routes);
        Self {
            http: all || routes.clone().any(|route| !route.secure),
            https: (all && settings.flags.ssl_cert.is_some()) || routes.any(|route| route.secure),
        }
    }

    pub(super) fn has(self, secure: bool) -> bool {
        if secure { self.https } else { self.http }
    }

    /// Removes a shared port that another Service owns.
    pub(super) fn remove(&mut self, secure: bool) {
        match secure {
            true => self.https = false,
            false => self.http = false,
        }
    }
}

/// Since when routes have a shared port.
pub(super) fn shared_since(settings: &Settings, grants: &[Grant], secure: bool) -> Option<i64> {
    let number = shared_number(settings, secure);
    let askers = grants.iter().filter(|grant| grant.asks_for_route(secure));
    let allocated = askers.filter_map(|grant| grant.service().allocated.as_ref());
    let with_it = allocated.filter(|one| one.allocation.routes.contains(&number));
    with_it.map(|one| one.since).min()
}

/// The oldest Service that asks for a route of a shared port by an annotation.
pub(super) fn oldest_that_asks(grants: &[Grant], secure: bool) -> Option<usize> {
    let grants = grants.iter().enumerate();
    let askers = grants.filter(|(_, grant)| grant.asks_for_route(secure));
    let oldest =
        askers.min_by(|(_, one), (_, other)| one.service().age().cmp(&other.service().age()));
    oldest.map(|(index, _)| index)
}

fn word(secure: bool) -> &'static str {
    if secure { "HTTPS" } else { "HTTP" }
}

/// The name of a shared port for messages, with the oldest Service that asks for a route of it.
pub(super) fn shared_name(grants: &[Grant], secure: bool) -> String {
    let word = word(secure);
    match oldest_that_asks(grants, secure).and_then(|index| grants.get(index)) {
        Some(grant) => format!(
            "the shared {word} port, which leads to {}",
            grant.service().key
        ),
        None => format!("the shared {word} port"),
    }
}

/// Removes every route of a shared port that another Service owns. A Service that asked for a route by an annotation gets a
/// Warning; of the Services that have one by `--http-services=all` alone, only the newest does.
pub(super) fn withdraw(context: &Context<'_>, grants: &mut [Grant], secure: bool, owner: &str) {
    let port = NodePort::tcp(shared_number(context.settings, secure));
    let word = word(secure);
    let why = format!("port {port} is taken by {owner}");
    let mut newest: Option<(usize, Arc<Service>)> = None;
    for (index, grant) in grants.iter_mut().enumerate() {
        let asks = grant.asks_for_route(secure);
        if let Some(keeps) = grant.keeps_routes.get_mut(usize::from(secure)) {
            *keeps = false;
        }
        if !asks && !grant.routes().any(|route| route.secure == secure) {
            continue;
        }
        grant.retain_routes(|route| route.secure != secure);
        grant.status.why.clone_from(&why);
        if !grant.has_routes() && !grant.has_ports() {
            grant.status.verdict = Verdict::LeftAlone;
        }
        if asks {
            let key = &grant.service().key;
            let message = format!("Failed to allocate the shared {word} port for \"{key}\": {why}");
            grant.warn(Reason::AllocationFailed, message);
        } else if newest
            .as_ref()
            .is_none_or(|(_, newest)| grant.service().age() > newest.age())
        {
            newest = Some((index, Arc::clone(&grant.plan.service)));
        }
    }
    if let Some(grant) = newest.and_then(|(index, _)| grants.get_mut(index)) {
        let message = format!(
            "{why}: the routes of this Service, and all others of the shared {word} port, are withdrawn; they return when that port is free"
        );
        grant.warn(Reason::RoutesWithdrawn, message);
    }
}
