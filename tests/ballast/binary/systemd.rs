//! Ballast as a service of systemd: the messages to the service manager, and the unit file.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::peers::fresh_address;
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

const UNITS: [&str; 3] = [
    "ballast.service",
    "ballast-controller.service",
    "ballast-announce.service",
];
