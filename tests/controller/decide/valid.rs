//! The data plane accepts the table of any Services with valid annotations, in any combination.

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
use super::words::WORDS;

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
                "tls.crt": include_str!("certificate.pem"), "tls.key": include_str!("key.pem"),
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
        // No Service had to be left out for that.
        let left_out = desired.notices.iter().find(|notice| matches!(notice.reason, Reason::LeftOut | Reason::TooLarge));
        prop_assert!(left_out.is_none(), "{:?}", left_out);
    }
}

#[test]
fn every_key_is_among_the_good_words() {
    let path = "src/decide/annotations/knobs.rs";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    let text = text.expect("the table of knobs");
    let (_, lists) = text.split_once("\nknobs! {").expect("a list of keys");
    let words = lists.split('"').skip(1).step_by(2);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    assert!(words.len() > 90, "only {} keys", words.len());
    let mut missing = Vec::new();
    for word in words {
        let own = format!("ballast.dev/{word}");
        if !WORDS.iter().any(|(key, _)| *key == word || *key == own) {
            missing.push(word.to_owned());
        }
    }
    assert_eq!(missing, [""; 0]);
}

/// One Service: its type, which of the ports it has, its annotations, and other fields.
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
    /// Of which Service it is a canary, the weight and the header.
    canary: Option<(&'static str, Option<&'static str>, Option<&'static str>)>,
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
    let of: &[&str] = &["s0", "s1", "s2", "none"];
    let weights: &[&str] = &["0", "10", "60", "100", "bad"];
    let headers: &[&str] = &["X-Canary=1", "x-canary=1", "X-Canary=2", "Host=a"];
    let canary = (
        select(of),
        prop::option::weighted(0.7, select(weights)),
        prop::option::weighted(0.5, select(headers)),
    );
    let said = (
        select(families),
        select(names),
        any::<bool>(),
        any::<bool>(),
        prop::option::weighted(0.1, select(requested)),
        prop::option::weighted(0.4, canary),
    );
    (
        select(kinds),
        prop::sample::subsequence(vec![0, 1, 2, 3, 4], 1..=5),
        prop::collection::vec((0..WORDS.len(), any::<Index>(), suffix), 0..9),
        said,
        prop::collection::vec(any::<Index>(), 0..4),
    )
        .prop_map(|(kind, ports, annotations, said, endpoints)| {
            let (families, name, sticky, local, requested, canary) = said;
            Parts {
                kind,
                ports,
                annotations,
                families,
                name,
                sticky,
                local,
                requested,
                canary,
                endpoints,
            }
        })
}

fn manifests(index: usize, parts: &Parts) -> Vec<Value> {
    let name = format!("s{index}");
    let mut annotations: BTreeMap<String, String> = parts
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
    if let Some((of, weight, header)) = parts.canary {
        let said = [("of", Some(of)), ("weight", weight), ("header", header)];
        let said = said.iter().filter_map(|(key, value)| {
            Some((
                format!("ballast.dev/canary-{key}"),
                value.as_ref()?.to_string(),
            ))
        });
        annotations.extend(said);
    }
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

/// Arguments.
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

/// Addresses of endpoints, and some that no endpoint can have.
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
