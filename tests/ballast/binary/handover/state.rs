//! What goes along with the sockets: changes by hand, health, affinity, counters, the keys of session tickets, certificates.

use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use super::*;

/// A server that says its name to each client.
fn named(name: &'static [u8]) -> SocketAddr {
    server(move |mut client| {
        client.write_all(name).ok();
        // Until the client goes.
        client.read_exact(&mut [0]).ok();
    })
}

/// Which server a client gets.
fn who(address: SocketAddr) -> String {
    let mut name = [0; 1];
    let mut client = connect(address).unwrap();
    client.read_exact(&mut name).unwrap();
    String::from_utf8_lossy(&name).into_owned()
}

/// A column of a row of the statistics.
fn column(place: &Place, row: &str, column: &str) -> String {
    let shown = place.ask("show stat");
    let mut lines = shown.lines();
    let head = lines.next().unwrap().trim_start_matches("# ");
    let at = head.split(',').position(|name| name == column).unwrap();
    let row = lines.find(|line| line.starts_with(&format!("{row},")));
    let row = row.unwrap_or_else(|| panic!("no such row: {shown}"));
    row.split(',').nth(at).unwrap().into()
}

/// The session of a client that has asked once by https.
fn visit_by_tls(place: &Place, config: &Arc<ClientConfig>) -> ClientConnection {
    let name = "web.test".try_into().unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut client = StreamOwned::new(session, connect(place.at(2)).unwrap());
    ask(&mut client).unwrap();
    client.conn
}

fn follows(first: &Process, place: &Place) -> Process {
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    first.until_said("the next process serves");
    assert_eq!(place.pid(), second.pid().to_string());
    second
}

#[test]
fn changes_by_hand_and_counters_go_along() {
    let place = Place::new();
    let more = fresh_address();
    replace(&place.folder, &place.table(&[more]));
    let mut first = place.serving();
    let server = format!("t/{}", place.endpoints[0]);
    for command in [
        format!("set weight {server} 7"),
        format!("set maxconn server {server} 9"),
        "disable frontend m0".to_owned(),
        format!("set server w/{} state drain", place.endpoints[1]),
    ] {
        assert_eq!(place.ask(&command).trim(), "", "{command}");
    }
    assert!(connect(more).is_err());
    for _ in 0..5 {
        ping(&mut connect(place.tcp).unwrap()).unwrap();
    }
    let row = server.replace('/', ",");
    let drains = format!("w,{}", place.endpoints[1]);
    first.until("all are counted", || {
        column(&place, &row, "stot") == "5" && column(&place, "t,FRONTEND", "scur") == "0"
    });
    let bytes = column(&place, "t,FRONTEND", "bin");
    let mut second = follows(&first, &place);
    for which in ["second", "third"] {
        assert_eq!(column(&place, &row, "weight"), "7", "{which}");
        assert_eq!(column(&place, &row, "slim"), "9", "{which}");
        assert!(
            column(&place, &drains, "status").contains("DRAIN"),
            "{which}"
        );
        assert!(connect(more).is_err(), "{which}");
        assert_eq!(column(&place, &row, "stot"), "5", "{which}");
        assert_eq!(column(&place, "t,FRONTEND", "bin"), bytes, "{which}");
        assert_eq!(column(&place, "t,FRONTEND", "scur"), "0", "{which}");
        let rate: u32 = column(&place, "t,FRONTEND", "rate_max").parse().unwrap();
        assert!(
            rate < 5,
            "{rate}: what another process counted is no rate of this one"
        );
        if which == "second" {
            assert_eq!(first.ends(), Some(0));
            let third = follows(&second, &place);
            first = std::mem::replace(&mut second, third);
        }
    }
    // They can be taken back.
    assert_eq!(place.ask("enable frontend m0").trim(), "");
    second.until("it listens", || connect(more).is_ok());
}

#[test]
fn a_socket_that_is_open_by_hand_alone_is_inherited() {
    let place = Place::new();
    let more = fresh_address();
    let [tcp, ..] = place.endpoints;
    let text = place.table(&[more]).replace(
        "protocol: tcp, service: t}\nservices:",
        "protocol: tcp, service: o}\nservices:",
    ) + &format!(
        "  - {{name: o, endpoints: [{{name: x, address: \"{tcp}\", state: disabled}}]}}\n"
    );
    replace(&place.folder, &text);
    let mut first = place.serving();
    assert!(connect(more).is_err());
    assert_eq!(place.ask("enable server o/x").trim(), "");
    first.until("it listens", || connect(more).is_ok());
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                ping(&mut connect(more).unwrap()).unwrap();
            }
        })
    };
    let second = follows(&first, &place);
    assert!(
        second.has_said("inherited 13 of 13 sockets"),
        "{}",
        second.err.text()
    );
    is_over.store(true, Ordering::Relaxed);
    asking.join().unwrap();
    assert_eq!(first.ends(), Some(0));
}

