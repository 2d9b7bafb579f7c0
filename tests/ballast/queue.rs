//! `ballast`: clients that wait while every endpoint is full.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use support::crowd::{Client, Presence, is_reset, quiet_runtime, rush, serve_as, servers};
use support::{Ballast, nobody};

/// A table of one service with these fields, and endpoints that each take so many.
fn table(service: &str, most: u32, endpoints: &[SocketAddr]) -> String {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|address| format!("{{address: \"{address}\", max-connections: {most}}}"))
        .collect();
    format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}]\nservices: [{{name: s{service}, endpoints: [{}]}}]\n",
        endpoints.join(", ")
    )
}

fn from_here(to: SocketAddr) -> Client {
    Client::from(Ipv4Addr::LOCALHOST.octets(), to).expect("a connection")
}

/// A client that has an endpoint.
fn come(ballast: &Ballast) -> Client {
    let mut client = from_here(ballast.address());
    client.ask().expect("an answer");
    client
}

/// A client that has asked, and has the last place in the queue.
fn line_up(ballast: &Ballast) -> Client {
    let before = waiting(ballast);
    let mut client = from_here(ballast.address());
    client.stream.write_all(b"?").expect("a connection");
    ballast.until(|ballast| waiting(ballast) == before + 1);
    client
}

fn waiting(ballast: &Ballast) -> usize {
    ballast.running.shared().live.plan().services()[0]
        .state()
        .queue()
        .len()
}

fn until_refused(ballast: &Ballast, reason: &str, count: u64) {
    let line = format!(
        "ballast_connections_refused_total{{frontend=\"f\",reason=\"{reason}\"}} {count}\n"
    );
    ballast.until(|ballast| ballast.metrics().contains(&line));
}

#[test]
fn who_finds_the_queue_full_is_reset() {
    let ballast = Ballast::serve(
        &table(", max-queue: 2, timeouts: {queue: 60s}", 1, &servers(1)),
        2,
    );
    let first = come(&ballast);
    let mut line = [line_up(&ballast), line_up(&ballast)];
    assert!(
        ballast
            .metrics()
            .contains("ballast_queue_waiting{service=\"s\"} 2\n")
    );
    for count in 1..=3 {
        assert!(is_reset([127, 0, 0, 1], ballast.address(), ""));
        until_refused(&ballast, "queue-full", count);
    }
    drop(first);
    line[0].answer().unwrap();
    assert!(line[1].still_waits());
}

#[test]
fn without_a_queue_nobody_waits() {
    let ballast = Ballast::serve(&table(", max-queue: off", 1, &servers(2)), 2);
    let _two = [come(&ballast), come(&ballast)];
    assert!(is_reset([127, 0, 0, 1], ballast.address(), ""));
    until_refused(&ballast, "queue-full", 1);
}

#[test]
fn who_waits_too_long_is_reset() {
    let ballast = Ballast::serve(&table(", timeouts: {queue: 300ms}", 1, &servers(1)), 2);
    let mut first = come(&ballast);
    let begun = Instant::now();
    assert!(is_reset([127, 0, 0, 1], ballast.address(), ""));
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(295), "{waited:?}");
    until_refused(&ballast, "queue-timeout", 1);
    ballast.until(|ballast| waiting(ballast) == 0);
    first.ask().unwrap();
}

#[test]
fn who_came_first_is_served_first() {
    let ballast = Ballast::serve(&table(", timeouts: {queue: 60s}", 1, &servers(1)), 2);
    let mut now = come(&ballast);
    let line: Vec<_> = (0..20).map(|_| line_up(&ballast)).collect();
    for (place, mut next) in line.into_iter().enumerate() {
        now.ask().unwrap();
        assert!(next.still_waits(), "{place}");
        drop(now);
        next.answer().unwrap();
        now = next;
    }
    drop(now);
    ballast.until(|ballast| ballast.in_flight() == 0 && waiting(ballast) == 0);
}

