//! The flags of the admin side.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers::{connect, echo_server, fresh_address, fresh_admin_port, get};
use crate::process::{BALLAST, Process, command, folder, limited, replace, table, to_its_end};

#[test]
fn a_bad_auth_file_is_wrong_usage_with_every_mistake() {
    let folder = folder("version: 1\n");
    let users = folder.path().join("users");
    fs::write(&users, "anna\nbert:x:owner\n").unwrap();
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "127.0.0.1:0", "--table"])
        .arg(folder.path())
        .arg("--stats-auth-file")
        .arg(&users);
    let ended = to_its_end(&mut run);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    for words in ["users:1: no secret", "users:2: \"owner\" is no role"] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn an_address_that_strangers_reach_is_warned_of_once() {
    let folder = folder("version: 1\n");
    let users = folder.path().join("users");
    fs::write(&users, "anna:secret\n").unwrap();
    let everywhere = format!("*:{}", fresh_admin_port());
    let start = |more: &[&str]| {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", &everywhere, "--table"]);
        let mut process = Process::spawn(run.arg(folder.path()).args(more));
        process.until_said("table applied");
        process.signal(crate::process::Signal::TERM);
        assert_eq!(process.ends(), Some(0));
        process.err.times("--stats-auth-file")
    };
    assert_eq!(start(&[]), 1);
    assert_eq!(start(&["--stats-auth-file", users.to_str().unwrap()]), 0);
}

#[test]
fn the_log_says_who_may_look_at_the_start_and_when_that_changes() {
    let ranges = |ranges: &str| format!("version: 1\nstats: {{source-ranges: [{ranges}]}}\n");
    let folder = folder(&ranges("\"10.0.0.0/8\", \"127.0.0.0/8\""));
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    let said = "the page and the metrics are shown to addresses in ";
    process.until_said(&format!("{said}10.0.0.0/8, 127.0.0.0/8 only"));
    // What does not change is not said again.
    let seventh = ranges("\"10.0.0.0/8\", \"127.0.0.0/8\"") + "generation: 7\n";
    replace(&folder, &seventh);
    process.until_said("generation=7");
    replace(&folder, &ranges("\"192.0.2.0/24\""));
    process.until_said(&format!("{said}192.0.2.0/24 only"));
    assert_eq!(process.err.times(said), 2, "{}", process.err.text());

    let other = crate::process::folder("version: 1\n");
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "none", "--table"]);
    let nowhere = Process::spawn(run.arg(other.path()));
    nowhere.until_said("table applied");
    assert_eq!(nowhere.err.times("are shown to"), 0);
}

#[test]
fn the_page_answers_while_clients_take_every_descriptor_that_gets_free() {
    let frontend = fresh_address();
    let folder = folder(&table(&[(frontend, echo_server())]));
    let run = [
        "run",
        "--threads=2",
        "--max-connections=1000",
        "--admin=127.0.0.1:0",
        "--table",
        folder.path().to_str().unwrap(),
    ];
    let process = Process::spawn(&mut limited("ulimit -n 64", &run));
    process.until_answers("/readyz", 200);
    let admin = process.admin();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| stay_served(frontend, &is_over));
        }
        process.until("no descriptor for a client", || {
            process.metrics().contains("ballast_accept_errors_total{")
        });
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| read_slowly(admin))).collect();
        let answers: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(answers.iter().all(Result::is_ok), "{}", process.err.text());
    });
}

/// A client that comes again for as long as it is not served, and then stays.
fn stay_served(frontend: SocketAddr, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        // Whoever is let in but cannot be connected is reset.
        let Ok(mut client) = connect(frontend) else {
            continue;
        };
        client
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        client.write_all(b"x").ok();
        loop {
            match client.read(&mut [0]) {
                Ok(1) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => break,
            }
            if is_over.load(Ordering::Relaxed) {
                return;
            }
        }
        support::pause(Duration::from_millis(5));
    }
}

