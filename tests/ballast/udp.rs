//! `ballast`: datagrams through the whole data plane: here sizes, addresses, limits and what is lost; in the folder flows, headers,
//! networks and local ports.

mod backends;
mod flows;
mod following;
mod headers;
mod networks;
mod ports;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ballast_core::ack::ExceptionState;
use ballast_core::flow::{Dropped, FlowEnd, UdpCounters};
use support::{Ballast, ask, named_server};
use tokio::sync::oneshot;

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
    let port = support::free_port();
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
    let port = support::free_port();
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
fn without_an_endpoint_clients_get_port_unreachable() {
    let bind = format!("127.0.0.1:{}", support::free_port());
    let server = echo("127.0.0.1:0");
    let ballast = Ballast::serve(&table(&bind, "", "", &[server]), 2);
    let client = client(ballast.address());
    say(&client, "?");
    ballast.swap(&table(&bind, "", "", &[]));
    let exceptions = ballast.ack().expect("an ack").exceptions;
    assert_eq!(exceptions[0].state, ExceptionState::Idle);
    client
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("a timeout");
    // A program that another test starts at this moment may have a copy of the socket until it runs.
    support::until("the kernel refuses", || {
        let asked = client
            .send(b"?")
            .and_then(|_| client.recv(&mut [0; 8]))
            .expect_err("nobody answers");
        asked.kind() == std::io::ErrorKind::ConnectionRefused
    });
    patient(&client);
    assert_eq!(ballast.in_flight(), 0);
    ballast.swap(&table(&bind, "", "", &[server]));
    assert_eq!(say(&client, "back"), "back");
}

#[test]
fn limits_hold_for_flows_and_source_ranges_for_each_datagram() {
    let server = echo("127.0.0.1:0");
    let bind = format!("127.0.0.1:{}", support::free_port());
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
    support::free_port()
}

fn answering(bind: &str, answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> SocketAddr {
    answering_to(bind, move |asked, _| answer(asked))
}

/// A server whose answers depend on who asks.
fn answering_to(
    bind: &str,
    answer: impl Fn(&[u8], SocketAddr) -> Vec<u8> + Send + 'static,
) -> SocketAddr {
    let socket = UdpSocket::bind(bind).expect("a socket");
    let address = socket.local_addr().expect("an address");
    thread::spawn(move || {
        let mut asked = vec![0; 65_536];
        // Nothing that befalls one datagram ends a server.
        loop {
            if let Ok((length, peer)) = socket.recv_from(&mut asked) {
                socket.send_to(&answer(&asked[..length], peer), peer).ok();
            }
        }
    });
    address
}

/// Flows that there are go on. Nobody else is listened to, and the statistics say so.
#[test]
fn a_process_that_ends_begins_no_flow_and_says_why() {
    let server = echo("127.0.0.1:0");
    let ballast = Ballast::serve(&table("127.0.0.1:0", "", "", &[server]), 1);
    let (first, late) = (client(ballast.address()), client(ballast.address()));
    assert_eq!(say(&first, "before"), "before");
    let shared = Arc::clone(ballast.running.shared());
    let Ballast { running, .. } = ballast;
    let (over, is_over) = oneshot::channel::<()>();
    let ending = thread::spawn(move || {
        support::run(async {
            let ended = running.drain(std::future::pending());
            tokio::select! {
                _ = ended => {}
                _ = is_over => {}
            }
        });
    });
    let dropped = || {
        let plan = shared.live.plan();
        let counts = plan.frontends()[0].state().udp_counts();
        counts.dropped[Dropped::Ending.index()]
    };
    support::until("no listening socket", || {
        shared.status.listening().is_empty()
    });
    late.send(b"too late").unwrap();
    support::until("a dropped datagram", || dropped() == 1);
    assert_eq!(say(&first, "after"), "after");
    over.send(()).unwrap();
    ending.join().unwrap();
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

/// Sends until an endpoint has refused. The first datagram is lost; whether the kernel's word of it comes before the second is a race
/// that both sides win.
fn send_until_refused(ballast: &Ballast, client: &UdpSocket) {
    client.send(b"lost").expect("it is sent");
    ballast.until(|ballast| {
        refused(ballast) > 0 || {
            client.send(b"again").ok();
            false
        }
    });
}
