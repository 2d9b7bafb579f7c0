//! UDP flows go over with their sockets: neither the client nor the endpoint notices.

use std::collections::BTreeMap;

use super::*;
use crate::process::limited;

/// An endpoint that answers each datagram with its own port, that of the flow's socket, and what was sent.
fn witness() -> SocketAddr {
    let socket = UdpSocket::bind(fresh_address()).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((length, from)) = socket.recv_from(&mut datagram) {
            let said = String::from_utf8_lossy(&datagram[..length]).into_owned();
            let answer = format!("{address} {from} {said}");
            socket.send_to(answer.as_bytes(), from).ok();
        }
    });
    address
}

/// Clients that each have a flow, and ask in turn by growing numbers.
pub(super) struct Flows {
    clients: Vec<UdpSocket>,
    /// What each client hears before its number.
    heard: BTreeMap<usize, String>,
    asked: usize,
}

impl Flows {
    pub(super) fn of(address: SocketAddr, count: usize) -> Self {
        let client = |_| {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.connect(address).unwrap();
            client
        };
        Self {
            clients: (0..count).map(client).collect(),
            heard: BTreeMap::new(),
            asked: 0,
        }
    }

    /// Every client asks once, and hears exactly one answer, from where it was answered before.
    pub(super) fn ask(&mut self) {
        self.asked += 1;
        let number = self.asked;
        for client in &self.clients {
            client.send(format!("#{number}").as_bytes()).unwrap();
        }
        for (index, client) in self.clients.iter().enumerate() {
            let mut bytes = [0; 128];
            let length = client.recv(&mut bytes).unwrap_or_else(|error| {
                panic!("client {index} has no answer to #{number}: {error}")
            });
            let answer = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let (from, said) = answer.split_once(" #").unwrap();
            assert_eq!(said, number.to_string(), "client {index}: {answer}");
            let before = self.heard.entry(index).or_insert_with(|| from.to_owned());
            assert_eq!(before, from, "client {index} at #{number}");
        }
    }

    /// They ask until the test says that it is over. Returns how often.
    pub(super) fn begin(mut self, is_over: &Arc<AtomicBool>) -> JoinHandle<usize> {
        let is_over = Arc::clone(is_over);
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                self.ask();
            }
            self.ask();
            self.asked
        })
    }
}

/// A place whose UDP service has two endpoints.
pub(super) fn place() -> Place {
    let place = Place::new();
    let [.., echo] = place.endpoints;
    let one = format!("endpoints: [{{address: \"{echo}\"}}]");
    let two = format!(
        "endpoints: [{{address: \"{}\"}}, {{address: \"{}\"}}]",
        witness(),
        witness()
    );
    replace(&place.folder, &place.table(&[]).replace(&one, &two));
    place
}

#[test]
fn no_datagram_is_lost_and_no_flow_moves_during_hand_overs_to_any_number_of_workers() {
    let place = place();
    let run = |threads: &str| Process::spawn(&mut place.run(&["--threads", threads]));
    let mut running = run("2");
    running.until_answers("/readyz", 200);
    let is_over = Arc::default();
    let mut flows = Flows::of(place.tcp, 150);
    flows.ask();
    let asking = flows.begin(&is_over);
    for threads in ["2", "2", "2", "4", "1", "3", "2", "2"] {
        let next = run(threads);
        next.until_said("UDP flows go on in this process");
        assert!(
            next.has_said("150 of 150 UDP flows go on"),
            "{}",
            next.err.text()
        );
        running.until_said("the next process serves");
        let mut before = std::mem::replace(&mut running, next);
        assert_eq!(before.ends(), Some(0));
        assert_eq!(before.err.times("not all UDP flows"), 0);
    }
    is_over.store(true, Ordering::Relaxed);
    let asked = asking.join().unwrap();
    println!("{asked} datagrams of each of 150 clients");
    assert!(asked > 10, "{asked}");
    // They count as the flows of this process, and end in it.
    let rows = place.ask("show stat");
    let row = rows.lines().find(|line| line.starts_with("u,FRONTEND,"));
    let current = row.and_then(|row| row.split(',').nth(4));
    assert_eq!(current, Some("150"), "{rows}");
}

#[test]
fn flows_of_what_the_next_table_does_not_have_begin_anew() {
    let place = place();
    let mut first = place.serving();
    let mut flows = Flows::of(place.tcp, 20);
    flows.ask();
    // Another service of another name, with one endpoint.
    let text = place
        .table(&[])
        .replace("service: u}", "service: u2}")
        .replace("{name: u, endpoints", "{name: u2, endpoints");
    let [.., echo] = place.endpoints;
    let next = folder(&text.replace(&echo.to_string(), &witness().to_string()));
    let second = Process::spawn(&mut place.run_with(next.path(), &[]));
    second.until_said("0 of 20 UDP flows go on in this process");
    flows.heard.clear();
    flows.ask();
    flows.ask();
    assert_eq!(first.ends(), Some(0));
}

