//! `ballast`: who may come in, how many, how fast; and what becomes of the others.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ballast_core::rng::Rng;
use support::crowd::{Client, below, is_reset, serve_as, servers};
use support::{Ballast, free_port, get, table};

#[test]
fn source_ranges_let_in_whom_they_name_and_no_other_family() {
    let _turn = crate::turn();
    let server = servers(1)[0];
    let on_both = |ranges: &str| {
        table(ranges, "", &[server]).replace("[\"127.0.0.1:0\"]", "[\"127.0.0.1:0\", \"[::1]:0\"]")
    };
    // Clients 127.0.0.1, 127.0.0.9 and ::1, and whether they are let in.
    let cases = [
        ("", [true, true, true]),
        (", source-ranges: [\"127.0.0.1/32\"]", [true, false, false]),
        (", source-ranges: [\"127.0.0.8/29\"]", [false, true, false]),
        (", source-ranges: [\"127.0.0.77/8\"]", [true, true, false]),
        (", source-ranges: [\"::1/128\"]", [false, false, true]),
        (", source-ranges: [\"::/0\"]", [false, false, true]),
        (
            ", source-ranges: [\"0.0.0.0/0\", \"::/64\"]",
            [true, true, true],
        ),
        (
            ", source-ranges: [\"::ffff:127.0.0.1/128\"]",
            [true, false, false],
        ),
    ];
    let ballast = Ballast::serve(&on_both(""), 2);
    let mut denied = 0;
    for (ranges, lets_in) in cases {
        if !ranges.is_empty() {
            ballast.swap(&on_both(ranges));
        }
        assert_eq!(ballast.ack().unwrap().refused, None, "{ranges}");
        let listening = ballast.running.shared().status.listening();
        for (source, lets_in) in [[127, 0, 0, 1], [127, 0, 0, 9], [0; 4]].iter().zip(lets_in) {
            let is_v4 = *source != [0; 4];
            let address = listening
                .values()
                .find(|address| address.is_ipv4() == is_v4);
            let reset = is_reset(*source, *address.unwrap(), "");
            assert_eq!(reset, !lets_in, "{source:?} by {ranges}");
            denied += u64::from(reset);
        }
    }
    until_refused(&ballast, "source-range", denied);
}

#[test]
fn a_change_of_the_ranges_leaves_alone_who_is_in() {
    let _turn = crate::turn();
    let server = servers(1)[0];
    let ballast = Ballast::serve(&table("", "", &[server]), 1);
    let mut early = Client::from([127, 0, 0, 1], ballast.address()).unwrap();
    early.ask().unwrap();
    ballast.swap(&table(", source-ranges: [\"192.0.2.0/24\"]", "", &[server]));
    assert!(is_reset([127, 0, 0, 1], ballast.address(), ""));
    assert_eq!(early.ask().unwrap(), server);
}

#[test]
fn behind_a_trusted_proxy_the_ranges_are_those_of_its_clients() {
    let _turn = crate::turn();
    let frontend = ", accept-proxy: {from: [\"127.0.0.2/32\"]}, source-ranges: [\"192.0.2.0/24\", \"127.0.0.3/32\", \"2001:db8::/32\"]";
    let ballast = Ballast::serve(&table(frontend, "", &servers(1)), 1);
    let cases: [([u8; 4], &str, bool); 8] = [
        (
            [127, 0, 0, 2],
            "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\n",
            true,
        ),
        (
            [127, 0, 0, 2],
            "PROXY TCP4 192.0.3.7 198.51.100.1 1 2\r\n",
            false,
        ),
        ([127, 0, 0, 2], "PROXY TCP6 2001:db8::9 ::1 1 2\r\n", true),
        ([127, 0, 0, 2], "PROXY TCP6 2001:db9::9 ::1 1 2\r\n", false),
        (
            [127, 0, 0, 2],
            "PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n",
            true,
        ),
        // Nothing is said of a client, so it is the peer that counts, and its address is in none of the ranges.
        ([127, 0, 0, 2], "PROXY UNKNOWN\r\n", false),
        ([127, 0, 0, 3], "", true),
        ([127, 0, 0, 4], "", false),
    ];
    let mut denied = 0;
    for (source, header, lets_in) in cases {
        let reset = is_reset(source, ballast.address(), header);
        assert_eq!(reset, !lets_in, "{source:?} {header}");
        denied += u64::from(reset);
    }
    until_refused(&ballast, "source-range", denied);
    assert_eq!(proxy_errors(&ballast), (0, 0));
}

