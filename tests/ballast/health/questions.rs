//! What checks say and how they leave, how many there are, and when they end.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::health::{QUICK, block_on, checked, end, monitor, seen, start};
use support::{Ballast, server, table};

#[test]
fn connect_only_checks_reset_and_others_close_in_order() {
    let (tell, told) = mpsc::channel();
    let endpoint = server(move |mut client| {
        let mut bytes = [0; 1024];
        let end = loop {
            match client.read(&mut bytes) {
                Ok(0) => break "in order",
                // The connection stays open here: it is the check that closes it.
                Ok(read) if bytes[..read].ends_with(b"\r\n\r\n") => {
                    client
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                        .ok();
                }
                Ok(read) if bytes[..read].ends_with(b"ping") => {
                    client.write_all(b"pong").ok();
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break "reset",
                Err(error) => panic!("{error}"),
            }
        };
        tell.send(end).ok();
    });
    for (service, health, expected) in [
        ("", "mode: tcp", "reset"),
        ("", "mode: http", "in order"),
        ("", "mode: http, body: ok", "in order"),
        ("", "mode: tcp, send: ping, answer: po", "in order"),
        ("", "mode: tcp, send: bye", "in order"),
        (", send-proxy: v2", "mode: tcp", "in order"),
    ] {
        let service = format!("{service}, health: {{{health}, {QUICK}}}");
        let ballast = Ballast::serve(&table("", &service, &[endpoint]), 1);
        for _ in 0..2 {
            let end = told.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(end, expected, "{health}");
        }
        assert_eq!(monitor(&ballast, 0).failed, 0, "{health}");
        end(ballast);
        // What was on its way still arrives; then it is quiet.
        while told.recv_timeout(Duration::from_millis(300)).is_ok() {}
    }
}

#[test]
fn checks_introduce_themselves_as_nobodys_client() {
    let (tell, told) = mpsc::channel();
    let endpoint = server(move |mut client| {
        let mut bytes = [0; 1024];
        let read = client.read(&mut bytes).unwrap_or(0);
        let peer = client.peer_addr().unwrap();
        tell.send((peer, bytes[..read].to_vec())).ok();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok();
    });
    for (service, health, begins) in [
        (
            "send-proxy: v1",
            "mode: http",
            "PROXY TCP4 127.0.0.9 127.0.0.1 PEER PORT\r\nGET /up HTTP/1.1\r\nHost: x.example\r\n",
        ),
        (
            "send-proxy: v1",
            "mode: tcp",
            "PROXY TCP4 127.0.0.9 127.0.0.1 PEER PORT\r\n",
        ),
        (
            "send-proxy: v2",
            "mode: http",
            "\r\n\r\n\0\r\nQUIT\n\u{20}\0\0\0GET /up HTTP/1.1\r\n",
        ),
        ("send-proxy: off", "mode: http", "GET /up HTTP/1.1\r\n"),
    ] {
        let service = format!(
            ", {service}, source: [\"127.0.0.9\"], health: {{{health}, path: /up, host: x.example, {QUICK}}}"
        );
        let ballast = Ballast::serve(&table("", &service, &[endpoint]), 1);
        let (peer, said) = told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 9]));
        let begins = begins
            .replace("PEER", &peer.port().to_string())
            .replace("PORT", &endpoint.port().to_string());
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with(&begins), "{said:?}, {begins:?}");
        ballast.until(|ballast| seen(ballast, 0).is_some());
        assert_eq!(monitor(&ballast, 0).failed, 0, "{health}");
        end(ballast);
        // What was on its way still arrives; then it is quiet.
        while told.recv_timeout(Duration::from_millis(300)).is_ok() {}
    }
}

#[test]
fn the_end_stops_the_checks_first() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let endpoint = server(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let (ballast, folder) = start(
        &checked("mode: tcp, interval: 100ms", &[endpoint]),
        |config| {
            config.shutdown_delay = Duration::from_secs(2);
        },
    );
    support::until("six questions", || asked.load(Ordering::SeqCst) > 5);
    let (tell, told) = mpsc::channel();
    let stopping = thread::spawn(move || {
        tell.send(()).ok();
        block_on(ballast.stop())
    });
    told.recv().unwrap();
    // What has begun may still end.
    support::pause(Duration::from_millis(500));
    let after = asked.load(Ordering::SeqCst);
    support::pause(Duration::from_millis(1_000));
    assert_eq!(asked.load(Ordering::SeqCst), after);
    stopping.join().unwrap();
    drop(folder);
}

#[test]
fn no_more_checks_are_made_than_allowed() {
    let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let endpoints: Vec<SocketAddr> = (0..20)
        .map(|_| {
            let asked = Arc::clone(&asked);
            server(move |_| asked.lock().unwrap().push(Instant::now()))
        })
        .collect();
    let (ballast, folder) = start(
        &checked("mode: tcp, interval: 100ms", &endpoints),
        |config| {
            config.max_checks = 50;
        },
    );
    support::until("200 questions", || asked.lock().unwrap().len() > 200);
    let asked = asked.lock().unwrap().clone();
    // The table asks for 200 a second.
    let took = asked[200].duration_since(asked[0]);
    assert!(
        took > Duration::from_millis(3_500),
        "{took:?} for 200 checks"
    );
    block_on(ballast.stop());
    drop(folder);
}
