//! The client of datagrams: questions of a few clients, bulk of one, a new client for each question, and clients that stay.
//!
//! Datagrams get lost; what is overdue is counted as an error and asked anew, so that a loop never comes to a halt.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ballast::sys::datagrams::{self, Inbox, Outgoing};
use serde_json::{Value, json};

use crate::client::Meter;
use crate::load::{Kind, Load};
use crate::poll::{EventFlags, Poll};
use crate::{udp_origin, usage};

/// Applies the load once somebody answers.
pub(crate) fn run(load: &Load) -> io::Result<Value> {
    wait_until_served(load.to)?;
    match load.kind {
        Kind::DatagramBulk => Bulk::run(load),
        Kind::Flows => Newcomers::run(load),
        Kind::IdleFlows => hold_idle(load),
        _ => Questions::run(load),
    }
}

/// Closed loop: each client has a few questions on the way.
struct Questions {
    poll: Poll,
    clients: Vec<Asking>,
    inbox: Inbox,
    clock: Instant,
    size: usize,
}

struct Asking {
    socket: UdpSocket,
    in_flight: usize,
    heard: Instant,
}

impl Questions {
    fn run(load: &Load) -> io::Result<Value> {
        let mut questions = Self {
            poll: Poll::new()?,
            clients: Vec::new(),
            inbox: Inbox::new(IN_FLIGHT),
            clock: Instant::now(),
            size: load.size,
        };
        for token in 0..load.connections {
            let socket = client(load.to)?;
            questions.poll.add(&socket, token, EventFlags::IN)?;
            let (in_flight, heard) = (0, Instant::now());
            let mut asking = Asking {
                socket,
                in_flight,
                heard,
            };
            questions.ask(&mut asking, IN_FLIGHT)?;
            questions.clients.push(asking);
        }
        let mut meter = Meter::new(load);
        while !meter.is_over() {
            questions.turn(&mut meter)?;
        }
        Ok(meter.finish())
    }

    fn turn(&mut self, meter: &mut Meter<'_>) -> io::Result<()> {
        let mut clients = std::mem::take(&mut self.clients);
        let ready = self.poll.wait(Some(TURN))?;
        for index in 0..ready {
            let (token, _) = self.poll.event(index);
            if let Some(asking) = clients.get_mut(token) {
                self.hear(asking, meter)?;
            }
        }
        if ready == 0 {
            for asking in &mut clients {
                if asking.in_flight > 0 && asking.heard.elapsed() > OVERDUE {
                    (0..asking.in_flight).for_each(|_| meter.count_error());
                    asking.in_flight = 0;
                    self.ask(asking, IN_FLIGHT)?;
                }
            }
        }
        self.clients = clients;
        Ok(())
    }

    fn hear(&mut self, asking: &mut Asking, meter: &mut Meter<'_>) -> io::Result<()> {
        let Ok(heard) = self.inbox.receive(&asking.socket, 0, IN_FLIGHT) else {
            return Ok(());
        };
        let now = self.clock.elapsed();
        for slot in 0..heard {
            let bytes = self.inbox.datagram(slot).map(|datagram| datagram.bytes);
            let asked = bytes.and_then(number_in).map(Duration::from_nanos);
            meter.count_latency(now.saturating_sub(asked.unwrap_or(now)));
        }
        asking.heard = Instant::now();
        asking.in_flight = asking.in_flight.saturating_sub(heard);
        self.ask(asking, heard)
    }

    fn ask(&self, asking: &mut Asking, count: usize) -> io::Result<()> {
        let mut payload = vec![udp_origin::ECHO; self.size.max(16)];
        let now = u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(0);
        write_number(&mut payload, now);
        let question = Outgoing {
            bytes: &payload,
            ..Outgoing::default()
        };
        match datagrams::send_many(&asking.socket, &vec![question; count]) {
            Ok(sent) => asking.in_flight += sent,
            // The word of an earlier loss, or no room: it will be overdue.
            Err(_) => asking.in_flight += count,
        }
        Ok(())
    }
}

/// One client that sends bursts of large datagrams, and has so many on the way that buffers hold them all. The origin says
/// how far it has come.
struct Bulk {
    socket: UdpSocket,
    burst: Vec<u8>,
    sent: u64,
    arrived: u64,
    reached: u64,
    heard: Instant,
}

impl Bulk {
    fn run(load: &Load) -> io::Result<Value> {
        let socket = client(load.to)?;
        let poll = Poll::new()?;
        poll.add(&socket, 0, EventFlags::IN)?;
        let mut bulk = Self {
            socket,
            burst: vec![udp_origin::BULK; BULK_SIZE * BURST],
            sent: 0,
            arrived: 0,
            reached: 0,
            heard: Instant::now(),
        };
        let (mut meter, mut poll) = (Meter::new(load), poll);
        while !meter.is_over() {
            bulk.send();
            poll.wait(Some(TURN))?;
            bulk.hear(&mut meter);
        }
        Ok(meter.finish())
    }

