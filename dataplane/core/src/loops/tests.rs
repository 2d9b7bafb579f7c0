//! Endpoints that close a loop: tables written by hand, random tables against a simple search, and a large one.

use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::table::{Format, RoutingTable, State, parse};

/// A table of frontends `NAME PROTOCOL BIND SERVICE` and services `NAME ENDPOINT...`, where `-ADDRESS` is disabled.
fn table(frontends: &[&str], services: &[&str]) -> RoutingTable {
    let mut yaml = String::from("version: 1\nfrontends:\n");
    for frontend in frontends {
        let words: Vec<&str> = frontend.split(' ').collect();
        let [name, protocol, bind, service] = words[..] else {
            panic!("{frontend}");
        };
        let to = match protocol {
            "tcp" | "udp" => format!("service: {service}"),
            "https" => format!(
                "default: {{service: {service}}}, tls: {{certificates: [{{cert: c, key: k}}]}}"
            ),
            _ => format!("default: {{service: {service}}}"),
        };
        writeln!(
            yaml,
            "  - {{name: {name}, protocol: {protocol}, bind: ['{bind}'], {to}}}"
        )
        .unwrap();
    }
    yaml.push_str("services:\n");
    for service in services {
        let (name, endpoints) = service.split_once(' ').unwrap_or((service, ""));
        let endpoints: Vec<String> = endpoints
            .split_whitespace()
            .map(|endpoint| match endpoint.strip_prefix('-') {
                Some(disabled) => format!("{{address: '{disabled}', state: disabled}}"),
                None => format!("{{address: '{endpoint}'}}"),
            })
            .collect();
        writeln!(
            yaml,
            "  - {{name: {name}, endpoints: [{}]}}",
            endpoints.join(", ")
        )
        .unwrap();
    }
    parse(yaml.as_bytes(), Format::Yaml).unwrap_or_else(|problems| panic!("{yaml}{problems}"))
}

fn found(table: &RoutingTable, here: &[&str]) -> Loops {
    let here = here.iter().map(|address| address.parse().unwrap());
    find(
        &table.frontends,
        &table.services,
        &here.collect(),
        |_, endpoint| endpoint.state != State::Disabled,
    )
}

/// The endpoints that close a loop, as `SERVICE ADDRESS`.
fn closing(table: &RoutingTable, loops: &Loops) -> Vec<String> {
    let mut closing = Vec::new();
    for (at, service) in table.services.iter().enumerate() {
        for place in loops.of_service(at) {
            closing.push(format!(
                "{} {}",
                service.name, service.endpoints[*place].address
            ));
        }
    }
    closing
}

fn closing_in(frontends: &[&str], services: &[&str], here: &[&str]) -> Vec<String> {
    let table = table(frontends, services);
    closing(&table, &found(&table, here))
}

#[test]
fn a_service_that_leads_to_its_own_frontend_is_a_loop() {
    for (bind, endpoint, here, is_loop) in [
        ("127.0.0.1:80", "127.0.0.1:80", &[][..], true),
        ("*:80", "127.0.0.1:80", &[], true),
        ("*:80", "127.9.9.9:80", &[], true),
        ("*:80", "[::1]:80", &[], true),
        ("0.0.0.0:80", "127.0.0.1:80", &[], true),
        ("[::]:80", "[::1]:80", &[], true),
        // Another port, family or address.
        ("*:80", "127.0.0.1:81", &[], false),
        ("127.0.0.1:80", "127.0.0.2:80", &[], false),
        ("[::]:80", "127.0.0.1:80", &[], false),
        ("0.0.0.0:80", "[::1]:80", &[], false),
        // An address of the host counts where `*` is bound; one that is bound exactly always does.
        ("*:80", "192.0.2.1:80", &["192.0.2.1"], true),
        ("*:80", "192.0.2.1:80", &["192.0.2.2"], false),
        ("*:80", "[2001:db8::1]:80", &["2001:db8::1"], true),
        ("192.0.2.1:80", "192.0.2.1:80", &[], true),
        ("192.0.2.1:80", "192.0.2.2:80", &["192.0.2.2"], false),
    ] {
        for protocol in ["tcp", "udp", "http", "https", "tls"] {
            let frontend = format!("a {protocol} {bind} x");
            let service = format!("x {endpoint}");
            let closing = closing_in(&[&frontend], &[&service], here);
            assert_eq!(!closing.is_empty(), is_loop, "{frontend} {service}");
        }
    }
}

#[test]
fn the_exact_bind_of_another_frontend_goes_before_a_star() {
    let frontends = ["a tcp *:80 x", "b tcp 127.0.0.1:80 y"];
    let closing = closing_in(&frontends, &["x 127.0.0.1:80", "y 192.0.2.1:1"], &[]);
    assert!(closing.is_empty(), "{closing:?}");
    let closing = closing_in(&frontends, &["x 192.0.2.1:1", "y 127.0.0.1:80"], &[]);
    assert_eq!(closing, ["y 127.0.0.1:80"]);
}

