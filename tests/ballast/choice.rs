//! `ballast`: which endpoint clients get, as they see it themselves.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ballast_core::service::Service;
use support::crowd::{Client, is_reset, servers, source};
use support::{Ballast, nobody, server};

/// A table of one service with these fields, whose endpoints have these.
fn table(service: &str, endpoints: &[(SocketAddr, &str)]) -> String {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|(address, fields)| format!("{{address: \"{address}\"{fields}}}"))
        .collect();
    format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}]\nservices: [{{name: s{service}, endpoints: [{}]}}]\n",
        endpoints.join(", ")
    )
}

fn plain(addresses: &[SocketAddr]) -> Vec<(SocketAddr, &'static str)> {
    addresses.iter().map(|address| (*address, "")).collect()
}

fn come(ballast: &Ballast, from: [u8; 4]) -> (Client, SocketAddr) {
    let mut client = Client::from(from, ballast.address()).expect("a connection");
    let heard = client.ask().expect("an answer");
    (client, heard)
}

fn ask(ballast: &Ballast) -> SocketAddr {
    come(ballast, [127, 0, 0, 1]).1
}

fn service(ballast: &Ballast) -> Arc<Service> {
    Arc::clone(&ballast.running.shared().live.plan().services()[0])
}

/// How many of so many clients, one after another, each of these servers got.
fn shares(ballast: &Ballast, servers: &[SocketAddr], clients: usize) -> Vec<usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..clients {
        *counts.entry(ask(ballast)).or_insert(0) += 1;
    }
    servers
        .iter()
        .map(|server| counts.remove(server).unwrap_or(0))
        .collect()
}

fn until_refused(ballast: &Ballast, reason: &str, count: u64) {
    let line = format!(
        "ballast_connections_refused_total{{frontend=\"f\",reason=\"{reason}\"}} {count}\n"
    );
    ballast.until(|ballast| ballast.metrics().contains(&line));
}

#[test]
fn round_robin_takes_turns_by_weight() {
    let servers = servers(4);
    let weights = [", weight: 3", "", ", weight: 2", ", weight: 0"];
    let endpoints: Vec<_> = servers.iter().copied().zip(weights).collect();
    let ballast = Ballast::serve(&table("", &endpoints), 2);
    assert_eq!(shares(&ballast, &servers, 60), [30, 10, 20, 0]);
    // The one with weight 3 never has all of its turns in a row.
    let row: Vec<_> = (0..12).map(|_| ask(&ballast)).collect();
    assert!(
        row.windows(3)
            .all(|three| three.iter().any(|server| *server != servers[0])),
        "{row:?}"
    );
}

#[test]
fn least_connections_fills_by_weight_and_then_the_gaps() {
    let servers = servers(2);
    let ballast = Ballast::serve(
        &table(
            ", algorithm: least-connections",
            &[(servers[0], ""), (servers[1], ", weight: 3")],
        ),
        2,
    );
    let mut held: Vec<_> = (0..40).map(|_| come(&ballast, [127, 0, 0, 1])).collect();
    let of =
        |held: &[(Client, SocketAddr)], server| held.iter().filter(|(_, at)| *at == server).count();
    assert_eq!((of(&held, servers[0]), of(&held, servers[1])), (10, 30));
    held.retain(|(_, at)| *at == servers[1]);
    ballast.until(|ballast| ballast.in_flight() == 30);
    for _ in 0..10 {
        held.push(come(&ballast, [127, 0, 0, 1]));
    }
    assert_eq!((of(&held, servers[0]), of(&held, servers[1])), (10, 30));
}

