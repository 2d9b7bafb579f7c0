//! Whatever Services say in good words, and however their words meet: the data plane takes the table.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ballast_controller::decide::{Reason, decide};
use ballast_controller::observe::Observed;
use ballast_core::table::{Format, parse};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::settings;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn good_words_of_services_make_a_good_table(
        services in prop::collection::vec(service(), 1..6),
        arguments in select(ARGUMENTS),
        has_node in prop::bool::weighted(0.9),
    ) {
        let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
        let settings = settings(&arguments).expect("a test that is set up");
        let mut items: Vec<Value> = if has_node { nodes() } else { Vec::new() };
        for name in ["cert", &long_name()] {
            items.push(json!({"kind": "Secret", "metadata": {"name": name, "namespace": "shop"}, "stringData": {
                "tls.crt": "-----BEGIN CERTIFICATE-----", "tls.key": "-----BEGIN PRIVATE KEY-----",
            }}));
        }
        for (index, parts) in services.iter().enumerate() {
            items.extend(manifests(index, parts));
        }
        let mut observed = Observed::default();
        let text = json!({"kind": "List", "items": items}).to_string();
        prop_assert_eq!(observed.take_file("x.json", &text), []);
        let addresses = ADDRESSES.iter().map(|text| text.parse().expect("an address"));
        observed.resolved.insert("db.example.com".to_owned(), addresses.collect());
        let desired = decide(&observed, &settings);
        let Some(table) = &desired.table else { return Ok(()) };
        let json = serde_json::to_string(table).expect("a test that is set up");
        match parse(json.as_bytes(), Format::Json) {
            Ok(read) => prop_assert_eq!(&read, &**table),
            Err(problems) => prop_assert!(false, "{}\n{:?}\n{}\n{}", problems, arguments, text, json),
        }
        // Nothing had to be left out for that.
        let left_out = desired.notices.iter().find(|notice| notice.reason == Reason::LeftOut);
        prop_assert!(left_out.is_none(), "{:?}", left_out);
    }
}

