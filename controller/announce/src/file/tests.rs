//! The examples are read, each mistake has its place, reason and remedy, and the schema is the one that is shipped.

use std::collections::BTreeSet;

use ballast_core::table::Problem;
use serde_json::Value;

use super::*;

const MINIMAL: &str = include_str!("../../../../templates/announce-minimal.yaml");
const FULL: &str = include_str!("../../../../templates/announce-full.yaml");
const SHIPPED: &str = include_str!("../../../../templates/announce.schema.json");

fn problems(text: &str) -> Vec<String> {
    match parse(text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(Problem::to_string).collect(),
    }
}

#[test]
fn the_smallest_file_has_the_defaults() {
    let file = parse(MINIMAL.as_bytes()).unwrap();
    let [address] = &file.addresses[..] else {
        panic!("{file:?}");
    };
    assert_eq!(address.interface, Interfaces::Auto);
    assert!(address.ready);
    assert_eq!(file.r#return, Return::Delayed);
    assert_eq!(file.bgp, None);
    assert_eq!(parse(b"version: 1\nnode: a\n").unwrap().addresses, []);
}

#[test]
fn the_full_example_has_every_field() {
    let file = parse(FULL.as_bytes()).unwrap();
    let bgp = file.bgp.unwrap();
    assert_eq!(bgp.peers[0].hold_time, Duration::from_secs(3));
    assert_eq!(bgp.peers[0].bfd.as_ref().unwrap().detect_multiplier, 3);
    assert_eq!(bgp.peers[1].hold_time, Duration::from_secs(90));
    assert_eq!(
        bgp.advertisements[0].communities,
        [
            Community::Standard(64_512, 7),
            Community::Large(64_512, 1, 2)
        ]
    );
    assert!(!format!("{:?}", bgp.peers).contains("secret"));

    fn keys(schema: &Value, keys_of: &mut BTreeSet<String>) {
        for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
            keys_of.insert(key.clone());
            keys(schema, keys_of);
            keys(&schema["items"], keys_of);
        }
    }
    let mut all = BTreeSet::new();
    keys(&serde_json::from_str(&schema()).unwrap(), &mut all);
    assert!(all.len() > 40, "{all:?}");
    let missing: Vec<_> = all
        .iter()
        .filter(|key| !FULL.contains(&format!("{key}:")))
        .collect();
    assert!(missing.is_empty(), "announce-full.yaml lacks {missing:?}");
}

#[test]
fn the_template_is_the_schema() {
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../templates/announce.schema.json"
        );
        std::fs::write(path, schema()).unwrap();
        return;
    }
    assert!(
        SHIPPED == schema(),
        "write it anew: UPDATE=1 cargo test -p ballast-announce the_template_is_the_schema"
    );
}

#[test]
fn the_stand_ins_are_good_values() {
    // Each required field is refused in turn; nothing but that is said.
    for (from, to, expected) in [
        (
            "bind: \"0.0.0.0:7956\"",
            "bind: x",
            "members.bind: \"x\" is not an address with a port; expected IP:PORT, or [IPV6]:PORT",
        ),
        (
            "address: 192.0.2.10",
            "address: x",
            "addresses[0].address: \"x\" is not an address; expected an IPv4 or IPv6 address",
        ),
        (
            "mode: l2",
            "mode: l3",
            "addresses[0].mode: \"l3\" is not known here; did you mean l2? known: l2, bgp",
        ),
        (
            "nodes: [edge1, edge2]",
            "nodes: []",
            "addresses[0].nodes: this list is empty; put something in, or leave the key out",
        ),
        (
            "node: edge1",
            "node: 5",
            "node: 5 is a number; expected letters, digits, '-', '_' and '.', at most 253",
        ),
        (
            "version: 1",
            "version: 2",
            "version: 2 is out of range; expected 1",
        ),
        (
            "key-file: members.key",
            "key_file: members.key",
            "members: key-file is missing; add key-file: such as members.key\nmembers.key_file: is not a known key; did you mean key-file?",
        ),
    ] {
        let text = MINIMAL.replace(from, to);
        assert_ne!(text, MINIMAL);
        assert_eq!(problems(&text).join("\n"), expected);
    }
}

