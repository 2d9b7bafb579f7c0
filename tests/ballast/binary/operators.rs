//! `ballast run --socket`, and the two that ask it: `ballast ctl` and `ballast show`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::peers::{echo_server, fresh_address};
use crate::process::{
    BALLAST, Ended, Process, Signal, ballast, command, folder, table, to_its_end,
};

/// A `ballast` with a runtime socket, and the folder where that is.
fn with_socket() -> (Process, TempDir, String) {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let socket = folder.path().join("socket").display().to_string();
    let process = Process::run(folder.path(), &["--socket", &socket]);
    process.until_answers("/readyz", 200);
    (process, folder, socket)
}

fn ctl(socket: &str, line: &str) -> Ended {
    ballast(["ctl", line, "--socket", socket])
}

#[test]
fn ctl_passes_commands_and_prints_answers_raw() {
    let (_process, _folder, socket) = with_socket();
    let version = VERSION;
    let ended = ctl(&socket, "show version;show backend");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.out, format!("{version}\n\n# name\ns0\n\n"));
    assert_eq!(ended.err, "");

    let mut shell = command("sh");
    shell
        .args([
            "-c",
            "printf 'show version\\n\\nget weight s0/x\\n' | \"$0\" ctl",
            BALLAST,
        ])
        .env("BALLAST_SOCKET", &socket);
    let ended = to_its_end(&mut shell);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.out, format!("{version}\n\nNo such server.\n\n"));
}

