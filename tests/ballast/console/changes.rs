//! What is changed by hand is in force, survives tables, and can be undone.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use crate::console::say;
use support::peers::{ShutDoor, reset};
use support::{Ballast, ask, connect, echo_server, named_server};

#[test]
fn an_endpoint_in_maintenance_gets_nothing_new_until_it_is_ready() {
    let ballast = Ballast::serve_with_socket(&two(""), 2);
    assert_eq!(who_answers(&ballast), ["a", "b"]);
    for (command, answering) in [
        ("disable server s/a", &["b"][..]),
        ("enable server s/a", &["a", "b"]),
        ("set server s/b state maint", &["a"]),
        ("set server s/b state ready", &["a", "b"]),
        ("set server s/b state drain", &["a"]),
        ("set server s/b state default", &["a", "b"]),
        ("set server s/a weight 0", &["b"]),
        ("set server s/a weight default", &["a", "b"]),
        ("set weight s/a 0%", &["b"]),
        ("set weight s/a 100%", &["a", "b"]),
    ] {
        assert_eq!(say(&ballast, &format!("{command}\n")), "\n", "{command}");
        assert_eq!(who_answers(&ballast), answering, "{command}");
    }
    assert!(ballast.running.shared().live.plan().overrides().is_empty());
}

#[test]
fn percents_of_a_weight_are_rounded_down_as_by_haproxy() {
    let ballast = Ballast::serve_with_socket(&two(""), 1);
    for (percents, weight) in [
        ("50%", 0),
        ("99%", 0),
        ("100%", 1),
        ("199%", 1),
        ("550%", 5),
        ("99999%", 256),
    ] {
        let line = format!("set server s/a weight {percents}; get weight s/a\n");
        assert_eq!(
            say(&ballast, &line),
            format!("\n{weight} (initial 1)\n\n"),
            "{line}"
        );
    }
}

#[test]
fn changes_survive_tables_and_are_undone_by_default() {
    let ballast = Ballast::serve_with_socket(&two(""), 1);
    let changes = "set server s/a state maint;set server s/b weight 3;set maxconn frontend f 77\n";
    assert_eq!(say(&ballast, changes), "\n\n\n");
    let overrides =
        "set server s/a state maint\nset server s/b weight 3\nset maxconn frontend f 77\n\n";
    assert_eq!(say(&ballast, "show overrides\n"), overrides);
    ballast.swap(&two(", retries: 1"));
    assert_eq!(say(&ballast, "show overrides\n"), overrides);
    assert_eq!(who_answers(&ballast), ["b"]);
    assert_eq!(say(&ballast, "get weight s/b\n"), "3 (initial 1)\n\n");
    let stat = say(&ballast, "show stat f 1 -1\n");
    assert!(stat.contains("f,FRONTEND,,,0,"), "{stat}");
    assert!(
        stat.lines().nth(1).unwrap().split(',').nth(6) == Some("77"),
        "{stat}"
    );

    let undo = "set server s/a state default;set server s/b weight default;set maxconn frontend f default\n";
    assert_eq!(say(&ballast, undo), "\n\n\n");
    assert_eq!(say(&ballast, "show overrides\n"), "\n");
    assert_eq!(who_answers(&ballast), ["a", "b"]);
}

#[test]
fn endpoints_are_found_by_name_address_and_number() {
    let ballast = Ballast::serve_with_socket(&two(""), 1);
    let state = say(&ballast, "show servers state\n");
    let row: Vec<&str> = state.lines().nth(2).unwrap().split(' ').collect();
    let (iid, sid) = (row[0], row[2]);
    let plan = ballast.running.shared().live.plan();
    let address = plan.services()[0].endpoints()[0].address();
    for name in [
        format!("s/{address}"),
        format!("#{iid}/#{sid}"),
        format!("#{iid}/a"),
        format!("s/#{sid}"),
    ] {
        say(&ballast, &format!("set server {name} weight 9\n"));
        assert_eq!(
            say(&ballast, "get weight s/a\n"),
            "9 (initial 1)\n\n",
            "{name}"
        );
        say(&ballast, &format!("set server {name} weight default\n"));
        assert_eq!(
            say(&ballast, "get weight s/a\n"),
            "1 (initial 1)\n\n",
            "{name}"
        );
    }
}

