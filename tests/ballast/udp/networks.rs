//! What needs more than loopback: several addresses, routers that cut packets, devices that refuse.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use ballast::sys::datagrams::{self, Outgoing};

use crate::udp::{Ballast, answering, client, count, free_udp_port, hear, patient, table};
use support::netns::{PLACE, Site, node_address};

#[test]
fn answers_leave_from_the_address_that_was_asked_also_one_that_came_later() {
    let Some(site) = Site::build(1) else {
        return;
    };
    site.place.ip("address add 10.77.0.99/24 dev switch");
    site.place.ip("address add 2001:db8::1/64 dev switch nodad");
    site.place
        .ip("address add 2001:db8::99/64 dev switch nodad");
    site.nodes[0].ip("address add 2001:db8::2/64 dev eth0 nodad");
    let ballast = site.place.within(|| {
        let server = answering("127.0.0.1:0", <[u8]>::to_vec);
        Ballast::serve(&table("*:7053", "", "", &[server]), 2)
    });
    let asked_of = |hosts: &[&str]| {
        site.nodes[0].within(|| {
            for host in hosts {
                let host: IpAddr = host.parse().expect("an address");
                let any = if host.is_ipv4() {
                    "0.0.0.0:0"
                } else {
                    "[::]:0"
                };
                // Not connected, so that it hears from whatever address the answer leaves.
                let socket = UdpSocket::bind(any).expect("a socket");
                patient(&socket);
                let asked = SocketAddr::new(host, 7053);
                for size in [5, 4_096] {
                    socket.send_to(&vec![7; size], asked).expect("it is sent");
                    let mut heard = [0; 8_192];
                    let (length, peer) = socket.recv_from(&mut heard).expect("an answer");
                    assert_eq!((length, peer), (size, asked));
                }
            }
        });
    };
    asked_of(&["10.77.0.1", "10.77.0.99", "2001:db8::1", "2001:db8::99"]);
    site.place.ip("address add 10.77.0.200/24 dev switch");
    site.place
        .ip("address add 2001:db8::200/64 dev switch nodad");
    asked_of(&["10.77.0.200", "2001:db8::200", "10.77.0.99"]);
    drop(ballast);
}

#[test]
fn large_datagrams_pass_in_fragments_both_ways() {
    let Some(site) = Site::build(2) else {
        return;
    };
    for (node, host) in [(0, "2001:db8::2"), (1, "2001:db8::3")] {
        site.nodes[node].ip(&format!("address add {host}/64 dev eth0 nodad"));
    }
    site.place.ip("address add 2001:db8::1/64 dev switch nodad");
    for (place, client_host, server_host) in [
        (IpAddr::from(PLACE), "10.77.0.2", "10.77.0.3"),
        (
            "2001:db8::1".parse().expect("an address"),
            "2001:db8::2",
            "2001:db8::3",
        ),
    ] {
        let host: IpAddr = server_host.parse().expect("an address");
        let server = site.nodes[1]
            .within(|| answering(&SocketAddr::new(host, 7001).to_string(), <[u8]>::to_vec));
        let bind = SocketAddr::new(place, 7053);
        let ballast = site
            .place
            .within(|| Ballast::serve(&table(&bind.to_string(), "", "", &[server]), 1));
        site.nodes[0].within(|| {
            let from: IpAddr = client_host.parse().expect("an address");
            let socket = UdpSocket::bind((from, 0)).expect("a socket");
            datagrams::allow_fragments(&socket, from.is_ipv4()).expect("an option");
            socket.connect(bind).expect("an address");
            patient(&socket);
            for size in [0, 1_400, 4_096, 60_000, 1] {
                let payload: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
                socket.send(&payload).expect("it is sent");
                assert_eq!(hear(&socket), payload, "{size} bytes to {bind}");
            }
        });
        drop(ballast);
    }
}

