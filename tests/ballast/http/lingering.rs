//! Answers to clients that are still sending: a close with unread bytes would reset the connection and destroy the answer.

use std::io::Write;
use std::time::Duration;

use crate::http::wire::{Endpoint, Response, Wire, response, routed, table};
use support::Ballast;
use support::peers::End;

const BODY: usize = 10 << 20;

/// Sends the head and `BODY` bytes without a look at the answer, and then reads the answer. Returns also how many bytes it got
/// rid of.
fn upload(client: &mut Wire, head: &str) -> (Response, usize) {
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n"));
    let piece = vec![b'x'; 64 << 10];
    let mut sent = 0;
    while sent < BODY && client.stream.write_all(&piece).is_ok() {
        sent += piece.len();
    }
    (client.response(), sent)
}

#[test]
fn a_client_that_uploads_reads_an_early_response_of_the_endpoint() {
    for (what, reads) in [("closes", false), ("waits", true)] {
        let endpoint = Endpoint::scripted(move |wire, _, _| {
            if wire.request_head().is_some() {
                wire.send(response(
                    "413 Content Too Large",
                    "Connection: close\r\n",
                    "too much",
                ));
                if reads {
                    support::pause(Duration::from_millis(500));
                }
            }
        });
        let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
        for _ in 0..5 {
            let mut client = Wire::to(ballast.address());
            let (answer, sent) = upload(&mut client, &format!("Content-Length: {BODY}\r\n"));
            assert_eq!(
                (answer.status, answer.text().as_str()),
                (413, "too much"),
                "{what}"
            );
            assert!(answer.closes(), "{what}");
            assert_eq!(sent, BODY, "{what}: the client was reset while it sent");
        }
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

#[test]
fn a_client_that_uploads_reads_an_answer_of_ballasts_own() {
    let ballast = Ballast::serve(
        &routed(
            ", routes: [{path: /, service: empty}]",
            &["{name: empty, endpoints: []}"],
        ),
        1,
    );
    for (head, status) in [
        (format!("Content-Length: {BODY}\r\n"), 503),
        ("Transfer-Encoding: chunked\r\n\r\nno size".into(), 400),
        ("Transfer-Encoding: gzip\r\n".into(), 501),
    ] {
        for _ in 0..5 {
            let mut client = Wire::to(ballast.address());
            let (answer, sent) = upload(&mut client, &head);
            assert_eq!(answer.status, status, "{head}");
            assert!(answer.closes());
            assert!(!answer.body.is_empty());
            assert_eq!(sent, BODY, "{head}: the client was reset while it sent");
        }
    }
}

/// A client that never stops is not read for ever.
#[test]
fn the_patience_with_a_client_that_goes_on_sending_ends() {
    let ballast = Ballast::serve(&routed("", &[]), 1);
    let mut client = Wire::to(ballast.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n");
    assert_eq!(client.response().status, 404);
    let begun = std::time::Instant::now();
    while client.stream.write_all(&[b'x'; 1000]).is_ok() {
        support::pause(Duration::from_millis(1));
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it still listens"
        );
    }
    let shared = ballast.running.shared();
    ballast.until(|_| shared.connections() == 0);
}

/// Neither by a client of which nothing more can be understood.
#[test]
fn what_follows_the_last_request_destroys_no_answer() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    for _ in 0..20 {
        let mut client = Wire::to(ballast.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
        client.stream.write_all(&vec![b'x'; 1 << 20]).ok();
        let answer = client.response();
        assert_eq!(answer.text(), "served");
        assert!(answer.closes());
        client.assert_ends(End::Clean, "after the last answer");
    }
    assert!(
        endpoint
            .heard()
            .iter()
            .all(|request| request.target() == "/")
    );
}
