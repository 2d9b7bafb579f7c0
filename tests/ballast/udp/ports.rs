//! Local ports: how many flows they allow, and that no two flows are mixed up.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use ballast_core::flow::{Dropped, FlowEnd};

use crate::udp::{Ballast, client, dropped, ended, hear, patient, say, table};
use support::netns::Site;

/// 100 ports: 87 of them are for flows, of which a sixteenth rests.
const RANGE: &str = "40000 40099";
const OF_ONE_ENDPOINT: usize = 82;

#[test]
fn with_no_port_left_the_longest_idle_flow_of_the_endpoint_makes_room() {
    let Some(site) = few_ports(RANGE) else {
        return;
    };
    site.place.within(|| {
        let ballast = Ballast::serve(&table("127.0.0.1:7053", "", "", &[ports_of_peers(7001)]), 1);
        let clients = clients(7053, 110);
        let first: Vec<String> = clients.iter().map(|client| say(client, "?")).collect();
        assert_eq!(ballast.in_flight() as usize, OF_ONE_ENDPOINT);
        let evicted = clients.len() - OF_ONE_ENDPOINT;
        assert_eq!(ended(&ballast, FlowEnd::Evicted), evicted as u64);
        for (client, first) in clients.iter().zip(&first).skip(evicted) {
            assert_eq!(&say(client, "?"), first, "a younger flow made room");
        }
        let distinct: HashSet<&String> = first.iter().skip(evicted).collect();
        assert_eq!(distinct.len(), OF_ONE_ENDPOINT);
        say(&clients[0], "?");
        assert_eq!(ended(&ballast, FlowEnd::Evicted), evicted as u64 + 1);
        foreign_client_is_served();
    });
}

#[test]
fn a_port_serves_a_flow_of_each_endpoint_and_answers_are_not_mixed_up() {
    for (threads, count) in [(1, 240), (2, 150)] {
        let Some(site) = few_ports(RANGE) else {
            return;
        };
        site.place.within(|| {
            let endpoints = ["127.0.0.1:7001", "127.0.0.1:7002", "[::1]:7001"].map(echo);
            let ballast = Ballast::serve(&table("127.0.0.1:7053", "", "", &endpoints), threads);
            let clients = clients(7053, count);
            for round in 0..2 {
                let question = |n: usize| format!("{round} of {n}");
                for (n, client) in clients.iter().enumerate() {
                    client.send(question(n).as_bytes()).expect("it is sent");
                }
                for (n, client) in clients.iter().enumerate() {
                    let heard = String::from_utf8(hear(client)).expect("text");
                    assert_eq!(heard, question(n));
                }
            }
            assert_eq!(ballast.in_flight() as usize, count);
            assert_eq!(ended(&ballast, FlowEnd::Evicted), 0);
            foreign_client_is_served();
        });
    }
}

#[test]
fn each_source_address_adds_its_ports() {
    let Some(site) = few_ports(RANGE) else {
        return;
    };
    site.place.within(|| {
        let source = ", source: [127.0.0.2, 127.0.0.3]";
        let (endpoint, peers) = recording("127.0.0.1:7001");
        let ballast = Ballast::serve(&table("127.0.0.1:7053", "", source, &[endpoint]), 1);
        let clients = clients(7053, 2 * OF_ONE_ENDPOINT);
        for (n, client) in clients.iter().enumerate() {
            assert_eq!(say(client, &n.to_string()), n.to_string());
        }
        assert_eq!(ballast.in_flight() as usize, clients.len());
        assert_eq!(ended(&ballast, FlowEnd::Evicted), 0);
        let peers = peers.lock().expect("nobody panicked");
        assert_eq!(peers.len(), clients.len(), "two flows with one socket");
        let from: HashSet<_> = peers.iter().map(SocketAddr::ip).collect();
        assert_eq!(from.len(), 2);
    });
}

#[test]
fn two_processes_do_not_share_a_port() {
    let Some(site) = few_ports(RANGE) else {
        return;
    };
    site.place.within(|| {
        let (endpoint, peers) = recording("127.0.0.1:7001");
        let both = [7053, 7054].map(|port| {
            let bind = format!("127.0.0.1:{port}");
            Ballast::serve(&table(&bind, "", "", &[endpoint]), 1)
        });
        let clients = [7053, 7054].map(|port| clients(port, 40));
        for n in 0..40 {
            for clients in &clients {
                assert_eq!(say(&clients[n], &n.to_string()), n.to_string());
            }
        }
        assert_eq!(both.each_ref().map(Ballast::in_flight), [40, 40]);
        assert_eq!(peers.lock().expect("nobody panicked").len(), 80);
    });
}

#[test]
fn without_any_port_clients_are_refused_by_name_and_with_one_they_take_turns() {
    for (range, reserved) in [(RANGE, "40000-40099"), ("40000 40000", "")] {
        let Some(site) = few_ports(range) else {
            return;
        };
        site.place.set("ipv4/ip_local_reserved_ports", reserved);
        site.place.within(|| {
            let endpoint = ports_of_peers(7001);
            let ballast = Ballast::serve(&table("127.0.0.1:7053", "", "", &[endpoint]), 1);
            for client in clients(7053, 3) {
                if reserved.is_empty() {
                    assert_eq!(say(&client, "?"), "40000");
                    assert_eq!(ballast.in_flight(), 1);
                } else {
                    let before = dropped(&ballast, Dropped::MaxConnections);
                    client.send(b"?").expect("it is sent");
                    ballast
                        .until(|ballast| dropped(ballast, Dropped::MaxConnections) == before + 1);
                    assert_eq!(ballast.in_flight(), 0);
                }
            }
        });
    }
}

/// A network with so few ports that flows use them up. Clients and servers here have ports outside of the range.
fn few_ports(range: &str) -> Option<Site> {
    let site = Site::build(0)?;
    site.place.set("ipv4/ip_local_port_range", range);
    Some(site)
}

fn clients(port: u16, count: usize) -> Vec<UdpSocket> {
    let socket = |n| {
        let socket = UdpSocket::bind(("127.0.0.1", 20_000 + n)).expect("a socket");
        socket.connect(("127.0.0.1", port)).expect("an address");
        patient(&socket);
        socket
    };
    // Each frontend has clients of its own.
    let first = (port - 7_000) * 100;
    (first..).take(count).map(socket).collect()
}

/// Another program of the host is not kept from sending datagrams.
fn foreign_client_is_served() {
    let foreign = client(SocketAddr::from(([127, 0, 0, 1], 7001)));
    assert!(!say(&foreign, "?").is_empty());
}

fn echo(bind: &str) -> SocketAddr {
    recording(bind).0
}

/// Sends each datagram back, and notes who sent it.
fn recording(bind: &str) -> (SocketAddr, Arc<Mutex<HashSet<SocketAddr>>>) {
    let peers = Arc::new(Mutex::new(HashSet::new()));
    let noted = Arc::clone(&peers);
    let address = crate::udp::answering_to(bind, move |asked, peer| {
        noted.lock().expect("nobody panicked").insert(peer);
        asked.to_vec()
    });
    (address, peers)
}

/// Answers each datagram with the port that it came from.
fn ports_of_peers(port: u16) -> SocketAddr {
    let bind = format!("127.0.0.1:{port}");
    crate::udp::answering_to(&bind, |_, peer| peer.port().to_string().into_bytes())
}
