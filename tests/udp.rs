//! Datagrams through the whole data plane: flows, fail-over, sizes, addresses, limits, the end.

mod common;
#[path = "common/netns.rs"]
mod netns;
#[path = "common/peers.rs"]
mod peers;

#[path = "udp/following.rs"]
mod following;
#[path = "udp/headers.rs"]
mod headers;
#[path = "udp/networks.rs"]
mod networks;

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ballast_core::ack::ExceptionState;
use ballast_core::flow::{Dropped, FlowEnd, UdpCounters};
use ballast_core::table::State;
use common::{Ballast, ask, named_server};

#[test]
fn datagrams_of_any_size_there_and_back_over_both_families() {
    for (bind, to) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0")] {
        let server = echo(to);
        let ballast = Ballast::serve(&table(bind, "", "", &[server]), 2);
        let client = client(ballast.address());
        for size in [1, 0, 512, 1_472, 4_096, 0, 60_000, 65_507] {
            let payload: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            client.send(&payload).expect("it is sent");
            assert_eq!(hear(&client), payload, "{size} bytes");
        }
    }
}

#[test]
fn tcp_and_udp_on_one_port_are_two_frontends() {
    let port = common::free_port();
    let table = format!(
        "version: 1\nfrontends:\n  - {{name: t, bind: [\"127.0.0.1:{port}\"], protocol: tcp, service: t}}\n  - {{name: u, bind: [\"127.0.0.1:{port}\"], protocol: udp, service: u}}\nservices:\n  - {{name: t, endpoints: [{{address: \"{}\"}}]}}\n  - {{name: u, endpoints: [{{address: \"{}\"}}]}}\n",
        named_server("tcp"),
        named("udp")
    );
    let ballast = Ballast::serve(&table, 2);
    assert_eq!(ballast.ack().expect("an ack").exceptions, []);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    for _ in 0..4 {
        assert_eq!(ask(address).expect("an answer"), "tcp");
        assert_eq!(say(&client(address), "?"), "udp");
    }
}

#[test]
fn answers_leave_from_the_address_that_was_asked_also_on_a_wildcard_bind() {
    let port = common::free_port();
    let server = echo("127.0.0.1:0");
    let _ballast = Ballast::serve(&table(&format!("*:{port}"), "", "", &[server]), 2);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    patient(&socket);
    for host in [1, 2, 77] {
        let asked = SocketAddr::from(([127, 0, 0, host], port));
        socket.send_to(b"from where?", asked).expect("it is sent");
        let mut heard = [0; 64];
        let (length, peer) = socket.recv_from(&mut heard).expect("an answer");
        assert_eq!((&heard[..length], peer), (&b"from where?"[..], asked));
    }
    let six = UdpSocket::bind("[::1]:0").expect("a socket");
    six.connect(("::1", port)).expect("an address");
    patient(&six);
    assert_eq!(say(&six, "six"), "six");
}

#[test]
fn a_flow_stays_while_swaps_go_on_and_follows_when_its_endpoint_is_replaced() {
    let (a, b, c) = (named("a"), named("b"), named("c"));
    let bind = format!("127.0.0.1:{}", common::free_port());
    let with = |endpoints: &[SocketAddr]| table(&bind, "", "", endpoints);
    let ballast = Ballast::serve(&with(&[a, b]), 2);
    let clients: Vec<UdpSocket> = (0..20).map(|_| client(ballast.address())).collect();
    let first: Vec<String> = clients.iter().map(|client| say(client, "?")).collect();
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 2);
    for round in 0..20 {
        ballast.swap(&match round % 3 {
            0 => with(&[b, c, a]),
            1 => with(&[a, b]),
            _ => with(&[c, b, a]),
        });
        for (client, first) in clients.iter().zip(&first) {
            assert_eq!(&say(client, "?"), first, "a healthy flow moved");
        }
    }
    assert_eq!(ended(&ballast, FlowEnd::Endpoint), 0);
    ballast.swap(&with(&[c]));
    for client in &clients {
        assert_eq!(say(client, "?"), "c", "with the first datagram");
    }
    assert_eq!(ended(&ballast, FlowEnd::Endpoint), 20);
    assert_eq!(ballast.in_flight(), 20);
}

