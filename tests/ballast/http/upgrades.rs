//! Upgrades: a connection becomes opaque after a 101, and never before.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::http::wire::{Endpoint, Wire, routed, service_of, table};
use support::Ballast;
use support::peers::{End, noise};

const ASK: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[test]
fn a_refused_upgrade_hides_no_request() {
    let (one, admin) = (Endpoint::saying("no upgrade"), Endpoint::saying("admin"));
    let text = routed(
        ", default: {service: one}, routes: [{path: /admin, service: admin}, {path: /secret, source-ranges: [\"192.0.2.0/24\"], service: one}]",
        &[
            &service_of("one", "", &[one.address]),
            &service_of("admin", "", &[admin.address]),
        ],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    client.send(format!(
        "{ASK}GET /admin HTTP/1.1\r\nHost: a\r\n\r\nGET /secret HTTP/1.1\r\nHost: a\r\n\r\n"
    ));
    assert_eq!(client.response().text(), "no upgrade");
    assert_eq!(client.response().text(), "admin");
    assert_eq!(client.response().status, 403);
    let heard: Vec<_> = one
        .heard()
        .iter()
        .map(|one| one.line().to_owned())
        .collect();
    assert_eq!(heard, ["GET /ws HTTP/1.1"]);
    assert_eq!(one.last().field("Upgrade"), Some("websocket"));
    assert_eq!(one.last().field("Connection"), Some("upgrade"));
    assert_eq!(admin.last().field("Upgrade"), None);
}

/// Switches, says `hello` in the same segment, echoes until the client's end, and then says `bye`.
fn switching() -> Endpoint {
    Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_none() {
            return;
        }
        wire.send(format!("{SWITCHED}hello"));
        while let Ok(byte) = wire.take(1) {
            wire.send(byte);
        }
        wire.send("bye");
    })
}

#[test]
fn a_101_is_an_answer_like_others() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            wire.send(SWITCHED.replacen(
                "\r\n\r\n",
                "\r\nServer: x\r\nSet-Cookie: SID=mine\r\n\r\n",
                1,
            ));
        }
    });
    let table = table(
        ", http: {response-headers: {set: {X-Frame-Options: DENY}}}",
        ", affinity: {cookie: SID}, http: {response-headers: {remove: [Server]}}",
        &[&endpoint],
    );
    let ballast = Ballast::serve(&table, 1);
    let mut client = Wire::to(ballast.address());
    client.send(ASK);
    let response = client.response();
    assert_eq!(response.status, 101);
    assert_eq!(response.field("Connection"), Some("upgrade"));
    assert_eq!(response.field("X-Frame-Options"), Some("DENY"));
    assert_eq!(response.field("Server"), None);
    let cookie = response.field("Set-Cookie").unwrap();
    assert!(
        cookie.starts_with("SID=") && !cookie.contains("mine"),
        "{cookie}"
    );
    assert_eq!(response.field("Content-Length"), None);
}

#[test]
fn bytes_pass_both_ways_after_a_101() {
    let endpoint = switching();
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    for early in ["", "early"] {
        let mut client = Wire::to(ballast.address());
        client.send(format!("{ASK}{early}"));
        let response = client.response();
        assert_eq!(response.status, 101);
        assert_eq!(response.field("Upgrade"), Some("websocket"));
        assert_eq!(response.field("Connection"), Some("upgrade"));
        assert_eq!(
            response.field("Sec-WebSocket-Accept"),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        let expected = format!("hello{early}");
        assert_eq!(client.take(expected.len()).unwrap(), expected.as_bytes());
        client.send("GET / HTTP/1.1\r\n\r\n");
        assert_eq!(client.take(18).unwrap(), b"GET / HTTP/1.1\r\n\r\n");
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.rest(), (b"bye".to_vec(), End::Clean));
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    let heard = endpoint.last();
    assert_eq!(heard.fields("Connection"), ["upgrade"]);
    assert_eq!(
        heard.field("Sec-WebSocket-Key"),
        Some("dGhlIHNhbXBsZSBub25jZQ==")
    );
    assert_eq!(
        endpoint.connections(),
        2,
        "such a connection is not used again"
    );
}

#[test]
fn bulk_passes_after_a_101() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_none() {
            return;
        }
        wire.send(SWITCHED);
        let heard = wire.take(4 << 20).expect("bulk");
        wire.send(heard);
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send(ASK);
    assert_eq!(client.response().status, 101);
    let bulk = noise(4 << 20, 7);
    client.send(&bulk);
    let (heard, end) = client.rest();
    assert!(heard == bulk, "{} of {}", heard.len(), bulk.len());
    assert_eq!(end, End::Clean);
}

#[test]
fn an_upgraded_connection_has_the_tunnel_timeout_alone() {
    let endpoint = switching();
    let ballast = Ballast::serve(
        &table(
            ", timeouts: {client: 100ms, request: 100ms, keep-alive: 100ms}",
            ", timeouts: {server: 100ms, tunnel: 600ms}",
            &[&endpoint],
        ),
        1,
    );
    let mut client = Wire::to(ballast.address());
    client.send(ASK);
    assert_eq!(client.response().status, 101);
    let begun = Instant::now();
    let (heard, _) = client.rest();
    assert_eq!(heard, b"hello");
    assert!(
        begun.elapsed() >= Duration::from_millis(550),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

/// The endpoint would then speak HTTP that nobody routes.
#[test]
fn an_upgrade_to_another_http_is_not_forwarded() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    for fields in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
        "Upgrade: websocket\r\n",
    ] {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(client.response().text(), "served");
        assert_eq!(endpoint.last().field("Upgrade"), None, "{fields}");
        assert_eq!(endpoint.last().field("HTTP2-Settings"), None, "{fields}");
    }
}

#[test]
fn an_endpoint_that_leaves_during_an_upgrade_is_noticed() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            wire.stream.write_all(SWITCHED.as_bytes()).ok();
            wire.stream.write_all(b"last words").ok();
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send(ASK);
    assert_eq!(client.response().status, 101);
    assert_eq!(client.rest(), (b"last words".to_vec(), End::Clean));
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 502, "nobody asked for an upgrade");
}
