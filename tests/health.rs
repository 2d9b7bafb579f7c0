//! Checks over real sockets: what is asked, how answers are judged, how sockets are closed, and what clients notice.

mod common;
#[path = "health/https.rs"]
mod https;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ballast::config::Admin;
use ballast::{Config, Running};
use ballast_core::endpoint::EndpointState;
use ballast_core::health::Monitor;
use ballast_core::moment::Moment;
use common::{Ballast, ask, get, named_server, nobody, server, table};
use socket2::{Domain, SockRef, Socket, Type};

#[test]
fn an_answer_followed_by_a_reset_is_an_answer() {
    // The reset comes together with the answer, before and after the question was sent.
    let http = server(|mut client| {
        if client.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\nfine").ok();
        }
        reset(client);
    });
    let banner = server(|mut client| {
        client.write_all(b"220 ready\r\n").ok();
        reset(client);
    });
    let connect = server(reset);
    let cases = [
        (http, "mode: http", "L7OK"),
        (http, "mode: http, body: fine", "L7OK"),
        (banner, "mode: tcp, answer: '220 '", "L7OK"),
        (
            banner,
            "mode: tcp, send: 'QUIT\\r\\n', answer: '220 '",
            "L7OK",
        ),
        (connect, "mode: tcp", "L4OK"),
    ];
    let services: Vec<String> = cases
        .iter()
        .zip(0..)
        .map(|((endpoint, health, _), n)| {
            format!(
                "{{name: s{n}, health: {{{health}, {QUICK}}}, endpoints: [{{address: \"{endpoint}\"}}]}}"
            )
        })
        .collect();
    let table = format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s0}}]\nservices: [{}]",
        services.join(", ")
    );
    let ballast = Ballast::serve(&table, 1);
    let monitor_of = |ballast: &Ballast, n: usize| {
        let plan = ballast.running.shared().live.plan();
        plan.services()[n].endpoints()[0].live().monitor()
    };
    let seen = |ballast: &Ballast, n| Some(monitor_of(ballast, n)?.last()?.at);
    for (n, (_, health, word)) in cases.iter().enumerate() {
        let mut last = None;
        for _ in 0..3 {
            ballast.until(|ballast| seen(ballast, n) > last);
            last = seen(&ballast, n);
            let monitor = monitor_of(&ballast, n).unwrap();
            assert_eq!(
                (monitor.failed(), last_word(&monitor)),
                (0, *word),
                "{health}"
            );
        }
    }
}

#[test]
fn a_server_that_drips_is_down_after_its_deadline() {
    let drip = server(|mut client| {
        client.set_nodelay(true).ok();
        for byte in b"HTTP/1.1 200 OK\r\nServer: a very slow one\r\n\r\n"
            .iter()
            .cycle()
        {
            if client.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(180));
        }
    });
    let ballast = Ballast::serve(
        &checked("mode: http, timeout: 200ms, interval: 200ms", &[drip]),
        1,
    );
    ballast.until(|ballast| !monitor(ballast, 0).is_up());
    let last = monitor(&ballast, 0).last().unwrap();
    assert_eq!(last.outcome.word(), "L7TOUT");
    assert!(last.took >= Duration::from_millis(200), "{:?}", last.took);
    // A deadline that each byte moves would never come.
    assert!(last.took < Duration::from_secs(10), "{:?}", last.took);
}

#[test]
fn whoever_does_not_accept_times_out_and_nobody_there_is_refused() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    listener.listen(0).unwrap();
    let full = listener.local_addr().unwrap().as_socket().unwrap();
    // The queue of one that never accepts is full after a few.
    let filling: Vec<_> = (0..4)
        .filter_map(|_| TcpStream::connect_timeout(&full, Duration::from_millis(200)).ok())
        .collect();
    assert!(filling.len() < 4);
    let ballast = Ballast::serve(&checked("mode: tcp", &[full, nobody()]), 1);
    ballast.until(|ballast| !monitor(ballast, 0).is_up() && !monitor(ballast, 1).is_up());
    assert_eq!(last_word(&monitor(&ballast, 0)), "L4TOUT");
    assert_eq!(last_word(&monitor(&ballast, 1)), "L4CON");
    let last = monitor(&ballast, 1).last().unwrap();
    assert_eq!(last.outcome.info(), Some("Connection refused"));
}

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
        assert_eq!(monitor(&ballast, 0).failed(), 0, "{health}");
        end(ballast);
        // What was on its way still arrives; then it is quiet.
        while told.recv_timeout(Duration::from_millis(300)).is_ok() {}
    }
}

