//! The announcer's file: what a decision announces, where the data plane of this node has acknowledged that it listens. Pure; written
//! by [`super::announcer`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ballast_announce::ack::{self as announcer, State};
use ballast_announce::file::{self as announced, Address, Announce, Return};
use ballast_core::ack::{Ack, ExceptionState, IN_PART};
use ballast_core::table::{Bind, RoutingTable};
use serde_json::{Value, json};

use crate::decide::{Announced, AnnouncedAddress, Mode, Reason};
use crate::lease::{Message, UNSERVED};
use crate::observe::Key;

/// What the flags of this process say about the announcer.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The name of this node.
    pub(crate) node: String,
    /// The port at which all announcers take datagrams of the others.
    pub(crate) port: u16,
    /// The file with the keys of the members, as the announcer reaches it; so is the socket.
    pub(crate) key: PathBuf,
    /// The runtime socket of the data plane.
    pub(crate) socket: Option<PathBuf>,
    /// The folder with the configuration and the control socket of BIRD.
    pub(crate) bird: PathBuf,
    /// Where the data plane answers /readyz.
    pub(crate) dataplane: SocketAddr,
    pub(crate) comes_back: Return,
}

/// The whole file. `open` are the addresses at which the data plane listens. A node that leaves serves none: others take its addresses.
pub(super) fn file(
    target: &Target,
    announced: &Announced,
    open: &BTreeSet<IpAddr>,
    leaves: bool,
) -> Value {
    let addresses = announced.addresses.iter();
    // On a host without Kubernetes there are no nodes.
    let here = addresses.filter(|one| one.nodes.is_empty() || one.nodes.contains(&target.node));
    let addresses = here.map(|one| {
        let ready = one.is_best_here && !leaves && open.contains(&one.address);
        address(target, one, ready)
    });
    let mut file = json!({
        "version": 1,
        "node": target.node,
        "data-plane": {"ready": format!("http://{}/readyz", target.dataplane)},
        "addresses": addresses.collect::<Vec<_>>(),
        "return": target.comes_back,
    });
    if let Some(socket) = &target.socket {
        file["data-plane"]["socket"] = json!(socket);
    }
    if let Some(bgp) = &announced.bgp {
        file["bgp"] = bgp.clone();
        file["bgp"]["bird"] = json!({
            "config": target.bird.join("bird.conf"),
            "socket": target.bird.join("bird.ctl"),
        });
    }
    if let Some(at) = announced.at {
        let reached = |at: IpAddr| SocketAddr::new(at, target.port);
        let peers = announced.peers.iter().copied().map(reached);
        file["members"] = json!({
            "bind": reached(at),
            "peers": peers.collect::<Vec<_>>(),
            "key-file": target.key,
        });
    }
    file
}

fn address(target: &Target, one: &AnnouncedAddress, ready: bool) -> Value {
    let own = std::slice::from_ref(&target.node);
    let nodes = match &*one.nodes {
        [] => own,
        nodes => nodes,
    };
    let mut entry =
        json!({"address": one.address, "mode": one.mode, "nodes": nodes, "ready": ready});
    if one.mode == Mode::L2 && !one.interfaces.is_empty() {
        entry["interface"] = json!(one.interfaces);
    }
    entry
}

/// The addresses of pools with a port at which the data plane listens by this ack, and at which the newest table listens too: an
/// address leaves before its port is closed.
pub(super) fn open(
    newest: &Arc<RoutingTable>,
    served: &Arc<RoutingTable>,
    ack: &Ack,
) -> BTreeSet<IpAddr> {
    let mut closed: BTreeMap<&str, Vec<&Bind>> = BTreeMap::new();
    let exceptions = ack.exceptions.iter().filter(|exception| {
        // The data plane listens at an address before the node has it.
        exception.state != ExceptionState::NotLocal && !exception.why.starts_with(IN_PART)
    });
    for exception in exceptions {
        let of_frontend = closed.entry(&exception.frontend).or_default();
        of_frontend.push(&exception.bind);
    }
    let stays: Option<BTreeSet<(&str, SocketAddr)>> =
        (!Arc::ptr_eq(newest, served)).then(|| exact(newest).collect());
    let open = exact(served).filter(|(frontend, at)| {
        let is_meant = |bind: &&Bind| match bind {
            Bind::Exact(bind) => bind == at,
            Bind::Any { port } => *port == at.port(),
        };
        let mut closed = closed.get(frontend).into_iter().flatten().copied();
        !closed.any(|bind| is_meant(&bind))
            && stays
                .as_ref()
                .is_none_or(|stays| stays.contains(&(*frontend, *at)))
    });
    open.map(|(_, at)| at.ip()).collect()
}

