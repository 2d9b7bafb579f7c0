//! Responses that end with their connection, of endpoints that speak TLS: without a close notification, someone on the way may have
//! cut them off.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::http2::site::table;
use crate::http2::strict::Http1;
use support::Ballast;
use support::papers::Papers;
use support::peers::{End, hear};
use support::raw::Raw;

/// Answers each request by a part of a body, and then closes; for the path `/s/whole` with a notification.
fn endpoint(papers: &Papers) -> std::net::SocketAddr {
    let (chain, key) = papers.pair("shop");
    let config = ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(chain, key).expect("a certificate"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let mut tls = StreamOwned::new(session, client);
            let mut heard = Vec::new();
            let mut bytes = [0; 4096];
            while !heard.windows(4).any(|end| end == b"\r\n\r\n") {
                match tls.read(&mut bytes) {
                    Ok(read @ 1..) => heard.extend_from_slice(&bytes[..read]),
                    _ => break,
                }
            }
            tls.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf").ok();
            if heard.starts_with(b"GET /s/whole ") {
                tls.conn.send_close_notify();
            }
            tls.flush().ok();
        }
    });
    address
}

#[test]
fn a_response_that_may_have_been_cut_off_does_not_end_in_order() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let services: [(_, _, &[_]); 1] = [("s", ", tls: {insecure: true}", &[endpoint(&papers)])];
    let ballast = Ballast::serve(&table("", &services), 1);
    for (path, is_whole) in [("/s/whole", true), ("/s/half", false)] {
        let mut client = Http1::to(ballast.address());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let (heard, end) = hear(&mut client.stream);
        assert!(heard.ends_with(b"\r\n\r\nhalf"), "{}", heard.escape_ascii());
        assert_eq!(end == End::Clean, is_whole, "{path}");

        let mut client = Raw::to(ballast.address());
        client.get(1, path);
        let response = client.message(1);
        assert_eq!(response.text(), "half", "{path}");
        assert_eq!(response.reset.is_none(), is_whole, "{path}");
    }
}
