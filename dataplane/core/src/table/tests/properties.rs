//! Tables made at random: what is written is read as the same, both ways of reading agree, and no text panics.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::leaf::Leaf;
use super::super::oracle;
use super::super::parse::{read, tree};
use super::super::tree::Node;
use super::super::{
    Affinity, Algorithm, Bind, ClientTimeouts, Endpoint, Entries, Format, Frontend, Health,
    HealthMode, List, OnLimit, OrOff, Payload, Protocol, RoutingTable, SendProxy, Service,
    ServiceTimeouts, State, parse,
};
use super::good;
use super::whole::FULL;

fn leaf<T: Leaf + std::fmt::Debug>(pattern: &'static str) -> impl Strategy<Value = T> {
    pattern.prop_map(|text| T::parse(&text).unwrap_or_else(|wrong| panic!("{text}: {wrong}")))
}

fn word<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    select(all)
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        1..=5000_u64,
        (1..=24_u64).prop_map(|days| days * 86_400_000)
    ]
    .prop_map(Duration::from_millis)
}

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (1..=223_u8, any::<[u8; 3]>(), 1..=u16::MAX)
            .prop_map(|(a, [b, c, d], port)| SocketAddr::from((Ipv4Addr::new(a, b, c, d), port))),
        (any::<u16>(), 1..=u16::MAX).prop_map(|(host, port)| SocketAddr::from((
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host),
            port
        ))),
    ]
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    (
        address(),
        0..=256_u16,
        word(&[
            State::Ready,
            State::Backup,
            State::Draining,
            State::Disabled,
        ]),
        option::of(1..=u32::MAX),
        option::of(leaf("[a-z][a-z0-9.-]{0,20}")),
        option::of(leaf("[a-z0-9-]{1,5}")),
    )
        .prop_map(|(address, weight, state, max, node, zone)| Endpoint {
            address,
            name: None,
            weight,
            state,
            max_connections: max.and_then(std::num::NonZeroU32::new),
            node,
            zone,
        })
}

fn health() -> impl Strategy<Value = Health> {
    let payload = vec(any::<u8>(), 1..20).prop_map(|bytes| {
        let text: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        text.parse::<Payload>().unwrap()
    });
    (
        word(&[
            HealthMode::Off,
            HealthMode::Tcp,
            HealthMode::Http,
            HealthMode::Https,
            HealthMode::Udp,
        ]),
        1..=10_u8,
        1..=20_u8,
        option::of(payload),
        option::of(leaf("[1-5][0-9]{2}(,[1-4]00-5[0-9]9){0,2}")),
    )
        .prop_map(|(mode, rise, fall, send, expect)| {
            let mut health = good("{version: 1, services: [{name: s, health: {mode: tcp}}]}")
                .services
                .remove(0)
                .health
                .unwrap();
            health.mode = mode;
            health.rise = rise;
            health.fall = fall;
            health.send = send;
            health.expect = expect;
            *health
        })
}

fn service() -> impl Strategy<Value = Service> {
    let affinity = prop_oneof![
        duration().prop_map(Affinity::ClientIp),
        leaf("[A-Z]{1,9}").prop_map(Affinity::Cookie)
    ];
    let timeouts = (
        duration(),
        option::of(duration()),
        option::of(option::of(duration())),
    );
    (
        (
            word(&[
                Algorithm::RoundRobin,
                Algorithm::LeastConnections,
                Algorithm::SourceHash,
                Algorithm::SourcePortHash,
                Algorithm::Random,
                Algorithm::First,
            ]),
            option::of(affinity),
            word(&[SendProxy::Off, SendProxy::V1, SendProxy::V2]),
            any::<u16>(),
        ),
        (
            timeouts,
            option::of(duration()),
            option::of(health()),
            option::of(1..9_u32),
        ),
        (
            vec(endpoint(), 0..5),
            vec((leaf("[a-z_][a-z0-9_]{0,9}"), leaf("[^\\pC]{0,20}")), 0..8),
        ),
    )
        .prop_map(
            |(
                (algorithm, affinity, send_proxy, retries),
                (times, slow_start, health, queue),
                (mut endpoints, labels),
            )| {
                let mut service = good("{version: 1, services: [{name: s}]}")
                    .services
                    .remove(0);
                endpoints.sort_by_key(|endpoint| endpoint.address);
                endpoints.dedup_by_key(|endpoint| endpoint.address);
                let (connect, queue_time, server) = times;
                service.algorithm = algorithm;
                service.affinity = affinity;
                service.send_proxy = send_proxy;
                service.retries = retries;
                service.timeouts = ServiceTimeouts {
                    connect,
                    queue: queue_time,
                    server: server.map(|time| time.map_or(OrOff::Off, OrOff::On)),
                    ..ServiceTimeouts::ABSENT
                };
                service.slow_start = slow_start;
                service.health = health.map(Box::new);
                service.max_queue = queue
                    .and_then(std::num::NonZeroU32::new)
                    .map_or(OrOff::Off, OrOff::On);
                service.labels = Entries::new(labels);
                service.endpoints = endpoints;
                service
            },
        )
}

