//! Decisions about what no manifest can have: Secrets that may not be read, names that are resolved, other clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ballast_controller::decide::{
    About, Allotment, Desired, Notice, Reason, Status, Verdict, decide,
};
use ballast_controller::observe::{Family, Key, Observed, PoolObjects, Secret, Wanted};
use ballast_controller::settings::{Role, Settings};
use ballast_core::table::{Algorithm, Format, parse};

use super::settings;

#[test]
fn a_secret_that_may_not_be_read_closes_the_port_and_says_what_allows_it() {
    let mut observed = observed(
        "kind: Service
metadata: {name: web, namespace: shop, annotations: {ballast.dev/tls-secret: certs/cert}}
spec: {type: LoadBalancer, ports: [{port: 443}]}
",
    );
    observed
        .secrets
        .insert(Key::new("certs", "cert"), Secret::Forbidden);
    let desired = decided(&observed, &["--own-namespace=edge"]);
    assert_eq!(desired.statuses[0].verdict, Verdict::Pending);
    let notice = desired.notices.iter().next().expect("a notice");
    assert_eq!(notice.reason, Reason::SecretUnreadable);
    let line = "kubectl create rolebinding ballast-tls --namespace=certs --clusterrole=ballast-tls --serviceaccount=edge:ballast";
    assert!(notice.message.ends_with(line), "{}", notice.message);
    assert!(desired.files.is_empty());
}

/// A LoadBalancer with one port, its metadata and spec beside those, and what its status says.
fn service(name: &str, port: u16, metadata: &str, spec: &str, status: &str) -> String {
    format!(
        "---\nkind: Service\nmetadata: {{name: {name}, namespace: shop, {metadata}}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}], {spec}}}\n{status}"
    )
}

fn allocated(said: &str) -> String {
    format!(
        "status: {{conditions: [{{type: ballast.dev/Allocated, status: 'True', reason: Allocated, message: '{said}', lastTransitionTime: '2026-01-02T03:04:05Z'}}]}}\n"
    )
}