/// What the owners of Services are told of their addresses, by the answer of the announcer at this time, in milliseconds of Unix time.
/// No message names the node: an address that moves is no news.
pub(super) fn told(
    ack: &announcer::Ack,
    announced: &Announced,
    now: u64,
) -> BTreeMap<Key, BTreeSet<Message>> {
    let known = announced.addresses.iter().map(|one| (one.address, one));
    let known: BTreeMap<IpAddr, &AnnouncedAddress> = known.collect();
    let mut told: BTreeMap<Key, BTreeSet<Message>> = BTreeMap::new();
    let mut new = 0;
    for status in &ack.addresses {
        let Some(one) = known.get(&status.address) else {
            continue;
        };
        let is_new = status.since.saturating_add(NEW) > now;
        let (warning, reason, text) = match status.state {
            State::Conflict => {
                let text = format!("{} is not announced: {}", status.address, status.detail);
                (true, Reason::AddressConflict, text)
            }
            // A Lease has no room for thousands, and whoever reads of the first ones knows it of all.
            State::Held if is_new && new < MOST_NEW => {
                new += 1;
                let text = match one.mode {
                    Mode::L2 => format!("the network leads {} to a node", one.address),
                    Mode::Bgp => format!("routers lead {} to nodes", one.address),
                };
                (false, Reason::AddressAnnounced, text)
            }
            _ => continue,
        };
        for service in &one.services {
            told.entry(service.clone()).or_default().insert(Message {
                warning,
                reason: reason.to_string(),
                text: text.clone(),
            });
        }
    }
    told
}

/// The addresses of the file that stay on this node: it is ready for them, or is the only one that may hold them.
pub(super) fn staying(file: &Announce) -> BTreeSet<IpAddr> {
    let is_alone = |one: &Address| one.nodes.iter().all(|name| *name == file.node);
    let addresses = file.addresses.iter();
    // Routers are told before the end of serving, whoever else serves.
    let staying =
        addresses.filter(|one| one.ready || one.mode == announced::Mode::L2 && is_alone(one));
    staying.map(|one| one.address).collect()
}

/// Whether this node still holds another address than these.
pub(super) fn is_giving_away(ack: &announcer::Ack, staying: &BTreeSet<IpAddr>) -> bool {
    let mut held = ack.addresses.iter().filter(|one| one.state == State::Held);
    held.any(|one| !staying.contains(&one.address))
}

/// The message for a file that the announcer refuses.
pub(super) fn refused(ack: &announcer::Ack) -> Option<Message> {
    let problem = ack.refused.as_ref()?.problems.first()?;
    Some(Message {
        warning: true,
        reason: UNSERVED.to_owned(),
        text: format!(
            "the announcer refuses its file, and what it announced before stays: {}: {}",
            problem.at, problem.why
        ),
    })
}

/// For so many milliseconds an address is told of that this node holds now.
const NEW: u64 = 60_000;
/// The most addresses that are told of at one time.
const MOST_NEW: usize = 64;

