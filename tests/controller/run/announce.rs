//! `ballast-controller announce` and `addresses` as commands: flags, exit codes, what is printed, and how small the process is. What it
//! does on networks is tested in `tests/announce`.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

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
    // Each has its line, and of several keys that are missing each is named.
    let (_, _, err) = check("version: 1\nnode: edge1\naddresses:\n- {ready: true, mod: l2}\n");
    for line in [
        "\nline 4, column 3: addresses[0]: address is missing; ",
        "\nline 4, column 3: addresses[0]: mode is missing; ",
        "\nline 4, column 3: addresses[0]: nodes is missing; ",
        "\nline 4, column 17: addresses[0].mod: is not a known key; did you mean mode?",
    ] {
        assert!(err.contains(line), "{line}: {err}");
    }
    // The key is a part of it.
    let members = "members: {bind: \"127.0.0.1:7956\", key-file: members.key}\n";
    let (code, _, err) = check(&format!("{GOOD}{members}"));
    assert_eq!(code, Some(64));
    assert!(err.contains("members.key-file: cannot read "), "{err}");
    let key = folder.path().join("members.key");
    fs::write(&key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").expect("a file");
    for (mode, words) in [(0o644, "(mode 0644)"), (0o600, "")] {
        fs::set_permissions(&key, Permissions::from_mode(mode)).expect("a mode");
        let (code, out, err) = check(&format!("{GOOD}{members}"));
        assert_eq!((code, out.contains("1 address")), (Some(0), true), "{err}");
        assert_eq!(err.is_empty(), words.is_empty(), "{err}");
        assert!(err.contains(words), "{err}");
    }
}

#[test]
fn an_ack_of_an_announcer_that_does_not_run_is_not_shown_as_fresh() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("announce.yaml");
    let path = folder.path().join("announce-ack.json");
    let status = r#"{"address":"192.0.2.10","state":"held","owner":"edge1","since":0,"detail":""}"#;
    let ack =
        format!(r#"{{"version":1,"file-digest":null,"refused":null,"addresses":[{status}]}}"#);
    fs::write(&path, ack).expect("a file");
    let shown = || to_its_end(&["addresses", "--file", file.to_str().expect("a path")]);
    let (code, out, err) = shown();
    assert_eq!((code, &*err), (Some(0), ""));
    assert!(out.contains("192.0.2.10  edge1  held"), "{out}");
    let ack = fs::File::options().write(true).open(&path).expect("a file");
    let before = SystemTime::now() - Duration::from_secs(100);
    ack.set_modified(before).expect("a time");
    let (code, out, err) = shown();
    assert_eq!(code, Some(1));
    assert!(out.contains("192.0.2.10  edge1  held"), "{out}");
    assert!(
        err.contains("the announcer does not run: ") && err.contains(" is 10"),
        "{err}"
    );
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
    let elsewhere = folder.path().join("elsewhere.json");
    fs::copy(folder.path().join("announce-ack.json"), &elsewhere).expect("an ack");
    let elsewhere = elsewhere.to_str().expect("a path");
    let (code, by_its_path, err) = to_its_end(&["addresses", "--ack", elsewhere]);
    assert_eq!((code, &*err), (Some(0), ""));
    for said in [&out, &from_ack, &by_its_path] {
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
    // The one that runs everything, those of the files and of the log, and one of the allocator at most.
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
