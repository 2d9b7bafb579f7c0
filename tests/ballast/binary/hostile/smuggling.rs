//! Requests that two readers could understand differently, and exactly what an endpoint hears of them. `http::framing` has those
//! that are answered by 4xx; here are those that pass, and those that come by HTTP/2.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use super::{Process, connect, folder, fresh_address, server};
use support::raw::{Event, Raw};

/// What is sent, and every byte that the endpoint hears of it, where ~ stands for the fields of [`ADDED`]. Each is followed by a
/// request of the client's own, which has to be the next one that the endpoint hears.
#[rustfmt::skip]
const PASSED: &[(&str, &str)] = &[
    // Chunks pass as they are, and are read as the endpoint reads them.
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0;c\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\n~Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0;c\r\n\r\n"),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n00005\r\nhello\r\n000\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\n~Transfer-Encoding: chunked\r\n\r\n00005\r\nhello\r\n000\r\n\r\n"),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nContent-Length: 9\r\nHost: b\r\nTransfer-Encoding: gzip\r\nX-T: y\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\n~Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-T: y\r\n\r\n"),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked \r\n\r\n0\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\n~Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    // A client does not decide which fields of others stay.
    ("POST / HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\nContent-Length: 5\r\n\r\nhello", "POST / HTTP/1.1\r\nHost: a\r\n~Content-Length: 5\r\n\r\nhello"),
    ("POST / HTTP/1.1\r\nHost: a\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\n~Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Host, X-Forwarded-For, X-Forwarded-Proto\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.9, 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 17000\r\nX-Forwarded-Host: a\r\nX-User: nobody\r\n\r\n"),
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Mine\r\nX-Mine: y\r\nX-Stays: z\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX-Stays: z\r\n~\r\n"),
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-User\r\nX-User: eve\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n~\r\n"),
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Authorization, Cookie\r\nAuthorization: b\r\nCookie: c=d\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nCookie: c=d\r\n~\r\n"),
    // HTTP/2 on the same connection would pass whatever follows unseen.
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n~\r\n"),
    // An offer that is not taken.
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Version: 777\r\n~Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
    // Targets
    ("GET http://a/x?y HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x?y HTTP/1.1\r\nHost: a\r\n~\r\n"),
    ("GET HTTP://A/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x HTTP/1.1\r\nHost: A\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 17000\r\nX-Forwarded-Host: A\r\nX-User: nobody\r\n\r\n"),
    ("GET /%0d%0aX:%20y HTTP/1.1\r\nHost: a\r\n\r\n", "GET /%0d%0aX:%20y HTTP/1.1\r\nHost: a\r\n~\r\n"),
    ("GET /a/../b//c;d HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a/../b//c;d HTTP/1.1\r\nHost: a\r\n~\r\n"),
    ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n~\r\n"),
    // A body where none is usual.
    ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "GET / HTTP/1.1\r\nHost: a\r\n~Content-Length: 5\r\n\r\nhello"),
    ("DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 0005\r\n\r\nhello", "DELETE / HTTP/1.1\r\nHost: a\r\n~Content-Length: 5\r\n\r\nhello"),
    // Names that look like others.
    ("GET / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\n~\r\n"),
    ("GET / HTTP/1.1\r\nHost: a\r\nX-Content-Length: 5\r\nX: GET /admin HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX-Content-Length: 5\r\nX: GET /admin HTTP/1.1\r\n~\r\n"),
    ("GET / HTTP/1.1\r\nHost: a\r\nProxy-Connection: keep-alive\r\nKeep-Alive: timeout=9\r\nTE: trailers, gzip\r\nProxy-Authorization: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nProxy-Authorization: b\r\n~\r\n"),
];

#[test]
fn an_endpoint_hears_exactly_what_a_request_means() {
    let ((process, _folder), address, heard) = serve();
    let mut wrong = 0;
    for (sent, expected) in PASSED {
        let mut client = connect(address).unwrap();
        client.write_all(sent.as_bytes()).unwrap();
        client.write_all(OWN.as_bytes()).unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        let heard = String::from_utf8_lossy(&heard).into_owned();
        let expected = [expected, HEARD_OF_OWN].concat().replace('~', ADDED);
        if heard != expected {
            println!(
                "{}\n    {}\n",
                sent.escape_default(),
                heard.escape_default()
            );
            wrong += 1;
        }
    }
    assert_eq!(wrong, 0, "{}", process.err.text());
}