#[test]
fn alternating_answers_change_nothing() {
    let turn = AtomicUsize::new(0);
    let turn = Arc::new(turn);
    let counted = Arc::clone(&turn);
    let fickle = server(move |mut client| {
        if client.read(&mut [0; 1024]).is_err() {
            return;
        }
        let answer: &[u8] = match counted.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => b"HTTP/1.1 200 OK\r\n\r\n",
            _ => b"HTTP/1.1 500 No\r\n\r\n",
        };
        client.write_all(answer).ok();
    });
    let ballast = Ballast::serve(&checked("mode: http", &[fickle]), 1);
    ballast.until(|_| turn.load(Ordering::SeqCst) >= 10);
    let monitor = monitor(&ballast, 0);
    assert!(monitor.is_up());
    assert_eq!((monitor.downs(), monitor.flaps()), (0, 0));
    assert!(monitor.failed() >= 4);
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
        assert_eq!(monitor(&ballast, 0).failed(), 0, "{health}");
        end(ballast);
        // What was on its way still arrives; then it is quiet.
        while told.recv_timeout(Duration::from_millis(300)).is_ok() {}
    }
}

#[test]
fn a_datagram_is_answered_or_it_is_not() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let answering = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut bytes = [0; 1024];
        while let Ok((read, from)) = socket.recv_from(&mut bytes) {
            match &bytes[..read] {
                b"" => socket.send_to(b"", from).ok(),
                b"silence" => None,
                question => socket.send_to(&[b"re: ", question].concat(), from).ok(),
            };
        }
    });
    for (endpoint, service, health, word) in [
        (answering, "", "mode: udp", "L7OK"),
        (answering, "", "mode: udp, send: hello", "L7OK"),
        (
            answering,
            "",
            "mode: udp, send: hello, answer: 're: h'",
            "L7OK",
        ),
        (
            answering,
            "",
            "mode: udp, send: hello, answer: hello",
            "L7RSP",
        ),
        (answering, "", "mode: udp, send: silence", "L7TOUT"),
        (nobody(), "", "mode: udp", "L4CON"),
        (
            answering,
            ", send-proxy: v2",
            "mode: udp, send: hello, answer: 're: \\r\\n\\r\\n\\x00\\r\\nQUIT\\n\\x20\\x00\\x00\\x00hello'",
            "L7OK",
        ),
    ] {
        let service = format!("{service}, health: {{{health}, {QUICK}}}");
        let ballast = Ballast::serve(&table("", &service, &[endpoint]), 1);
        ballast.until(|ballast| seen(ballast, 0).is_some());
        let monitor = monitor(&ballast, 0);
        assert_eq!(last_word(&monitor), word, "{health}");
        assert_eq!(monitor.is_up(), word == "L7OK", "{health}");
        end(ballast);
    }
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
    assert_eq!((monitor.downs(), monitor.flaps()), (1, 0));
    assert!(monitor.failed() >= 3);
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

