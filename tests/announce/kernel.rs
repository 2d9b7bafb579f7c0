//! What happens to addresses and interfaces beside the announcer, and its file.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::bird;
use crate::hosts::{Place, enter, pause, until, until_within};
use crate::{V4, V6, settle};

/// An interface that goes down keeps its IPv4 addresses: the one that lost them is not to answer when it is up again.
pub(crate) fn down(place: &mut Place) {
    let (one, other) = settle(place);
    place.hosts[one].ip("link set eth0 down");
    until("the other has it", || place.holds(other, V4));
    until("the first one does not", || !place.holds(one, V4));
    place.hosts[one].ip("link set eth0 up");
    until("they see each other again", || {
        place.hosts[one].ack().contains("\"owner\":\"edge")
    });
    pause(Duration::from_secs(2));
    assert_eq!(place.holders(V4).len(), 1);
    assert!(place.client.reaches(V4));
}

/// A cable that is pulled leaves the interface up.
pub(crate) fn carrier(place: &mut Place) {
    let (one, other) = settle(place);
    place.plug(one, false);
    until("the other has both", || {
        place.holds(other, V4) && place.holds(other, V6)
    });
    until("the first one has none", || {
        !place.holds(one, V4) && !place.holds(one, V6)
    });
    until("its ack says why", || {
        place.hosts[one].ack().contains("no interface can carry it")
    });
    place.plug(one, true);
    pause(Duration::from_secs(2));
    assert_eq!(place.holders(V4).len(), 1);
}

pub(crate) fn removed(place: &mut Place) {
    place.start(0);
    until("both are held", || {
        place.holders(V4) == [0] && place.holders(V6) == [0]
    });
    let host = &place.hosts[0];
    host.ip(&format!("address del {V4}/32 dev eth0"));
    host.ip(&format!("address del {V6}/128 dev eth0"));
    until("both are held again", || {
        place.holders(V4) == [0] && place.holders(V6) == [0]
    });
    assert!(place.client.reaches(V4) && place.client.reaches(V6));
}

/// As bridges and bonds get one from another port.
pub(crate) fn another_mac(place: &mut Place) {
    place.start(0);
    until("it is held", || place.holders(V4) == [0]);
    assert!(place.client.reaches(V4));
    // It was announced for the last time.
    pause(Duration::from_millis(5_500));
    let mac = "02:00:00:00:88:01";
    assert_ne!(place.client.neighbour(V4).as_deref(), Some(mac));
    place.hosts[0].ip(&format!("link set eth0 address {mac}"));
    until("the client knows it", || {
        place.client.neighbour(V4).as_deref() == Some(mac)
    });
    assert!(place.client.reaches(V4) && place.holders(V4) == [0]);
}

/// The kernel tells more of changes than a socket holds.
pub(crate) fn routes_change(place: &mut Place) {
    let lines = |verb: &str| -> String {
        let each = 0..20_000;
        let each = each.map(|number| (number / 250 + 1, number % 250));
        each.map(|(high, low)| format!("route {verb} 198.{high}.{low}.0/24 via 10.77.0.9\n"))
            .collect()
    };
    let host = &place.hosts[0];
    fs::write(host.path("routes"), lines("add") + &lines("del")).expect("a file");
    let mut change = host.program("ip");
    change.args(["-batch", "routes"]);
    let changing = thread::spawn(move || (0..4).all(|_| change.status().expect("ip").success()));
    let line = |last| {
        let address = numbered(last);
        format!("- {{address: \"{address}\", mode: l2, nodes: [NODES]}}\n")
    };
    place.start_with(0, &(1..=MANY).map(line).collect::<String>());
    until("all are held while routes change", || {
        let ack = place.hosts[0].ack();
        assert!(!ack.contains("the system refused it"), "{ack}");
        let held = ack.matches("\"state\":\"held\"").count();
        held == usize::from(MANY) && changing.is_finished()
    });
    assert!(changing.join().expect("no panic"), "ip -batch");
}

