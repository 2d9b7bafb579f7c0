//! Help, versions and wrong arguments.

use crate::process::{BALLAST, Process, ballast, command, folder, to_its_end};

#[test]
fn every_level_of_help_names_what_can_be_said_there() {
    for (args, words) in [
        (
            &["--help"][..],
            &[
                "Usage: ballast <COMMAND>",
                "run ",
                "upgrade ",
                "check ",
                "demo ",
                "import ",
                "Try `ballast demo` first",
            ][..],
        ),
        (
            &["run", "--help"],
            &[
                "Usage: ballast run [OPTIONS] --table <PATH>",
                "--ack <PATH>",
                "--threads <N>",
                "--admin <ADDR>",
                "--max-connections <N>",
                "--shutdown-delay <D>",
                "--drain-timeout <D>",
                "--wait[=<D>]",
                "[env: BALLAST_WAIT=]",
                "SIGUSR1 ends in order without a",
                "--log-format <F>",
                "--log-level <L>",
                "[env: BALLAST_DRAIN_TIMEOUT=]",
                "[default: 30s]",
                "a bare number is seconds",
                "SIGHUP reads the table again",
                "Exit codes: 0 ",
            ],
        ),
        (
            &["check", "--help"],
            &[
                "Usage: ballast check [OPTIONS] <PATH>...",
                "a folder with table.json or table.yaml",
                "Exit codes: 0 ",
            ],
        ),
        (
            &["upgrade", "--help"],
            &[
                "Usage: ballast upgrade --handover <PATH> [PROGRAM]",
                "Where the process that runs hands over",
                "Exit codes: 0 ",
            ],
        ),
        (&["demo", "--help"], &["Usage: ballast demo"]),
        (
            &["import", "--help"],
            &[
                "Usage: ballast import [OPTIONS] [FILE]...",
                "--output <PATH>",
                "Exit codes: 0 ",
            ],
        ),
        (&["help", "run"], &["Usage: ballast run", "--socket <PATH>"]),
        (
            &["show", "--help"],
            &[
                "--admin <ADDR>",
                "--socket <PATH>",
                "connections",
                "nobody answers",
            ],
        ),
        (&["ctl", "--help"], &["--socket <PATH>", "[COMMAND]"]),
    ] {
        let ended = ballast(args);
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        assert_eq!(ended.err, "");
        for words in words {
            assert!(ended.out.contains(words), "{args:?}: {words}: {ended:?}");
        }
        let longest = ended.out.lines().map(str::len).max();
        assert!(longest <= Some(100), "{args:?}: {longest:?}");
    }
}

