//! `ballast`: listening sockets: those that the table wants, and no others; what becomes of those that cannot be had.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use ballast_core::rng::Rng;
use support::crowd::{Client, below, servers};
use support::{Ballast, get, nobody};

#[test]
fn the_sockets_are_those_that_the_table_wants_and_unchanged_ones_stay() {
    let seed = std::env::var("SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let port = nobody().port();
    let (first, mut wanted) = any_table(&mut rng, port, 0);
    let ballast = Ballast::serve(&first, 2);
    let mut before = listening(port);
    assert_eq!(
        before.keys().copied().collect::<BTreeSet<_>>(),
        wanted,
        "{first}"
    );
    for generation in 1..50 {
        let text;
        (text, wanted) = any_table(&mut rng, port, generation);
        ballast.swap(&text);
        assert_eq!(ballast.ack().unwrap().refused, None, "{text}");
        let after = listening(port);
        assert_eq!(
            after.keys().copied().collect::<BTreeSet<_>>(),
            wanted,
            "{text}"
        );
        for (address, sockets) in &after {
            if let Some(before) = before.get(address) {
                assert_eq!(sockets, before, "{address} was bound again by {text}");
            }
        }
        let listening = ballast.running.shared().status.listening();
        let known: BTreeSet<_> = listening.values().copied().collect();
        assert_eq!(known, wanted, "{text}");
        before = after;
    }
}

/// Frontends on some of eight addresses, and those addresses on which somebody should listen.
fn any_table(rng: &mut Rng, port: u16, generation: u64) -> (String, BTreeSet<SocketAddr>) {
    const SERVICES: [(&str, bool); 4] = [
        ("up", true),
        ("half", true),
        ("off", false),
        ("none", false),
    ];
    let mut wanted = BTreeSet::new();
    let mut binds: [Vec<SocketAddr>; 4] = Default::default();
    for host in 1..=8 {
        let address = match host {
            8 => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)),
            _ => SocketAddr::from(([127, 31, 0, host], port)),
        };
        if let Some(binds) = binds.get_mut(below(rng, 6)) {
            binds.push(address);
        }
    }
    let mut frontends = Vec::new();
    for (index, binds) in binds
        .iter()
        .enumerate()
        .filter(|(_, binds)| !binds.is_empty())
    {
        let (service, listens) = SERVICES[below(rng, 4)];
        let is_http = rng.below(4) == 0;
        // An http frontend always listens: it answers by itself.
        if listens || is_http {
            wanted.extend(binds.iter().copied());
        }
        let serves = if is_http {
            "protocol: http, default: {status: 404}".into()
        } else {
            format!("protocol: tcp, service: {service}")
        };
        let binds: Vec<_> = binds.iter().map(|bind| format!("\"{bind}\"")).collect();
        let name = rng.below(3);
        frontends.push(format!(
            "{{name: f{index}-{name}, bind: [{}], {serves}}}",
            binds.join(", ")
        ));
    }
    let text = format!(
        "version: 1\ngeneration: {generation}\nfrontends: [{}]\nservices:\n  - {{name: up, endpoints: [{{address: \"127.0.0.1:9\"}}]}}\n  - {{name: half, endpoints: [{{address: \"127.0.0.1:9\", state: disabled}}, {{address: \"127.0.0.2:9\", state: draining}}]}}\n  - {{name: off, endpoints: [{{address: \"127.0.0.1:9\", state: disabled}}]}}\n  - {{name: none, endpoints: []}}\n",
        frontends.join(", ")
    );
    (text, wanted)
}

/// The inodes of the sockets that listen on this port, by their addresses.
fn listening(port: u16) -> BTreeMap<SocketAddr, BTreeSet<u64>> {
    let mut found: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = std::fs::read_to_string(table).expect("the kernel's list");
        for line in table.lines().skip(1) {
            let columns: Vec<_> = line.split_whitespace().collect();
            let address = hex_address(columns[1]).expect("an address");
            if columns[3] == LISTEN && address.port() == port {
                let inode = columns[9].parse().expect("an inode");
                found.entry(address).or_default().insert(inode);
            }
        }
    }
    found
}

