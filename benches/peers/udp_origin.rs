//! The origin's datagrams, on the same two ports as its streams: the first byte says whether one is sent back, or counted.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use ballast::sys::datagrams::{self, BATCH, Inbox, Outgoing, Received};
use socket2::SockRef;

use crate::poll::{EventFlags, Poll};
use crate::udp::{number_in, write_number};

/// Serves both until the process ends.
pub(crate) fn run(listen: SocketAddr) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let other = SocketAddr::new(listen.ip(), listen.port() + 1);
    let sockets = [bind(listen)?, bind(other)?];
    for (token, socket) in sockets.iter().enumerate() {
        poll.add(socket, token, EventFlags::IN)?;
    }
    let mut inbox = Inbox::new(BATCH);
    let mut counts = HashMap::new();
    loop {
        let ready = poll.wait(None)?;
        for index in 0..ready {
            let (token, _) = poll.event(index);
            if let Some(socket) = sockets.get(token)
                && let Ok(received) = inbox.receive(socket, 0, BATCH)
            {
                serve(socket, &inbox, received, &mut counts);
            }
        }
    }
}

/// The first byte of a datagram that is sent back.
pub(crate) const ECHO: u8 = b'E';
/// The first byte of a datagram that is counted. Behind it stands its number, the first of a client's being 0.
pub(crate) const BULK: u8 = b'B';

/// A socket with room for bursts, that hears of groups as such.
pub(crate) fn bind(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    SockRef::from(&socket).set_recv_buffer_size(ROOM)?;
    datagrams::enable_ancillary_data(&socket, at.is_ipv4())?;
    Ok(socket)
}

/// How far the bulk of one client has come.
#[derive(Default)]
struct Count {
    arrived: u64,
    reached: u64,
}

fn serve(
    socket: &UdpSocket,
    inbox: &Inbox,
    received: usize,
    counts: &mut HashMap<SocketAddr, Count>,
) {
    let mut answers = Vec::with_capacity(received);
    let mut counted: Vec<Received<'_>> = Vec::new();
    for datagram in (0..received).filter_map(|slot| inbox.datagram(slot)) {
        let Some(peer) = datagram.peer else {
            continue;
        };
        if datagram.bytes.first() == Some(&BULK) {
            let count = counts.entry(peer).or_default();
            for number in datagram.each().filter_map(number_in) {
                if number == 0 {
                    *count = Count::default();
                }
                count.arrived += 1;
                count.reached = number + 1;
            }
            counted.retain(|other| other.peer != Some(peer));
            counted.push(datagram);
            continue;
        }
        answers.push(Outgoing {
            bytes: datagram.bytes,
            to: Some(peer),
            from: datagram.local,
            segment: datagram.segment.and_then(|size| u16::try_from(size).ok()),
            ..Outgoing::default()
        });
    }
    if !answers.is_empty() {
        // What finds no room is lost, as datagrams are.
        datagrams::send_many(socket, &answers).ok();
    }
    for datagram in counted {
        let Some((peer, count)) = datagram
            .peer
            .zip(datagram.peer.and_then(|p| counts.get(&p)))
        else {
            continue;
        };
        let mut word = [BULK; 17];
        write_number(&mut word, count.reached);
        write_number(&mut word[8..], count.arrived);
        let answer = Outgoing {
            bytes: &word,
            to: Some(peer),
            from: datagram.local,
            ..Outgoing::default()
        };
        datagrams::send(socket, &answer).ok();
    }
}

const ROOM: usize = 4 << 20;
