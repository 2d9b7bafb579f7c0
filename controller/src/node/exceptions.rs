//! The exceptions of this node's Lease: everything that the node does not serve as decided, by the acks of its data plane and by the
//! decision for this node. Pure; called by [`super::lease`].

use std::collections::{BTreeMap, BTreeSet};

use ballast_core::ack::{Ack, ExceptionState};
use ballast_core::table::RoutingTable;

use crate::decide::{About, Desired, owner_by_labels};
use crate::lease::{Exceptions, Message, UNSERVED};
use crate::observe::Key;

/// All exceptions. An idle port is none, nor is an address of a pool that the node does not hold. `closed` are the Services that the served table closes on this node.
pub(super) fn exceptions(
    ack: &Ack,
    desired: &Desired,
    closed: &BTreeSet<Key>,
    node: &str,
) -> Exceptions {
    let mut all = Exceptions::default();
    all.node.extend(refused(ack));
    unserved(ack, desired, node, &mut all);
    let report = &desired.report;
    for key in closed.iter().chain(&report.closed) {
        all.services.entry(key.to_string()).or_default().closed = true;
    }
    for key in &report.pending {
        all.services.entry(key.to_string()).or_default().pending = true;
    }
    for key in &report.idle {
        all.services.entry(key.to_string()).or_default().idle = true;
    }
    for notice in &report.notices {
        let messages = match &notice.about {
            About::Service(key) => &mut all.services.entry(key.to_string()).or_default().messages,
            About::Node(_) => &mut all.node,
            About::Flag(_) => continue,
        };
        messages.push(notice.to_message());
    }
    all
}

/// Adds the binds that do not listen as asked. A shared port is an exception of the node.
fn unserved(ack: &Ack, desired: &Desired, node: &str, all: &mut Exceptions) {
    let mut unserved = ack
        .exceptions
        .iter()
        .filter(|exception| exception.state != ExceptionState::Idle)
        .peekable();
    let table = desired.table.as_ref().filter(|_| unserved.peek().is_some());
    let Some(table) = table else {
        return;
    };
    let owners = owners(table);
    let mut texts: BTreeMap<Option<&Key>, Vec<String>> = BTreeMap::new();
    for exception in unserved {
        let owner = owners.get(&*exception.frontend);
        let is_of_pool = owner.is_some_and(|key| desired.report.of_pools.contains(key));
        if exception.state == ExceptionState::NotLocal && is_of_pool {
            // Every node that may hold the address is ready for it.
            continue;
        }
        texts.entry(owner).or_default().push(format!(
            "{} at {}: {}",
            exception.frontend, exception.bind, exception.why
        ));
    }
    for (owner, texts) in texts {
        let what = texts.join("; ");
        let warning = |text| Message {
            warning: true,
            reason: UNSERVED.to_owned(),
            text,
        };
        match owner {
            None => all
                .node
                .push(warning(format!("the data plane does not serve {what}"))),
            Some(key) => {
                let exception = all.services.entry(key.to_string()).or_default();
                exception.closed = true;
                exception.messages.push(warning(format!(
                    "Error syncing load balancer: node {node} does not serve {what}"
                )));
            }
        }
    }
}

/// The message for a table that the data plane refuses.
fn refused(ack: &Ack) -> Option<Message> {
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
    Some(Message {
        warning: true,
        reason: "TableRefused".to_owned(),
        text: format!("the data plane refuses the newest table, and {stays}: {what}"),
    })
}