#[test]
fn where_there_is_no_room_for_all_flows_those_go_on_that_were_idle_for_the_shortest_time() {
    let place = place();
    let first = Process::spawn(&mut place.run(&["--threads", "1"]));
    first.until_answers("/readyz", 200);
    let mut flows = Flows::of(place.tcp, 120);
    flows.ask();
    support::pause(Duration::from_millis(300));
    // The others are clients no more.
    flows.clients.truncate(80);
    flows.ask();
    let run = place.run(&["--threads", "1"]);
    let args: Vec<&str> = run.get_args().map(|arg| arg.to_str().unwrap()).collect();
    // Half of the descriptors are for flows.
    let second = Process::spawn(&mut limited("ulimit -n 200", &args));
    second.until_said("100 of 120 UDP flows go on in this process");
    flows.ask();
    flows.ask();
}

#[test]
fn a_header_and_the_limits_of_a_frontend_go_along() {
    let place = place();
    let text = fs::read_to_string(place.folder.path().join("table.yaml")).unwrap();
    let text = text
        .replace(
            "protocol: udp, service: u}",
            "protocol: udp, service: u, max-connections: 20}",
        )
        .replace("{name: u, endpoints", "{name: u, send-proxy: v2, endpoints");
    replace(&place.folder, &text);
    let first = place.serving();
    let clients: Vec<UdpSocket> = Flows::of(place.tcp, 20).clients;
    let ask = |words: &str| {
        for client in &clients {
            client.send(words.as_bytes()).unwrap();
        }
        let hear = |client: &UdpSocket| {
            let mut bytes = [0; 256];
            let length = client.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        clients.iter().map(hear).collect::<Vec<_>>()
    };
    let before = ask("x");
    assert!(before[0].contains("\r\n\r\n\0\r\nQUIT\n"), "{before:?}");
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("20 of 20 UDP flows go on in this process");
    assert_eq!(ask("x"), before);
    // There is room for none more.
    let other = Flows::of(place.tcp, 1).clients.remove(0);
    other
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    other.send(b"x").unwrap();
    assert!(other.recv(&mut [0; 64]).is_err());
    first.until_said("the next process serves");
}

#[test]
fn a_process_one_version_apart_or_one_that_goes_leaves_no_harm() {
    let place = place();
    let mut flows = Flows::of(place.tcp, 20);
    for (version, is_told) in [(2, false), (3, true)] {
        let mut first = place.serving();
        flows.heard.clear();
        flows.ask();
        let request = format!(r#"{{"request":{{"version":{version},"oldest":2,"program":"9"}}}}"#);
        let mut asking = UnixStream::connect(place.handover()).unwrap();
        say(&mut asking, &request);
        let offer = hear(&mut asking);
        assert!(offer.contains(&format!("\"version\":{version}")), "{offer}");
        let descriptors = receive_descriptors(&asking);
        say(&mut asking, r#"{"ready":{}}"#);
        while hear(&mut asking) != "\"yours\"" {}
        say(&mut asking, "\"mine\"");
        if is_told {
            assert!(hear(&mut asking).starts_with("{\"flows\":[{\"socket\":"));
        }
        drop((asking, descriptors));
        assert_eq!(first.ends(), Some(0));
    }
}

#[test]
fn an_address_that_the_next_process_closes_and_opens_again_is_its_alone() {
    let place = place();
    let run = || Process::spawn(&mut place.run(&["--threads", "2"]));
    let mut first = run();
    first.until_answers("/readyz", 200);
    // As long as it has this client, it does not end.
    let mut lasting = connect(place.tcp).unwrap();
    ping(&mut lasting).unwrap();
    let second = run();
    second.until_said("table applied");
    first.until_said("no more clients are accepted");
    let text = fs::read_to_string(place.folder.path().join("table.yaml")).unwrap();
    let without = text.lines().filter(|line| !line.contains("name: u, bind"));
    let without: Vec<_> = without.collect();
    for (times, text) in [(2, &without.join("\n")), (3, &text)] {
        replace(&place.folder, text);
        second.until("the table", || second.err.times("table applied") == times);
    }
    Flows::of(place.tcp, 40).ask();
    assert!(first.is_running());
    ping(&mut lasting).unwrap();
    drop(lasting);
    assert_eq!(first.ends(), Some(0));
}

#[test]
fn what_the_kernel_dropped_is_counted_once() {
    let place = place();
    // By one socket, so that every datagram says what was dropped there.
    let run = || Process::spawn(&mut place.run(&["--threads", "1"]));
    let first = run();
    first.until_answers("/readyz", 200);
    let drops = || -> u64 {
        let (_, text) = get(place.admin.parse().unwrap(), "/metrics").unwrap();
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("ballast_udp_kernel_drops_total{"));
        let (_, count) = line.unwrap().rsplit_once(' ').unwrap();
        count.parse().unwrap()
    };
    let mut flows = Flows::of(place.tcp, 1);
    flows.ask();
    assert_eq!(drops(), 0);
    first.signal(Signal::STOP);
    let flood = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for _ in 0..FLOOD {
        flood.send_to(&[0; 1400], place.tcp).unwrap();
    }
    first.signal(Signal::CONT);
    first.until("drops", || {
        // A datagram that arrives says how many did not.
        flood.send_to(b"x", place.tcp).unwrap();
        drops() > 0
    });
    flows.ask();
    let before = drops();
    let second = run();
    second.until_said("UDP flows go on in this process");
    flows.ask();
    assert_eq!(drops(), before);
}

/// Datagrams of 1400 bytes, more than any socket's buffer has room for.
const FLOOD: usize = 40_000;
