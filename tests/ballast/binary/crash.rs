//! `ballast run` in trouble: it is killed, its folder vanishes or is full, local ports run out, the date jumps, its first table waits
//! for a processor or is large. `descriptors` and `memory` have what becomes of a process without those.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::hostile::{connect_from, source};
use crate::peers::{connect, echo_server, fresh_address, fresh_ip, ping};
use crate::process::{BALLAST, Process, Signal, ack, command, folder, permitted, replace, table};
use support::netns::Namespace;
use support::peers::is_for_figures;
use support::skip::skip;

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

/// A connection to an endpoint takes a local port of the host; here there are few.
#[test]
fn local_ports_that_run_out_are_named_and_harm_nobody_who_is_served() {
    let namespace = match Namespace::make() {
        Ok(namespace) => namespace,
        Err(why) => return skip(&format!("no network namespaces: {why}")),
    };
    namespace.set("ipv4/ip_local_port_range", "50000 50015");
    namespace.within(|| {
        let frontend = fresh_address();
        let folder = folder(&table(&[(frontend, echo_server())]));
        let process = Process::run(folder.path(), &[]);
        process.until_said("table applied");
        // Each client has an address, and so ports, of its own.
        let number = Cell::new(0);
        let come = || {
            number.set(number.get() + 1);
            let mut client = connect_from(source(number.get()), frontend).unwrap();
            client
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            ping(&mut client).map(|()| client)
        };
        let mut served: Vec<_> = std::iter::from_fn(|| come().ok()).take(40).collect();
        assert!(
            (8..=16).contains(&served.len()),
            "{} are served",
            served.len()
        );
        process.until_said("cannot connect to an endpoint, for a reason of this side's");
        assert!(
            process.has_said("Cannot assign requested address"),
            "{}",
            process.err.text()
        );
        served.iter_mut().for_each(|client| ping(client).unwrap());
        // The endpoint is not blamed for it.
        let metrics = process.metrics();
        assert!(
            !metrics.contains("ballast_ejections_total{service=\"s0\",reason=\"refused\"} 1"),
            "{metrics}"
        );
        for client in served.drain(..) {
            SockRef::from(&client)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
        process.until("a client that is served again", || come().is_ok());
    });
}

/// Timeouts, checks and the table's watch go by another clock. The program is lied to by a library, which one that is linked
/// statically does not load.
#[cfg(not(target_feature = "crt-static"))]
#[test]
fn a_date_that_jumps_forward_and_back_is_named_and_changes_nothing_else() {
    if !permitted("there is no C compiler", &["cc", "--version"]) {
        return;
    }
    let above = tempfile::tempdir().unwrap();
    let at = |name: &str| above.path().join(name);
    fs::write(at("date.c"), LYING_CLOCK).unwrap();
    fs::write(at("offset"), "0").unwrap();
    let mut compiler = command("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .args([at("date.so"), at("date.c")]);
    assert!(compiler.status().unwrap().success());
    let (frontend, later, server) = (fresh_address(), fresh_address(), echo_server());
    let checked = |pairs: &[_]| {
        table(pairs).replace(
            "{name: s0,",
            "{name: s0, health: {mode: tcp, interval: 100ms},",
        )
    };
    let folder = folder(&checked(&[(frontend, server)]));
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "127.0.0.1:0", "--table"])
        .arg(folder.path());
    run.env("LD_PRELOAD", at("date.so"))
        .env("DATE_OFFSET", at("offset"));
    let process = Process::spawn(&mut run);
    process.until_said("table applied");
    let mut client = connect(frontend).unwrap();
    ping(&mut client).unwrap();
    let ten_years = 315_360_000_i64;
    for (jumps, offset) in [ten_years, 0, -ten_years, 0].into_iter().enumerate() {
        fs::write(at("next"), offset.to_string()).unwrap();
        fs::rename(at("next"), at("offset")).unwrap();
        process.until("the line of a jump", || {
            process.err.times("the date of this host was set") == jumps + 1
        });
        ping(&mut client).unwrap();
        ping(&mut connect(frontend).unwrap()).unwrap();
        let mut pairs = vec![(frontend, server), (later, server)];
        pairs.truncate(1 + (jumps + 1) % 2);
        replace(&folder, &checked(&pairs));
        process.until("the next table", || {
            connect(later).is_ok() == (pairs.len() == 2)
        });
    }
    assert_eq!(process.err.times(" is down"), 0, "{}", process.err.text());
    assert_eq!(process.err.times("ERROR"), 0, "{}", process.err.text());
}

/// Adds the seconds of a file to the date.
#[cfg(not(target_feature = "crt-static"))]
const LYING_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (clock == CLOCK_REALTIME) {
        long long offset = 0;
        FILE *file = fopen(getenv("DATE_OFFSET"), "r");
        if (file) {
            if (fscanf(file, "%lld", &offset) != 1) offset = 0;
            fclose(file);
        }
        time->tv_sec += offset;
    }
    return result;
}
"#;

/// The next start after a crash. What is promised, a second, is for a release build, which FIGURES=1 asks for.
#[test]
fn ten_thousand_frontends_are_served_soon_after_the_start() {
    let ip = fresh_ip();
    let port = |number: u16| SocketAddr::from((ip, 10_000 + number));
    let server = echo_server();
    let pairs: Vec<_> = (0..FRONTENDS)
        .map(|number| (port(number), server))
        .collect();
    let folder = folder(&table(&pairs));
    let served = |process: &Process, begun: Instant| {
        let last = port(FRONTENDS - 1);
        process.until("an ack of it", || {
            ack(folder.path()).is_some_and(|ack| ack["served"].is_object())
        });
        ping(&mut connect(last).unwrap()).unwrap();
        begun.elapsed()
    };
    let begun = Instant::now();
    let mut process = Process::run(folder.path(), &["--threads", "1"]);
    let first = served(&process, begun);
    process.signal(Signal::KILL);
    process.ends();
    fs::remove_file(folder.path().join("ack.json")).unwrap();
    let begun = Instant::now();
    let next = Process::run(folder.path(), &["--threads", "1"]);
    let took = served(&next, begun);
    println!("{FRONTENDS} frontends: {first:?} at the first start, {took:?} after it was killed");
    let most = if is_for_figures() { 1 } else { 30 };
    assert!(
        took < Duration::from_secs(most),
        "{took:?}\n{}",
        next.err.text()
    );
}

const FRONTENDS: u16 = 10_000;