/// Kinds that cannot be read, with the codes of the API server's answers.
fn without(mut observed: Observed, unread: &[(&'static str, u16)]) -> Observed {
    let mut pools = PoolObjects::clone(&observed.pools);
    pools.unread = unread.iter().copied().collect();
    observed.pools = Arc::new(pools);
    observed
}

fn status(observed: &Observed, name: &str) -> Status {
    let statuses = decided(observed, &["--node-name=lb1"]).statuses;
    let mut statuses = statuses.into_iter();
    let status = statuses.find(|one| one.service.name == name);
    status.expect("a status")
}

/// The addresses that a Service was given.
fn given(status: &Status) -> Option<String> {
    match &status.allotment {
        Some(Allotment::Given(allocation)) => Some(allocation.to_string()),
        _ => None,
    }
}

const NODE: &str = "kind: Node\nmetadata: {name: lb1, labels: {role: loadbalancer}}\nstatus: {addresses: [{type: InternalIP, address: 10.0.0.1}]}\n";
const IN_POOL: &str = "addresses=192.0.2.1 ports=82/TCP pool=edge";

#[test]
fn a_service_without_an_address_waits_while_pools_cannot_be_read_and_others_keep_theirs() {
    let text = [
        NODE.to_owned(),
        service(
            "at-node",
            81,
            "",
            "",
            &allocated("addresses=node ports=81/TCP"),
        ),
        service("in-pool", 82, "", "", &allocated(IN_POOL)),
        // It asks for something that may be there.
        service(
            "moves",
            84,
            "annotations: {ballast.dev/load-balancer-ips: 198.51.100.7}",
            "",
            &allocated("addresses=192.0.2.4 ports=84/TCP pool=edge"),
        ),
        // A build before this one, or another implementation, gave it an address.
        service(
            "of-another",
            85,
            "managedFields: [{manager: ballast, operation: Update, subresource: status}]",
            "",
            "status: {loadBalancer: {ingress: [{ip: 192.0.2.5}]}}\n",
        ),
        service("new", 83, "", "", ""),
    ];
    let readable = observed(&text.concat());
    assert_eq!(status(&readable, "new").verdict, Verdict::Served);
    for (unread, said) in [
        (
            &[("AddressPool", 403)][..],
            "AddressPool may not be read, and may be for this Service; apply the rights of rc.yaml",
        ),
        (
            &[("AddressPool", 503)],
            "AddressPool cannot be read (the API server answers 503), and may be for this Service",
        ),
    ] {
        let observed = without(readable.clone(), unread);
        for (name, has) in [
            ("at-node", "addresses=node ports=81/TCP"),
            ("in-pool", "addresses=192.0.2.1 pool=edge ports=82/TCP"),
            ("moves", "addresses=192.0.2.4 pool=edge ports=84/TCP"),
        ] {
            let status = status(&observed, name);
            assert_eq!(status.verdict, Verdict::Served, "{name}: {}", status.why);
            assert_eq!(given(&status).as_deref(), Some(has), "{name}");
        }
        let of_another = status(&observed, "of-another");
        assert_eq!(of_another.verdict, Verdict::LeftAlone);
        assert!(of_another.why.starts_with(said), "{}", of_another.why);
        let new = status(&observed, "new");
        assert_eq!(new.verdict, Verdict::Pending);
        assert!(new.why.starts_with(said), "{}", new.why);
    }
}

#[test]
fn a_service_without_an_address_waits_for_the_labels_of_its_namespace_where_pools_select_by_them() {
    let pool = "---\napiVersion: ballast.dev/v1\nkind: AddressPool\nmetadata: {name: edge}\nspec: {addresses: [192.0.2.0/28], namespaceSelector: {matchLabels: {team: a}}}\n";
    let text = [
        NODE.to_owned(),
        pool.to_owned(),
        service("in-pool", 82, "", "", &allocated(IN_POOL)),
        service("new", 83, "", "", ""),
    ];
    let mut observed = observed(&text.concat());
    for (unread, said, is_event) in [
        (
            &[("Namespace", 403)][..],
            "Namespace may not be read, and pools select by the labels of namespaces; apply the rights of rc.yaml",
            true,
        ),
        (
            &[("Namespace", 500)],
            "Namespace cannot be read (the API server answers 500)",
            true,
        ),
        // The Service was heard of before its namespace.
        (
            &[],
            "the labels of namespace shop, by which pools select, are not known yet",
            false,
        ),
    ] {
        observed.leases = (!is_event).then(BTreeMap::new);
        observed = without(observed, unread);
        let kept = given(&status(&observed, "in-pool"));
        let has = "addresses=192.0.2.1 pool=edge ports=82/TCP";
        assert_eq!(kept.as_deref(), Some(has));
        let new = status(&observed, "new");
        assert_eq!(new.verdict, Verdict::Pending);
        assert!(new.why.starts_with(said), "{}", new.why);
        let notices = decided(&observed, &["--node-name=lb1"]).notices;
        let is_told = |one: &Notice| one.reason == Reason::AllocationFailed;
        assert_eq!(notices.iter().any(is_told), is_event, "{notices:?}");
    }
    let mut pools = PoolObjects::clone(&observed.pools);
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    pools.namespaces.insert("shop".to_owned(), labels);
    pools.unread = BTreeMap::from([("Namespace", 403)]);
    observed.pools = Arc::new(pools);
    let new = given(&status(&observed, "new"));
    let has = "addresses=192.0.2.0 pool=edge ports=83/TCP";
    assert_eq!(new.as_deref(), Some(has), "a namespace that was seen");
}

#[test]
fn a_request_that_cannot_be_read_takes_no_address_away() {
    let pools = "---\napiVersion: ballast.dev/v1\nkind: AddressPool\nmetadata: {name: edge}\nspec: {addresses: [192.0.2.0/28]}\n";
    let in_pool = "addresses=192.0.2.1 pool=edge ports=82/TCP";
    let [annotation, address] = [
        "annotations: {ballast.dev/load-balancer-ips: 192.0.2.x}",
        "loadBalancerIP: edge",
    ];
    let internal = "annotations: {ballast.dev/internal: perhaps}";
    for has in [
        in_pool,
        "addresses=node ports=82/TCP",
        "addresses=10.0.0.1 ports=82/TCP",
    ] {
        for (metadata, spec) in [(annotation, ""), ("", address), (internal, "")] {
            if has.contains("10.0.0.1") && metadata == internal {
                // It requests that address no more.
                continue;
            }
            for pools in [pools, ""] {
                let text = [
                    NODE,
                    pools,
                    &service("web", 82, metadata, spec, &allocated(has)),
                ];
                let observed = observed(&text.concat());
                let place = format!("{has} {metadata} {spec} {pools}");
                let status = status(&observed, "web");
                assert_eq!(status.verdict, Verdict::Served, "{place}: {}", status.why);
                assert_eq!(given(&status).as_deref(), Some(has), "{place}");
                let settings = settings(&["--node-name=lb1".to_owned()]).expect("settings");
                let on_node = decide(&observed, &settings.in_role(Role::Node));
                let table = on_node.table.expect("a load balancer");
                assert_eq!(table.frontends.len(), 1, "{place}");
                let keeps = "the Service keeps the addresses that it has until";
                let mut told = decided(&observed, &["--node-name=lb1"]).notices.into_iter();
                assert!(told.any(|one| one.message.starts_with(keeps)), "{place}");
            }
        }
    }
}

#[test]
fn a_secret_that_nobody_could_ask_for_is_not_said_to_be_missing() {
    let mut observed = observed(
        "kind: Service
metadata: {name: web, namespace: shop, annotations: {ballast.dev/tls-secret: cert}}
spec: {type: LoadBalancer, ports: [{port: 443}]}
---
kind: Node
metadata: {name: lb1, labels: {role: loadbalancer}}
status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}
",
    );
    let said = |observed: &Observed| {
        let notices = decided(observed, &["--node-name=lb1"]).notices;
        let of_secret = |notice: &&Notice| notice.reason == Reason::SecretUnreadable;
        let notice = notices.iter().find(of_secret).expect("a notice");
        notice.message.clone()
    };
    let missing = "port 443 stays closed: Secret shop/cert does not exist";
    assert_eq!(said(&observed), missing, "a folder shows all there is");
    observed.leases = Some(BTreeMap::new());
    let unheard = said(&observed);
    assert!(unheard.ends_with("does not answer"), "{unheard}");
    observed.looked_up = Arc::new(Wanted {
        secrets: BTreeSet::from([Key::new("shop", "cert")]),
        ..Wanted::default()
    });
    assert_eq!(said(&observed), missing);
}

#[test]
fn a_service_with_too_many_ports_gets_the_first_ones_and_the_others_are_named_as_ranges() {
    let ports = |count: u16| -> String {
        let ports = (1..=count).map(|n| format!("{{name: p{n}, port: {}}}", 2000 + n));
        ports.collect::<Vec<_>>().join(", ")
    };
    let service = |ports: &str| {
        let text = format!(
            "kind: Service\nmetadata: {{name: web, namespace: shop}}\nspec: {{type: LoadBalancer, ports: [{ports}]}}\n"
        );
        observed(&text)
    };
    let whole = decided(&service(&ports(256)), &[]);
    assert_eq!(whole.table.expect("a table").frontends.len(), 256);
    assert!(whole.notices.is_empty(), "{:?}", whole.notices);

    let more = ports(5000) + ", {name: dns, port: 53, protocol: UDP}";
    let desired = decided(&service(&more), &[]);
    assert_eq!(desired.statuses[0].verdict, Verdict::Served);
    let table = desired.table.expect("a table");
    let mut numbers: Vec<u16> = table
        .frontends
        .iter()
        .filter_map(|frontend| frontend.name.rsplit_once(':')?.1.parse().ok())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (2001..=2256).collect::<Vec<_>>());
    let [notice] = &desired.notices.iter().collect::<Vec<_>>()[..] else {
        panic!("{:?}", desired.notices);
    };
    assert_eq!(notice.reason, Reason::TooManyPorts);
    assert!(
        notice
            .message
            .ends_with("not served: 2257-7000/TCP, 53/UDP"),
        "{}",
        notice.message
    );

    let few = decided(&service(&ports(5)), &["--max-ports-per-service=2"]);
    assert_eq!(few.table.expect("a table").frontends.len(), 2);

    // Ports of the shared port and of --tcp-services are limited too.
    let text = format!(
        "kind: Service\nmetadata: {{name: web, namespace: shop}}\nspec: {{ports: [{}]}}\n",
        ports(300)
    );
    let desired = decided(&observed(&text), &["--http-services=all"]);
    assert_eq!(desired.table.expect("a table").services.len(), 256);
    assert!(
        desired
            .notices
            .iter()
            .any(|notice| notice.reason == Reason::TooManyPorts)
    );
}

