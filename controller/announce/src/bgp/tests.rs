//! The configuration, and what BIRD says of it where BIRD is installed.

use std::process::Command;

use super::*;
use crate::file::parse;

const FULL: &str = include_str!("../../../../templates/announce-full.yaml");

fn bgp_of(text: &str) -> Bgp {
    parse(text.as_bytes()).unwrap().bgp.unwrap()
}

fn addresses(all: &[&str]) -> Vec<IpAddr> {
    all.iter().map(|one| one.parse().unwrap()).collect()
}

#[test]
fn the_full_example_has_this_configuration() {
    let bgp = bgp_of(FULL);
    let text = configuration(&bgp, &addresses(&["198.51.100.7", "2001:db8::7"]));
    let mark = mark_of(&text).unwrap();
    assert_eq!(text, EXPECTED.replace("sha256:MARK", mark));
    let turned = configuration(&bgp, &addresses(&["2001:db8::7", "198.51.100.7"]));
    assert_eq!(turned, text);
}

#[test]
fn a_configuration_is_known_by_its_mark_and_its_routes_are_read_back() {
    let bgp = bgp_of(FULL);
    let [one, other] = [&["198.51.100.7", "2001:db8::7"][..], &["198.51.100.7"]]
        .map(|all| configuration(&bgp, &addresses(all)));
    assert_ne!(mark_of(&one), mark_of(&other));
    assert!(mark_of(&one).is_some_and(|mark| mark.starts_with("sha256:")));
    assert_eq!(mark_of("define other = \"sha256:ab\";\n"), None);
    let routes = |text: &str| {
        let routes = routes_in(text).into_iter().map(|one| one.to_string());
        routes.collect::<Vec<_>>()
    };
    assert_eq!(routes(&one), ["198.51.100.7/32", "2001:db8::7/128"]);
    assert_eq!(routes(&other), ["198.51.100.7/32"]);
    let of_somebody_else = other.replacen("ballast", "somebody", 1);
    assert_eq!(routes(&of_somebody_else), Vec::<String>::new());
    assert_eq!(routes(""), Vec::<String>::new());
}

#[test]
fn a_session_without_a_hold_time_keeps_nothing_alive() {
    let bgp = bgp_of(&FULL.replace("hold-time: 3s", "hold-time: 0s"));
    let text = configuration(&bgp, &[]);
    assert!(text.contains("    hold time 0;\n") && !text.contains("keepalive time 1;"));
}

const EXPECTED: &str = r#"# Written by ballast-controller announce, and written again when anything changes.
log stderr all;
define mark_of_ballast = "sha256:MARK";
router id 10.0.0.1;

protocol device {
}

protocol bfd {
}

ipv4 table ballast_ipv4;
protocol static ballast_static_ipv4 {
    ipv4 { table ballast_ipv4; };
    route 198.51.100.7/32 blackhole;
}

ipv6 table ballast_ipv6;
protocol static ballast_static_ipv6 {
    ipv6 { table ballast_ipv6; };
    route 2001:db8::7/128 blackhole;
}

protocol bgp 'ballast.tor' {
    local 10.0.0.1 as 64512;
    neighbor 10.0.0.254 port 179 as 64513;
    interface "eth0";
    direct;
    hold time 3;
    keepalive time 1;
    connect delay time 1; connect retry time 1; error wait time 1, 1;
    password "secret";
    graceful restart on;
    bfd { min rx interval 100 ms; min tx interval 100 ms; multiplier 3; passive off; };
    ipv4 {
        table ballast_ipv4;
        import none;
        export filter {
            if net ~ [ 198.51.100.7/32 ] then {
                bgp_local_pref = 150;
                bgp_community.add((64512, 7));
                bgp_large_community.add((64512, 1, 2));
                accept;
            }
            reject;
        };
    };
}

protocol bgp 'ballast.core' {
    local as 64512;
    neighbor 2001:db8:1::1 port 179 as 64512;
    router id 10.0.0.9;
    multihop;
    vrf "red";
    hold time 90;
    keepalive time 30;
    ipv6 {
        table ballast_ipv6;
        import none;
        export filter {
            if net ~ [ 2001:db8::7/128 ] then {
                accept;
            }
            reject;
        };
    };
}
"#;

