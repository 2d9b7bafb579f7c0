//! `ballast`: a table served over real sockets: choice, limits, PROXY, swaps, endings.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use support::{Ballast, ask, echo_server, free_port, get, named_server, nobody, server, table};

#[test]
fn clients_take_turns_at_the_endpoints() {
    let ballast = Ballast::serve(&table("", "", &[named_server("a"), named_server("b")]), 2);
    let mut heard = BTreeMap::new();
    for _ in 0..20 {
        *heard.entry(ask(ballast.address()).unwrap()).or_insert(0) += 1;
    }
    assert_eq!(heard, BTreeMap::from([("a".into(), 10), ("b".into(), 10)]));
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_refused_endpoint_costs_its_clients_nothing() {
    let ballast = Ballast::serve(&table("", "", &[nobody(), named_server("b")]), 1);
    for _ in 0..10 {
        let begun = Instant::now();
        assert_eq!(ask(ballast.address()).unwrap(), "b");
        assert!(
            begun.elapsed() < Duration::from_millis(50),
            "{:?}",
            begun.elapsed()
        );
    }
    let metrics = ballast.metrics();
    assert!(
        metrics.contains("ballast_ejections_total{service=\"s\",reason=\"refused\"} 1\n"),
        "{metrics}"
    );
}

#[test]
fn all_attempts_failed_is_a_reset_and_counted() {
    let ballast = Ballast::serve(&table("", "", &[nobody()]), 1);
    assert!(ask(ballast.address()).is_err());
    let refused = "ballast_connections_refused_total{frontend=\"f\",reason=\"failed\"} 1\n";
    ballast.until(|ballast| ballast.metrics().contains(refused));
}

#[test]
fn an_address_outside_the_ranges_is_reset_and_counted() {
    let ballast = Ballast::serve(
        &table(", source-ranges: [\"192.0.2.0/24\"]", "", &[echo_server()]),
        1,
    );
    assert!(ask(ballast.address()).is_err());
    let refused = "ballast_connections_refused_total{frontend=\"f\",reason=\"source-range\"} 1\n";
    ballast.until(|ballast| ballast.metrics().contains(refused));
}

#[test]
fn a_frontend_at_its_limit_goes_on_as_soon_as_somebody_leaves() {
    let ballast = Ballast::serve(&table(", max-connections: 2", "", &[echo_server()]), 2);
    for _ in 0..200 {
        let mut two = [ballast.connect(), ballast.connect()];
        for client in &mut two {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    let mut last = ballast.connect();
    last.write_all(b"x").unwrap();
    last.read_exact(&mut [0]).unwrap();
}

#[test]
fn an_endpoint_never_has_more_than_its_limit_and_nobody_is_stranded() {
    let now = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let most = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (counted, peak) = (now, std::sync::Arc::clone(&most));
    let one = server(move |mut client| {
        use std::sync::atomic::Ordering::SeqCst;
        peak.fetch_max(counted.fetch_add(1, SeqCst) + 1, SeqCst);
        let mut byte = [0];
        let asked = client.read(&mut byte);
        counted.fetch_sub(1, SeqCst);
        if asked.is_ok() {
            client.write_all(b"done").ok();
        }
    });
    let text = format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}]\nservices: [{{name: s, timeouts: {{queue: 20s}}, endpoints: [{{address: \"{one}\", max-connections: 1}}]}}]\n"
    );
    let ballast = Ballast::serve(&text, 2);
    let address = ballast.address();
    let clients: Vec<_> = (0..100)
        .map(|_| thread::spawn(move || ask(address).unwrap()))
        .collect();
    for client in clients {
        assert_eq!(client.join().unwrap(), "done");
    }
    assert_eq!(most.load(std::sync::atomic::Ordering::SeqCst), 1);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_proxy_header_passes_from_a_trusted_peer_to_the_endpoint() {
    let ballast = Ballast::serve(
        &table(
            ", accept-proxy: {from: [\"127.0.0.0/8\"]}",
            ", send-proxy: v1",
            &[echo_server()],
        ),
        1,
    );
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\nhello";
    for split in 0..line.len() {
        let mut client = ballast.connect();
        client.set_nodelay(true).unwrap();
        client.write_all(&line[..split]).unwrap();
        thread::yield_now();
        client.write_all(&line[split..]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, line, "split at {split}");
    }
}

#[test]
fn a_trusted_peer_without_a_header_is_reset_but_a_port_probe_is_no_error() {
    let ballast = Ballast::serve(
        &table(
            ", accept-proxy: {from: [\"127.0.0.0/8\"]}",
            "",
            &[echo_server()],
        ),
        1,
    );
    drop(ballast.connect());
    let mut client = ballast.connect();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(client.read(&mut [0; 16]).is_err());
    let counted = "ballast_proxy_header_errors_total{frontend=\"f\",reason=\"bad-header\"} 1\n";
    ballast.until(|ballast| ballast.metrics().contains(counted));
}

#[test]
fn bytes_of_an_untrusted_peer_are_data() {
    let ballast = Ballast::serve(
        &table(
            ", accept-proxy: {from: [\"192.0.2.0/24\"]}",
            "",
            &[echo_server()],
        ),
        1,
    );
    let mut client = ballast.connect();
    let line = *b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
    client.write_all(&line).unwrap();
    let mut heard = [0; 45];
    client.read_exact(&mut heard).unwrap();
    assert_eq!(heard, line);
}

#[test]
fn a_swap_keeps_sockets_and_connections_and_serves_the_new_endpoint() {
    let (old, new) = (echo_server(), named_server("new"));
    let ballast = Ballast::serve(&table("", "", &[old]), 2);
    let before = ballast.running.shared().status.listening();
    let mut held = ballast.connect();
    held.write_all(b"1").unwrap();
    held.read_exact(&mut [0]).unwrap();

    ballast.swap(&table("", "", &[new]));
    assert_eq!(ask(ballast.address()).unwrap(), "new");
    assert_eq!(ballast.running.shared().status.listening(), before);
    held.write_all(b"2").unwrap();
    let mut byte = [0];
    held.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"2");
}

#[test]
fn a_refused_table_leaves_everything_as_it_is_and_says_why() {
    let ballast = Ballast::serve(&table("", "", &[named_server("a")]), 1);
    ballast.swap(
        "version: 1\nfrontends: [{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: t}]\n",
    );
    assert_eq!(ask(ballast.address()).unwrap(), "a");
    let refused = ballast.ack().unwrap().refused.unwrap();
    assert_eq!(refused.problems[0].at, "frontends[0].service");
    assert!(
        ballast
            .metrics()
            .contains("ballast_table_refused_total 1\n")
    );

    ballast.swap(&table("", "", &[named_server("b")]));
    assert_eq!(ask(ballast.address()).unwrap(), "b");
    assert_eq!(ballast.ack().unwrap().refused, None);
}

#[test]
fn without_endpoints_nobody_listens_and_the_ack_says_idle() {
    let ballast = Ballast::serve(&table("", "", &[named_server("a")]), 1);
    let address = ballast.address();
    assert!(ask(address).is_ok());
    ballast.swap(&table("", "", &[]));
    assert!(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err());
    let exceptions = ballast.ack().unwrap().exceptions;
    assert_eq!(exceptions[0].state.word(), "idle");
}

#[test]
fn swaps_under_load_fail_no_client_and_counts_return_to_zero() {
    let servers: [SocketAddr; 3] = [named_server("a"), named_server("b"), named_server("c")];
    let ballast = Ballast::serve(&table("", "", &servers[..2]), 2);
    let address = ballast.address();
    let enough = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let enough = std::sync::Arc::clone(&enough);
            thread::spawn(move || {
                let mut served = 0;
                while !enough.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(!ask(address).unwrap().is_empty());
                    served += 1;
                }
                served
            })
        })
        .collect();
    let (mut swaps, begun) = (0, Instant::now());
    while swaps < 30 || begun.elapsed() < Duration::from_secs(2) {
        let some = [&servers[1..], &servers[..], &servers[..2]][swaps % 3];
        ballast.swap(&table("", "", some));
        swaps += 1;
    }
    enough.store(true, std::sync::atomic::Ordering::Relaxed);
    let served: u32 = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .sum();
    assert!(served > 100, "{swaps} swaps, {served} served");
    ballast.until(|ballast| ballast.in_flight() == 0);
    ballast.until(|ballast| {
        ballast
            .running
            .shared()
            .status
            .retired
            .load(std::sync::atomic::Ordering::Relaxed)
            == 0
    });
}

#[test]
fn a_client_that_aborts_in_the_queue_gives_up_its_place() {
    let text = table("", ", timeouts: {queue: 20s}", &[echo_server()])
        .replace("}]}\n", ", max-connections: 1}]}\n");
    let ballast = Ballast::serve(&text, 1);
    let waiting = |ballast: &Ballast, many| {
        let service = ballast.running.shared().live.plan();
        service.services()[0].state().queue().len() == many
    };
    let mut first = ballast.connect();
    first.write_all(b"x").unwrap();
    first.read_exact(&mut [0]).unwrap();
    let second = ballast.connect();
    ballast.until(|ballast| waiting(ballast, 1));
    socket2::SockRef::from(&second)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(second);
    ballast.until(|ballast| waiting(ballast, 0));
    let metrics = ballast.metrics();
    for line in [
        "haproxy_backend_client_aborts_total{proxy=\"s\"} 1\n",
        "haproxy_backend_connection_errors_total{proxy=\"s\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn connections_of_an_endpoint_can_be_cut_and_are_counted_as_ended() {
    let (a, b) = (echo_server(), echo_server());
    let ballast = Ballast::serve(&table("", "", &[a, b]), 2);
    let mut clients: Vec<_> = (0..8).map(|_| ballast.connect()).collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    let plan = ballast.running.shared().live.plan();
    let endpoint = plan.services()[0].endpoints()[0].live();
    assert_eq!(endpoint.in_flight(), 4);
    ballast
        .running
        .shared()
        .cut(vec![std::sync::Arc::clone(endpoint)]);
    ballast.until(|ballast| ballast.in_flight() == 4);
    let ended = endpoint
        .all_counters()
        .map(|counters| counters.sum(|counters| &counters.ended));
    assert_eq!(ended, Some(4));
    // A connection counts as ended before its socket is closed.
    let mut cut = 0;
    let heard = support::comes_within(Duration::from_secs(20), || {
        cut += clients.iter_mut().filter_map(reset_of).count();
        cut >= 4
    });
    assert!(heard && cut == 4, "each of four hears a reset: {cut}");
}

/// The reset that this client has heard.
fn reset_of(client: &mut TcpStream) -> Option<std::io::Error> {
    client.set_nonblocking(true).expect("an option");
    let error = client.read(&mut [0]).err()?;
    (error.kind() == std::io::ErrorKind::ConnectionReset).then_some(error)
}

#[test]
fn connections_stay_with_a_removed_endpoint_unless_the_table_says_otherwise() {
    for (word, stays) in [("keep", true), ("close", false)] {
        let (old, new) = (echo_server(), echo_server());
        let service = format!(", on-removed: {word}");
        let ballast = Ballast::serve(&table("", &service, &[old]), 2);
        let mut client = ballast.connect();
        client.write_all(b"1").unwrap();
        client.read_exact(&mut [0]).unwrap();
        ballast.swap(&table("", &service, &[new]));
        client.write_all(b"2").ok();
        assert_eq!(client.read_exact(&mut [0]).is_ok(), stays, "{word}");
        // One that comes back has connections again.
        ballast.swap(&table("", &service, &[old]));
        let mut client = ballast.connect();
        client.write_all(b"3").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn the_admin_side_follows_the_table() {
    let (one, two) = (free_port(), free_port());
    let with = |port| format!("version: 1\nstats: {{bind: [\"127.0.0.1:{port}\"]}}\n");
    let ballast = Ballast::serve_from_table(&with(one));
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    assert!(get(at(one), "/readyz").0.contains("200"));
    ballast.swap(&with(two));
    ballast.until(|ballast| ballast.running.admin() == [at(two)]);
    assert!(get(at(two), "/readyz").0.contains("200"));
    assert!(TcpStream::connect(at(one)).is_err());
}

#[test]
fn the_end_is_announced_and_lets_connections_finish() {
    let ballast = Ballast::serve(&table("", "", &[echo_server()]), 2);
    let (address, admin) = (ballast.address(), ballast.running.admin()[0]);
    assert!(get(admin, "/readyz").0.contains("200"));
    let mut held = ballast.connect();
    held.write_all(b"1").unwrap();
    held.read_exact(&mut [0]).unwrap();
    let finishing = thread::spawn(move || {
        support::until("nobody listens", || {
            TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err()
        });
        assert!(get(admin, "/readyz").0.contains("503"));
        held.write_all(b"2").unwrap();
        held.read_exact(&mut [0]).unwrap();
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(
        runtime.block_on(ballast.running.stop()),
        0,
        "nothing was cut"
    );
    finishing.join().unwrap();
}

/// Tests start many of them in one process, and each has a share of what the system has.
#[test]
fn a_data_plane_that_is_dropped_serves_nobody() {
    let ballast = Ballast::serve(&table("", "", &[named_server("a")]), 1);
    let address = ballast.address();
    let admin = ballast.running.admin()[0];
    assert_eq!(ask(address).unwrap(), "a");
    drop(ballast);
    for address in [address, admin] {
        support::until("nobody listens", || TcpStream::connect(address).is_err());
    }
}