/// Asks again and again, and each time says late what for.
fn read_slowly(admin: SocketAddr) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        let mut stream = connect(admin).unwrap();
        support::pause(Duration::from_millis(120));
        write!(
            stream,
            "GET /;csv HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn healthz_is_answered_where_the_flag_says() {
    let [one, two] = [(); 2].map(|()| folder("version: 1\nstats: {healthz: [\"127.0.0.1:1\"]}\n"));
    let at = SocketAddr::from(([127, 0, 0, 1], fresh_admin_port()));
    let process = Process::run(one.path(), &["--healthz", &at.to_string()]);
    process.until_answers("/readyz", 200);
    assert_eq!(get(at, "/healthz").unwrap().0, 200);
    assert_eq!(get(at, "/metrics").unwrap().0, 404);

    let taken = to_its_end(
        command(BALLAST)
            .args([
                "run",
                "--admin",
                "127.0.0.1:0",
                "--healthz",
                &at.to_string(),
                "--table",
            ])
            .arg(two.path()),
    );
    assert_eq!(taken.code, Some(1), "{taken:?}");
    assert!(taken.err.contains("choose another --healthz"), "{taken:?}");
}

#[test]
fn a_change_by_hand_is_logged_with_who_and_from_where() {
    let folder = folder(
        "version: 1\nservices: [{name: pool, endpoints: [{name: one, address: \"127.0.0.1:9\"}]}]\n",
    );
    let users = folder.path().join("users");
    fs::write(&users, "anna:secret\n").unwrap();
    let users = users.to_str().unwrap();
    let process = Process::run(folder.path(), &["--stats-auth-file", users]);
    process.until_answers("/readyz", 200);
    let admin = process.admin();
    let mut stream = TcpStream::connect(admin).unwrap();
    let body = "s=one&action=drain&b=pool";
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: {admin}\r\nOrigin: http://{admin}\r\nAuthorization: Basic YW5uYTpzZWNyZXQ=\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("location: /;st=DONE"), "{answer}");
    process.until_said("changed by hand");
    let log = process.err.text();
    let line = log.lines().find(|line| line.contains("changed by hand"));
    // In the words in which the runtime socket's changes are logged.
    let words = "changed by hand: pool/one state draining via=\"page\" by=\"anna\" from=127.0.0.1:";
    assert!(line.unwrap().contains(words), "{line:?}");
    assert!(!log.contains("secret"), "{log}");
}

#[test]
fn a_change_by_hand_is_logged_though_its_sender_is_gone() {
    let services: Vec<String> = (0..2_000)
        .map(|n| format!("{{name: s{n:04}, endpoints: [{{name: one, address: \"127.0.0.1:9\"}}]}}"))
        .collect();
    let folder = folder(&format!(
        "version: 1\nservices: [{}]\n",
        services.join(", ")
    ));
    let users = folder.path().join("users");
    fs::write(&users, "anna:secret\n").unwrap();
    let users = users.to_str().unwrap();
    let process = Process::run(folder.path(), &["--stats-auth-file", users]);
    process.until_answers("/readyz", 200);
    let admin = process.admin();
    let ask = |line: &str, body: &str| {
        let mut stream = TcpStream::connect(admin).unwrap();
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: {admin}\r\nOrigin: http://{admin}\r\nAuthorization: Basic YW5uYTpzZWNyZXQ=\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    };
    let mut changed = 0;
    for service in 0..40 {
        let name = format!("s{service:04}");
        // Some are gone before anything begins, others while the change is made.
        let gone = ask("POST /", &format!("s=one&action=drain&b={name}"));
        support::pause(Duration::from_millis(service / 4));
        drop(gone);
        let is_drained = support::comes_within(Duration::from_millis(300), || {
            let mut csv = String::new();
            let mut stream = ask(&format!("GET /;csv?scope={name}"), "");
            stream.read_to_string(&mut csv).unwrap();
            csv.contains(",DRAIN,")
        });
        if is_drained {
            changed += 1;
            process.until_said(&format!("changed by hand: {name}/one state draining"));
        }
    }
    assert!(changed > 0);
}
