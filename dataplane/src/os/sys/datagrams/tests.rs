//! Tests with real sockets of both families.

use std::net::UdpSocket;
use std::time::Duration;

use super::*;

fn pair(ip: IpAddr) -> (UdpSocket, UdpSocket) {
    let one = UdpSocket::bind((ip, 0)).unwrap();
    let other = UdpSocket::bind((ip, 0)).unwrap();
    for socket in [&one, &other] {
        let wait = Some(Duration::from_secs(10));
        socket.set_read_timeout(wait).unwrap();
        enable_ancillary_data(socket, ip.is_ipv4()).unwrap();
        allow_fragments(socket, ip.is_ipv4()).unwrap();
    }
    (one, other)
}

fn await_one(inbox: &mut Inbox, socket: &UdpSocket) -> usize {
    socket.peek(&mut [0]).unwrap();
    inbox.receive(socket, 0, BATCH).unwrap()
}

#[test]
fn datagrams_of_any_size_arrive_whole_with_both_their_addresses() {
    for ip in ["127.0.0.1", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        let (one, other) = pair(ip);
        let mut inbox = Inbox::new(4);
        for size in [0, 1, 4_096, 60_000, 65_507] {
            let payload = vec![7; size];
            let outgoing = Outgoing {
                bytes: &payload,
                to: Some(other.local_addr().unwrap()),
                ..Outgoing::default()
            };
            send(&one, &outgoing).unwrap();
            assert_eq!(await_one(&mut inbox, &other), 1);
            let received = inbox.datagram(0).unwrap();
            assert_eq!(received.bytes, payload);
            assert_eq!(received.peer, Some(one.local_addr().unwrap()));
            assert_eq!(received.local, Some(ip));
            assert_eq!((received.segment, received.count()), (None, 1));
        }
    }
}

#[test]
fn a_datagram_leaves_from_the_address_that_was_asked_for_with_its_head_before_it() {
    let wild = UdpSocket::bind("0.0.0.0:0").unwrap();
    let to = UdpSocket::bind("127.0.0.1:0").unwrap();
    let from: IpAddr = "127.0.0.9".parse().unwrap();
    let outgoing = Outgoing {
        head: b"head, ",
        bytes: b"rest",
        to: Some(to.local_addr().unwrap()),
        from: Some(from),
        segment: None,
    };
    send(&wild, &outgoing).unwrap();
    let mut heard = [0; 32];
    let (length, peer) = to.recv_from(&mut heard).unwrap();
    assert_eq!(&heard[..length], b"head, rest");
    assert_eq!(
        peer,
        SocketAddr::new(from, wild.local_addr().unwrap().port())
    );
}

#[test]
fn many_are_sent_and_received_at_once_and_no_more_than_there_is_room_for() {
    let (one, other) = pair("127.0.0.1".parse().unwrap());
    let payloads: Vec<[u8; 1]> = (0..40).map(|n| [n]).collect();
    let to = Some(other.local_addr().unwrap());
    let outgoing: Vec<Outgoing<'_>> = payloads
        .iter()
        .map(|bytes| Outgoing {
            bytes,
            to,
            ..Outgoing::default()
        })
        .collect();
    assert_eq!(send_many(&one, &outgoing).unwrap(), BATCH);
    assert_eq!(send_many(&one, &outgoing[BATCH..]).unwrap(), 40 - BATCH);
    let mut inbox = Inbox::new(50);
    let mut there = 0;
    while there < 40 {
        other.peek(&mut [0]).unwrap();
        let most = if there == 0 { 5 } else { BATCH };
        let received = inbox.receive(&other, there, most).unwrap();
        assert!(received <= most);
        there += received;
    }
    for (slot, payload) in payloads.iter().enumerate() {
        assert_eq!(inbox.datagram(slot).unwrap().bytes, payload);
    }
    let error = inbox.receive(&other, 0, 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn what_is_sent_in_segments_is_received_glued_and_can_be_taken_apart() {
    let (one, other) = pair("127.0.0.1".parse().unwrap());
    let payload: Vec<u8> = (0..25_u8).collect();
    let outgoing = Outgoing {
        bytes: &payload,
        to: Some(other.local_addr().unwrap()),
        segment: Some(10),
        ..Outgoing::default()
    };
    send(&one, &outgoing).unwrap();
    let mut inbox = Inbox::new(8);
    let mut heard: Vec<Vec<u8>> = Vec::new();
    while heard.len() < 3 {
        for slot in 0..await_one(&mut inbox, &other) {
            let received = inbox.datagram(slot).unwrap();
            heard.extend(received.each().map(Vec::from));
        }
    }
    assert_eq!(heard, [&payload[..10], &payload[10..20], &payload[20..]]);
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let (one, other) = pair("127.0.0.1".parse().unwrap());
    socket2::SockRef::from(&other)
        .set_recv_buffer_size(4_096)
        .unwrap();
    let to = other.local_addr().unwrap();
    for _ in 0..100 {
        one.send_to(&[0; 1_000], to).unwrap();
    }
    let mut inbox = Inbox::new(BATCH);
    let mut heard = 0;
    while let Ok(received) = inbox.receive(&other, 0, BATCH) {
        heard += received;
    }
    one.send_to(b"last", to).unwrap();
    assert_eq!(await_one(&mut inbox, &other), 1);
    let drops = inbox.datagram(0).unwrap().drops.unwrap();
    assert_eq!(heard + drops as usize, 100);
    // A process that gets the socket now begins to count at this number.
    assert_eq!(super::drops(&other).unwrap(), drops);
    assert_eq!(super::drops(&one).unwrap(), 0);
}