#[test]
fn a_table_with_more_room_serves_who_waits() {
    let servers = servers(2);
    let long = ", timeouts: {queue: 60s}";
    let ballast = Ballast::serve(&table(long, 1, &servers[..1]), 2);
    let _first = come(&ballast);
    let mut line: Vec<_> = (0..6).map(|_| line_up(&ballast)).collect();
    let mut answers = |count: usize| {
        for mut client in line.drain(..count) {
            client.answer().unwrap();
        }
    };
    // Another endpoint, more room at both, and at last another queue's length for who is left.
    ballast.swap(&table(long, 1, &servers));
    answers(1);
    ballast.swap(&table(long, 3, &servers));
    answers(4);
    ballast.swap(&table(", max-queue: off", 4, &servers));
    answers(1);
}

#[test]
fn who_waits_for_a_service_that_another_replaces_is_served_there() {
    let servers = servers(2);
    let long = ", timeouts: {queue: 60s}";
    let ballast = Ballast::serve(&table(long, 1, &servers[..1]), 1);
    let mut first = come(&ballast);
    let line: Vec<_> = (0..3).map(|_| line_up(&ballast)).collect();
    let other = table(long, 1, &servers[1..]);
    ballast.swap(
        &other
            .replace("service: s}", "service: t}")
            .replace("name: s,", "name: t,"),
    );
    for (served, mut client) in line.into_iter().enumerate() {
        // Those behind it wait there, too.
        ballast.until(|ballast| waiting(ballast) == 2 - served);
        assert_eq!(client.answer().unwrap(), servers[1]);
    }
    assert_eq!(first.ask().unwrap(), servers[0]);
}

#[test]
fn the_time_in_the_queue_counts_on_at_another_service() {
    let servers = servers(2);
    let text = |leads_to: &str| {
        let both = ["s", "t"].iter().zip(&servers);
        let both = both.map(|(name, address)| {
            format!("{{name: {name}, timeouts: {{queue: 3s}}, endpoints: [{{address: \"{address}\", max-connections: 1}}]}}")
        });
        format!(
            "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: {leads_to}}}]\nservices: [{}]\n",
            both.collect::<Vec<_>>().join(", ")
        )
    };
    let ballast = Ballast::serve(&text("t"), 1);
    let _at_t = come(&ballast);
    ballast.swap(&text("s"));
    let _at_s = come(&ballast);
    let begun = Instant::now();
    let mut client = line_up(&ballast);
    support::pause(Duration::from_secs(2));
    ballast.swap(&text("t"));
    assert!(client.answer().is_err());
    let waited = begun.elapsed();
    // Three seconds more, if the second wait were one of its own.
    let times = Duration::from_millis(2_950)..Duration::from_millis(4_800);
    assert!(times.contains(&waited), "{waited:?}");
    until_refused(&ballast, "queue-timeout", 1);
}

#[test]
fn who_waits_for_a_service_that_goes_learns_it_at_once() {
    let server = servers(1)[0];
    let text = table(", timeouts: {queue: 60s}", 1, &[server]);
    let ballast = Ballast::serve(&text, 2);
    let mut first = come(&ballast);
    let line: Vec<_> = (0..3).map(|_| line_up(&ballast)).collect();
    // The frontend serves requests now, which these clients are not.
    ballast.swap(
        &text
            .replace("tcp, service: s}", "http, default: {service: t}}")
            .replace("name: s,", "name: t,"),
    );
    for mut client in line {
        assert!(client.answer().is_err(), "its service is gone");
    }
    until_refused(&ballast, "no-endpoint", 3);
    assert_eq!(first.ask().unwrap(), server);
}

#[test]
fn who_failed_at_one_endpoint_and_waits_for_another_holds_up_nobody() {
    let (late, alive) = (nobody(), servers(1)[0]);
    let fields = ", algorithm: first, ejection: off, timeouts: {queue: 60s}";
    let ballast = Ballast::serve(&table(fields, 1, &[late, alive]), 2);
    let first = come(&ballast);
    let mut second = line_up(&ballast);

    // Whom it has tried in vain is there now, and has room for those who come.
    let server = TcpListener::bind(late).unwrap();
    thread::spawn(move || {
        for mut client in server.incoming().flatten() {
            thread::spawn(move || {
                while client.read(&mut [0; 8]).is_ok_and(|read| read > 0) {
                    writeln!(client, "{late}").ok();
                }
            });
        }
    });
    for _ in 0..3 {
        let mut next = from_here(ballast.address());
        assert_eq!(next.ask().unwrap(), late);
        assert!(second.still_waits());
        drop(next);
        ballast.until(|ballast| ballast.in_flight() == 1);
    }
    drop(first);
    assert_eq!(second.answer().unwrap(), alive);
}

