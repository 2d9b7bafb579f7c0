//! The flags of the admin side.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::peers::{fresh_admin_port, get};
use crate::process::{BALLAST, Process, command, folder, to_its_end};

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
    for words in [
        "service=\"pool\"",
        "endpoint=\"one\"",
        "action=\"drain\"",
        "by=\"anna\"",
        "from=127.0.0.1:",
    ] {
        assert!(line.unwrap().contains(words), "{words}: {line:?}");
    }
    assert!(!log.contains("secret"), "{log}");
}