/// Addresses that are there already are held, and are not this program's to remove.
pub(crate) fn by_hand(place: &mut Place) {
    let host = &place.hosts[0];
    host.ip(&format!("address add {V4}/32 dev eth0"));
    host.ip(&format!("address add {V6}/128 dev eth0 nodad"));
    place.start(0);
    until("both are held", || {
        place.hosts[0].ack().matches("\"state\":\"held\"").count() == 2
    });
    place.hosts[0].signal("TERM");
    until("it ended", || place.hosts[0].has_ended());
    assert!(place.holds(0, V4) && place.holds(0, V6));
}

/// An address of the host itself stays, though it looks as those of the announcer do, and whoever is to hold it.
pub(crate) fn own(place: &mut Place) {
    let host = &place.hosts[0];
    host.ip(&format!("address add {V4}/32 dev eth0 noprefixroute"));
    host.ip("address add 10.77.0.77/32 dev eth0 noprefixroute");
    let both = |place: &Place| place.holds(0, V4) && place.holds(0, "10.77.0.77");
    place.start(1);
    until("the other has the one that is free", || place.holds(1, V6));
    place.start(0);
    until("it is not the owner", || {
        place.hosts[0].ack().matches("\"owner\":\"edge2\"").count() == 2
    });
    pause(Duration::from_secs(2));
    assert!(both(place));
    until("the owner says who has it", || {
        place.hosts[1]
            .ack()
            .contains("edge1 has it and does not give it up")
    });
    place.hosts[0].signal("TERM");
    until("it ended", || place.hosts[0].has_ended());
    assert!(both(place));
}

/// All programs of a host end at once, and its kernel still answers: the addresses go when their time has come. The time of those of
/// a host that lives is renewed, and its connections do not notice.
pub(crate) fn expires(place: &mut Place) {
    let (one, other) = settle(place);
    // One that came a moment later would have its share after 30 s.
    for host in &place.hosts {
        host.write(&format!("{}return: never\n", host.file()));
    }
    let left = |place: &Place, host: usize| -> Option<u32> {
        let shown = place.hosts[host].ip("-o address show dev eth0");
        let line = shown.lines().find(|line| line.contains(V4))?;
        let rest = line.split("valid_lft ").nth(1)?;
        rest.split("sec").next()?.parse().ok()
    };
    assert!(left(place, one).is_some_and(|left| left > 30));
    let mut connection = connect(place, one);
    until("some of its time has passed", || {
        left(place, one).is_some_and(|left| left < 50)
    });
    let mut least = 60;
    let long = Duration::from_secs(50);
    until_within(long, "its time is renewed", || {
        let now = left(place, one).unwrap_or(0);
        assert!(now > 25, "{now}");
        least = least.min(now);
        now > least + 15
    });
    connection.write_all(b"x").expect("an open connection");
    connection.read_exact(&mut [0]).expect("an echo");
    place.hosts[one].kill();
    place.hosts[one].end_data_plane();
    let at = Instant::now();
    pause(Duration::from_secs(20));
    assert_eq!(place.holders(V4), [one], "an upgrade moves nothing");
    until_within(long, "the other has both", || {
        place.holders(V4) == [other] && place.holders(V6) == [other]
    });
    println!("taken {:?} after the end of all programs", at.elapsed());
    until("the client reaches it", || place.client.reaches(V4));
}

/// A connection of the client to a host, by the address.
fn connect(place: &Place, host: usize) -> TcpStream {
    let (server, client) = (place.hosts[host].holder(), place.client.holder());
    let listener = thread::spawn(move || {
        enter(server);
        TcpListener::bind("0.0.0.0:81").expect("a port")
    });
    let listener = listener.join().expect("no panic");
    let stream = thread::spawn(move || {
        enter(client);
        TcpStream::connect((V4, 81)).expect("a connection")
    });
    let stream = stream.join().expect("no panic");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a socket");
    let (mut accepted, _) = listener.accept().expect("a client");
    thread::spawn(move || {
        let mut byte = [0];
        while accepted.read_exact(&mut byte).is_ok() && accepted.write_all(&byte).is_ok() {}
    });
    stream
}