fn frontend() -> impl Strategy<Value = Frontend> {
    let bind = prop_oneof![Just(Bind::Any { port: 0 }), address().prop_map(Bind::Exact)];
    (
        bind,
        word(&[OnLimit::Wait, OnLimit::Reject]),
        option::of(option::of(duration())),
        duration(),
        option::of(leaf("[ -~]{0,30}")),
    )
        .prop_map(|(bind, on_limit, client, preamble, description)| {
            let mut frontend =
                good("{version: 1, frontends: [{name: f, bind: ['*:0'], protocol: http}]}")
                    .frontends
                    .remove(0);
            frontend.bind = List::new(vec![bind]);
            frontend.on_limit = on_limit;
            frontend.description = description;
            frontend.timeouts = ClientTimeouts {
                client: client.map(|time| time.map_or(OrOff::Off, OrOff::On)),
                preamble,
                ..ClientTimeouts::ABSENT
            };
            frontend
        })
}

/// A good table: names are numbered, http frontends lead to what can be read, tcp ones to the first plain service.
fn tables() -> impl Strategy<Value = RoutingTable> {
    (
        option::of(any::<u64>()),
        vec(frontend(), 0..4),
        vec(service(), 1..4),
    )
        .prop_map(|(generation, frontends, services)| {
            let mut table = good("version: 1");
            table.generation = generation;
            table.services = services;
            for (index, service) in table.services.iter_mut().enumerate() {
                service.name = format!("s{index}").parse().unwrap();
            }
            let plain = table
                .services
                .iter()
                .find(|service| !matches!(service.affinity, Some(Affinity::Cookie(_))));
            let plain = plain.map(|service| service.name.clone());
            let mut taken = Vec::new();
            for (index, mut frontend) in frontends.into_iter().enumerate() {
                frontend.name = format!("f{index}").parse().unwrap();
                if let (Some(plain), true) = (&plain, index % 2 == 0) {
                    frontend.protocol = Protocol::Tcp;
                    frontend.service = Some(plain.clone());
                }
                if !taken.contains(&frontend.bind[0]) {
                    taken.extend((frontend.bind[0].port() != 0).then(|| frontend.bind[0]));
                    table.frontends.push(frontend);
                }
            }
            table
        })
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn what_is_written_is_read_as_the_same(table in tables()) {
        let json = serde_json::to_string(&table).unwrap();
        prop_assert_eq!(&parse(json.as_bytes(), Format::Json).map_err(|problems| problems.to_string()), &Ok(table.clone()));
        // JSON is YAML, and this goes through the walk.
        prop_assert_eq!(&parse(json.as_bytes(), Format::Yaml).map_err(|problems| problems.to_string()), &Ok(table.clone()));
        let yaml = in_lines(&table);
        prop_assert_eq!(&parse(yaml.as_bytes(), Format::Yaml).map_err(|problems| problems.to_string()), &Ok(table));
    }

    #[test]
    fn any_part_of_the_full_table_is_written_and_read_as_the_same(cuts in vec(any::<prop::sample::Index>(), 0..40)) {
        let mut tree = tree(FULL.as_bytes(), Format::Yaml).unwrap();
        for cut in cuts {
            let mut places = Vec::new();
            optional(&tree, &mut Vec::new(), &mut places);
            let way: &Vec<usize> = cut.get(&places);
            remove(&mut tree, way);
        }
        let table = read(tree).map_err(|problems| TestCaseError::fail(problems.to_string()))?;
        let json = serde_json::to_string(&table).unwrap();
        prop_assert_eq!(&parse(json.as_bytes(), Format::Json).map_err(|problems| problems.to_string()), &Ok(table.clone()));
        let yaml = in_lines(&table);
        prop_assert_eq!(&parse(yaml.as_bytes(), Format::Yaml).map_err(|problems| problems.to_string()), &Ok(table));
    }

    #[test]
    fn a_changed_text_never_panics_and_both_ways_of_reading_agree(
        table in tables(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..6),
    ) {
        let mut json = serde_json::to_vec(&table).unwrap();
        for (at, byte, kind) in changes {
            let at = at.index(json.len());
            match kind {
                0 => json[at] = byte,
                1 => json.insert(at, byte),
                _ => json.truncate(at + 1),
            }
        }
        agree(&json)?;
    }

    #[test]
    fn a_value_in_the_wrong_place_never_panics_and_both_ways_of_reading_agree(
        table in tables(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        odd in select(vec!["null", "0", "-1", "1.5", "\"off\"", "\"\"", "[]", "{}", "true", "18446744073709551616", "\"1h\""]),
    ) {
        let mut tree = serde_json::to_value(&table).unwrap();
        let mut places = Vec::new();
        collect(&tree, &mut String::new(), &mut places);
        let value = match from.index(places.len() + 1) {
            0 => serde_json::from_str(odd).unwrap(),
            place => tree.pointer(&places[place - 1]).unwrap().clone(),
        };
        *tree.pointer_mut(&places[to.index(places.len())]).unwrap() = value;
        agree(&serde_json::to_vec(&tree).unwrap())?;
    }

    #[test]
    fn a_changed_yaml_never_panics(changes in vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 1..6)) {
        let mut yaml = FULL.as_bytes().to_vec();
        for (at, byte, kind) in changes {
            let at = at.index(yaml.len());
            match kind {
                0 => yaml[at] = byte,
                1 => yaml.insert(at, byte),
                2 => _ = yaml.remove(at),
                _ => yaml.truncate(yaml.len().min(at + 500)),
            }
        }
        oracle::check(&yaml);
    }

    #[test]
    fn any_yaml_is_answered_without_panic(lines in vec("[ -]{0,4}(version|frontends|services|name|bind|health|endpoints|address)?:? ?[&*!|>'\"{}\\[\\]a-z0-9.,:-]{0,12}", 0..12)) {
        let text = lines.join("\n");
        if let Err(problems) = parse(text.as_bytes(), Format::Yaml) {
            prop_assert!(!problems.is_empty());
        }
    }
}

