//! Datagrams and flows in everything that operators read, and the checks of their endpoints.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use ballast::stats::{self, Of, Selection};
use ballast_core::counters::Counts;

use crate::stats::readers::families;
use crate::stats::{await_rows, metrics, number, row, text};
use support::Ballast;

#[test]
fn flows_and_datagrams_are_counted_where_they_belong() {
    let ballast = Ballast::serve(&served(echo()), 2);
    talk(&ballast);
    let rows = await_rows(&ballast, |rows| {
        let of = |column| number(rows, "dns", "FRONTEND", column);
        of("bout") == 40 && of("scur") == 0
    });
    for (proxy, server, column, value) in [
        ("dns", "FRONTEND", "mode", "udp"),
        ("dns", "FRONTEND", "status", "OPEN"),
        ("dns", "FRONTEND", "stot", "5"),
        ("dns", "FRONTEND", "conn_tot", "5"),
        ("dns", "FRONTEND", "bin", "40"),
        ("dns", "FRONTEND", "bout", "40"),
        ("dns", "FRONTEND", "dcon", "0"),
        ("closed", "FRONTEND", "dcon", "3"),
        ("closed", "FRONTEND", "stot", "0"),
        ("headed", "FRONTEND", "ereq", "2"),
        ("headed", "FRONTEND", "dcon", "0"),
        ("pool", "BACKEND", "mode", "udp"),
        ("pool", "BACKEND", "stot", "5"),
        ("pool", "BACKEND", "lbtot", "5"),
        ("pool", "one", "stot", "5"),
        ("pool", "one", "bin", "40"),
        ("pool", "one", "bout", "40"),
        ("pool", "one", "mode", "udp"),
    ] {
        assert_eq!(
            row(&rows, proxy, server)[column],
            value,
            "{proxy}/{server} {column}"
        );
    }
    assert_ne!(number(&rows, "dns", "FRONTEND", "smax"), 0);
}

#[test]
fn metrics_tell_everything_of_datagrams() {
    let ballast = Ballast::serve(&served(echo()), 2);
    talk(&ballast);
    await_rows(&ballast, |rows| {
        number(rows, "dns", "FRONTEND", "bout") == 40
            && number(rows, "dns", "FRONTEND", "scur") == 0
    });
    let all = metrics(&ballast, "");
    families(&all).unwrap();
    let ours = |line: &&str| line.contains("ballast_udp") && !line.contains("frontend=\"headed\"");
    let ours: Vec<&str> = all.lines().filter(ours).collect();
    assert_eq!(ours.join("\n"), METRICS.trim());
    assert!(
        all.contains("ballast_udp_dropped_total{frontend=\"headed\",reason=\"proxy-header\"} 2\n")
    );
    // They are counted there only.
    assert!(!all.contains("ballast_connections_refused_total{frontend=\"dns\""));
    assert!(all.contains("ballast_connections_refused_total{frontend=\"web\""));
    assert!(!all.contains("ballast_udp_flows{frontend=\"web\""));
}

#[test]
fn json_typed_and_cleared_counts_agree() {
    let ballast = Ballast::serve(&served(echo()), 1);
    talk(&ballast);
    await_rows(&ballast, |rows| {
        number(rows, "dns", "FRONTEND", "bout") == 40
            && number(rows, "dns", "FRONTEND", "scur") == 0
    });
    let stats = ballast.running.stats();
    let snapshot = || stats.snapshot();
    let api = || -> serde_json::Value {
        serde_json::from_str(&text(stats::api(snapshot(), Selection::default()))).unwrap()
    };
    let all = api();
    let frontend = |all: &serde_json::Value, name: &str| {
        let frontends = all["frontends"].as_array().unwrap();
        let found = frontends.iter().find(|one| one["name"] == name);
        found.expect(name).clone()
    };
    let datagrams = &frontend(&all, "dns")["datagrams"];
    assert_eq!(
        (&datagrams["in"], &datagrams["out"]),
        (&5.into(), &5.into())
    );
    assert_eq!(datagrams["flows_ended"]["responses"], 5);
    let closed = frontend(&all, "closed");
    assert_eq!(closed["datagrams"]["dropped"]["source-range"], 3);
    assert_eq!(closed["errors"], 3);
    assert!(frontend(&all, "web").get("datagrams").is_none());
    assert_eq!(all["info"]["flows"], 0);
    let typed = text(stats::typed(snapshot(), Selection::default()));
    assert!(typed.contains(".75.mode.1:CGSV:str:udp\n"), "{typed}");
    assert!(typed.contains(".81.dcon.1:MCPV:u64:3\n"), "{typed}");

    stats.clear(true);
    let cleared = frontend(&api(), "dns")["datagrams"].clone();
    assert_eq!(cleared["in"], 0);
    assert_eq!(cleared["flows_ended"]["responses"], 0);
    assert_eq!(frontend(&api(), "closed")["errors"], 0);
    talk(&ballast);
    ballast.until(|_| frontend(&api(), "dns")["datagrams"]["out"] == 5);
}

