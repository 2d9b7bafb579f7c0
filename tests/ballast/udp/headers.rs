//! PROXY headers of datagrams: to endpoints, and from trusted peers.

use std::net::UdpSocket;

use ballast_core::flow::Dropped;
use ballast_core::preamble::{self, Addresses, Extras, Parsed, Transport, Versions};

use crate::udp::{Ballast, client, dropped, hear, patient, table};

#[test]
fn proxy_headers_go_out_with_every_datagram_or_with_the_first() {
    for (service, headers) in [
        (", send-proxy: v2", [true, true, true]),
        (
            ", send-proxy: v2, send-proxy-udp: first",
            [true, false, false],
        ),
    ] {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        patient(&server);
        let address = server.local_addr().expect("an address");
        let ballast = Ballast::serve(&table("127.0.0.1:0", "", service, &[address]), 1);
        let client = client(ballast.address());
        for has_header in headers {
            client.send(b"payload").expect("it is sent");
            let mut heard = [0; 256];
            let length = server.recv(&mut heard).expect("a datagram");
            let heard = &heard[..length];
            if !has_header {
                assert_eq!(heard, b"payload");
                continue;
            }
            let Parsed::Header(header) = preamble::step(heard, Versions::V2, Transport::Udp) else {
                panic!("no header: {heard:?}");
            };
            assert_eq!(header.addresses.source, client.local_addr().expect("ours"));
            assert_eq!(header.addresses.destination, ballast.address());
            assert_eq!(
                (header.length, &heard[header.length..]),
                (28, &b"payload"[..])
            );
        }
    }
}

#[test]
fn a_flow_carries_the_header_as_the_table_in_force_has_it() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    patient(&server);
    let address = server.local_addr().expect("an address");
    let table = |frontend: &str, service: &str| table("127.0.0.1:0", frontend, service, &[address]);
    let ballast = Ballast::serve(&table("", ""), 1);
    let client = client(ballast.address());
    // Whether the next datagram has a header, and where it came from.
    let next = || {
        client.send(b"payload").expect("it is sent");
        let mut heard = [0; 256];
        let (length, from) = server.recv_from(&mut heard).expect("a datagram");
        let parsed = preamble::step(&heard[..length], Versions::V2, Transport::Udp);
        if let Parsed::Header(header) = &parsed {
            assert_eq!(header.addresses.source, client.local_addr().expect("ours"));
            assert_eq!(header.addresses.destination, ballast.address());
        }
        (matches!(parsed, Parsed::Header(_)), from)
    };
    let (has_header, flow) = next();
    assert!(!has_header);
    let (every, first) = (
        ", send-proxy: v2",
        ", send-proxy: v2, send-proxy-udp: first",
    );
    // A flow that had a header gets none once more.
    for (service, next_has, then) in [
        (every, true, true),
        ("", false, false),
        (first, true, false),
        (every, true, true),
        (first, false, false),
        ("", false, false),
    ] {
        ballast.swap(&table("", service));
        // Workers revise their flows soon after the swap.
        ballast.until(|_| next().0 == next_has);
        // Another idle time revises flows again, and sends no header again.
        ballast.swap(&table(", timeouts: {idle: 50s}", service));
        for _ in 0..5 {
            assert_eq!(next(), (then, flow), "{service:?}");
        }
    }
}

#[test]
fn proxy_headers_are_taken_from_trusted_peers_and_broken_ones_are_dropped() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    patient(&server);
    let address = server.local_addr().expect("an address");
    let table = |more: &str| {
        table(
            "127.0.0.1:0",
            ", accept-proxy: {from: [127.0.0.0/8]}, source-ranges: [192.0.2.0/24]",
            &format!(", send-proxy: v2{more}"),
            &[address],
        )
    };
    let ballast = Ballast::serve(&table(""), 1);
    let proxy = client(ballast.address());
    let told = Addresses {
        source: "192.0.2.9:999".parse().expect("an address"),
        destination: "198.51.100.1:53".parse().expect("an address"),
    };
    let mut datagram = Vec::new();
    preamble::encode_v2(told, Transport::Udp, &Extras::default(), &mut datagram);
    datagram.extend_from_slice(b"hello");
    let hear_header = || {
        let mut heard = [0; 256];
        let (length, peer) = server.recv_from(&mut heard).expect("a datagram");
        let Parsed::Header(header) = preamble::step(&heard[..length], Versions::V2, Transport::Udp)
        else {
            panic!("no header");
        };
        assert_eq!(header.addresses, told);
        let payload = heard[header.length..length].to_vec();
        (payload, peer, header.length)
    };
    proxy.send(b"without a header").expect("it is sent");
    proxy.send(&datagram[..20]).expect("it is sent");
    ballast.until(|ballast| dropped(ballast, Dropped::ProxyHeader) == 2);
    proxy.send(&datagram).expect("it is sent");
    let (payload, peer, length) = hear_header();
    assert_eq!(payload, b"hello");
    proxy.send(b"no header any more").expect("it is sent");
    assert_eq!(hear_header().0, b"no header any more");
    server.send_to(b"answer", peer).expect("it is sent");
    assert_eq!(hear(&proxy), b"answer");
    // What the flow's first header said stays when a table adds a checksum.
    ballast.swap(&table(", send-proxy-tlvs: [crc32c]"));
    ballast.until(|_| {
        proxy.send(b"and later").expect("it is sent");
        hear_header().2 > length
    });

    let foreign = Addresses {
        source: "203.0.113.9:999".parse().expect("an address"),
        ..told
    };
    datagram.clear();
    preamble::encode_v2(foreign, Transport::Udp, &Extras::default(), &mut datagram);
    proxy.send(&datagram).expect("it is sent");
    ballast.until(|ballast| dropped(ballast, Dropped::SourceRange) == 1);
}
