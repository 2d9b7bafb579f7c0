//! The end of the process, for clients that have not asked yet, that have just asked, and that ask no more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::http2::site::{sessions, table};
use crate::http2::strict::{Endpoint, Http1, ok};
use support::Ballast;
use support::crowd::serve_as;
use support::papers::Papers;
use support::raw::{Event, Raw};

/// Long enough to tell an end in order from one by the drain timeout.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// When who waits for nothing has long ended, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn serve(table: &str) -> Ballast {
    serve_as(table, 1, |config| config.drain_timeout = DRAIN_TIMEOUT)
}

/// Begins to end it, and returns once it accepts no more. The result is how many connections had to be cut.
fn begin_to_end(ballast: Ballast) -> JoinHandle<usize> {
    let address = ballast.address();
    let ending = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(ballast.running.stop())
    });
    support::until_within(SOON, "it accepts nobody", || {
        TcpStream::connect(address).is_err()
    });
    ending
}

fn assert_ends_in_order(ending: JoinHandle<usize>, begun: Instant, context: &str) {
    assert_eq!(
        ending.join().expect("no panic"),
        0,
        "{context}: some were cut"
    );
    let took = begun.elapsed();
    assert!(took < SOON, "{context}: it took {took:?}");
}

/// A client's end of a connection, in TLS or in the clear.
trait Duplex: Read + Write {}

impl<S: Read + Write> Duplex for S {}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(SOON)).expect("an option");
    socket
}

/// A session, whose handshake is complete; nothing was said in it.
fn tls(
    address: SocketAddr,
    papers: &Papers,
    protocol: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    let config = ClientConfig::builder().with_root_certificates(papers.roots());
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    let name = ServerName::try_from("shop.test").expect("a name");
    let mut session = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut socket = connect(address);
    while session.is_handshaking() {
        session.complete_io(&mut socket).expect("a handshake");
    }
    StreamOwned::new(session, socket)
}

fn https(papers: &Papers, endpoint: SocketAddr) -> String {
    let entry = papers.entry("shop");
    let protocol = format!("protocol: https, tls: {{certificates: [{entry}]}}");
    table("", &[("s", "", &[endpoint])]).replace("protocol: http", &protocol)
}

/// Sends a request of HTTP/1 and reads until the end of the connection; what is wrong with the answer.
fn ask_by_http1(mut client: impl Duplex) -> Result<(), String> {
    // What became of a request is told by what is read.
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
        .ok();
    client.flush().ok();
    let mut heard = String::new();
    client.read_to_string(&mut heard).ok();
    let is_answer = heard.starts_with("HTTP/1.1 200 OK\r\n")
        && heard.to_lowercase().contains("connection: close\r\n")
        && heard.ends_with("\r\n\r\nserved");
    if is_answer {
        Ok(())
    } else {
        Err(format!("not a last answer: {heard:?}"))
    }
}

/// The same by HTTP/2.
fn ask_by_http2(client: impl Duplex) -> Result<(), String> {
    let mut raw = Raw::client_over(client, &[]);
    raw.get(1, "/");
    let response = raw.message(1);
    if response.status() != 200 || response.text() != "served" {
        return Err(format!("no answer: {response:?}"));
    }
    let rest = raw.rest();
    let away = |event: &Event| matches!(event, Event::GoAway { code: 0, .. });
    if rest.iter().any(away) {
        Ok(())
    } else {
        Err(format!("no GOAWAY: {rest:?}"))
    }
}

/// It could not know, and no answer would be an error for it.
#[test]
fn a_client_that_has_not_asked_yet_is_answered_within_the_drain() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let endpoint = Endpoint::answering(|_| ok("served"));
    let plain = table("", &[("s", "", &[endpoint.address])]);
    let secure = https(&papers, endpoint.address);
    let mut failures = Vec::new();
    for (by_tls, by_http2) in [(false, false), (false, true), (true, false), (true, true)] {
        let context = format!("TLS: {by_tls}, HTTP/2: {by_http2}");
        let ballast = serve(if by_tls { &secure } else { &plain });
        let protocol = if by_http2 { "h2" } else { "http/1.1" };
        let client: Box<dyn Duplex> = if by_tls {
            Box::new(tls(ballast.address(), &papers, protocol))
        } else {
            Box::new(connect(ballast.address()))
        };
        ballast.until(|ballast| sessions(ballast) == 1);
        let begun = Instant::now();
        let ending = begin_to_end(ballast);
        support::pause(Duration::from_millis(200));
        let answered = if by_http2 {
            ask_by_http2(client)
        } else {
            ask_by_http1(client)
        };
        if let Err(why) = answered {
            failures.push(format!("{context}: {why}"));
        }
        assert_ends_in_order(ending, begun, &context);
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_request_that_was_sent_before_the_end_is_served() {
    let endpoint = Endpoint::answering(|_| ok("served"));
    let table = table("", &[("s", "", &[endpoint.address])]);
    for _ in 0..10 {
        let ballast = serve(&table);
        let mut one = Http1::to(ballast.address());
        assert_eq!(one.get("/").text(), "served");
        let mut two = Raw::to(ballast.address());
        two.get(1, "/");
        assert_eq!(two.message(1).text(), "served");
        let mut first = Raw::to(ballast.address());
        one.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        two.get(3, "/");
        first.get(1, "/");
        let begun = Instant::now();
        let ending = begin_to_end(ballast);
        let heard = one.response("GET").expect("a response");
        assert_eq!(heard.text(), "served");
        for (raw, stream) in [(&mut two, 3), (&mut first, 1)] {
            let response = raw.message(stream);
            assert_eq!(response.text(), "served", "{response:?}");
            raw.rest();
        }
        assert_ends_in_order(ending, begun, "with requests on their way");
    }
}

#[test]
fn connections_that_are_kept_for_a_next_request_do_not_hold_up_the_end() {
    let endpoint = Endpoint::answering(|_| ok("served"));
    let ballast = serve(&table("", &[("s", "", &[endpoint.address])]));
    let mut one = Http1::to(ballast.address());
    assert_eq!(one.get("/").text(), "served");
    let mut two: Vec<_> = (0..5).map(|_| Raw::to(ballast.address())).collect();
    for raw in &mut two {
        raw.get(1, "/");
        assert_eq!(raw.message(1).text(), "served");
    }
    let begun = Instant::now();
    let ending = begin_to_end(ballast);
    assert_eq!(one.rest(), b"");
    for raw in &mut two {
        let rest = raw.rest();
        let away = |event: &Event| matches!(event, Event::GoAway { code: 0, .. });
        assert!(rest.iter().any(away), "{rest:?}");
    }
    assert_ends_in_order(ending, begun, "idle connections");
}
