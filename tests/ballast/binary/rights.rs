//! `ballast run` with `--user`, `--group` and `--sandbox`: what it may still do, and what not.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use support::papers::Papers;
use support::skip::skip;
use tempfile::TempDir;

use crate::peers::{
    connect, echo_server, fresh_address, fresh_admin_port, fresh_ip, get, has_handshake, ping,
};
use crate::process::{
    AS_NOBODY, BALLAST, Ended, Process, Signal, ack, ballast, command, folder, for_everybody,
    permitted, replace, table, to_its_end,
};
use crate::secrets::ask;

#[test]
fn as_another_user_it_binds_low_ports_that_come_later_and_has_no_other_right() {
    if !is_root() {
        return;
    }
    let folder = for_stranger(&table(&[(fresh_address(), echo_server())]));
    let socket = folder.path().join("s").display().to_string();
    let process = Process::run(
        folder.path(),
        &["--user", STRANGER, "--group", STRANGER, "--socket", &socket],
    );
    process.until_answers("/readyz", 200);
    process.until_said("goes on as user 47110 of group 47110, and may bind every port");
    assert_eq!(fs::metadata(&socket).unwrap().uid(), 47110);
    assert_eq!(
        fs::metadata(folder.path().join("ack.json")).unwrap().uid(),
        47110
    );

    let low = SocketAddr::from((fresh_ip(), 80));
    replace(&folder, &table(&[(low, echo_server())]));
    process.until("a low port", || connect(low).is_ok());
    ping(&mut connect(low).unwrap()).unwrap();
    for line in [
        "Uid:\t47110\t47110\t47110\t47110",
        "Gid:\t47110\t47110\t47110\t47110",
        "Groups:\t ",
        "CapPrm:\t0000000000000400",
        "CapEff:\t0000000000000400",
        "NoNewPrivs:\t1",
    ] {
        assert_eq!(of_threads(&process, line), BTreeSet::from([true]), "{line}");
    }
}

#[test]
fn no_core_dump_is_left_because_there_are_keys_in_it() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let dumps = |program: &str, args: &[&str], begins: &dyn Fn()| {
        let mut shell = command("sh");
        shell.args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\"", program]);
        shell.args(args).current_dir(&folder).stderr(Stdio::null());
        let mut child = shell.spawn().unwrap();
        begins();
        kill_process(Pid::from_child(&child), Signal::ABORT).unwrap();
        child.wait().unwrap().core_dumped()
    };
    let began = folder.path().join("began");
    let wait = format!("touch {}; while :; do sleep 0.1; done", began.display());
    let has_begun = || assert!(support::comes_within(PATIENCE, || began.exists()));
    if !dumps("sh", &["-c", &wait], &has_begun) {
        return skip("no process leaves a core dump here");
    }
    let ack = folder.path().join("ack.json");
    let has_begun = || assert!(support::comes_within(PATIENCE, || ack.exists()));
    let path = folder.path().display().to_string();
    let args = ["run", "--admin", "none", "--table", &path];
    assert!(!dumps(BALLAST, &args, &has_begun));
}

#[test]
fn without_a_flag_the_rights_stay() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    let uid = fs::metadata(folder.path().join("ack.json")).unwrap().uid();
    assert_eq!(uid, rustix::process::geteuid().as_raw());
    for line in ["NoNewPrivs:\t0", "Seccomp:\t0"] {
        assert_eq!(of_threads(&process, line), BTreeSet::from([true]), "{line}");
    }
}

