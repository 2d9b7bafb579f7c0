//! How `ballast run` ends: in order, cut, at once.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::peers::{connect, echo_server, fresh_address, fresh_admin_port, get, ping, server};
use crate::process::{BALLAST, Process, Signal, command, folder, table};
use support::raw::Raw;

#[test]
fn clients_come_for_the_shutdown_delay_and_may_finish_after_it() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut process, frontend, _folder) =
            serve(&["--shutdown-delay", "4s", "--drain-timeout", "50s"]);
        let mut early = connected(frontend);

        process.signal(signal);
        process.until_answers("/readyz", 503);
        process.until_answers("/healthz", 200);
        let mut late = connected(frontend);

        process.until("no more accepting", || {
            connect(frontend).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
        ping(&mut early).unwrap();
        ping(&mut late).unwrap();
        process.until_answers("/readyz", 503);
        drop((early, late));
        assert_eq!(process.ends(), Some(0));
        process.until_said("ended cut=0");
    }
}

#[test]
fn who_does_not_finish_in_time_is_cut_and_counted_aloud() {
    // A bare number is seconds.
    let (mut process, frontend, _folder) = serve(&["--drain-timeout", "1"]);
    let mut clients = [
        connected(frontend),
        connected(frontend),
        connected(frontend),
    ];
    let begun = Instant::now();
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0), "having to cut is an ordered end");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    process.until_said("connections did not finish in time and are cut cut=3");
    process.until_said("ended cut=3");
    for client in &mut clients {
        // A reset, so that nobody takes it for the end of an answer.
        let end = client.read(&mut [0]);
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    for (first, second) in [
        (Signal::TERM, Signal::TERM),
        (Signal::INT, Signal::INT),
        (Signal::TERM, Signal::INT),
    ] {
        let (mut process, frontend, _folder) = serve(&["--drain-timeout", "1h"]);
        let client = connected(frontend);
        process.signal(first);
        process.until_said("a second signal ends at once");
        no_longer_the_same_signal();
        assert!(process.is_running());
        process.signal(second);
        assert_eq!(process.ends(), Some(1));
        process.until_said("ended at once");
        drop(client);
    }
}

#[test]
fn a_second_signal_ends_the_shutdown_delay_too_and_sighup_does_not() {
    let (mut process, _, _folder) = serve(&["--shutdown-delay", "1h"]);
    process.signal(Signal::TERM);
    process.until_answers("/readyz", 503);
    process.signal(Signal::HUP);
    process.until_answers("/healthz", 200);
    no_longer_the_same_signal();
    assert!(process.is_running());
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(1));
}

#[test]
fn two_signals_that_come_at_once_are_one() {
    let (mut process, frontend, _folder) = serve(&["--drain-timeout", "1h"]);
    let mut client = connected(frontend);
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        process.signal(signal);
    }
    process.until_said("a second signal ends at once");
    no_longer_the_same_signal();
    ping(&mut client).unwrap();
    drop(client);
    assert_eq!(process.ends(), Some(0));
}