#[test]
fn random_reaches_everybody() {
    let servers = servers(4);
    let ballast = Ballast::serve(&table(", algorithm: random", &plain(&servers)), 2);
    let shares = shares(&ballast, &servers, 400);
    assert!(
        shares.iter().all(|share| (50..150).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn first_fills_one_after_another() {
    let servers = servers(3);
    let full_at_two = servers
        .iter()
        .map(|server| (*server, ", max-connections: 2"));
    let ballast = Ballast::serve(
        &table(", algorithm: first", &full_at_two.collect::<Vec<_>>()),
        2,
    );
    let mut held: Vec<_> = (0..6).map(|_| come(&ballast, [127, 0, 0, 1])).collect();
    let order: Vec<_> = held.iter().map(|(_, at)| *at).collect();
    let [a, b, c] = servers[..] else {
        unreachable!()
    };
    assert_eq!(order, [a, a, b, b, c, c]);
    drop(held.remove(0));
    ballast.until(|ballast| ballast.in_flight() == 5);
    assert_eq!(ask(&ballast), a);
}

#[test]
fn a_hashed_client_has_its_endpoint_for_good() {
    let servers = servers(5);
    let clients: Vec<_> = (0..60).map(|client| source(client * 7).octets()).collect();
    let places = |ballast: &Ballast| -> Vec<_> {
        clients
            .iter()
            .map(|client| come(ballast, *client).1)
            .collect()
    };
    let text = |servers: &[SocketAddr]| table(", algorithm: source-hash", &plain(servers));
    let ballast = Ballast::serve(&text(&servers), 2);
    let before = places(&ballast);
    assert_eq!(places(&ballast), before, "the same ones again");
    let used: BTreeMap<_, _> = before.iter().map(|server| (server, ())).collect();
    assert_eq!(used.len(), servers.len(), "all have some");
    drop(ballast);

    let turned: Vec<_> = servers.iter().rev().copied().collect();
    let ballast = Ballast::serve(&text(&turned), 1);
    assert_eq!(places(&ballast), before, "another process, another order");
    ballast.swap(&text(&servers[1..]));
    for (now, before) in places(&ballast).into_iter().zip(&before) {
        assert!(
            now == *before || *before == servers[0],
            "{before} moved to {now}"
        );
    }
    ballast.swap(&text(&servers));
    assert_eq!(places(&ballast), before, "back again");
}

#[test]
fn a_hashed_client_goes_elsewhere_while_its_endpoint_is_full_and_returns() {
    let servers = servers(3);
    let one_each: Vec<_> = servers
        .iter()
        .map(|server| (*server, ", max-connections: 1"))
        .collect();
    let ballast = Ballast::serve(&table(", algorithm: source-hash", &one_each), 2);
    let (first, home) = come(&ballast, [127, 0, 0, 1]);
    let (second, next) = come(&ballast, [127, 0, 0, 1]);
    assert_ne!(next, home);
    drop((first, second));
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(ask(&ballast), home);
}

#[test]
fn the_port_counts_where_the_table_says_so() {
    let servers = servers(4);
    let text = table(", algorithm: source-port-hash", &plain(&servers));
    let (one, other) = (Ballast::serve(&text, 2), Ballast::serve(&text, 1));
    let mut spread = BTreeMap::new();
    for _ in 0..40 {
        let (client, place) = come(&one, [127, 0, 0, 7]);
        let from = client.stream.local_addr().unwrap();
        drop(client);
        let mut again = Client::at(from, other.address()).unwrap();
        assert_eq!(again.ask().unwrap(), place, "two processes agree on {from}");
        *spread.entry(place).or_insert(0) += 1;
    }
    assert_eq!(spread.len(), 4, "{spread:?}");
}

#[test]
fn affinity_reaches_endpoints_that_take_nobody_new() {
    let [a, b] = servers(2)[..] else {
        unreachable!()
    };
    let text = |of_a: &str| table(", affinity: {client-ip: 1h}", &[(a, of_a), (b, "")]);
    let ballast = Ballast::serve(&text(""), 2);
    let (old, new): (Vec<_>, Vec<_>) = (0..40)
        .map(|client| source(client).octets())
        .partition(|client| client[3] % 2 == 0);
    let places: Vec<_> = old.iter().map(|client| come(&ballast, *client).1).collect();
    assert!(places.contains(&a) && places.contains(&b), "{places:?}");
    let mut new = new.chunks(6);
    for of_a in [
        ", state: draining",
        ", weight: 0",
        ", state: draining, weight: 0",
    ] {
        ballast.swap(&text(of_a));
        for (client, place) in old.iter().zip(&places) {
            assert_eq!(come(&ballast, *client).1, *place, "{client:?} with a{of_a}");
        }
        for client in new.next().unwrap() {
            assert_eq!(
                come(&ballast, *client).1,
                b,
                "{client:?} is new, with a{of_a}"
            );
        }
    }
    ballast.swap(&text(", state: disabled"));
    for client in &old {
        assert_eq!(come(&ballast, *client).1, b);
    }
    // They have moved for good.
    ballast.swap(&text(""));
    for client in &old {
        assert_eq!(come(&ballast, *client).1, b);
    }
}

#[test]
fn affinity_outlives_a_change_of_everything_else() {
    let servers = servers(4);
    let text = |fields: &str, servers: &[SocketAddr]| {
        table(
            &format!(", affinity: {{client-ip: 1h}}{fields}"),
            &plain(servers),
        )
    };
    let ballast = Ballast::serve(&text("", &servers[..2]), 2);
    let clients: Vec<_> = (0..30).map(|client| source(client).octets()).collect();
    let places: Vec<_> = clients
        .iter()
        .map(|client| come(&ballast, *client).1)
        .collect();
    let turned: Vec<_> = servers.iter().rev().copied().collect();
    for text in [
        text("", &servers),
        text(", algorithm: first", &servers),
        text("", &turned),
    ] {
        ballast.swap(&text);
        for (client, place) in clients.iter().zip(&places) {
            assert_eq!(come(&ballast, *client).1, *place);
        }
    }
}

#[test]
fn states_say_who_may_be_picked() {
    let [a, b] = servers(2)[..] else {
        unreachable!()
    };
    let cases = [
        ("", "", Some([5, 5])),
        ("", ", state: backup", Some([10, 0])),
        ("", ", state: draining", Some([10, 0])),
        (", state: disabled", "", Some([0, 10])),
        (", weight: 0", "", Some([0, 10])),
        (", state: backup", ", state: draining", Some([10, 0])),
        (", state: draining", ", state: disabled", None),
        (", weight: 0", ", weight: 0", None),
        (", state: backup, weight: 0", ", state: draining", None),
    ];
    let ballast = Ballast::serve(&table("", &plain(&[a, b, a][..1])), 2);
    let mut refused = 0;
    for (of_a, of_b, expected) in cases {
        ballast.swap(&table("", &[(a, of_a), (b, of_b)]));
        if let Some(expected) = expected {
            assert_eq!(shares(&ballast, &[a, b], 10), expected, "a{of_a}, b{of_b}");
        } else {
            assert!(
                is_reset([127, 0, 0, 1], ballast.address(), ""),
                "a{of_a}, b{of_b}"
            );
            refused += 1;
            until_refused(&ballast, "no-endpoint", refused);
        }
    }
}

#[test]
fn a_backup_serves_who_could_not_reach_a_ready_one() {
    let backup = servers(1)[0];
    let ballast = Ballast::serve(
        &table("", &[(nobody(), ""), (backup, ", state: backup")]),
        1,
    );
    assert_eq!(shares(&ballast, &[backup], 10), [10]);
}

#[test]
fn failed_checks_are_ignored_when_all_fail_unless_the_table_refuses() {
    let servers = servers(2);
    let ballast = Ballast::serve(&table("", &plain(&servers)), 2);
    let set = |passing: [bool; 2]| {
        for (endpoint, passing) in service(&ballast).endpoints().iter().zip(passing) {
            endpoint
                .live()
                .set_passing(passing, ballast.running.shared().clock.now());
        }
    };
    let panic = |word: u8| {
        ballast
            .metrics()
            .contains(&format!("ballast_service_panic{{service=\"s\"}} {word}\n"))
    };
    set([true, false]);
    assert_eq!(shares(&ballast, &servers, 10), [10, 0]);
    assert!(panic(0));
    set([false, false]);
    assert_eq!(shares(&ballast, &servers, 10), [5, 5]);
    assert!(panic(1));
    ballast.swap(&table(", all-down: refuse", &plain(&servers)));
    assert!(is_reset([127, 0, 0, 1], ballast.address(), ""));
    until_refused(&ballast, "no-endpoint", 1);
    set([false, true]);
    assert_eq!(shares(&ballast, &servers, 10), [0, 10]);
}

#[test]
fn a_further_attempt_loses_no_byte_whoever_speaks_first() {
    let speaks = server(|mut client| {
        client.write_all(b"220 hello\r\n").ok();
        let _heard = client.read(&mut [0; 16]);
    });
    let dead = [nobody(), nobody(), nobody()];
    let first = ", algorithm: first, ejection: off";
    let with = |last| {
        dead.iter()
            .map(|dead| (*dead, ""))
            .chain([(last, "")])
            .collect::<Vec<_>>()
    };
    let ballast = Ballast::serve(&table(first, &with(speaks)), 2);
    for _ in 0..5 {
        let mut greeting = [0; 11];
        ballast.connect().read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"220 hello\r\n");
    }
    ballast.swap(&table(first, &with(support::echo_server())));
    let sent: Vec<u8> = (0..300_000_u32).map(|byte| (byte % 251) as u8).collect();
    let mut client = ballast.connect();
    let mut writer = client.try_clone().unwrap();
    let upload = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&upload).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).unwrap();
    writing.join().unwrap();
    assert!(heard == sent, "{} of {} bytes", heard.len(), sent.len());
}

