//! What does not listen on this node, as events of the Services that it is for. Pure; called by [`super::report`].

use std::collections::{BTreeMap, BTreeSet};

use ballast_core::ack::{Ack, ExceptionState};
use ballast_core::table::{RoutingTable, Service};

use super::Decision;
use super::events::Said;
use crate::decide::Kind;
use crate::observe::Key;

/// What is to be told of an ack. What is merely idle is no news, and what this version does not serve is said elsewhere.
pub(super) fn said(ack: &Ack, decision: &Decision, node: &str) -> BTreeSet<Said> {
    let failed = ack
        .exceptions
        .iter()
        .filter(|exception| exception.state == ExceptionState::Failed);
    let mut failed = failed.peekable();
    let Some(table) = decision
        .desired
        .table
        .as_ref()
        .filter(|_| failed.peek().is_some())
    else {
        return BTreeSet::new();
    };
    let owners = owners(table);
    let mut messages: BTreeMap<&Key, Vec<String>> = BTreeMap::new();
    for exception in failed {
        for owner in owners.get(&*exception.frontend).into_iter().flatten() {
            messages.entry(owner).or_default().push(format!(
                "{} at {}: {}",
                exception.frontend, exception.bind, exception.why
            ));
        }
    }
    let said = messages.into_iter().filter_map(|(key, messages)| {
        let uid = &decision.observed.services.get(key)?.uid;
        let message = format!(
            "Error syncing load balancer: node {node} does not serve {}",
            messages.join("; ")
        );
        Some(Said::of_service(
            key,
            uid,
            Kind::Warning,
            "SyncLoadBalancerFailed",
            message,
        ))
    });
    said.collect()
}

/// Kubernetes' Services by the frontends that lead to them. The shared ports are nobody's.
fn owners(table: &RoutingTable) -> BTreeMap<&str, BTreeSet<Key>> {
    let services: BTreeMap<&str, &Service> = table
        .services
        .iter()
        .map(|service| (&*service.name, service))
        .collect();
    let owners = table.frontends.iter().filter_map(|frontend| {
        let service = services.get(&**frontend.service.as_ref()?)?;
        let label = |name: &str| {
            let found = service.labels.iter().find(|(key, _)| **key == *name);
            found.map(|(_, value)| value.to_string())
        };
        let key = Key {
            namespace: label("namespace")?,
            name: label("service")?,
        };
        Some((&*frontend.name, BTreeSet::from([key])))
    });
    owners.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decide::decide;
    use crate::observe::Observed;
    use crate::settings::{Flags, Settings};

    #[derive(clap::Parser)]
    struct Told {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn a_port_that_cannot_be_bound_is_told_to_its_service() {
        let mut observed = Observed::default();
        let manifest = "kind: Service\nmetadata: {name: db, namespace: shop, uid: u}\nspec: {type: LoadBalancer, ports: [{port: 3306}]}\n";
        assert_eq!(observed.take_file("a.yaml", manifest), []);
        let told: Told = clap::Parser::parse_from(["x"]);
        let desired = Arc::new(decide(&observed, &Settings::new(told.flags).unwrap()));
        let decision = Decision {
            observed: Arc::new(observed),
            desired,
        };
        let ack = |state: &str| -> Ack {
            let text = format!(
                r#"{{"version":1,"instance":"i","served":null,"refused":null,"exceptions":[{{"frontend":"shop.db:3306","bind":"*:3306","state":"{state}","why":"in use"}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let found = said(&ack("failed"), &decision, "edge");
        let found: Vec<_> = found
            .iter()
            .map(|said| (&*said.about.uid, &*said.message))
            .collect();
        let message =
            "Error syncing load balancer: node edge does not serve shop.db:3306 at *:3306: in use";
        assert_eq!(found, [("u", message)]);
        for state in ["idle", "not-yet-served", "not-local"] {
            assert_eq!(
                said(&ack(state), &decision, "edge"),
                BTreeSet::new(),
                "{state}"
            );
        }
    }
}
