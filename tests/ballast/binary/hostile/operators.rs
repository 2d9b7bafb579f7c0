//! Whoever reaches the admin side or the runtime socket, and does not mean well.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{Most, Siege};
use crate::peers::{connect, get, ping};

#[test]
fn storms_of_scrapes_do_not_delay_clients() {
    let siege = Siege::new();
    let admin = siege.process.admin();
    let (is_over, scrapes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        for number in 0..50 {
            let path = [
                "/metrics",
                "/",
                "/;csv",
                "/api/snapshot",
                "/metrics?scope=server",
            ][number % 5];
            let (is_over, scrapes) = (&is_over, &scrapes);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if get(admin, path).is_ok() {
                        scrapes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            let asked = Instant::now();
            ping(&mut connect(siege.tcp).unwrap()).unwrap();
            slowest = slowest.max(asked.elapsed());
            support::pause(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{scrapes:?} scrapes, the slowest client took {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    siege.has_cost(
        "a storm of scrapes",
        &Most {
            mebibytes: 64,
            cpu: 20.0,
        },
    );
    siege.until_let_go();
    siege.serves_others();
}

/// They ask for much and do not read, drip their requests, or ask for events and stay.
#[test]
fn clients_of_the_admin_side_that_never_read_lock_nobody_out() {
    let siege = Siege::new();
    let admin = siege.process.admin();
    let mut held: Vec<TcpStream> = Vec::new();
    for number in 0..600 {
        let Ok(mut client) = connect(admin) else {
            continue;
        };
        SockRef::from(&client)
            .set_recv_buffer_size(4 << 10)
            .unwrap();
        let says = [
            "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20),
            "GET /events HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / HT".to_owned(),
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\nx".to_owned(),
            String::new(),
        ];
        // Who is one too many is sent away.
        client.write_all(says[number % says.len()].as_bytes()).ok();
        held.push(client);
    }
    siege.serves_others();
    siege.process.until_answers("/readyz", 200);
    siege.process.until_answers("/metrics", 200);
    let cost = siege.has_cost(
        "clients that never read",
        &Most {
            mebibytes: 64,
            cpu: 20.0,
        },
    );
    let sockets = cost.sockets - siege.before.sockets;
    assert!(sockets < 400, "{sockets} sockets");
    drop(held);
    siege.until_let_go();
}

/// They have the address of a kubelet, or of Prometheus.
#[test]
fn silent_and_slow_clients_keep_no_probe_of_the_same_address_waiting() {
    let siege = Siege::new();
    let admin = siege.process.admin();
    for says in [
        "",
        "GET /healthz HT",
        "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\nx",
    ] {
        let mut slowest = Duration::ZERO;
        let mut held = Vec::new();
        for number in 0..400 {
            let mut client = connect(admin).unwrap();
            SockRef::from(&client).set_recv_buffer_size(1).unwrap();
            client.write_all(says.as_bytes()).ok();
            held.push(client);
            if number % 40 == 39 {
                for path in ["/healthz", "/readyz", "/metrics"] {
                    let asked = Instant::now();
                    siege.process.until(path, || {
                        get(admin, path).is_ok_and(|(status, _)| status == 200)
                    });
                    slowest = slowest.max(asked.elapsed());
                }
            }
        }
        println!("{says:?}: the slowest probe took {slowest:?}");
        assert!(slowest < Duration::from_secs(3), "{says:?}: {slowest:?}");
    }
    siege.until_let_go();
}

/// The socket is the operator's, whose scripts may be wrong.
#[test]
fn scripts_at_the_runtime_socket_that_never_read_or_never_end_a_line_hold_little() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("socket");
    let siege = Siege::with("", &["--socket", path.to_str().unwrap()]);
    let mut held = Vec::new();
    for number in 0..100 {
        let Ok(mut client) = UnixStream::connect(&path) else {
            continue;
        };
        client.set_nonblocking(true).unwrap();
        match number % 3 {
            0 => {
                // Without the end of a line.
                while client.write(&[b'x'; 64 << 10]).is_ok_and(|sent| sent > 0) {}
            }
            1 => {
                let line = "show stat; show info; show table; show sess; help\n".repeat(1_000);
                _ = client.write(line.as_bytes()).unwrap_or(0);
            }
            _ => {}
        }
        held.push(client);
    }
    siege.serves_others();
    siege.process.until("an answer", || {
        let Ok(mut client) = UnixStream::connect(&path) else {
            return false;
        };
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut answer = String::new();
        let asked = client
            .write_all(b"show info\n")
            .and_then(|()| client.read_to_string(&mut answer));
        asked.is_ok() && answer.contains("Name: ")
    });
    siege.has_cost(
        "scripts that never read",
        &Most {
            mebibytes: 64,
            cpu: 20.0,
        },
    );
    // A line that does not end is no command, however long it is.
    let mut endless = UnixStream::connect(&path).unwrap();
    endless
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut sent = 0;
    let error = loop {
        match endless.write(&[b'x'; 64 << 10]) {
            Ok(taken) if sent < 256 << 20 => sent += taken,
            Ok(_) => panic!("a line of {sent} bytes is read"),
            Err(error) => break error.kind(),
        }
    };
    assert!(
        [
            ErrorKind::BrokenPipe,
            ErrorKind::ConnectionReset,
            ErrorKind::WouldBlock
        ]
        .contains(&error),
        "{error}"
    );
    drop(held);
    siege.until_let_go();
}