#[test]
fn a_refusal_costs_no_time() {
    let dead = [nobody(), nobody(), nobody()];
    let alive = servers(1)[0];
    let endpoints = [plain(&dead), plain(&[alive])].concat();
    let ballast = Ballast::serve(&table(", algorithm: first, ejection: off", &endpoints), 2);
    let mut times: Vec<_> = (0..21)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(ask(&ballast), alive);
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!("median {:?}, longest {:?}", times[10], times[20]);
    assert!(times[10] < Duration::from_millis(50), "{times:?}");
    assert_eq!(
        service(&ballast).endpoints()[0]
            .live()
            .all_counters()
            .unwrap()
            .sum(|counters| &counters.dials),
        21
    );
}

#[test]
fn no_more_attempts_are_made_than_the_table_allows() {
    let alive = servers(1)[0];
    for (retries, served) in [(0, false), (1, false), (2, true)] {
        let endpoints = [(nobody(), ""), (nobody(), ""), (alive, "")];
        let text = format!(", algorithm: first, ejection: off, retries: {retries}");
        let ballast = Ballast::serve(&table(&text, &endpoints), 1);
        assert_eq!(
            !is_reset([127, 0, 0, 1], ballast.address(), ""),
            served,
            "{retries}"
        );
        until_refused(&ballast, "failed", u64::from(!served));
    }
}