#[test]
fn live_flows_are_seen_until_they_end() {
    let table = served(echo()).replace(", udp: {responses: 1}", "");
    let ballast = Ballast::serve(&table, 2);
    let clients: Vec<UdpSocket> = (0..3).map(|_| ask(bound(&ballast, "dns"))).collect();
    let rows = await_rows(&ballast, |rows| {
        number(rows, "dns", "FRONTEND", "scur") == 3
    });
    assert_eq!(number(&rows, "pool", "one", "scur"), 3);
    assert!(metrics(&ballast, "").contains("ballast_udp_flows{frontend=\"dns\"} 3\n"));
    let stats = ballast.running.stats();
    assert_eq!(stats.snapshot().process.flows, 3);
    ballast.until(|_| {
        let history = stats.history(Of::All).unwrap();
        // A second that came late stands for up to one and a half: two thirds of the 24 bytes are sure.
        history.iter().any(|second| second.current == 3)
            && history.iter().map(|second| second.bytes_out).sum::<u64>() >= 16
    });
    drop(clients);
}

#[test]
fn an_endpoint_where_nobody_listens_has_errors() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr();
    let ballast = Ballast::serve(&served(nobody.unwrap()), 1);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let rows = await_rows(&ballast, |rows| {
        client.send_to(b"question", bound(&ballast, "dns")).unwrap();
        number(rows, "pool", "one", "econ") >= 1
    });
    assert!(number(&rows, "pool", "BACKEND", "econ") >= 1);
    assert_eq!(number(&rows, "dns", "FRONTEND", "bout"), 0);
}

#[test]
fn checks_of_datagrams_are_shown_like_others() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let text = format!(
        "version: 1\nfrontends: [{{name: dns, bind: [\"127.0.0.1:0\"], protocol: udp, service: pool}}]\nservices: [{{name: pool, health: {{mode: udp, send: well, answer: well, interval: 200ms, timeout: 150ms}}, endpoints: [{{name: one, address: \"{}\"}}, {{name: nobody, address: \"{nobody}\"}}, {{name: silent, address: \"{}\"}}]}}]\n",
        echo(),
        silent.local_addr().unwrap()
    );
    let ballast = Ballast::serve(&text, 1);
    let rows = await_rows(&ballast, |rows| {
        let status = |server, word: &str| row(rows, "pool", server)["check_status"].ends_with(word);
        status("one", "L7OK") && status("nobody", "L4CON") && status("silent", "L7TOUT")
    });
    for (server, status) in [("one", "UP"), ("nobody", "DOWN"), ("silent", "DOWN")] {
        assert_eq!(row(&rows, "pool", server)["status"], status, "{server}");
        assert_ne!(row(&rows, "pool", server)["check_rise"], "", "{server}");
    }
    assert_eq!(row(&rows, "pool", "BACKEND")["act"], "1");
    assert_eq!(number(&rows, "pool", "nobody", "chkdown"), 1);
}

/// Five questions that are answered, three of a client that may not ask, two without the header that is due.
fn talk(ballast: &Ballast) {
    (0..5).for_each(|_| drop(ask(bound(ballast, "dns"))));
    for (name, count) in [("closed", 3), ("headed", 2)] {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..count {
            client.send_to(b"question", bound(ballast, name)).unwrap();
        }
    }
    ballast.until(|ballast| {
        let stats = ballast.running.stats();
        let snapshot = stats.snapshot();
        let lost = snapshot
            .frontends
            .iter()
            .filter_map(|frontend| Some(frontend.datagrams.as_deref()?.failed()));
        lost.sum::<u64>() >= 5
    });
}

/// A client that has asked and was answered.
fn ask(address: SocketAddr) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    client.send(b"question").unwrap();
    assert_eq!(client.recv(&mut [0; 100]).unwrap(), 8);
    client
}

fn bound(ballast: &Ballast, name: &str) -> SocketAddr {
    let listening = ballast.running.shared().status.listening();
    let of_frontend = |key: &ballast_core::plan::SocketKey| {
        key.asked_by.as_ref().is_some_and(|asked| **asked == *name)
    };
    let mut found = listening.iter().filter(|(key, _)| of_frontend(key));
    *found.next().expect(name).1
}

/// An endpoint that sends back whatever it hears.
fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut bytes = [0; 2048];
        // Whoever asked may have gone: that is no reason to stop.
        loop {
            if let Ok((length, peer)) = socket.recv_from(&mut bytes) {
                socket.send_to(&bytes[..length], peer).ok();
            }
        }
    });
    address
}

