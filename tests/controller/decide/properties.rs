//! Properties of every cluster: whether one Service exists changes nothing about the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use ballast_controller::decide::{About, Desired, Ingress, Notice, decide};
use ballast_controller::lease::{Exception, Exceptions, Versions};
use ballast_controller::observe::{Key, Lease, Observed};
use ballast_core::table::{Format, Frontend, Route, parse};
use proptest::prelude::*;

use super::{give, settings};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// The Services have different ports, paths and hosts. Conflicts are decided by age, which cases pin.
    #[test]
    fn a_removed_service_changes_nothing_about_the_others(
        services in prop::collection::vec(service(), 2..7),
        gone in any::<prop::sample::Index>(),
        all in any::<bool>(),
    ) {
        let http = if all { "all" } else { "annotated" };
        let settings = settings(&arguments("lb1", http)).expect("a test that is set up");
        let mut text = NODES.to_owned();
        for (index, parts) in services.iter().enumerate() {
            write(&mut text, index, parts);
        }
        let mut observed = Observed::default();
        prop_assert_eq!(observed.take_file("x.yaml", &text), []);
        let with = decide(&observed, &settings);
        let json = serde_json::to_vec(with.table.as_ref().expect("a test that is set up")).expect("a test that is set up");
        prop_assert!(parse(&json, Format::Json).is_ok(), "{}", text);
        let gone = Key::new("shop", &format!("s{}", gone.index(services.len())));
        for before in [&[][..], &["10.77.1.1"], &["10.77.1.1", "10.77.1.2"]] {
            let mut with = published(&observed, before);
            give(&mut with, &settings, 1);
            let mut without = with.clone();
            without.services.remove(&gone);
            prop_assert_eq!(others(&decide(&with, &settings), &gone), others(&decide(&without, &settings), &gone));
            // Once more with Leases: every node serves what it should, but for one frontend.
            with.leases = Some(leases());
            without.leases = Some(leases());
            prop_assert_eq!(others(&decide(&with, &settings), &gone), others(&decide(&without, &settings), &gone));
            // While the nodes still serve the old state, published addresses stay.
            without.leases = with.leases.clone();
            let then = decide(&without, &settings);
            for status in decide(&with, &settings).statuses.iter().filter(|status| status.service != gone) {
                let then = then.statuses.iter().find(|other| other.service == status.service).expect("it was not removed");
                let was = |place: &&Ingress| matches!(place, Ingress::Ip(address) if before.contains(&&*address.to_string()));
                let mut stays = status.ingress.iter().filter(was);
                prop_assert!(stays.all(|place| then.ingress.contains(place)), "{:?} {:?}", status, then);
            }
        }
    }

    #[test]
    fn no_annotation_breaks_the_table(key in prop::sample::select(KEYS), value in "\\PC{0,12}", port in prop::option::of(80_u16..82)) {
        let settings = settings(&["--node-name=lb1".to_owned(), "--http-services=all".to_owned()]).expect("a test that is set up");
        let mut observed = Observed::default();
        observed.take_file("x.yaml", NODES);
        for kind in ["LoadBalancer", "ClusterIP"] {
            let suffix = port.map_or_else(String::new, |port| format!(".{port}"));
            let service = serde_json::json!({
                "kind": "Service",
                "metadata": {"name": kind.to_lowercase(), "namespace": "shop", "annotations": {format!("{key}{suffix}"): value}},
                "spec": {"type": kind, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]},
            });
            prop_assert_eq!(observed.take_file("y.json", &service.to_string()), []);
        }
        let desired = decide(&observed, &settings);
        let json = serde_json::to_vec(desired.table.as_ref().expect("a test that is set up")).expect("a test that is set up");
        prop_assert!(parse(&json, Format::Json).is_ok(), "{:?}", parse(&json, Format::Json));
    }
}

/// The same Services, with these addresses published by us.
fn published(observed: &Observed, addresses: &[&str]) -> Observed {
    let mut seen = observed.clone();
    for service in seen.services.values_mut().map(Arc::make_mut) {
        service.ingress = addresses
            .iter()
            .map(|&address| address.to_owned())
            .collect();
        service
            .status_managers
            .insert("ballast-controller".to_owned());
    }
    seen
}

fn leases() -> BTreeMap<String, Arc<Lease>> {
    let lease = |node: &str| {
        let closed = Exception {
            closed: true,
            ..Exception::default()
        };
        let lease = Lease {
            served: Versions {
                all: 1,
                ..Versions::default()
            },
            exceptions: Exceptions {
                services: BTreeMap::from([("shop/s0".to_owned(), closed)]),
                ..Exceptions::default()
            },
            ..Lease::default()
        };
        (node.to_owned(), Arc::new(lease))
    };
    ["lb1", "lb2"].map(lease).into()
}

fn arguments(node: &str, http: &str) -> [String; 3] {
    [
        format!("--node-name={node}"),
        format!("--http-services={http}"),
        "--ssl-cert=/c.pem".to_owned(),
    ]
}

/// Whether it is a LoadBalancer, its annotations, and whether it has endpoints.
type Parts = (bool, Vec<(String, String)>, bool);

fn service() -> impl Strategy<Value = Parts> {
    let values: &[&str] = &[
        "true",
        "v2",
        "off",
        "leastconn",
        "10",
        "http",
        "nonsense",
        "10.0.0.0/8",
        "web",
        "strip",
        "-1",
        "8443",
        "lb1=x",
    ];
    let value = prop::sample::select(values).prop_map(str::to_owned);
    let own = prop::sample::select(SAFE_KEYS).prop_map(str::to_owned);
    (
        any::<bool>(),
        prop::collection::vec((own, value), 0..5),
        any::<bool>(),
    )
}