#[test]
fn ctl_ends_with_1_when_an_answer_is_an_error() {
    let (_process, _folder, socket) = with_socket();
    for (line, code, said) in [
        ("show version", 0, ""),
        ("", 0, "show info"),
        ("show version; quit; nonsense", 0, ""),
        ("disable server s0/none", 1, "No such server.\n\n"),
        ("shwo info", 1, "Unknown command: 'shwo info'"),
        ("set maxconn frontend f0 0", 1, "Integer value expected"),
        ("get weight s0/none; show version", 1, "No such server."),
        ("show version; get weight s0/none", 1, "No such server."),
        ("set server s0/none weight <<", 1, "payload"),
    ] {
        let ended = ctl(&socket, line);
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        assert!(ended.out.contains(said), "{line}: {ended:?}");
        assert!(ended.out.ends_with("\n"), "{line}: {ended:?}");
        for report in ["ok\n", "error\n"] {
            assert!(!ended.out.ends_with(&format!("\n{report}")), "{ended:?}");
        }
        assert_eq!(ended.err, "", "{line}");
    }
    let mut shell = command("sh");
    let lines = "printf 'nonsense\\nshow version\\n' | \"$0\" ctl --socket \"$1\"";
    let ended = to_its_end(shell.args(["-c", lines, BALLAST, &socket]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let version = format!("{VERSION}\n\n");
    assert!(
        ended.out.ends_with(&version),
        "what follows is sent: {ended:?}"
    );
}

#[test]
fn ctl_says_what_it_cannot_send_or_read() {
    let (_process, _folder, socket) = with_socket();
    let too_long = "The line is too long: 16384 bytes are the most.\n\n";
    let pipe = |script: &str| {
        let script = format!("{script} | \"$0\" ctl --socket \"$1\"");
        to_its_end(command("sh").args(["-c", &script, BALLAST, &socket]))
    };
    let version = format!("{VERSION}\n\n");
    let long = "head -c 3000000 /dev/zero | tr '\\0' x";
    let ended = pipe(&format!("{{ {long}; echo; echo show version; }}"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(
        ended.out,
        format!("{too_long}{version}"),
        "what follows is sent"
    );
    assert_eq!(pipe(long).out, too_long);
    let ended = ctl(&socket, &"x".repeat(20_000));
    assert_eq!((ended.code, &*ended.out), (Some(1), too_long));
    let ended = pipe("printf 'nonsense \\377\nshow version\n'");
    assert!(ended.out.starts_with("Unknown command"), "{ended:?}");
    assert!(ended.out.ends_with(&version), "{ended:?}");

    let from_folder = "\"$0\" ctl --socket \"$1\" </";
    let ended = to_its_end(command("sh").args(["-c", from_folder, BALLAST, &socket]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("standard input cannot be read"),
        "{ended:?}"
    );
}

#[test]
fn an_address_for_show_wins_over_the_socket_of_the_variable() {
    let (process, _folder, socket) = with_socket();
    let admin = process.admin().to_string();
    let show = |words: &[&str]| {
        let mut show = command(BALLAST);
        show.args(["show", "info"]).args(words);
        to_its_end(show.env("BALLAST_SOCKET", "/nowhere/socket"))
    };
    let ended = show(&["--admin", &admin]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(show(&[]).err.contains("/nowhere/socket"));
    assert_eq!(show(&["--socket", &socket]).code, Some(0));
    let both = show(&["--admin", &admin, "--socket", &socket]);
    assert_eq!(both.code, Some(64), "{both:?}");
    assert!(both.err.contains("leave one out"), "{both:?}");
}

#[test]
fn ctl_takes_words_and_asks_for_json() {
    let (_process, _folder, socket) = with_socket();
    let ctl = |words: &[&str]| ballast([&["ctl", "--socket", &socket], words].concat());
    let stat = ctl(&["show", "stat", "-1", "1", "-1"]);
    assert_eq!(stat.code, Some(0), "{stat:?}");
    assert_eq!(
        stat.out
            .lines()
            .filter(|line| line.contains("FRONTEND"))
            .count(),
        1
    );
    for words in [
        &["--json", "show", "stat"][..],
        &["--json", "show stat"],
        &["show", "info", "--json"],
        &["--json", "show", "sess"],
        &["--json", "show", "snapshot"],
    ] {
        let ended = ctl(words);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let value: Value = serde_json::from_str(&ended.out).unwrap();
        assert!(value.is_array() || value.is_object(), "{words:?}: {value}");
    }
    let ended = ctl(&["--json", "show", "version"]);
    assert_eq!((ended.code, &*ended.out), (Some(64), ""), "{ended:?}");
    assert!(
        ended.err.contains("\"show version\" has no answer in JSON"),
        "{ended:?}"
    );
}

#[test]
fn an_answer_that_breaks_off_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        client.write_all(b"half an ans").unwrap();
    });
    let ended = ctl(&path.display().to_string(), "show info");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(ended.out, "half an ans");
    assert!(ended.err.contains("the answer ends too early"), "{ended:?}");
}

#[test]
fn each_line_of_an_argument_is_a_command() {
    let (_process, _folder, socket) = with_socket();
    let ended = ctl(&socket, "show version\r\n\nnonsense\nshow backend\n");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("s0"), "{ended:?}");
    assert!(ended.out.contains("Unknown command"), "{ended:?}");
}

#[test]
fn a_line_that_is_too_long_is_refused_and_that_is_all() {
    let (_process, _folder, socket) = with_socket();
    let ended = ctl(&socket, &"x".repeat(20_000));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("The line is too long"), "{ended:?}");
    assert_eq!(ended.err, "");
}

#[test]
fn an_answer_that_cannot_be_written_is_a_fault() {
    let (_process, _folder, socket) = with_socket();
    for args in [["ctl", "show info"], ["show", "endpoints"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut asked = command(BALLAST);
        asked.args(args).args(["--socket", &socket]);
        let mut process = Process::spawn_into(&mut asked, full.into(), Stdio::piped());
        assert_eq!(process.ends(), Some(1), "{args:?}");
        let said = process.err.text();
        assert!(said.contains("standard output cannot be written"), "{said}");
    }
}

#[test]
fn a_reader_that_goes_early_changes_no_exit_code() {
    let (_process, _folder, socket) = with_socket();
    let many = "show info;".repeat(300);
    for (line, code) in [
        (format!("{many}show version"), 0),
        (format!("{many}no such command"), 1),
        ("no such command".into(), 1),
    ] {
        let (reader, out) = std::io::pipe().unwrap();
        drop(reader);
        let mut asked = command(BALLAST);
        asked.args(["ctl", &line, "--socket", &socket]);
        let mut process = Process::spawn_into(&mut asked, out.into(), Stdio::piped());
        assert_eq!(process.ends(), Some(code), "{}", process.err.text());
        assert_eq!(process.err.text(), "");
    }
}

#[test]
fn idle_connections_lock_nobody_out() {
    let (_process, _folder, socket) = with_socket();
    let mut idle: Vec<UnixStream> = (0..32)
        .map(|_| {
            let mut idle = UnixStream::connect(&socket).unwrap();
            idle.write_all(b"prompt\n").unwrap();
            let mut prompt = [0; 16];
            assert!(idle.read(&mut prompt).unwrap() > 0);
            idle
        })
        .collect();
    let ended = ctl(&socket, "show version");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // The last one still has its place.
    let last = idle.last_mut().unwrap();
    last.write_all(b"show version\n").unwrap();
    let mut answer = [0; 64];
    assert!(last.read(&mut answer).unwrap() > 0);
}

#[test]
fn changes_by_hand_are_logged_with_who_made_them() {
    let (process, _folder, socket) = with_socket();
    let state = ctl(&socket, "show servers state").out;
    let name = state
        .lines()
        .nth(2)
        .unwrap()
        .split(' ')
        .nth(3)
        .unwrap()
        .to_owned();
    assert_eq!(ctl(&socket, &format!("disable server s0/{name}")).out, "\n");
    process.until_said(&format!(
        "changed by hand: s0/{name} state disabled via=\"socket\" pid="
    ));
    process.until_said(&format!(" uid={}", rustix::process::getuid().as_raw()));
}

#[test]
fn show_is_aligned_for_people_and_json_for_programs() {
    let (_process, _folder, socket) = with_socket();
    let show = |what: &str, more: &[&str]| {
        let ended = ballast(["show", what, "--socket", &socket].iter().chain(more));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(
            !ended.out.contains('\u{1b}'),
            "colours are for terminals: {ended:?}"
        );
        ended.out
    };
    assert_eq!(
        show("services", &[]),
        "NAME  ALGORITHM    ENDPOINTS  USABLE  SESSIONS\ns0    round-robin          1       1         0\n"
    );
    let parsed = |what| -> Value { serde_json::from_str(&show(what, &["-o", "json"])).unwrap() };
    assert_eq!(
        parsed("services"),
        json!([{"name": "s0", "algorithm": "round-robin", "endpoints": 1, "usable": 1, "sessions": 0}])
    );
    let endpoints = parsed("endpoints");
    let keys: Vec<&String> = endpoints[0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["address", "name", "service", "sessions", "status", "weight"]
    );
    assert_eq!(endpoints[0]["status"], "no check");
    assert_eq!(parsed("info")["name"], "ballast");
    assert_eq!(parsed("connections"), json!([]));
    assert_eq!(
        show("connections", &[]),
        "ID  CLIENT  PROTOCOL  FRONTEND  SERVICE  ENDPOINT  SECONDS\n"
    );
    assert!(
        show("info", &[])
            .lines()
            .any(|line| line.starts_with("version  "))
    );
}

#[test]
fn show_asks_the_admin_address_too() {
    let body = json!({
        "info": {"name": "ballast"},
        "frontends": [],
        "services": [{"name": "web", "algorithm": "random", "usable": 1, "usable_backups": 0, "sessions": 4,
            "endpoints": [{}, {}]}],
    });
    let admin = one_answer(format!("HTTP/1.1 200 OK\r\n\r\n{body}"));
    let ended = ballast([
        "show",
        "services",
        "-o",
        "json",
        "--admin",
        &admin.to_string(),
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let parsed: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        parsed,
        json!([{"name": "web", "algorithm": "random", "endpoints": 2, "usable": 1, "sessions": 4}])
    );
}

#[test]
fn show_says_the_same_of_the_admin_address_and_of_the_socket() {
    let (process, _folder, socket) = with_socket();
    let admin = process.admin().to_string();
    for what in ["services", "endpoints"] {
        let by_socket = ballast(["show", what, "--socket", &socket]);
        let by_admin = ballast(["show", what, "--admin", &admin]);
        assert_eq!(by_admin.code, Some(0), "{by_admin:?}");
        assert_eq!(by_admin.out, by_socket.out);
        assert_eq!(by_admin.out.lines().count(), 2, "{by_admin:?}");
    }
}

#[test]
fn where_nobody_answers_is_said() {
    let nowhere = fresh_address().to_string();
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none").display().to_string();
    let dead = folder.path().join("dead").display().to_string();
    drop(UnixListener::bind(&dead).unwrap());
    let other = one_answer("HTTP/1.1 404 Not Found\r\n\r\n".into()).to_string();
    let locked = one_answer("HTTP/1.1 401 Unauthorized\r\n\r\n".into()).to_string();
    let stranger = one_answer("HTTP/1.1 200 OK\r\n\r\n{\"status\": \"ok\"}".into()).to_string();
    let file = folder.path().join("file").display().to_string();
    fs::write(&file, "").unwrap();
    let long = folder.path().join("x".repeat(120)).display().to_string();
    for (args, words) in [
        (
            &["show", "info", "--admin", &nowhere][..],
            &["nobody answers", &nowhere][..],
        ),
        (
            &["show", "info", "--admin", &other],
            &["answers 404", &other],
        ),
        (
            &["show", "info", "--admin", &locked],
            &["--socket", &locked],
        ),
        (
            &["show", "services", "--admin", &stranger],
            &["the answer is no ballast's", &stranger],
        ),
        (
            &["ctl", "show info", "--socket", &file],
            &["is no socket", &file],
        ),
        (
            &["ctl", "show info", "--socket", &long],
            &["longer than the 107 bytes"],
        ),
        (
            &["show", "services", "--socket", &missing],
            &["no such file", &missing],
        ),
        (
            &["show", "endpoints", "--socket", &dead],
            &["nobody answers", &dead],
        ),
        (
            &["ctl", "show info", "--socket", &missing],
            &["no such file", &missing],
        ),
        (
            &["ctl", "show info", "--socket", &dead],
            &["nobody answers", &dead],
        ),
    ] {
        let ended = ballast(args);
        let code = if args[0] == "ctl" { 2 } else { 1 };
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert_eq!(ended.out, "", "{args:?}");
        for words in words {
            assert!(ended.err.contains(words), "{args:?}: {words}: {ended:?}");
        }
    }
}

#[test]
fn what_cannot_be_asked_is_wrong_usage() {
    for (args, words) in [
        (&["show"][..], "<WHAT>"),
        (
            &["show", "all"],
            "info, frontends, services, endpoints, connections",
        ),
        (&["show", "connections"], "--socket PATH"),
        (
            &["show", "info", "--admin", "1.2.3.4:1", "--socket", "x"],
            "cannot be used with",
        ),
        (&["show", "info", "-o", "xml"], "text, json"),
        (&["ctl", "show info"], "--socket <PATH>"),
    ] {
        let ended = ballast(args);
        assert_eq!(ended.code, Some(64), "{args:?}: {ended:?}");
        assert!(ended.err.contains(words), "{args:?}: {words}: {ended:?}");
    }
}

#[test]
fn the_socket_is_for_its_owner_and_goes_at_the_end() {
    let (mut process, _folder, socket) = with_socket();
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
    assert!(!Path::new(&socket).exists());
}

#[test]
fn what_a_killed_process_left_is_replaced() {
    let (mut process, folder, socket) = with_socket();
    process.signal(Signal::KILL);
    assert_eq!(process.ends(), None);
    assert!(Path::new(&socket).exists());
    let process = Process::run(folder.path(), &["--socket", &socket]);
    process.until_answers("/readyz", 200);
    assert_eq!(ctl(&socket, "show version").code, Some(0));
}

#[test]
fn a_socket_that_cannot_be_had_is_said() {
    let (_process, folder, socket) = with_socket();
    let table = folder.path().join("table.yaml").display().to_string();
    let missing = folder.path().join("none/socket").display().to_string();
    for (path, words) in [
        (&socket, "another process answers there"),
        (&table, "it is no socket"),
        (&missing, "there is no folder"),
    ] {
        let args = [
            "run",
            "--table",
            &table,
            "--admin",
            "127.0.0.1:0",
            "--socket",
            path,
        ];
        let ended = ballast(args);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains(path.as_str()), "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
    }
    // The first one's is as it was.
    assert_eq!(ctl(&socket, "show version").code, Some(0));
    assert!(Path::new(&table).is_file());
}

#[test]
fn mode_and_group_of_the_socket_are_set_and_a_second_one_is_for_monitoring() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (admin, monitor) = (path("admin"), path("monitor"));
    let group = rustix::process::getgid().as_raw();
    let args = [
        "--socket",
        &admin,
        "--socket-mode",
        "620",
        "--monitor-socket",
        &monitor,
    ];
    let numbered = ["--socket-group", &group.to_string()];
    let process = Process::run(folder.path(), &[&args[..], &numbered].concat());
    process.until_answers("/readyz", 200);
    for (path, mode) in [(&admin, 0o620), (&monitor, 0o660)] {
        let entry = fs::metadata(path).unwrap();
        assert_eq!(entry.permissions().mode() & 0o777, mode, "{path}");
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&entry), group);
    }
    for (line, code, said) in [
        ("show info", 0, "Name: Ballast"),
        ("show stat", 0, "FRONTEND"),
        ("show sess", 1, "Permission denied\n"),
        ("show errors", 1, "Permission denied\n"),
        ("disable frontend f0", 1, "Permission denied\n"),
        ("clear counters", 1, "Permission denied\n"),
        ("set server s0/x weight 1", 1, "Permission denied\n"),
    ] {
        let ended = ctl(&monitor, line);
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        assert!(ended.out.contains(said), "{line}: {ended:?}");
    }
    assert_eq!(ctl(&admin, "show sess").code, Some(0));
    drop(process);

    let operator = ["--monitor-level", "operator"];
    let process = Process::run(folder.path(), &[&args[..], &operator].concat());
    process.until_answers("/readyz", 200);
    for (line, code) in [
        ("show sess", 0),
        ("clear counters", 0),
        ("clear counters all", 1),
    ] {
        assert_eq!(ctl(&monitor, line).code, Some(code), "{line}");
    }
}