#[test]
fn operators_find_the_checks_where_haproxy_has_them() {
    let ballast = Ballast::serve(&checked("mode: http", &[well(), ill()]), 1);
    ballast
        .until(|ballast| last_word(&monitor(ballast, 0)) == "L7OK" && !monitor(ballast, 1).is_up());
    let csv = get(ballast.running.admin()[0], "/;csv").1;
    let (names, rows) = csv.split_once('\n').unwrap();
    let names: Vec<&str> = names.trim_start_matches("# ").split(',').collect();
    let servers: Vec<Vec<&str>> = rows
        .lines()
        .map(|row| row.split(',').collect())
        .filter(|row: &Vec<&str>| row[0] == "s" && row[1].starts_with("127.0.0.1"))
        .collect();
    for (column, values) in [
        ("status", ["UP", "DOWN"]),
        ("check_code", ["200", "503"]),
        ("check_desc", ["Layer7 check passed", "Layer7 wrong status"]),
        ("check_rise", ["2", "2"]),
        ("check_fall", ["3", "3"]),
        ("check_health", ["4", "0"]),
        ("chkfail", ["0", "1"]),
        ("chkdown", ["0", "1"]),
    ] {
        let index = names.iter().position(|name| *name == column).unwrap();
        let found = [servers[0][index], servers[1][index]];
        assert_eq!(found, values, "{column}");
    }
    // A check may be under way just now.
    let index = names
        .iter()
        .position(|name| *name == "check_status")
        .unwrap();
    let words = [0, 1].map(|server: usize| servers[server][index].trim_start_matches("* "));
    assert_eq!(words, ["L7OK", "L7STS"]);
    let metrics = ballast.metrics();
    let [up, down] =
        [0, 1].map(|server: usize| format!("proxy=\"s\",server=\"{}\"", servers[server][1]));
    for line in [
        format!("haproxy_server_check_failures_total{{{down}}} 1\n"),
        format!("haproxy_server_check_status{{{down},state=\"L7STS\"}} 1\n"),
        format!("haproxy_server_check_status{{{up},state=\"L7OK\"}} 1\n"),
        format!("haproxy_server_status{{{down},state=\"DOWN\"}} 1\n"),
        format!("haproxy_server_status{{{up},state=\"UP\"}} 1\n"),
        "ballast_health_flaps_total{service=\"s\"} 0\n".into(),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
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
    await_true(|| asked.load(Ordering::SeqCst) > 5);
    let (tell, told) = mpsc::channel();
    let stopping = thread::spawn(move || {
        tell.send(()).ok();
        block_on(ballast.stop())
    });
    told.recv().unwrap();
    // What has begun may still end.
    thread::sleep(Duration::from_millis(500));
    let after = asked.load(Ordering::SeqCst);
    thread::sleep(Duration::from_millis(1_000));
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
    await_true(|| asked.lock().unwrap().len() > 200);
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

#[test]
fn another_port_is_asked() {
    let (mut names, ports) = (Vec::new(), [well(), nobody()]);
    for health in [
        format!("mode: http, port: {}", ports[0].port()),
        format!("mode: http, port: {}", ports[1].port()),
    ] {
        let ballast = Ballast::serve(&checked(&health, &[named_server("x")]), 1);
        ballast.until(|ballast| seen(ballast, 0).is_some());
        names.push(last_word(&monitor(&ballast, 0)));
        end(ballast);
    }
    assert_eq!(names, ["L7OK", "L4CON"]);
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

/// A server that is well, whoever asks.
fn well() -> SocketAddr {
    server(|mut client| {
        let mut bytes = [0; 1024];
        match client.read(&mut bytes) {
            Ok(1) => client.write_all(b"well").ok(),
            Ok(2..) => client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok(),
            _ => None,
        };
    })
}

/// A server that serves clients, and tells checks that it is ill.
fn ill() -> SocketAddr {
    server(|mut client| {
        let mut bytes = [0; 1024];
        match client.read(&mut bytes) {
            Ok(1) => client.write_all(b"ill").ok(),
            Ok(2..) => client.write_all(b"HTTP/1.1 503 No\r\n\r\n").ok(),
            _ => None,
        };
    })
}

fn reset(client: TcpStream) {
    let linger = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    linger.expect("an option");
    drop(client);
}

/// A table whose endpoints are checked quickly.
fn checked(health: &str, endpoints: &[SocketAddr]) -> String {
    let interval = if health.contains("interval") {
        ""
    } else {
        QUICK
    };
    table(
        "",
        &format!(", health: {{{health}, {interval}}}"),
        endpoints,
    )
}

fn endpoint(ballast: &Ballast, index: usize) -> Arc<EndpointState> {
    let plan = ballast.running.shared().live.plan();
    Arc::clone(plan.services()[0].endpoints()[index].live())
}

/// The monitor of an endpoint, if it is checked.
fn known(ballast: &Ballast, index: usize) -> Option<Monitor> {
    endpoint(ballast, index).monitor()
}

/// The monitor of an endpoint that is checked, or will be any moment.
fn monitor(ballast: &Ballast, index: usize) -> Monitor {
    ballast.until(|ballast| known(ballast, index).is_some());
    known(ballast, index).expect("a check")
}

/// What its last check found, in haproxy's word.
fn last_word(monitor: &Monitor) -> &'static str {
    monitor.last().map_or("", |seen| seen.outcome.word())
}

/// When its last check ended.
fn seen(ballast: &Ballast, index: usize) -> Option<Moment> {
    Some(known(ballast, index)?.last()?.at)
}

fn dials(ballast: &Ballast, index: usize) -> u64 {
    let endpoint = endpoint(ballast, index);
    let counters = endpoint.all_counters();
    counters.map_or(0, |counters| counters.sum(|counters| &counters.dials))
}

fn sessions(ballast: &Ballast, index: usize) -> u64 {
    let endpoint = endpoint(ballast, index);
    let counters = endpoint.all_counters();
    counters.map_or(0, |counters| counters.sum(|counters| &counters.sessions))
}

/// A data plane with settings of its own.
fn start(table: &str, set: impl FnOnce(&mut Config)) -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("table.yaml"), table).expect("a table");
    let mut config = Config {
        threads: Some(1),
        admin: Admin::At(Vec::new()),
        ..Config::new(folder.path().into())
    };
    set(&mut config);
    (ballast::start(config).expect("a start"), folder)
}

fn end(ballast: Ballast) {
    block_on(ballast.running.stop());
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

fn await_true(is_true: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Where something changes, and patient with a busy machine.
const QUICK: &str = "interval: 1s, fast-interval: 100ms, timeout: 1s";
