//! `ballast upgrade`: starts the next process as the one that runs was started.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::Stdio;

use rustix::process::{Pid, kill_process};

use super::*;
use crate::process::Ended;

/// `ballast run` that writes to a file: the next process writes there, too.
fn run(place: &Place, log: &Path) -> Process {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let mut run = place.run(&["--threads", "2"]);
    let process = Process::spawn_into(&mut run, Stdio::null(), log.into());
    process.until("it serves", || {
        get(place.admin.parse().unwrap(), "/readyz").is_ok_and(|(status, _)| status == 200)
    });
    process
}

/// As the programs print it.
fn version() -> String {
    let ended = to_its_end(command(BALLAST).arg("--version"));
    ended.out.trim().strip_prefix("ballast ").unwrap().into()
}

/// Ends a process that this test did not start.
fn end(pid: &str) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
}

fn upgrade(path: &Path, program: &[&str]) -> Ended {
    let mut upgrade = command(BALLAST);
    upgrade.arg("upgrade").arg("--handover").arg(path);
    to_its_end(upgrade.args(program))
}

#[test]
fn the_next_process_is_started_as_the_one_that_runs_was_and_takes_over() {
    let place = Place::new();
    let log = place.folder.path().join("log");
    let mut first = run(&place, &log);
    let clients = Clients::of(&place);
    let mut before = first.pid().to_string();
    let version = version();
    for program in [&[][..], &[BALLAST]] {
        let ended = upgrade(&place.handover(), program);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let words = format!(
            "in place of pid {before}: inherited 11 of 11 sockets; version {version} -> {version}\n"
        );
        assert!(ended.out.ends_with(&words), "{ended:?}");
        first.until("the next one answers", || place.pid() != before);
        before = place.pid();
        assert!(
            ended.out.starts_with(&format!("pid {before} serves")),
            "{ended:?}"
        );
    }
    assert_eq!(first.ends(), Some(0));
    clients.end_without_failure();
    let logged = fs::read_to_string(&log).unwrap();
    assert_eq!(logged.matches("workers=2").count(), 3, "{logged}");
    kill_process(
        Pid::from_raw(before.parse().unwrap()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    first.until("its end", || !place.handover().exists());
}

#[test]
fn a_process_of_another_user_or_service_is_replaced_by_one_with_arguments_of_its_own() {
    let place = Place::new();
    let log = place.folder.path().join("log");
    let mut first = run(&place, &log);
    // As `ExecReload=` has it: the command reads nothing of the process that runs.
    let run = place.run(&["--threads", "1"]);
    let mut arguments = vec![BALLAST, "--"];
    arguments.extend(run.get_args().map(|word| word.to_str().unwrap()));
    let ended = upgrade(&place.handover(), &arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.out.contains("inherited 11 of 11 sockets"),
        "{ended:?}"
    );
    assert_eq!(first.ends(), Some(0));
    let second = place.pid();
    let limits = |pid: &str| fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let open_files = |text: String| {
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with("Max open files"))
            .unwrap()
            .to_owned()
    };
    let before = open_files(limits(&second));
    // The next one has the limits of the one that runs, not those of the caller.
    let mut shell = command("sh");
    shell
        .args(["-c", "ulimit -S -n 256 && exec \"$0\" \"$@\""])
        .args([BALLAST, "upgrade", "--handover"])
        .arg(place.handover());
    let ended = to_its_end(&mut shell);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Both processes have the runtime socket, until the one before has left it.
    let mut third = place.pid();
    support::until("the next process answers alone", || {
        third = place.pid();
        third != second
    });
    assert_eq!(open_files(limits(&third)), before);
    kill_process(Pid::from_raw(third.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    first.until("its end", || !place.handover().exists());
}

#[test]
fn a_log_that_the_shell_opened_anew_is_overwritten_by_nobody() {
    let place = Place::new();
    let log = place.folder.path().join("log");
    let process = Process::spawn_into(
        &mut place.run(&[]),
        Stdio::null(),
        File::create(&log).unwrap().into(),
    );
    let mut first = process;
    let logged = || fs::read_to_string(&log).unwrap();
    first.until("it serves", || logged().contains("table applied"));
    let ended = upgrade(&place.handover(), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(first.ends(), Some(0));
    let second = place.pid();
    kill_process(
        Pid::from_raw(second.parse().unwrap()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    // The last line comes after its files are gone.
    let ends = || logged().matches("ended cut=0").count();
    first.until("both have told their end", || ends() >= 2);
    let text = logged();
    for words in ["the page and the metrics", "table applied", "ended cut=0"] {
        assert_eq!(text.matches(words).count(), 2, "{text}");
    }
    for words in ["the next process serves", "inherited 11 of 11 sockets"] {
        assert_eq!(text.matches(words).count(), 1, "{text}");
    }
    assert!(!text.contains('\0'), "{text}");
}

#[test]
fn an_upgrade_that_fails_is_said_and_changes_nothing() {
    let place = Place::new();
    let ended = upgrade(&place.handover(), &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .err
            .contains("no ballast of this user hands over there"),
        "{ended:?}"
    );

    let log = place.folder.path().join("log");
    let mut first = run(&place, &log);
    first.signal(Signal::STOP);
    let ended = upgrade(&place.handover(), &[]);
    first.signal(Signal::CONT);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let words = format!("the process there (pid {}) does not answer", first.pid());
    assert!(ended.err.contains(&words), "{ended:?}");
    let goes_on = format!("the process with pid {} goes on", first.pid());
    for (program, words) in [
        ("false", "cannot be started"),
        ("/bin/false", "the next process has ended (exit status: 1)"),
    ] {
        let ended = upgrade(&place.handover(), &[program]);
        assert_eq!(ended.code, Some(75), "{ended:?}");
        assert!(
            ended.err.contains(words) && ended.err.contains(&goes_on),
            "{ended:?}"
        );
    }
    // The one that runs has offered its sockets to another process.
    let mut asking = UnixStream::connect(place.handover()).unwrap();
    say(&mut asking, REQUEST);
    hear(&mut asking);
    let ended = upgrade(&place.handover(), &[]);
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("exit status: 75"), "{ended:?}");
    assert!(ended.err.contains(&goes_on), "{ended:?}");
    let said = fs::read_to_string(&log).unwrap();
    let words = "not handed over: another process is taking over now";
    assert!(said.contains(words), "{said}");
    drop(asking);
    replace(&place.folder, "version: none\n");
    let ended = upgrade(&place.handover(), &[]);
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("exit status: 75"), "{ended:?}");
    assert_eq!(place.pid(), first.pid().to_string());
    assert!(first.is_running());
}

/// `current` leads to the folder of a version, and the old process runs the file of the old one.
#[test]
fn the_program_is_the_one_to_which_the_path_leads_now() {
    let place = Place::new();
    let at = |name: &str| place.folder.path().join(name);
    for name in ["v1", "v2"] {
        fs::create_dir(at(name)).unwrap();
        fs::copy(BALLAST, at(name).join("ballast")).unwrap();
    }
    symlink("v1", at("current")).unwrap();
    let (path, paths) = (at("current/ballast"), at("current"));
    let as_path = path.to_str().unwrap();
    let file_of = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    for (named, replaced) in [
        (as_path, "link"),
        ("ballast", "link"),
        ("current/ballast", "link"),
        (as_path, "file"),
    ] {
        fs::remove_file(at("current")).unwrap();
        symlink("v1", at("current")).unwrap();
        let log = at("log");
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let arguments = place.run(&[]);
        let mut run = command(as_path);
        // The words are those of a shell in this folder.
        let mut shell = command("sh");
        shell
            .args(["-c", "exec \"$0\" \"$@\"", named])
            .args(arguments.get_args())
            .env("PATH", &paths)
            .current_dir(place.folder.path());
        let run = if named == as_path {
            run.args(arguments.get_args())
        } else {
            shell.env("PATH", format!("{}:/usr/bin:/bin", paths.display()))
        };
        let mut first = Process::spawn_into(run, Stdio::null(), out.into());
        first.until("it serves", || {
            get(place.admin.parse().unwrap(), "/readyz").is_ok_and(|(status, _)| status == 200)
        });
        let newer = if replaced == "link" {
            fs::remove_file(at("current")).unwrap();
            symlink("v2", at("current")).unwrap();
            at("v2/ballast")
        } else {
            fs::rename(at("v1/ballast"), at("v1/ballast.old")).unwrap();
            fs::copy(BALLAST, at("v1/ballast")).unwrap();
            at("v1/ballast")
        };
        let ended = upgrade(&place.handover(), &[]);
        assert_eq!(ended.code, Some(0), "{named}: {ended:?}");
        assert_eq!(first.ends(), Some(0));
        let next = place.pid();
        assert_eq!(
            file_of(&next),
            newer.canonicalize().unwrap(),
            "{named}: {ended:?}"
        );
        end(&next);
        support::until("its end", || !place.handover().exists());
    }
}

#[test]
fn arguments_by_which_the_next_process_would_not_take_over_are_refused() {
    let place = Place::new();
    let log = place.folder.path().join("log");
    let mut first = run(&place, &log);
    let admin = format!("127.0.0.1:{}", fresh_admin_port());
    let table = place.folder.path().to_str().unwrap();
    let other = place.folder.path().join("other");
    let (path, other) = (place.handover(), other.to_str().unwrap());
    let run = [BALLAST, "--", "run", "--admin", &admin, "--table", table];
    for (more, words) in [
        (
            &[][..],
            format!(
                "have no --handover, so that the next process would serve beside the one that runs and not in its place; add --handover {} to them",
                path.display()
            ),
        ),
        (
            &["--handover", other],
            format!("name another path, {other}, "),
        ),
    ] {
        let ended = upgrade(&path, &[&run, more].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains(&words), "{ended:?}");
        assert!(get(admin.parse().unwrap(), "/readyz").is_err());
    }
    assert_eq!(place.pid(), first.pid().to_string());
    // Another name of the same path, and the variable of the same name.
    let same = format!(
        "--handover={}",
        place.folder.path().join("./handover").display()
    );
    let ended = upgrade(&path, &[&run[..], &[&same]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(first.ends(), Some(0));
    let mut by_variable = command(BALLAST);
    let run = place.run(&[]);
    let arguments = run
        .get_args()
        .filter(|word| *word != "--handover" && *word != path);
    by_variable
        .args(["upgrade", BALLAST, "--"])
        .args(arguments)
        .env("BALLAST_HANDOVER", &path);
    let ended = to_its_end(&mut by_variable);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    end(&place.pid());
    support::until("its end", || !place.handover().exists());
}

/// A wrapper may leave arguments out.
#[test]
fn a_next_process_that_serves_beside_the_one_that_runs_is_no_success() {
    let place = Place::new();
    let log = place.folder.path().join("log");
    let mut first = run(&place, &log);
    let admin = format!("127.0.0.1:{}", fresh_admin_port());
    let (elsewhere, beside) = (folder("version: 1\n"), tempfile::tempdir().unwrap());
    let wrapper = beside.path().join("wrapper");
    let script = format!(
        "#!/bin/sh\nexec {BALLAST} run --admin {admin} --table {}\n",
        elsewhere.path().display()
    );
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let ended = upgrade(&place.handover(), &[wrapper.to_str().unwrap()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let words = format!(
        "and the process with pid {} goes on: it was not asked for its sockets",
        first.pid()
    );
    assert!(ended.err.contains(&words), "{ended:?}");
    assert!(first.is_running());
    let pid = ended.err.split_once("ballast: pid ").unwrap().1;
    end(pid.split(' ').next().unwrap());
    support::until("its end", || {
        get(admin.parse().unwrap(), "/readyz").is_err()
    });
}

#[test]
fn upgrades_at_once_name_the_process_that_each_has_replaced() {
    let place = Place::new();
    let log = place.folder.path().join("log");
    let mut first = run(&place, &log);
    let path = place.handover();
    let all: Vec<_> = (0..3)
        .map(|_| {
            let path = path.clone();
            thread::spawn(move || upgrade(&path, &[]))
        })
        .collect();
    let all: Vec<Ended> = all.into_iter().map(|one| one.join().unwrap()).collect();
    let served: Vec<&Ended> = all.iter().filter(|ended| ended.code == Some(0)).collect();
    assert!(!served.is_empty(), "{all:?}");
    let replaced: Vec<&str> = served
        .iter()
        .map(|ended| {
            ended
                .out
                .split_once("in place of pid ")
                .unwrap()
                .1
                .split(':')
                .next()
                .unwrap()
        })
        .collect();
    let mut different = replaced.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), replaced.len(), "{all:?}");
    assert!(replaced.contains(&&*first.pid().to_string()), "{all:?}");
    assert_eq!(first.ends(), Some(0));
    end(&place.pid());
    support::until("its end", || !place.handover().exists());
}

/// As under systemd, whose journal reads a socket.
#[test]
fn the_next_process_writes_to_the_socket_to_which_the_one_that_runs_writes() {
    let place = Place::new();
    let (mut journal, theirs) = UnixStream::pair().unwrap();
    journal.set_read_timeout(Some(PATIENCE)).unwrap();
    let out = OwnedFd::from(theirs.try_clone().unwrap());
    let mut first = Process::spawn_into(
        &mut place.run(&[]),
        out.into(),
        OwnedFd::from(theirs).into(),
    );
    first.until("it serves", || {
        get(place.admin.parse().unwrap(), "/readyz").is_ok_and(|(status, _)| status == 200)
    });
    // What it writes to is a pipe that is read to its end: this would not return if the next process had it.
    let ended = upgrade(&place.handover(), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(first.ends(), Some(0));
    let next = place.pid();
    end(&next);
    let mut logged = String::new();
    journal.read_to_string(&mut logged).unwrap();
    assert!(
        logged.contains("inherited 11 of 11 sockets"),
        "{logged}\n{ended:?}"
    );
}

/// `ballast run` permits no core dumps, so the kernel gives its descriptors to root alone, and not to another process of its user.
#[test]
fn a_command_that_may_not_have_the_socket_says_so_and_returns() {
    let probe = [&AS_NOBODY[..], &["true"]].concat();
    if !permitted("another user's process cannot be run", &probe) {
        return;
    }
    let (everybody, program) = for_everybody();
    let path = everybody.path().join("handover");
    let table = everybody.path().join("table.yaml");
    fs::write(&table, "version: 1\n").unwrap();
    let nobody = || {
        let mut nobody = command(AS_NOBODY[0]);
        nobody.args(&AS_NOBODY[1..]).arg(&program);
        nobody
    };
    let run = [
        Path::new("run"),
        Path::new("--admin"),
        Path::new("none"),
        Path::new("--table"),
        &table,
        Path::new("--handover"),
        &path,
    ];
    let (journal, theirs) = UnixStream::pair().unwrap();
    journal.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut first = Process::spawn_into(
        nobody().args(run),
        Stdio::null(),
        OwnedFd::from(theirs).into(),
    );
    let mut journal = BufReader::new(journal);
    let mut line = String::new();
    while !line.contains("table applied") {
        line.clear();
        assert!(journal.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    let mut upgrade = nobody();
    upgrade
        .arg("upgrade")
        .arg("--handover")
        .arg(&path)
        .arg(&program)
        .arg("--")
        .args(run);
    let ended = to_its_end(&mut upgrade);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended
            .err
            .contains("the next process writes its log to /dev/null; run this command as root"),
        "{ended:?}"
    );
    assert_eq!(first.ends(), Some(0));
    let mut logged = String::new();
    journal.read_to_string(&mut logged).unwrap();
    assert!(logged.contains("the next process serves"), "{logged}");
    end(ended
        .out
        .strip_prefix("pid ")
        .unwrap()
        .split(' ')
        .next()
        .unwrap());
    support::until("its end", || !path.exists());
}