#[test]
fn an_endpoint_that_refuses_is_left_out_and_comes_back() {
    let alive = servers(1)[0];
    let gone = TcpListener::bind("127.0.0.4:0").unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let rule = ", ejection: {failures: 2, first: 1s, longest: 1s}";
    let ballast = Ballast::serve(&table(rule, &plain(&[address, alive])), 1);
    let dials = || {
        let counters = service(&ballast).endpoints()[0]
            .live()
            .all_counters()
            .map(|counters| counters.sum(|counters| &counters.dials));
        counters.unwrap_or(0)
    };
    let begun = Instant::now();
    while dials() < 2 {
        assert_eq!(ask(&ballast), alive);
    }
    assert_eq!(shares(&ballast, &[alive], 20), [20]);
    if begun.elapsed() < Duration::from_millis(900) {
        assert_eq!(dials(), 2, "it is left out");
    }
    let ejections = "ballast_ejections_total{service=\"s\",reason=\"refused\"} 1\n";
    assert!(ballast.metrics().contains(ejections) || begun.elapsed() > Duration::from_secs(1));
    let back = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for mut client in back.incoming().flatten() {
            let _asked = client.read(&mut [0]);
            writeln!(client, "{address}").ok();
        }
    });
    ballast.until(|ballast| ask(ballast) == address);
    assert_eq!(shares(&ballast, &[address, alive], 20), [10, 10]);
}

#[test]
fn local_addresses_take_turns() {
    let ask_who = server(|mut client| {
        let _asked = client.read(&mut [0]);
        let peer = client.peer_addr().unwrap();
        client.write_all(peer.ip().to_string().as_bytes()).ok();
    });
    let sources = ", source: [\"127.0.0.5\", \"127.0.0.6\", \"127.0.0.7\"]";
    let ballast = Ballast::serve(&table(sources, &[(ask_who, "")]), 1);
    let mut heard = BTreeMap::new();
    for _ in 0..12 {
        *heard
            .entry(support::ask(ballast.address()).unwrap())
            .or_insert(0) += 1;
    }
    let even = ["127.0.0.5", "127.0.0.6", "127.0.0.7"].map(|source| (source.into(), 4));
    assert_eq!(heard, BTreeMap::from(even));
}