/// Each is refused: a field of HTTP/2 may have any byte in it, and in HTTP/1 some would end the field or the head.
#[test]
fn a_request_of_http2_that_would_be_another_one_in_http1_is_refused() {
    let ((process, _folder), address, heard) = serve();
    let tail = "\r\n\r\nGET /admin HTTP/1.1\r\nHost: a";
    let injected = format!("x{tail}");
    let cases: Vec<Vec<(&str, &str)>> = vec![
        vec![("x", &injected)],
        vec![("x", "y\nz: 1")],
        vec![("x", "y\rz: 1")],
        vec![("x", "y\0z")],
        vec![(&injected, "y")],
        vec![("x y", "z")],
        vec![("x:", "z")],
        vec![("X", "z")],
        vec![("", "z")],
        vec![("transfer-encoding", "chunked")],
        vec![("connection", "x")],
        vec![("keep-alive", "x")],
        vec![("upgrade", "h2c")],
        vec![("proxy-connection", "x")],
        vec![("te", "gzip")],
        vec![("content-length", "5")],
        vec![("content-length", "0"), ("content-length", "5")],
        vec![("content-length", "0, 5")],
        vec![("content-length", "+0")],
        vec![("host", "b")],
        vec![(":path", "/second")],
        vec![(":unknown", "x")],
    ];
    let heads = [
        (":path", "/ HTTP/1.1\r\nX: y"),
        (":path", "/a b"),
        (":path", "/a\tb"),
        (":path", ""),
        (":path", "a"),
        (":path", "http://b/"),
        (":path", "/#x"),
        (":path", "*"),
        (":method", "GET / HTTP/1.1\r\nX:"),
        (":method", "G ET"),
        (":method", ""),
        (":method", "CONNECT"),
        (":authority", "a\r\nX: y"),
        (":authority", "a b"),
        (":authority", "u@a"),
        (":authority", "a, b"),
        (":authority", "a/b"),
        (":authority", "a:99999"),
        (":scheme", "http://b/?"),
    ];
    let usual = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
    ];
    let mut requests: Vec<Vec<(&str, &str)>> = Vec::new();
    requests.extend(cases.iter().map(|more| [&usual[..], more].concat()));
    requests.extend(heads.iter().map(|(name, value)| {
        usual
            .iter()
            .map(|(usual, is)| (*usual, if usual == name { *value } else { *is }))
            .collect()
    }));
    for fields in &requests {
        let mut client = Raw::to(address);
        client.head(1, fields, true);
        let refused = client.seek(|event| match event {
            Event::Head {
                stream: 1, fields, ..
            } => {
                let status = support::raw::field(fields, ":status");
                Some(status.is_some_and(|status| status.starts_with('4')))
            }
            Event::Reset { .. } | Event::GoAway { .. } | Event::End => Some(true),
            _ => None,
        });
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        let heard = String::from_utf8_lossy(&heard).into_owned();
        assert!(
            refused && heard.is_empty(),
            "{fields:?}: {}",
            heard.escape_default()
        );
    }
    let mut client = Raw::to(address);
    client.head(1, &usual, true);
    assert_eq!(client.message(1).status(), 200, "{}", process.err.text());
}

/// A `ballast` before an endpoint that notes every byte it hears, and answers each head with nothing.
fn serve() -> (
    (Process, tempfile::TempDir),
    SocketAddr,
    Arc<Mutex<Vec<u8>>>,
) {
    let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
    let noted = Arc::clone(&heard);
    let endpoint = server(move |mut client| note(&mut client, &noted));
    let address = fresh_address();
    let folder = folder(&format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"{address}\"], protocol: http, default: {{service: s}}}}]\nservices: [{{name: s, http: {{request-headers: {{set: {{X-User: nobody}}}}}}, endpoints: [{{address: \"{endpoint}\"}}]}}]\n"
    ));
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    ((process, folder), address, heard)
}

fn note(client: &mut TcpStream, noted: &Mutex<Vec<u8>>) {
    let (mut all, mut answered) = (Vec::new(), 0);
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = client.read(&mut bytes) {
        noted.lock().unwrap().extend_from_slice(&bytes[..read]);
        all.extend_from_slice(&bytes[..read]);
        let heads = all
            .windows(15)
            .filter(|bytes| *bytes == b"HTTP/1.1\r\nHost:")
            .count();
        while answered < heads {
            client
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .ok();
            answered += 1;
        }
    }
}

/// The client's next request, and what is heard of it.
const OWN: &str = "GET /own HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const HEARD_OF_OWN: &str = "GET /own HTTP/1.1\r\nHost: a\r\n~\r\n";
/// By Ballast, and by the service of the table.
const ADDED: &str = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 17000\r\nX-Forwarded-Host: a\r\nX-User: nobody\r\n";
