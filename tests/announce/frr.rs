//! What a router of FRR learns from `ballast-controller announce`, by the BIRDs of two hosts: the router shares traffic out over both.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bird::{Bird, FILE};
use crate::hosts::{Host, Place, is_missing, pause, until};

/// The programs of a router: its table, its sessions of BGP and of BFD.
struct Frr {
    programs: Vec<Child>,
}

impl Frr {
    /// Starts them on a host; `None`: FRR is not installed, which is an error in CI.
    fn start(router: &Host) -> Option<Self> {
        if is_missing(Command::new("vtysh").arg("--version"), "frr") {
            return None;
        }
        for (name, text) in [("zebra", ""), ("bfdd", ""), ("bgpd", ROUTER)] {
            fs::write(router.path(&format!("{name}.conf")), text).expect("a file");
        }
        let folder = router.path("");
        let mut own = Command::new("chown");
        let done = own.arg("-R").arg("frr:frr").arg(&folder).status();
        assert!(done.expect("chown").success());
        let start = |name: &str, more: &[&str]| {
            let mut command = router.program(&format!("/usr/lib/frr/{name}"));
            command.args(["-u", "frr", "-g", "frr", "-P", "0", "-z", "zserv.api"]);
            command.args(["-f", &format!("{name}.conf")]);
            command.args(["-i", &format!("{name}.pid"), "--vty_socket"]);
            command.arg(&folder).args(more);
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let child = child.expect("a program of FRR");
            until("it answers", || {
                router.path(&format!("{name}.vty")).exists()
            });
            child
        };
        Some(Self {
            programs: vec![
                start("zebra", &[]),
                start("bfdd", &["--bfdctl", "bfdd.sock"]),
                start("bgpd", &[]),
            ],
        })
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for program in &mut self.programs {
            program.kill().ok();
            program.wait().ok();
        }
    }
}

/// What the router answers to commands of vtysh.
fn said(router: &Host, commands: &[&str]) -> String {
    let mut command = router.program("vtysh");
    command.arg("--vty_socket").arg(router.path(""));
    for one in commands {
        command.args(["-c", one]);
    }
    let output = command.output().expect("vtysh");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The hosts, by the last number of their addresses, to which the kernel of the router sends what goes to the address.
fn ways(router: &Host, address: &str) -> Vec<u8> {
    let routes = router.ip(&format!("route show {address}"));
    let leads = |number: &u8| routes.contains(&format!("via 10.77.0.{number} "));
    [1, 2].into_iter().filter(leads).collect()
}

/// The file of a host, with another password if there is one.
fn file(number: u8, password: &str) -> String {
    FILE.replace("node: edge1", &format!("node: edge{number}"))
        .replace("[edge1]", "[edge1, edge2]")
        .replace("10.77.0.1", &format!("10.77.0.{number}"))
        .replace("password: secret", &format!("password: {password}"))
}

pub(crate) fn routes(place: &mut Place) {
    let Some(_frr) = Frr::start(&place.client) else {
        return;
    };
    let mut birds = Vec::new();
    for (host, password) in place.hosts.iter_mut().zip(["secret", "another"]) {
        host.announce(&file(host.number, password));
        until("BIRD has a configuration", || {
            host.path("bird.conf").exists()
        });
        birds.push(Bird::start(host));
    }
    let ways = |place: &Place| ways(&place.client, SERVED);
    let about = |place: &Place, what: &str| said(&place.client, &[what]);
    until("one host is known", || ways(place) == [1]);
    let route = about(place, "show bgp ipv4 unicast 198.51.100.7/32");
    assert!(
        route.contains("Community: 64512:7") && route.contains("Large Community: 64512:1:2"),
        "{route}"
    );
    // The password of the other one is wrong: its segments are dropped, and nothing is heard of it.
    let log = about(place, "show bgp summary failed");
    assert!(log.contains("10.77.0.2"), "{log}");
    place.hosts[1].write(&file(2, "secret"));
    until("traffic is shared out over both", || ways(place) == [1, 2]);
    until("BFD is up to both", || {
        let peers = about(place, "show bfd peers brief");
        peers.matches(" up").count() == 2
    });

    // One that cannot serve the address is not asked any more, and the other one goes on.
    let served = file(2, "secret");
    place.hosts[1].write(&served.replace("ready: true", "ready: false"));
    until("one way is left", || ways(place) == [1]);
    place.hosts[1].write(&served);
    until("there are two ways", || ways(place) == [1, 2]);

    // A host that is gone is known by BFD, long before its hold time of 3 s is over.
    place.hosts[1].ip("link set eth0 down");
    let at = Instant::now();
    until("one way is left", || ways(place) == [1]);
    println!("the router of a dead host: {:?}", at.elapsed());
    assert!(at.elapsed() < Duration::from_millis(2_500));

    graceful(place, &mut birds);

    place.hosts[0].signal("TERM");
    until("it ended", || place.hosts[0].has_ended());
    until("all is withdrawn", || ways(place).is_empty());
}

/// With graceful restart, and without BFD, the router keeps the routes of a BIRD that is killed and starts again.
fn graceful(place: &Place, birds: &mut [Bird]) {
    let host = &place.hosts[0];
    let mut text = file(1, "secret");
    text = text.replace(
        "connect-time: 1s",
        "connect-time: 1s\n    graceful-restart: true",
    );
    let with_bfd = "    bfd: {receive-interval: 100ms, transmit-interval: 100ms}\n";
    assert!(text.contains(with_bfd));
    host.write(&text.replace(with_bfd, ""));
    let words = [
        "configure terminal",
        "router bgp 64513",
        "no neighbor 10.77.0.1 bfd",
    ];
    said(&place.client, &words);
    let session = |place: &Place| said(&place.client, &["show bgp neighbors 10.77.0.1"]);
    until("both speak of graceful restart", || {
        let said = session(place);
        said.contains("Remote GR Mode: Restart") && said.contains("BGP state = Established")
    });
    until("the route is there", || ways(&place.client, SERVED) == [1]);
    // The end of the first table has been told: without it, no route is kept.
    until("the table is whole", || {
        session(place).contains("End-of-RIB received: IPv4 Unicast")
    });
    birds[0].kill();
    until("the session ended", || {
        !session(place).contains("BGP state = Established")
    });
    assert_eq!(ways(&place.client, SERVED), [1]);
    birds[0] = Bird::start(host);
    until("the session is back", || {
        assert_eq!(ways(&place.client, SERVED), [1], "it is kept meanwhile");
        session(place).contains("BGP state = Established")
    });
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        assert_eq!(ways(&place.client, SERVED), [1]);
        pause(Duration::from_millis(20));
    }
}

const SERVED: &str = "198.51.100.7";

const ROUTER: &str = "router bgp 64513
 bgp router-id 10.77.0.3
 bgp graceful-restart
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor hosts peer-group
 neighbor hosts remote-as 64512
 neighbor hosts password secret
 neighbor hosts timers 1 3
 neighbor hosts timers connect 1
 neighbor 10.77.0.1 peer-group hosts
 neighbor 10.77.0.1 bfd 3 100 100
 neighbor 10.77.0.2 peer-group hosts
 neighbor 10.77.0.2 bfd 3 100 100
 address-family ipv4 unicast
  neighbor hosts activate
  maximum-paths 8
 exit-address-family
";
