//! An endpoint gets another address, another port for its checks, or another health; a session is ended by its number.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use crate::console::changes::{named, pool};
use crate::console::say;
use support::{Ballast, ask, connect, echo_server, get, named_server, nobody, server};

/// One column of the row of the only endpoint.
fn column(ballast: &Ballast, number: usize) -> String {
    let stat = say(ballast, "show stat s 4 1\n");
    let row = stat.lines().nth(1).expect("a row");
    row.split(',').nth(number).unwrap_or_default().to_owned()
}

const STATUS: usize = 17;
const ADDR: usize = 73;

fn echoes(client: &mut TcpStream) -> bool {
    client.write_all(b"x").is_ok() && matches!(client.read(&mut [0]), Ok(1))
}

#[test]
fn new_clients_go_to_the_new_address_and_old_connections_stay() {
    let (old, new) = (echo_server(), named_server("new"));
    let table = pool(&[old], ", on-removed: close");
    let ballast = Ballast::serve_with_socket(&table, 2);
    let mut client = connect(ballast.address());
    assert!(echoes(&mut client));
    let port = new.port();
    let changed = format!(
        "no need to change the addr, port changed from '{}' to '{port}' by 'stats socket command'\n\n",
        old.port()
    );
    assert_eq!(
        say(&ballast, &format!("set server s/e0 addr {new}\n")),
        changed
    );
    let same = "no need to change the addr by 'stats socket command'\n\n";
    assert_eq!(
        say(
            &ballast,
            &format!("set server s/e0 addr 127.0.0.1 port {port}\n")
        ),
        same
    );
    assert_eq!(ask(ballast.address()).unwrap(), "new");
    assert!(echoes(&mut client), "an established connection stays");

    assert_eq!(column(&ballast, ADDR), new.to_string());
    let overrides = format!("set server s/e0 addr {new}\n\n");
    assert_eq!(say(&ballast, "show overrides\n"), overrides);
    let state = say(&ballast, "show servers state s\n");
    let row: Vec<&str> = state.lines().nth(2).unwrap().split(' ').collect();
    assert_eq!(
        (row[3], row[4], row[18]),
        ("e0", "127.0.0.1", &*port.to_string())
    );
    assert_eq!(row[2], "1", "its number stays");
    let (_, page) = get(ballast.running.admin()[0], "/");
    assert!(
        page.contains(&format!("Its address in the table is {old}")),
        "{page}"
    );

    ballast.swap(&pool(&[old], ", on-removed: close, retries: 1"));
    assert_eq!(ask(ballast.address()).unwrap(), "new");
    assert!(echoes(&mut client));
    let back = say(&ballast, "set server s/e0 addr default\n");
    assert!(back.contains(&format!("to '{}'", old.port())), "{back}");
    assert!(echoes(&mut connect(ballast.address())));
    assert_eq!(say(&ballast, "show overrides\n"), "\n");

    // The connection is at an endpoint of the table: it ends with it.
    say(&ballast, &format!("set server s/e0 addr {new}\n"));
    ballast.swap(&pool(&[nobody()], ", on-removed: close"));
    assert!(!echoes(&mut client));
    assert!(ballast.running.shared().live.plan().overrides().is_empty());
}

#[test]
fn affinity_stays_with_an_endpoint_that_gets_another_address() {
    let [a, b, c] = ["a", "b", "c"].map(named_server);
    let table = named(&["a", "b"], &[a, b], ", affinity: {client-ip: 1h}");
    let ballast = Ballast::serve_with_socket(&table, 1);
    let first = ask(ballast.address()).unwrap();
    say(&ballast, &format!("set server s/{first} addr {c}\n"));
    for _ in 0..6 {
        assert_eq!(ask(ballast.address()).unwrap(), "c");
    }
}

