//! Addresses that cannot be had: taken by another `ballast`, by a stranger, or beyond the process's rights.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use serde_json::Value;

use crate::peers::{connect, echo_server, fresh_address, fresh_admin_port, fresh_ip, get, ping};
use crate::process::{
    AS_NOBODY, BALLAST, Ended, Process, Signal, ack, ballast, command, folder, for_everybody,
    permitted, replace, table, to_its_end,
};

#[test]
fn a_second_ballast_with_the_same_admin_port_does_not_start() {
    let (one, two) = (folder("version: 1\n"), folder("version: 1\n"));
    let (port, other_port) = (fresh_admin_port(), fresh_admin_port());
    let admin = |port| SocketAddr::from((fresh_ip(), port)).to_string();
    let run = |folder: &Path, admin: &str| {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", admin, "--table"]).arg(folder);
        run
    };
    let mut first = Process::spawn(&mut run(one.path(), &admin(port)));
    first.until_answers("/readyz", 200);

    // The port counts, whatever the address.
    let ended = to_its_end(&mut run(two.path(), &admin(port)));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for words in [
        "ballast: another ballast runs in this network namespace with the same admin port",
        &port.to_string(),
        "stop it, choose another --admin, or have this one wait for its end with --wait",
    ] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
    assert!(first.is_running());

    let beside = Process::spawn(&mut run(two.path(), &admin(other_port)));
    beside.until_answers("/readyz", 200);

    first.signal(Signal::TERM);
    assert_eq!(first.ends(), Some(0));
    let successor = Process::spawn(&mut run(one.path(), &admin(port)));
    successor.until_answers("/readyz", 200);
}

