//! The floor for datagrams: one thread, a connected socket for each client, batches where there are several, and nothing
//! else. No flow ever ends but where one answer is all that there is.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use ballast::sys::datagrams::{self, BATCH, Inbox, Outgoing};

use crate::poll::{EventFlags, Poll};
use crate::udp_origin;

/// Serves `listen`, and the port above where each flow is one question and one answer.
pub(crate) fn run(listen: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let above = SocketAddr::new(listen.ip(), listen.port() + 1);
    let doors = [udp_origin::bind(listen)?, udp_origin::bind(above)?];
    for (token, door) in doors.iter().enumerate() {
        poll.add(door, token, EventFlags::IN)?;
    }
    let mut floor = Floor {
        to,
        known: HashMap::new(),
        flows: Vec::new(),
        free: Vec::new(),
    };
    let mut inbox = Inbox::new(BATCH);
    loop {
        let ready = poll.wait(None)?;
        let mut answered = Vec::new();
        for index in 0..ready {
            let (token, _) = poll.event(index);
            match doors.get(token) {
                Some(door) => floor.ask(token, door, &mut inbox, &poll),
                None => answered.push(token - doors.len()),
            }
        }
        floor.answer(&doors, &answered, &mut inbox);
    }
}

struct Floor {
    to: SocketAddr,
    known: HashMap<(usize, SocketAddr), usize>,
    flows: Vec<Option<Flow>>,
    free: Vec<usize>,
}

struct Flow {
    door: usize,
    client: SocketAddr,
    socket: UdpSocket,
}

impl Floor {
    fn ask(&mut self, door: usize, socket: &UdpSocket, inbox: &mut Inbox, poll: &Poll) {
        let received = inbox.receive(socket, 0, BATCH).unwrap_or(0);
        for datagram in (0..received).filter_map(|slot| inbox.datagram(slot)) {
            let Some(client) = datagram.peer else {
                continue;
            };
            let Some(flow) = self.flow(door, client, poll) else {
                continue;
            };
            let outgoing = Outgoing {
                bytes: datagram.bytes,
                segment: datagram.segment.and_then(|size| u16::try_from(size).ok()),
                ..Outgoing::default()
            };
            datagrams::send(&flow.socket, &outgoing).ok();
        }
    }

    fn flow(&mut self, door: usize, client: SocketAddr, poll: &Poll) -> Option<&Flow> {
        let place = match self.known.get(&(door, client)) {
            Some(place) => *place,
            None => {
                let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)).ok()?;
                socket.connect(self.to).ok()?;
                socket.set_nonblocking(true).ok()?;
                let place = self.free.pop().unwrap_or_else(|| {
                    self.flows.push(None);
                    self.flows.len() - 1
                });
                poll.add(&socket, place + DOORS, EventFlags::IN).ok()?;
                self.known.insert((door, client), place);
                *self.flows.get_mut(place)? = Some(Flow {
                    door,
                    client,
                    socket,
                });
                place
            }
        };
        self.flows.get(place)?.as_ref()
    }

    fn answer(&mut self, doors: &[UdpSocket], places: &[usize], inbox: &mut Inbox) {
        for some in places.chunks(BATCH / AT_A_TIME) {
            let mut filled = Vec::new();
            let mut used = 0;
            for place in some {
                let Some(Some(flow)) = self.flows.get(*place) else {
                    continue;
                };
                let received = inbox.receive(&flow.socket, used, AT_A_TIME).unwrap_or(0);
                let slots = used..used + received;
                filled.extend(slots.map(|slot| (slot, flow.door, flow.client)));
                used += received;
            }
            for (index, door) in doors.iter().enumerate() {
                let here = filled.iter().filter(|(_, door, _)| *door == index);
                let answers: Vec<Outgoing<'_>> = here
                    .filter_map(|(slot, _, client)| {
                        Some(Outgoing {
                            bytes: inbox.datagram(*slot)?.bytes,
                            to: Some(*client),
                            ..Outgoing::default()
                        })
                    })
                    .collect();
                if !answers.is_empty() {
                    datagrams::send_many(door, &answers).ok();
                }
            }
            for (_, _, client) in filled.iter().filter(|(_, door, _)| *door == ONE_ANSWER) {
                if let Some(place) = self.known.remove(&(ONE_ANSWER, *client)) {
                    self.flows[place] = None;
                    self.free.push(place);
                }
            }
        }
    }
}

const DOORS: usize = 2;
/// The door whose flows have one answer.
const ONE_ANSWER: usize = 1;
const AT_A_TIME: usize = 8;