#[test]
fn a_group_that_the_way_to_the_endpoint_cannot_take_goes_datagram_by_datagram() {
    let Some(site) = Site::build(1) else {
        return;
    };
    let address = SocketAddr::from((node_address(0), 7001));
    let server = site.nodes[0].within(|| {
        let socket = UdpSocket::bind(address).expect("a socket");
        patient(&socket);
        socket
    });
    site.place.within(|| {
        let ballast = Ballast::serve(&table("127.0.0.1:0", "", "", &[address]), 1);
        let client = client(ballast.address());
        // Loopback takes such a group as it is, and glues it together again; a packet of the way behind holds no
        // datagram of it.
        for round in 0..3_u8 {
            let group = vec![round; 10 * 4_000 + 7];
            let outgoing = Outgoing {
                bytes: &group,
                segment: Some(4_000),
                ..Outgoing::default()
            };
            datagrams::send(&client, &outgoing).expect("it is sent");
            let sizes: Vec<usize> = (0..11).map(|_| hear(&server).len()).collect();
            assert_eq!(sizes[..10], [4_000; 10]);
            assert_eq!(sizes[10], 7);
        }
        assert_eq!(count(&ballast, |udp| udp.datagrams_in.value()), 33);
        assert_eq!(count(&ballast, |udp| udp.unsent.value()), 0);
    });
}

#[test]
fn a_group_that_the_way_to_the_client_cannot_take_goes_datagram_by_datagram() {
    let Some(site) = Site::build(1) else {
        return;
    };
    let bind = SocketAddr::from((PLACE, free_udp_port()));
    let (ballast, server) = site.place.within(|| {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        patient(&server);
        let endpoint = server.local_addr().expect("an address");
        let ballast = Ballast::serve(&table(&bind.to_string(), "", "", &[endpoint]), 1);
        (ballast, server)
    });
    let client = site.nodes[0].within(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.connect(bind).expect("an address");
        patient(&socket);
        socket
    });
    client.send(b"send me much").expect("it is sent");
    let (_, peer) = server.recv_from(&mut [0; 64]).expect("a question");
    let group = vec![3; 6 * 4_000 + 7];
    let mut sent = 0;
    // Answers are only glued where they come in bulk: many at once, until there was a group.
    for _ in 0..20 {
        for _ in 0..2 {
            let outgoing = Outgoing {
                bytes: &group,
                to: Some(peer),
                segment: Some(4_000),
                ..Outgoing::default()
            };
            datagrams::send(&server, &outgoing).expect("it is sent");
            sent += 7;
        }
        let sizes: Vec<usize> = (0..14).map(|_| hear(&client).len()).collect();
        assert_eq!(sizes.iter().filter(|size| **size == 4_000).count(), 12);
        assert_eq!(sizes.iter().filter(|size| **size == 7).count(), 2);
    }
    assert_eq!(count(&ballast, |udp| udp.datagrams_out.value()), sent);
    assert_eq!(count(&ballast, |udp| udp.unsent.value()), 0);
}

#[test]
fn what_was_gathered_goes_apart_where_a_path_is_too_narrow_for_it() {
    let Some(site) = Site::build(2) else {
        return;
    };
    site.place.ip("link set switch mtu 1280");
    let server = SocketAddr::from((node_address(1), 7001));
    let server = site.nodes[1].within(|| answering(&server.to_string(), <[u8]>::to_vec));
    let bind = SocketAddr::from((PLACE, 7053));
    let ballast = site
        .place
        .within(|| Ballast::serve(&table(&bind.to_string(), "", "", &[server]), 1));
    let socket = site.nodes[0].within(|| UdpSocket::bind("0.0.0.0:0").expect("a socket"));
    socket.connect(bind).expect("an address");
    patient(&socket);
    for round in 0..5_u8 {
        let payloads: Vec<Vec<u8>> = (0..8).map(|n| vec![round * 8 + n; 1_400]).collect();
        let datagrams: Vec<Outgoing<'_>> = payloads
            .iter()
            .map(|bytes| Outgoing {
                bytes,
                ..Outgoing::default()
            })
            .collect();
        assert_eq!(datagrams::send_many(&socket, &datagrams).expect("sent"), 8);
        let mut heard: Vec<Vec<u8>> = (0..8).map(|_| hear(&socket)).collect();
        heard.sort();
        assert_eq!(heard, payloads);
    }
    assert_eq!(count(&ballast, |udp| udp.datagrams_in.value()), 40);
    assert_eq!(count(&ballast, |udp| udp.datagrams_out.value()), 40);
    assert_eq!(count(&ballast, |udp| udp.unsent.value()), 0);
}