/// The ports at single addresses, with the names of their frontends.
fn exact(table: &RoutingTable) -> impl Iterator<Item = (&str, SocketAddr)> {
    table.frontends.iter().flat_map(|frontend| {
        frontend.bind.iter().filter_map(|bind| match bind {
            Bind::Exact(at) => Some((&*frontend.name, *at)),
            Bind::Any { .. } => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use ballast_announce::file::{self, parse};
    use ballast_core::table::{self, Format};

    use super::*;

    fn table(frontends: &[(&str, &str)]) -> Arc<RoutingTable> {
        let frontends = frontends.iter().map(
            |(name, bind)| json!({"name": name, "bind": [bind], "protocol": "tcp", "service": "s"}),
        );
        let text = json!({
            "version": 1,
            "frontends": frontends.collect::<Vec<_>>(),
            "services": [{"name": "s", "endpoints": []}],
        });
        Arc::new(table::parse(text.to_string().as_bytes(), Format::Json).expect("a table"))
    }

    fn ack(exceptions: &Value) -> Ack {
        let ack = json!({"version": 1, "instance": "i", "served": {"generation": 1, "digest": "d"}, "refused": null, "exceptions": exceptions});
        serde_json::from_value(ack).expect("an ack")
    }

    #[test]
    fn an_address_is_open_where_the_data_plane_listens_at_some_port_of_it() {
        let (a, b) = ("192.0.2.1:80", "192.0.2.1:443");
        let both = table(&[("s.a:80", a), ("s.b:443", b), ("http", "*:80")]);
        let exception = |frontend: &str, bind: &str, state: &str, why: &str| json!({"frontend": frontend, "bind": bind, "state": state, "why": why});
        let one = |state: &str| exception("s.a:80", a, state, "w");
        for (exceptions, is_open) in [
            (json!([]), true),
            (json!([one("failed")]), true),
            (
                json!([one("failed"), exception("s.b:443", b, "idle", "w")]),
                false,
            ),
            // For all addresses of the port.
            (
                json!([one("idle"), exception("s.b:443", "*:443", "failed", "w")]),
                false,
            ),
            (
                json!([one("idle"), exception("s.b:443", b, "not-yet-served", "w")]),
                false,
            ),
            // It listens before the node has the address.
            (
                json!([one("idle"), exception("s.b:443", b, "not-local", "w")]),
                true,
            ),
            (
                json!([
                    one("idle"),
                    exception("s.b:443", b, "failed", "serves in part: w")
                ]),
                true,
            ),
            // Another frontend's exception.
            (
                json!([one("idle"), exception("http", b, "failed", "w")]),
                true,
            ),
        ] {
            let found = open(&both, &both, &ack(&exceptions));
            assert_eq!(!found.is_empty(), is_open, "{exceptions}");
        }
    }

    #[test]
    fn what_the_newest_table_closes_is_withdrawn_before_the_data_plane_closes_it() {
        let served = table(&[("s.a:80", "192.0.2.1:80"), ("s.b:80", "192.0.2.2:80")]);
        for (newest, expected) in [
            (table(&[("s.a:80", "192.0.2.1:80")]), &["192.0.2.1"][..]),
            // An address that is new is not open yet, nor is another port of a known one.
            (table(&[("s.a:80", "192.0.2.3:80")]), &[]),
            (table(&[("s.a:81", "192.0.2.1:81")]), &[]),
            (
                table(&[("s.a:80", "192.0.2.1:80"), ("s.b:80", "192.0.2.2:80")]),
                &["192.0.2.1", "192.0.2.2"],
            ),
        ] {
            let found = open(&newest, &served, &ack(&json!([])));
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_announcer_reads_what_is_written() {
        let announced = |at: Option<&str>, peers: &[&str]| {
            let one = |address: &str, mode, is_best_here, nodes: &[&str]| AnnouncedAddress {
                address: address.parse().expect("an address"),
                mode,
                nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
                is_best_here,
                interfaces: Vec::new(),
                services: Vec::new(),
            };
            let l2 = Mode::L2;
            Announced {
                at: at.map(|at| at.parse().expect("an address")),
                peers: peers
                    .iter()
                    .map(|one| one.parse().expect("an address"))
                    .collect(),
                addresses: vec![
                    one("192.0.2.1", l2, true, &["edge1", "edge2"]),
                    one("192.0.2.2", l2, true, &["edge1"]),
                    one("192.0.2.3", l2, false, &["edge1"]),
                    one("2001:db8::1", l2, true, &[]),
                    // Another node's.
                    one("192.0.2.4", l2, true, &["edge2"]),
                ],
                bgp: None,
                lacks_passwords: false,
            }
        };
        let target = Target {
            node: "edge1".to_owned(),
            port: 7956,
            key: "members.key".into(),
            socket: Some("/tmp/haproxy".into()),
            bird: PathBuf::new(),
            dataplane: ([127, 0, 0, 1], 1936).into(),
            comes_back: Return::AtOnce,
        };
        let open = ["192.0.2.1", "192.0.2.3", "2001:db8::1"];
        let open = open.map(|one| one.parse().expect("an address")).into();
        let read = |announced: &Announced, leaves| {
            let text = file(&target, announced, &open, leaves).to_string();
            parse(text.as_bytes()).expect("a file")
        };
        let several = announced(Some("10.0.0.1"), &["10.0.0.2", "10.0.0.3"]);
        let found = read(&several, false);
        let addresses = found.addresses.iter();
        let addresses = addresses.map(|one| (one.address.to_string(), one.nodes.len(), one.ready));
        let expected = [
            ("192.0.2.1", 2, true),
            // The data plane does not listen there.
            ("192.0.2.2", 1, false),
            // Another node can serve more.
            ("192.0.2.3", 1, false),
            ("2001:db8::1", 1, true),
        ];
        let expected = expected.map(|(address, nodes, ready)| (address.to_owned(), nodes, ready));
        assert_eq!(addresses.collect::<Vec<_>>(), expected);
        assert!(found.addresses.iter().all(|one| one.mode == file::Mode::L2));
        let members = found.members.expect("members");
        assert_eq!(members.bind.to_string(), "10.0.0.1:7956");
        assert_eq!(members.peers.len(), 2);
        let plane = found.data_plane.expect("a data plane");
        assert_eq!(plane.ready.as_deref(), Some("http://127.0.0.1:1936/readyz"));
        assert_eq!(found.r#return, Return::AtOnce);

        let leaving = read(&several, true);
        assert!(leaving.addresses.iter().all(|one| !one.ready));
        let alone = read(&announced(None, &[]), false);
        assert_eq!(alone.members, None);
        let of_ipv6 = read(&announced(Some("2001:db8:1::1"), &[]), false);
        let bind = of_ipv6.members.map(|members| members.bind.to_string());
        assert_eq!(bind.as_deref(), Some("[2001:db8:1::1]:7956"));
    }

    #[test]
    fn an_address_is_given_away_until_the_announcer_does_not_hold_it() {
        let addresses = [
            json!({"address": "192.0.2.1", "mode": "l2", "nodes": ["edge1", "edge2"], "ready": true}),
            json!({"address": "192.0.2.2", "mode": "l2", "nodes": ["edge1", "edge2"], "ready": false}),
            json!({"address": "192.0.2.3", "mode": "l2", "nodes": ["edge1"], "ready": false}),
            json!({"address": "192.0.2.5", "mode": "bgp", "nodes": ["edge1"], "ready": false}),
        ];
        let peer = json!({"name": "tor", "peer-asn": 2, "peer-address": "10.0.0.2"});
        let bird = json!({"config": "bird.conf", "socket": "bird.ctl"});
        let bgp = json!({"bird": bird, "router-id": "10.0.0.1", "my-asn": 1, "peers": [peer]});
        let file = json!({"version": 1, "node": "edge1", "addresses": addresses, "bgp": bgp});
        let file = parse(file.to_string().as_bytes()).expect("a file");
        let staying = staying(&file);
        for (address, state, expected) in [
            ("192.0.2.1", "held", false),
            ("192.0.2.2", "held", true),
            ("192.0.2.2", "not-ready", false),
            ("192.0.2.2", "not-ours", false),
            // No other node can take it.
            ("192.0.2.3", "held", false),
            // The file does not have it any more.
            ("192.0.2.4", "held", true),
            // Routers send clients here until it is withdrawn.
            ("192.0.2.5", "held", true),
        ] {
            let status = json!({"address": address, "state": state, "owner": null, "since": 1, "detail": ""});
            let ack =
                json!({"version": 1, "file-digest": "d", "refused": null, "addresses": [status]});
            let ack: announcer::Ack = serde_json::from_value(ack).expect("an ack");
            let found = is_giving_away(&ack, &staying);
            assert_eq!(found, expected, "{address} {state}");
        }
    }

    #[test]
    fn owners_are_told_of_new_addresses_and_of_conflicts() {
        let status = |address: &str, state: &str, since: u64| json!({"address": address, "state": state, "owner": null, "since": since, "detail": "02:00:00:00:00:01 has it"});
        let ack = json!({"version": 1, "file-digest": null, "refused": null, "addresses": [
            status("192.0.2.1", "held", 940_001),
            status("192.0.2.2", "held", 940_000),
            status("192.0.2.3", "conflict", 1),
            status("192.0.2.4", "not-ours", 999_999),
            status("192.0.2.9", "held", 999_999),
        ]});
        let ack: announcer::Ack = serde_json::from_value(ack).expect("an ack");
        let one = |last: u8, names: &[&str]| AnnouncedAddress {
            address: [192, 0, 2, last].into(),
            mode: Mode::L2,
            nodes: ["edge1".to_owned()].into(),
            is_best_here: true,
            interfaces: Vec::new(),
            services: names.iter().map(|name| Key::new("shop", name)).collect(),
        };
        let announced = Announced {
            addresses: vec![
                one(1, &["a", "b"]),
                one(2, &["c"]),
                one(3, &["d"]),
                one(4, &["e"]),
            ],
            ..Announced::default()
        };
        let told = told(&ack, &announced, 1_000_000);
        let words = told.iter().flat_map(|(key, messages)| {
            let line = |one: &Message| format!("{key} {} {} {}", one.warning, one.reason, one.text);
            messages.iter().map(line).collect::<Vec<_>>()
        });
        let expected = [
            "shop/a false AddressAnnounced the network leads 192.0.2.1 to a node",
            "shop/b false AddressAnnounced the network leads 192.0.2.1 to a node",
            "shop/d true AddressConflict 192.0.2.3 is not announced: 02:00:00:00:00:01 has it",
        ];
        assert_eq!(words.collect::<Vec<_>>(), expected);
    }
}