#[test]
fn a_mode_or_a_group_that_is_none_is_wrong_usage() {
    for (flag, value, words) in [
        ("--socket-mode", "9", "three octal digits"),
        ("--socket-mode", "7777", "three octal digits"),
        ("--socket-mode", "0", "three octal digits"),
        (
            "--socket-group",
            "no-such-group",
            "is no group of /etc/group",
        ),
        ("--monitor-level", "admin", "user, operator"),
    ] {
        let sockets = ["--socket", "s", "--monitor-socket", "m"];
        let ended = ballast([&["run", "--table", "x", flag, value], &sockets[..]].concat());
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
    }
}

/// A server that answers one request with this.
fn one_answer(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let (mut asked, mut bytes) = (Vec::new(), [0; 1024]);
        while !asked.ends_with(b"\r\n\r\n") {
            let read = client.read(&mut bytes).unwrap();
            assert!(read > 0, "the request ends too early");
            asked.extend_from_slice(&bytes[..read]);
        }
        assert!(asked.starts_with(b"GET /api/snapshot HTTP/1.0\r\n"));
        client.write_all(answer.as_bytes()).unwrap();
    });
    address
}

/// What `show version` answers.
const VERSION: &str = concat!("2.6.0-ballast-", env!("CARGO_PKG_VERSION"));
