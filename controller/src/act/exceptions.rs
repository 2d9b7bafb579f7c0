//! What this node's data plane does not do as asked, as events: of the Services that it is for, or of the node. Pure; called by
//! [`super::report`].

use std::collections::{BTreeMap, BTreeSet};

use ballast_core::ack::{Ack, Exception, ExceptionState};
use ballast_core::table::{RoutingTable, Service};

use super::Decision;
use super::events::Said;
use crate::decide::Kind;
use crate::observe::Key;

/// What is to be told of an ack. What is merely idle is no news.
pub(super) fn said(ack: &Ack, decision: &Decision, node: &str) -> BTreeSet<Said> {
    let mut said: BTreeSet<Said> = refused(ack, node).into_iter().collect();
    let not_idle = |exception: &&Exception| exception.state != ExceptionState::Idle;
    let mut unserved = ack.exceptions.iter().filter(not_idle).peekable();
    let Some(table) = decision
        .desired
        .table
        .as_ref()
        .filter(|_| unserved.peek().is_some())
    else {
        return said;
    };
    let owners = owners(table);
    let mut messages: BTreeMap<Option<&Key>, Vec<String>> = BTreeMap::new();
    for exception in unserved {
        messages
            .entry(owners.get(&*exception.frontend))
            .or_default()
            .push(format!(
                "{} at {}: {}",
                exception.frontend, exception.bind, exception.why
            ));
    }
    let told = messages.into_iter().filter_map(|(owner, messages)| {
        let what = messages.join("; ");
        let Some(key) = owner else {
            let message = format!("the data plane does not serve {what}");
            return Some(Said::of_node(node, Kind::Warning, UNSERVED, message));
        };
        let uid = &decision.observed.services.get(key)?.uid;
        let message = format!("Error syncing load balancer: node {node} does not serve {what}");
        Some(Said::of_service(key, uid, Kind::Warning, UNSERVED, message))
    });
    said.extend(told);
    said
}

/// A table that the data plane refused, as long as it does.
fn refused(ack: &Ack, node: &str) -> Option<Said> {
    let refused = ack.refused.as_ref()?;
    let what = match refused.problems.as_slice() {
        [] => "no problem is named".to_owned(),
        [first] => first.to_string(),
        [first, more @ ..] => format!("{first} (and {} more)", more.len()),
    };
    let stays = match ack.served {
        Some(_) => "what was served before stays",
        None => "it serves nothing",
    };
    let message = format!("the data plane refuses the newest table, and {stays}: {what}");
    Some(Said::of_node(node, Kind::Warning, "TableRefused", message))
}

/// Kubernetes' Services by the frontends that lead to them. The shared ports are nobody's.
fn owners(table: &RoutingTable) -> BTreeMap<&str, Key> {
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
        Some((&*frontend.name, key))
    });
    owners.collect()
}

/// As cloud controllers say it.
const UNSERVED: &str = "SyncLoadBalancerFailed";

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

    fn decision() -> Decision {
        let mut observed = Observed::default();
        let manifest = "kind: Service\nmetadata: {name: db, namespace: shop, uid: u}\nspec: {type: LoadBalancer, ports: [{port: 3306}]}\n";
        assert_eq!(observed.take_file("a.yaml", manifest), []);
        let told: Told = clap::Parser::parse_from(["x"]);
        let desired = Arc::new(decide(&observed, &Settings::new(told.flags).unwrap()));
        Decision {
            observed: Arc::new(observed),
            desired,
        }
    }

    fn ack(served: &str, refused: &str, exceptions: &str) -> Ack {
        let text = format!(
            r#"{{"version":1,"instance":"i","served":{served},"refused":{refused},"exceptions":[{exceptions}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// The UIDs and messages of what is said.
    fn told(ack: &Ack) -> Vec<(String, String)> {
        let said = said(ack, &decision(), "edge");
        said.into_iter()
            .map(|said| (said.about.uid, said.message))
            .collect()
    }

    #[test]
    fn a_port_that_does_not_listen_as_asked_is_told_to_its_service_whatever_the_reason() {
        let exception = |frontend: &str, state: &str| {
            format!(
                r#"{{"frontend":"{frontend}","bind":"*:3306","state":"{state}","why":"because"}}"#
            )
        };
        for state in ["failed", "not-local", "not-yet-served"] {
            let message = "Error syncing load balancer: node edge does not serve shop.db:3306 at *:3306: because";
            assert_eq!(
                told(&ack("null", "null", &exception("shop.db:3306", state))),
                [("u".to_owned(), message.to_owned())],
                "{state}"
            );
        }
        assert_eq!(
            told(&ack("null", "null", &exception("shop.db:3306", "idle"))),
            [],
            "it is no news"
        );
        let message = "the data plane does not serve http at *:3306: because";
        assert_eq!(
            told(&ack("null", "null", &exception("http", "failed"))),
            [("edge".to_owned(), message.to_owned())],
            "a shared port is the node's"
        );
    }

    #[test]
    fn a_refused_table_is_told_to_the_node_by_its_first_problem() {
        let problem = |at: &str| format!(r#"{{"at":"{at}","why":"is wrong","remedy":"mend it"}}"#);
        let refused =
            |problems: &str| format!(r#"{{"generation":7,"digest":"d","problems":[{problems}]}}"#);
        let served = r#"{"generation":6,"digest":"e"}"#;
        let two = refused(&format!("{},{}", problem("a"), problem("b")));
        let [(node, message)] = told(&ack(served, &two, "")).try_into().unwrap();
        assert_eq!(node, "edge");
        let begin = "the data plane refuses the newest table, and what was served before stays: a";
        assert!(message.starts_with(begin), "{message}");
        assert!(message.ends_with("(and 1 more)"), "{message}");
        let [(_, message)] = told(&ack("null", &refused(""), "")).try_into().unwrap();
        assert!(message.contains("it serves nothing"), "{message}");
    }
}