#[test]
fn every_key_is_among_the_good_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/decide");
    let mut missing = Vec::new();
    for file in ["annotations/keys.rs", "knobs.rs", "health.rs"] {
        let text = fs::read_to_string(root.join(file)).expect("a source file");
        // Of `keys.rs` the list of our own names counts, of the others the tables of knobs at the end.
        let (_, lists) = text
            .split_once("const KNOWN")
            .or_else(|| text.rsplit_once("knobs! {"))
            .or_else(|| text.split_once("const MODE"))
            .expect("a list of keys");
        let words = lists.split('"').skip(1).step_by(2);
        for word in words.filter(|word| !word.is_empty() && !OUTPUTS.contains(word)) {
            let own = format!("ballast.dev/{word}");
            let is_there = |key: &str| key == word || key == own;
            if word != "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-"
                && !WORDS.iter().any(|(key, _)| is_there(key))
            {
                missing.push(format!("{file}: {word}"));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}

/// One Service: its type, which of the ports it has, its annotations, and what else it says.
#[derive(Clone, Debug)]
struct Parts {
    kind: &'static str,
    ports: Vec<usize>,
    annotations: Vec<(usize, Index, Option<&'static str>)>,
    families: &'static [&'static str],
    name: &'static str,
    sticky: bool,
    local: bool,
    requested: Option<&'static str>,
    endpoints: Vec<Index>,
}

fn service() -> impl Strategy<Value = Parts> {
    let kinds: &[&str] = &[
        "LoadBalancer",
        "LoadBalancer",
        "ClusterIP",
        "NodePort",
        "ExternalName",
    ];
    let families: &[&[&str]] = &[&[], &["IPv4"], &["IPv6"], &["IPv6", "IPv4"]];
    let suffixes: &[&str] = &[".80", ".443", ".53", ".53-udp", ".81"];
    let suffix = prop::option::weighted(0.3, select(suffixes));
    let names: &[&str] = &["db.example.com", "10.9.9.9", "fd00::1", "224.0.0.1"];
    let requested: &[&str] = &["10.77.1.1", "192.0.2.1", "::ffff:10.77.1.1"];
    let said = (
        select(families),
        select(names),
        any::<bool>(),
        any::<bool>(),
        prop::option::weighted(0.1, select(requested)),
    );
    (
        select(kinds),
        prop::sample::subsequence(vec![0, 1, 2, 3, 4], 1..=5),
        prop::collection::vec((0..WORDS.len(), any::<Index>(), suffix), 0..9),
        said,
        prop::collection::vec(any::<Index>(), 0..4),
    )
        .prop_map(|(kind, ports, annotations, said, endpoints)| {
            let (families, name, sticky, local, requested) = said;
            Parts {
                kind,
                ports,
                annotations,
                families,
                name,
                sticky,
                local,
                requested,
                endpoints,
            }
        })
}

fn manifests(index: usize, parts: &Parts) -> Vec<Value> {
    let name = format!("s{index}");
    let annotations: BTreeMap<String, String> = parts
        .annotations
        .iter()
        .map(|(key, value, suffix)| {
            let (key, values) = WORDS[*key];
            let suffix = suffix.filter(|_| key.starts_with("ballast.dev/"));
            let value = match *value.get(values) {
                "LONG" => long_name(),
                value => value.to_owned(),
            };
            (format!("{key}{}", suffix.unwrap_or_default()), value)
        })
        .collect();
    let spoken = ["https", "kubernetes.io/h2c", "kubernetes.io/wss"];
    let spoken = spoken[index % spoken.len()];
    let ports = [
        json!({"name": "a", "port": 80, "nodePort": 30080, "targetPort": 8080}),
        json!({"name": "s", "port": 443, "appProtocol": spoken}),
        json!({"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053}),
        json!({"name": "t", "port": 53, "nodePort": 30053}),
        json!({"name": "n", "port": 81, "targetPort": "named"}),
    ];
    let ports: Vec<&Value> = parts.ports.iter().map(|port| &ports[*port]).collect();
    let service = json!({
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("u{index}"), "annotations": annotations},
        "spec": {
            "type": parts.kind,
            "externalName": parts.name,
            "ports": ports,
            "clusterIP": format!("10.96.0.{index}"),
            "ipFamilies": parts.families,
            "sessionAffinity": if parts.sticky { "ClientIP" } else { "None" },
            "externalTrafficPolicy": if parts.local { "Local" } else { "Cluster" },
            "loadBalancerIP": parts.requested,
        },
    });
    let slice = |family: &str| {
        let addresses = parts.endpoints.iter().map(|index| *index.get(ADDRESSES));
        let addresses = addresses.filter(|address| address.contains(':') == (family == "IPv6"));
        let endpoints: Vec<Value> = addresses
            .map(|address| json!({"addresses": [address], "nodeName": "lb1", "zone": "a zone"}))
            .collect();
        json!({
            "kind": "EndpointSlice",
            "addressType": family,
            "metadata": {
                "name": format!("{name}-{family}"),
                "namespace": "shop",
                "labels": {"kubernetes.io/service-name": name},
            },
            "ports": [
                {"name": "a", "port": 8080}, {"name": "s", "port": 8443}, {"name": "t", "port": 53},
                {"name": "n", "port": 81}, {"name": "u", "port": 53, "protocol": "UDP"},
            ],
            "endpoints": endpoints,
        })
    };
    vec![service, slice("IPv4"), slice("IPv6")]
}

fn nodes() -> Vec<Value> {
    let node = |name: &str, number: u8| {
        json!({
            "kind": "Node",
            "metadata": {"name": name, "labels": {"role": "loadbalancer", "zone": name}},
            "status": {"addresses": [
                {"type": "InternalIP", "address": format!("10.77.1.{number}")},
                {"type": "InternalIP", "address": format!("fd77::{number}")},
                {"type": "ExternalIP", "address": format!("192.0.2.{number}")},
            ]},
        })
    };
    vec![node("lb1", 1), node("lb2", 2)]
}

fn long_name() -> String {
    "long".repeat(63)
}

/// What the process may be told.
const ARGUMENTS: &[&[&str]] = &[
    &["--node-name=lb1"],
    &["--node-name=lb1", "--http-services=all"],
    &[
        "--node-name=lb1",
        "--http-services=all",
        "--ssl-cert=/c.pem",
        "--ssl-ca-cert=/ca.pem",
        "--error-page=file:///404.html",
        "--default-return-code=503",
        "--syslog",
    ],
    &[
        "--node-name=lb1",
        "--ssl-cert=/c.pem",
        "--tcp-services=s0:80,s1:443,s2:53@54,shop/s3:81@82",
    ],
    &[
        "--node-name=lb1",
        "--http-services=all",
        "--tcp-services=s0:80@443,s1:443@80,s2:80@8081",
    ],
    &["--node-name=lb1", "--endpoints-via=nodeport"],
    &["--node-name=lb1", "--forward-services"],
    &["--http-services=all", "--ssl-cert=/c.pem"],
    &["--node-name=lb1", "--http-port=81", "--stats-port=80"],
];

/// Addresses of endpoints, and some that can be none.
const ADDRESSES: &[&str] = &[
    "10.1.0.1",
    "10.1.0.2",
    "::ffff:10.1.0.1",
    "fd01::1",
    "0.0.0.0",
    "::",
    "127.0.0.1",
    "239.1.1.1",
    "255.255.255.255",
    "ff02::1",
    "::ffff:239.1.1.1",
];

/// Keys that only Ballast writes, the prefix of some others, and what is no key.
const OUTPUTS: &[&str] = &["last-good", "told"];

/// Every key, with values that are good.
const WORDS: &[(&str, &[&str])] = &[
    (
        "ballast.dev/accept-proxy",
        &[
            "off",
            "10.0.0.0/8",
            "on ::ffff:10.0.0.0/104, fd00::/8",
            "0.0.0.0/0,::/0",
        ],
    ),
    ("ballast.dev/address-pool", &["gold", ""]),
    (
        "ballast.dev/algorithm",
        &["first", "random", "maglev", "source-port-hash"],
    ),
    ("ballast.dev/connection-limit", &["-1", "1", "4294967295"]),
    ("ballast.dev/cookie-sticky-session", &["true", "f"]),
    ("ballast.dev/description", &["", "x", "é \"quoted\""]),
    ("ballast.dev/display-name", &["", "y"]),
    (
        "ballast.dev/external-port",
        &["8080", "80", "443", "80:443, 443:80", "53:1936"],
    ),
    (
        "ballast.dev/external-traffic-policy-mode",
        &["edge", "strict"],
    ),
    (
        "ballast.dev/health-check",
        &["off", "tcp", "http", "https", "udp"],
    ),
    (
        "ballast.dev/health-check-codes",
        &["200", "200-399,500", "100-599"],
    ),
    ("ballast.dev/health-check-fall", &["1", "20"]),
    (
        "ballast.dev/health-check-interval",
        &["1", "1s", "300s", "1500ms"],
    ),
    ("ballast.dev/health-check-path", &["/", "/x?y=1"]),
    (
        "ballast.dev/health-check-port",
        &["1", "65535", "a", "n", "u"],
    ),
    ("ballast.dev/health-check-rise", &["1", "10"]),
    ("ballast.dev/health-check-timeout", &["1s", "5m", "300"]),
    (
        "ballast.dev/host",
        &["a.example.com", "*.example.com", "A.example.com. [::1]"],
    ),
    ("ballast.dev/hostname", &["edge.example.com", "a.b,c.d"]),
    ("ballast.dev/hsts", &["1d", "4380h", "4000d"]),
    ("ballast.dev/ignore", &["false", "true"]),
    ("ballast.dev/internal", &["false", "true"]),
    ("ballast.dev/keep-address", &["true"]),
    (
        "ballast.dev/load-balancer-ips",
        &[
            "10.77.1.1",
            "192.0.2.1,fd77::1",
            "::ffff:192.0.2.1",
            "10.77.1.2",
        ],
    ),
    ("ballast.dev/mode", &["tcp", "http", "https", "tls"]),
    (
        "ballast.dev/node-selector",
        &["role", "!x", "zone=lb1", "zone=lb2"],
    ),
    ("ballast.dev/on-endpoint-removed", &["keep", "close"]),
    (
        "ballast.dev/path",
        &["/", "-i /", "/, /a", "-i /A /b", "//", "/a/", "/a%20b"],
    ),
    ("ballast.dev/proxy-protocol", &["off", "v1", "v2"]),
    ("ballast.dev/redirect-https", &["true"]),
    ("ballast.dev/rewrite", &["strip", "keep", "/", "/z"]),
    ("ballast.dev/sharing-key", &["k"]),
    (
        "ballast.dev/source-ranges",
        &["", "10.0.0.1/8,::1/128", "0.0.0.0/0", "::ffff:0:0/96"],
    ),
    ("ballast.dev/sslTerm", &["true", "0"]),
    ("ballast.dev/target-node-selector", &["zone=lb1", "!zone"]),
    ("ballast.dev/timeout-client", &["off", "0", "1ms", "24d"]),
    ("ballast.dev/timeout-connect", &["1", "24d"]),
    ("ballast.dev/timeout-inspect", &["0", "5"]),
    ("ballast.dev/timeout-server", &["off", "1h30m"]),
    (
        "ballast.dev/tls-passthrough",
        &[
            "a.example.com",
            "*.example.com",
            "p.example.com a.example.com",
        ],
    ),
    (
        "ballast.dev/tls-secret",
        &["cert", "shop/cert", "LONG", "none"],
    ),
    ("ballast.dev/udp-timeout", &["1ms", "24d"]),
    ("ballast.dev/x-forwarded-for", &["true", "false"]),
    ("kube-vip.io/ignore", &["false", "true"]),
    ("kube-vip.io/loadbalancerHostname", &["vip.example.com"]),
    ("kube-vip.io/loadbalancerIPs", &["10.77.1.1"]),
    ("lbipam.cilium.io/ips", &["10.77.1.1"]),
    ("lbipam.cilium.io/sharing-key", &["k"]),
    ("loadbalancer.openstack.org/class", &["gold"]),
    ("loadbalancer.openstack.org/connection-limit", &["10"]),
    (
        "loadbalancer.openstack.org/default-tls-container-ref",
        &["cert", "none"],
    ),
    (
        "loadbalancer.openstack.org/enable-health-monitor",
        &["true", "false"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-delay",
        &["1", "300"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-max-retries",
        &["1", "10"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-max-retries-down",
        &["10"],
    ),
    (
        "loadbalancer.openstack.org/health-monitor-timeout",
        &["3", "300"],
    ),
    ("loadbalancer.openstack.org/hostname", &["os.example.com"]),
    ("loadbalancer.openstack.org/keep-floatingip", &["true"]),
    (
        "loadbalancer.openstack.org/lb-method",
        &[
            "ROUND_ROBIN",
            "LEAST_CONNECTIONS",
            "SOURCE_IP",
            "SOURCE_IP_PORT",
        ],
    ),
    (
        "loadbalancer.openstack.org/load-balancer-address",
        &["10.77.1.1"],
    ),
    (
        "loadbalancer.openstack.org/load-balancer-id",
        &["u0", "other"],
    ),
    (
        "loadbalancer.openstack.org/node-selector",
        &["zone=lb1, role"],
    ),
    (
        "loadbalancer.openstack.org/proxy-protocol",
        &["true", "v2", "false"],
    ),
    (
        "loadbalancer.openstack.org/timeout-client-data",
        &["0", "50000"],
    ),
    (
        "loadbalancer.openstack.org/timeout-member-connect",
        &["5000"],
    ),
    (
        "loadbalancer.openstack.org/timeout-member-data",
        &["0", "2073600000"],
    ),
    (
        "loadbalancer.openstack.org/timeout-tcp-inspect",
        &["0", "100"],
    ),
    (
        "loadbalancer.openstack.org/x-forwarded-for",
        &["true", "false"],
    ),
    ("metallb.io/address-pool", &["p"]),
    ("metallb.io/allow-shared-ip", &["k"]),
    ("metallb.io/loadBalancerIPs", &["10.77.1.1"]),
    ("metallb.universe.tf/address-pool", &["p", "q"]),
    ("metallb.universe.tf/allow-shared-ip", &["k", "l"]),
    ("metallb.universe.tf/loadBalancerIPs", &["192.0.2.1"]),
    ("service.antrea.io/allow-shared-load-balancer-ip", &["true"]),
    ("service.antrea.io/external-ip-pool", &["p"]),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-description",
        &["x"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-external",
        &["true"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-id",
        &["u"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-name",
        &["nlb"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-description",
        &["x"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-interval",
        &["10s", "5"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-mode",
        &["tcp", "http", "https"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-port",
        &["30080", "30053", "8080"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-retries",
        &["1", "20"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-timeout",
        &["2s", "60s"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-uri",
        &["/health"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-name",
        &["x"],
    ),
    (
        "service.beta.kubernetes.io/exoscale-loadbalancer-service-strategy",
        &["round-robin", "source-hash", "maglev-hash"],
    ),
    (
        "service.beta.kubernetes.io/load-balancer-source-ranges",
        &["", "10.0.0.0/8, fd00::/8"],
    ),
    (
        "service.beta.kubernetes.io/openstack-internal-load-balancer",
        &["true", "false"],
    ),
    (
        "serviceloadbalancer/lb.aclMatch",
        &["/", "-i /", "-i /q", "/q /r"],
    ),
    (
        "serviceloadbalancer/lb.algorithm",
        &["roundrobin", "leastconn", "first", "source"],
    ),
    ("serviceloadbalancer/lb.cookie-sticky-session", &["true"]),
    (
        "serviceloadbalancer/lb.host",
        &["c.example.com", "c.example.com d.example.com"],
    ),
    ("serviceloadbalancer/lb.sslTerm", &["true", "t"]),
];
