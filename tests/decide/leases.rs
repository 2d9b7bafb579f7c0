//! Whose addresses are published, by the Leases of the load balancer nodes.

use std::collections::BTreeMap;

use ballast_controller::decide::{Ingress, decide};
use ballast_controller::observe::{Lease, Observed};

use super::settings;

#[test]
fn an_address_is_published_while_its_node_serves_the_service() {
    let live = |agrees, exceptions: &[&str]| {
        Some(Lease {
            agrees,
            exceptions: exceptions.iter().map(|name| (*name).to_owned()).collect(),
        })
    };
    let cases: [Case<'_>; 8] = [
        ("", None, None, &[]),
        ("", live(true, &[]), None, &["10.77.1.1"]),
        (
            "",
            live(true, &[]),
            live(true, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // Another hash adds nothing ...
        ("", live(true, &[]), live(false, &[]), &["10.77.1.1"]),
        // ... and alone removes nothing.
        (
            "10.77.1.2",
            live(true, &[]),
            live(false, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // An exception removes, if it is this Service's.
        (
            "10.77.1.2",
            live(true, &[]),
            live(true, &["shop.web:80"]),
            &["10.77.1.1"],
        ),
        (
            "10.77.1.2",
            live(true, &[]),
            live(true, &["shop.web2:80"]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // A Lease that has run out removes.
        ("10.77.1.2", live(true, &[]), None, &["10.77.1.1"]),
    ];
    for (index, (before, lb1, lb2, expected)) in cases.into_iter().enumerate() {
        let mut observed = observed(before);
        let leases = [("lb1", lb1), ("lb2", lb2)];
        let leases = leases
            .into_iter()
            .filter_map(|(name, lease)| Some((name.to_owned(), lease?)));
        observed.leases = Some(leases.collect::<BTreeMap<_, _>>());
        assert_eq!(published(&observed), expected, "case {index}");
    }
}

#[test]
fn what_listens_does_not_depend_on_who_is_live() {
    let settings = settings(&["--node-name=lb1".to_owned()]).expect("settings");
    let mut observed = observed("");
    let without = decide(&observed, &settings).table;
    observed.leases = Some(BTreeMap::new());
    assert_eq!(decide(&observed, &settings).table, without);
    assert_eq!(without.map(|table| table.frontends.len()), Some(1));
}

/// What is published before, lb1's and lb2's Lease, what is published then.
type Case<'a> = (&'a str, Option<Lease>, Option<Lease>, &'a [&'a str]);

fn published(observed: &Observed) -> Vec<String> {
    let settings = settings(&["--node-name=lb1".to_owned()]).expect("settings");
    let desired = decide(observed, &settings);
    let ingress = desired
        .statuses
        .into_iter()
        .flat_map(|status| status.ingress);
    ingress
        .map(|entry| match entry {
            Ingress::Ip(address) => address.to_string(),
            Ingress::Hostname(name) => name,
        })
        .collect()
}

fn observed(published: &str) -> Observed {
    let status = match published {
        "" => "{}".to_owned(),
        address => format!("{{loadBalancer: {{ingress: [{{ip: {address}}}]}}}}"),
    };
    let text = format!(
        "kind: Node
metadata: {{name: lb1, labels: {{role: loadbalancer}}}}
status: {{addresses: [{{type: InternalIP, address: 10.77.1.1}}]}}
---
kind: Node
metadata: {{name: lb2, labels: {{role: loadbalancer}}}}
status: {{addresses: [{{type: InternalIP, address: 10.77.1.2}}]}}
---
kind: Service
metadata:
  name: web
  namespace: shop
  managedFields: [{{manager: ballast-controller, subresource: status}}]
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
status: {status}
"
    );
    let mut observed = Observed::default();
    assert_eq!(observed.take_file("x.yaml", &text), []);
    observed
}