#[test]
fn transports_do_not_mix() {
    let services = ["x 127.0.0.1:53 192.0.2.1:53"];
    for (other, expected) in [("udp", 0), ("tcp", 1)] {
        // The second frontend has the address of the first one's endpoint.
        let frontend = format!("b {other} 127.0.0.1:53 x");
        let closing = closing_in(&["a tcp 127.0.0.2:54 x", &frontend], &services, &[]);
        let udp_loops = usize::from(other == "udp");
        assert_eq!(closing.len(), expected + udp_loops, "{other}");
    }
    // UDP leads from a to b; TCP is used by no frontend.
    let frontends = ["a udp 127.0.0.1:1 x", "b tcp 127.0.0.1:2 y"];
    let closing = closing_in(&frontends, &["x 127.0.0.1:2", "y 127.0.0.1:1"], &[]);
    assert!(closing.is_empty(), "{closing:?}");
}

#[test]
fn a_chain_is_no_loop() {
    let frontends = ["a tcp *:80 x", "b tcp *:81 y", "c tcp *:82 z"];
    let services = ["x 127.0.0.1:81", "y 127.0.0.1:82", "z 192.0.2.1:9"];
    let table = table(&frontends, &services);
    let loops = found(&table, &[]);
    assert_eq!(closing(&table, &loops), [""; 0]);
    let [first, second] = loops.warnings.as_slice() else {
        panic!("{:?}", loops.warnings);
    };
    let begins = "frontend a -> service x -> endpoint 127.0.0.1:81 -> frontend b: this endpoint";
    assert!(first.starts_with(begins), "{first}");
    let begins = "frontend b -> service y -> endpoint 127.0.0.1:82 -> frontend c: this endpoint";
    assert!(second.starts_with(begins), "{second}");
}

#[test]
fn a_loop_over_others_is_named_once_and_what_leads_into_it_is_a_chain() {
    let frontends = [
        "before tcp *:79 w",
        "a tcp *:80 x",
        "b tcp *:81 y",
        "c tcp *:82 z",
    ];
    let services = [
        "w 127.0.0.1:80",
        "x 127.0.0.1:81",
        "y 192.0.2.1:9 127.0.0.1:82",
        "z 127.0.0.1:80",
    ];
    let table = table(&frontends, &services);
    let loops = found(&table, &[]);
    let expected = ["x 127.0.0.1:81", "y 127.0.0.1:82", "z 127.0.0.1:80"];
    assert_eq!(closing(&table, &loops), expected);
    let [around, into] = loops.warnings.as_slice() else {
        panic!("{:?}", loops.warnings);
    };
    let path = "frontend b -> service y -> endpoint 127.0.0.1:82 -> frontend c -> service z -> endpoint 127.0.0.1:80 \
        -> frontend a -> service x -> endpoint 127.0.0.1:81 -> frontend b: a loop; ";
    assert!(around.starts_with(path), "{around}");
    assert!(around.contains("refused with the reason loop; remove them"));
    let path = "frontend before -> service w -> endpoint 127.0.0.1:80 -> frontend a: this";
    assert!(into.starts_with(path), "{into}");
}

#[test]
fn a_disabled_endpoint_leads_nowhere() {
    let frontends = ["a tcp *:80 x", "b tcp *:81 y"];
    let services = ["x 127.0.0.1:81", "y -127.0.0.1:80 192.0.2.1:1"];
    assert_eq!(closing_in(&frontends, &services, &[]), [""; 0]);
    let services = ["x 127.0.0.1:81", "y 127.0.0.1:80 192.0.2.1:1"];
    assert_eq!(closing_in(&frontends, &services, &[]).len(), 2);
}

#[test]
fn a_port_that_the_kernel_chooses_and_a_service_that_nobody_uses_are_no_loop() {
    let closing = closing_in(
        &["a tcp 127.0.0.1:0 x", "b tcp *:80 x"],
        &["x 192.0.2.1:1", "unused 127.0.0.1:80"],
        &[],
    );
    assert_eq!(closing, [""; 0]);
}

#[test]
fn only_so_many_lines_are_made() {
    let frontends: Vec<String> = (0..50)
        .map(|n| format!("f{n} tcp 127.0.0.1:{} s{n}", 1000 + n))
        .collect();
    let services: Vec<String> = (0..50)
        .map(|n| format!("s{n} 127.0.0.1:{}", 1000 + n))
        .collect();
    let frontends: Vec<&str> = frontends.iter().map(String::as_str).collect();
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let loops = found(&table(&frontends, &services), &[]);
    assert_eq!(loops.warnings.len(), 21);
    assert!(loops.warnings[20].starts_with("... and 30 more services"));
}