/// A file with one peer for each of these lines, and these advertisements.
fn file(advertisements: &str) -> String {
    format!(
        "version: 1
node: a
bgp:
  bird: {{config: c, socket: s}}
  router-id: 10.0.0.1
  my-asn: 64512
  peers:
    - {{name: a, peer-asn: 1, peer-address: 10.0.0.2}}
    - {{name: b, peer-asn: 2, peer-address: 10.0.0.3}}
    - {{name: c, peer-asn: 3, peer-address: \"2001:db8::1\"}}
{advertisements}"
    )
}

/// The prefixes that a peer is told, each with its attributes.
fn told(advertisements: &str, peer: usize) -> Vec<String> {
    let bgp = bgp_of(&file(advertisements));
    let addresses = addresses(&["192.0.2.10", "192.0.2.11", "198.51.100.7", "2001:db8::7"]);
    let export = exported(&bgp.peers[peer], &bgp.advertisements, &addresses);
    let lines = export.iter().flat_map(|(marks, prefixes)| {
        let marks = format!("{:?} {:?}", marks.local_pref, marks.communities.len());
        prefixes
            .iter()
            .map(move |prefix| format!("{prefix} {marks}"))
    });
    lines.collect()
}

#[test]
fn several_advertisements_of_one_prefix_are_one_and_others_stand_beside_it() {
    let text = "  advertisements:
    - {aggregation-length: 24, communities: [\"1:1\"]}
    - {communities: [\"1:2\"], peers: [a]}
    - {communities: [\"1:2\", \"large:1:2:3\"], local-pref: 7, peers: [b]}
    - {communities: [\"1:3\"], local-pref: 7, peers: [b]}
";
    assert_eq!(
        told(text, 0),
        [
            "192.0.2.0/24 None 1",
            "198.51.100.0/24 None 1",
            "192.0.2.10/32 None 1",
            "192.0.2.11/32 None 1",
            "198.51.100.7/32 None 1",
        ]
    );
    assert_eq!(
        told(text, 1)[2..],
        [
            "192.0.2.10/32 Some(7) 3",
            "192.0.2.11/32 Some(7) 3",
            "198.51.100.7/32 Some(7) 3"
        ]
    );
    assert_eq!(told(text, 2), ["2001:db8::7/128 None 1"]);
}

#[test]
fn an_advertisement_of_some_addresses_says_nothing_of_the_others() {
    let text = "  advertisements:
    - {addresses: [192.0.2.10, \"2001:db8::7\"], communities: [\"1:1\"]}
    - {addresses: [198.51.100.7], aggregation-length: 24, peers: [b]}
";
    assert_eq!(told(text, 0), ["192.0.2.10/32 None 1"]);
    assert_eq!(
        told(text, 1),
        ["198.51.100.0/24 None 0", "192.0.2.10/32 None 1"]
    );
    assert_eq!(told(text, 2), ["2001:db8::7/128 None 1"]);
}

#[test]
fn without_advertisements_each_address_is_told_to_all_and_without_addresses_nothing_is() {
    let bgp = bgp_of(&file(""));
    let text = configuration(&bgp, &addresses(&["192.0.2.10"]));
    assert_eq!(text.matches("if net ~ [ 192.0.2.10/32 ] then {").count(), 2);
    let text = configuration(&bgp, &[]);
    assert_eq!(text.matches("route").count(), 1, "router id only: {text}");
    assert_eq!(text.matches("reject;").count(), 3);
}

/// `bird -p` reads a configuration and does nothing else.
#[test]
fn bird_takes_every_configuration() {
    let bird = std::env::var("BIRD").unwrap_or_else(|_| "bird".to_owned());
    if Command::new(&bird).arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "bird is not installed");
        println!("SKIP: bird is not installed");
        return;
    }
    let many: Vec<String> = (0..=255).map(|last| format!("192.0.2.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (name, text, all) in [
        ("full", FULL.to_owned(), vec!["198.51.100.7", "2001:db8::7"]),
        ("empty", file(""), vec![]),
        (
            "many",
            file("  advertisements: [{communities: [\"1:2\"]}, {aggregation-length: 20}]\n"),
            many,
        ),
        (
            "link-local",
            file("").replace("\"2001:db8::1\"", "\"fe80::1\", interface: eth0"),
            vec!["2001:db8::7"],
        ),
    ] {
        let path = std::env::temp_dir().join(format!("ballast-bird-{}-{name}", std::process::id()));
        std::fs::write(&path, configuration(&bgp_of(&text), &addresses(&all))).unwrap();
        let output = Command::new(&bird)
            .arg("-p")
            .arg("-c")
            .arg(&path)
            .output()
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {said}");
    }
}

#[test]
fn an_answer_of_bird_is_read_once_it_is_whole() {
    let answer = "0002-Reading configuration from bird.conf\n8002 bird.conf:3:1 syntax error\n";
    for length in 0..answer.len() {
        assert_eq!(read_reply(answer.get(..length).unwrap()), None, "{length}");
    }
    assert_eq!(read_reply("nonsense\n"), None);
    let not = |why: &str| Taken::Not(why.to_owned());
    let shuts_down = "BIRD shuts down, and takes no configuration any more; start it again";
    for (last, expected) in [
        ("0003 Reconfigured", Taken::Whole),
        ("0020 Configuration OK", Taken::Whole),
        ("0004 Reconfiguration in progress", Taken::Busy),
        (
            "0005 Reconfiguration already in progress, queueing new config",
            Taken::Busy,
        ),
        (
            "0006 Reconfiguration ignored, shutting down",
            not(shuts_down),
        ),
        ("0017 removing queued config", not("removing queued config")),
        ("0019 Nothing to do", not("Nothing to do")),
        (
            "8002 bird.conf:3:1 syntax error",
            not("bird.conf:3:1 syntax error"),
        ),
        ("8007 Access denied", not("Access denied")),
        ("9001 syntax error", not("syntax error")),
    ] {
        let text = format!("0002-Reading configuration from bird.conf\n{last}\n");
        assert_eq!(read_reply(&text).unwrap().taken(), expected, "{last}");
    }
    for (text, is_busy) in [
        ("0003-Daemon is up and running\n0000 \n", false),
        ("0004-Reconfiguration in progress\n0000 \n", true),
        (
            "0005-Reconfiguration in progress, next one enqueued\n0022-Undo in 3 s\n0000 \n",
            true,
        ),
        ("0006-Shutdown in progress\n0000 \n", false),
        ("9001 syntax error\n", false),
    ] {
        assert_eq!(read_reply(text).unwrap().is_busy(), is_busy, "{text}");
    }
    let value = |text: &str| read_reply(text).unwrap().value().map(str::to_owned);
    assert_eq!(value("0023 sha256:ab\n"), Some("sha256:ab".to_owned()));
    assert_eq!(
        value("9001 syntax error, unexpected CF_SYM_UNDEFINED\n"),
        None
    );
}

#[test]
fn sessions_are_read_from_what_bird_shows() {
    let protocols = "2002-Name       Proto      Table      State  Since         Info
1002-device1    Device     ---        up     09:41:00.123  
 ballast.tor BGP        ---        up     09:41:04.017  Established   
 ballast.core BGP        ---        start  2026-11-26 09:41:04  Active        Socket: Connection refused
 other      BGP        ---        up     09:41:04.017  Established   
0000 
";
    let bfd = "1020-bfd1:
 IP address                Interface  State      Since         Interval  Timeout
 10.0.0.254                eth0       Up         09:41:04.100    0.100    0.300
 2001:db8:1::1             ---        Down       09:41:04.100    1.000    0.000
0000 
";
    let found = read_sessions(&read_reply(protocols).unwrap(), &read_reply(bfd).unwrap());
    let state = |name: &str| found.peers[name].clone();
    assert_eq!(found.peers.len(), 2);
    assert_eq!(state("tor"), (true, "Established".to_owned()));
    assert_eq!(
        state("core"),
        (false, "Active Socket: Connection refused".to_owned())
    );
    assert_eq!(
        found.bfd.into_iter().collect::<Vec<_>>(),
        [
            ("10.0.0.254".parse().unwrap(), true),
            ("2001:db8:1::1".parse().unwrap(), false)
        ]
    );
}
