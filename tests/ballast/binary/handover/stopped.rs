//! Hand-overs in which one of the two processes is stopped (SIGSTOP) or killed: there are never two that serve, nor none that could.

use std::io::IoSlice;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::*;

/// A hand-over between two processes that the test has in its hand: what one says reaches the other one when the test wants.
struct Between {
    old: UnixStream,
    next: UnixStream,
    /// What the next process has said last.
    ready: String,
}

impl Between {
    /// Starts the next process, which has all sockets of the one that runs and can serve. That one has not heard so yet.
    fn begin(place: &Place) -> (Process, Self) {
        let path = place.folder.path().join("between");
        let listener = UnixListener::bind(&path).unwrap();
        let mut run = command(BALLAST);
        run.args(["run", "--admin", &place.admin, "--table"])
            .arg(place.folder.path())
            .arg("--handover")
            .arg(&path);
        let process = Process::spawn(&mut run);
        let (mut next, _) = listener.accept().unwrap();
        // Its file is replaced by the next process.
        drop(listener);
        let mut old = UnixStream::connect(place.handover()).unwrap();
        say(&mut old, &hear(&mut next));
        let offer = hear(&mut old);
        say(&mut next, &offer);
        let descriptors = receive_descriptors(&old);
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let count = [u8::try_from(descriptors.len()).unwrap()];
        let bytes = [IoSlice::new(&count)];
        sendmsg(&next, &bytes, &mut control, SendFlags::empty()).unwrap();
        let ready = hear(&mut next);
        assert!(ready.starts_with("{\"ready\":"), "{ready}");
        (process, Self { old, next, ready })
    }

    /// From here on the two hear each other, by way of the test.
    fn go_on(mut self) {
        say(&mut self.old, &self.ready);
        for stream in [&self.old, &self.next] {
            stream.set_read_timeout(None).unwrap();
        }
        let pairs = [
            (self.old.try_clone(), self.next.try_clone()),
            (Ok(self.next), Ok(self.old)),
        ];
        for (from, to) in pairs {
            let (mut from, mut to) = (from.unwrap(), to.unwrap());
            thread::spawn(move || {
                std::io::copy(&mut from, &mut to).ok();
                to.shutdown(Shutdown::Write).ok();
                // The sender gets an error when it writes to this connection.
                from.shutdown(Shutdown::Read).ok();
            });
        }
    }
}

/// A place whose health checks are more than the buffers of sockets hold.
fn place_with_much_to_tell() -> (Place, Process) {
    let place = Place::new();
    let endpoint = |index: u32| {
        let address = Ipv4Addr::from_bits(0x7f01_0000 + index);
        format!("{{address: \"{address}:9\"}}")
    };
    let endpoints: Vec<String> = (1..=ENDPOINTS).map(endpoint).collect();
    let more = format!(
        "  - {{name: many, health: {{mode: tcp, interval: 1h}}, endpoints: [{}]}}\n",
        endpoints.join(", ")
    );
    replace(&place.folder, &(place.table(&[]) + &more));
    let first = place.serving();
    (place, first)
}

#[test]
fn a_next_process_that_stops_reading_is_refused_and_ends_when_it_reads_on() {
    let (place, mut first) = place_with_much_to_tell();
    let clients = Clients::of(&place);
    let (mut next, between) = Between::begin(&place);
    next.signal(Signal::STOP);
    between.go_on();
    first.until_said("nothing is handed over");
    assert!(first.has_said("has not read what"), "{}", first.err.text());
    next.signal(Signal::CONT);
    assert_eq!(next.ends(), Some(75), "{}", next.err.text());
    let said = next.err.text();
    assert!(said.contains("goes on: it has not read what"), "{said}");
    assert!(!said.contains("table applied"), "{said}");
    clients.end_without_failure();
    assert!(first.is_running());
    assert_eq!(place.pid(), first.pid().to_string());
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    assert_eq!(first.ends(), Some(0));
}

#[test]
fn a_next_process_serves_where_the_one_that_runs_is_killed_in_the_middle_of_a_message() {
    let (place, mut first) = place_with_much_to_tell();
    let (mut next, between) = Between::begin(&place);
    next.signal(Signal::STOP);
    between.go_on();
    // It tells what it knows, and waits for room.
    support::pause(Duration::from_secs(2));
    first.signal(Signal::KILL);
    assert_eq!(first.ends(), None);
    next.signal(Signal::CONT);
    next.until_said("table applied");
    assert!(next.has_said("which has ended meanwhile"));
    ping(&mut connect(place.tcp).unwrap()).unwrap();
    next.signal(Signal::TERM);
    assert_eq!(next.ends(), Some(0));
}

#[test]
fn a_next_process_waits_for_one_that_runs_and_is_stopped() {
    let place = Place::new();
    let mut first = place.serving();
    let (mut next, between) = Between::begin(&place);
    first.signal(Signal::STOP);
    between.go_on();
    support::pause(Duration::from_secs(1));
    assert!(next.is_running() && !next.has_said("table applied"));
    first.signal(Signal::CONT);
    next.until_said("table applied");
    assert_eq!(first.ends(), Some(0));
    ping(&mut connect(place.tcp).unwrap()).unwrap();
    next.signal(Signal::TERM);
    assert_eq!(next.ends(), Some(0));
}

const ENDPOINTS: u32 = 8_000;