fn write(text: &mut String, index: usize, (balanced, annotations, endpoints): &Parts) {
    let kind = if *balanced {
        "LoadBalancer"
    } else {
        "ClusterIP"
    };
    let annotations: BTreeMap<_, _> = annotations.iter().cloned().collect();
    let annotations = serde_json::to_string(&annotations).expect("a test that is set up");
    let port = 2000 + index * 10;
    writeln!(text, "---\nkind: Service\nmetadata: {{name: s{index}, namespace: shop, annotations: {annotations}}}").expect("a String takes everything");
    writeln!(text, "spec: {{type: {kind}, ports: [{{name: a, port: {port}}}, {{name: b, port: {}, protocol: UDP}}]}}", port + 1).expect("a String takes everything");
    if *endpoints {
        writeln!(text, "---\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {{name: s{index}-x, namespace: shop, labels: {{kubernetes.io/service-name: s{index}}}}}").expect("a String takes everything");
        writeln!(text, "ports: [{{name: a, port: 8080}}, {{name: b, port: 53, protocol: UDP}}]\nendpoints: [{{addresses: [10.1.0.{}]}}]", index + 1).expect("a String takes everything");
    }
}

/// The parts of a decision about all other Services.
fn others(desired: &Desired, gone: &Key) -> impl PartialEq + std::fmt::Debug + use<> {
    let table = desired.table.clone().expect("a test that is set up");
    let is_others = |name: &str| {
        let whose = [
            format!("{}.{}:", gone.namespace, gone.name),
            format!("{}:", gone.name),
        ];
        !whose.iter().any(|begin| name.starts_with(begin.as_str())) && name != gone.name
    };
    let leads_to_others = |route: &Route| route.service.as_ref().is_none_or(|name| is_others(name));
    let frontends: Vec<(String, Option<Frontend>, Vec<Route>)> = table
        .frontends
        .iter()
        .filter(|frontend| is_others(&frontend.name))
        .map(|frontend| {
            let routes: Vec<Route> = frontend
                .routes
                .iter()
                .filter(|route| leads_to_others(route))
                .cloned()
                .collect();
            // The frontend of a shared port is there while it has a route.
            let shared = ["http", "https"].contains(&&*frontend.name);
            (
                frontend.name.to_string(),
                (!shared).then(|| frontend.clone()),
                routes,
            )
        })
        .filter(|(_, own, routes)| own.is_some() || !routes.is_empty())
        .collect();
    let services: Vec<_> = table
        .services
        .iter()
        .filter(|service| is_others(&service.name))
        .cloned()
        .collect();
    let statuses: Vec<_> = desired
        .statuses
        .iter()
        .filter(|status| status.service != *gone)
        .cloned()
        .collect();
    let about = About::Service(gone.clone());
    let notices: BTreeSet<Notice> = desired
        .notices
        .iter()
        .filter(|notice| notice.about != about)
        .cloned()
        .collect();
    (frontends, services, statuses, notices)
}

const NODES: &str = "kind: Node
metadata: {name: lb1, labels: {role: loadbalancer}}
status: {addresses: [{type: InternalIP, address: 10.77.1.1}]}
---
kind: Node
metadata: {name: lb2, labels: {role: loadbalancer, lb1: x}}
status: {addresses: [{type: InternalIP, address: 10.77.1.2}]}
";

/// Keys that make no conflict between Services.
const SAFE_KEYS: &[&str] = &[
    "ballast.dev/proxy-protocol",
    "ballast.dev/algorithm",
    "ballast.dev/source-ranges",
    "ballast.dev/mode",
    "ballast.dev/x-forwarded-for",
    "ballast.dev/health-check",
    "ballast.dev/health-check-port",
    "ballast.dev/connection-limit",
    "ballast.dev/internal",
    "ballast.dev/node-selector",
    "ballast.dev/timeout-client",
    "ballast.dev/tls-secret",
    "ballast.dev/no-such-key",
    "loadbalancer.openstack.org/proxy-protocol",
    "loadbalancer.openstack.org/connection-limit",
    "loadbalancer.openstack.org/enable-health-monitor",
    "service.beta.kubernetes.io/exoscale-loadbalancer-service-strategy",
    "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-port",
    "serviceloadbalancer/lb.sslTerm",
    "serviceloadbalancer/lb.cookie-sticky-session",
];

const KEYS: &[&str] = &[
    "ballast.dev/accept-proxy",
    "ballast.dev/algorithm",
    "ballast.dev/connection-limit",
    "ballast.dev/description",
    "ballast.dev/display-name",
    "ballast.dev/external-port",
    "ballast.dev/health-check",
    "ballast.dev/health-check-path",
    "ballast.dev/host",
    "ballast.dev/hostname",
    "ballast.dev/hsts",
    "ballast.dev/load-balancer-ips",
    "ballast.dev/path",
    "ballast.dev/rewrite",
    "ballast.dev/source-ranges",
    "ballast.dev/timeout-client",
    "ballast.dev/tls-passthrough",
    "ballast.dev/tls-secret",
    "ballast.dev/udp-timeout",
    "loadbalancer.openstack.org/timeout-member-connect",
    "service.beta.kubernetes.io/exoscale-loadbalancer-name",
    "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-uri",
    "serviceloadbalancer/lb.aclMatch",
    "serviceloadbalancer/lb.host",
];
