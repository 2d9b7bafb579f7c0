//! What clients notice of checks: nothing, or what the table says.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::health::{QUICK, checked, dials, ill, known, last_word, monitor, sessions, well};
use support::{Ballast, ask, nobody, server, table};

#[test]
fn a_swap_sends_nobody_to_who_is_down() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let ill = server(move |mut client| {
        let mut bytes = [0; 1024];
        match client.read(&mut bytes) {
            Ok(1) => {
                counted.fetch_add(1, Ordering::SeqCst);
                client.write_all(b"ill").ok();
            }
            Ok(_) => {
                client.write_all(b"HTTP/1.1 503 No\r\n\r\n").ok();
            }
            Err(_) => {}
        }
    });
    let endpoints = [well(), ill, well()];
    let ballast = Ballast::serve(&checked("mode: http", &endpoints), 2);
    ballast.until(|ballast| !monitor(ballast, 1).is_up());
    assert_eq!(last_word(&monitor(&ballast, 1)), "L7STS");
    let before = asked.load(Ordering::SeqCst);
    for retries in 1..=10 {
        let service = format!(", retries: {retries}, health: {{mode: http, {QUICK}}}");
        ballast.swap(&table("", &service, &endpoints));
        for _ in 0..6 {
            assert_eq!(ask(ballast.address()).unwrap(), "well");
        }
    }
    // Another check begins anew, but not with clients who find out.
    ballast.swap(&checked("mode: http, path: /other", &endpoints));
    for _ in 0..6 {
        assert_eq!(ask(ballast.address()).unwrap(), "well");
    }
    assert_eq!(asked.load(Ordering::SeqCst), before);
    assert!(!monitor(&ballast, 1).is_up());

    ballast.swap(&table("", "", &endpoints));
    ballast.until(|ballast| {
        ask(ballast.address()).unwrap();
        asked.load(Ordering::SeqCst) > before
    });
    assert!(known(&ballast, 1).is_none(), "nobody is checked any more");
}

#[test]
fn an_endpoint_that_dies_under_load_is_out_in_time_and_no_client_notices() {
    let mut mortal = Mortal::new();
    let endpoints = [mortal.address, well(), well()];
    // Ejection off: what is seen here is the work of the checks alone.
    let service = ", ejection: off, health: {mode: tcp, interval: 500ms, rise: 2, fall: 3}";
    let ballast = Ballast::serve(&table("", service, &endpoints), 2);
    ballast.until(|ballast| (0..3).all(|index| last_word(&monitor(ballast, index)) == "L4OK"));
    let address = ballast.address();
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                let (mut served, mut failed) = (0, Vec::new());
                while !over.load(Ordering::SeqCst) {
                    let begun = Instant::now();
                    match ask(address) {
                        Ok(answer) if answer == "well" => served += 1,
                        _ => failed.push(begun),
                    }
                }
                (served, failed)
            })
        })
        .collect();
    ballast.until(|ballast| sessions(ballast, 0) > 20);

    mortal.kill();
    let killed = Instant::now();
    ballast.until(|ballast| !monitor(ballast, 0).is_up());
    let took = killed.elapsed();
    println!("out after {took:?}, of 1.5 s");
    assert!(took < Duration::from_secs(6), "{took:?}");
    let dials_then = dials(&ballast, 0);
    let sessions_then = sessions(&ballast, 1);
    ballast.until(|ballast| sessions(ballast, 1) > sessions_then + 50);
    let dialed = dials(&ballast, 0) - dials_then;
    assert!(dialed <= 4, "{dialed} clients were sent to who is down");

    let sessions_then = sessions(&ballast, 0);
    mortal.revive();
    ballast.until(|ballast| sessions(ballast, 0) > sessions_then + 50);
    over.store(true, Ordering::SeqCst);
    let mut all_served = 0;
    for client in clients {
        let (served, failed) = client.join().unwrap();
        all_served += served;
        // Whose connection it had already when it died has lost it; nobody else has noticed.
        assert!(
            failed.iter().all(|begun| *begun <= killed),
            "{failed:?}, {killed:?}"
        );
    }
    assert!(all_served > 100, "{all_served}");
    let monitor = monitor(&ballast, 0);
    assert_eq!((monitor.downs, monitor.flaps), (1, 0));
    assert!(monitor.failed >= 3);
}

