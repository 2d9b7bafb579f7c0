//! What a node reports in its Lease beside the state of its data plane, and what becomes of the events of such reports.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::context::Context;
use super::grant::Grant;
use super::notice::{About, Notice, Reason};
use super::status::Verdict;
use crate::observe::{Key, Observed};

/// What a node decides and the publisher cannot know: the node reports it in its Lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Hashes of where this node listens for which Services, in order: the publisher waits for each new one.
    pub listens: Arc<[u64]>,
    /// Services that were given ports on this node, none of which is open.
    pub closed: BTreeSet<Key>,
    /// Services that are not served yet.
    pub pending: BTreeSet<Key>,
    /// Services at addresses of pools: this node listens there whether it has them or not.
    pub of_pools: BTreeSet<Key>,
    /// Services with a strict Local policy that have no ready endpoint on this node.
    pub idle: BTreeSet<Key>,
    /// Events that follow from endpoints, Secrets and resolved names.
    pub notices: BTreeSet<Notice>,
}

/// The report of this node.
pub(super) fn report(context: &Context<'_>, grants: &[Grant]) -> Report {
    let mut report = Report::default();
    let mut listens = Vec::new();
    for grant in grants {
        let service = grant.service();
        let set = match is_pending(context.observed, grant) {
            true => Some(&mut report.pending),
            false if is_closed(context, grant) => Some(&mut report.closed),
            false => None,
        };
        set.map(|set| set.insert(service.key.clone()));
        if grant.site.as_ref().is_some_and(|site| site.pool.is_some()) {
            report.of_pools.insert(service.key.clone());
        }
        let place = grant.plan.placement.as_ref();
        if place.is_some_and(|place| place.without_endpoints_here) {
            report.idle.insert(service.key.clone());
        }
        for port in grant.here(context) {
            for bind in &port.binds {
                let mut hasher = DefaultHasher::new();
                (&service.uid, &*port.plan.name, bind.to_string()).hash(&mut hasher);
                listens.push(hasher.finish());
            }
        }
    }
    listens.sort_unstable();
    report.listens = listens.into();
    report
}

/// Whether a Service is not served yet, since it waits for lookups.
fn is_pending(observed: &Observed, grant: &Grant) -> bool {
    observed.waiting.contains(&grant.service().key)
}

/// Whether a LoadBalancer has ports here, of which another Service has one, or of which none is open.
fn is_closed(context: &Context<'_>, grant: &Grant) -> bool {
    let service = grant.service();
    if context.left_out.contains_key(&service.key) {
        return true;
    }
    let was_given = service.allocated.is_some() || grant.has_ports();
    let is_ours = grant.is_balancer() && grant.status.verdict != Verdict::LeftAlone;
    let is_closed = || grant.here(context).all(|port| port.is_closed);
    was_given && is_ours && (is_closed() || grant.here(context).any(|port| port.is_taken))
}

/// The events that nodes report in their Leases, and a warning for each node that runs with other settings.
pub(super) fn reported(observed: &Observed, common: &str) -> BTreeSet<Notice> {
    let mut notices = BTreeSet::new();
    let about = |node: &String| About::Node(node.clone());
    for (node, messages) in &observed.others_say {
        let said = messages.iter();
        notices.extend(said.map(|message| Notice::from_node(about(node), message)));
    }
    for (node, lease) in observed.leases.iter().flatten() {
        if !lease.settings.is_empty() && lease.settings != common {
            let message = "runs with other settings than the publisher: it may not serve what the publisher gives to Services; start both with the same flags (docs/controller.md names them)";
            notices.insert(Notice::warning(
                about(node),
                Reason::SettingsDiffer,
                message,
            ));
        }
        let said = lease.exceptions.node.iter();
        notices.extend(said.map(|message| Notice::from_node(about(node), message)));
        for (service, exception) in &lease.exceptions.services {
            let key = service.split_once('/');
            let key = key.map(|(namespace, name)| Key::new(namespace, name));
            if let Some(key) = key.filter(|key| observed.services.contains_key(key)) {
                let about = || About::Service(key.clone());
                let said = exception.messages.iter();
                notices.extend(said.map(|message| Notice::from_node(about(), message)));
            }
        }
    }
    notices
}