#[test]
fn wrong_addresses_are_refused_and_nothing_changes() {
    let ballast = Ballast::serve_with_socket(&pool(&[echo_server(), echo_server()], ""), 1);
    let other = ballast.running.shared().live.plan().services()[0].endpoints()[1].address();
    for (address, why) in [
        (other.to_string(), "another server of this backend has it"),
        ("0.0.0.0".to_owned(), "no address that one can connect to"),
        ("224.0.0.1".to_owned(), "a multicast address"),
    ] {
        let said = say(&ballast, &format!("set server s/e0 addr {address}\n"));
        assert!(said.contains(why), "{address}: {said}");
    }
    assert!(ballast.running.shared().live.plan().overrides().is_empty());
}

#[test]
fn flows_follow_their_endpoint_to_its_new_address() {
    let [old, new] = [(), ()].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let table = pool(&[old.local_addr().unwrap()], "").replace("protocol: tcp", "protocol: udp");
    let ballast = Ballast::serve_with_socket(&table, 1);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let received = |socket: &UdpSocket| {
        let patience = Some(std::time::Duration::from_secs(20));
        socket.set_read_timeout(patience).unwrap();
        client.send_to(b"x", ballast.address()).unwrap();
        socket.recv(&mut [0; 8]).expect("a datagram")
    };
    assert_eq!(received(&old), 1);
    let address = new.local_addr().unwrap();
    say(&ballast, &format!("set server s/e0 addr {address}\n"));
    assert_eq!(received(&new), 1);
}

#[test]
fn health_is_set_until_checks_say_otherwise() {
    let refuse = ", all-down: refuse";
    let ballast = Ballast::serve_with_socket(&pool(&[named_server("a")], refuse), 1);
    for (health, status) in [("down", "DOWN"), ("stopping", "NOLB"), ("up", "no check")] {
        let command = format!("set server s/e0 health {health}\n");
        assert_eq!(say(&ballast, &command), "\n");
        assert_eq!(column(&ballast, STATUS), status);
        assert_eq!(
            ask(ballast.address()).is_ok_and(|who| who == "a"),
            health == "up"
        );
    }
    let checked = ", health: {mode: tcp, interval: 1s, rise: 2}";
    let checked = Ballast::serve_with_socket(&pool(&[named_server("a")], checked), 1);
    checked.until(|ballast| column(ballast, STATUS) == "UP");
    for health in ["down", "stopping"] {
        say(&checked, &format!("set server s/e0 health {health}\n"));
        assert_ne!(column(&checked, STATUS), "UP");
        checked.until(|ballast| column(ballast, STATUS) == "UP");
    }
}

#[test]
fn checks_go_to_another_port() {
    let checks = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = checks.local_addr().unwrap().port();
    let health = ", health: {mode: tcp, interval: 100ms}";
    let ballast = Ballast::serve_with_socket(&pool(&[nobody()], health), 1);
    ballast.until(|ballast| column(ballast, STATUS) == "DOWN");
    assert_eq!(
        say(&ballast, &format!("set server s/e0 check-port {port}\n")),
        "\n"
    );
    ballast.until(|ballast| column(ballast, STATUS) == "UP");
    let state = say(&ballast, "show servers state\n");
    let row: Vec<&str> = state.lines().nth(2).unwrap().split(' ').collect();
    assert_eq!(row[21], port.to_string());
    let overrides = format!("set server s/e0 check-port {port}\n\n");
    assert_eq!(say(&ballast, "show overrides\n"), overrides);
    assert_eq!(say(&ballast, "set server s/e0 check-port default\n"), "\n");
    ballast.until(|ballast| column(ballast, STATUS) == "DOWN");
}

/// The numbers of all sessions.
fn numbers(ballast: &Ballast) -> Vec<String> {
    let list = say(ballast, "show sess\n");
    let lines = list.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(number, _)| number.to_owned()).collect()
}