#[test]
fn health_that_was_set_by_hand_goes_along_with_checks_and_without() {
    let place = Place::new();
    let first = place.serving();
    let server = format!("t/{}", place.endpoints[0]);
    let words = format!("set server {server} health down");
    assert_eq!(place.ask(&words).trim(), "");
    let row = server.replace('/', ",");
    let before = column(&place, &row, "status");
    assert!(before.starts_with("DOWN"), "{before}");
    let _second = follows(&first, &place);
    assert_eq!(column(&place, &row, "status"), before);
}

#[test]
fn an_endpoint_that_is_down_is_down_from_the_start() {
    let place = Place::new();
    let table = |interval: &str| {
        let [echo, ..] = place.endpoints;
        format!(
            "version: 1\nfrontends: [{{name: d, bind: [\"{}\"], protocol: tcp, service: d}}]\nservices:\n  - {{name: d, health: {{mode: tcp, interval: {interval}, rise: 2, fall: 3}}, endpoints: [{{name: gone, address: \"{}\"}}, {{name: there, address: \"{echo}\"}}]}}\n",
            place.tcp,
            fresh_address(),
        )
    };
    let often = table("200ms");
    replace(&place.folder, &often);
    let first = place.serving();
    first.until("it is down", || {
        column(&place, "d,gone", "status").starts_with("DOWN")
    });
    // From now on no check is due for long.
    replace(&place.folder, &often.replace("200ms", "1h"));
    first.until_said("took_ms");
    first.until("both tables", || first.err.times("table applied") == 2);
    let second = follows(&first, &place);
    assert!(column(&place, "d,gone", "status").starts_with("DOWN"));
    assert!(column(&place, "d,there", "status").starts_with("UP"));
    assert_eq!(column(&place, "d,gone", "chkdown"), "1");
    for _ in 0..4 {
        ping(&mut connect(place.tcp).unwrap()).unwrap();
    }
    assert_eq!(column(&place, "d,gone", "econ"), "0");
    assert!(!second.has_said("DOWN"), "{}", second.err.text());
}

#[test]
fn a_client_comes_back_to_its_endpoint_and_resumes_its_session() {
    let place = Place::new();
    let text = format!(
        "{}  - {{name: c, affinity: {{client-ip: 10m}}, endpoints: [{{name: x, address: \"{}\"}}, {{name: y, address: \"{}\"}}]}}\n",
        place.table(&[]).replace(
            "name: t, bind",
            &format!(
                "name: c, bind: [\"{}\"], protocol: tcp, service: c}}\n  - {{name: t, bind",
                place.at(3)
            )
        ),
        named(b"x"),
        named(b"y"),
    );
    replace(&place.folder, &text);
    let first = place.serving();
    // The client has affinity to that endpoint which it would not get at first.
    let client = place.at(3);
    let at_first = who(client);
    assert_eq!(
        place.ask(&format!("disable server c/{at_first}")).trim(),
        ""
    );
    let then = who(client);
    assert_ne!(then, at_first);
    assert_eq!(place.ask(&format!("enable server c/{at_first}")).trim(), "");
    assert_eq!(who(client), then);

    let config = ClientConfig::builder()
        .with_root_certificates(place.papers.roots())
        .with_no_client_auth();
    let config = Arc::new(config);
    let visit = || {
        let session = visit_by_tls(&place, &config);
        session.handshake_kind()
    };
    assert_eq!(visit(), Some(HandshakeKind::Full));
    assert_eq!(visit(), Some(HandshakeKind::Resumed));
    let _second = follows(&first, &place);
    assert_eq!(visit(), Some(HandshakeKind::Resumed));
    assert_eq!(who(client), then);
}

#[test]
fn a_certificate_whose_files_do_not_fit_any_more_is_served_by_the_next_process_too() {
    let place = Place::new();
    let first = place.serving();
    let mut config = ClientConfig::builder()
        .with_root_certificates(place.papers.roots())
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    let shown = || {
        let session = visit_by_tls(&place, &config);
        session.peer_certificates().unwrap()[0].to_vec()
    };
    let good = place.papers.pair("web").0[0].to_vec();
    assert_eq!(shown(), good);
    // The certificate is new, the key is not.
    place.papers.issue("next", &["web.test"]);
    fs::copy(place.papers.path("next.crt"), place.papers.path("web.crt")).unwrap();
    replace(&place.folder, &format!("{}# again\n", place.table(&[])));
    first.until_said("what was there before is used");
    assert_eq!(shown(), good);
    let second = follows(&first, &place);
    assert_eq!(shown(), good);
    let third = follows(&second, &place);
    assert_eq!(shown(), good);
    assert!(
        third.has_said("what was there before is used"),
        "{}",
        third.err.text()
    );
    // The key comes, too.
    fs::copy(place.papers.path("next.key"), place.papers.path("web.key")).unwrap();
    let next = place.papers.pair("next").0[0].to_vec();
    replace(&place.folder, &format!("{}# and again\n", place.table(&[])));
    third.until("the new one", || shown() == next);
}