/// Kubernetes' Services by the names of their frontends. A shared port has no labels, and belongs to no Service.
fn owners(table: &RoutingTable) -> BTreeMap<&str, Key> {
    let frontends = table.frontends.iter();
    let owners = frontends.filter_map(|one| Some((&*one.name, owner_by_labels(&one.labels)?)));
    owners.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::decide;
    use crate::observe::Observed;
    use crate::settings::{Role, Settings};

    fn desired(annotation: &str) -> Desired {
        desired_at("node", annotation)
    }

    fn desired_at(addresses: &str, annotation: &str) -> Desired {
        let manifest = format!(
            "kind: Service\nmetadata: {{name: db, namespace: shop, uid: u, annotations: {{{annotation}}}}}\nspec: {{type: LoadBalancer, ports: [{{port: 3306}}]}}\nstatus: {{conditions: [{{type: ballast.dev/Allocated, status: 'True', reason: Allocated, message: addresses={addresses} ports=3306/TCP, lastTransitionTime: 2026-01-01T00:00:00Z}}]}}\n"
        );
        let settings = Settings::without_flags().in_role(Role::Node);
        decide(&Observed::of(&manifest), &settings)
    }

    fn ack(served: &str, refused: &str, exceptions: &str) -> Ack {
        let text = format!(
            r#"{{"version":1,"instance":"i","served":{served},"refused":{refused},"exceptions":[{exceptions}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn of(ack: &Ack, annotation: &str) -> Exceptions {
        exceptions(ack, &desired(annotation), &BTreeSet::new(), "edge")
    }

    #[test]
    fn a_port_that_does_not_listen_as_asked_closes_its_service_whatever_the_reason() {
        let exception = |frontend: &str, state: &str, annotation: &str| {
            let exception = format!(
                r#"{{"frontend":"{frontend}","bind":"*:3306","state":"{state}","why":"because"}}"#
            );
            of(&ack("null", "null", &exception), annotation)
        };
        let http = "ballast.dev/mode: http";
        for (state, annotation) in [
            ("failed", ""),
            ("not-local", ""),
            ("not-yet-served", ""),
            ("failed", http),
        ] {
            let all = exception("shop.db:3306", state, annotation);
            let db = &all.services["shop/db"];
            assert!(db.closed, "{state}");
            assert_eq!(
                db.messages[0].text,
                "Error syncing load balancer: node edge does not serve shop.db:3306 at *:3306: because"
            );
        }
        let all = exception("shop.db:3306", "idle", "");
        assert_eq!(all, Exceptions::default());
        let all = exception("http", "failed", "");
        assert_eq!(
            all.node[0].text, "the data plane does not serve http at *:3306: because",
            "a shared port is the node's"
        );
        assert!(all.services.is_empty());
    }

    #[test]
    fn an_address_of_a_pool_that_the_node_does_not_hold_is_no_exception() {
        let exceptions = |addresses: &str, state: &str| {
            let exception = format!(
                r#"{{"frontend":"shop.db:3306","bind":"*:3306","state":"{state}","why":"because"}}"#
            );
            let desired = desired_at(addresses, "");
            let table = desired.table.as_ref().unwrap();
            let binds: Vec<String> = table.frontends[0]
                .bind
                .iter()
                .map(ToString::to_string)
                .collect();
            let all = exceptions(
                &ack("null", "null", &exception),
                &desired,
                &BTreeSet::new(),
                "edge",
            );
            (binds.join(","), all.services.contains_key("shop/db"))
        };
        let of_pool = "192.0.2.7 pool=edge";
        let bind = "192.0.2.7:3306".to_owned();
        assert_eq!(exceptions(of_pool, "not-local"), (bind.clone(), false));
        assert_eq!(exceptions(of_pool, "failed"), (bind, true));
        assert_eq!(exceptions("node", "not-local"), ("*:3306".to_owned(), true));
    }

    #[test]
    fn a_refused_table_is_told_with_its_first_problem() {
        let problem = r#"{"at":"services[0]","why":"is wrong","remedy":"mend it"}"#;
        let refused = |served: &str, problems: &str| {
            let refused = format!(r#"{{"generation":2,"digest":"d","problems":[{problems}]}}"#);
            let all = of(&ack(served, &refused, ""), "");
            all.node[0].text.clone()
        };
        let served = r#"{"generation":1,"digest":"c"}"#;
        let text = refused(served, &format!("{problem},{problem}"));
        assert!(
            text.contains("what was served before stays: services[0]"),
            "{text}"
        );
        assert!(text.ends_with("(and 1 more)"), "{text}");
        let text = refused("null", problem);
        assert!(text.contains("it serves nothing"), "{text}");
    }

    #[test]
    fn a_service_whose_only_certificate_is_missing_is_closed_and_keeps_its_port() {
        let ack = ack("null", "null", "");
        let annotation = "ballast.dev/tls-secret: cert";
        let all = of(&ack, annotation);
        let db = &all.services["shop/db"];
        assert!(db.closed);
        assert_eq!(db.messages[0].reason, "SecretUnreadable");
    }
}
