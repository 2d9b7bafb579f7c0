//! What routers learn from `ballast-controller announce`, by two BIRDs: that of the host, and the router itself.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::figures;
use crate::hosts::{Host, Place, is_missing, pause, until};

/// A running BIRD, with its socket in the folder of its host.
pub(crate) struct Bird(Child);

impl Bird {
    pub(crate) fn start(host: &Host) -> Self {
        let mut command = host.program(&bird());
        command.args(["-R", "-f", "-c", "bird.conf", "-s", "bird.ctl"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.expect("bird"))
    }

    /// Freezes it, or lets it go on.
    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let done = Command::new("kill").args(["-s", name, &id]).status();
        assert!(done.expect("kill").success());
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A router and the first host, each with its BIRD.
struct Session {
    _router: Bird,
    own: Bird,
}

impl Session {
    /// Starts both, and the announcer of the host. `None`: BIRD is not installed, which is an error in CI.
    fn start(place: &mut Place) -> Option<Self> {
        if is_missing(Command::new(bird()).arg("--version"), "bird2") {
            return None;
        }
        fs::write(place.client.path("bird.conf"), ROUTER).expect("a file");
        let router = Bird::start(&place.client);
        let host = &mut place.hosts[0];
        host.announce(FILE);
        until("BIRD has a configuration", || {
            host.path("bird.conf").exists()
        });
        Some(Self {
            _router: router,
            own: Bird::start(host),
        })
    }
}

/// What the router says to a command of birdc.
fn shown(router: &Host, words: &str) -> String {
    let mut command = router.program(&format!("{}c", bird()));
    command.args(["-s", "bird.ctl"]).args(words.split(' '));
    let output = command.output().expect("birdc");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The state of an address in the ack of a host.
fn state(host: &Host, address: &str) -> Option<String> {
    let ack = host.ack();
    let status = ack
        .split(&format!("{{\"address\":\"{address}\",\"state\":\""))
        .nth(1)?;
    Some(status.split('"').next()?.to_owned())
}

/// Whether the address is on `lo`, with this length.
fn is_on_lo(host: &Host, address: &str) -> bool {
    let shown = host.ip("-o address show dev lo");
    shown.contains(&format!(" {address} "))
}

pub(crate) fn routes(place: &mut Place) {
    let Some(_session) = Session::start(place) else {
        return;
    };
    let shown = |words: &str| shown(&place.client, words);
    let knows = |address: &str| shown("show route").contains(&format!("{address}/32"));
    until("the router knows both", || {
        knows("198.51.100.7") && knows("198.51.100.8")
    });
    let is_on_lo = |host: &Host, address: &str| is_on_lo(host, &format!("{address}/32"));
    assert!(is_on_lo(&place.hosts[0], "198.51.100.7") && is_on_lo(&place.hosts[0], "198.51.100.8"));
    let all = shown("show route all");
    assert!(
        all.contains("(64512,7)") && all.contains("(64512, 1, 2)"),
        "{all}"
    );
    until("BFD is up", || shown("show bfd sessions").contains(" Up "));
    // One that cannot be served any more is withdrawn, and the session stays.
    let host = &mut place.hosts[0];
    host.write(&FILE.replace("ready: true", "ready: false"));
    until("one is withdrawn", || !knows("198.51.100.7"));
    assert!(knows("198.51.100.8"));
    until("it leaves lo", || !is_on_lo(host, "198.51.100.7"));
    assert!(is_on_lo(host, "198.51.100.8"));
    host.write(FILE);
    until("it is back", || knows("198.51.100.7"));
    // A start of the announcer withdraws nothing.
    let file = FILE.replace("bgp:\n", "data-plane: {socket: ballast.sock}\nbgp:\n");
    host.begin_data_plane();
    host.write(&file);
    until("it looks at the data plane", || host.ack().contains("held"));
    until("the router knows both", || {
        knows("198.51.100.7") && knows("198.51.100.8")
    });
    let client = &place.client;
    client.ip("route add 198.51.100.7/32 via 10.77.0.1");
    assert!(client.reaches("198.51.100.7"), "the kernel takes it in");
    host.kill();
    host.announce(&file);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(knows("198.51.100.7") && knows("198.51.100.8"));
        let config = fs::read_to_string(host.path("bird.conf")).expect("a file");
        assert!(config.contains("198.51.100.7"), "{config}");
        pause(Duration::from_millis(5));
    }
    // Before the announcer ends, the router knows that nothing is served any more.
    host.signal("TERM");
    until("it ended", || host.has_ended());
    until("all is withdrawn", || {
        !knows("198.51.100.7") && !knows("198.51.100.8")
    });
    assert!(!is_on_lo(host, "198.51.100.7") && !is_on_lo(host, "198.51.100.8"));
}

/// What waits for the withdrawal of an address sees when BIRD has withdrawn it.
pub(crate) fn withdrawal(place: &mut Place) {
    let Some(mut session) = Session::start(place) else {
        return;
    };
    let shown = |words: &str| shown(&place.client, words);
    let knows = |address: &str| shown("show route").contains(&format!("{address}/32"));
    let host = &place.hosts[0];
    let state = |address: &str| state(host, address);
    let is = |address: &str, expected: &str| state(address).as_deref() == Some(expected);
    until("both are held, and the router knows them", || {
        ["198.51.100.7", "198.51.100.8"]
            .iter()
            .all(|one| is(one, "held") && knows(one))
    });
    // One is not served any more, the other is not in the file any more, and BIRD hangs.
    session.own.signal("STOP");
    let other = FILE.replace("ready: true", "ready: false");
    let other: Vec<&str> = other
        .lines()
        .filter(|line| !line.contains("198.51.100.8"))
        .collect();
    host.write(&other.join("\n"));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        assert!(
            is("198.51.100.7", "held") && is("198.51.100.8", "held"),
            "{}",
            host.ack()
        );
        pause(Duration::from_millis(20));
    }
    session.own.signal("CONT");
    until("the ack says that they are withdrawn", || {
        is("198.51.100.7", "not-ready") && state("198.51.100.8").is_none()
    });
    until("the router has heard it", || {
        !knows("198.51.100.7") && !knows("198.51.100.8")
    });
    host.write(FILE);
    until("it is held again", || is("198.51.100.7", "held"));
    // A BIRD that does not run tells nobody.
    session.own.kill();
    until("nothing is announced", || is("198.51.100.7", "not-ready"));
}

/// What an earlier announcer told routers is in the ack, and on `lo`, until BIRD has withdrawn it and routers have heard of it.
pub(crate) fn left(place: &mut Place) {
    let Some(session) = Session::start(place) else {
        return;
    };
    let served = ["198.51.100.7", "198.51.100.8"];
    let client = &place.client;
    let knows = |address: &str| shown(client, "show route").contains(&format!("{address}/32"));
    let host = &mut place.hosts[0];
    let is_held = |host: &Host, address: &str| state(host, address).as_deref() == Some("held");
    let lines = FILE.lines().filter(|line| !line.contains(served[1]));
    let without = lines.collect::<Vec<_>>().join("\n");
    let l2 = FILE.replacen("198.51.100.8, mode: bgp", "198.51.100.8, mode: l2", 1);
    assert_ne!(l2, FILE);
    for (file, keeps_ack, after) in [
        (&without, true, None),
        // What it wrote for BIRD says the same.
        (&without, false, None),
        (&l2, true, Some("no-interface")),
    ] {
        host.write(FILE);
        until("both are held, and the router knows them", || {
            served.iter().all(|one| is_held(host, one) && knows(one))
        });
        session.own.signal("STOP");
        host.kill();
        let before = host.ack();
        if !keeps_ack {
            fs::remove_file(host.path("announce-ack.json")).expect("an ack");
        }
        host.announce(file);
        until("the ack is the next one's", || {
            !host.ack().is_empty() && host.ack() != before
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2_500) {
            assert!(is_held(host, served[1]), "{}", host.ack());
            assert!(is_on_lo(host, "198.51.100.8/32"));
            pause(Duration::from_millis(20));
        }
        session.own.signal("CONT");
        until("BIRD has withdrawn it, and it is not on lo", || {
            state(host, served[1]).as_deref() == after && !is_on_lo(host, "198.51.100.8/32")
        });
        until("the router knows the other one alone", || {
            knows(served[0]) && !knows(served[1]) && is_held(host, served[0])
        });
    }
}

/// An address that something else put on `lo`, with whatever length, serves and stays there. One that an earlier announcer left there is
/// removed, also where the kernel kept its metric alone.
pub(crate) fn on_lo_before(place: &mut Place) {
    let lo = ["198.51.100.7/24", "2001:db8:7::7/64"];
    place.hosts[0].ip(&format!("address add {} dev lo", lo[0]));
    place.hosts[0].ip(&format!("address add {} dev lo nodad", lo[1]));
    let left = format!("198.51.100.9/32 dev lo noprefixroute metric {OURS}");
    place.hosts[0].ip(&format!("address add {left}"));
    let Some(_session) = Session::start(place) else {
        return;
    };
    let host = &mut place.hosts[0];
    until("what an earlier one left is gone", || {
        !is_on_lo(host, "198.51.100.9/32")
    });
    let line = "- {address: \"2001:db8:7::7\", mode: bgp, nodes: [edge1]}\n";
    host.write(&FILE.replacen("addresses:\n", &format!("addresses:\n{line}"), 1));
    until("one is held, and the ack says whose it is", || {
        let is_held = state(host, "198.51.100.7").as_deref() == Some("held");
        is_held && host.ack().contains("something else put it on lo")
    });
    // The router has no session of IPv6.
    until("BIRD has the one of IPv6", || {
        let config = fs::read_to_string(host.path("bird.conf")).unwrap_or_default();
        config.contains("route 2001:db8:7::7/128 ")
            && host.ack().contains("BIRD has it, and has no session")
    });
    until("the router knows it", || {
        shown(&place.client, "show route").contains("198.51.100.7/32")
    });
    host.signal("TERM");
    until("it ended", || host.has_ended());
    assert!(lo.iter().all(|one| is_on_lo(host, one)));
    assert!(!is_on_lo(host, "198.51.100.8/32"));
}

/// What somebody does to BIRD by hand does not stay.
pub(crate) fn by_hand(place: &mut Place) {
    let Some(_session) = Session::start(place) else {
        return;
    };
    let (host, client) = (&place.hosts[0], &place.client);
    let knows = || shown(client, "show route").contains("198.51.100.7/32");
    let has = || shown(host, "show route table ballast_ipv4").contains("198.51.100.7/32");
    until("the router knows it", knows);
    host.write(&FILE.replace("ready: true", "ready: false"));
    until("it is withdrawn", || !knows());
    host.write(FILE);
    until("the router knows it again", knows);
    let said = shown(host, "configure undo");
    assert!(said.contains("Reconfigured"), "{said}");
    until("BIRD has the route again", has);
    let path = host.path("bird.conf");
    let ours = fs::read_to_string(&path).expect("a file");
    let other = ours.replace("    route 198.51.100.7/32 blackhole;\n", "");
    assert_ne!(other, ours);
    fs::write(&path, other).expect("a file");
    let said = shown(host, "configure");
    assert!(said.contains("Reconfigured"), "{said}");
    until("BIRD has our file and the route again", || {
        fs::read_to_string(&path).is_ok_and(|text| text == ours) && has()
    });
    until("the router knows it", knows);
}

/// A thousand addresses, a BIRD that is killed while they are held, and their end.
pub(crate) fn many(place: &mut Place) {
    let Some(mut session) = Session::start(place) else {
        return;
    };
    let (host, client) = (&place.hosts[0], &place.client);
    let each = (0..1_000).map(|number| (number / 250, number % 250 + 1));
    let lines = each.map(|(high, low)| {
        format!("- {{address: 198.18.{high}.{low}, mode: bgp, nodes: [edge1]}}\n")
    });
    let lines: String = lines.collect();
    host.write(&FILE.replacen("addresses:\n", &format!("addresses:\n{lines}"), 1));
    let held = || host.ack().matches("\"state\":\"held\"").count();
    let all_are_known = || shown(client, "show route count").contains("1002 of 1002 routes");
    until("all are held, and the router knows them", || {
        held() == 1_002 && all_are_known()
    });
    session.own.kill();
    until("none is announced", || held() == 0);
    session.own = Bird::start(host);
    let begun = Instant::now();
    until("all are held again, and the router knows them", || {
        held() == 1_002 && all_are_known()
    });
    println!("held {:?} after the start of BIRD", begun.elapsed());
    host.write(FILE);
    until("the rest is neither in the ack nor on lo", || {
        held() == 2
            && !host.ack().contains("198.18.")
            && !host.ip("-o address show dev lo").contains("198.18.")
    });
    assert!(shown(client, "show route count").contains("2 of 2 routes"));
}

/// A host with BGP loses its power: when the router sends nothing to it any more.
pub(crate) fn figures(place: &mut Place) {
    let Some(_session) = Session::start(place) else {
        return;
    };
    let shown = |words: &str| shown(&place.client, words);
    let mut times = Vec::new();
    for _ in 0..figures::kills_asked_for() {
        until("the router knows it", || {
            shown("show route").contains("198.51.100.7/32")
        });
        until("BFD is up", || shown("show bfd sessions").contains(" Up "));
        place.hosts[0].ip("link set eth0 down");
        let at = Instant::now();
        until("it is withdrawn", || {
            !shown("show route").contains("198.51.100.7/32")
        });
        times.push(at.elapsed());
        place.hosts[0].ip("address flush dev eth0");
        place.hosts[0].power_on();
    }
    let [_, _, most] = figures::told("BGP, a host loses its power: its route is there for", times);
    assert!(most <= Duration::from_millis(500));
}

/// The metric by which a kernel without tags knows the addresses of the announcer.
pub(crate) const OURS: u32 = 0x0ba1_1a57;

fn bird() -> String {
    std::env::var("BIRD").unwrap_or_else(|_| "bird".to_owned())
}

const ROUTER: &str = "log stderr all;
router id 10.77.0.3;
protocol device {}
protocol bfd {}
protocol bgp edge {
    local 10.77.0.3 as 64513;
    neighbor 10.77.0.1 as 64512;
    hold time 3;
    connect delay time 1; connect retry time 1; error wait time 1, 1;
    password \"secret\";
    bfd { min rx interval 100 ms; min tx interval 100 ms; multiplier 3; };
    ipv4 { import all; export none; };
}
";

pub(crate) const FILE: &str = "version: 1
node: edge1
addresses:
- {address: 198.51.100.7, mode: bgp, nodes: [edge1], ready: true}
- {address: 198.51.100.8, mode: bgp, nodes: [edge1]}
bgp:
  bird: {config: bird.conf, socket: bird.ctl}
  router-id: 10.77.0.1
  my-asn: 64512
  peers:
  - name: tor
    peer-asn: 64513
    peer-address: 10.77.0.3
    source-address: 10.77.0.1
    hold-time: 3s
    keepalive-time: 1s
    connect-time: 1s
    password: secret
    bfd: {receive-interval: 100ms, transmit-interval: 100ms}
  advertisements:
  - {communities: [\"64512:7\", \"large:64512:1:2\"]}
";