#[test]
fn a_process_that_begins_between_the_writes_of_a_certificate_and_its_key_serves_the_one_before() {
    let place = Place::new();
    let first = place.serving();
    let mut config = ClientConfig::builder()
        .with_root_certificates(place.papers.roots())
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    let shown = || {
        let session = visit_by_tls(&place, &config);
        session.peer_certificates().unwrap()[0].to_vec()
    };
    let good = shown();
    place.papers.issue("next", &["web.test"]);
    // The running process does not look at once: no file in the folder of the table changes.
    fs::copy(place.papers.path("next.crt"), place.papers.path("web.crt")).unwrap();
    let second = follows(&first, &place);
    assert_eq!(shown(), good);
    fs::copy(place.papers.path("next.key"), place.papers.path("web.key")).unwrap();
    let next = place.papers.pair("next").0[0].to_vec();
    second.until("the new one", || shown() == next);
}

/// What the first process tells one that asks, and says this when it is ready.
fn told(place: &Place, ready: &str) -> String {
    let mut next = UnixStream::connect(place.handover()).unwrap();
    say(&mut next, REQUEST);
    let offer = hear(&mut next);
    assert!(offer.starts_with("{\"offer\":"), "{offer}");
    let _sockets = receive_descriptors(&next);
    say(&mut next, ready);
    let mut told = String::new();
    loop {
        match hear(&mut next) {
            part if part.starts_with("{\"state\":") => told += &part,
            last => {
                assert_eq!(last, "\"yours\"");
                return told;
            }
        }
    }
}

/// One of the version before cannot say which certificates it wants.
#[test]
fn a_certificate_whose_files_do_not_fit_goes_to_a_process_that_cannot_ask_for_it() {
    let place = Place::new();
    let mut first = place.serving();
    let there = "\"certificates\":[{\"cert\":";
    assert!(!told(&place, READY).contains(there), "its files fit");
    place.papers.issue("next", &["web.test"]);
    fs::copy(place.papers.path("next.crt"), place.papers.path("web.crt")).unwrap();
    replace(&place.folder, &format!("{}# again\n", place.table(&[])));
    first.until_said("what was there before is used");
    let path = place.papers.named("web.crt");
    let its = format!("{there}\"{path}\"");
    for (ready, is_told) in [
        (READY, true),
        (r#"{"ready":{"certificates":[{"cert":"/none"}]}}"#, false),
    ] {
        assert_eq!(told(&place, ready).contains(&its), is_told, "{ready}");
    }
    assert!(first.is_running());
}

#[test]
fn keys_of_tickets_whose_file_became_bad_are_those_of_the_next_process_too() {
    let place = Place::new();
    let keys = |letters: [&str; 3]| letters.map(|four| four.repeat(16)).join("\n");
    place
        .papers
        .write("tickets", keys(["YWFh", "YmJi", "Y2Nj"]).as_bytes());
    let head = format!(
        "version: 1\nticket-keys: {}\n",
        place.papers.named("tickets")
    );
    let table = place.table(&[]).replacen("version: 1\n", &head, 1);
    replace(&place.folder, &table);
    let first = place.serving();
    let config = ClientConfig::builder()
        .with_root_certificates(place.papers.roots())
        .with_no_client_auth();
    let config = Arc::new(config);
    let visit = || visit_by_tls(&place, &config).handshake_kind();
    assert_eq!(visit(), Some(HandshakeKind::Full));
    assert_eq!(visit(), Some(HandshakeKind::Resumed));
    assert!(!told(&place, READY).contains("\"tickets\":"));
    place.papers.write("tickets", b"garbage");
    let second = follows(&first, &place);
    assert_eq!(visit(), Some(HandshakeKind::Resumed));
    let third = follows(&second, &place);
    assert_eq!(visit(), Some(HandshakeKind::Resumed));
    // Those of the file, as soon as it is mended.
    place
        .papers
        .write("tickets", keys(["eHh4", "eXl5", "enp6"]).as_bytes());
    third.until("other keys", || visit() == Some(HandshakeKind::Full));
}
