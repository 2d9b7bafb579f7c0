//! Requests on connections that stay: 64 bytes, or messages of some KiB, there and back. Closed loop: each connection asks
//! again when it is answered. Open loop: requests are due at a fixed rate, and wait where every connection is busy.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use serde_json::Value;

use crate::client::{self, Meter};
use crate::load::Load;
use crate::origin;
use crate::pace::{Pacer, TIMER};
use crate::poll::{EventFlags, Poll};

/// Asks for one window.
pub(crate) fn run(load: &Load) -> io::Result<Value> {
    let mut requests = Requests::open(load)?;
    let mut meter = Meter::new(load);
    requests.begin(&mut meter);
    while !meter.is_over() {
        requests.turn(&mut meter)?;
    }
    Ok(meter.finish())
}

/// A request under way on one connection.
pub(crate) struct Exchange {
    fd: OwnedFd,
    /// When it was sent or, in open loop, should have been.
    pub(crate) since: Instant,
    to_send: usize,
    to_receive: usize,
}

impl Exchange {
    pub(crate) fn new(fd: OwnedFd, since: Instant, size: usize) -> Self {
        Self {
            fd,
            since,
            to_send: size,
            to_receive: size,
        }
    }

    /// Does what an event allows; `true`: the answer is complete.
    #[inline]
    pub(crate) fn work(
        &mut self,
        flags: EventFlags,
        payload: &[u8],
        scratch: &mut [u8],
    ) -> io::Result<bool> {
        if self.to_send > 0 && flags.contains(EventFlags::OUT) {
            self.send(payload)?;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(false);
        }
        match net::recv(&self.fd, &mut *scratch, RecvFlags::empty()) {
            Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, length)) => {
                self.to_receive = self.to_receive.saturating_sub(length);
                Ok(self.to_receive == 0)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    #[inline]
    fn ask(&mut self, since: Instant, payload: &[u8]) -> io::Result<()> {
        self.since = since;
        self.to_send = payload.len();
        self.to_receive = payload.len();
        self.send(payload)
    }

    #[inline]
    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let rest = &payload[payload.len() - self.to_send..];
        match net::send(&self.fd, rest, SendFlags::NOSIGNAL) {
            Ok(taken) => {
                self.to_send -= taken;
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

struct Requests {
    poll: Poll,
    exchanges: Vec<Option<Exchange>>,
    standing: usize,
    payload: Vec<u8>,
    scratch: Vec<u8>,
    /// Open loop only.
    pacer: Option<Pacer>,
    free: VecDeque<usize>,
    late: VecDeque<Instant>,
}

impl Requests {
    fn open(load: &Load) -> io::Result<Self> {
        let poll = Poll::new()?;
        let now = Instant::now();
        let mut exchanges = Vec::new();
        for token in 0..load.connections {
            let fd = client::connect(load.to)?;
            poll.add_stream(&fd, token)?;
            exchanges.push(Some(Exchange::new(fd, now, 0)));
        }
        Ok(Self {
            pacer: load.rate.map(|rate| Pacer::new(&poll, rate)).transpose()?,
            poll,
            exchanges,
            standing: load.connections,
            payload: vec![origin::ECHO; load.size],
            scratch: vec![0; SCRATCH],
            free: VecDeque::new(),
            late: VecDeque::new(),
        })
    }

    fn begin(&mut self, meter: &mut Meter<'_>) {
        let now = Instant::now();
        for token in 0..self.exchanges.len() {
            self.proceed(token, now, meter);
        }
    }

    fn turn(&mut self, meter: &mut Meter<'_>) -> io::Result<()> {
        let ready = self.poll.wait(Some(TURN))?;
        for index in 0..ready {
            let (token, flags) = self.poll.event(index);
            if token != TIMER {
                self.serve(token, flags, meter);
            }
        }
        if self.standing == 0 {
            return Err(io::Error::other("every connection broke"));
        }
        self.send_due(meter)
    }

    fn serve(&mut self, token: usize, flags: EventFlags, meter: &mut Meter<'_>) {
        let Some(Some(exchange)) = self.exchanges.get_mut(token) else {
            return;
        };
        match exchange.work(flags, &self.payload, &mut self.scratch) {
            Ok(false) => {}
            Ok(true) => {
                let now = Instant::now();
                meter.count_latency(now - exchange.since);
                self.proceed(token, now, meter);
            }
            Err(_) => self.lose(token, meter),
        }
    }

    /// Connection `token` is free: it asks at once, or waits for what is due.
    #[inline]
    fn proceed(&mut self, token: usize, now: Instant, meter: &mut Meter<'_>) {
        let since = match &self.pacer {
            None => Some(now),
            Some(_) => self.late.pop_front(),
        };
        match since {
            Some(since) => self.ask(token, since, meter),
            None => self.free.push_back(token),
        }
    }

    fn send_due(&mut self, meter: &mut Meter<'_>) -> io::Result<()> {
        let now = Instant::now();
        let Some(mut pacer) = self.pacer.take() else {
            return Ok(());
        };
        while let Some(due) = pacer.due(now) {
            match self.free.pop_front() {
                Some(token) => self.ask(token, due, meter),
                None => self.late.push_back(due),
            }
        }
        let armed = pacer.arm(now);
        self.pacer = Some(pacer);
        armed
    }

    #[inline]
    fn ask(&mut self, token: usize, since: Instant, meter: &mut Meter<'_>) {
        if let Some(Some(exchange)) = self.exchanges.get_mut(token)
            && exchange.ask(since, &self.payload).is_err()
        {
            self.lose(token, meter);
        }
    }

    fn lose(&mut self, token: usize, meter: &mut Meter<'_>) {
        if let Some(slot) = self.exchanges.get_mut(token)
            && slot.take().is_some()
        {
            self.standing -= 1;
            meter.count_error();
        }
    }
}

const SCRATCH: usize = 64 * 1024;
/// How long a turn waits at most, so that the window ends in time where nothing happens.
const TURN: Duration = Duration::from_millis(20);