#[test]
fn connections_of_who_is_down_stay_or_are_closed() {
    for (on_down, stays) in [("keep", true), ("close", false)] {
        let is_ill = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_ill);
        let endpoint = server(move |mut client| {
            let mut bytes = [0; 1024];
            while let Ok(read @ 1..) = client.read(&mut bytes) {
                let answer: &[u8] = match (read, seen.load(Ordering::SeqCst)) {
                    (1, _) => b"!",
                    (_, true) => b"HTTP/1.1 503 No\r\n\r\n",
                    (_, false) => b"HTTP/1.1 200 OK\r\n\r\n",
                };
                client.write_all(answer).ok();
            }
        });
        let service = format!(", on-down: {on_down}, health: {{mode: http, {QUICK}}}");
        let ballast = Ballast::serve(&table("", &service, &[endpoint]), 2);
        ballast.until(|ballast| last_word(&monitor(ballast, 0)) == "L7OK");
        let mut client = ballast.connect();
        client.write_all(b"?").unwrap();
        client.read_exact(&mut [0]).unwrap();
        is_ill.store(true, Ordering::SeqCst);
        ballast.until(|ballast| !monitor(ballast, 0).is_up());
        if stays {
            client.write_all(b"?").unwrap();
            client.read_exact(&mut [0]).unwrap();
        } else {
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            ballast.until(|ballast| ballast.in_flight() == 0);
            // All are down, so that they are tried: that is for new connections.
            assert_eq!(ask_once(&ballast), b'!');
        }
    }
}

#[test]
fn when_all_fail_clients_are_refused_or_all_are_tried() {
    let endpoints = [ill(), ill()];
    let with = |all_down: &str| {
        let service = format!(", all-down: {all_down}, health: {{mode: http, {QUICK}}}");
        table("", &service, &endpoints)
    };
    let ballast = Ballast::serve(&with("try-all"), 1);
    ballast.until(|ballast| (0..2).all(|endpoint| !monitor(ballast, endpoint).is_up()));
    assert_eq!(ask(ballast.address()).unwrap(), "ill");
    let metrics = ballast.metrics();
    assert!(
        metrics.contains("ballast_service_panic{service=\"s\"} 1\n"),
        "{metrics}"
    );

    ballast.swap(&with("refuse"));
    assert!(ask(ballast.address()).is_err());
}

fn ask_once(ballast: &Ballast) -> u8 {
    let mut client = ballast.connect();
    client.write_all(b"?").expect("a question");
    let mut answer = [0];
    client.read_exact(&mut answer).expect("an answer");
    answer[0]
}

/// An endpoint that can die and come back.
struct Mortal {
    address: SocketAddr,
    listener: Option<Arc<TcpListener>>,
}

impl Mortal {
    fn new() -> Self {
        let mut mortal = Self {
            address: nobody(),
            listener: None,
        };
        mortal.revive();
        mortal
    }

    fn revive(&mut self) {
        let listener = Arc::new(TcpListener::bind(self.address).expect("its address"));
        self.address = listener.local_addr().expect("an address");
        self.listener = Some(Arc::clone(&listener));
        thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                thread::spawn(move || {
                    if client.read(&mut [0; 64]).is_ok_and(|read| read > 0) {
                        client.write_all(b"well").ok();
                    }
                });
            }
        });
    }

    /// Nobody can connect when this returns.
    fn kill(&mut self) {
        let listener = self.listener.take().expect("it lives");
        let shut = SockRef::from(&*listener).shutdown(Shutdown::Both);
        shut.expect("a listener");
    }
}
