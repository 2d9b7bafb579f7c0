//! Hand-overs that fail: whatever the next process does until it has confirmed, the old one goes on. And what the two leave behind.

use std::os::unix::net::UnixDatagram;

use super::*;
use support::skip::skip;

/// A process that asks and says what the test wants.
struct Asking {
    connection: UnixStream,
    _descriptors: Vec<OwnedFd>,
}

impl Asking {
    /// It has all sockets.
    fn offered(place: &Place, request: &str) -> Self {
        let mut connection = UnixStream::connect(place.handover()).unwrap();
        say(&mut connection, request);
        let offer = hear(&mut connection);
        assert!(offer.starts_with("{\"offer\":"), "{offer}");
        let descriptors = receive_descriptors(&connection);
        Self {
            connection,
            _descriptors: descriptors,
        }
    }

    /// It may have the sockets, and has not confirmed that it takes them.
    fn permitted(place: &Place) -> Self {
        let mut asking = Self::offered(place, REQUEST);
        asking.say(READY);
        assert_eq!(asking.hear(), "\"yours\"");
        asking
    }

    fn say(&mut self, text: &str) {
        say(&mut self.connection, text);
    }

    /// The next message that is no part of the state.
    fn hear(&mut self) -> String {
        loop {
            let heard = hear(&mut self.connection);
            if !heard.starts_with("{\"state\":") {
                return heard;
            }
        }
    }