#[test]
fn clients_above_the_limit_wait_in_the_backlog() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&table(", max-connections: 2", "", &servers(1)), 2);
    let address = ballast.address();
    let mut inside: Vec<_> = (0..2).map(|_| come(address)).collect();
    let mut waiting: Vec<_> = (0..6)
        .map(|_| {
            let mut client = Client::from([127, 0, 0, 1], address).unwrap();
            client.stream.write_all(b"?").unwrap();
            client
        })
        .collect();
    support::pause(Duration::from_millis(100));
    assert!(waiting.iter().all(Client::still_waits));
    assert_eq!(ballast.in_flight(), 2);
    while !inside.is_empty() {
        inside.pop();
        // One place has become free: exactly one more is served.
        let next = support::found_within(Duration::from_secs(10), || {
            let next = waiting.iter().position(|client| !client.still_waits());
            (next.is_some() || waiting.is_empty()).then_some(next)
        });
        if let Some(next) = next.expect("somebody's turn") {
            let mut client = waiting.remove(next);
            client.answer().unwrap();
            inside.push(client);
        }
        assert!(ballast.in_flight() <= 2);
    }
    no_refusals(&ballast);
}

#[test]
fn clients_above_the_limit_are_rejected_if_the_table_says_so() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(
        &table(", max-connections: 2, on-limit: reject", "", &servers(1)),
        2,
    );
    let address = ballast.address();
    let inside = [come(address), come(address)];
    for _ in 0..5 {
        assert!(is_reset([127, 0, 0, 1], address, ""));
    }
    until_refused(&ballast, "max-connections", 5);
    drop(inside);
    ballast.until(|ballast| ballast.running.shared().connections() == 0);
    come(address);
}

#[test]
fn a_limit_that_is_raised_or_gone_lets_in_who_waits() {
    let _turn = crate::turn();
    let servers = servers(1);
    let ballast = Ballast::serve(&table(", max-connections: 1", "", &servers), 2);
    let address = ballast.address();
    let _inside = come(address);
    let mut second = Client::from([127, 0, 0, 1], address).unwrap();
    let mut third = Client::from([127, 0, 0, 1], address).unwrap();
    for client in [&mut second, &mut third] {
        client.stream.write_all(b"?").unwrap();
    }
    ballast.swap(&table(", max-connections: 2", "", &servers));
    ballast.until(|_| !second.still_waits() || !third.still_waits());
    ballast.swap(&table("", "", &servers));
    second.answer().unwrap();
    third.answer().unwrap();
}

#[test]
fn a_thousand_clients_in_any_order_never_close_a_frontend_for_good() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&table(", max-connections: 2", "", &servers(2)), 2);
    let mut rng = Rng::new(23);
    let mut inside: Vec<Client> = Vec::new();
    for _ in 0..1_000 {
        if inside.len() == 2 || (!inside.is_empty() && rng.below(2) == 0) {
            let gone = below(&mut rng, inside.len());
            inside.swap_remove(gone);
        }
        let mut client = Client::from([127, 0, 0, 1], ballast.address()).unwrap();
        if rng.below(3) > 0 {
            client.ask().unwrap();
            assert!(ballast.in_flight() <= 2);
        }
        inside.push(client);
    }
    inside.clear();
    let begun = Instant::now();
    come(ballast.address());
    println!("the last one was served after {:?}", begun.elapsed());
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn data_planes_that_are_gone_leave_neither_threads_nor_descriptors() {
    let _turn = crate::turn();
    let count = |of: &str| fs::read_dir(of).unwrap().count();
    let (threads, descriptors) = ("/proc/self/task", "/proc/self/fd");
    let table = table("", "", &servers(1));
    let before = count(threads);
    let has_ended = || count(threads) <= before;
    // The first one leaves what the process keeps for all.
    drop(Ballast::serve(&table, 1));
    support::until("its threads have ended", has_ended);
    let kept = count(descriptors);
    let planes = [(); 5].map(|()| Ballast::serve(&table, 1));
    assert!(count(descriptors) > kept + 50, "they have many");
    drop(planes);
    support::until("their threads have ended", has_ended);
    // One for each port that the test was given, which no other test may be given. Those of the tests before may go meanwhile.
    support::until("their descriptors are closed", || {
        count(descriptors) <= kept + 5
    });
}

