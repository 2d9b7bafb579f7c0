//! What one connection may cost: streams count for what they hold, and requests that are given up again and again end it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::SockRef;

use crate::http2::site::{Gate, sessions, table};
use crate::http2::strict::{self, Http1, ok};
use support::Ballast;
use support::crowd::serve_as;
use support::papers::Papers;
use support::peers::{Lateness, forgiven};
use support::raw::{
    self, CANCEL, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Event, HEADERS, Raw, encode, frame,
    request, reset_frame,
};

/// Two frontends: `f` for an endpoint that waits at the gate, `g` for one that answers at once.
fn slow_and_fast(gate: &Gate) -> (String, strict::Endpoint) {
    let gate = gate.clone();
    let slow = strict::Endpoint::answering(move |_| {
        gate.pass();
        ok("slow")
    });
    let fast = strict::Endpoint::answering(|_| ok("fast"));
    let text = format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: http, default: {{service: slow}}}}, {{name: g, bind: [\"127.0.0.2:0\"], protocol: http, default: {{service: fast}}}}]\nservices: [{{name: slow, endpoints: [{{address: \"{}\"}}]}}, {{name: fast, endpoints: [{{address: \"{}\"}}]}}]\n",
        slow.address, fast.address
    );
    (text, slow)
}

/// Where the frontends of [`slow_and_fast`] listen.
fn both(ballast: &Ballast) -> [SocketAddr; 2] {
    let listening = ballast.running.shared().status.listening();
    ["127.0.0.1", "127.0.0.2"].map(|ip| {
        let mut found = listening
            .values()
            .filter(|address| address.ip().to_string() == ip);
        *found.next().expect("a frontend that listens")
    })
}

/// Whether that is an answer to a stream that is one too many.
fn is_refused(response: &raw::Message) -> bool {
    response.status() == 503 || response.reset == Some(raw::REFUSED_STREAM)
}

/// Each stream has a connection to an endpoint of its own here.
#[test]
fn streams_count_for_the_limit_of_the_process_and_leave_room_for_others() {
    const MOST: u32 = 20;
    let gate = Gate::default();
    let (text, slow) = slow_and_fast(&gate);
    let ballast = serve_as(&text, 1, |config| config.max_connections = Some(MOST));
    let [f, g] = both(&ballast);
    let mut client = Raw::to(f);
    let streams = client.ask_for_many();
    // Everything has been begun that will be.
    client.ping([1; 8]);
    ballast.until(|_| slow.connections() > 0);
    for round in 0..10 {
        let lateness = Lateness::watch();
        let begun = Instant::now();
        let mut other = Http1::to(g);
        assert_eq!(other.get("/").text(), "fast");
        let took = begun.elapsed();
        let allowed = Duration::from_secs(1) + forgiven(lateness.end());
        assert!(
            took < allowed,
            "client {round} of another frontend waited for {took:?}"
        );
    }
    let connections = slow.connections();
    gate.open();
    let (mut served, mut refused) = (0, 0);
    for stream in &streams {
        let response = client.message(*stream);
        match response.text().as_str() {
            "slow" => served += 1,
            _ if is_refused(&response) => refused += 1,
            _ => panic!("stream {stream}: {response:?}"),
        }
    }
    println!(
        "{} streams: {served} served, {refused} refused, {connections} connections",
        streams.len()
    );
    assert!(served > 0);
    assert!(
        connections <= MOST as usize,
        "{connections} connections to the endpoint, where {MOST} are allowed"
    );
}

/// [`slow_and_fast`] with room for 20, of which 16 idle clients take a place each. A client of HTTP/2 is connected.
fn crowded(queue: &str) -> (Gate, strict::Endpoint, Ballast, Vec<Http1>, Raw) {
    let gate = Gate::default();
    let (text, slow) = slow_and_fast(&gate);
    let timeouts = format!("name: slow, timeouts: {{queue: {queue}}}");
    let text = text.replace("name: slow", &timeouts);
    let ballast = serve_as(&text, 1, |config| config.max_connections = Some(20));
    let [f, g] = both(&ballast);
    let idle = || {
        let mut client = Http1::to(g);
        assert_eq!(client.get("/").text(), "fast");
        client
    };
    let idle = (0..16).map(|_| idle()).collect();
    (gate, slow, ballast, idle, Raw::to(f))
}

/// Clients of HTTP/1 are served as long as there is room, and wait in the backlog then. So do requests of one connection.
#[test]
fn requests_find_room_beside_many_idle_clients_and_wait_where_there_is_none() {
    let (gate, slow, ballast, mut idle, mut client) = crowded("30s");
    for stream in [1, 3, 5, 7] {
        client.get(stream, "/");
    }
    ballast.until(|_| slow.connections() == 4);
    client.get(9, "/");
    assert!(client.ping([1; 8]));
    ballast.until(|ballast| ballast.running.shared().admit.waiting() == 1);
    assert_eq!(slow.connections(), 4, "the process is full");
    // A quarter of what they leave is for other clients.
    idle.truncate(14);
    ballast.until(|_| slow.connections() == 5);
    gate.open();
    for stream in [1, 3, 5, 7, 9] {
        assert_eq!(client.message(stream).text(), "slow", "{stream}");
    }
}

#[test]
fn a_request_waits_for_room_as_long_as_in_the_queue_of_its_service() {
    let (_gate, slow, ballast, _idle, mut client) = crowded("300ms");
    for stream in [1, 3, 5, 7] {
        client.get(stream, "/");
    }
    ballast.until(|_| slow.connections() == 4);
    client.get(9, "/");
    assert_eq!(client.message(9).status(), 503);
    // One that is given up waits no longer.
    client.get(11, "/");
    client.reset(11, CANCEL);
    assert!(client.ping([1; 8]));
    let waiting = |ballast: &Ballast| ballast.running.shared().admit.waiting();
    ballast.until(|ballast| waiting(ballast) == 0);
    assert_eq!(slow.connections(), 4);
}

/// `http2: {streams, memory}` of a frontend.
#[test]
fn a_frontend_says_how_many_streams_and_how_much_memory_a_client_may_have() {
    let gate = Gate::default();
    let (text, slow) = slow_and_fast(&gate);
    let limits = "default: {service: slow}, http: {http2: {streams: 4, memory: 128KiB}}";
    let text = text.replace("default: {service: slow}", limits);
    let ballast = Ballast::serve(&text, 1);
    let [f, g] = both(&ballast);
    let mut client = Raw::to(f);
    let settings = client.until_settings();
    assert_eq!(settings.max_streams, Some(4));
    assert_eq!(settings.initial_window, 32 << 10, "a share of the memory");
    for stream in [1, 3, 5, 7, 9] {
        client.get(stream, "/");
    }
    assert_eq!(client.message(9).reset, Some(raw::REFUSED_STREAM));
    ballast.until(|_| slow.connections() == 4);
    gate.open();
    for stream in [1, 3, 5, 7] {
        assert_eq!(client.message(stream).text(), "slow", "{stream}");
    }
    // One that has ended makes room for the next one.
    client.get(11, "/");
    assert_eq!(client.message(11).text(), "slow");
    let settings = Raw::to(g).until_settings();
    assert_eq!(settings.max_streams, Some(100), "another frontend");
}

/// Gives up a request in one of the ways that follow each other; `false`: the connection has ended.
fn give_up(client: &mut Raw, stream: u32, way: usize) -> bool {
    client.opens(stream);
    let head = frame(
        HEADERS,
        END_STREAM | END_HEADERS,
        stream,
        &encode(&request("GET", "/hang")),
    );
    match way {
        // In one segment.
        0 => client.send(&[head, reset_frame(stream, CANCEL)].concat()),
        // When the request is on its way.
        _ => {
            client.send(&head);
            if !client.ping([2; 8]) {
                return false;
            }
            client.reset(stream, CANCEL);
        }
    }
    client.ping([3; 8])
}

#[test]
fn a_client_that_gives_up_its_requests_again_and_again_is_told_to_go() {
    for way in [0, 1] {
        let gate = Gate::default();
        let (text, slow) = slow_and_fast(&gate);
        let ballast = Ballast::serve(&text, 1);
        let [f, _] = both(&ballast);
        let mut client = Raw::to(f);
        let begun = Instant::now();
        let mut given_up = 0;
        for stream in (1..2_000).step_by(2) {
            if !give_up(&mut client, stream, way) || client.is_sent_away() {
                break;
            }
            given_up += 1;
        }
        let (took, connections) = (begun.elapsed(), slow.connections());
        println!(
            "way {way}: {given_up} given up in {took:?}, {connections} connections to the endpoint"
        );
        assert!(
            given_up < 1_000,
            "way {way}: all of 1000 were taken in {took:?}"
        );
        assert_eq!(client.until_go_away(), Some(ENHANCE_YOUR_CALM), "way {way}");
        // 200 in 10 s; on a machine that is so slow that these take longer, more.
        let most = 250 + 20 * took.as_secs();
        assert!(
            (190..=most).contains(&given_up),
            "way {way}: {given_up} in {took:?}"
        );
        // A request that is gone before it had a connection leaves that to the next one.
        let most = if way == 0 { 50 } else { given_up + 10 };
        assert!(
            connections as u64 <= most,
            "way {way}: {connections} connections"
        );
        gate.open();
    }
}

/// Who has seen enough of a response gives it up, too.
#[test]
fn a_client_that_gives_up_responses_that_have_begun_is_served_on() {
    let endpoint = strict::Endpoint::scripted(|wire, endpoint, _| {
        if endpoint.hear(wire).is_some() {
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun");
            wire.rest();
        }
    });
    let fast = strict::Endpoint::answering(|_| ok("fast"));
    let services: [(&str, &str, &[_]); 2] = [
        ("s", "", &[endpoint.address]),
        ("fast", "", &[fast.address]),
    ];
    let ballast = Ballast::serve(&table("", &services), 1);
    let mut client = Raw::to(ballast.address());
    for stream in (1..1_001).step_by(2) {
        client.get(stream, "/");
        client.seek(|event| match event {
            Event::Head { stream: of, .. } => (*of == stream).then_some(()),
            _ => None,
        });
        client.reset(stream, CANCEL);
        if stream % 20 == 1 {
            assert!(client.ping([4; 8]), "the connection has ended");
        }
    }
    client.get(1_001, "/fast");
    assert_eq!(client.message(1_001).text(), "fast");
}

/// An endpoint in TLS whose handshakes wait at the gate. Counts connections, and handshakes that are complete.
pub(super) fn late_endpoint(
    papers: &Papers,
    version: &str,
    gate: &Gate,
) -> (SocketAddr, Arc<[AtomicUsize; 2]>) {
    let (chain, key) = papers.pair("shop");
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).expect("a certificate");
    config.alpn_protocols = vec![if version == "h2" {
        b"h2".into()
    } else {
        b"http/1.1".into()
    }];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let counts = Arc::<[AtomicUsize; 2]>::default();
    let (counted, gate, by_http2) = (Arc::clone(&counts), gate.clone(), version == "h2");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (config, counted, gate) = (Arc::clone(&config), Arc::clone(&counted), gate.clone());
            thread::spawn(move || {
                counted[0].fetch_add(1, Ordering::SeqCst);
                gate.pass();
                let tls = ServerConnection::new(config).expect("a server");
                serve_late(StreamOwned::new(tls, client), by_http2, &counted[1])
            });
        }
    });
    (address, counts)
}

