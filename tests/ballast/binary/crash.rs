//! `ballast run` in trouble: it is killed, its folder vanishes or is full, its first table waits for a processor.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::peers::{connect, echo_server, fresh_address, ping};
use crate::process::{BALLAST, Process, Signal, ack, command, folder, permitted, replace, table};

#[test]
fn killed_at_any_moment_it_serves_the_last_table_at_the_next_start() {
    let (frontend, server) = (fresh_address(), echo_server());
    let folder = folder(&table(&[(frontend, server)]));
    let socket = folder.path().join("s").display().to_string();
    let handover = folder.path().join("h").display().to_string();
    for pause in [0, 5, 10, 20, 40, 80, 160, 320] {
        let mut process = Process::run(
            folder.path(),
            &["--socket", &socket, "--handover", &handover],
        );
        support::pause(Duration::from_millis(pause));
        // Another table, and soon after it the end.
        replace(
            &folder,
            &table(&[(frontend, server), (fresh_address(), server)]),
        );
        support::pause(Duration::from_millis(pause / 8));
        process.signal(Signal::KILL);
        assert_eq!(process.ends(), None);
    }
    let last = fresh_address();
    replace(&folder, &table(&[(frontend, server), (last, server)]));
    let process = Process::run(
        folder.path(),
        &["--socket", &socket, "--handover", &handover],
    );
    process.until("the last table", || connect(last).is_ok());
    for address in [frontend, last] {
        ping(&mut connect(address).unwrap()).unwrap();
    }
    process.until("an ack of this process", || {
        ack(folder.path()).is_some_and(|ack| ack["served"].is_object())
    });
    assert_eq!(process.err.times("ERROR"), 0, "{}", process.err.text());
}

#[test]
fn a_folder_that_vanishes_and_comes_back_costs_no_connection() {
    let (frontend, later) = (fresh_address(), fresh_address());
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("folder");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("table.yaml"), table(&[(frontend, echo_server())])).unwrap();
    let process = Process::run(&path, &[]);
    process.until_said("table applied");
    let mut client = connect(frontend).unwrap();
    fs::remove_dir_all(&path).unwrap();
    process.until_said("no table: ");
    ping(&mut client).unwrap();
    ping(&mut connect(frontend).unwrap()).unwrap();

    fs::create_dir(&path).unwrap();
    let next = table(&[(frontend, echo_server()), (later, echo_server())]);
    fs::write(path.join("table.yaml"), next).unwrap();
    process.until("the next table", || connect(later).is_ok());
    ping(&mut client).unwrap();
    process.until("an ack", || {
        ack(&path).is_some_and(|ack| ack["served"].is_object())
    });
}

#[test]
fn a_full_disk_and_a_read_only_one_stop_the_ack_and_nothing_else() {
    if !permitted(
        "namespaces of mounts are not permitted",
        &["unshare", "-m", "true"],
    ) {
        return;
    }
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("disk");
    fs::create_dir(&path).unwrap();
    let (first, second) = (fresh_address(), fresh_address());
    let given = above.path().join("given.yaml");
    fs::write(&given, table(&[(first, echo_server())])).unwrap();
    let mut shell = command("unshare");
    let script = "mount -t tmpfs -o size=64k tmpfs $2 && cp $1 $2/table.yaml && exec \"$0\" run --admin 127.0.0.1:0 --table $2";
    shell
        .args(["-m", "sh", "-c", script, BALLAST])
        .args([&given, &path]);
    let process = Process::spawn(&mut shell);
    process.until_said("table applied");
    let disk = PathBuf::from(format!("/proc/{}/root{}", process.pid(), path.display()));
    process.until("an ack", || ack(&disk).is_some());

    fill(&disk.join("full"));
    fs::remove_file(disk.join("ack.json")).unwrap();
    fill(&disk.join("full too"));
    process.until_said("ack.json: cannot write the ack: No space left on device");
    ping(&mut connect(first).unwrap()).unwrap();
    for full in ["full", "full too"] {
        fs::remove_file(disk.join(full)).unwrap();
    }
    process.until("an ack again", || ack(&disk).is_some());

    fs::write(
        disk.join("next"),
        table(&[(first, echo_server()), (second, echo_server())]),
    )
    .unwrap();
    fs::rename(disk.join("next"), disk.join("table.yaml")).unwrap();
    process.until("the next table", || connect(second).is_ok());
    let remount = |how: &str| {
        let pid = process.pid().to_string();
        let options = format!("remount,{how}");
        let mut enter = command("nsenter");
        enter
            .args(["-t", &pid, "-m", "mount", "-o", &options])
            .arg(&path);
        assert!(enter.status().unwrap().success());
    };
    remount("ro");
    process.signal(Signal::HUP);
    process.until("it is read again", || {
        process.err.times("table applied") == 3
    });
    ping(&mut connect(second).unwrap()).unwrap();
    remount("rw");
}

/// Until there is no space.
fn fill(path: &Path) {
    use std::io::Write;

    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
}

#[test]
fn the_first_table_does_not_give_way_to_others_on_a_busy_machine_and_later_ones_do() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::run(folder.path(), &[]);
    process.until_said("has no table");
    let own = nice(&process, "ballast");
    assert_eq!(nice(&process, "apply"), own);
    replace(&folder, &table(&[(fresh_address(), echo_server())]));
    process.until_said("table applied");
    process.until("a lower priority", || {
        nice(&process, "apply") == (own + 10).min(19)
    });
}

/// The nice value of the thread with this name.
fn nice(process: &Process, name: &str) -> i32 {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
    let of_name = |stat: String| {
        let (before, fields) = stat.rsplit_once(") ")?;
        let is_it = before.ends_with(&format!("({name}"));
        is_it.then(|| fields.split(' ').nth(16).unwrap().parse().unwrap())
    };
    stats.filter_map(of_name).next().unwrap()
}
