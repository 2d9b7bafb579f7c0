//! A `ballast` that begins while the one before it is ending.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::peers::{connect, echo_server, fresh_address, fresh_admin_port, ping};
use crate::process::{BALLAST, Process, Signal, command, folder, table, to_its_end};

#[test]
fn one_that_comes_while_another_is_ending_says_so_or_waits_and_takes_over() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let mut first = Process::spawn(&mut place.run(&["--drain-timeout", "1h"]));
    first.until_answers("/readyz", 200);
    let client = place.client();
    first.signal(Signal::TERM);
    first.until_answers("/readyz", 503);

    let refused = to_its_end(&mut place.run(&[]));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in [
        format!("the process with pid {} is ending", first.pid()),
        "and has the admin port ".into(),
        "with --wait ".into(),
    ] {
        assert!(refused.err.contains(&words), "{words}: {refused:?}");
    }

    let mut second = Process::spawn(&mut place.run(&["--wait"]));
    second.until_said(&format!(
        "waiting: the process with pid {} is ending",
        first.pid()
    ));
    assert!(first.is_running() && second.is_running());
    drop(client);
    assert_eq!(first.ends(), Some(0));
    second.until_answers("/readyz", 200);
    drop(place.client());
    let shown = to_its_end(
        command(BALLAST)
            .args(["ctl", "show info", "--socket"])
            .arg(place.folder.path().join("socket")),
    );
    assert!(
        shown.out.contains(&format!("Pid: {}\n", second.pid())),
        "{shown:?}"
    );
}

#[test]
fn the_table_is_waited_for_where_there_is_no_admin_port() {
    let place = Place::new("none");
    let mut first = Process::spawn(&mut place.run(&["--drain-timeout", "1h"]));
    first.until_said("table applied");
    let client = place.client();
    first.signal(Signal::TERM);
    first.until_said("ending: ");
    let mut run = place.run(&[]);
    run.env("BALLAST_WAIT", "1h");
    let second = Process::spawn(&mut run);
    second.until_said(" is ending, and has the table ");
    drop(client);
    assert_eq!(first.ends(), Some(0));
    second.until_said("table applied");
    drop(place.client());
}

#[test]
fn nobody_waits_for_one_that_is_not_ending() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let mut first = Process::spawn(&mut place.run(&[]));
    first.until_answers("/readyz", 200);
    for wait in ["--wait", "--wait=1h", "--wait=forever"] {
        let refused = to_its_end(&mut place.run(&[wait]));
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("another ballast runs"), "{refused:?}");
    }
    let usage = to_its_end(&mut place.run(&["--wait=soon"]));
    assert_eq!(usage.code, Some(64), "{usage:?}");
    assert!(first.is_running());
}

#[test]
fn waiting_ends_with_its_time_and_with_a_signal() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let mut first = Process::spawn(&mut place.run(&["--drain-timeout", "1h"]));
    first.until_answers("/readyz", 200);
    let _client = place.client();
    first.signal(Signal::TERM);
    first.until_answers("/readyz", 503);

    let began = Instant::now();
    let mut second = Process::spawn(&mut place.run(&["--wait=300ms"]));
    assert_eq!(second.ends(), Some(1));
    assert!(began.elapsed() >= Duration::from_millis(300));
    second.until_said(&format!(
        "ballast: the process with pid {} is ending",
        first.pid()
    ));
    second.until_said("; that took longer than --wait allows");

    for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
        let mut third = Process::spawn(&mut place.run(&["--wait"]));
        third.until_said("waiting: ");
        third.signal(signal);
        assert_eq!(third.ends(), Some(0));
    }
    assert!(first.is_running());
}

/// What only one process at a time may have.
struct Place {
    admin: String,
    frontend: SocketAddr,
    folder: TempDir,
}

impl Place {
    fn new(admin: &str) -> Self {
        let frontend = fresh_address();
        Self {
            admin: admin.into(),
            frontend,
            folder: folder(&table(&[(frontend, echo_server())])),
        }
    }

    fn run(&self, args: &[&str]) -> Command {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", &self.admin, "--table"])
            .arg(self.folder.path())
            .arg("--socket")
            .arg(self.folder.path().join("socket"))
            .args(args);
        run
    }

    fn client(&self) -> TcpStream {
        let mut client = connect(self.frontend).unwrap();
        ping(&mut client).unwrap();
        client
    }
}