#[test]
fn draining_keeps_flows_and_disabled_and_failed_endpoints_lose_them() {
    let (a, b) = (named("a"), named("b"));
    let bind = format!("127.0.0.1:{}", common::free_port());
    let with = |state: &str| {
        format!(
            "version: 1\nfrontends:\n  - {{name: f, bind: [\"{bind}\"], protocol: udp, service: s}}\nservices:\n  - {{name: s, algorithm: first, endpoints: [{{address: \"{a}\", state: {state}}}, {{address: \"{b}\"}}]}}\n"
        )
    };
    let ballast = Ballast::serve(&with("ready"), 1);
    let old = client(ballast.address());
    assert_eq!(say(&old, "?"), "a");
    ballast.swap(&with("draining"));
    assert_eq!(say(&old, "?"), "a");
    assert_eq!(say(&client(ballast.address()), "?"), "b");
    ballast.swap(&with("disabled"));
    assert_eq!(say(&old, "?"), "b");
    ballast.swap(&with("ready"));
    let new = client(ballast.address());
    assert_eq!(
        (say(&old, "?").as_str(), say(&new, "?").as_str()),
        ("b", "a")
    );
    let plan = ballast.running.shared().live.plan();
    let endpoint = &plan.services()[0].endpoints()[0];
    assert_eq!(endpoint.state(), State::Ready);
    endpoint
        .live()
        .set_passing(false, ballast.running.shared().clock.now());
    assert_eq!(say(&new, "?"), "b");
}

#[test]
fn who_is_refused_goes_elsewhere_with_the_next_datagram() {
    let dead = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (dead_address, well) = (dead.local_addr().expect("an address"), named("well"));
    drop(dead);
    let table = table(
        "127.0.0.1:0",
        "",
        ", algorithm: first",
        &[dead_address, well],
    );
    let ballast = Ballast::serve(&table, 1);
    let client = client(ballast.address());
    client.send(b"lost").expect("it is sent");
    // The first is lost; whether the kernel's word of it comes before the second is a race that both sides win.
    ballast.until(|ballast| {
        refused(ballast) > 0 || {
            client.send(b"again").ok();
            false
        }
    });
    assert_eq!(hear(&client), b"well");
    assert!(ended(&ballast, FlowEnd::Refused) >= 1);
}

#[test]
fn the_only_endpoint_may_come_back_and_nothing_had_ended() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = server.local_addr().expect("an address");
    drop(server);
    let ballast = Ballast::serve(&table("127.0.0.1:0", "", "", &[address]), 1);
    let client = client(ballast.address());
    for n in 0..10_u8 {
        client.send(&[n]).expect("it is sent");
    }
    let back = UdpSocket::bind(address).expect("the port is free");
    patient(&back);
    let came = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut heard = [0; 16];
            let (length, peer) = back.recv_from(&mut heard).expect("a datagram");
            came.store(true, Ordering::Relaxed);
            back.send_to(&heard[..length], peer).expect("it is sent");
        });
        ballast.until(|_| {
            client.send(b"there?").ok();
            came.load(Ordering::Relaxed)
        });
    });
    hear(&client);
}