/// Frontends at ports 1, 2 and so on of any transport, each with a service; endpoints at such ports, or elsewhere.
fn any_table() -> impl Strategy<Value = RoutingTable> {
    let frontends = vec((any::<bool>(), 0..6_usize), 1..8);
    let services = vec(vec((1..10_u16, 0..8_u8), 0..5), 6);
    (frontends, services).prop_map(|(frontends, services)| {
        let frontends: Vec<String> = (frontends.iter().enumerate())
            .map(|(n, (is_udp, service))| {
                let protocol = if *is_udp { "udp" } else { "tcp" };
                format!("f{n} {protocol} *:{} s{service}", n + 1)
            })
            .collect();
        let services: Vec<String> = (services.iter().enumerate())
            .map(|(n, endpoints)| {
                let mut seen = FxHashSet::default();
                let endpoints: String = (endpoints.iter())
                    .filter(|(port, _)| seen.insert(*port))
                    .map(|(port, state)| {
                        let mark = if *state == 0 { "-" } else { "" };
                        format!(" {mark}127.0.0.1:{port}")
                    })
                    .collect();
                format!("s{n}{endpoints}")
            })
            .collect();
        let frontends: Vec<&str> = frontends.iter().map(String::as_str).collect();
        let services: Vec<&str> = services.iter().map(String::as_str).collect();
        table(&frontends, &services)
    })
}

/// Whether a client that is sent to this endpoint by this transport can return to the service, found by trying all paths.
fn comes_back(table: &RoutingTable, service: usize, endpoint: usize, is_udp: bool) -> bool {
    let start = &table.services[service];
    let mut ways = vec![&start.endpoints[endpoint]];
    let mut seen = FxHashSet::default();
    while let Some(endpoint) = ways.pop() {
        let reached = table.frontends.iter().find(|frontend| {
            frontend.protocol.is_udp() == is_udp
                && frontend
                    .bind
                    .iter()
                    .any(|bind| bind.port() == endpoint.address.port())
        });
        let Some(frontend) = reached.filter(|_| endpoint.state != State::Disabled) else {
            continue;
        };
        let next = frontend.service.as_ref().unwrap();
        if *next == start.name {
            return true;
        }
        if seen.insert(next) {
            let next = table.services.iter().find(|one| one.name == *next).unwrap();
            ways.extend(&*next.endpoints);
        }
    }
    false
}

proptest! {
    #[test]
    fn any_tables_loops_are_those_that_a_plain_search_finds(table in any_table()) {
        let loops = found(&table, &[]);
        for (at, service) in table.services.iter().enumerate() {
            let users = |is_udp| table.frontends.iter().any(|frontend| {
                frontend.protocol.is_udp() == is_udp
                    && frontend.service.as_ref() == Some(&service.name)
            });
            let expected: Vec<usize> = (0..service.endpoints.len())
                .filter(|place| [false, true].into_iter().any(|is_udp| {
                    users(is_udp) && comes_back(&table, at, *place, is_udp)
                }))
                .collect();
            prop_assert_eq!(loops.of_service(at), expected);
        }
    }
}

/// A ring of 10,000 frontends, and 100,000 endpoints. A search with quadratic cost would not end within the time of a test, and
/// a recursive one would overflow the stack.
#[test]
fn a_large_ring_is_found() {
    const FRONTENDS: usize = 10_000;
    let port = |n: usize| 10_000 + n % FRONTENDS;
    let mut json = String::from(r#"{"version":1,"frontends":["#);
    for n in 0..FRONTENDS {
        let comma = if n > 0 { "," } else { "" };
        write!(
            json,
            r#"{comma}{{"name":"f{n}","bind":["*:{}"],"protocol":"tcp","service":"s{n}"}}"#,
            port(n)
        )
        .unwrap();
    }
    json.push_str(r#"],"services":["#);
    for n in 0..FRONTENDS {
        let comma = if n > 0 { "," } else { "" };
        write!(json, r#"{comma}{{"name":"s{n}","endpoints":["#).unwrap();
        for other in 1..10 {
            let (high, low) = (n / 256, n % 256);
            write!(json, r#"{{"address":"10.{high}.{low}.{other}:10000"}},"#).unwrap();
        }
        write!(json, r#"{{"address":"127.0.0.1:{}"}}]}}"#, port(n + 1)).unwrap();
    }
    json.push_str("]}");
    let table = parse(json.as_bytes(), Format::Json).unwrap();
    let began = std::time::Instant::now();
    let loops = found(&table, &["192.0.2.1"]);
    println!("found in {:?}", began.elapsed());
    for service in 0..FRONTENDS {
        assert_eq!(loops.of_service(service), [9]);
    }
    assert_eq!(loops.warnings.len(), 1);
}