#[test]
fn what_is_not_there_is_not_changed() {
    let ballast = Ballast::serve_with_socket(&two(""), 1);
    for (command, answer) in [
        ("set server x/a state maint", "No such backend."),
        ("set server s/x state maint", "No such server."),
        ("disable server f/a", "No such backend."),
        ("enable server s", "Require 'backend/server'."),
        ("set server s/#99 weight 1", "No such server."),
        (
            "set server s/a weight 257",
            "Absolute weight can only be between 0 and 256 inclusive.",
        ),
        ("get weight s/x", "No such server."),
        ("set maxconn frontend s 5", "No such frontend."),
        ("show servers state x", "No such backend."),
        ("show servers conn x", "No such backend."),
        ("show stat x 1 1", "No such proxy."),
        ("shutdown sessions server s/x", "No such server."),
        ("set server s/x addr 127.0.0.1", "No such server."),
        ("set server s/x health up", "No such server."),
        (
            "set server s/a check-port 80",
            "health checks are not enabled on this server",
        ),
        (
            "shutdown session 0x100000000000063",
            "No such session (use 'show sess').",
        ),
    ] {
        assert_eq!(
            say(&ballast, &format!("{command}\n")),
            format!("{answer}\n\n")
        );
    }
    assert!(ballast.running.shared().live.plan().overrides().is_empty());
}

