//! `ballast`: the runtime socket, spoken to as operators and their scripts do: over the real socket, with socat and without.

mod changes;
mod endpoints;
mod hatop;
mod transcripts;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Ballast, echo_server, server, table};

#[test]
fn one_line_is_answered_and_the_connection_ends() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let version = VERSION;
    assert_eq!(say(&ballast, "show version\n"), format!("{version}\n\n"));
    // Only the first line is read, and what was not read does no harm.
    assert_eq!(
        say(&ballast, "show version\nshow version\n"),
        format!("{version}\n\n")
    );
    // A last line may end with the connection.
    assert_eq!(say(&ballast, "show version"), format!("{version}\n\n"));
    assert_eq!(say(&ballast, ""), "");
}

#[test]
fn commands_of_one_line_are_answered_in_their_order() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let version = VERSION;
    assert_eq!(
        say(
            &ballast,
            "show version; show backend;;show\\ version;quit;show version\n"
        )
        .split("\n\n")
        .map(|answer| answer.lines().next().unwrap_or_default().to_owned())
        .collect::<Vec<_>>(),
        [
            version,
            "# name",
            "Unknown command: 'show version'. There are:",
            ""
        ]
    );
}

#[test]
fn every_answer_ends_with_an_empty_line_and_has_no_other() {
    let ballast = Ballast::serve_with_socket(&table("", "", &[echo_server()]), 1);
    for command in [
        "help",
        "help set",
        "show info",
        "show info typed desc",
        "show info json",
        "show stat",
        "show stat typed desc",
        "show stat json",
        "show stat -1 4 -1",
        "show stat nothing 1 1",
        "show servers state",
        "show servers conn",
        "show backend",
        "show errors",
        "show sess",
        "show sess json",
        "show snapshot",
        "show overrides",
        "show schema json",
        "get weight s/x",
        "set server s/x state ready",
        "clear counters",
        "clear counters all",
        "what is this",
        "",
    ] {
        let answer = say(&ballast, &format!("{command}\n"));
        assert!(answer.ends_with('\n'), "{command}: {answer:?}");
        let (body, end) = answer.split_at(answer.len() - 1);
        assert_eq!(end, "\n");
        assert!(
            body.is_empty() || body.ends_with('\n'),
            "{command}: {answer:?}"
        );
        assert!(
            !body.contains("\n\n") && !body.starts_with('\n'),
            "{command}: {answer:?}"
        );
    }
}

#[test]
fn with_a_prompt_a_connection_takes_many_lines() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let mut stream = open(&ballast);
    let version = VERSION;
    stream.write_all(b"prompt\n").unwrap();
    assert_eq!(hear(&mut stream, "> "), "\n> ");
    for _ in 0..3 {
        stream.write_all(b"show version\n").unwrap();
        assert_eq!(hear(&mut stream, "> "), format!("{version}\n\n> "));
    }
    stream.write_all(b"\n").unwrap();
    assert_eq!(hear(&mut stream, "> "), "> ");
    // Without the prompt it still goes on, until it is told to end.
    stream.write_all(b"prompt i\nshow version\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = String::new();
    for _ in 0..3 {
        reader.read_line(&mut lines).unwrap();
    }
    assert_eq!(lines, format!("\n{version}\n\n"));
    stream.write_all(b"quit\n").unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn payloads_are_refused_and_never_taken_for_commands() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let answer = say(
        &ballast,
        "prompt i; add ssl ca-file x <<\nshow version\nclear counters all\n\n",
    );
    assert_eq!(answer, "\nNo command here takes a payload (<<).\n\n");
}

#[test]
fn lines_without_an_end_are_refused() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let mut stream = open(&ballast);
    // It may hear enough before all of it is written.
    stream.write_all(&[b'x'; 20_000]).ok();
    stream.shutdown(Shutdown::Write).ok();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(
        answer,
        "The line is too long: 16384 bytes are the most.\n\n"
    );
}