/// A table that is a file has no ack: the log is all that tells.
#[test]
fn what_does_not_listen_as_asked_is_said_once() {
    let address = fresh_ip();
    let mut text = format!(
        "version: 1
frontends:
  - {{name: web, bind: [\"{address}:80\"], protocol: https, tls: {{certificates: [{{cert: none.pem}}]}}, default: {{status: 404}}}}
  - {{name: far, bind: [\"203.0.113.9:80\"], protocol: tcp, service: s}}
services:
  - {{name: none, endpoints: []}}
  - {{name: s, endpoints: [{{address: \"{address}:1\"}}]}}
"
    );
    let idle: String = (0..30)
        .map(|port| {
            format!("  - {{name: idle-{port}, bind: [\"{address}:{}\"], protocol: tcp, service: none}}\n", 1000 + port)
        })
        .collect();
    text = text.replace("services:\n", &format!("{idle}services:\n"));
    let folder = folder(&text);
    let process = Process::run(&folder.path().join("table.yaml"), &[]);
    process.until_answers("/readyz", 200);
    for words in [
        format!(
            "frontend web, bind {address}:80: failed: none.pem: No such file or directory (os error 2)\n"
        ),
        "frontend far, bind 203.0.113.9:80: not-local: this node does not hold 203.0.113.9 now;"
            .into(),
        format!("frontend idle-0, bind {address}:1000: idle: its service has no endpoint"),
        "... and 12 more binds that do not listen; the ack names them all\n".into(),
    ] {
        process.until_said(&words);
    }
    replace(&folder, &format!("{text}# the same\n"));
    process.until("a second table", || process.err.times("table applied") == 2);
    assert_eq!(process.err.times("frontend web, bind"), 1);
    assert_eq!(process.err.times(": idle: "), 18);
}

#[test]
fn a_service_whose_tls_lacks_a_file_is_down_and_the_rest_is_served() {
    let (address, other) = (fresh_address(), fresh_address());
    let text = format!(
        "version: 1
frontends:
  - {{name: web, bind: [\"{address}\"], protocol: http, routes: [{{path: /a, service: a}}, {{path: /b, status: 204}}]}}
  - {{name: all, bind: [\"{other}\"], protocol: http, default: {{service: a}}}}
services:
  - {{name: a, tls: {{ca: none.pem}}, endpoints: [{{address: \"{}\"}}]}}
",
        echo_server()
    );
    let folder = folder(&text);
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    let why = "service a: none.pem: No such file or directory (os error 2); its endpoints are not connected to";
    process.until_said(&format!(
        "frontend web, bind {address}: serves in part: {why}; the other routes are served\n"
    ));
    process.until_said(&format!("frontend all, bind {other}: failed: {why}\n"));
    assert_eq!(get(address, "/b").unwrap().0, 204);
    assert!(get(address, "/a").unwrap().0 >= 502);
    process.until("the failed connection, with its service", || {
        let said = process.err.text();
        let line = said
            .lines()
            .find(|line| line.contains("cannot connect to an endpoint"));
        line.is_some_and(|line| line.contains("service=\"a\"") && line.contains("none.pem"))
    });
    let csv = get(process.admin(), "/;csv").unwrap().1;
    let row = csv
        .lines()
        .find(|line| line.starts_with("a,BACKEND,"))
        .unwrap();
    assert!(row.contains(",DOWN,"), "{row}");
}

#[test]
fn an_address_at_which_another_process_listens_too_is_said_once() {
    let (address, alone) = (fresh_address(), fresh_address());
    let echo = echo_server();
    let one = folder(&table(&[(address, echo)]));
    let two = folder(&table(&[(address, echo), (alone, echo)]));
    let first = Process::run(one.path(), &[]);
    first.until_answers("/readyz", 200);
    let second = Process::run(two.path(), &[]);
    second.until_said(&format!(
        "bind {address}: another process listens there, too"
    ));
    assert!(!second.err.text().contains(&format!("bind {alone}")));
    assert_eq!(second.err.times("another process listens there"), 1);
}

#[test]
fn a_second_ballast_with_the_same_table_and_no_admin_port_does_not_start() {
    let folder = folder("version: 1\n");
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "none", "--table"])
        .arg(folder.path());
    let first = Process::spawn(&mut run);
    first.until_said("table applied");
    let ended = to_its_end(&mut run);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("another ballast "), "{ended:?}");
    assert!(ended.err.contains("stop it"), "{ended:?}");
}

#[test]
fn an_admin_address_of_a_stranger_is_a_clear_error() {
    let folder = folder("version: 1\n");
    let taken = SocketAddr::from((fresh_ip(), fresh_admin_port()));
    let _stranger = TcpListener::bind(taken).unwrap();
    let run = |admin: &str| -> Ended {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", admin, "--table"]);
        to_its_end(run.arg(folder.path()))
    };
    let ended = run(&taken.to_string());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    // This test is the stranger.
    let pid = std::process::id();
    let words = format!("(pid {pid}), which would have to end; choose another --admin");
    let begin = format!("ballast: admin: bind {taken}: address in use by ");
    assert!(ended.err.contains(&begin), "{ended:?}");
    assert!(ended.err.contains(&words), "{ended:?}");
    assert!(
        ended.err.ends_with("; choose another --admin\n"),
        "{ended:?}"
    );

    // Of the documentation's range, which nobody has.
    let elsewhere = format!("192.0.2.1:{}", fresh_admin_port());
    let ended = run(&elsewhere);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let words = format!("ballast: admin: bind {elsewhere}: Cannot assign requested address");
    assert!(ended.err.contains(&words), "{ended:?}");
}

#[test]
fn an_address_that_this_host_does_not_hold_is_told_beside_open() {
    let port = fresh_address().port();
    // Of the documentation's range, which nobody has.
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], port));
    let folder = folder(&table(&[(elsewhere, echo_server())]));
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    let admin = process.admin();
    let show = |output| {
        let (admin, what) = (admin.to_string(), "frontends");
        let ended = ballast(["show", what, "--admin", &admin, "-o", output]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out
    };
    let text = show("text");
    assert!(text.contains("OPEN, not local"), "{text}");
    let why = format!("\nf0 {elsewhere} not-local: this node does not hold 192.0.2.1 now");
    assert!(text.contains(&why), "{text}");
    let json: Value = serde_json::from_str(&show("json")).unwrap();
    assert_eq!(json[0]["status"], "OPEN", "as haproxy has it");
    assert_eq!(json[0]["exceptions"][0]["state"], "not-local");
    let page = get(admin, "/").unwrap().1;
    assert!(page.contains(">NOT LOCAL</b>"), "{page}");
}

#[test]
fn a_frontend_whose_address_is_taken_has_failed_and_the_others_serve() {
    let (taken, free) = (fresh_address(), fresh_address());
    let stranger = TcpListener::bind(taken).unwrap();
    let echo = echo_server();
    let folder = folder(&table(&[(taken, echo), (free, echo)]));
    let mut process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    ping(&mut connect(free).unwrap()).unwrap();

    process.until("an ack", || ack(folder.path()).is_some());
    let exceptions = exceptions(folder.path());
    let [exception] = exceptions.as_slice() else {
        panic!("{exceptions:?}");
    };
    assert_eq!(exception["frontend"], "f0");
    assert_eq!(exception["bind"], taken.to_string());
    assert_eq!(exception["state"], "failed");
    let why = exception["why"].as_str().unwrap();
    assert!(why.contains("address in use"), "{why}");
    assert!(why.contains("`ss -ltnp` names it"), "{why}");
    process.until_said(&format!("ERROR {why}"));

    drop(stranger);
    process.until("a second try", || {
        connect(taken).is_ok_and(|mut client| ping(&mut client).is_ok())
    });
    process.until("no exception", || {
        self::exceptions(folder.path()).is_empty()
    });
    assert!(process.is_running());
}

#[test]
fn a_low_port_without_the_right_has_failed_and_the_others_serve() {
    let namespace = ["unshare", "--net", "--"];
    let probe = [&namespace[..], &AS_NOBODY, &["true"]].concat();
    if !permitted(
        "no right to a network namespace, or to become nobody",
        &probe,
    ) {
        return;
    }
    let (folder, program) = for_everybody();
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let endpoint = at(9);
    fs::write(
        folder.path().join("table.yaml"),
        table(&[(at(80), endpoint), (at(17_080), endpoint)]),
    )
    .unwrap();
    let script = "echo 1024 >/proc/sys/net/ipv4/ip_unprivileged_port_start && ip link set lo up && exec \"$@\"";
    let mut run = command(namespace[0]);
    run.args(&namespace[1..])
        .args(["sh", "-c", script, "sh"])
        .args(AS_NOBODY)
        .arg(program)
        .args(["run", "--admin", "127.0.0.1:0", "--table"])
        .arg(folder.path());
    let mut process = Process::spawn(&mut run);
    process.until("an ack", || ack(folder.path()).is_some());
    let exceptions = exceptions(folder.path());
    let [exception] = exceptions.as_slice() else {
        panic!("{exceptions:?}");
    };
    assert_eq!(exception["bind"], "127.0.0.1:80");
    assert_eq!(exception["state"], "failed");
    let why = exception["why"].as_str().unwrap();
    for words in ["no right to a port below 1024", "CAP_NET_BIND_SERVICE"] {
        assert!(why.contains(words), "{why}");
    }
    process.until_said(&format!("ERROR {why}"));
    assert!(process.is_running());
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
}

fn exceptions(folder: &Path) -> Vec<Value> {
    let ack = ack(folder).unwrap();
    ack["exceptions"].as_array().unwrap().clone()
}
