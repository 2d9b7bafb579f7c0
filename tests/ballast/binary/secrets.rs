//! Where `ballast` has keys, names and secrets: none of them is in its log, an answer of its own, or the ack.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use support::papers::Papers;

use crate::peers::{connect, fresh_address, has_handshake};
use crate::process::{Process, Signal, ballast, folder, replace};

#[test]
fn no_secret_is_in_the_log_in_an_answer_or_in_the_ack() {
    let papers = Papers::new();
    papers.issue("web", &["web.test"]);
    let tickets: Vec<String> = (0..3_u8)
        .map(|of| BASE64_STANDARD.encode([0xa0 + of; 48]))
        .collect();
    papers.write("tickets", tickets.join("\n").as_bytes());
    let users = "alice:Plain-Secret-4711\nbob:Other-Secret-4712:viewer\n";
    papers.write("users", users.as_bytes());
    let key = fs::read_to_string(papers.path("web.key")).unwrap();
    let of_key = key.lines().filter(|line| !line.starts_with('-'));
    let mut secrets: Vec<String> = of_key.map(str::to_owned).collect();
    secrets.extend(tickets);
    let login = BASE64_STANDARD.encode("alice:Plain-Secret-4711");
    secrets.extend(["Plain-Secret-4711", "Other-Secret-4712", &login].map(str::to_owned));
    assert!(secrets.len() >= 8, "{secrets:?}");

    let https = fresh_address();
    let table = |tickets: &str| {
        format!(
            "version: 1\nticket-keys: {}\nfrontends: [{{name: web, bind: [\"{https}\"], protocol: https, tls: {{certificates: [{}]}}, routes: [{{host: web.test, status: 204}}]}}]\n",
            papers.named(tickets),
            papers.entry("web")
        )
    };
    let good = table("tickets");
    let folder = folder(&good);
    let socket = folder.path().join("s").display().to_string();
    let users = papers.named("users");
    let mut process = Process::run(
        folder.path(),
        &[
            "--socket",
            &socket,
            "--stats-auth-file",
            &users,
            "--log-level",
            "trace",
        ],
    );
    process.until_said("table applied");
    process.until("a handshake", || handshakes(https, &papers));
    let mut said = String::new();
    for path in [
        "/",
        "/;csv",
        "/;json",
        "/metrics",
        "/healthz",
        "/;typed",
        "/api/snapshot",
    ] {
        for login in [&*login, "d3Jvbmc6d3Jvbmc="] {
            said += &ask(process.admin(), path, login);
        }
    }
    let name = papers.named("web.crt");
    for what in [
        "info",
        "stat",
        "stat json",
        "servers state",
        "errors",
        "sess",
        "ssl cert",
        "snapshot",
        "overrides",
        "table",
        &format!("ssl cert {name}"),
    ] {
        said += &ballast(["ctl", &format!("show {what}"), "--socket", &socket]).out;
    }
    assert!(said.contains("web"), "{said}");

    // Files with mistakes are explained without what is in them.
    papers.write(
        "users",
        b"alice:Plain-Secret-4711:nothing\nOther-Secret-4712\n",
    );
    process.until("that the file is wrong", || {
        ask(process.admin(), "/", &login);
        process.has_said("the previous users stay valid")
    });
    replace(&folder, &table("web.key"));
    process.until("another table", || {
        process.err.times("table applied") + process.err.times("refused") > 1
    });
    let checked = ballast(["check", &folder.path().display().to_string()]);
    said += &(checked.out + &checked.err);
    said += &fs::read_to_string(folder.path().join("ack.json")).unwrap();
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
    said += &process.err.text();
    said += &process.out.text();
    for secret in secrets {
        assert!(!said.contains(&secret), "{secret}");
    }
}

/// The answer to who has this login, in base64.
pub(crate) fn ask(admin: SocketAddr, path: &str, login: &str) -> String {
    let mut stream = connect(admin).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn handshakes(address: SocketAddr, papers: &Papers) -> bool {
    connect(address).is_ok_and(|stream| has_handshake(stream, papers))
}
