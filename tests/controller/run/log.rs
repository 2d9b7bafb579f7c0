//! A log that cannot be written: what the controller does goes on, and what is lost is counted.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::run::host::{Host, signal};
use support::program::program;

#[test]
fn a_log_on_a_full_disk_ends_nothing() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    goes_on(full.into());
}

#[test]
fn a_log_whose_reader_left_ends_nothing() {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    drop(reader);
    goes_on(writer.into());
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let (unread, full) = full_pipe();
    goes_on(full.into());
    drop(unread);
}

#[test]
fn a_refusal_to_start_that_cannot_be_said_has_its_code_all_the_same() {
    for run in ["run", "plan"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = program("ballast-controller")
            .args([run, "--manifests", "/", "--http-port", "443"])
            .args((run == "run").then_some("--table-dir=/nowhere"))
            .stderr(full)
            .status();
        assert_eq!(ended.unwrap().code(), Some(64), "{run}");
    }
}

/// A controller with such a log follows changes of its folder, as many as fill any queue of lines, and ends in order.
fn goes_on(log: Stdio) {
    let mut host = Host::new();
    host.start_controller_into(log);
    host.until_answers("/readyz", 200);
    for round in 0..100 {
        // Each document is a line, told again where there are others than before.
        let documents = 50 + usize::from(round % 2 == 0);
        let broken = "kind: Service\nmetadata: {name: [\n---\n".repeat(documents);
        host.manifest("broken.yaml", &broken);
        let service = format!("kind: Service\nmetadata: {{name: web-{round}}}\n");
        host.manifest("web.yaml", &service);
        host.until_metric("decisions_total", |decisions| decisions > round);
    }
    host.until_metric("log_lines_dropped_total", |lines| lines > 0);
    let mut controller = host.controller.take().expect("it runs");
    signal(&controller, Signal::TERM);
    assert_eq!(controller.ends(), Some(0));
}

/// A pipe that takes nothing, and its end for reading.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a flag");
    while rustix::io::write(&writer, &[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).expect("a flag");
    (reader, writer)
}