/// What an earlier process left and no file has any more is removed; the rest stays.
pub(crate) fn left(place: &mut Place) {
    place.start(0);
    until("both are held", || {
        place.holders(V4) == [0] && place.holders(V6) == [0]
    });
    let host = &mut place.hosts[0];
    host.kill();
    let good = host.file();
    let lines = good.lines().filter(|line| !line.contains(V6));
    let text = lines.collect::<Vec<_>>().join("\n");
    // As a kernel before 5.18 has it.
    let untagged = "10.77.0.101";
    let metric = bird::OURS;
    host.ip(&format!(
        "address add {untagged}/32 dev eth0 noprefixroute metric {metric}"
    ));
    host.announce(&text);
    until("those that no file has are gone", || {
        assert_eq!(place.holders(V4), [0]);
        !place.holds(0, V6) && !place.holds(0, untagged)
    });
}

/// The kernel puts an IPv6 address on the interface, and the route for what comes to it a moment later. Who hears the announcement and
/// connects at once is answered.
pub(crate) fn announced_when_served(place: &mut Place) {
    let line = |last| {
        format!(
            "- {{address: \"{}\", mode: l2, nodes: [NODES]}}\n",
            numbered(last)
        )
    };
    let addresses: String = (1..=MANY).map(line).collect();
    let client = place.client.holder();
    let clients = thread::spawn(move || connect_when_announced(client));
    place.start_with(0, &addresses);
    let times = clients.join().expect("no panic");
    // A SYN that is dropped is sent again after a second.
    let limit = Duration::from_millis(900);
    let slow = times.iter().filter(|took| **took > limit);
    assert_eq!(slow.count(), 0, "{times:?}");
}

/// Connects to each of the addresses when it is announced. Returns how long that took.
fn connect_when_announced(client: u32) -> Vec<Duration> {
    enter(client);
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6));
    let socket = UdpSocket::from(socket.expect("the rights of root"));
    let patience = Some(Duration::from_secs(10));
    socket.set_read_timeout(patience).expect("a socket");
    let mut addresses: BTreeSet<Ipv6Addr> = (1..=MANY).map(numbered).collect();
    let mut connections = Vec::new();
    while !addresses.is_empty() {
        let mut message = [0; 64];
        socket.recv(&mut message).expect("an announcement");
        let target: [u8; 16] = message[8..24].try_into().expect("16 bytes");
        let target = Ipv6Addr::from(target);
        if message[0] == ADVERTISEMENT && addresses.remove(&target) {
            connections.push(thread::spawn(move || {
                let begun = Instant::now();
                TcpStream::connect((target, 80)).expect("a connection");
                begun.elapsed()
            }));
        }
    }
    let times = connections.into_iter().map(thread::JoinHandle::join);
    times.map(|took| took.expect("no panic")).collect()
}

/// An address of the network.
fn numbered(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 1, last)
}

/// The only node keeps an address that is not ready until the data plane ends.
pub(crate) fn alone(place: &mut Place) {
    place.start(0);
    until("it is held", || place.holders(V4) == [0]);
    let host = &place.hosts[0];
    let good = host.file();
    let digest = |ack: String| {
        ack.split("sha256:")
            .nth(1)
            .and_then(|rest| rest.get(..64).map(str::to_owned))
    };
    let before = digest(host.ack());
    host.write(&good.replace("ready: true", "ready: false"));
    until("the file is in force", || digest(host.ack()) != before);
    pause(Duration::from_millis(500));
    assert_eq!(place.holders(V4), [0]);
    place.hosts[0].end_data_plane();
    until("it is gone", || place.holders(V4).is_empty());
}