/// What serde takes and what the walk takes is the same, and what is refused has a Problem.
fn agree(json: &[u8]) -> Result<(), TestCaseError> {
    let answer = parse(json, Format::Json);
    if let Err(problems) = &answer {
        prop_assert!(!problems.is_empty());
    }
    if let Ok(tree) = tree(json, Format::Json) {
        let walked = read(tree);
        if serde_json::from_slice::<RoutingTable>(json).is_err() {
            prop_assert!(walked.is_err());
        }
        prop_assert_eq!(walked, answer);
    }
    Ok(())
}

fn collect(tree: &serde_json::Value, at: &mut String, places: &mut Vec<String>) {
    places.push(at.clone());
    let below: Vec<(String, &serde_json::Value)> = match tree {
        serde_json::Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| (index.to_string(), item))
            .collect(),
        serde_json::Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (step, value) in below {
        let before = at.len();
        at.push('/');
        at.push_str(&step);
        collect(value, at, places);
        at.truncate(before);
    }
}

/// The ways to all entries of maps that may be left out.
fn optional(node: &Node, way: &mut Vec<usize>, ways: &mut Vec<Vec<usize>>) {
    match node {
        Node::Map(map) => {
            for (position, (key, value)) in map.iter().enumerate() {
                way.push(position);
                if !NEEDED.contains(&&**key) {
                    ways.push(way.clone());
                }
                optional(value, way, ways);
                way.pop();
            }
        }
        Node::List(items) => {
            for (position, item) in items.iter().enumerate() {
                way.push(position);
                optional(item, way, ways);
                way.pop();
            }
        }
        _ => {}
    }
}

fn remove(node: &mut Node, way: &[usize]) {
    match (node, way) {
        (Node::Map(map), [position]) => {
            let mut entries = std::mem::take(map).into_vec();
            entries.remove(*position);
            *map = entries.into();
        }
        (Node::Map(map), [position, rest @ ..]) => remove(&mut map[*position].1, rest),
        (Node::List(items), [position, rest @ ..]) => remove(&mut items[*position], rest),
        _ => panic!("no such way"),
    }
}

/// A table in YAML's block style.
fn in_lines(table: &RoutingTable) -> String {
    let mut yaml = String::new();
    write_lines(&serde_json::to_value(table).unwrap(), 0, &mut yaml);
    yaml
}

fn write_lines(value: &serde_json::Value, depth: usize, yaml: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        serde_json::Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                yaml.push_str(&format!("\n{indent}\"{key}\":"));
                write_lines(value, depth + 1, yaml);
            }
        }
        serde_json::Value::Array(items) if !items.is_empty() => {
            for item in items {
                yaml.push_str(&format!("\n{indent}-"));
                write_lines(item, depth + 1, yaml);
            }
        }
        other => yaml.push_str(&format!(" {other}")),
    }
}

/// Keys of the full table that cannot be left out alone.
const NEEDED: [&str; 30] = [
    "version",
    "name",
    "bind",
    "protocol",
    "service",
    "services",
    "certificates",
    "cert",
    "from",
    "ca",
    "mode",
    "address",
    "status",
    "redirect",
    "host",
    "path",
    "scheme",
    "client-ip",
    "cookie",
    "passthrough",
    "tls",
    "backends",
    "method",
    "headers",
    "value",
    "prefix",
    "location",
    "present",
    "absent",
    "query",
];