#[test]
fn the_time_to_connect_does_not_run_in_the_queue() {
    let alive = servers(1)[0];
    let fields = ", algorithm: first, timeouts: {connect: 500ms, queue: 60s}";
    let ballast = Ballast::serve(&table(fields, 1, &[nobody(), alive]), 2);
    let first = come(&ballast);
    // It is refused by the one, and then waits for the other.
    let mut second = line_up(&ballast);
    support::pause(Duration::from_millis(1_000));
    drop(first);
    assert_eq!(second.answer().unwrap(), alive);
    let ejected = "ballast_ejections_total{service=\"s\",reason=\"timeout\"} 0\n";
    let metrics = ballast.metrics();
    assert!(metrics.contains(ejected), "{metrics}");
}

#[test]
fn who_is_cut_while_it_waits_has_a_line_that_says_so() {
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let to = syslog.local_addr().unwrap();
    let log = format!("version: 1\nlog: {{access: haproxy, to: [\"udp:{to}\"]}}\n");
    let text = table(", timeouts: {queue: 60s}", 1, &servers(1)).replace("version: 1\n", &log);
    let ballast = serve_as(&text, 1, |settings| {
        settings.drain_timeout = Duration::from_millis(100);
    });
    let _first = come(&ballast);
    let _second = line_up(&ballast);
    quiet_runtime().block_on(ballast.running.stop());
    let mut ends: Vec<_> = (0..2)
        .map(|_| {
            let mut bytes = [0; 2048];
            let read = syslog.recv(&mut bytes).unwrap();
            let line = String::from_utf8_lossy(&bytes[..read]).into_owned();
            ["KD", "KQ", "KC"].map(|letters| line.contains(&format!(" {letters} ")))
        })
        .collect();
    ends.sort_unstable();
    assert_eq!(ends, [[false, true, false], [true, false, false]]);
}

#[test]
fn no_endpoint_has_more_than_its_limit_and_nobody_is_stranded_whoever_leaves() {
    let strict: Vec<_> = (0..3).map(|_| strict_server()).collect();
    let addresses: Vec<_> = strict.iter().map(|(address, _)| *address).collect();
    let ballast = Ballast::serve(&table(", timeouts: {queue: 60s}", 1, &addresses), 2);
    let served = rush(ballast.address(), |mut guest, _| async move {
        guest.ask().await.map(drop)
    });
    let most = strict.iter().map(|(_, presence)| presence.most()).max();
    println!("{served} of 500 served, at most {most:?} at once");
    assert_eq!(most, Some(1));
    ballast.until(|ballast| ballast.in_flight() == 0 && waiting(ballast) == 0);
    for endpoint in ballast.running.shared().live.plan().services()[0].endpoints() {
        assert_eq!(endpoint.live().peak(), 1);
    }
}

/// A server that notes how many of its clients are there at once, and now and then ends one's connection.
fn strict_server() -> (SocketAddr, Arc<Presence>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let presence = Arc::new(Presence::default());
    let there = Arc::clone(&presence);
    thread::spawn(move || {
        for (count, client) in listener.incoming().flatten().enumerate() {
            there.comes(count, &client);
            let serve = move |mut client: TcpStream| {
                if client.read(&mut [0]).is_ok_and(|read| read == 1) {
                    writeln!(client, "{address}").ok();
                }
                // Kept open until the client goes, unless it is one of those that it ends itself.
                if count % 5 > 0 {
                    let _gone = client.read(&mut [0]);
                }
                client.shutdown(std::net::Shutdown::Both).ok();
            };
            thread::spawn(move || serve(client));
        }
    });
    (address, presence)
}