#[test]
fn the_short_help_of_run_has_the_usual_flags_only() {
    let ended = ballast(["run", "-h"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for words in [
        "--table <PATH>",
        "--admin <ADDR>",
        "--socket <PATH>",
        "--drain-timeout <D>",
        "`ballast run --help` has every flag",
    ] {
        assert!(ended.out.contains(words), "{words}: {ended:?}");
    }
    for words in ["--max-checks", "--monitor-socket", "SIGUSR1"] {
        assert!(!ended.out.contains(words), "{words}: {ended:?}");
    }
    assert!(ended.out.lines().count() < 45, "{ended:?}");

    let all = ballast(["run", "--help", "all"]);
    assert_eq!(
        (all.code, &all.out),
        (Some(0), &ballast(["run", "--help"]).out)
    );
}

#[test]
fn shells_complete_commands_and_flags() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = ballast(["completions", shell]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for words in ["drain-timeout", "completions", "monitor-level"] {
            assert!(ended.out.contains(words), "{shell}: {words}");
        }
    }
    let ended = ballast(["completions", "dos"]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let ended = ballast(["man", &path]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (page, words) in [
        ("ballast", "SUBCOMMANDS"),
        ("ballast-run", "SIGHUP reads the table again"),
        ("ballast-run", ".SH \"SIGNALS\""),
        ("ballast-run", ".SH \"EXIT STATUS\""),
        ("ballast-run", "BALLAST_SHUTDOWN_DELAY"),
        ("ballast-run", "ballast run [OPTIONS] \\-\\-table <PATH>"),
        ("ballast-run", "Worker threads"),
        (
            "ballast-ctl",
            "ballast ctl [OPTIONS] \\-\\-socket <PATH> [COMMAND]...",
        ),
        ("ballast-check", "one cannot be read, or a file"),
        ("ballast-ctl", "an answer is an error"),
        ("ballast-import", "haproxy"),
    ] {
        let text = std::fs::read_to_string(folder.path().join(format!("{page}.1"))).unwrap();
        assert!(text.contains(words), "{page}: {words}: {text}");
        assert!(!text.contains("EXTRA"), "{page}: {text}");
    }
    let missing = folder.path().join("none").display().to_string();
    let ended = ballast(["man", &missing]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains(&missing), "{ended:?}");
    assert!(
        ended.err.contains("; name a folder that is there"),
        "{ended:?}"
    );
    let full = folder.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::os::unix::fs::symlink("/dev/full", full.join("ballast.1")).unwrap();
    let ended = ballast(["man", &full.display().to_string()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("; make room there"), "{ended:?}");
    assert!(!ended.err.contains("that is there"), "{ended:?}");
}

/// A flag without a description would stand alone between two others.
#[test]
fn each_flag_is_described_in_its_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let ended = ballast(["man", &folder.path().display().to_string()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = std::fs::read_to_string(folder.path().join("ballast-run.1")).unwrap();
    let flags: Vec<&str> = text.split(".TP\n").skip(1).collect();
    assert!(flags.len() > 20, "{text}");
    for flag in flags {
        let described = flag
            .lines()
            .nth(1)
            .is_some_and(|line| !line.starts_with('.'));
        assert!(described && flag.lines().count() > 1, "{flag}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_a_fault() {
    let folder = folder("version: 1\n");
    let table = folder.path().join("table.yaml").display().to_string();
    let haproxy = folder.path().join("haproxy.cfg");
    let text = "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\nlisten l\n  bind 127.0.0.1:1\n  server s 127.0.0.1:2\n";
    std::fs::write(&haproxy, text).unwrap();
    let haproxy = haproxy.display().to_string();
    for args in [
        &["schema"][..],
        &["version"],
        &["--version"],
        &["--help"],
        &["completions", "bash"],
        &["check", &table],
        &["import", &haproxy],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut process = Process::spawn_into(
            command(BALLAST).args(args),
            full.into(),
            std::process::Stdio::piped(),
        );
        assert_eq!(process.ends(), Some(1), "{args:?}");
        let said = process.err.text();
        assert!(
            said.contains("standard output cannot be written: No space left"),
            "{args:?}: {said}"
        );

        // A reader that has gone wanted no more.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let mut process = Process::spawn_into(
            command(BALLAST).args(args),
            writer.into(),
            std::process::Stdio::piped(),
        );
        assert_eq!(process.ends(), Some(0), "{args:?}");
    }
}

#[test]
fn a_wrong_value_of_a_variable_names_the_variable() {
    let mut check = command(BALLAST);
    let ended = to_its_end(check.args(["check", "x"]).env("BALLAST_ADMIN", "xx"));
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(
        ended.err.contains("the variable BALLAST_ADMIN"),
        "{ended:?}"
    );
    let mut check = command(BALLAST);
    let ended = to_its_end(check.args(["check", "x", "--admin", "xx"]));
    assert!(!ended.err.contains("variable"), "{ended:?}");
}

#[test]
fn the_version_is_said() {
    for flag in ["--version", "-V", "version"] {
        let ended = ballast([flag]);
        assert_eq!(ended.code, Some(0));
        assert_eq!(
            ended.out,
            format!(
                "ballast {} (commit {})\n",
                env!("CARGO_PKG_VERSION"),
                ballast::COMMIT
            )
        );
    }
}

#[test]
fn wrong_usage_names_the_argument_the_value_and_the_remedy() {
    for (args, words) in [
        (&[][..], &["Usage: ballast <COMMAND>"][..]),
        (&["rnu"], &["'rnu'", "--help"]),
        (&["chek", "x"], &["'chek'", "'check'"]),
        (&["run"], &["--table <PATH>"]),
        (&["check"], &["<PATH>"]),
        (&["check", "a", "--bee"], &["'--bee'"]),
        (&["demo", "--table", "x"], &["'--table'"]),
        (&["run", "--tabel", "x"], &["'--tabel'", "'--table'"]),
        (&["run", "--table"], &["'--table <PATH>'"]),
        (
            &["run", "--table", "x", "--threads", "0"],
            &["'0'", "'--threads <N>'", "1..=1024"],
        ),
        (
            &["run", "--table", "x", "--threads", "many"],
            &["'many'", "'--threads <N>'"],
        ),
        (
            &["run", "--table", "x", "--max-connections", "0"],
            &["'0'", "'--max-connections <N>'", "1.."],
        ),
        (
            &["run", "--table", "x", "--drain-timeout", "5 minutes"],
            &[
                "'5 minutes'",
                "'--drain-timeout <D>'",
                "such as 250ms, 5s, 3m",
            ],
        ),
        (
            &["run", "--table", "x", "--drain-timeout", "99999999"],
            &["'99999999'", "expected a duration from 1ms to 24d"],
        ),
        (
            &["run", "--table", "x", "--shutdown-delay", "soon"],
            &["'soon'", "'--shutdown-delay <D>'"],
        ),
        (
            &["run", "--table", "x", "--admin", "localhost"],
            &[
                "'localhost'",
                "'--admin <ADDR>'",
                "expected IP:PORT, [IP6]:PORT, *:PORT or none",
            ],
        ),
        (
            &["run", "--table", "x", "--admin", "none,127.0.0.1:1"],
            &["--admin", "`none` alone"],
        ),
        (
            &["run", "--table", "x", "--socket-mode", "660"],
            &["--socket <PATH>"],
        ),
        (
            &["run", "--table", "x", "--monitor-level", "operator"],
            &["--monitor-socket <PATH>"],
        ),
        (
            &[
                "run",
                "--table",
                "x",
                "--socket",
                "s",
                "--monitor-socket",
                "s",
            ],
            &["--monitor-socket s", "choose another"],
        ),
        (
            &["show", "info", "--admin", "localhost:1936"],
            &["'localhost:1936'", "expected IP:PORT or [IP6]:PORT"],
        ),
        (
            &["run", "--table", "x", "--admin", "127.0.0.1:1,*:x"],
            &["'*:x'", "'--admin <ADDR>'"],
        ),
        (
            &["run", "--table", "x", "--log-format", "xml"],
            &["'xml'", "'--log-format <F>'", "text, json"],
        ),
        (
            &["run", "--table", "x", "--log-level", "loud"],
            &[
                "'loud'",
                "'--log-level <L>'",
                "error, warn, info, debug, trace",
            ],
        ),
    ] {
        let ended = ballast(args);
        assert_eq!(ended.code, Some(64), "{args:?}: {ended:?}");
        assert_eq!(ended.out, "", "{args:?}");
        for words in words {
            assert!(ended.err.contains(words), "{args:?}: {words}: {ended:?}");
        }
    }
}
