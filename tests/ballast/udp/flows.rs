//! Flows: how they begin, stay, follow and end.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ballast_core::flow::FlowEnd;
use ballast_core::table::State;

use crate::udp::{client, echo, ended, hear, named, patient, say, send_until_refused, table};
use support::Ballast;

#[test]
fn a_flow_stays_while_swaps_go_on_and_follows_when_its_endpoint_is_replaced() {
    let (a, b, c) = (named("a"), named("b"), named("c"));
    let bind = format!("127.0.0.1:{}", support::free_port());
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
    let bind = format!("127.0.0.1:{}", support::free_port());
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
    send_until_refused(&ballast, &client);
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
fn a_shorter_idle_time_reaches_flows_that_are_there() {
    let server = echo("127.0.0.1:0");
    let bind = format!("127.0.0.1:{}", support::free_port());
    let with = |idle: &str| {
        let timeouts = format!(", timeouts: {{idle: {idle}}}");
        table(&bind, &timeouts, "", &[server])
    };
    let ballast = Ballast::serve(&with("60s"), 2);
    let clients: Vec<UdpSocket> = (0..20).map(|_| client(ballast.address())).collect();
    for client in &clients {
        say(client, "?");
    }
    assert_eq!(ballast.in_flight(), 20);
    ballast.swap(&with("100ms"));
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(ended(&ballast, FlowEnd::Idle), 20);
}

#[test]
fn a_hundred_clients_ask_while_a_hundred_tables_a_second_are_swapped() {
    let servers = [echo("127.0.0.1:0"), echo("127.0.0.1:0")];
    let bind = format!("127.0.0.1:{}", support::free_port());
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
        support::pause(next.saturating_duration_since(Instant::now()));
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
fn the_end_does_not_wait_for_flows_that_are_idle() {
    let server = echo("127.0.0.1:0");
    let ballast = Ballast::serve(&table("127.0.0.1:0", "", "", &[server]), 2);
    let clients: Vec<UdpSocket> = (0..20).map(|_| client(ballast.address())).collect();
    for client in &clients {
        say(client, "?");
    }
    let begun = Instant::now();
    assert_eq!(end(ballast), 0, "an idle flow had to be cut");
    assert!(begun.elapsed() < DRAIN_TIMEOUT, "{:?}", begun.elapsed());
}

#[test]
fn the_end_waits_for_a_flow_that_is_not_idle() {
    let server = echo("127.0.0.1:0");
    let ballast = Ballast::serve(&table("127.0.0.1:0", "", "", &[server]), 1);
    let (idle, busy) = (client(ballast.address()), client(ballast.address()));
    for client in [&idle, &busy] {
        say(client, "?");
    }
    let done = AtomicBool::new(false);
    let begun = Instant::now();
    let cut = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Refused once the process has ended.
                busy.send(b"?").ok();
                support::pause(Duration::from_millis(50));
            }
        });
        let cut = end(ballast);
        done.store(true, Ordering::Relaxed);
        cut
    });
    assert_eq!(cut, 1, "the idle one does not count");
    assert!(begun.elapsed() >= DRAIN_TIMEOUT, "{:?}", begun.elapsed());
}

/// Ends it in order, and says how many had to be cut.
fn end(ballast: Ballast) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(ballast.running.stop())
}

/// What `common` gives each data plane.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

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
    support::until("a connection", || shared.connections() > 0);
    assert_eq!(say(&old, "while it ends"), "while it ends");
    let late = client(address);
    late.set_read_timeout(Some(Duration::from_millis(200)))
        .expect("an option");
    late.send(b"too late").expect("it is sent");
    assert!(late.recv(&mut [0; 8]).is_err());
    assert_eq!(ending.join().expect("an end"), 0, "nothing had to be cut");
}
