//! Ballast as a service of systemd: the messages to the service manager, and the unit file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::peers::{connect, echo_server, fresh_address, ping};
use crate::process::{BALLAST, Process, Signal, command, folder, replace, table};
use support::skip::skip;

#[test]
fn systemd_is_told_of_the_start_of_reloads_and_of_the_end() {
    let folder = folder(&table(&[(fresh_address(), fresh_address())]));
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let next = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut ballast = command(BALLAST);
    ballast
        .args(["run", "--admin", "none", "--table"])
        .arg(folder.path().join("table.yaml"))
        .env("NOTIFY_SOCKET", &path);
    let mut process = Process::spawn(&mut ballast);
    assert_eq!(next(), "READY=1\n");

    for text in ["version: 1", "version: none"] {
        replace(&folder, text);
        process.signal(Signal::HUP);
        let reloading = next();
        assert!(
            reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
            "{reloading}"
        );
        assert_eq!(next(), "READY=1\n");
    }

    process.signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1\n");
    assert_eq!(process.ends(), Some(0));
}

/// What a service manager is told next: the words, and the descriptors that come along.
fn told(manager: &UnixDatagram) -> (String, Vec<OwnedFd>) {
    let (mut bytes, mut space) = ([0; 512], [MaybeUninit::uninit(); 4096]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(manager, into, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let descriptors = descriptors.collect();
    let words = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
    (words, descriptors)
}

#[test]
fn clients_that_come_after_a_crash_wait_in_sockets_that_systemd_keeps() {
    let (frontend, other, server) = (fresh_address(), fresh_address(), echo_server());
    let folder = folder(&table(&[(frontend, server), (other, server)]));
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // The descriptors of a started process begin with 3; this one has its socket at 0 first.
    let run = |name: &str, socket: Stdio| {
        let mut shell = command("sh");
        shell
            .args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\" 3<&0 </dev/null"])
            .args([BALLAST, "run", "--admin", "none", "--threads", "1"])
            .arg("--sandbox")
            .arg("--table")
            .arg(folder.path().join("table.yaml"))
            .env("NOTIFY_SOCKET", &path)
            .env("FDSTORE", "64");
        if !name.is_empty() {
            shell.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", name);
        }
        Process::spawn_from(&mut shell, socket)
    };
    let name =
        |address: SocketAddr| format!("ballast-tcp-{}", address.to_string().replace(':', "_"));
    let keeps = |address| format!("FDSTORE=1\nFDPOLL=0\nFDNAME={}\n", name(address));
    let mut first = run("", Stdio::null());
    let mut kept = BTreeMap::new();
    for _ in 0..2 {
        let (words, mut sockets) = told(&manager);
        assert_eq!(sockets.len(), 1, "{words}");
        kept.insert(words, sockets.remove(0));
    }
    assert_eq!(told(&manager).0, "READY=1\n");
    let socket = kept.remove(&keeps(frontend)).unwrap();
    first.signal(Signal::KILL);
    assert_eq!(first.ends(), None);
    // systemd has both, and starts the next process with one of them only.
    let mut waiting = connect(frontend).unwrap();
    drop(kept);
    assert!(connect(other).is_err());
    let mut second = run(&name(frontend), socket.into());
    ping(&mut waiting).unwrap();
    second.until_said("systemd has kept 1 sockets");
    let all = [told(&manager), told(&manager)].map(|(words, _)| words);
    assert_eq!(BTreeSet::from(all), [keeps(frontend), keeps(other)].into());
    assert_eq!(told(&manager).0, "READY=1\n");
    // An address that goes in order is kept no more, and none is after the end.
    let removes = |address| format!("FDSTOREREMOVE=1\nFDNAME={}\n", name(address));
    replace(&folder, &table(&[(frontend, server)]));
    assert_eq!(told(&manager).0, removes(other));
    second.signal(Signal::TERM);
    assert_eq!(told(&manager).0, "STOPPING=1\n");
    assert_eq!(told(&manager).0, removes(frontend));
    assert_eq!(second.ends(), Some(0));
}