/// A file with a socket that cannot be opened is refused, and the announcer goes on.
pub(crate) fn bad_bind(place: &mut Place) {
    place.start(0);
    until("it is held", || place.holders(V4) == [0]);
    let host = &mut place.hosts[0];
    let good = host.file();
    for bind in ["192.0.2.77:7956", "192.0.2.77:7957"] {
        host.write(&good.replace("0.0.0.0:7956", bind));
        until("it is refused", || host.ack().contains("cannot be bound"));
        host.write(&good);
        until("the good one is taken", || {
            !host.ack().contains("cannot be bound")
        });
    }
    // Another process has the socket that is asked for: on the port of the present one, of which one is an address of all interfaces.
    host.write(&good.replace("0.0.0.0:7956", "10.77.0.1:7956"));
    let is_bound = |at: &str| {
        let shown = host.program("ss").arg("-Hlnu").output().expect("ss");
        String::from_utf8_lossy(&shown.stdout).contains(at)
    };
    until("the socket is another one", || is_bound("10.77.0.1:7956"));
    let holder = host.holder();
    let other = thread::spawn(move || {
        enter(holder);
        UdpSocket::bind("127.0.0.1:7956").expect("a socket")
    });
    let other = other.join().expect("no panic");
    for bind in ["127.0.0.1:7956", "0.0.0.0:7956"] {
        host.write(&good.replace("0.0.0.0:7956", bind));
        until("it is refused", || host.ack().contains("cannot be bound"));
        assert!(is_bound("10.77.0.1:7956"));
    }
    drop(other);
    until("it is taken when the other one has ended", || {
        is_bound("0.0.0.0:7956") && !host.ack().contains("cannot be bound")
    });
    assert!(!host.has_ended());
    assert_eq!(place.holders(V4), [0]);
}

/// A disk that stalls moves no address, and does not keep the announcer from its end. An ack that was deleted is written again.
pub(crate) fn stalled(place: &mut Place) {
    let (one, _) = settle(place);
    fs::remove_file(place.hosts[one].path("announce-ack.json")).expect("an ack");
    until("the ack is there again", || {
        place.hosts[one].ack().contains("held")
    });
    // Who reads a pipe waits for one who writes.
    let pipe = place.hosts[one].path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .expect("mkfifo")
            .success()
    );
    fs::rename(&pipe, place.hosts[one].path("announce.yaml")).expect("a pipe");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(place.holders(V4), [one]);
        pause(Duration::from_millis(20));
    }
    let other = &place.hosts[1 - one];
    assert!(
        other
            .ack()
            .contains(&format!("\"owner\":\"edge{}\"", one + 1)),
        "{}",
        other.ack()
    );
    place.hosts[one].signal("TERM");
    until("it ended", || place.hosts[one].has_ended());
    until("the other has it", || place.holders(V4) == [1 - one]);
}

/// One that names nobody is found by those that name it.
pub(crate) fn no_peers(place: &mut Place) {
    place.start(0);
    until("it is held", || place.holders(V4) == [0]);
    let key = fs::read(place.hosts[0].path("members.key")).expect("a key");
    let text = place.hosts[0].file().replace("node: edge1", "node: edge2");
    let text = text.replace("peers: [\"10.77.0.2:7956\"], ", "");
    let text = text.replace("data-plane: {socket: ballast.sock}\n", "");
    let other = &mut place.hosts[1];
    fs::write(other.path("members.key"), key).expect("a key");
    other.announce(&text);
    // It can hold everything, and leaves it to the one that has it.
    until("it knows the owner", || {
        place.hosts[1].ack().matches("\"owner\":\"edge1\"").count() == 2
    });
    place.hosts[0].power_off();
    until("it takes over", || place.holds(1, V4));
}

/// Of ICMPv6: a neighbour advertisement.
const ADVERTISEMENT: u8 = 136;
const MANY: u16 = 60;