#[test]
fn a_backup_that_is_ready_again_is_a_backup_again() {
    let (a, b) = (named_server("a"), named_server("b"));
    let table = format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}\nservices:\n  - {{name: s, endpoints: [{{name: a, address: \"{a}\"}}, {{name: b, address: \"{b}\", state: backup}}]}}\n"
    );
    let ballast = Ballast::serve_with_socket(&table, 1);
    say(&ballast, "disable server s/b\n");
    say(&ballast, "enable server s/b\n");
    assert_eq!(say(&ballast, "show overrides\n"), "\n");
    assert_eq!(who_answers(&ballast), ["a"]);
    say(&ballast, "disable server s/a\n");
    assert_eq!(who_answers(&ballast), ["b"]);
}

#[test]
fn only_the_connections_of_that_endpoint_are_cut() {
    let ballast = Ballast::serve_with_socket(&pool(&[echo_server(), echo_server()], ""), 2);
    let mut clients: Vec<_> = (0..8).map(|_| connect(ballast.address())).collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    let of = |place: usize| -> u32 {
        let plan = ballast.running.shared().live.plan();
        plan.services()[0].endpoints()[place].live().in_flight()
    };
    assert_eq!((of(0), of(1)), (4, 4));
    assert_eq!(say(&ballast, "shutdown sessions server s/e0\n"), "\n");
    ballast.until(|_| of(0) == 0);
    assert_eq!(of(1), 4);
    let mut cut = 0;
    for client in &mut clients {
        client.write_all(b"y").ok();
        match client.read(&mut [0]) {
            Ok(1) => {}
            Ok(_) | Err(_) => cut += 1,
        }
    }
    assert_eq!((cut, of(1)), (4, 4));
}

#[test]
fn connections_are_listed_with_who_came_and_where_they_are() {
    let server = echo_server();
    let ballast = Ballast::serve_with_socket(&pool(&[server], ""), 2);
    let mut clients: Vec<_> = (0..3).map(|_| connect(ballast.address())).collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    let text = say(&ballast, "show sess\n");
    let expected: BTreeSet<String> = clients
        .iter()
        .map(|client| {
            let address = client.local_addr().unwrap();
            format!(" proto=tcpv4 src={address} fe=f be=s srv=e0 age=")
        })
        .collect();
    let listed: BTreeSet<String> = text
        .lines()
        .filter_map(|line| {
            Some(
                line.split_once(':')?
                    .1
                    .trim_end_matches(|c| c != '=')
                    .to_owned(),
            )
        })
        .collect();
    assert_eq!(listed, expected, "{text}");
    let ids: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(
        ids.iter().filter(|id| id.starts_with("0x")).count(),
        3,
        "{text}"
    );

    let json = say(&ballast, "show sess json\n");
    let list: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(list.len(), 3);
    assert_eq!(list[0]["service"], "s");
    let id = list[0]["id"].as_str().unwrap();
    assert!(ids.contains(&id), "{id}: {ids:?}");
    assert_eq!(say(&ballast, &format!("shutdown session {id}\n")), "\n");
    drop(clients);
    ballast.until(|ballast| say(ballast, "show sess\n") == "\n");
}

#[test]
fn a_client_in_the_queue_is_listed_with_the_service_and_one_that_is_connected_with_the_endpoint() {
    for (protocol, serves) in [("tcp", "service: s"), ("http", "default: {service: s}")] {
        let shut = ShutDoor::new();
        let table = pool(&[shut.address()], ", timeouts: {queue: 60s, connect: 60s}")
            .replace("name: e0", "name: e0, max-connections: 1")
            .replace("tcp, service: s", &format!("{protocol}, {serves}"));
        let ballast = Ballast::serve_with_socket(&table, 2);
        let listed = |client: &TcpStream, place: &str| {
            let source = client.local_addr().unwrap();
            let line = format!(" src={source} fe=f {place} age=");
            ballast.until(|ballast| say(ballast, "show sess\n").contains(&line));
        };
        let come = || {
            let mut client = connect(ballast.address());
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                .unwrap();
            client
        };
        let dialing = come();
        listed(&dialing, "be=s srv=e0");
        let mut queued = come();
        listed(&queued, "be=s srv=<none>");
        let json = say(&ballast, "show sess json\n");
        let list: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        let source = queued.local_addr().unwrap().to_string();
        let of_queued = list.iter().find(|one| one["client"] == source).unwrap();
        assert_eq!(of_queued["service"], "s", "{protocol}");
        assert_eq!(of_queued["endpoint"], serde_json::Value::Null, "{protocol}");

        // The place of a client that leaves goes to the next one.
        reset(dialing);
        listed(&queued, "be=s srv=e0");
        shut.open(|mut client| {
            let _request = client.read(&mut [0; 512]);
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            client.write_all(answer).ok();
            let _end = client.read(&mut [0]);
        });
        queued.read_exact(&mut [0; 12]).unwrap();
        if protocol == "http" {
            // Its next request may be for another service.
            listed(&queued, "be=<NONE> srv=<none>");
        }
    }
}

#[test]
fn behind_a_proxy_the_client_that_it_names_is_listed() {
    let table = pool(&[echo_server()], "").replace(
        "service: s}",
        "service: s, accept-proxy: {from: [\"127.0.0.0/8\"]}}",
    );
    let ballast = Ballast::serve_with_socket(&table, 1);
    let mut proxy = connect(ballast.address());
    let itself = format!(" src={} fe=f be=<NONE> ", proxy.local_addr().unwrap());
    ballast.until(|ballast| say(ballast, "show sess\n").contains(&itself));
    proxy
        .write_all(b"PROXY TCP4 192.0.2.7 192.0.2.1 7777 80\r\nx")
        .unwrap();
    proxy.read_exact(&mut [0]).unwrap();
    let listed = say(&ballast, "show sess\n");
    assert!(
        listed.contains(" src=192.0.2.7:7777 fe=f be=s srv=e0 "),
        "{listed}"
    );
}

#[test]
fn flows_are_listed_beside_connections_and_cut_like_them() {
    let endpoint = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = "  - {name: closed, bind: [\"127.0.0.2:0\"], protocol: udp, service: s, source-ranges: [\"192.0.2.1/32\"]}\nservices:";
    let table = pool(&[endpoint.local_addr().unwrap()], "")
        .replace("protocol: tcp", "protocol: udp")
        .replace("services:", closed);
    let ballast = Ballast::serve_with_socket(&table, 2);
    let listening = ballast.running.shared().status.listening();
    let bound = |ip: &str| {
        let mut addresses = listening.values();
        *addresses
            .find(|address| address.ip().to_string() == ip)
            .unwrap()
    };
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(b"x", bound("127.0.0.1")).unwrap();
    client.send_to(b"x", bound("127.0.0.2")).unwrap();
    let flow = format!(
        " proto=udpv4 src={} fe=f be=s srv=e0 age=",
        client.local_addr().unwrap()
    );
    ballast.until(|ballast| say(ballast, "show sess\n").contains(&flow));
    let json = say(&ballast, "show sess json\n");
    let list: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0]["protocol"], "udp");
    ballast.until(|ballast| {
        say(ballast, "show errors\n").contains("  frontend closed: source-range 1\n")
    });
    let stat = say(&ballast, "show stat f 1 -1\n");
    assert!(stat.contains("f,FRONTEND,,,1,1,"), "{stat}");

    assert_eq!(say(&ballast, "shutdown sessions server s/e0\n"), "\n");
    ballast.until(|ballast| say(ballast, "show sess\n") == "\n");
}

#[test]
fn no_more_than_a_thousand_connections_are_listed() {
    let ballast = Ballast::serve_with_socket(&pool(&[echo_server()], ""), 2);
    let clients: Vec<_> = (0..1010).map(|_| connect(ballast.address())).collect();
    ballast.until(|ballast| ballast.running.shared().connections() == clients.len());
    ballast.until(|ballast| say(ballast, "show sess\n").lines().count() == 1002);
    let text = say(&ballast, "show sess\n");
    let last = text.lines().nth(1000).unwrap();
    assert_eq!(last, "# only 1000 of 1010 are shown");
    let json = say(&ballast, "show sess json\n");
    let list: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(list.len(), 1000);
}

#[test]
fn cleared_counters_begin_at_nothing_and_go_on() {
    let ballast = Ballast::serve_with_socket(&two(""), 2);
    let count = |row: &str, column: usize| -> String {
        let stat = say(&ballast, "show stat\n");
        let row = stat
            .lines()
            .find(|line| line.starts_with(row))
            .expect("a row");
        row.split(',').nth(column).unwrap_or_default().to_owned()
    };
    let rows = ["f,FRONTEND,", "s,BACKEND,", "s,a,"];
    for _ in 0..10 {
        ask(ballast.address()).unwrap();
    }
    ballast.until(|ballast| ballast.running.shared().connections() == 0);
    assert_eq!(rows.map(|row| count(row, STOT)), ["10", "10", "5"]);
    assert_ne!(count("s,BACKEND,", SMAX), "0");

    // Without `all`, only the maxima are forgotten.
    assert_eq!(say(&ballast, "clear counters\n"), "\n");
    assert_eq!(rows.map(|row| count(row, STOT)), ["10", "10", "5"]);
    assert_eq!(rows.map(|row| count(row, SMAX)), ["0", "0", "0"]);
    ballast.until(|_| rows[1..].iter().all(|row| count(row, TTIME_MAX) == "0"));

    assert_eq!(say(&ballast, "clear counters all\n"), "\n");
    for column in [STOT, BIN, BOUT, LBTOT] {
        assert!(
            rows.iter()
                .all(|row| ["0", ""].contains(&count(row, column).as_str())),
            "{column}"
        );
    }
    for _ in 0..4 {
        ask(ballast.address()).unwrap();
    }
    ballast.until(|_| rows.map(|row| count(row, STOT)) == ["4", "4", "2"]);
    ballast.until(|_| rows.map(|row| count(row, BOUT)) == ["4", "4", "2"]);
    // A swap changes nothing about it, and what has left the table stays forgotten.
    ballast.swap(&two(", retries: 1"));
    assert_eq!(
        rows[..2]
            .iter()
            .map(|row| count(row, STOT))
            .collect::<Vec<_>>(),
        ["4", "4"]
    );
    // The process has seen them all.
    assert!(say(&ballast, "show info\n").contains("\nCumReq: 14\n"));
}

const SMAX: usize = 5;
const STOT: usize = 7;
const BIN: usize = 8;
const BOUT: usize = 9;
const LBTOT: usize = 30;
const TTIME_MAX: usize = 93;

/// Everybody who answers now.
fn who_answers(ballast: &Ballast) -> Vec<String> {
    let answers: BTreeSet<String> = (0..8)
        .map(|_| ask(ballast.address()).expect("an answer"))
        .collect();
    answers.into_iter().collect()
}

/// Two endpoints that answer with their names, the same ones each time.
fn two(service: &str) -> String {
    use std::sync::OnceLock;

    static SERVERS: OnceLock<[SocketAddr; 2]> = OnceLock::new();
    let servers = SERVERS.get_or_init(|| [named_server("a"), named_server("b")]);
    named(&["a", "b"], servers, service)
}

pub(crate) fn pool(addresses: &[SocketAddr], service: &str) -> String {
    let names: Vec<String> = (0..addresses.len())
        .map(|place| format!("e{place}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    named(&names, addresses, service)
}

pub(crate) fn named(names: &[&str], addresses: &[SocketAddr], service: &str) -> String {
    let endpoints: Vec<String> = names
        .iter()
        .zip(addresses)
        .map(|(name, address)| format!("{{name: {name}, address: \"{address}\"}}"))
        .collect();
    format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}\nservices:\n  - {{name: s{service}, endpoints: [{}]}}\n",
        endpoints.join(", ")
    )
}

#[test]
fn the_limit_of_an_endpoint_is_changed() {
    let ballast = Ballast::serve_with_socket(&two(""), 1);
    let limit = || {
        let stat = say(&ballast, "show stat s 4 1\n");
        let row = stat.lines().nth(1).unwrap();
        row.split(',').nth(6).unwrap().to_owned()
    };
    assert_eq!(limit(), "");
    assert_eq!(say(&ballast, "set maxconn server s/a 7\n"), "\n");
    assert_eq!(limit(), "7");
    let overrides = "set maxconn server s/a 7\n\n";
    assert_eq!(say(&ballast, "show overrides\n"), overrides);
    ballast.swap(&two(", retries: 1"));
    assert_eq!(limit(), "7");
    assert_eq!(say(&ballast, "set maxconn server s/a default\n"), "\n");
    assert_eq!(limit(), "");
    for (command, answer) in [
        ("set maxconn server s/x 7", "No such server."),
        ("set maxconn server x/a 7", "No such backend."),
        (
            "set maxconn server s/a x",
            "Integer value expected: 1 or more, or 'default'.",
        ),
    ] {
        assert_eq!(
            say(&ballast, &format!("{command}\n")),
            format!("{answer}\n\n")
        );
    }
}

#[test]
fn a_frontend_that_is_disabled_refuses_and_keeps_its_connections() {
    let ballast = Ballast::serve_with_socket(&pool(&[echo_server()], ""), 1);
    let address = ballast.address();
    let mut client = connect(address);
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    assert_eq!(say(&ballast, "disable frontend f\n"), "\n");
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    client.write_all(b"y").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let stat = say(&ballast, "show stat f 1 -1\n");
    assert!(stat.contains(",PAUSED,"), "{stat}");
    let again = "All sockets are already disabled.\n\n";
    assert_eq!(say(&ballast, "disable frontend f\n"), again);
    assert_eq!(say(&ballast, "show overrides\n"), "disable frontend f\n\n");

    assert_eq!(say(&ballast, "enable frontend f\n"), "\n");
    connect(ballast.address());
    assert!(say(&ballast, "show stat f 1 -1\n").contains(",OPEN,"));
    let again = "All sockets are already enabled.\n\n";
    assert_eq!(say(&ballast, "enable frontend f\n"), again);
    let answer = "No such frontend.\n\n";
    assert_eq!(say(&ballast, "disable frontend s\n"), answer);
}

/// A port whose endpoints the table disables is closed, and is opened by hand; no change by hand closes it.
#[test]
fn an_endpoint_that_the_table_disables_opens_the_port_once_it_is_ready() {
    let table = |state: &str| {
        pool(&[named_server("a")], "")
            .replace("{name: e0,", &format!("{{name: e0, state: {state},"))
    };
    let ballast = Ballast::serve_with_socket(&table("disabled"), 1);
    let listens = || !ballast.running.shared().status.listening().is_empty();
    assert!(!listens());
    assert_eq!(say(&ballast, "set server s/e0 state ready\n"), "\n");
    assert_eq!(ask(ballast.address()).unwrap(), "a");
    assert!(say(&ballast, "show stat f 1 -1\n").contains(",OPEN,"));
    assert_eq!(say(&ballast, "set server s/e0 state default\n"), "\n");
    assert!(!listens());

    ballast.swap(&table("ready"));
    assert_eq!(say(&ballast, "disable server s/e0\n"), "\n");
    assert!(listens());
    assert!(ask(ballast.address()).is_err());
}

#[test]
fn affinity_is_shown_and_forgotten() {
    let ballast = Ballast::serve_with_socket(&two(", affinity: {client-ip: 1h}"), 1);
    let empty = "# table: s, type: ip, size:131072, used:0\n\n";
    assert_eq!(say(&ballast, "show table\n"), empty);
    assert_eq!(say(&ballast, "show table s\n"), empty);
    ask(ballast.address()).unwrap();
    let table = say(&ballast, "show table s\n");
    let (head, entry) = table.split_once('\n').unwrap();
    assert_eq!(head, "# table: s, type: ip, size:131072, used:1");
    let left = entry.strip_prefix("0x1: key=127.0.0.1 use=0 exp=");
    let left = left.and_then(|left| left.split_once(' '));
    let left: u32 = left.unwrap_or_else(|| panic!("{table}")).0.parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&left), "{table}");
    assert!(entry.contains(" server_id="), "{table}");
    let name = entry.trim_end().rsplit_once("server_key=").unwrap().1;
    assert!(["a", "b"].contains(&name), "{table}");
    assert!(say(&ballast, "show table s key 127.0.0.1\n").contains("key=127.0.0.1"));
    assert_eq!(say(&ballast, "show table s key 127.0.0.2\n"), "\n");
    assert_eq!(say(&ballast, "clear table s key 127.0.0.2\n"), "\n");
    assert!(say(&ballast, "show table s\n").contains("key="));
    assert_eq!(say(&ballast, "clear table s key 127.0.0.1\n"), "\n");
    assert_eq!(say(&ballast, "show table s\n"), empty);
    ask(ballast.address()).unwrap();
    assert_eq!(say(&ballast, "clear table s\n"), "\n");
    assert_eq!(say(&ballast, "show table s\n"), empty);
    for command in ["show table f", "clear table f"] {
        assert_eq!(say(&ballast, &format!("{command}\n")), "No such table\n\n");
    }
    let required = "Required arguments: <table> or <table> key <key>\n\n";
    assert_eq!(say(&ballast, "clear table\n"), required);
}

#[test]
fn the_last_bad_request_is_shown() {
    let table = "version: 1\nfrontends:\n  - {name: f, bind: [\"127.0.0.1:0\"], protocol: http, default: {status: 204}}\n";
    let ballast = Ballast::serve_with_socket(table, 1);
    let mut client = connect(ballast.address());
    client
        .write_all(b"GET / HTTP/1.1\r\nHo st: x\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let errors = say(&ballast, "show errors\n");
    for words in [
        "] frontend f: invalid request\n",
        "  src 127.0.0.1:",
        "  00016  Ho st: x\\r\\n\n",
    ] {
        assert!(errors.contains(words), "{errors}");
    }
}