#[test]
fn garbage_is_answered_in_plain_letters() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let mut stream = open(&ballast);
    stream.write_all(b"\xff\x00\x1b[31m\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let first = answer.lines().next().unwrap();
    assert!(first.starts_with("Unknown command"), "{first}");
    assert!(!first.contains(char::is_control), "{first:?}");
}

#[test]
fn many_at_once_are_all_answered() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    // Those who say nothing take places, and those who come later wait for one.
    let silent: Vec<UnixStream> = (0..30).map(|_| open(&ballast)).collect();
    let asking = |_| {
        let mut stream = open(&ballast);
        stream.write_all(b"show version\n").unwrap();
        stream
    };
    let mut many: Vec<UnixStream> = (0..100).map(asking).collect();
    for stream in &mut many {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\n\n"), "{answer:?}");
    }
    drop(silent);
}

#[test]
fn whoever_does_not_read_keeps_nobody_waiting() {
    let ballast = Ballast::serve_with_socket(&table("", "", &[echo_server()]), 1);
    let deaf: Vec<UnixStream> = (0..5)
        .map(|_| {
            let mut stream = open(&ballast);
            let much = "show stat;".repeat(1000);
            stream.write_all(format!("{much}\n").as_bytes()).unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        assert!(say(&ballast, "show version\n").ends_with("\n\n"));
    }
    drop(deaf);
}

#[test]
fn socat_is_answered_as_by_haproxy() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let place = format!("unix-connect:{}", ballast.socket().display());
    let socat = Command::new("socat")
        .args([place.as_str(), "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut socat = match socat {
        Ok(socat) => socat,
        Err(error) => {
            return support::skip::skip(&format!("socat: {error} (apt-get install socat)"));
        }
    };
    let mut stdin = socat.stdin.take().expect("a pipe");
    stdin.write_all(b"show info\n").unwrap();
    drop(stdin);
    let ended = socat.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stderr, b"", "{ended:?}");
    let out = String::from_utf8(ended.stdout).unwrap();
    let body = out.strip_suffix("\n\n").expect("an end");
    // As Octavia reads it: every line has a colon.
    let info: std::collections::BTreeMap<&str, &str> = body
        .lines()
        .map(|line| line.split_once(':').expect("a colon"))
        .collect();
    for name in [
        "Name",
        "Version",
        "Release_date",
        "Uptime_sec",
        "CurrConns",
        "CumConns",
        "Idle_pct",
        "Maxconn",
    ] {
        assert!(!info[name].trim().is_empty(), "{name}: {out}");
    }
}

#[test]
fn tools_of_haproxy_read_the_version_of_a_haproxy_that_can_do_the_same() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let info = say(&ballast, "show info\n");
    // As Ansible's module community.general.haproxy reads it, which drains from 1.5 on.
    let line = info.lines().find(|line| line.contains("Version:")).unwrap();
    let (_, version) = line.split_once(':').unwrap();
    let mut parts = version.trim().splitn(4, '.').map(str::parse::<u32>);
    assert_eq!((parts.next(), parts.next()), (Some(Ok(2)), Some(Ok(6))));
    assert_eq!(version.trim(), VERSION);
    let typed = say(&ballast, "show info typed\n");
    assert!(typed.contains(&format!(":str:{VERSION}\n")), "{typed}");
    // What it was built from is Ballast's.
    let built = format!("\nBuild info: ballast {}\n", *ballast::VERSION);
    assert!(info.contains(&built), "{info}");
    let metrics = ballast.metrics();
    let metric = format!(
        "\nhaproxy_process_build_info{{version=\"{VERSION}\",commit=\"{}\"}} 1\n",
        ballast::COMMIT
    );
    assert!(metrics.contains(&metric), "{metrics}");
}

