//! `ballast run`: waiting for a table, flags and environment, the log.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};

use crate::peers::{connect, echo_server, fresh_address, fresh_admin_port, get, ping};
use crate::process::{
    BALLAST, Process, Signal, ack, command, folder, limited, permitted, replace, table, to_its_end,
};

#[test]
fn a_folder_is_waited_for() {
    let frontend = fresh_address();
    let folder = tempfile::tempdir().unwrap();
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/healthz", 200);
    process.until_answers("/readyz", 503);
    process.until_said("has no table; put table.json or table.yaml there");
    assert_eq!(ack(folder.path()), None);

    replace(&folder, "version: 1\nfrontends: [");
    process.until_said("table refused: ");
    process.until("a refusal in the ack", || {
        ack(folder.path()).is_some_and(|ack| !ack["refused"].is_null())
    });
    process.until_answers("/readyz", 503);
    assert_eq!(
        connect(frontend).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );

    replace(&folder, &table(&[(frontend, echo_server())]));
    process.until_answers("/readyz", 200);
    ping(&mut connect(frontend).unwrap()).unwrap();
    process.until("a success in the ack", || {
        ack(folder.path()).is_some_and(|ack| !ack["served"].is_null() && ack["refused"].is_null())
    });
}

#[test]
fn a_table_that_is_no_file_is_refused() {
    // A pipe could be read once, but not watched.
    let ended = to_its_end(
        command("sh")
            .arg("-c")
            .arg("echo 'version: 1' | \"$0\" run --table /dev/stdin --admin 127.0.0.1:0")
            .arg(BALLAST),
    );
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("save the table in a file"), "{ended:?}");
}

#[test]
fn sighup_reads_the_table_again() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let process = Process::run(folder.path(), &[]);
    process.until_said("table applied");
    process.until_said("ballast 0");
    for times in 2..5 {
        process.signal(Signal::HUP);
        process.until("the table once more", || {
            process.err.times("table applied") == times
        });
    }
    process.until_answers("/readyz", 200);
}

#[test]
fn every_flag_of_run_is_an_environment_variable_too_and_the_flag_wins() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let ack = folder.path().join("elsewhere.json");
    let mut run = command(BALLAST);
    run.arg("run")
        .args(["--threads", "3"])
        .env("BALLAST_TABLE", folder.path().join("table.yaml"))
        .env("BALLAST_ACK", &ack)
        .env("BALLAST_THREADS", "2")
        .env("BALLAST_ADMIN", "127.0.0.1:0,[::1]:0")
        .env("BALLAST_SOCKET", folder.path().join("socket"))
        .env("BALLAST_MAX_CONNECTIONS", "7")
        .env("BALLAST_SHUTDOWN_DELAY", "10ms")
        .env("BALLAST_DRAIN_TIMEOUT", "1")
        .env("BALLAST_LOG_FORMAT", "json")
        .env("BALLAST_LOG_LEVEL", "info");
    let mut process = Process::spawn(&mut run);
    process.until_said(r#""workers":3"#);
    process.until_said("at most 7 connections, as told");
    process.until_said(r#""admin":"127.0.0.1:"#);
    process.until_said(" [::1]:");
    process.until("an ack", || ack.exists());
    assert!(folder.path().join("socket").exists());
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
}

#[test]
fn a_wrong_environment_variable_is_wrong_usage() {
    let mut run = command(BALLAST);
    run.args(["run", "--table", "x"])
        .env("BALLAST_THREADS", "0");
    let ended = to_its_end(&mut run);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("'0' for '--threads <N>'"), "{ended:?}");
}

#[test]
fn every_line_of_the_json_log_is_an_object() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let mut process = Process::run(folder.path(), &["--log-format", "json"]);
    process.until_said("table applied");
    replace(&folder, "version: 2");
    process.until_said("table refused");
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
    let mut messages = lines_of_json(&process.err.text());

    // Neither are the last words of one that cannot start any exception.
    let path = folder.path().join("table.yaml");
    let mut refused = Process::run(&path, &["--log-format", "json"]);
    assert_eq!(refused.ends(), Some(64));
    messages.extend(lines_of_json(&refused.err.text()));
    for words in [
        "table applied",
        "table refused: version",
        "ended",
        "refused for a problem",
    ] {
        assert!(
            messages.iter().any(|message| message.contains(words)),
            "{words}: {messages:?}"
        );
    }
}

fn lines_of_json(log: &str) -> Vec<String> {
    log.lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            for part in ["timestamp", "level", "message"] {
                assert!(line[part].is_string(), "{part}: {line}");
            }
            line["message"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn lines_below_the_level_are_not_written() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let process = Process::run(folder.path(), &["--log-level", "error"]);
    process.until("an ack", || ack(folder.path()).is_some());
    replace(&folder, "version: 2");
    process.until_said("ERROR table refused: version");
    assert!(!process.err.text().contains("INFO"));
}

#[test]
fn there_are_as_many_workers_as_cores_for_this_process() {
    let folder = folder("version: 1\n");
    let process = Process::run(folder.path(), &[]);
    let cores = std::thread::available_parallelism().unwrap();
    process.until_said(&format!(" workers={cores} "));

    if !permitted("no taskset", &["taskset", "-c", "0", "true"]) {
        return;
    }
    let mut pinned = command("taskset");
    pinned
        .args(["-c", "0", BALLAST, "run", "--admin", "127.0.0.1:0"])
        .arg("--table")
        .arg(folder.path().join("table.yaml"));
    Process::spawn(&mut pinned).until_said(" workers=1 ");
}

#[test]
fn too_few_descriptors_for_anybody_are_said_before_anything_is_served() {
    let folder = folder("version: 1\n");
    let mut run = limited(
        "ulimit -n 30",
        &[
            "run",
            "--admin",
            "127.0.0.1:0",
            "--threads",
            "2",
            "--table",
            folder.path().to_str().unwrap(),
        ],
    );
    let ended = to_its_end(&mut run);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .err
            .contains("30 descriptors are too few for 2 workers")
            && ended.err.contains("raise the limit (ulimit -n)"),
        "{ended:?}"
    );
}

#[test]
fn the_admin_side_may_be_nowhere() {
    let frontend = fresh_address();
    let folder = folder(&table(&[(frontend, echo_server())]));
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "none", "--table"]);
    let mut process = Process::spawn(run.arg(folder.path()));
    process.until("a frontend that serves", || {
        connect(frontend).is_ok_and(|mut client| ping(&mut client).is_ok())
    });
    process.until("an ack", || ack(folder.path()).is_some());
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
}

#[test]
fn a_star_is_every_address_of_both_families() {
    let folder = folder("version: 1\n");
    let port = fresh_admin_port();
    let mut run = command(BALLAST);
    run.args(["run", "--admin", &format!("*:{port}"), "--table"]);
    let process = Process::spawn(run.arg(folder.path()));
    process.until_said(" admin=");
    let mut addresses = vec![SocketAddr::from(([127, 0, 0, 1], port))];
    // Where the kernel has IPv6.
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        addresses.push((Ipv6Addr::LOCALHOST, port).into());
    }
    for address in addresses {
        process.until(&address.to_string(), || {
            get(address, "/healthz").is_ok_and(|(status, _)| status == 200)
        });
    }
}