#[test]
fn no_mistake_shows_a_password() {
    let long = "s3cret".repeat(14);
    for (password, why) in [
        (
            "'s3cret\"'",
            "this text is not a password that BIRD can read",
        ),
        (&*long, "this text is not a password that BIRD can read"),
        ("5371234", "this is no text"),
        ("[s3cret]", "this is no text"),
    ] {
        let text = FULL.replace("password: secret", &format!("password: {password}"));
        let said = problems(&text).join("\n");
        let expected = format!(
            "bgp.peers[0].password: {why}; expected 1 to 80 printable ASCII characters without '\"'"
        );
        assert_eq!(said, expected);
    }
}

#[test]
fn a_mistake_of_meaning_has_its_place_reason_and_remedy() {
    for (from, to, expected) in [
        (
            "address: 192.0.2.10",
            "address: 127.0.0.1",
            "addresses[0].address: 127.0.0.1 never leaves its host; expected an address that a host can hold",
        ),
        (
            "bind: \"[::]:7956\"",
            "bind: \"0.0.0.0:7956\"",
            "members.peers[1]: no datagram goes from 0.0.0.0:7956 to [2001:db8::3]:7956; expected an address of the family of members.bind",
        ),
        (
            "address: 192.0.2.11",
            "address: 192.0.2.10",
            "addresses[2].address: 192.0.2.10 stands twice; keep one of them",
        ),
        (
            "nodes: [edge1, edge3]",
            "nodes: [edge1, edge1]",
            "addresses[2].nodes[1]: edge1 stands twice; keep one of them",
        ),
        (
            "mode: bgp, nodes",
            "mode: bgp, interface: eth0, nodes",
            "addresses[3].interface: means nothing with mode: bgp; leave it out: routers are told by a session",
        ),
        (
            "hold-time: 3s",
            "hold-time: 2500ms",
            "bgp.peers[0].hold-time: is no hold time that BGP has; expected whole seconds, 3s to 65535s, or 0s for a session that silence does not end",
        ),
        (
            "keepalive-time: 1s",
            "keepalive-time: 4s",
            "bgp.peers[0].keepalive-time: is longer than hold-time; expected a third of hold-time, or less",
        ),
        (
            "connect-time: 1s",
            "connect-time: 10ms",
            "bgp.peers[0].connect-time: is no time that BIRD has; expected whole seconds, 1s to 65535s",
        ),
        (
            "receive-interval: 100ms",
            "receive-interval: 5ms",
            "bgp.peers[0].bfd.receive-interval: is out of range; expected 10ms to 60s",
        ),
        (
            "name: core",
            "name: tor",
            "bgp.peers[1].name: tor is the name of another peer; give each peer another name\nbgp.advertisements[1].peers[0]: \"core\" is no peer; known: tor",
        ),
        (
            "source-address: 10.0.0.1",
            "source-address: \"2001:db8::1\"",
            "bgp.peers[0].source-address: 2001:db8::1 and 10.0.0.254 are of two families; expected an address of the family of peer-address",
        ),
        (
            "peer-address: 10.0.0.254\n      interface: eth0",
            "peer-address: \"fe80::1\"",
            "bgp.peers[0].peer-address: a link-local address says nothing without an interface; add interface, which leads to it\nbgp.peers[0].source-address: 10.0.0.1 and fe80::1 are of two families; expected an address of the family of peer-address",
        ),
        (
            "multihop: true",
            "multihop: true\n      interface: eth0",
            "bgp.peers[1].interface: a router more than one hop away is not on an interface; leave interface out, or multihop",
        ),
        (
            "- peers: [core]",
            "- local-pref: 100",
            "bgp.advertisements[1].local-pref: says another local-pref than advertisements[0] for the same prefixes and peers; give both the same, or other peers",
        ),
        (
            "64512:7",
            "64512:70000",
            "bgp.advertisements[0].communities[0]: \"64512:70000\" is not a community; expected two numbers up to 65535 such as 64512:7, or large:64512:1:2",
        ),
        (
            "password: secret",
            "password: 'a\"b'",
            "bgp.peers[0].password: this text is not a password that BIRD can read; expected 1 to 80 printable ASCII characters without '\"'",
        ),
        (
            "interface: eth1",
            "interface: [a/b]",
            "addresses[2].interface[0]: \"a/b\" is not the name of an interface; expected auto, or 1 to 15 letters such as eth0 or bond*",
        ),
        (
            "ready: \"http://127.0.0.1:1936/readyz\"",
            "ready: \"https://x/\"",
            "data-plane.ready: \"https://x/\" is not a URL; expected http://IP:PORT/PATH",
        ),
    ] {
        let text = FULL.replace(from, to);
        assert_ne!(text, FULL, "{from}");
        assert_eq!(problems(&text).join("\n"), expected);
    }
}

