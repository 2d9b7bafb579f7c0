//! The name of an ExternalName Service: has it looked up, and says what cannot be served of it.

use std::net::IpAddr;

use super::annotations::Reader;
use super::context::Context;
use super::endpoints::ExternalTarget;
use super::notice::Reason;
use super::service_plan::ServicePlan;
use crate::observe::{MOST_ADDRESSES, Target};

/// Has the name of an ExternalName Service resolved, and warns if it cannot be served, or only in part.
pub(super) fn look_up(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    name: &str,
    plan: &mut ServicePlan,
) {
    let (observed, settings) = (context.observed, context.settings);
    let wrong = match ExternalTarget::of(observed, settings, reader.service, name) {
        ExternalTarget::Off => Some(format!(
            "externalName {name} is not served: --external-names=off"
        )),
        ExternalTarget::NoName => Some(format!("externalName {name:?} is not a DNS name")),
        ExternalTarget::Address(address) => {
            plan.wanted.nodes |= context.permitted.needs_nodes();
            warn_of_objections(context, reader, name, &[address]);
            None
        }
        ExternalTarget::Name(found) => {
            plan.wanted.nodes |= context.permitted.needs_nodes();
            plan.wanted.names.insert(name.to_owned());
            let first = found.get(..MOST_ADDRESSES).unwrap_or(found);
            warn_of_objections(context, reader, name, first);
            match (found.is_empty(), found.len() > MOST_ADDRESSES) {
                (true, _) if observed.looked_up.names.contains(name) => Some(format!(
                    "externalName {name} has no address; nothing listens until it has one"
                )),
                (true, _) => Some(format!(
                    "externalName {name} waits to be looked up; nothing listens until it has an address. At most 2 names in a second are looked up for the Services of a namespace, and 20 for a node"
                )),
                (_, true) => Some(format!(
                    "externalName {name} has more than {MOST_ADDRESSES} addresses; the first {MOST_ADDRESSES} by value are served"
                )),
                _ => None,
            }
        }
    };
    let ports = reader.service.ports.iter();
    let named = ports.filter_map(|port| match &port.target {
        Target::Name(target) => Some(format!(
            "port {} has the target port {target:?}, and no pod says its number; give the number",
            port.number
        )),
        Target::Number(_) => None,
    });
    for wrong in wrong.into_iter().chain(named) {
        let message = format!("Error syncing load balancer: {wrong}");
        reader.warn_by_node(Reason::SyncLoadBalancerFailed, message);
    }
}

/// Warns of addresses to which the name may not lead.
fn warn_of_objections(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    name: &str,
    addresses: &[IpAddr],
) {
    let objections = addresses.iter().filter_map(|address| {
        let what = context.permitted.objection(*address)?;
        Some(format!("{address}, which is {what}"))
    });
    let objections: Vec<String> = objections.collect();
    if objections.is_empty() {
        return;
    }
    let more = match objections.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and to {more} more"),
    };
    let shown = objections.get(..SHOWN).unwrap_or(&objections).join("; to ");
    let message = format!(
        "externalName {name} leads to {shown}{more}: it is not served there; name another host"
    );
    reader.warn_by_node(Reason::AddressNotPermitted, message);
}

/// How many addresses the Warning shows.
const SHOWN: usize = 3;