#[test]
fn sigusr1_ends_without_a_deadline_and_sigterm_then_begins_the_drain_timeout() {
    let (mut process, frontend, _folder) = serve(&["--drain-timeout", "100ms"]);
    let mut client = connected(frontend);
    process.signal(Signal::USR1);
    process.until_said("ending by SIGUSR1: connections may finish, however long they take");
    process.until_answers("/readyz", 503);
    process.until("no more accepting", || {
        connect(frontend).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    // Longer than the drain timeout, and than two signals may be one.
    support::pause(Duration::from_millis(500));
    process.signal(Signal::USR1);
    process.signal(Signal::USR2);
    process.until_said("SIGUSR2 is ignored");
    ping(&mut client).unwrap();
    assert!(process.is_running());

    process.signal(Signal::TERM);
    process.until_said("the drain timeout begins");
    assert_eq!(process.ends(), Some(0));
    process.until_said("ended cut=1");
    let end = client.read(&mut [0]);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_process_that_sigusr1_ends_ends_when_its_last_client_leaves() {
    let (mut process, frontend, _folder) = serve(&["--drain-timeout", "0"]);
    let mut client = connected(frontend);
    process.signal(Signal::USR2);
    process.until_said("SIGUSR2 is ignored");
    process.until_answers("/readyz", 200);
    process.signal(Signal::USR1);
    process.until_answers("/readyz", 503);
    ping(&mut client).unwrap();
    drop(client);
    assert_eq!(process.ends(), Some(0));
    process.until_said("ended cut=0");
}

#[test]
fn the_second_sigterm_after_sigusr1_ends_at_once() {
    let (mut process, frontend, _folder) = serve(&["--drain-timeout", "1h"]);
    let _client = connected(frontend);
    process.signal(Signal::USR1);
    process.until_said("ending by SIGUSR1");
    process.signal(Signal::TERM);
    process.until_said("the drain timeout begins");
    no_longer_the_same_signal();
    assert!(process.is_running());
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(1));
    process.until_said("ended at once");
}

#[test]
fn one_that_waits_for_a_table_ends_in_order_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::run(folder.path(), &[]);
    process.until_answers("/healthz", 200);
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
}

/// Nobody waits for who may never ask again, and who has just come is answered.
#[test]
fn clients_of_http_do_not_hold_up_the_end_and_are_answered_before_it() {
    let endpoint = server(|mut client| {
        let mut asked = [0; 4096];
        while client.read(&mut asked).is_ok_and(|read| read > 0) {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved";
            client.write_all(answer).unwrap();
        }
    });
    let frontend = fresh_address();
    let folder = folder(&format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"{frontend}\"], protocol: http, default: {{service: s}}}}]\nservices: [{{name: s, endpoints: [{{address: \"{endpoint}\"}}]}}]\n"
    ));
    let mut process = Process::run(folder.path(), &["--drain-timeout", "50s"]);
    process.until_answers("/readyz", 200);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut kept = connect(frontend).unwrap();
    kept.write_all(request).unwrap();
    let mut answer = vec![0; 1024];
    assert!(kept.read(&mut answer).unwrap() > 0);
    let mut kept_by_http2 = Raw::to(frontend);
    kept_by_http2.get(1, "/");
    assert_eq!(kept_by_http2.message(1).text(), "served");
    let mut silent = connect(frontend).unwrap();
    let third = "haproxy_frontend_sessions_total{proxy=\"f\"} 3\n";
    process.until("the third client", || process.metrics().contains(third));

    let begun = Instant::now();
    process.signal(Signal::TERM);
    process.until("no more accepting", || connect(frontend).is_err());
    support::pause(Duration::from_millis(200));
    silent.write_all(request).ok();
    let mut heard = String::new();
    silent.read_to_string(&mut heard).ok();
    assert!(heard.starts_with("HTTP/1.1 200 OK\r\n"), "{heard:?}");
    assert!(heard.contains("Connection: close\r\n"), "{heard}");
    assert_eq!(kept.read(&mut answer).unwrap(), 0);
    kept_by_http2.rest();
    assert_eq!(process.ends(), Some(0));
    process.until_said("ended cut=0");
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn sigterm_does_not_wait_for_the_first_table() {
    let folder = folder(&slow_table(60_000));
    let path = folder.path().join("table.yaml");
    for table in [folder.path(), &path] {
        let mut process = Process::run(table, &[]);
        process.until("the thread that reads", || is_reading(&process));
        process.signal(Signal::TERM);
        assert_eq!(process.ends(), Some(0));
        process.until_said("ended by a signal, before it began");
    }
}

#[test]
fn health_does_not_wait_for_the_first_table() {
    let folder = folder(&slow_table(60_000));
    let [admin, health] =
        [fresh_admin_port(), fresh_admin_port()].map(|port| format!("127.0.0.1:{port}"));
    let mut run = command(BALLAST);
    run.args(["run", "--admin", &admin, "--healthz", &health, "--table"]);
    let mut process = Process::spawn(run.arg(folder.path()));
    for at in [&admin, &health] {
        let at = at.parse().unwrap();
        process.until("health", || {
            get(at, "/healthz").is_ok_and(|(status, body)| status == 200 && body == "ok\n")
        });
    }
    let (status, why) = get(admin.parse().unwrap(), "/readyz").unwrap();
    assert_eq!(
        (status, &*why),
        (503, "not ready: the first table is being read\n")
    );
    assert_eq!(get(admin.parse().unwrap(), "/").unwrap().0, 503);
    assert!(
        is_reading(&process),
        "the table was read too soon for this test"
    );
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
}

#[test]
fn health_has_no_gap_when_the_first_table_was_read() {
    let frontend = fresh_address();
    let good = table(&[(frontend, echo_server())]);
    let slow = slow_table(6_000);
    let (_, service) = slow.split_once("services:\n").unwrap();
    let folder = folder(&format!("{good}{service}"));
    let admin = format!("127.0.0.1:{}", fresh_admin_port());
    let mut run = command(BALLAST);
    run.args(["run", "--admin", &admin, "--table"]);
    let process = Process::spawn(run.arg(folder.path()));
    let admin = admin.parse().unwrap();
    process.until("health", || get(admin, "/healthz").is_ok());
    let mut asked = 0;
    while get(admin, "/readyz").is_ok_and(|(status, _)| status == 503) {
        let (status, _) = get(admin, "/healthz").unwrap();
        assert_eq!(status, 200, "{}", process.err.text());
        asked += 1;
    }
    process.until_answers("/readyz", 200);
    assert!(asked > 0, "the table was read too soon for this test");
}

/// A table with a service that takes long to read.
fn slow_table(endpoints: u32) -> String {
    let endpoints: String = (0..endpoints)
        .map(|number| {
            format!(
                "      - {{address: \"10.{}.{}.{}:80\", weight: 1}}\n",
                number >> 16,
                (number >> 8) & 255,
                number & 255
            )
        })
        .collect();
    format!("version: 1\nservices:\n  - name: s\n    endpoints:\n{endpoints}")
}

/// Whether the process still reads its first table.
fn is_reading(process: &Process) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid()));
    let tasks = tasks.into_iter().flatten().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.flatten().any(|name| name == "first-read\n")
}

/// Who passes a signal on may send it twice, and means one: for 100 ms.
fn no_longer_the_same_signal() {
    support::pause(Duration::from_millis(200));
}

fn serve(args: &[&str]) -> (Process, SocketAddr, TempDir) {
    let frontend = fresh_address();
    let folder = folder(&table(&[(frontend, echo_server())]));
    let process = Process::run(folder.path(), args);
    process.until_answers("/readyz", 200);
    (process, frontend, folder)
}

fn connected(frontend: SocketAddr) -> TcpStream {
    let mut client = connect(frontend).unwrap();
    ping(&mut client).unwrap();
    client
}