#[test]
fn a_dns_flow_ends_with_its_answer_and_late_answers_return() {
    let server = echo("127.0.0.1:0");
    let ballast = Ballast::serve(
        &table(
            "127.0.0.1:0",
            ", udp: {requests: 1, responses: 1}",
            "",
            &[server],
        ),
        2,
    );
    let client = client(ballast.address());
    for n in 0..50 {
        let question = format!("question {n}");
        assert_eq!(say(&client, &question), question);
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(ended(&ballast, FlowEnd::Requests), 50);

    // Three questions at once: three flows, and every answer finds its way.
    for n in 0..3_u8 {
        client.send(&[n]).expect("it is sent");
    }
    let answers: HashSet<Vec<u8>> = (0..3).map(|_| hear(&client)).collect();
    assert_eq!(answers.len(), 3);
}

#[test]
fn datagrams_are_balanced_one_by_one_where_that_is_asked_for() {
    let servers = [named("a"), named("b"), named("c")];
    let ballast = Ballast::serve(
        &table("127.0.0.1:0", ", udp: {per-datagram: true}", "", &servers),
        1,
    );
    let client = client(ballast.address());
    let answers: Vec<String> = (0..9).map(|_| say(&client, "?")).collect();
    for name in ["a", "b", "c"] {
        let count = answers.iter().filter(|answer| *answer == name).count();
        assert_eq!(count, 3, "{answers:?}");
    }
    assert_eq!(ballast.in_flight(), 3, "one socket an endpoint and client");
}

#[test]
fn an_idle_flow_ends() {
    let server = echo("127.0.0.1:0");
    let ballast = Ballast::serve(
        &table("127.0.0.1:0", ", timeouts: {idle: 100ms}", "", &[server]),
        1,
    );
    let client = client(ballast.address());
    say(&client, "?");
    assert_eq!(ballast.in_flight(), 1);
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(ended(&ballast, FlowEnd::Idle), 1);
    assert_eq!(say(&client, "still here"), "still here");
}

#[test]
fn without_an_endpoint_clients_get_port_unreachable() {
    let bind = format!("127.0.0.1:{}", common::free_port());
    let server = echo("127.0.0.1:0");
    let ballast = Ballast::serve(&table(&bind, "", "", &[server]), 2);
    let client = client(ballast.address());
    say(&client, "?");
    ballast.swap(&table(&bind, "", "", &[]));
    let exceptions = ballast.ack().expect("an ack").exceptions;
    assert_eq!(exceptions[0].state, ExceptionState::Idle);
    let error = client
        .send(b"?")
        .and_then(|_| client.recv(&mut [0; 8]))
        .expect_err("nobody answers");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(ballast.in_flight(), 0);
    ballast.swap(&table(&bind, "", "", &[server]));
    assert_eq!(say(&client, "back"), "back");
}

#[test]
fn limits_hold_for_flows_and_source_ranges_for_each_datagram() {
    let server = echo("127.0.0.1:0");
    let bind = format!("127.0.0.1:{}", common::free_port());
    let with = |frontend: &str| table(&bind, frontend, "", &[server]);
    let ballast = Ballast::serve(&with(", max-connections: 2"), 1);
    let clients: Vec<UdpSocket> = (0..3).map(|_| client(ballast.address())).collect();
    for client in &clients[..2] {
        say(client, "?");
    }
    clients[2].send(b"one too many").expect("it is sent");
    ballast.until(|ballast| dropped(ballast, Dropped::MaxConnections) == 1);
    ballast.swap(&with(", source-ranges: [192.0.2.0/24]"));
    clients[0].send(b"from elsewhere").expect("it is sent");
    ballast.until(|ballast| dropped(ballast, Dropped::SourceRange) == 1);
    ballast.swap(&with(""));
    for client in &clients {
        assert_eq!(say(client, "in"), "in");
    }
}

#[test]
fn bulk_from_one_client_is_glued_and_taken_apart_without_loss_of_edges() {
    let server = echo("127.0.0.1:0");
    let ballast = Ballast::serve(&table("127.0.0.1:0", "", "", &[server]), 1);
    let client = client(ballast.address());
    let payload: Vec<u8> = (0..10 * 1_200 + 7).map(|n| (n % 253) as u8).collect();
    let outgoing = ballast::sys::datagrams::Outgoing {
        bytes: &payload,
        segment: Some(1_200),
        ..Default::default()
    };
    for _ in 0..5 {
        ballast::sys::datagrams::send(&client, &outgoing).expect("it is sent");
        let heard: Vec<Vec<u8>> = (0..11).map(|_| hear(&client)).collect();
        let sizes: Vec<usize> = heard.iter().map(Vec::len).collect();
        assert_eq!(sizes[..10], [1_200; 10]);
        assert_eq!(heard.concat(), payload);
    }
    let (datagrams_in, datagrams_out) = (
        count(&ballast, |udp| udp.datagrams_in.value()),
        count(&ballast, |udp| udp.datagrams_out.value()),
    );
    assert_eq!((datagrams_in, datagrams_out), (55, 55));
}

#[test]
fn a_hundred_clients_ask_while_a_hundred_tables_a_second_are_swapped() {
    let servers = [echo("127.0.0.1:0"), echo("127.0.0.1:0")];
    let bind = format!("127.0.0.1:{}", common::free_port());
    let ballast = Ballast::serve(&table(&bind, "", "", &servers), 2);
    let address = ballast.address();
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                let clients: Vec<UdpSocket> = (0..25).map(|_| client(address)).collect();
                let mut asked = 0;
                while !done.load(Ordering::Relaxed) {
                    for client in &clients {
                        let question = asked.to_string();
                        assert_eq!(say(client, &question), question);
                        asked += 1;
                    }
                }
                asked
            })
        })
        .collect();
    let mut next = Instant::now();
    let until = next + Duration::from_secs(3);
    let mut swaps = 0;
    while Instant::now() < until {
        swaps += 1;
        let labels = format!(", description: \"{swaps}\"");
        let mut order = servers;
        order.rotate_left(swaps % 2);
        ballast.swap(&table(&bind, "", &labels, &order));
        // 100 a second; a busy machine makes as many as it can.
        next += Duration::from_millis(10);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    done.store(true, Ordering::Relaxed);
    let asked: u64 = clients
        .into_iter()
        .map(|client| client.join().expect("it is well"))
        .sum();
    println!("{asked} questions, {swaps} swaps");
    assert_eq!(ended(&ballast, FlowEnd::Endpoint), 0);
    assert_eq!(ballast.in_flight(), 100);
}