#[test]
fn show_info_counts_tasks_and_pipes() {
    let endpoint = server(|mut client| {
        let mut byte = [0];
        // One byte asks for many.
        while client.read_exact(&mut byte).is_ok() {
            client.write_all(&vec![7; BULK]).ok();
        }
    });
    let ballast = Ballast::serve_with_socket(&table("", "", &[endpoint]), 1);
    let figure = |name: &str| -> u32 {
        let info = say(&ballast, "show info\n");
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.expect(name).trim_start_matches(": ").parse().unwrap()
    };
    let fixed = figure("Tasks");
    assert!(fixed >= 4, "{fixed} are fewer than there are threads");
    assert_eq!((figure("PipesUsed"), figure("PipesFree")), (0, 0));
    let mut clients: Vec<_> = (0..3).map(|_| ballast.connect()).collect();
    ballast.until(|_| figure("Tasks") >= fixed + 3);
    for client in &mut clients {
        client.write_all(b"x").unwrap();
        client.read_exact(&mut vec![0; BULK]).unwrap();
    }
    ballast.until(|_| figure("PipesUsed") == 0 && figure("PipesFree") > 0);
    drop(clients);
    ballast.until(|_| figure("Tasks") <= fixed);
}

#[test]
fn the_file_is_for_its_owner_and_goes_at_the_end() {
    let ballast = Ballast::serve_with_socket("version: 1\n", 1);
    let path = ballast.socket();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let Ballast { running, .. } = ballast;
    assert!(path.exists());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(running.stop());
    assert!(!path.exists());
}

#[test]
fn what_is_documented_can_be_said() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/runtime-socket.md");
    let document = fs::read_to_string(path).expect("a document");
    let one = echo_server();
    let table = changes::named(&["one"], &[one], ", affinity: {client-ip: 1h}")
        .replace("name: f", "name: mysql")
        .replace("name: s", "name: mysql")
        .replace("service: s", "service: mysql");
    let ballast = Ballast::serve_with_socket(&table, 1);
    let examples = document.lines().filter_map(|line| {
        let (command, _) = line.strip_prefix("ballast ctl \"")?.split_once('"')?;
        Some(command)
    });
    let examples: Vec<&str> = examples.collect();
    for command in &examples {
        let answer = say(&ballast, &format!("{command}\n"));
        for wrong in ["Unknown", "No such", "expects"] {
            assert!(!answer.contains(wrong), "{command}: {answer}");
        }
    }
    // And what can be said is documented, with an example.
    for line in say(&ballast, "help\n")
        .lines()
        .filter(|line| !line.is_empty())
    {
        let words: Vec<&str> = line
            .split_whitespace()
            .take_while(|word| word.chars().all(|letter| letter.is_ascii_lowercase()))
            .collect();
        let command = words.join(" ");
        assert!(document.contains(&format!("`{command}")), "{command}");
        let is_conversation = ["prompt", "quit", "report"].contains(&command.as_str());
        let has_example = examples.iter().any(|example| example.contains(&command));
        assert!(is_conversation || has_example, "{command}");
    }
}

/// What is answered to this, after which nothing more is said.
fn say(ballast: &Ballast, text: &str) -> String {
    let mut stream = open(ballast);
    stream.write_all(text.as_bytes()).expect("a command");
    stream.shutdown(Shutdown::Write).expect("an end");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn open(ballast: &Ballast) -> UnixStream {
    let stream = UnixStream::connect(ballast.socket()).expect("a connection");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("an option");
    stream
}

/// Reads until these words.
fn hear(stream: &mut UnixStream, end: &str) -> String {
    let mut heard = Vec::new();
    let mut byte = [0];
    while !heard.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).expect("more");
        heard.extend(byte);
    }
    String::from_utf8(heard).expect("text")
}

/// What tools of haproxy are told.
const VERSION: &str = concat!("2.6.0-ballast-", env!("CARGO_PKG_VERSION"));

const BULK: usize = 4 << 20;