    fn send(&mut self) {
        while self.sent.saturating_sub(self.reached) + BURST as u64 <= WINDOW {
            for datagram in self.burst.chunks_exact_mut(BULK_SIZE) {
                write_number(datagram, self.sent);
                self.sent += 1;
            }
            let outgoing = Outgoing {
                bytes: &self.burst,
                segment: u16::try_from(BULK_SIZE).ok(),
                ..Outgoing::default()
            };
            if datagrams::send(&self.socket, &outgoing).is_err() {
                return;
            }
        }
    }

    fn hear(&mut self, meter: &mut Meter<'_>) {
        let mut word = [0; 64];
        while let Ok(length) = self.socket.recv(&mut word) {
            let word = word.get(..length).unwrap_or_default();
            let (Some(reached), Some(arrived)) =
                (number_in(word), word.get(8..).and_then(number_in))
            else {
                continue;
            };
            let more = arrived.saturating_sub(self.arrived);
            meter.count(usize::try_from(more).unwrap_or(0));
            self.arrived = self.arrived.max(arrived);
            self.reached = self.reached.max(reached);
            self.heard = Instant::now();
        }
        if self.heard.elapsed() > OVERDUE {
            (self.reached..self.sent).for_each(|_| meter.count_error());
            self.reached = self.sent;
            self.heard = Instant::now();
        }
    }
}

/// Closed loop: each question comes from a client that was never seen before, and will not be seen again.
struct Newcomers {
    poll: Poll,
    to: SocketAddr,
    slots: Vec<(UdpSocket, Instant)>,
    payload: Vec<u8>,
}

impl Newcomers {
    fn run(load: &Load) -> io::Result<Value> {
        let to = SocketAddr::new(load.to.ip(), load.to.port() + 1);
        let mut newcomers = Self {
            poll: Poll::new()?,
            to,
            slots: Vec::new(),
            payload: vec![udp_origin::ECHO; load.size],
        };
        for token in 0..load.connections {
            let slot = newcomers.ask(token)?;
            newcomers.slots.push(slot);
        }
        let mut meter = Meter::new(load);
        while !meter.is_over() {
            newcomers.turn(&mut meter)?;
        }
        Ok(meter.finish())
    }

    fn turn(&mut self, meter: &mut Meter<'_>) -> io::Result<()> {
        let ready = self.poll.wait(Some(TURN))?;
        for index in 0..ready {
            let (token, _) = self.poll.event(index);
            let mut answer = [0; 256];
            let Some((socket, since)) = self.slots.get(token) else {
                continue;
            };
            match socket.recv(&mut answer) {
                Ok(_) => meter.count_latency(since.elapsed()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => meter.count_error(),
            }
            let slot = self.ask(token)?;
            self.slots[token] = slot;
        }
        if ready == 0 {
            for token in 0..self.slots.len() {
                if self.slots[token].1.elapsed() > OVERDUE {
                    meter.count_error();
                    let slot = self.ask(token)?;
                    self.slots[token] = slot;
                }
            }
        }
        Ok(())
    }

    fn ask(&self, token: usize) -> io::Result<(UdpSocket, Instant)> {
        let socket = client(self.to)?;
        self.poll.add(&socket, token, EventFlags::IN)?;
        socket.send(&self.payload).ok();
        Ok((socket, Instant::now()))
    }
}

/// Opens flows, each with two questions, and weighs the proxy before and after.
fn hold_idle(load: &Load) -> io::Result<Value> {
    for _ in 0..WARM_FLOWS {
        ask_twice(load.to)?;
    }
    std::thread::sleep(load.warmup);
    let pids = load.proxy.map(usage::family).unwrap_or_default();
    let before = usage::private_bytes(&pids);
    let held: io::Result<Vec<UdpSocket>> =
        (0..load.connections).map(|_| ask_twice(load.to)).collect();
    let held = held?;
    std::thread::sleep(load.window);
    let after = usage::private_bytes(&pids);
    Ok(json!({"units": held.len(), "private_before": before, "private_after": after}))
}

fn ask_twice(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = client(to)?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    for _ in 0..2 {
        socket.send(&[udp_origin::ECHO; 64])?;
        socket.recv(&mut [0; 64])?;
    }
    Ok(socket)
}

fn wait_until_served(to: SocketAddr) -> io::Result<()> {
    let give_up = Instant::now() + START_PATIENCE;
    loop {
        let socket = client(to)?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(OVERDUE))?;
        let asked = socket
            .send(&[udp_origin::ECHO; 64])
            .and_then(|_| socket.recv(&mut [0; 64]));
        match asked {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > give_up => {
                return Err(io::Error::other(format!(
                    "no datagram comes back from {to}: {error}"
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn client(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The number that stands behind the first byte of a datagram.
pub(crate) fn number_in(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.get(1..9)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

pub(crate) fn write_number(bytes: &mut [u8], number: u64) {
    if let Some(place) = bytes.get_mut(1..9) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

/// Questions of one client that are on the way.
const IN_FLIGHT: usize = 8;
const BULK_SIZE: usize = 1_200;
/// Datagrams that the client sends with one call, and how many it has on the way at most.
const BURST: usize = 32;
const WINDOW: u64 = 128;
const TURN: Duration = Duration::from_millis(20);
/// After so long an answer counts as lost.
const OVERDUE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(5);
const START_PATIENCE: Duration = Duration::from_secs(30);
const WARM_FLOWS: usize = 20;