fn served(endpoint: SocketAddr) -> String {
    format!(
        r#"
version: 1
frontends:
  - {{name: dns, bind: ["127.0.0.1:0"], protocol: udp, service: pool, udp: {{responses: 1}}}}
  - {{name: closed, bind: ["127.0.0.1:0"], protocol: udp, service: pool, source-ranges: ["192.0.2.0/24"]}}
  - {{name: headed, bind: ["127.0.0.1:0"], protocol: udp, service: pool, accept-proxy: {{from: ["127.0.0.0/8"]}}}}
  - {{name: web, bind: ["127.0.0.1:0"], protocol: tcp, service: web}}
services:
  - {{name: pool, endpoints: [{{name: one, address: "{endpoint}"}}]}}
  - {{name: web, endpoints: [{{address: "192.0.2.1:80"}}]}}
"#
    )
}

/// Of the frontends `dns` and `closed`.
const METRICS: &str = r#"
# HELP ballast_udp_flows Flows now.
# TYPE ballast_udp_flows gauge
ballast_udp_flows{frontend="dns"} 0
ballast_udp_flows{frontend="closed"} 0
# HELP ballast_udp_flows_created_total Flows that began.
# TYPE ballast_udp_flows_created_total counter
ballast_udp_flows_created_total{frontend="dns"} 5
ballast_udp_flows_created_total{frontend="closed"} 0
# HELP ballast_udp_flows_ended_total Flows that are over, by reason.
# TYPE ballast_udp_flows_ended_total counter
ballast_udp_flows_ended_total{frontend="dns",reason="idle"} 0
ballast_udp_flows_ended_total{frontend="dns",reason="requests"} 0
ballast_udp_flows_ended_total{frontend="dns",reason="responses"} 5
ballast_udp_flows_ended_total{frontend="dns",reason="endpoint"} 0
ballast_udp_flows_ended_total{frontend="dns",reason="refused"} 0
ballast_udp_flows_ended_total{frontend="dns",reason="per-datagram"} 0
ballast_udp_flows_ended_total{frontend="dns",reason="evicted"} 0
ballast_udp_flows_ended_total{frontend="closed",reason="idle"} 0
ballast_udp_flows_ended_total{frontend="closed",reason="requests"} 0
ballast_udp_flows_ended_total{frontend="closed",reason="responses"} 0
ballast_udp_flows_ended_total{frontend="closed",reason="endpoint"} 0
ballast_udp_flows_ended_total{frontend="closed",reason="refused"} 0
ballast_udp_flows_ended_total{frontend="closed",reason="per-datagram"} 0
ballast_udp_flows_ended_total{frontend="closed",reason="evicted"} 0
# HELP ballast_udp_datagrams_total Datagrams that were passed on; those of clients are in.
# TYPE ballast_udp_datagrams_total counter
ballast_udp_datagrams_total{frontend="dns",direction="in"} 5
ballast_udp_datagrams_total{frontend="dns",direction="out"} 5
ballast_udp_datagrams_total{frontend="closed",direction="in"} 0
ballast_udp_datagrams_total{frontend="closed",direction="out"} 0
# HELP ballast_udp_bytes_total Bytes of payload that were passed on; those of clients are in.
# TYPE ballast_udp_bytes_total counter
ballast_udp_bytes_total{frontend="dns",direction="in"} 40
ballast_udp_bytes_total{frontend="dns",direction="out"} 40
ballast_udp_bytes_total{frontend="closed",direction="in"} 0
ballast_udp_bytes_total{frontend="closed",direction="out"} 0
# HELP ballast_udp_dropped_total Datagrams of clients that were not passed on, by reason.
# TYPE ballast_udp_dropped_total counter
ballast_udp_dropped_total{frontend="dns",reason="source-range"} 0
ballast_udp_dropped_total{frontend="dns",reason="proxy-header"} 0
ballast_udp_dropped_total{frontend="dns",reason="max-connections"} 0
ballast_udp_dropped_total{frontend="dns",reason="no-endpoint"} 0
ballast_udp_dropped_total{frontend="dns",reason="loop"} 0
ballast_udp_dropped_total{frontend="dns",reason="ending"} 0
ballast_udp_dropped_total{frontend="closed",reason="source-range"} 3
ballast_udp_dropped_total{frontend="closed",reason="proxy-header"} 0
ballast_udp_dropped_total{frontend="closed",reason="max-connections"} 0
ballast_udp_dropped_total{frontend="closed",reason="no-endpoint"} 0
ballast_udp_dropped_total{frontend="closed",reason="loop"} 0
ballast_udp_dropped_total{frontend="closed",reason="ending"} 0
# HELP ballast_udp_kernel_drops_total Datagrams of clients that came faster than they were read, so that the kernel dropped them.
# TYPE ballast_udp_kernel_drops_total counter
ballast_udp_kernel_drops_total{frontend="dns"} 0
ballast_udp_kernel_drops_total{frontend="closed"} 0
# HELP ballast_udp_unsent_total Datagrams in either direction that the kernel did not take.
# TYPE ballast_udp_unsent_total counter
ballast_udp_unsent_total{frontend="dns"} 0
ballast_udp_unsent_total{frontend="closed"} 0
"#;