#[test]
fn a_session_may_have_no_hold_time_and_a_file_not_any_number_of_addresses() {
    assert_eq!(
        problems(&FULL.replace("hold-time: 3s", "hold-time: 0s")),
        Vec::<String>::new()
    );
    let each = (0..10_001).map(|number| {
        let address = std::net::Ipv4Addr::from(0xc633_6400 + number);
        format!("- {{address: {address}, mode: l2, nodes: [a]}}\n")
    });
    let text = format!(
        "version: 1\nnode: a\naddresses:\n{}",
        each.collect::<String>()
    );
    assert_eq!(
        problems(&text),
        ["addresses: 10001 addresses; expected at most 10000: announce a network by bgp"]
    );
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text =
        "version: 1\naddresses:\n- {address: 10.0.0.1, mode: bgp, nodes: [a]}\n- {addres: x}\n";
    assert_eq!(
        problems(text),
        [
            "node is missing; add node: such as edge1",
            "addresses[1]: address is missing; add address: such as 192.0.2.10",
            "addresses[1]: mode is missing; add mode",
            "addresses[1]: nodes is missing; add nodes",
            "addresses[1].addres: is not a known key; did you mean address?",
            "addresses[0].mode: bgp is asked for, and no routers are given; add bgp: with the routers that are told, or write mode: l2",
        ]
    );
}

#[test]
fn what_is_no_file_at_all_is_told_in_one_line() {
    for (text, expected) in [
        (
            "",
            "the file is empty; templates/announce-minimal.yaml is an example",
        ),
        (
            "[1]",
            "this is no map of keys; templates/announce-minimal.yaml is an example",
        ),
        (
            "a: [",
            "line 1, column 4: is not YAML: unclosed bracket '['; expected one whole YAML document, each key once",
        ),
        (
            "version: 1\nversion: 1\n",
            "line 2, column 1: is not YAML: ",
        ),
    ] {
        let found = problems(text);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
    assert_eq!(parse(b"\xff").unwrap_err()[0].why, "byte 0 is not UTF-8");
}

#[test]
fn a_pattern_matches_names_of_interfaces() {
    for (pattern, name, expected) in [
        ("eth0", "eth0", true),
        ("eth0", "eth01", false),
        ("eth*", "eth12", true),
        ("*", "x", true),
        ("*.7", "bond0.7", true),
        ("b*0.*", "bond0.12", true),
        ("b*x*", "bond0", false),
        ("a*a", "a", false),
    ] {
        let read: Pattern = pattern.parse().unwrap();
        assert_eq!(read.matches(name), expected, "{pattern} {name}");
    }
}
