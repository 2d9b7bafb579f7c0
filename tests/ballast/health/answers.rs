//! What an answer makes of an endpoint, and where operators read of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::health::{QUICK, checked, end, ill, last_word, monitor, reset, seen, well};
use support::{Ballast, get, named_server, nobody, server, table};

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
        (banner, "mode: tcp, answer-contains: ready", "L7OK"),
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
    let seen = |ballast: &Ballast, n| Some(monitor_of(ballast, n)?.last?.at);
    for (n, (_, health, word)) in cases.iter().enumerate() {
        let mut last = None;
        for _ in 0..3 {
            ballast.until(|ballast| seen(ballast, n) > last);
            last = seen(&ballast, n);
            let monitor = monitor_of(&ballast, n).unwrap();
            assert_eq!(
                (monitor.failed, last_word(&monitor)),
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
            support::pause(Duration::from_millis(180));
        }
    });
    let ballast = Ballast::serve(
        &checked("mode: http, timeout: 200ms, interval: 200ms", &[drip]),
        1,
    );
    ballast.until(|ballast| !monitor(ballast, 0).is_up());
    let last = monitor(&ballast, 0).last.unwrap();
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
    let last = monitor(&ballast, 1).last.unwrap();
    assert_eq!(last.outcome.info(), Some("Connection refused"));
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
    assert_eq!((monitor.downs, monitor.flaps), (0, 0));
    assert!(monitor.failed >= 4);
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