#[test]
fn a_secret_that_is_too_large_keeps_its_port_closed() {
    let pair = [include_str!("certificate.pem"), include_str!("key.pem")];
    for (crt, key, told) in [
        (70_000, 0, "tls.crt"),
        (0, 70_000, "tls.key"),
        (0, 0, "nothing"),
    ] {
        let [crt, key] = [(pair[0], crt), (pair[1], key)]
            .map(|(text, more)| format!("{text}{}", "\n".repeat(more)));
        let text = format!(
            "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{ballast.dev/tls-secret: cert}}}}
spec: {{type: LoadBalancer, ports: [{{port: 443}}]}}
---
kind: Secret
metadata: {{name: cert, namespace: shop}}
stringData: {{tls.crt: {crt:?}, tls.key: {key:?}, other: {:?}}}
",
            "x".repeat(900_000)
        );
        let desired = decided(&observed(&text), &[]);
        let table = desired.table.as_ref().expect("a table");
        let said: Vec<_> = desired.notices.iter().map(ToString::to_string).collect();
        match told {
            "nothing" => assert_eq!((table.frontends.len(), said.len()), (1, 0), "{said:?}"),
            entry => {
                assert!(table.frontends.is_empty(), "{entry}");
                let [said] = &said[..] else {
                    panic!("{said:?}");
                };
                assert!(said.contains("SecretUnreadable"), "{said}");
                let what = format!("bytes in its entry {entry}, and at most 65536 are taken");
                assert!(said.contains(&what), "{said}");
            }
        }
    }
}