fn serve_late(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    by_http2: bool,
    done: &AtomicUsize,
) -> Option<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).ok()?;
    }
    done.fetch_add(1, Ordering::SeqCst);
    if by_http2 {
        let mut raw = Raw::endpoint_over(stream, &[])?;
        while let Some((stream, ..)) = raw.request() {
            raw.respond(stream, 200, b"served");
        }
        return Some(());
    }
    let mut held = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        held.push(byte[0]);
        if held.ends_with(b"\r\n\r\n") {
            held.clear();
            stream.write_all(&ok("served")).ok()?;
            stream.flush().ok()?;
        }
    }
}

/// A client asks, and leaves while the connection to the endpoint is being made.
pub(super) fn leave_early(address: SocketAddr, by_http2: bool, until_accepted: impl Fn()) {
    if by_http2 {
        let mut client = Raw::to(address);
        client.get(1, "/");
        until_accepted();
        client.reset(1, CANCEL);
        assert!(client.ping([5; 8]));
        return;
    }
    let mut client = Http1::to(address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    until_accepted();
    let reset = SockRef::from(&client.stream).set_linger(Some(Duration::ZERO));
    reset.expect("an option");
}

#[test]
fn a_connection_that_was_begun_for_a_request_that_is_gone_serves_the_next_one() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let mut wasted = Vec::new();
    for version in ["h1", "h2"] {
        for by_http2 in [true, false] {
            // Whether the next request comes before the connection is made.
            for waits in [true, false] {
                let context = format!("to {version}, HTTP/2: {by_http2}, waits: {waits}");
                let gate = Gate::default();
                let (endpoint, counts) = late_endpoint(&papers, version, &gate);
                let service = format!(
                    ", tls: {{insecure: true}}, timeouts: {{connect: 30s}}, http: {{version: {version}}}"
                );
                let ballast = Ballast::serve(&table("", &[("s", &service, &[endpoint])]), 1);
                let count = |at: usize| counts[at].load(Ordering::SeqCst);
                leave_early(ballast.address(), by_http2, || {
                    ballast.until(|_| count(0) == 1);
                });
                ballast.until(|ballast| sessions(ballast) == 0);
                if !waits {
                    gate.open();
                    // It may have been given up, and never be complete.
                    support::comes_within(Duration::from_secs(3), || count(1) > 0);
                }
                let mut next = Raw::to(ballast.address());
                next.get(1, "/");
                assert!(next.ping([6; 8]));
                gate.open();
                let response = next.message(1);
                assert_eq!(response.text(), "served", "{context}: {response:?}");
                if count(0) != 1 {
                    wasted.push(format!("{context}: {} connections", count(0)));
                }
            }
        }
    }
    assert!(wasted.is_empty(), "{wasted:#?}");
}

/// It does not read either, so it cannot be told to go.
#[test]
fn a_client_that_neither_ends_a_frame_nor_reads_is_cut_off() {
    let endpoint = strict::Endpoint::answering(|_| ok(vec![b'x'; 32 << 20]));
    let services: [(_, _, &[_]); 1] = [("s", "", &[endpoint.address])];
    let timeouts = ", timeouts: {request: 1s, keep-alive: 1s}";
    let ballast = Ballast::serve(&table(timeouts, &services), 1);
    let widest = (1 << 31) - 1;
    let mut client = Raw::with(ballast.address(), &[(raw::INITIAL_WINDOW, widest)]);
    client.grant(0, widest - 65_535);
    client.get(1, "/");
    client.send(&frame(raw::SETTINGS, 0, 0, &[])[..4]);
    ballast.until(|ballast| sessions(ballast) == 1);
    ballast.until(|ballast| sessions(ballast) == 0);
    drop(client);
}
