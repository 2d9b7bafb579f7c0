//! `ballast upgrade`: starts the next process as the one that runs was started.

use std::fs::File;
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
    for program in [&[][..], &[BALLAST]] {
        let ended = upgrade(&place.handover(), program);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let words = format!("in place of pid {before}: inherited 11 of 11 sockets\n");
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
    replace(&place.folder, "version: none\n");
    let ended = upgrade(&place.handover(), &[]);
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("exit status: 75"), "{ended:?}");
    assert_eq!(place.pid(), first.pid().to_string());
    assert!(first.is_running());
}