#[test]
fn a_service_with_too_many_routes_gets_the_first_ones_and_one_warning_names_the_rest() {
    let service = |annotations: &str, ports: &str| {
        observed(&format!(
            "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{{annotations}}}}}
spec: {{ports: [{ports}]}}
"
        ))
    };
    let asked = |hosts: u16, paths: u16| {
        let (hosts, paths) = (list_of(hosts, "h", ".example"), list_of(paths, "/", ""));
        format!("ballast.dev/host: \"{hosts}\", ballast.dev/path: \"{paths}\"")
    };
    let routes = |desired: &Desired| {
        let table = desired.table.as_ref().expect("a table");
        table
            .frontends
            .iter()
            .map(|one| one.routes.len())
            .sum::<usize>()
    };
    let whole = decided(&service(&asked(16, 16), "{port: 80}"), &[]);
    assert_eq!(routes(&whole), 256);
    assert!(whole.notices.is_empty(), "{:?}", whole.notices);

    let desired = decided(&service(&asked(100, 100), "{port: 80}"), &[]);
    assert_eq!(routes(&desired), 256);
    let [notice] = &desired.notices.iter().collect::<Vec<_>>()[..] else {
        panic!("{:?}", desired.notices);
    };
    assert_eq!(notice.reason, Reason::TooManyRoutes);
    assert_eq!(
        notice.message,
        "this Service asks for 10000 routes, and 256 of them are served: at most 256 of one Service (--max-routes-per-service), with at most 100000 source ranges together; not served: \"h3.example/57\" of port 80, \"h3.example/58\" of port 80, \"h3.example/59\" of port 80, and 9741 more"
    );

    // Ports count, too, and there is one Warning for all.
    let ports = "{name: a, port: 80}, {name: b, port: 81}";
    let desired = decided(
        &service(&asked(2, 2), ports),
        &["--max-routes-per-service=5"],
    );
    assert_eq!(routes(&desired), 4, "the routes of both ports are the same");
    let reasons = desired.notices.iter().map(|notice| notice.reason);
    assert_eq!(reasons.collect::<Vec<_>>(), [Reason::TooManyRoutes]);

    // Paths that every Service has by its name are not counted.
    let named = decided(
        &service("", ports),
        &["--http-services=all", "--max-routes-per-service=1"],
    );
    assert_eq!(routes(&named), 5, "/healthz is the fifth");
    assert!(named.notices.is_empty(), "{:?}", named.notices);
}

#[test]
fn hosts_of_relayed_tls_are_routes_and_limited_as_such() {
    let hosts = list_of(300, "h", ".example");
    let annotations = format!("ballast.dev/tls-passthrough: \"{hosts}\"");
    for (spec, more) in [
        ("ports: [{port: 443}]", ""),
        (
            "type: LoadBalancer, ports: [{name: a, port: 443}, {name: b, port: 444}]",
            ", ballast.dev/mode: tls",
        ),
    ] {
        let text = format!(
            "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{{annotations}, ballast.dev/host: a.example{more}}}}}
spec: {{{spec}}}
"
        );
        let desired = decided(&observed(&text), &[]);
        let table = desired.table.as_ref().expect("a table");
        let routes = table.frontends.iter().map(|one| one.routes.len());
        assert_eq!(routes.sum::<usize>(), 256, "{spec}");
        let mut reasons = desired.notices.iter().map(|notice| notice.reason);
        assert!(reasons.any(|one| one == Reason::TooManyRoutes), "{spec}");
    }
}

/// `BEGIN1END,BEGIN2END` and so on.
fn list_of(count: u16, begin: &str, end: &str) -> String {
    let items = (1..=count).map(|n| format!("{begin}{n}{end}"));
    items.collect::<Vec<_>>().join(",")
}

#[test]
fn an_external_name_leads_to_what_it_resolved_to() {
    let mut observed = observed(
        "kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com, ports: [{port: 3306, targetPort: 3307}]}
",
    );
    let addresses = ["192.0.2.9", "192.0.2.8", "2001:db8::1"];
    let addresses = addresses
        .map(|text| text.parse().expect("an address"))
        .to_vec();
    observed
        .resolved
        .insert("db.example.com".to_owned(), addresses);
    let desired = decided(&observed, &["--tcp-services=db:3306"]);
    let table = desired.table.expect("a table");
    let endpoints: Vec<String> = table.services[0]
        .endpoints
        .iter()
        .map(|endpoint| endpoint.address.to_string())
        .collect();
    assert_eq!(endpoints, ["192.0.2.8:3307", "192.0.2.9:3307"]);
}

#[test]
fn a_name_leads_nowhere_on_this_machine_unless_there_is_no_cluster() {
    let text = "kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com, ports: [{port: 3306}]}
";
    let node = "kind: Node\nmetadata: {name: lb1, labels: {role: loadbalancer}}\n";
    let nowhere = [
        ("127.0.0.1", 1),
        ("127.9.9.9", 1),
        ("0.0.0.0", 0),
        ("169.254.169.254", 1),
        ("224.0.0.1", 0),
        ("255.255.255.255", 0),
        ("::1", 1),
        ("::", 0),
        ("::ffff:127.0.0.1", 1),
        ("::ffff:224.0.0.1", 0),
        ("fe80::1", 1),
        ("ff02::1", 0),
    ];
    for (address, alone) in nowhere {
        let in_cluster = format!("{text}---\n{node}");
        for (manifests, expected) in [(text.to_owned(), alone), (in_cluster, 0)] {
            let mut observed = observed(&manifests);
            let found = vec![address.parse().expect("an address")];
            observed.resolved.insert("db.example.com".to_owned(), found);
            let desired = decided(&observed, &["--tcp-services=db:3306"]);
            let table = desired.table.expect("a table");
            assert_eq!(table.services[0].endpoints.len(), expected, "{address}");
            let json = serde_json::to_vec(&table).expect("a table");
            assert_eq!(parse(&json, Format::Json).as_ref(), Ok(&*table));
            let mut reasons = desired.notices.iter().map(|notice| notice.reason);
            let warned = reasons.any(|reason| reason == Reason::AddressNotPermitted);
            assert_eq!(warned, expected == 0, "{address}: {:?}", desired.notices);
        }
    }
}