#[test]
fn what_the_user_may_not_use_is_said_all_at_once_before_anything_starts() {
    if !is_root() {
        return;
    }
    let secret = folder(&table(&[(fresh_address(), echo_server())]));
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let path = |name: &str| secret.path().join(name).display().to_string();
    let run = |more: &[&str]| {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", "127.0.0.1:0", "--table", &path("")]);
        to_its_end(run.args(more))
    };
    let as_stranger = ["--user", STRANGER, "--group", STRANGER];
    let (socket, ack) = (path("s"), path("ack"));
    let ended = run(&[&as_stranger[..], &["--socket", &socket, "--ack", &ack]].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for line in [
        format!("{}: user 47110 cannot read it: ", path("")),
        format!("--socket {socket}: user 47110 cannot write to its folder: "),
        format!("--ack {ack}: user 47110 cannot write to its folder: "),
        "permit it there (chown, chgrp, chmod), or choose another path".into(),
    ] {
        assert!(ended.err.contains(&line), "{line} in {}", ended.err);
    }

    let wrong = |ended: &Ended, words: &str| {
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
    };
    wrong(
        &run(&["--user", "nobody-has-this-name"]),
        "is no user of /etc/passwd; expected its name or its number",
    );
    wrong(&run(&["--user", STRANGER]), "give --group, too");
    wrong(
        &run(&["--group", "none-has-this"]),
        "is no group of /etc/group",
    );
    wrong(&run(&["--sandbox-read", "/srv"]), "--sandbox");
    let ended = run(&["--sandbox", "--sandbox-read", &path("none")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .err
            .contains("name a folder that is there and that this user may read"),
        "{ended:?}"
    );

    let later = path("later/ack.json");
    let ended = run(&["--sandbox", "--ack", &later]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("with --sandbox, make it first"),
        "{ended:?}"
    );

    let (folder, program) = for_everybody();
    fs::write(folder.path().join("table.yaml"), "version: 1").unwrap();
    let [setpriv, words @ ..] = AS_NOBODY;
    let mut run = command(setpriv);
    run.args(words).arg(&program).args(["run", "--table"]);
    run.arg(folder.path()).args(["--user", "0", "--group", "0"]);
    let ended = to_its_end(&mut run);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let words = "--user 0, --group 0: cannot change to them: Operation not permitted";
    assert!(ended.err.contains(words), "{ended:?}");
    assert!(
        ended.err.contains("start as root, or leave both out"),
        "{ended:?}"
    );
}

#[test]
fn a_sandbox_permits_what_serving_takes_and_no_file_elsewhere() {
    let papers = Papers::new();
    papers.issue("web", &["web.test"]);
    let (tcp, https) = (fresh_address(), fresh_address());
    let with_https = |entry: &str| {
        let table = table(&[(tcp, echo_server())]);
        let (frontends, services) = table.split_once("services:").unwrap();
        format!(
            "{frontends}  - name: web\n    bind: [\"{https}\"]\n    protocol: https\n    tls: {{certificates: [{entry}]}}\n    routes: [{{host: web.test, status: 204}}]\nservices:{services}"
        )
    };
    let folder = folder(&with_https(&papers.entry("web")));
    let socket = folder.path().join("s").display().to_string();
    let process = Process::run(folder.path(), &["--sandbox", "--socket", &socket]);
    process.until_answers("/readyz", 200);
    process.until_said("sandbox: files are restricted");
    process.until_said("sandbox: system calls are restricted");
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert_eq!(of_threads(&process, line), BTreeSet::from([true]), "{line}");
    }
    ping(&mut connect(tcp).unwrap()).unwrap();
    assert_eq!(handshakes(https, &papers), 0);
    process.until_said("outside of the table's folder, name its folder with --sandbox-read");
    let shown = ballast(["ctl", "show info", "--socket", &socket]);
    assert!(shown.out.contains("Name: Ballast"), "{shown:?}");
    assert!(
        process.metrics().contains("process_open_fds"),
        "its own state"
    );

    // In the table's folder it is read, and so is what a later table names.
    for name in ["web.crt", "web.key"] {
        fs::copy(papers.named(name), folder.path().join(name)).unwrap();
    }
    let here = "{cert: web.crt, key: web.key}";
    replace(&folder, &with_https(here));
    process.until("a handshake", || handshakes(https, &papers) == 1);
    let acked = ack(folder.path()).unwrap();
    assert!(acked["served"].is_object(), "{acked}");
    drop(process);
    users_are_read_again_though_their_file_is_another_one(&folder);

    let mut file = fs::read_to_string(folder.path().join("table.yaml")).unwrap();
    file = file.replace(here, &papers.entry("web"));
    replace(&folder, &file);
    let elsewhere = papers.named("web.crt");
    // The last one counts.
    let sandbox = ["--sandbox=false", "--sandbox", "--sandbox-read", &elsewhere];
    let process = Process::run(folder.path(), &sandbox);
    process.until_answers("/readyz", 200);
    assert_eq!(handshakes(https, &papers), 1);
    // A renewed certificate is another file.
    papers.issue_for("next", &["web.test"], (0, 4_133_980_800));
    for end in ["key", "crt"] {
        let next = papers.path(&format!("next.{end}"));
        fs::rename(next, papers.path(&format!("web.{end}"))).unwrap();
    }
    process.until("the renewed one", || {
        process.metrics().contains(" 4133980800\n")
    });
    assert_eq!(handshakes(https, &papers), 1);
}

fn users_are_read_again_though_their_file_is_another_one(folder: &TempDir) {
    let users = tempfile::tempdir().unwrap();
    let file = users.path().join("users");
    fs::write(&file, "anna:secret\n").unwrap();
    let auth = file.display().to_string();
    let process = Process::run(folder.path(), &["--sandbox", "--stats-auth-file", &auth]);
    process.until_answers("/", 401);
    fs::write(users.path().join("draft"), "nonsense\n").unwrap();
    fs::rename(users.path().join("draft"), &file).unwrap();
    // It is opened: what is in it is wrong.
    process.until("that the file is wrong", || {
        // anna:secret, who is looked up.
        ask(process.admin(), "/", "YW5uYTpzZWNyZXQ=");
        process.has_said("users:1: no secret")
    });
}

#[test]
fn a_hand_over_works_between_sandboxes() {
    let folder = folder(&table(&[(fresh_address(), echo_server())]));
    let at = |name: &str| folder.path().join(name).display().to_string();
    let admin = format!("127.0.0.1:{}", fresh_admin_port());
    let run = || {
        let mut run = command(BALLAST);
        run.args(["run", "--sandbox", "--admin", &admin, "--table", &at("")]);
        run.args(["--handover", &at("h"), "--socket", &at("s")]);
        Process::spawn(&mut run)
    };
    let mut first = run();
    first.until_answers("/readyz", 200);
    for _ in 0..2 {
        let next = run();
        next.until_said("table applied");
        assert!(next.has_said("inherited "), "{}", next.err.text());
        assert_eq!(first.ends(), Some(0));
        assert_eq!(get(admin.parse().unwrap(), "/readyz").unwrap().0, 200);
        first = next;
    }
    // Taking turns asks by other sockets.
    let mut run = command(BALLAST);
    run.args([
        "run",
        "--sandbox",
        "--wait",
        "--admin",
        &admin,
        "--table",
        &at(""),
    ]);
    let waiting = Process::spawn(&mut run);
    waiting.until_said("waiting for the end of");
    first.signal(Signal::TERM);
    assert_eq!(first.ends(), Some(0));
    waiting.until_said("table applied");
}

/// Whether each thread has this line in its status.
fn of_threads(process: &Process, line: &str) -> BTreeSet<bool> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    let has_it = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        status.contains(line)
    };
    tasks.map(has_it).collect()
}

/// How many of one handshake succeed.
fn handshakes(address: SocketAddr, papers: &Papers) -> usize {
    usize::from(has_handshake(connect(address).unwrap(), papers))
}

/// A folder of the stranger's.
fn for_stranger(table: &str) -> TempDir {
    let folder = folder(table);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let number = STRANGER.parse().ok();
    for path in [folder.path().to_owned(), folder.path().join("table.yaml")] {
        chown(path, number, number).unwrap();
    }
    folder
}

fn is_root() -> bool {
    permitted(
        "changing the user is not permitted",
        &["setpriv", "--reuid=47110", "--clear-groups", "true"],
    )
}

const PATIENCE: Duration = Duration::from_secs(60);
/// A number that no user and no group has.
const STRANGER: &str = "47110";