    fn hears_the_end(&mut self) -> bool {
        matches!(self.connection.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// A process that answers at the path of a hand-over as the test wants.
fn answering<T: Send + 'static>(
    path: &Path,
    answer: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> JoinHandle<T> {
    let listener = UnixListener::bind(path).unwrap();
    let path = path.to_owned();
    thread::spawn(move || {
        // The file is replaced by the next process.
        let mut next = the_only_one(listener, &path);
        let request = hear(&mut next);
        assert!(
            request.starts_with("{\"request\":{\"version\":3,\"oldest\":2,"),
            "{request}"
        );
        answer(next)
    })
}

/// `ballast run` that takes over at this path, with an empty table.
fn next_at(folder: &TempDir, path: &Path) -> Command {
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "none", "--table"])
        .arg(folder.path())
        .arg("--handover")
        .arg(path);
    run
}

#[test]
fn a_process_that_may_have_the_sockets_and_goes_without_a_word_changes_nothing() {
    let place = Place::new();
    let mut first = place.serving();
    let clients = Clients::of(&place);
    let asking = Asking::permitted(&place);
    // Until it has confirmed or gone, no table is read.
    let more = fresh_address();
    replace(&place.folder, &place.table(&[more]));
    support::pause(Duration::from_millis(500));
    assert!(connect(more).is_err());
    drop(asking);
    first.until_said("when it was to take over");
    first.until("the table that came meanwhile", || connect(more).is_ok());
    assert_eq!(place.pid(), first.pid().to_string());
    first.until_answers("/readyz", 200);
    // Nonsense in place of the confirmation.
    let mut asking = Asking::permitted(&place);
    asking.say(READY);
    assert!(asking.hear().contains("is not the one that comes next"));
    clients.end_without_failure();
    assert!(first.is_running());
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    assert_eq!(first.ends(), Some(0));
}

#[test]
fn a_process_that_hangs_instead_of_confirming_is_refused_and_cannot_confirm_later() {
    let place = Place::new();
    let mut first = place.serving();
    let clients = Clients::of(&place);
    let mut asking = Asking::permitted(&place);
    assert!(asking.hear().contains("has not confirmed within 10s"));
    first.until_said("when it was to take over");
    let late = asking.connection.write_all(b"\0\0\0\x06\"mine\"");
    assert_eq!(late.unwrap_err().kind(), ErrorKind::BrokenPipe);
    clients.end_without_failure();
    first.until_answers("/readyz", 200);
    assert!(first.is_running());
}

#[test]
fn a_process_that_hangs_with_the_sockets_keeps_no_client_and_no_address() {
    let mut place = Place::new();
    let more = fresh_address();
    replace(&place.folder, &place.table(&[more]));
    let mut first = place.serving();
    let clients = Clients::of(&place);
    let mut hanging = Asking::offered(&place, REQUEST);
    // A table without that frontend: nobody waits at the copy of its socket that the other process has.
    connect(more).unwrap();
    replace(&place.folder, &place.table(&[]));
    assert!(
        hanging
            .hear()
            .contains("has changed, and with it the sockets")
    );
    assert!(hanging.hears_the_end());
    first.until("nobody listens there", || connect(more).is_err());
    // It hangs still, and another one takes over.
    let mut second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    first.until_said("the next process serves");
    assert_eq!(place.pid(), second.pid().to_string());
    clients.end_without_failure();
    assert_eq!(first.ends(), Some(0));
    drop(hanging);
    // What it had copies of is free for another one.
    second.signal(Signal::TERM);
    assert_eq!(second.ends(), Some(0));
    place.admin = format!("127.0.0.1:{}", fresh_admin_port());
    drop(place.serving());
}

#[test]
fn a_process_that_is_told_to_end_during_an_offer_leaves_the_files_to_the_one_that_has_them() {
    let place = Place::new();
    let mut first = place.serving();
    let mut asking = Asking::offered(&place, REQUEST);
    first.signal(Signal::TERM);
    first.until_said("ending:");
    // Meanwhile clients are accepted: the next process may be ready in a moment.
    ping(&mut connect(place.tcp).unwrap()).unwrap();
    assert_eq!(first.ends(), Some(0));
    assert!(asking.hears_the_end());
    assert!(place.handover().exists() && place.socket().exists());
    // A client that connects now waits in the queue of the socket that the other process has.
    connect(place.tcp).unwrap();
    drop(asking);
    assert!(connect(place.tcp).is_err());
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    assert!(!second.has_said("inherited"));
    second.until_answers("/readyz", 200);
}

#[test]
fn the_next_process_ends_where_the_one_that_runs_lives_and_serves_where_that_one_is_gone() {
    const STATE: &str = r#"{"state":{}}"#;
    let broken = Some("has broken off the hand-over");
    let refused = Some("not today");
    for (version, says, ends) in [
        (3, &[REFUSED][..], refused),
        (3, &["wait", REFUSED], refused),
        (3, &["wait", "\"yours\"", "wait", "{\"flows\":[]}"], None),
        // The end of the connection, between messages and in the middle of one, is not the end of the process.
        (3, &[], broken),
        (3, &["wait"], broken),
        (3, &["wait", STATE, "half"], broken),
        (3, &["dies"], None),
        (3, &["wait", STATE, "half", "dies"], None),
        // One that knows no flows, and one that breaks off in place of them.
        (2, &["wait", "\"yours\"", "wait"], None),
        (3, &["wait", "\"yours\"", "wait"], None),
    ] {
        // It stands for the process that answers.
        let mut old = Command::new("sleep").arg("60").spawn().unwrap();
        let offer = format!(
            r#"{{"offer":{{"version":{version},"program":"9","pid":{},"sockets":[]}}}}"#,
            old.id()
        );
        let folder = folder("version: 1\n");
        let path = folder.path().join("handover");
        let answered = answering(&path, move |mut next| {
            say(&mut next, &offer);
            for says in says {
                match *says {
                    "wait" => drop(hear(&mut next)),
                    "half" => next.write_all(b"\0\0\0\x09{\"st").unwrap(),
                    "dies" => old.kill().unwrap(),
                    text => say(&mut next, text),
                }
            }
            drop(next);
            old
        });
        let mut next = Process::spawn(&mut next_at(&folder, &path));
        match ends {
            Some(words) => {
                // Another one answers there by now, or nobody does.
                assert_eq!(next.ends(), Some(75), "{}", next.err.text());
                assert!(next.has_said(words), "{}", next.err.text());
            }
            None => {
                next.until_said("table applied");
                assert!(next.has_said("inherited 0 of 0 sockets"));
                next.signal(Signal::TERM);
                assert_eq!(next.ends(), Some(0));
            }
        }
        let mut old = answered.join().unwrap();
        old.kill().unwrap();
        old.wait().unwrap();
    }
}

#[test]
fn the_number_of_a_process_in_another_pid_namespace_says_nothing_of_its_end() {
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let offer = format!(
        r#"{{"offer":{{"version":3,"program":"9","pid":{},"pid-namespace":1,"sockets":[]}}}}"#,
        other.id()
    );
    let folder = folder("version: 1\n");
    let path = folder.path().join("handover");
    let answered = answering(&path, move |mut next| {
        say(&mut next, &offer);
        hear(&mut next);
        other.kill().unwrap();
        other
    });
    let mut next = Process::spawn(&mut next_at(&folder, &path));
    assert_eq!(next.ends(), Some(75), "{}", next.err.text());
    assert!(next.has_said("has broken off"), "{}", next.err.text());
    answered.join().unwrap().wait().unwrap();
}

#[test]
fn who_waits_at_a_frontend_whose_endpoints_the_next_table_disables_is_served() {
    let place = Place::new();
    let more = fresh_address();
    let [echo, ..] = place.endpoints;
    let with = |state: &str| {
        let text = place.table(&[more]).replace(
            "protocol: tcp, service: t}\nservices",
            "protocol: tcp, service: m}\nservices",
        );
        format!("{text}  - {{name: m, endpoints: [{{address: \"{echo}\", state: {state}}}]}}\n")
    };
    replace(&place.folder, &with("ready"));
    let disabled = folder(&with("disabled"));
    let mut running = place.serving();
    let is_over: Arc<AtomicBool> = Arc::default();
    let visiting: Vec<JoinHandle<usize>> = (0..4)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                let mut served = 0;
                while !is_over.load(Ordering::Relaxed) {
                    match connect(more) {
                        Ok(mut client) => ping(&mut client).unwrap(),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                            continue;
                        }
                    }
                    served += 1;
                }
                served
            })
        })
        .collect();
    for _ in 0..4 {
        for table in [disabled.path(), place.folder.path()] {
            let next = Process::spawn(&mut place.run_with(table, &[]));
            next.until_said("table applied");
            running.until_said("the next process serves");
            let mut before = std::mem::replace(&mut running, next);
            assert_eq!(before.ends(), Some(0));
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for visiting in visiting {
        assert!(visiting.join().unwrap() > 5);
    }
}

#[test]
fn the_next_process_that_is_told_to_end_before_it_may_serve_ends_at_once_and_takes_nothing() {
    let folder = folder("version: 1\n");
    let path = folder.path().join("handover");
    let (ready, is_ready) = std::sync::mpsc::channel();
    let answered = answering(&path, move |mut next| {
        say(
            &mut next,
            r#"{"offer":{"version":2,"program":"9","sockets":[]}}"#,
        );
        assert!(hear(&mut next).starts_with("{\"ready\":"));
        ready.send(()).unwrap();
        assert!(
            matches!(next.read(&mut [0]), Ok(0) | Err(_)),
            "no confirmation"
        );
    });
    let mut next = Process::spawn(&mut next_at(&folder, &path));
    is_ready.recv_timeout(PATIENCE).unwrap();
    next.signal(Signal::TERM);
    assert_eq!(next.ends(), Some(0));
    next.until_said("before it served");
    answered.join().unwrap();
}

#[test]
fn two_that_begin_at_the_same_time_follow_one_another() {
    let place = Place::new();
    let mut first = place.serving();
    let clients = Clients::of(&place);
    let began = std::time::Instant::now();
    let mut both = [(); 2].map(|()| Process::spawn(&mut place.run(&[])));
    both.iter().for_each(|one| one.until_said("table applied"));
    assert_eq!(first.ends(), Some(0));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(25), "{took:?}");
    clients.end_without_failure();
    let serves = place.pid();
    let [last, other] = &mut both;
    let (last, other) = match last.pid().to_string() == serves {
        true => (last, other),
        false => (other, last),
    };
    assert_eq!(other.ends(), Some(0));
    let words = format!("sockets from the process with pid {} ", other.pid());
    assert!(last.has_said(&words), "{}", last.err.text());
}