fn is_ended(mut client: &TcpStream) -> bool {
    match client.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn one_session_is_ended_and_the_others_stay() {
    let silent: SocketAddr = echo_server();
    let ballast = Ballast::serve_with_socket(&pool(&[silent], ""), 2);
    let mut clients = [(); 2].map(|()| connect(ballast.address()));
    clients
        .iter_mut()
        .for_each(|client| assert!(echoes(client)));
    let client = clients[0].local_addr().unwrap();
    let list = say(&ballast, "show sess\n");
    let line = list
        .lines()
        .find(|line| line.contains(&format!("src={client} ")));
    let number = line.unwrap().split(':').next().unwrap().to_owned();
    assert_eq!(say(&ballast, &format!("shutdown session {number}\n")), "\n");
    assert!(is_ended(&clients[0]));
    assert!(echoes(&mut clients[1]));
    ballast.until(|ballast| numbers(ballast).len() == 1);
    // Another session may have its place, and has a number of its own.
    let mut next = connect(ballast.address());
    assert!(echoes(&mut next));
    let none = "No such session (use 'show sess').\n\n";
    assert_eq!(say(&ballast, &format!("shutdown session {number}\n")), none);
    assert!(echoes(&mut next));
}

#[test]
fn a_session_is_ended_whatever_it_waits_for() {
    let http = "version: 1\nfrontends:\n  - {name: f, bind: [\"127.0.0.1:0\"], protocol: http, default: {service: s}}\nservices:\n  - {name: s, endpoints: [{address: \"SILENT\"}]}\n";
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let table = http.replace("SILENT", &silent.local_addr().unwrap().to_string());
    let ballast = Ballast::serve_with_socket(&table, 1);
    for request in [
        "",
        "GET / HT",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut client = connect(ballast.address());
        client.write_all(request.as_bytes()).unwrap();
        ballast.until(|ballast| numbers(ballast).len() == 1);
        let number = numbers(&ballast).remove(0);
        assert_eq!(say(&ballast, &format!("shutdown session {number}\n")), "\n");
        // A client of HTTP/2 has been told Ballast's settings before.
        let mut rest = Vec::new();
        let end = client.read_to_end(&mut rest);
        assert!(end.is_ok_and(|_| true) || rest.len() < 100, "{request:?}");
        ballast.until(|ballast| numbers(ballast).is_empty());
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

#[test]
fn a_flow_is_ended_by_its_number() {
    let endpoint = UdpSocket::bind("127.0.0.1:0").unwrap();
    let table =
        pool(&[endpoint.local_addr().unwrap()], "").replace("protocol: tcp", "protocol: udp");
    let ballast = Ballast::serve_with_socket(&table, 2);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(b"x", ballast.address()).unwrap();
    ballast.until(|ballast| numbers(ballast).len() == 1);
    let number = numbers(&ballast).remove(0);
    assert_eq!(say(&ballast, &format!("shutdown session {number}\n")), "\n");
    ballast.until(|ballast| numbers(ballast).is_empty());
}

/// A service of HTTP `s` with the endpoint `e0`.
fn http_service(endpoint: SocketAddr, more: &str) -> String {
    format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"127.0.0.1:0\"], protocol: http, default: {{service: s}}}}\nservices:\n  - {{name: s, endpoints: [{{name: e0, address: \"{endpoint}\"}}]{more}}}\n"
    )
}

#[test]
fn idle_connections_are_counted_while_they_wait() {
    let endpoint = server(|mut client| {
        let mut bytes = [0; 1024];
        while client.read(&mut bytes).is_ok_and(|read| read > 0) {
            client
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .ok();
        }
    });
    for (reuse, expected, in_words) in [
        ("safe", ["1", "1", "0", "0"], " 1 0 0 1 1\n"),
        ("always", ["1", "0", "1", "0"], " 0 1 0 1 1\n"),
        ("never", ["0", "0", "0", "1"], " 0 0 0 0 0\n"),
    ] {
        let table = http_service(endpoint, &format!(", http: {{reuse: {reuse}}}"));
        let ballast = Ballast::serve_with_socket(&table, 1);
        let columns = |ballast: &Ballast| {
            [SRV_ICUR, IDLE_CONN_CUR, SAFE_CONN_CUR, PRIV_IDLE_CUR]
                .map(|number| column(ballast, number))
        };
        assert_eq!(columns(&ballast), ["0"; 4]);
        let mut client = connect(ballast.address());
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        assert!(client.read(&mut [0; 1024]).unwrap() > 0);
        // They wait for four seconds only.
        ballast.until(|ballast| columns(ballast) == expected);
        let words = say(&ballast, "show servers conn s\n");
        let row = words.lines().nth(1).unwrap();
        assert!(format!("{row}\n").ends_with(in_words), "{reuse}: {words}");
        drop(client);
        ballast.until(|ballast| columns(ballast) == ["0"; 4]);
    }
}

const SRV_ICUR: usize = 88;
const IDLE_CONN_CUR: usize = 95;
const SAFE_CONN_CUR: usize = 96;
const PRIV_IDLE_CUR: usize = 113;

#[test]
fn failures_of_tls_are_listed_by_endpoint_and_reason() {
    let plain = server(|mut client| {
        let mut hello = [0; 4096];
        if client.read(&mut hello).is_ok() {
            client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
            client.read_to_end(&mut Vec::new()).ok();
        }
    });
    let table = http_service(plain, ", tls: {insecure: true}, retries: 0");
    let ballast = Ballast::serve_with_socket(&table, 1);
    assert!(!say(&ballast, "show errors\n").contains("TLS failed"));
    for _ in 0..2 {
        let mut client = connect(ballast.address());
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 502");
    }
    let errors = say(&ballast, "show errors\n");
    let line = errors
        .lines()
        .find(|line| line.contains("TLS failed"))
        .expect("a line");
    assert!(
        line.starts_with("  server s/e0: TLS failed 2, last at ["),
        "{errors}"
    );
    assert!(line.ends_with("]: it does not speak TLS"), "{errors}");
}

#[test]
fn what_an_operator_wants_of_an_endpoint_is_listed_whatever_its_checks_say() {
    let health = ", slow-start: 1h, health: {mode: tcp, interval: 100ms, fall: 1}";
    let address = nobody();
    let table = pool(&[address], health);
    let ballast = Ballast::serve_with_socket(&table, 1);
    ballast.until(|ballast| column(ballast, STATUS) == "DOWN");
    // Its operational state and its administrative one.
    let states = || {
        let state = say(&ballast, "show servers state\n");
        let row: Vec<&str> = state.lines().nth(2).unwrap().split(' ').collect();
        (row[5].to_owned(), row[6].to_owned())
    };
    for (wanted, admin) in [("drain", "8"), ("maint", "1"), ("ready", "0")] {
        say(&ballast, &format!("set server s/e0 state {wanted}\n"));
        assert_eq!(states(), ("0".into(), admin.into()), "{wanted}");
        assert_eq!(column(&ballast, THROTTLE), "", "{wanted}");
    }
    let backup = table.replace("name: e0,", "name: e0, state: backup,");
    ballast.swap(&backup);
    for wanted in ["maint", "drain", "ready"] {
        say(&ballast, &format!("set server s/e0 state {wanted}\n"));
        let [active, spare] = [ACT, BCK].map(|number| column(&ballast, number));
        assert_eq!((&*active, &*spare), ("0", "1"), "{wanted}");
    }
    // One that is up again grows.
    ballast.swap(&table);
    let _listener = TcpListener::bind(address).unwrap();
    ballast.until(|ballast| column(ballast, STATUS) == "UP");
    assert_eq!(column(&ballast, THROTTLE), "0");
    assert_eq!(states(), ("1".into(), "0".into()));
    say(&ballast, "set server s/e0 state drain\n");
    assert_eq!(states(), ("2".into(), "8".into()));
    assert_eq!(column(&ballast, THROTTLE), "");
}

const ACT: usize = 19;
const BCK: usize = 20;
const THROTTLE: usize = 29;