#[test]
fn a_rate_makes_clients_wait_for_their_second() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(&table(", max-connection-rate: 10", "", &servers(1)), 2);
    let begun = Instant::now();
    let clients: Vec<_> = (0..25).map(|_| come(ballast.address())).collect();
    let took = begun.elapsed();
    // The bucket holds one second's worth; the other fifteen come at a tenth of a second each.
    assert!(
        took > Duration::from_millis(1_400),
        "{took:?} for {}",
        clients.len()
    );
    assert!(took < Duration::from_secs(8), "{took:?}");
    no_refusals(&ballast);
}

#[test]
fn a_rate_rejects_if_the_table_says_so() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(
        &table(
            ", max-connection-rate: 5, on-limit: reject",
            "",
            &servers(1),
        ),
        2,
    );
    let begun = Instant::now();
    let mut turned_away = 0;
    for _ in 0..40 {
        turned_away += u64::from(is_reset([127, 0, 0, 1], ballast.address(), ""));
    }
    let most = 5 + 5 * (begun.elapsed().as_secs() + 1);
    assert!(
        turned_away <= 35 && 40 - turned_away <= most,
        "{turned_away} of 40"
    );
    until_refused(&ballast, "max-connections", turned_away);
    // After a second the bucket is full again.
    support::pause(Duration::from_millis(1_100));
    come(ballast.address());
}

#[test]
fn one_client_has_only_its_own_places() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(
        &table(", max-connections-per-client: 2", "", &servers(1)),
        2,
    );
    let address = ballast.address();
    let mut held = Vec::new();
    for client in 1..=3 {
        let from = || Client::from([127, 0, 0, client], address).unwrap();
        for _ in 0..2 {
            let mut one = from();
            one.ask().unwrap();
            held.push(one);
        }
        assert!(
            is_reset([127, 0, 0, client], address, ""),
            "{client} has two"
        );
    }
    until_refused(&ballast, "max-connections-per-client", 3);
    held.remove(0);
    ballast.until(|ballast| ballast.in_flight() == 5);
    let again = || Client::from([127, 0, 0, 1], address)?.ask();
    ballast.until(|_| again().is_ok());
}

#[test]
fn one_client_has_only_its_own_rate() {
    let _turn = crate::turn();
    let ballast = Ballast::serve(
        &table(", max-connection-rate-per-client: 3", "", &servers(1)),
        2,
    );
    let mut turned_away = 0;
    for client in 1..=3 {
        let begun = Instant::now();
        let mut served = 0;
        for _ in 0..10 {
            served += u64::from(!is_reset([127, 0, 0, client], ballast.address(), ""));
        }
        let most = 3 + 3 * (begun.elapsed().as_secs() + 1);
        assert!((3..=most).contains(&served), "{served} of client {client}");
        turned_away += 10 - served;
    }
    until_refused(&ballast, "max-connection-rate-per-client", turned_away);
}

#[test]
fn the_clients_of_a_trusted_proxy_are_counted_one_by_one() {
    let _turn = crate::turn();
    let frontend = ", accept-proxy: {from: [\"127.0.0.1/32\"]}, max-connections-per-client: 1";
    let ballast = Ballast::serve(&table(frontend, "", &servers(1)), 1);
    let header = |client: &str| format!("PROXY TCP6 {client} 2001:db8::1 1 2\r\n");
    let mut held = Vec::new();
    for client in ["2001:db8:0:1::1", "2001:db8:0:2::1"] {
        let mut one = Client::from([127, 0, 0, 1], ballast.address()).unwrap();
        one.stream.write_all(header(client).as_bytes()).unwrap();
        one.ask().unwrap();
        held.push(one);
    }
    // A client of IPv6 is its /64.
    assert!(is_reset(
        [127, 0, 0, 1],
        ballast.address(),
        &header("2001:db8:0:1::2")
    ));
    until_refused(&ballast, "max-connections-per-client", 1);
}