/// The kernel writes addresses as words in the machine's own order.
fn hex_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let mut bytes = Vec::new();
    for word in ip.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let port = u16::from_str_radix(port, 16).ok()?;
    match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(v4) => Some((v4, port).into()),
        Err(_) => Some((<[u8; 16]>::try_from(bytes).ok()?, port).into()),
    }
}

/// Of a socket, in the kernel's list.
const LISTEN: &str = "0A";

#[test]
fn a_bind_that_fails_fails_alone_and_is_had_as_soon_as_it_is_free() {
    let server = servers(1)[0];
    let foreign = TcpListener::bind("127.0.0.3:0").unwrap();
    let (taken, free) = (foreign.local_addr().unwrap(), loopback(2));
    let ballast = Ballast::serve(
        &format!(
            "version: 1\nfrontends:\n  - {{name: both, bind: [\"{taken}\", \"{free}\"], protocol: tcp, service: s}}\n  - {{name: other, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}\nservices: [{{name: s, endpoints: [{{address: \"{server}\"}}]}}]\n"
        ),
        2,
    );
    let exceptions = ballast.ack().unwrap().exceptions;
    assert_eq!(exceptions.len(), 1, "{exceptions:?}");
    assert_eq!(exceptions[0].frontend.to_string(), "both");
    assert_eq!(exceptions[0].bind.to_string(), taken.to_string());
    assert_eq!(exceptions[0].state.word(), "failed");
    assert!(
        exceptions[0].why.contains("address in use"),
        "{exceptions:?}"
    );
    let ask = |address| {
        Client::from([127, 0, 0, 1], address)
            .unwrap()
            .ask()
            .unwrap()
    };
    assert_eq!(ask(free), server);
    assert!(get(ballast.running.admin()[0], "/readyz").0.contains("200"));
    drop(foreign);
    ballast.until(|ballast| ballast.ack().unwrap().exceptions.is_empty());
    assert_eq!(ask(taken), server);
}

#[test]
fn an_address_that_is_not_here_is_bound_and_said() {
    let port = nobody().port();
    let server = servers(1)[0];
    let table = |binds: &str| {
        format!(
            "version: 1\nfrontends: [{{name: f, bind: [{binds}], protocol: tcp, service: s}}]\nservices: [{{name: s, endpoints: [{{address: \"{server}\"}}]}}]\n"
        )
    };
    let here = loopback(2);
    let ballast = Ballast::serve(&table(&format!("\"192.0.2.1:{port}\", \"{here}\"")), 2);
    let exceptions = ballast.ack().unwrap().exceptions;
    assert_eq!(exceptions.len(), 1, "{exceptions:?}");
    assert_eq!(exceptions[0].bind.to_string(), format!("192.0.2.1:{port}"));
    assert_eq!(exceptions[0].state.word(), "not-local");
    assert!(listening(port).contains_key(&SocketAddr::from(([192, 0, 2, 1], port))));
    let mut client = Client::from([127, 0, 0, 1], here).unwrap();
    assert_eq!(client.ask().unwrap(), server);
    ballast.swap(&table(&format!("\"{here}\"")));
    assert_eq!(ballast.ack().unwrap().exceptions, []);
}

#[test]
fn a_star_is_every_address_of_both_families() {
    let port = nobody().port();
    let server = servers(1)[0];
    let ballast = Ballast::serve(
        &format!(
            "version: 1\nfrontends: [{{name: f, bind: [\"*:{port}\"], protocol: tcp, service: s}}]\nservices: [{{name: s, endpoints: [{{address: \"{server}\"}}]}}]\n"
        ),
        2,
    );
    assert_eq!(ballast.ack().unwrap().exceptions, []);
    for address in [
        SocketAddr::from(([127, 0, 0, 1], port)),
        SocketAddr::from(([127, 9, 8, 7], port)),
        SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)),
    ] {
        let mut client = Client::from([127, 0, 0, 1], address).unwrap();
        assert_eq!(client.ask().unwrap(), server, "{address}");
    }
}

/// An address that nobody uses, on a host of its own.
fn loopback(host: u8) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 32, 0, host), 0)).expect("a listener");
    listener.local_addr().expect("an address")
}
