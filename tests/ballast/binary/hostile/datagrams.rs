//! Datagrams of every size, from many addresses and ports, and headers in them that are none.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ballast::sys::datagrams::{Outgoing, send_many};

use super::{Most, Siege, datagram_client, is_answered, source};
use crate::process::replace;

#[test]
fn the_longest_and_the_shortest_datagrams_pass_and_hold_nothing() {
    let siege = Siege::new();
    let client = datagram_client(siege.udp);
    for length in [0, 1, 1_472, 9_000, 65_507] {
        let sent = vec![7; length];
        let mut heard = vec![0; 65_536];
        let echoed = (0..5).find_map(|_| {
            client.send(&sent).unwrap();
            client.recv(&mut heard).ok()
        });
        assert_eq!(echoed, Some(length), "a datagram of {length} bytes");
        assert!(
            heard[..length] == sent,
            "a datagram of {length} bytes was changed"
        );
    }
    for _ in 0..2_000 {
        client.send(&[7; 65_507]).unwrap();
        client.send(&[]).unwrap();
    }
    siege.serves_others();
    siege.has_cost(
        "giant and tiny datagrams",
        &Most {
            mebibytes: 32,
            cpu: 10.0,
        },
    );
}

/// A flow has a descriptor at most, and ends after 2 s here: the floods leave none.
#[test]
fn floods_from_invented_addresses_and_ports_are_forgotten() {
    let siege = Siege::new();
    let flood = UdpSocket::bind("0.0.0.0:0").unwrap();
    let begun = Instant::now();
    let mut number = 0;
    while number < FLOOD && begun.elapsed() < AT_MOST {
        let sources: Vec<IpAddr> = (0..32).map(|next| source(number + next).into()).collect();
        let outgoing = |from: &IpAddr| Outgoing {
            bytes: b"nobody hears this",
            to: Some(siege.udp),
            from: Some(*from),
            ..Outgoing::default()
        };
        send_many(&flood, &sources.iter().map(outgoing).collect::<Vec<_>>()).unwrap();
        number += 32;
    }
    for _ in 0..2_000 {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        one.send_to(b"x", siege.udp).unwrap();
    }
    let now = siege.has_cost(
        "a flood of clients",
        &Most {
            mebibytes: 64,
            cpu: 30.0,
        },
    );
    assert!(now.sockets < 18_000, "{} sockets", now.sockets);
    is_answered(&datagram_client(siege.udp));
    siege.until_let_go();
    siege.serves_others();
}

/// Each is counted, opens no flow, and nobody is told.
#[test]
fn headers_that_are_none_open_no_flow() {
    let siege = Siege::new();
    let endpoint = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp: SocketAddr = crate::peers::fresh_address();
    let behind = endpoint.local_addr().unwrap();
    replace(
        &siege.folder,
        &format!(
            "version: 1\nfrontends: [{{name: f, bind: [\"{udp}\"], protocol: udp, service: s, accept-proxy: {{from: [\"127.0.0.0/8\"]}}}}]\nservices: [{{name: s, endpoints: [{{address: \"{behind}\"}}]}}]\n"
        ),
    );
    let dropped = |reason: &str| {
        let name = format!("ballast_udp_dropped_total{{frontend=\"f\",reason=\"{reason}\"}} ");
        let metrics = siege.process.metrics();
        let count = metrics.lines().find_map(|line| line.strip_prefix(&*name));
        count.map_or(0, |count| count.parse::<usize>().unwrap())
    };
    siege.process.until("the next table", || {
        siege.process.metrics().contains("proxy=\"f\"")
    });
    let whole = [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c".as_slice(),
        &[192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2],
    ]
    .concat();
    let client = datagram_client(udp);
    let mut sent = 0;
    for end in 1..whole.len() {
        client.send(&whole[..end]).unwrap();
        sent += 1;
    }
    for at in 0..16 {
        let mut wrong = whole.clone();
        wrong[at] ^= 0x55;
        client.send(&wrong).unwrap();
        sent += 1;
    }
    let longer = [&whole[..14], &[0xff, 0xff], &whole[16..]].concat();
    client.send(&longer).unwrap();
    sent += 1;
    siege
        .process
        .until("all are counted", || dropped("proxy-header") == sent);
    endpoint.set_nonblocking(true).unwrap();
    assert!(
        endpoint.recv(&mut [0; 64]).is_err(),
        "a header that is none was passed on"
    );
    client.send(&[&*whole, b"well"].concat()).unwrap();
    endpoint.set_nonblocking(false).unwrap();
    endpoint
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut heard = [0; 64];
    assert_eq!(endpoint.recv(&mut heard).unwrap(), 4);
    siege.has_cost(
        "headers that are none",
        &Most {
            mebibytes: 16,
            cpu: 5.0,
        },
    );
}

const FLOOD: u32 = 100_000;
const AT_MOST: Duration = Duration::from_secs(20);