#[test]
fn a_burst_of_a_new_client_makes_one_flow() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    patient(&server);
    let address = server.local_addr().expect("an address");
    let ballast = Ballast::serve(&table("127.0.0.1:0", "", "", &[address]), 2);
    let client = client(ballast.address());
    for n in 0..100_u8 {
        client.send(&[n]).expect("it is sent");
    }
    let peers: HashSet<SocketAddr> = (0..100)
        .map(|_| server.recv_from(&mut [0; 8]).expect("a datagram").1)
        .collect();
    assert_eq!(peers.len(), 1);
    assert_eq!(ballast.in_flight(), 1);
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let sink = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = sink.local_addr().expect("an address");
    let ballast = Ballast::serve(&table("127.0.0.1:0", "", "", &[address]), 1);
    let client = client(ballast.address());
    let burst = vec![0; 60 * 1_000];
    let outgoing = ballast::sys::datagrams::Outgoing {
        bytes: &burst,
        segment: Some(1_000),
        ..Default::default()
    };
    // Sending is cheaper than passing on: sooner or later the listening socket is full.
    ballast.until(|ballast| {
        for _ in 0..100 {
            ballast::sys::datagrams::send(&client, &outgoing).ok();
        }
        count(ballast, |udp| udp.kernel_drops.value()) > 0
    });
}

#[test]
fn at_the_end_flows_are_waited_for_and_no_new_ones_begin() {
    let server = echo("127.0.0.1:0");
    // One worker: of several each hears by itself that the end has come, and only one is seen to have heard.
    let ballast = Ballast::serve(
        &table("127.0.0.1:0", ", timeouts: {idle: 1s}", "", &[server]),
        1,
    );
    let address = ballast.address();
    let old = client(address);
    say(&old, "before");
    let shared = Arc::clone(ballast.running.shared());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let ending = thread::spawn(move || runtime.block_on(ballast.running.stop()));
    while shared.connections() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(say(&old, "while it ends"), "while it ends");
    let late = client(address);
    late.set_read_timeout(Some(Duration::from_millis(200)))
        .expect("an option");
    late.send(b"too late").expect("it is sent");
    assert!(late.recv(&mut [0; 8]).is_err());
    assert_eq!(ending.join().expect("an end"), 0, "nothing had to be cut");
}

fn table(bind: &str, frontend: &str, service: &str, endpoints: &[SocketAddr]) -> String {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|address| format!("{{address: \"{address}\"}}"))
        .collect();
    format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"{bind}\"], protocol: udp, service: s{frontend}}}\nservices:\n  - {{name: s{service}, endpoints: [{}]}}\n",
        endpoints.join(", ")
    )
}

/// A server that sends each datagram back.
fn echo(bind: &str) -> SocketAddr {
    answering(bind, |asked| asked.to_vec())
}

/// A server that answers each datagram with its name.
fn named(name: &'static str) -> SocketAddr {
    named_at("127.0.0.1:0", name)
}

fn named_at(bind: &str, name: &'static str) -> SocketAddr {
    answering(bind, move |_| name.as_bytes().to_vec())
}

/// A port that nobody uses now.
fn free_udp_port() -> u16 {
    common::free_port()
}

fn answering(bind: &str, answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind(bind).expect("a socket");
    let address = socket.local_addr().expect("an address");
    thread::spawn(move || {
        let mut asked = vec![0; 65_536];
        // Nothing that befalls one datagram ends a server.
        loop {
            if let Ok((length, peer)) = socket.recv_from(&mut asked) {
                socket.send_to(&answer(&asked[..length]), peer).ok();
            }
        }
    });
    address
}

fn client(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() {
        "127.0.0.1:0"
    } else {
        "[::1]:0"
    };
    let socket = UdpSocket::bind(any).expect("a socket");
    socket.connect(to).expect("an address");
    patient(&socket);
    socket
}

fn patient(socket: &UdpSocket) {
    let wait = Some(Duration::from_secs(10));
    socket.set_read_timeout(wait).expect("an option");
}

fn hear(socket: &UdpSocket) -> Vec<u8> {
    let mut heard = vec![0; 65_536];
    let length = socket.recv(&mut heard).expect("an answer");
    heard.truncate(length);
    heard
}

fn say(socket: &UdpSocket, question: &str) -> String {
    socket.send(question.as_bytes()).expect("it is sent");
    String::from_utf8(hear(socket)).expect("text")
}

fn count(ballast: &Ballast, counter: impl Fn(&UdpCounters) -> u64) -> u64 {
    let plan = ballast.running.shared().live.plan();
    let counters = plan.frontends()[0].state().all_udp_counters();
    counters.map_or(0, |all| all.each().map(&counter).sum())
}

fn ended(ballast: &Ballast, why: FlowEnd) -> u64 {
    count(ballast, |udp| udp.ended[why.index()].value())
}

fn dropped(ballast: &Ballast, why: Dropped) -> u64 {
    count(ballast, |udp| udp.dropped[why.index()].value())
}

/// Flows that moved because they were refused.
fn refused(ballast: &Ballast) -> u64 {
    ended(ballast, FlowEnd::Refused)
}
