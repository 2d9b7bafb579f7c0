//! How addresses are announced, as objects say it: those of MetalLB's documentation among them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::{Announce, Announcements, NodeHere, Routers};

fn read(manifests: &str) -> Announcements {
    let objects: Vec<Value> = manifests
        .split("---\n")
        .map(|text| serde_saphyr::from_str(text).expect("YAML"))
        .collect();
    Announcements::read(&objects, &BTreeMap::new())
}

fn labels(words: &str) -> BTreeMap<String, String> {
    let pairs = words.split(',').filter_map(|word| word.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The mode of a pool of MetalLB on a node, and the interfaces there.
fn on(all: &Announcements, pool: &str, node: &str) -> String {
    let node = labels(node);
    match all.way(pool, Announce::Advertised) {
        None => "nobody".to_owned(),
        Some(way) if !way.is_for(&node) => "others".to_owned(),
        Some(way) => format!("{} {}", way.mode.word(), way.interfaces(&node).join(",")),
    }
}

const METALLB: &str = "apiVersion: metallb.io/v1beta1\nkind: ";

#[test]
fn without_an_advertisement_one_node_answers_and_with_one_it_decides() {
    assert_eq!(on(&Announcements::default(), "first-pool", ""), "l2 ");
    let all = read(&format!(
        "{METALLB}L2Advertisement\nmetadata: {{name: example, namespace: metallb-system}}\n"
    ));
    assert_eq!(
        on(&all, "any", "zone=a"),
        "l2 ",
        "no spec: every pool and node"
    );
    let all = read(&format!(
        "{METALLB}L2Advertisement\nmetadata: {{name: example}}\nspec: {{ipAddressPools: [first-pool]}}\n"
    ));
    assert_eq!(on(&all, "first-pool", ""), "l2 ");
    assert_eq!(on(&all, "second", ""), "nobody");
    // Ours are not told by MetalLB's.
    let ours = all.way("second", Announce::L2).expect("a way");
    assert!(ours.is_for(&labels("")) && ours.mode == Announce::L2);
    assert!(all.way("first-pool", Announce::Nobody).is_none());
}

#[test]
fn an_l2_advertisement_is_for_pools_nodes_and_interfaces_by_name_and_label() {
    let all = read(&format!(
        "{METALLB}IPAddressPool\nmetadata: {{name: green, labels: {{zone: east}}}}\n---\n\
         {METALLB}L2Advertisement\nmetadata: {{name: one}}\nspec:\n  ipAddressPoolSelectors: [{{matchExpressions: [{{key: zone, operator: In, values: [east]}}]}}]\n  \
         nodeSelectors: [{{matchLabels: {{kubernetes.io/hostname: NodeA}}}}, {{matchLabels: {{kubernetes.io/hostname: NodeB}}}}]\n  interfaces: [eth3]\n---\n\
         {METALLB}L2Advertisement\nmetadata: {{name: two}}\nspec:\n  ipAddressPools: [green, red]\n  nodeSelectors: [{{matchLabels: {{kubernetes.io/hostname: NodeB}}}}]\n  interfaces: [eth4]\n"
    ));
    assert_eq!(all.problems, [""; 0]);
    let on = |pool, node: &str| on(&all, pool, &format!("kubernetes.io/hostname={node}"));
    assert_eq!(on("green", "NodeA"), "l2 eth3");
    assert_eq!(on("green", "NodeB"), "l2 eth3,eth4");
    assert_eq!(on("green", "NodeC"), "others");
    assert_eq!(on("red", "NodeA"), "others");
    assert_eq!(on("blue", "NodeB"), "nobody");
}

/// What the announcer's file says of routers.
fn routers(all: &Announcements, node: &str, pool: &str) -> (Option<Value>, Vec<String>) {
    let node = labels(node);
    let here = NodeHere {
        labels: &node,
        router_id: Some("10.0.0.1".to_owned()),
    };
    let way = all.way(pool, Announce::Advertised).expect("a way");
    let pools = [(way, vec!["198.51.100.7".parse().expect("an address")])];
    let found = all.routers(&here, &pools, |key| Some(format!("of {key}")));
    (found.bgp, found.problems)
}

const PEER: &str = "apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: ";

#[test]
fn an_address_that_no_advertisement_names_is_told_to_nobody() {
    let all = read(&format!(
        "{PEER}{{name: here}}\nspec: {{myASN: 1, peerASN: 2, peerAddress: 10.0.0.4, bfdProfile: fast}}\n---\n\
         {METALLB}BGPAdvertisement\nmetadata: {{name: elsewhere}}\nspec: {{peers: [there]}}\n"
    ));
    let way = all.way("any", Announce::Advertised).expect("a way");
    let here = NodeHere {
        labels: &labels(""),
        router_id: Some("10.0.0.1".to_owned()),
    };
    let address = "198.51.100.7".parse().expect("an address");
    let found = all.routers(&here, &[(way, vec![address])], |_| None);
    assert!(found.told.is_empty());
    let [profile, nobody] = &*found.problems else {
        panic!("{:?}", found.problems)
    };
    assert!(profile.contains("no BFDProfile fast"), "{profile}");
    assert!(
        nobody.starts_with("1 address is told to no router"),
        "{nobody}"
    );
    assert_eq!(found.bgp.expect("a router").get("advertisements"), None);
}

#[test]
fn a_router_that_two_objects_describe_has_one_session() {
    let all = read(&format!(
        "{PEER}{{name: one}}\nspec: {{myASN: 1, peerASN: 2, peerAddress: 10.0.0.4}}\n---\n\
         {PEER}{{name: two}}\nspec: {{myASN: 1, peerASN: 2, peerAddress: 10.0.0.4, holdTime: 30s}}\n---\n\
         {METALLB}BGPAdvertisement\nmetadata: {{name: of-two}}\nspec: {{peers: [two], localPref: 7}}\n---\n\
         {METALLB}BGPAdvertisement\nmetadata: {{name: against-it}}\nspec: {{peers: [one], localPref: 8}}\n"
    ));
    let (bgp, problems) = routers(&all, "", "any");
    let bgp = bgp.expect("a router");
    assert_eq!(bgp["peers"].as_array().map(Vec::len), Some(1), "{bgp}");
    let told = json!([{"addresses": ["198.51.100.7"], "local-pref": 7, "peers": ["one"]}]);
    assert_eq!(
        bgp["advertisements"], told,
        "what contradicts is left out alone"
    );
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("router two: is described otherwise as"));
}

#[test]
fn advertisements_that_are_not_followed_or_not_read_are_there_all_the_same() {
    let all = read(&format!(
        "{METALLB}BGPAdvertisement\nmetadata: {{name: some}}\nspec: {{serviceSelectors: [{{matchLabels: {{a: b}}}}]}}\n"
    ));
    assert_eq!(on(&all, "any", ""), "nobody");
    let denied = BTreeMap::from([("BGPAdvertisement", 403)]);
    let all = Announcements::read(&[], &denied);
    assert_eq!(on(&all, "any", ""), "nobody");
    assert_eq!(all.problems.len(), 1);
    let all = read(&format!(
        "{METALLB}L2Advertisement\nmetadata: {{name: typo}}\nspec: {{interfaces: [no/interface]}}\n"
    ));
    assert_eq!(on(&all, "any", ""), "l2 ~none");
    assert_eq!(all.problems.len(), 1);
}

/// MetalLB's documentation, "Advanced BGP configuration".
#[test]
fn routers_and_what_they_are_told_are_read_as_metallb_means_them() {
    let all = read(&format!(
        "{METALLB}Community\nmetadata: {{name: communities}}\nspec: {{communities: [{{name: vpn-only, value: '1234:1'}}, {{name: NO_ADVERTISE, value: '65535:65282'}}]}}\n---\n\
         {METALLB}BFDProfile\nmetadata: {{name: testbfdprofile}}\nspec: {{receiveInterval: 380, transmitInterval: 270, detectMultiplier: 4, passiveMode: true}}\n---\n\
         apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {{name: sample, namespace: metallb-system}}\nspec: {{myASN: 64512, peerASN: 64513, peerAddress: 172.30.0.3, peerPort: 180, sourceAddress: 10.0.0.1, \
         holdTime: 1m30s, keepaliveTime: 20s, connectTime: 5s, routerID: 10.10.10.10, ebgpMultiHop: true, vrf: red, enableGracefulRestart: true, bfdProfile: testbfdprofile, \
         passwordSecret: {{name: bgp}}, nodeSelectors: [{{matchLabels: {{rack: frontend}}}}]}}\n---\n\
         apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {{name: other}}\nspec: {{myASN: 64600, peerASN: 64601, peerAddress: 172.30.0.4, password: secret}}\n---\n\
         {METALLB}BGPAdvertisement\nmetadata: {{name: local}}\nspec: {{ipAddressPools: [bgp-pool], aggregationLength: 32, localPref: 100, communities: [vpn-only, 'large:1:2:3'], peers: [sample]}}\n---\n\
         {METALLB}BGPAdvertisement\nmetadata: {{name: external}}\nspec: {{ipAddressPools: [bgp-pool], aggregationLength: 24}}\n"
    ));
    assert_eq!(all.problems, [""; 0]);
    let (bgp, problems) = routers(&all, "rack=frontend", "bgp-pool");
    assert_eq!(problems, [""; 0]);
    let sample = json!({
        "name": "sample", "peer-asn": 64513, "peer-address": "172.30.0.3", "peer-port": 180, "source-address": "10.0.0.1",
        "hold-time": "90s", "keepalive-time": "20s", "connect-time": "5s", "router-id": "10.10.10.10", "multihop": true, "vrf": "red",
        "graceful-restart": true, "password": "of metallb-system/bgp",
        "bfd": {"receive-interval": "380ms", "transmit-interval": "270ms", "detect-multiplier": 4, "passive-mode": true},
    });
    let other = json!({"name": "other", "peer-asn": 64601, "peer-address": "172.30.0.4", "local-asn": 64600, "password": "secret"});
    let expected = json!({
        "router-id": "10.0.0.1", "my-asn": 64512, "peers": [sample, other],
        "advertisements": [
            {"addresses": ["198.51.100.7"], "aggregation-length": 32, "local-pref": 100, "communities": ["1234:1", "large:1:2:3"], "peers": ["sample"]},
            {"addresses": ["198.51.100.7"], "aggregation-length": 24, "peers": ["sample", "other"]},
        ],
    });
    assert_eq!(bgp.expect("routers"), expected);
    // On another node one router is left, whose number of the own system counts.
    let (bgp, _) = routers(&all, "", "bgp-pool");
    let bgp = bgp.expect("routers");
    assert_eq!(
        (&bgp["my-asn"], &bgp["peers"][0]["name"]),
        (&json!(64600), &json!("other"))
    );
    assert_eq!(bgp["advertisements"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        all.secrets().map(ToString::to_string).collect::<Vec<_>>(),
        ["metallb-system/bgp"]
    );
}

#[test]
fn what_is_not_followed_is_told_by_name_and_a_bad_router_takes_no_other_away() {
    let all = read(&format!(
        "{METALLB}L2Advertisement\nmetadata: {{name: some}}\nspec: {{serviceSelectors: [{{matchLabels: {{a: b}}}}]}}\n---\n\
         {METALLB}L2Advertisement\nmetadata: {{name: rank}}\nspec: {{ipAddressPools: [x], preferredNodeSelectors: [{{weight: 1}}]}}\n---\n\
         {METALLB}BFDProfile\nmetadata: {{name: echo}}\nspec: {{echoMode: true, minimumTtl: 5}}\n---\n\
         apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {{name: unnumbered}}\nspec: {{myASN: 1, peerASN: 2, interface: eth0}}\n---\n\
         apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {{name: dynamic}}\nspec: {{myASN: 1, dynamicASN: external, peerAddress: 10.0.0.2}}\n---\n\
         apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {{name: short}}\nspec: {{myASN: 1, peerASN: 2, peerAddress: 10.0.0.3, holdTime: 1s}}\n---\n\
         apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {{name: good}}\nspec: {{myASN: 1, peerASN: 2, peerAddress: 10.0.0.4}}\n---\n\
         {METALLB}BGPAdvertisement\nmetadata: {{name: bad}}\nspec: {{communities: ['no-such']}}\n---\n\
         {METALLB}BGPAdvertisement\nmetadata: {{name: plain}}\n"
    ));
    let places = all.problems.iter().map(|problem| {
        let mut words = problem.split(": ");
        format!(
            "{} {}",
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default()
        )
    });
    let expected = [
        "L2Advertisement some spec.serviceSelectors",
        "L2Advertisement rank spec.preferredNodeSelectors",
        "BFDProfile echo spec.echoMode",
        "BFDProfile echo spec.minimumTtl",
        "BGPPeer unnumbered spec.peerAddress",
        "BGPPeer dynamic spec.dynamicASN",
    ];
    assert_eq!(places.collect::<Vec<_>>(), expected);
    assert_eq!(on(&all, "y", ""), "bgp ");
    let (bgp, problems) = routers(&all, "", "y");
    let bgp = bgp.expect("routers");
    assert_eq!(bgp["peers"].as_array().map(Vec::len), Some(1), "{bgp}");
    assert_eq!(
        bgp["advertisements"],
        json!([{"addresses": ["198.51.100.7"], "peers": ["good"]}])
    );
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("router short: bgp.peers[0].hold-time"),
        "{problems:?}"
    );
    assert!(problems[1].contains("communities[0]"), "{problems:?}");
}

#[test]
fn an_announcement_says_all_of_it_in_one_object() {
    let all = read(
        "apiVersion: ballast.dev/v1\nkind: AddressPool\nmetadata: {name: edge, labels: {zone: a}}\n---\n\
         apiVersion: ballast.dev/v1\nkind: Announcement\nmetadata: {name: rack}\nspec:\n  poolSelector: {matchLabels: {zone: a}}\n  nodeSelector: {matchLabels: {rack: one}}\n  \
         l2: {interfaces: ['bond*']}\n  bgp:\n    myASN: 64512\n    routerID: 10.0.0.9\n    peers:\n    - {name: tor, peerASN: 64513, peerAddress: 10.0.0.254, bfd: {receiveInterval: 100}}\n    \
         - {name: far, peerASN: 64514, peerAddress: 10.1.0.254, nodeSelector: {matchLabels: {far: 'yes'}}}\n    advertisements: [{communities: ['64512:7'], peers: [tor]}]\n",
    );
    assert_eq!(all.problems, [""; 0]);
    let one = labels("rack=one");
    let l2 = all.way("edge", Announce::L2).expect("a way");
    assert_eq!((l2.is_for(&one), l2.is_for(&labels(""))), (true, false));
    assert_eq!(l2.interfaces(&one), ["bond*"]);
    // A pool that it is not about has the default.
    assert!(
        all.way("other", Announce::L2)
            .expect("a way")
            .is_for(&labels(""))
    );
    let here = NodeHere {
        labels: &one,
        router_id: None,
    };
    let way = all.way("edge", Announce::Bgp).expect("a way");
    let pools = [(way, vec!["192.0.2.1".parse().expect("an address")])];
    let Routers { bgp, problems, .. } = all.routers(&here, &pools, |_| None);
    assert_eq!(problems, [""; 0]);
    let peer = json!({"name": "rack.tor", "peer-asn": 64513, "peer-address": "10.0.0.254", "router-id": "10.0.0.9", "bfd": {"receive-interval": "100ms"}});
    let expected = json!({
        "router-id": "10.0.0.9", "my-asn": 64512, "peers": [peer],
        "advertisements": [{"addresses": ["192.0.2.1"], "communities": ["64512:7"], "peers": ["rack.tor"]}],
    });
    assert_eq!(bgp.expect("routers"), expected);
}
