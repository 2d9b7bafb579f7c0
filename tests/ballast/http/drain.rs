//! The end of the process: every answer says that the connection closes, and connections without a request close at once.

use std::thread;
use std::time::{Duration, Instant};

use crate::http::wire::{Endpoint, Wire, ok, routed, service_of};
use support::peers::{End, Lateness, forgiven};
use support::{Ballast, connect};

/// Ends it; how many connections had to be cut.
fn stop(ballast: Ballast) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(ballast.running.stop())
}

#[test]
fn connections_end_with_their_next_answer_and_idle_ones_at_once() {
    let endpoint = Endpoint::answering(|request| {
        if request.target() == "/slow" {
            support::pause(Duration::from_millis(700));
        }
        ok("served")
    });
    let text = routed(
        ", routes: [{path: /teapot, status: 418}], default: {service: s}",
        &[&service_of("s", "", &[endpoint.address])],
    );
    let ballast = Ballast::serve(&text, 1);
    let address = ballast.address();
    let mut idle: Vec<_> = (0..20).map(|_| Wire::to(address)).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").text(), "served");
    }
    let mut busy = Wire::to(address);
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut half = Wire::to(address);
    half.send("GET /half HTTP/1.1\r\nHo");
    let mut own = Wire::to(address);
    own.send("GET /teapot HTTP/1.1\r\nHo");
    ballast.until(|_| endpoint.heard().len() == 21);
    // The two halves have been read.
    support::pause(Duration::from_millis(50));

    let lateness = Lateness::watch();
    let begun = Instant::now();
    let stopping = thread::spawn(move || stop(ballast));
    for client in &mut idle {
        client.assert_ends(End::Clean, "an idle connection");
    }
    let took = begun.elapsed();
    let allowed = Duration::from_millis(100) + forgiven(lateness.end());
    assert!(took < allowed, "{took:?}, not {allowed:?}");

    half.send("st: a\r\n\r\n");
    let last = half.response();
    assert_eq!(last.text(), "served");
    assert!(last.closes(), "{}", last.head);
    half.assert_ends(End::Clean, "after its last answer");
    own.send("st: a\r\n\r\n");
    let last = own.response();
    assert_eq!(last.status, 418);
    assert!(last.closes(), "{}", last.head);
    own.assert_ends(End::Clean, "after its last answer");
    let last = busy.response();
    assert_eq!(last.text(), "served");
    assert!(last.closes(), "{}", last.head);
    busy.assert_ends(End::Clean, "after its last answer");
    assert_eq!(stopping.join().unwrap(), 0, "nobody had to be cut");
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "it accepts no more"
    );
}

#[test]
fn a_request_that_was_sent_before_the_end_is_served() {
    for _ in 0..10 {
        let endpoint = Endpoint::saying("served");
        let text = routed(
            ", default: {service: s}",
            &[&service_of("s", "", &[endpoint.address])],
        );
        let ballast = Ballast::serve(&text, 1);
        let mut client = Wire::over(connect(ballast.address()));
        assert_eq!(client.get("/").text(), "served");
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let stopping = thread::spawn(move || stop(ballast));
        assert_eq!(client.response().text(), "served");
        client.assert_ends(End::Clean, "after the last answer");
        assert_eq!(stopping.join().unwrap(), 0);
    }
}