#[test]
fn systemd_is_told_of_every_socket_of_a_large_table_however_slowly_it_reads() {
    let (first, server) = (fresh_address(), echo_server());
    let addresses: Vec<SocketAddr> = (0..ADDRESSES)
        .map(|more| SocketAddr::new(first.ip(), first.port() + more))
        .collect();
    let pairs: Vec<_> = addresses.iter().map(|address| (*address, server)).collect();
    let folder = folder(&table(&pairs));
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let patience = Some(Duration::from_secs(20));
    manager.set_read_timeout(patience).unwrap();
    let run = |most: &str| {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", "none", "--threads", "1", "--table"])
            .arg(folder.path().join("table.yaml"))
            .env("NOTIFY_SOCKET", &path)
            .env("FDSTORE", most);
        Process::spawn(&mut run)
    };
    let name =
        |address: &SocketAddr| format!("ballast-tcp-{}", address.to_string().replace(':', "_"));
    let all: BTreeSet<String> = addresses.iter().map(name).collect();
    // The names of as many as systemd is told to do something with.
    let names = |order: &str, count: usize| {
        let mut names = BTreeSet::new();
        while names.len() < count {
            let (words, _) = told(&manager);
            let of_order = words.strip_prefix(order);
            names.extend(
                of_order.map(|words| words.split("FDNAME=").nth(1).unwrap().trim().to_owned()),
            );
        }
        names
    };
    let mut process = run("4096");
    process.until_said("table applied");
    // The kernel has room for a few messages.
    assert_eq!(names("FDSTORE=1\n", all.len()), all);
    assert!(!process.has_said("systemd keeps"));
    process.signal(Signal::TERM);
    assert_eq!(names("FDSTOREREMOVE=1\n", all.len()), all);
    assert_eq!(process.ends(), Some(0));
    assert!(!process.has_said("systemd"), "{}", process.err.text());

    let mut process = run("100");
    process.until_said("table applied");
    assert_eq!(names("FDSTORE=1\n", 100).len(), 100);
    let words = format!(
        "systemd keeps 100 of {ADDRESSES} sockets, and none of {}",
        ADDRESSES - 100
    );
    assert!(process.has_said(&words), "{}", process.err.text());
    // One that never reads holds up the end for a moment.
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
    process.until_said("systemd does not read what it is told");
}

#[test]
fn systemd_takes_the_units() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates/systemd");
    let folder = tempfile::tempdir().unwrap();
    for name in UNITS {
        let text = fs::read_to_string(units.join(name)).unwrap();
        // The programs are not installed where the test runs.
        let text: String = text
            .lines()
            .map(|line| match line.split_once(' ') {
                Some((program, words)) if program.starts_with("ExecStart=") => {
                    format!("ExecStart={BALLAST} {words}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect();
        fs::write(folder.path().join(name), text).unwrap();
    }
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .args(UNITS)
        .current_dir(&folder)
        .output();
    let Ok(verified) = verified else {
        return skip("systemd-analyze is missing");
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(
        verified.status.success() && !said.contains("ballast"),
        "{said}"
    );
}

#[test]
fn a_reload_that_upgrades_starts_what_the_unit_starts() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates/systemd");
    let read = |name: &str| fs::read_to_string(units.join(name)).unwrap();
    let (unit, upgrade) = (read("ballast.service"), read("upgrade.conf"));
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let (program, arguments) = start.unwrap().split_once(' ').unwrap();
    let handover = arguments.split_once("--handover ").unwrap().1;
    let path = handover.split(' ').next().unwrap();
    let reload = format!(
        "ExecReload=\nExecReload={program} upgrade --handover {path} {program} -- {arguments}\n"
    );
    assert!(upgrade.ends_with(&reload), "{upgrade}\n{reload}");
}

const ADDRESSES: u16 = 700;
const UNITS: [&str; 3] = [
    "ballast.service",
    "ballast-controller.service",
    "ballast-announce.service",
];