#[test]
fn in_a_cluster_a_name_leads_to_no_node_no_cluster_ip_and_no_denied_range() {
    let text = "kind: Node
metadata: {name: lb1, labels: {role: loadbalancer}}
status: {addresses: [{type: InternalIP, address: 10.0.0.1}, {type: ExternalIP, address: 203.0.113.1}]}
---
kind: Node
metadata: {name: other}
status: {addresses: [{type: InternalIP, address: 10.0.0.2}, {type: InternalIP, address: \"fd00::2\"}]}
---
kind: Service
metadata: {name: kubernetes, namespace: default}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, \"fd00:96::1\"], ports: [{port: 443}]}
---
kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com, ports: [{port: 3306}]}
";
    let cases = [
        ("192.0.2.9", None),
        ("203.0.113.1", Some("an address of a node")),
        ("10.0.0.2", Some("an address of a node")),
        ("::ffff:10.0.0.2", Some("an address of a node")),
        ("fd00::2", Some("an address of a node")),
        ("10.96.0.1", Some("the ClusterIP of a Service")),
        ("fd00:96::1", Some("the ClusterIP of a Service")),
        ("10.244.1.7", Some("of a range of --external-name-deny")),
        ("169.254.169.254", Some("a link-local address")),
        ("127.0.0.1", Some("a loopback address")),
    ];
    let flags = [
        "--tcp-services=db:3306",
        "--node-name=lb1",
        "--external-name-deny=10.244.0.0/16",
    ];
    // By the name, by the address itself, and as one of several.
    for (address, objection) in cases {
        let ip: IpAddr = address.parse().expect("an address");
        let good: IpAddr = [192, 0, 2, 8].into();
        let of_name = text.to_owned();
        let of_address = text.replace("db.example.com", &format!("\"{address}\""));
        for (text, resolved, mut expected) in [
            (&of_name, vec![ip], vec![]),
            (&of_address, vec![], vec![]),
            (&of_name, vec![good, ip], vec![good]),
        ] {
            let mut observed = observed(text);
            let name = "db.example.com".to_owned();
            observed.resolved.insert(name, resolved);
            let desired = decided(&observed, &flags);
            let table = desired.table.as_ref().expect("a table");
            let served = table.services[0].endpoints.iter();
            let served: Vec<IpAddr> = served.map(|one| one.address.ip()).collect();
            if objection.is_none() {
                expected.push(ip);
            }
            assert_eq!(served, expected, "{address}");
            let mut notices = desired.notices.iter();
            let said = notices.find(|one| one.reason == Reason::AddressNotPermitted);
            let said = said.map(|notice| notice.message.clone());
            assert_eq!(said.is_some(), objection.is_some(), "{address}: {said:?}");
            let words = objection.map(|what| format!("which is {what}"));
            let (said, words) = (said.unwrap_or_default(), words.unwrap_or_default());
            assert!(said.contains(&words), "{said}");
        }
    }
    // A node that has not listed all Nodes yet leads no name anywhere.
    let mut observed = observed(text);
    let found = vec![IpAddr::from([192, 0, 2, 9])];
    observed.resolved.insert("db.example.com".to_owned(), found);
    let as_node = |observed: &Observed| {
        let settings = settings(&flags.map(str::to_owned))
            .expect("good flags")
            .in_role(Role::Node);
        decide(observed, &settings)
    };
    let endpoints = |desired: &Desired| {
        let table = desired.table.as_ref().expect("a table");
        table.services[0].endpoints.len()
    };
    let desired = as_node(&observed);
    assert!(desired.wanted.nodes);
    assert_eq!(endpoints(&desired), 0);
    observed.looked_up = Arc::new(Wanted {
        nodes: true,
        ..Wanted::default()
    });
    assert_eq!(endpoints(&as_node(&observed)), 1);
    // A bridge of this node has an address that no Node has in its status.
    observed.own_addresses = vec!["192.0.2.9/32".parse().expect("a range")];
    assert_eq!(endpoints(&as_node(&observed)), 0);
}

#[test]
fn external_names_can_be_switched_off() {
    let mut observed = observed(
        "kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com, ports: [{port: 3306}]}
",
    );
    let found = vec![IpAddr::from([192, 0, 2, 9])];
    observed.resolved.insert("db.example.com".to_owned(), found);
    let flags = ["--tcp-services=db:3306", "--external-names=off"];
    let desired = decided(&observed, &flags);
    assert!(desired.wanted.names.is_empty());
    let table = desired.table.as_ref().expect("a table");
    assert_eq!(table.services[0].endpoints.len(), 0);
    let said: Vec<_> = desired.notices.iter().map(ToString::to_string).collect();
    assert!(
        said[0].ends_with("is not served: --external-names=off"),
        "{said:?}"
    );
}

#[test]
fn an_external_name_has_at_most_64_addresses_and_says_when_it_waits() {
    let mut observed = observed(
        "kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com, ports: [{port: 3306}]}
",
    );
    let flags = ["--tcp-services=db:3306"];
    let name = || "db.example.com".to_owned();
    let said = |observed: &Observed| -> Vec<String> {
        let notices = decided(observed, &flags).notices;
        notices.iter().map(|one| one.message.clone()).collect()
    };
    let served = |observed: &Observed| {
        let table = decided(observed, &flags).table.expect("a table");
        let endpoints = table.services[0].endpoints.iter();
        endpoints.map(|one| one.address.ip()).collect::<Vec<_>>()
    };
    let waits = said(&observed);
    assert!(waits[0].contains("waits to be looked up"), "{waits:?}");

    // What the table of an earlier process has stays until the first answer.
    let before = vec![IpAddr::from([192, 0, 2, 1])];
    observed
        .earlier
        .insert(Key::new("shop", "db"), before.clone());
    observed.earlier.insert(
        Key::new("shop", "other"),
        vec![IpAddr::from([192, 0, 2, 2])],
    );
    for answer in [None, Some(vec![])] {
        observed
            .resolved
            .extend(answer.map(|found| (name(), found)));
        assert_eq!(served(&observed), before);
        assert_eq!(said(&observed), [""; 0]);
    }

    let addresses = |count: u8| (1..=count).map(|last| IpAddr::from([192, 0, 2, last]));
    observed.resolved.insert(name(), addresses(64).collect());
    assert_eq!(served(&observed), addresses(64).collect::<Vec<_>>());
    assert_eq!(said(&observed), [""; 0]);
    observed.resolved.insert(name(), addresses(65).collect());
    assert_eq!(served(&observed), addresses(64).collect::<Vec<_>>());
    assert!(
        said(&observed)[0]
            .ends_with("has more than 64 addresses; the first 64 by value are served")
    );

    observed.resolved.insert(name(), vec![]);
    observed.earlier.clear();
    observed.looked_up = Arc::new(Wanted {
        names: BTreeSet::from([name()]),
        ..Wanted::default()
    });
    assert!(said(&observed)[0].contains("has no address"));
}

#[test]
fn an_external_name_is_wanted_while_somebody_asks_for_it() {
    let observed = observed(
        "kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com., ports: [{port: 3306}]}
",
    );
    let wanted = decided(&observed, &["--http-services=all"]).wanted;
    assert!(wanted.names.contains("db.example.com."), "{wanted:?}");
    assert!(decided(&observed, &[]).wanted.is_empty());
}

#[test]
fn a_restart_changes_nothing_about_last_good_values() {
    let text = |value: &str, last_good: &str| {
        format!(
            "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{ballast.dev/source-ranges: {value}, ballast.dev/algorithm: {value}, ballast.dev/tls-secret: cert, ballast.dev/last-good: '{last_good}'}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}, {{port: 81}}]}}
---
kind: Secret
metadata: {{name: cert, namespace: shop}}
stringData: {{tls.crt: {:?}, tls.key: {:?}}}
",
            include_str!("certificate.pem"),
            include_str!("key.pem"),
        )
    };
    let mut before = decided(&observed(&text("10.0.0.0/8", "")), &[]);
    let mut bad = observed(&text("nonsense", ""));
    bad.remembered = std::mem::take(&mut before.remembered);
    let kept = decided(&bad, &[]);
    let written = &kept.statuses[0].annotations["ballast.dev/last-good"];
    let after = decided(&observed(&text("nonsense", written)), &[]);
    assert_eq!(after.table, kept.table);
    assert_eq!(after.remembered, kept.remembered);
    assert!(
        after.statuses[0].annotations.is_empty(),
        "it is there already"
    );
    let ranges = &kept.table.expect("a table").frontends[1].source_ranges;
    assert_eq!(
        ranges
            .as_ref()
            .map(|ranges| ranges[0].to_string())
            .as_deref(),
        Some("10.0.0.0/8")
    );
}

#[test]
fn the_last_good_value_outlives_a_time_without_a_node() {
    let text = |value: &str, role: &str| {
        format!(
            "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{ballast.dev/algorithm: {value}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
---
kind: Node
metadata: {{name: lb1, labels: {{role: {role}}}}}
status: {{addresses: [{{type: InternalIP, address: 10.77.1.1}}]}}
"
        )
    };
    let before = decided(&observed(&text("random", "loadbalancer")), &[]).remembered;
    let mut pending = observed(&text("random", "other"));
    pending.remembered = Arc::clone(&before);
    let desired = decided(&pending, &[]);
    assert_eq!(desired.statuses[0].verdict, Verdict::Pending);
    assert_eq!(desired.remembered, before);
}

#[test]
fn the_last_good_value_outlives_several_looks() {
    let text = |value: &str| {
        format!(
            "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{ballast.dev/algorithm: {value}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
"
        )
    };
    let mut remembered = decided(&observed(&text("random")), &[]).remembered;
    for _ in 0..3 {
        let mut bad = observed(&text("best"));
        bad.remembered = remembered;
        let desired = decided(&bad, &[]);
        let table = desired.table.expect("a table");
        assert_eq!(table.services[0].algorithm, Algorithm::Random);
        remembered = desired.remembered;
    }
}

/// Another cluster has no Node for this process, which serves it as a host does; but no externalName may lead to this machine.
#[test]
fn another_cluster_is_served_without_a_node_of_ours() {
    let service = "kind: Service
metadata: {name: web, namespace: shop}
spec: {type: LoadBalancer, ports: [{port: 80, nodePort: 30080}]}
---
kind: Service
metadata: {name: db, namespace: shop}
spec: {type: ExternalName, externalName: 127.0.0.1, ports: [{port: 3306}]}
---
";
    let node = |labels: &str| {
        format!(
            "kind: Node
metadata: {{name: w1, labels: {{{labels}}}}}
status: {{addresses: [{{type: InternalIP, address: 10.9.0.1}}]}}
"
        )
    };
    let plain = observed(&format!("{service}{}", node("")));
    let member = observed(&format!("{service}{}", node("role: loadbalancer")));
    let frontends = |observed: &Observed, node: &str, another_cluster: bool| {
        let name = format!("--node-name={node}");
        let via = "--endpoints-via=nodeport".to_owned();
        let arguments = [name, via, "--tcp-services=db:3306".to_owned()];
        let settings = Settings {
            another_cluster,
            ..settings(&arguments).expect("settings")
        };
        let table = decide(observed, &settings).table?;
        let endpoints = table.services.iter().map(|service| {
            let all = service.endpoints.iter();
            let all = all.map(|endpoint| endpoint.address.to_string());
            format!("{} {}", service.name, all.collect::<Vec<_>>().join(" "))
        });
        Some(endpoints.collect::<Vec<_>>())
    };
    let served = vec![
        "db:3306 ".to_owned(),
        "shop.web:80 10.9.0.1:30080".to_owned(),
    ];
    for (observed, node, another_cluster, expected) in [
        (&plain, "edge", true, Some(served.clone())),
        (&member, "edge", true, Some(served.clone())),
        // If the cluster has a Node for this process, that Node counts.
        (&plain, "w1", true, None),
        (&member, "w1", true, Some(served)),
        (&plain, "edge", false, None),
        (&member, "edge", false, None),
    ] {
        let found = frontends(observed, node, another_cluster);
        assert_eq!(found, expected, "{node} {another_cluster}");
    }
}

/// The annotation is removed once the Service asks for nothing, and only if this Ballast wrote it.
#[test]
fn what_was_written_on_a_routed_service_goes_when_it_is_left_alone() {
    let text = |host: &str| {
        format!(
            "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{{host} ballast.dev/last-good: '{{}}'}}}}
spec: {{ports: [{{port: 80}}]}}
"
        )
    };
    let routed = decided(&observed(&text("ballast.dev/host: a.b,")), &[]);
    assert_eq!(routed.statuses[0].verdict, Verdict::Routed);
    let mut silent = observed(&text(""));
    assert_eq!(decided(&silent, &[]).statuses[0].stale_annotations.len(), 0);
    silent.remembered = routed.remembered;
    for _ in 0..2 {
        let desired = decided(&silent, &[]);
        let status = &desired.statuses[0];
        assert_eq!(status.verdict, Verdict::LeftAlone);
        let stale: Vec<_> = status.stale_annotations.iter().collect();
        assert_eq!(stale, ["ballast.dev/last-good"]);
        // The annotations are removed until they are gone.
        silent.remembered = desired.remembered;
    }
}

#[test]
fn a_service_that_is_ignored_stays_so_while_the_key_cannot_be_read() {
    for kind in ["LoadBalancer", "ClusterIP"] {
        let text = |value: &str| {
            format!(
                "kind: Service
metadata: {{name: web, namespace: shop, annotations: {{ballast.dev/host: a.b, ballast.dev/ignore: '{value}'}}}}
spec: {{type: {kind}, ports: [{{port: 80}}]}}
"
            )
        };
        let mut remembered = decided(&observed(&text("true")), &[]).remembered;
        for _ in 0..2 {
            let mut bad = observed(&text("perhaps"));
            bad.remembered = remembered;
            let desired = decided(&bad, &[]);
            assert_eq!(desired.statuses[0].verdict, Verdict::LeftAlone);
            assert!(desired.statuses[0].annotations.is_empty());
            assert_eq!(desired.notices.len(), 1);
            remembered = desired.remembered;
        }
    }
}

/// One Service can fill neither the table nor the memory by repetition.
#[test]
fn a_service_that_asks_for_far_too_much_gets_a_part_of_it_and_the_others_all() {
    let list = |form: fn(usize) -> String, many: usize| {
        let words: Vec<String> = (0..many).map(form).collect();
        words.join(",")
    };
    let hosts = list(|n| format!("h{n}.example.com"), 8_000);
    let paths = list(|n| format!("/p{n}"), 8_000);
    let ranges = list(|n| format!("10.{}.{}.0/24", n / 250, n % 250), 8_000);
    let ports = |many: usize| {
        let ports =
            (0..many).map(|n| serde_json::json!({"name": format!("p{n}"), "port": 1000 + n}));
        ports.collect::<Vec<_>>()
    };
    let service =
        |name: &str, kind: &str, annotations: serde_json::Value, ports: Vec<serde_json::Value>| {
            serde_json::json!({
                "kind": "Service",
                "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
                "spec": {"type": kind, "ports": ports},
            })
        };
    let (host, path, sources) = (
        "ballast.dev/host",
        "ballast.dev/path",
        "ballast.dev/source-ranges",
    );
    let items = [
        service(
            "product",
            "ClusterIP",
            serde_json::json!({host: hosts, path: paths}),
            ports(1),
        ),
        service(
            "copies",
            "ClusterIP",
            serde_json::json!({host: "a.b, c.d, e.f", sources: ranges}),
            ports(8),
        ),
        service(
            "own",
            "LoadBalancer",
            serde_json::json!({sources: ranges}),
            ports(2000),
        ),
        service(
            "good",
            "ClusterIP",
            serde_json::json!({host: "good.example.com"}),
            ports(1),
        ),
    ];
    let text = serde_json::json!({"kind": "List", "items": items}).to_string();
    let mut observed = Observed::default();
    assert_eq!(observed.take_file("x.json", &text), []);
    let desired = decided(&observed, &[]);
    let table = desired.table.expect("a table");
    let names: Vec<&str> = table.services.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["copies:1000", "good:1000", "product:1000"]);
    let of_product = table.frontends.iter().flat_map(|one| one.routes.iter());
    let of_product = of_product.filter(|route| route.service.as_deref() == Some("product:1000"));
    assert_eq!(of_product.count(), 256);
    assert!(serde_json::to_vec(&table).expect("JSON").len() < 1 << 20);
    for name in ["product", "copies", "own"] {
        let about = About::Service(Key::new("shop", name));
        let mut said = desired.notices.iter();
        assert!(said.any(|one| one.about == about), "{name}");
    }
    assert!(desired.notices.iter().all(|one| one.message.len() < 1_000));
}

/// No manifest leads to such a table today. A bug that does would be treated like this.
#[test]
fn a_service_that_would_have_the_table_refused_is_left_out_of_it_alone() {
    let text = |name: &str, port: u16, more: &str| {
        format!(
            "kind: Service
metadata: {{name: {name}, namespace: shop, annotations: {{ballast.dev/internal: 'true', {more}}}}}
spec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}
---
"
        )
    };
    let node = "kind: Node
metadata: {name: lb1, labels: {role: loadbalancer}}
status: {addresses: [{type: InternalIP, address: 10.77.1.1}]}
";
    let bad = text("bad", 80, "ballast.dev/algorithm: first");
    let mut observed = observed(&format!("{bad}{}{node}", text("good", 81, "")));
    let remembered = decided(&observed, &["--node-name=lb1"]).remembered;
    let key = Key::new("shop", "bad");
    let service = observed.services.get_mut(&key).expect("a Service");
    // Two binds of one address.
    Arc::make_mut(service).families = vec![Family::V4, Family::V4];
    observed.remembered = Arc::clone(&remembered);
    let desired = decided(&observed, &["--node-name=lb1"]);
    let table = desired.table.expect("a table");
    let names: Vec<&str> = table.frontends.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["shop.good:81"]);
    let json = serde_json::to_vec(&table).expect("a table");
    assert_eq!(parse(&json, Format::Json).as_ref(), Ok(&*table));
    let said: Vec<_> = desired.notices.iter().collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0].reason, Reason::LeftOut);
    assert!(said[0].message.contains("is taken already"), "{said:?}");
    let verdicts: Vec<_> = desired.statuses.iter().map(|one| one.verdict).collect();
    assert_eq!(verdicts, [Verdict::Pending, Verdict::Served]);
    assert_eq!(desired.remembered, remembered);
}

fn decided(observed: &Observed, arguments: &[&str]) -> Desired {
    let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
    decide(observed, &settings(&arguments).expect("settings"))
}

fn observed(text: &str) -> Observed {
    let mut observed = Observed::default();
    assert_eq!(observed.take_file("x.yaml", text), []);
    observed
}