#[test]
fn files_are_left_alone_until_the_next_process_serves_and_go_where_it_does_not_want_them() {
    let mut place = Place::new();
    let mut first = Process::spawn(&mut place.run(&["--socket-mode", "660"]));
    first.until_answers("/readyz", 200);
    let mode = || fs::metadata(place.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o660);
    let none = tempfile::tempdir().unwrap();
    let ended = to_its_end(&mut place.run_with(none.path(), &[]));
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert_eq!(mode(), 0o660);
    let mut second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    second.until("the mode that it was told", || mode() == 0o600);
    assert_eq!(first.ends(), Some(0));
    // Without --socket, and at another admin address.
    place.admin = format!("127.0.0.1:{}", fresh_admin_port());
    let mut run = command(BALLAST);
    run.args(["run", "--admin", &place.admin, "--table"])
        .arg(place.folder.path())
        .arg("--handover")
        .arg(place.handover());
    let third = Process::spawn(&mut run);
    third.until_said("inherited 9 of 11 sockets");
    assert_eq!(second.ends(), Some(0));
    assert!(!place.socket().exists() && place.handover().exists());
}

#[test]
fn who_waits_at_a_runtime_socket_that_is_given_up_gets_an_answer() {
    let place = Place::new();
    let mut first = place.serving();
    let mut run = command(BALLAST);
    run.args(["run", "--admin", &place.admin, "--table"])
        .arg(place.folder.path())
        .arg("--handover")
        .arg(place.handover());
    let asking: Vec<JoinHandle<usize>> = (0..4)
        .map(|_| {
            let path = place.socket();
            thread::spawn(move || {
                let mut answered = 0;
                while let Ok(mut client) = UnixStream::connect(&path) {
                    client.set_read_timeout(Some(PATIENCE)).unwrap();
                    client.write_all(b"show version\n").unwrap();
                    let mut answer = String::new();
                    client.read_to_string(&mut answer).unwrap();
                    assert!(
                        answer.contains("Ballast") || answer.contains("2.6"),
                        "{answer:?}"
                    );
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    support::pause(Duration::from_millis(200));
    let second = Process::spawn(&mut run);
    second.until_said("table applied");
    for asking in asking {
        assert!(asking.join().unwrap() > 5);
    }
    assert_eq!(first.ends(), Some(0));
}

#[test]
fn an_admin_address_that_overlaps_is_refused_and_the_process_that_runs_goes_on() {
    let mut place = Place::new();
    let mut first = place.serving();
    let (_, port) = place.admin.split_once(':').unwrap();
    place.admin = format!("*:{port}");
    let ended = to_its_end(&mut place.run(&[]));
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("address in use"), "{ended:?}");
    assert!(first.is_running());
    first.until_answers("/readyz", 200);
    ping(&mut connect(place.tcp).unwrap()).unwrap();
}

#[test]
fn systemd_is_told_which_process_is_the_services_now() {
    let place = Place::new();
    let path = place.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut first = Process::spawn(place.run(&["--sandbox"]).env("NOTIFY_SOCKET", &path));
    assert_eq!(next(), "READY=1\n");
    // One of the same service follows it.
    let mut second = Process::spawn(&mut place.run(&["--sandbox"]));
    assert_eq!(next(), format!("MAINPID={}\n", second.pid()));
    assert_eq!(first.ends(), Some(0));
    // One of another service does: this one can be started again in its turn.
    second.signal(Signal::TERM);
    assert_eq!(second.ends(), Some(0));
    let Some(group) = control_group() else {
        return skip("no control group can be made");
    };
    let mut first = Process::spawn(place.run(&[]).env("NOTIFY_SOCKET", &path));
    assert_eq!(next(), "READY=1\n");
    let run = place.run(&[]);
    let mut shell = command("sh");
    shell.arg("-c").arg(format!(
        "echo $$ >{group}/cgroup.procs && exec \"$0\" \"$@\""
    ));
    let mut second = Process::spawn(shell.arg(BALLAST).args(run.get_args()));
    assert_eq!(next(), "STOPPING=1\n");
    assert_eq!(first.ends(), Some(0));
    second.signal(Signal::TERM);
    assert_eq!(second.ends(), Some(0));
    fs::remove_dir(&group).unwrap();
}

/// A control group without a process, where the machine permits one.
fn control_group() -> Option<String> {
    // The second one is that of version 1.
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"];
    let root = roots
        .iter()
        .find(|root| Path::new(root).join("cgroup.procs").exists())?;
    let group = format!("{root}/ballast-test-{}", std::process::id());
    fs::create_dir(&group).ok()?;
    Some(group)
}

const REFUSED: &str = r#"{"refused":"not today"}"#;