#[test]
fn the_admin_side_answers_though_the_process_is_full() {
    let _turn = crate::turn();
    let ballast = serve_as(&table("", "", &servers(1)), 2, |settings| {
        settings.max_connections = Some(3);
    });
    let address = ballast.address();
    let mut inside: Vec<_> = (0..3).map(|_| come(address)).collect();
    let mut waiting = Client::from([127, 0, 0, 1], address).unwrap();
    waiting.stream.write_all(b"?").unwrap();
    for _ in 0..10 {
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert!(
                get(ballast.running.admin()[0], path).0.contains("200"),
                "{path}"
            );
        }
    }
    assert!(waiting.still_waits());
    inside.pop();
    waiting.answer().unwrap();
    no_refusals(&ballast);
}

#[test]
fn a_full_process_shares_its_places_among_all_frontends() {
    let _turn = crate::turn();
    let server = servers(1)[0];
    let frontends: Vec<_> = (0..10)
        .map(|name| format!("{{name: f{name}, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s, max-connections: 1}}"))
        .collect();
    let text = format!(
        "version: 1\nfrontends: [{}]\nservices: [{{name: s, endpoints: [{{address: \"{server}\"}}]}}]\n",
        frontends.join(", ")
    );
    let ballast = serve_as(&text, 2, |settings| settings.max_connections = Some(2));
    let addresses = ballast.running.shared().status.listening();
    let threads: Vec<_> = (0..20)
        .map(|_| {
            let addresses: Vec<_> = addresses.values().copied().collect();
            thread::spawn(move || {
                for address in addresses.repeat(5) {
                    assert_eq!(come(address).ask().unwrap(), server);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    ballast.until(|ballast| ballast.running.shared().connections() == 0);
}

/// Frontends of these fields, one port each, before one server.
fn several(frontends: &[(&str, &str)]) -> (String, Vec<SocketAddr>) {
    let server = servers(1)[0];
    let mut ports = Vec::new();
    let frontends: Vec<_> = frontends
        .iter()
        .map(|(name, fields)| {
            let port = free_port();
            ports.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            format!("{{name: {name}, bind: [\"127.0.0.1:{port}\", \"127.0.0.2:{port}\"], protocol: tcp, service: s{fields}}}")
        })
        .collect();
    let text = format!(
        "version: 1\nfrontends: [{}]\nservices: [{{name: s, endpoints: [{{address: \"{server}\"}}]}}]\n",
        frontends.join(", ")
    );
    (text, ports)
}

#[test]
fn a_place_of_the_process_goes_past_who_waits_for_a_full_frontend() {
    let _turn = crate::turn();
    let (text, ports) = several(&[("x", ""), ("a", ", max-connections: 1"), ("b", "")]);
    let ballast = serve_as(&text, 1, |settings| settings.max_connections = Some(2));
    let in_line = |many| {
        ballast.until(|ballast| ballast.running.shared().admit.waiting() == many);
    };
    let mut inside = vec![come(ports[0]), come(ports[0])];
    // The loop of this socket waits for the next one's place already.
    in_line(1);
    let line_up = |to: SocketAddr, many| {
        let mut client = Client::from(Ipv4Addr::LOCALHOST.octets(), to).unwrap();
        client.stream.write_all(b"?").unwrap();
        in_line(many);
        client
    };
    let other_socket = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), ports[1].port()));
    let mut first = line_up(ports[1], 2);
    let mut second = line_up(other_socket, 3);
    let mut third = line_up(ports[2], 4);

    inside.pop();
    first.answer().unwrap();
    // Its frontend is full now, so the next place is not for the second: but it is not lost.
    inside.pop();
    third.answer().unwrap();
    assert!(second.still_waits());
    drop(first);
    second.answer().unwrap();
}

#[test]
fn a_full_process_rejects_where_the_table_says_so() {
    let _turn = crate::turn();
    let (text, ports) = several(&[("x", ""), ("r", ", on-limit: reject")]);
    let ballast = serve_as(&text, 2, |settings| settings.max_connections = Some(2));
    let mut inside = vec![come(ports[0]), come(ports[1])];
    for _ in 0..3 {
        assert!(is_reset([127, 0, 0, 1], ports[1], ""));
    }
    let counted =
        "ballast_connections_refused_total{frontend=\"r\",reason=\"max-connections\"} 3\n";
    ballast.until(|ballast| ballast.metrics().contains(counted));
    let mut waiting = Client::from([127, 0, 0, 1], ports[0]).unwrap();
    waiting.stream.write_all(b"?").unwrap();
    support::pause(Duration::from_millis(100));
    assert!(waiting.still_waits());
    inside.pop();
    waiting.answer().unwrap();
    drop((inside, waiting));
    ballast.until(|ballast| ballast.running.shared().connections() == 0);
    come(ports[1]);
}

#[test]
fn a_port_probe_is_no_error_however_it_ends() {
    let _turn = crate::turn();
    let frontend = ", accept-proxy: {from: [\"127.0.0.0/8\"]}, timeouts: {preamble: 300ms}";
    let ballast = Ballast::serve(&table(frontend, "", &servers(1)), 1);
    let probes = |ballast: &Ballast| {
        let plan = ballast.running.shared().live.plan();
        plan.frontends()[0]
            .state()
            .counters()
            .sum(|counters| &counters.port_probes)
    };
    drop(ballast.connect());
    ballast.until(|ballast| probes(ballast) == 1);
    // A reset is how haproxy and nmap end theirs.
    drop(Client::from([127, 0, 0, 1], ballast.address()).unwrap());
    ballast.until(|ballast| probes(ballast) == 2);
    assert_eq!(proxy_errors(&ballast), (0, 0));

    let mut half = ballast.connect();
    half.write_all(b"PROXY TCP4 ").unwrap();
    drop(half);
    ballast.until(|ballast| proxy_errors(ballast) == (1, 0));
    assert_eq!(probes(&ballast), 2);
}

#[test]
fn a_trusted_peer_that_takes_too_long_is_reset() {
    let _turn = crate::turn();
    let frontend = ", accept-proxy: {from: [\"127.0.0.0/8\"]}, timeouts: {preamble: 300ms}";
    let ballast = Ballast::serve(&table(frontend, "", &servers(1)), 1);
    let begun = Instant::now();
    let mut silent = ballast.connect();
    assert!(silent.read(&mut [0]).is_err(), "a reset");
    assert!(
        begun.elapsed() >= Duration::from_millis(290),
        "{:?}",
        begun.elapsed()
    );
    ballast.until(|ballast| proxy_errors(ballast) == (0, 1));
    // One byte now and then restarts nothing.
    let begun = Instant::now();
    let mut slow = ballast.connect();
    let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n";
    let sent = line
        .iter()
        .take_while(|byte| {
            support::pause(Duration::from_millis(50));
            slow.write_all(&[**byte]).is_ok()
        })
        .count();
    assert!(sent < line.len(), "after {:?}", begun.elapsed());
    ballast.until(|ballast| proxy_errors(ballast) == (0, 2));
    assert_eq!(ballast.in_flight(), 0);
}

/// A client that is served.
fn come(address: SocketAddr) -> Client {
    let mut client = Client::from(Ipv4Addr::LOCALHOST.octets(), address).expect("a connection");
    client.ask().expect("an answer");
    client
}

fn until_refused(ballast: &Ballast, reason: &str, count: u64) {
    let line = format!(
        "ballast_connections_refused_total{{frontend=\"f\",reason=\"{reason}\"}} {count}\n"
    );
    ballast.until(|ballast| ballast.metrics().contains(&line));
    for line in refusals(&ballast.metrics()) {
        assert!(line.contains(reason) || line.ends_with(" 0"), "{line}");
    }
}

fn no_refusals(ballast: &Ballast) {
    for line in refusals(&ballast.metrics()) {
        assert!(line.ends_with(" 0"), "{line}");
    }
}

fn refusals(metrics: &str) -> impl Iterator<Item = &str> {
    metrics
        .lines()
        .filter(|line| line.starts_with("ballast_connections_refused_total"))
}

/// Headers that were bad, and late.
fn proxy_errors(ballast: &Ballast) -> (u64, u64) {
    let plan = ballast.running.shared().live.plan();
    let counters = plan.frontends()[0].state().counters();
    (
        counters.sum(|counters| &counters.bad_headers),
        counters.sum(|counters| &counters.late_headers),
    )
}
