//! `ballast-controller announce` and `addresses` as commands: flags, exit codes, what is printed, and how small the process is. What it
//! does on networks is tested in `tests/announce`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use rustix::process::Signal;

use crate::run::host::{Program, free_port, get, signal, to_its_end, until};
use support::program::program;
use support::skip::skip;

#[test]
fn a_file_is_checked_with_every_mistake_and_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("announce.yaml");
    let file = path.to_str().expect("a path");
    let check = |text: &str| {
        fs::write(&path, text).expect("a file");
        to_its_end(&["announce", "--check", "--file", file])
    };
    let (code, out, err) = check(GOOD);
    assert_eq!((code, &*err), (Some(0), ""));
    assert_eq!(out, format!("{file}: 1 address\n"));

    let (code, out, err) = check(
        &GOOD
            .replace("mode: l2", "mode: l3")
            .replace("2.10", "2.300"),
    );
    assert_eq!((code, &*out), (Some(64), ""));
    for place in ["--file: ", "addresses[0].mode", "addresses[0].address"] {
        assert!(err.contains(place), "{place}: {err}");
    }
    // The key is a part of it.
    let members = "members: {bind: \"127.0.0.1:7956\", key-file: members.key}\n";
    let (code, _, err) = check(&format!("{GOOD}{members}"));
    assert_eq!(code, Some(64));
    assert!(err.contains("members.key-file: cannot read "), "{err}");
}

#[test]
fn wrong_usage_and_an_announcer_that_is_not_there_have_their_codes() {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())).to_string();
    for (arguments, code, words) in [
        (&["announce"][..], 64, "--file"),
        (
            &["announce", "--file", "x", "--admin", "here"],
            64,
            "IP:PORT or none",
        ),
        (
            &["addresses", "--file", "x", "--admin", &nobody],
            64,
            "--admin",
        ),
        (
            &["addresses", "--file", "/nowhere/announce.yaml"],
            1,
            "announce-ack.json",
        ),
        (
            &["addresses", "--admin", &nobody],
            1,
            "no announcer answers there",
        ),
    ] {
        let (found, out, err) = to_its_end(arguments);
        assert_eq!((found, &*out), (Some(code), ""), "{arguments:?}: {err}");
        assert!(err.contains(words), "{arguments:?}: {err}");
    }
}

#[test]
fn it_runs_without_kubernetes_and_is_small() {
    if !rustix::process::geteuid().is_root() {
        return skip("the announcer needs CAP_NET_RAW: run this test as root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("announce.yaml");
    // Nothing of this host is changed: it cannot serve the address.
    fs::write(&path, GOOD).expect("a file");
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut command = program("ballast-controller");
    command.args(["announce", "--admin", &admin.to_string(), "--file"]);
    // As in a pod, in which the other roles would look for the API server.
    command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    command.env("KUBERNETES_SERVICE_PORT", "1");
    let log = folder.path().join("log");
    let mut announcer = Program::start(command.arg(&path), log);
    until("it is ready", || {
        get(admin, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
    });
    let (code, out, err) = to_its_end(&["addresses", "--admin", &admin.to_string()]);
    assert_eq!((code, &*err), (Some(0), ""));
    let by_file = path.to_str().expect("a path");
    let (code, from_ack, err) = to_its_end(&["addresses", "--file", by_file]);
    assert_eq!((code, &*err), (Some(0), ""));
    for said in [&out, &from_ack] {
        assert!(said.starts_with("ADDRESS "), "{said}");
        assert!(said.contains("\n192.0.2.10  -      not-ready "), "{said}");
    }
    let metrics = get(admin, "/metrics").expect("an answer");
    let expected = "\nballast_announced{address=\"192.0.2.10\",mode=\"l2\"} 0\n";
    assert!(metrics.contains(expected), "{metrics}");

    let status = status_of(&announcer);
    let field = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).expect(name)
    };
    // Of a release build it is 20 MB at most; a build for debugging has larger code.
    assert!(field("RssAnon:") < 20_000, "{status}");
    // The one that runs everything, the one of the log, and one of the allocator at most.
    assert!(field("Threads:") <= 4, "{status}");

    signal(&announcer, Signal::TERM);
    assert_eq!(announcer.ends(), Some(0));
}

fn status_of(program: &Program) -> String {
    let status = Path::new("/proc")
        .join(program.id().to_string())
        .join("status");
    fs::read_to_string(status).expect("it runs")
}

const GOOD: &str = "version: 1
node: edge1
addresses:
- {address: 192.0.2.10, mode: l2, nodes: [edge1], ready: false}
";
