//! Requests on connections that stay: 64 bytes, messages of some KiB, or requests of HTTP, there and back. Closed loop: each connection asks
//! again when it is answered. Open loop: requests are due at a fixed rate, and wait where every connection is busy.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{self, Meter};
use crate::exchange::{Exchange, Question};
use crate::load::Load;
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

struct Requests {
    poll: Poll,
    exchanges: Vec<Option<Exchange>>,
    standing: usize,
    question: Question,
    scratch: Vec<u8>,
    /// Open loop only.
    pacer: Option<Pacer>,
    free: VecDeque<usize>,
    late: VecDeque<Instant>,
}

impl Requests {
    fn open(load: &Load) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut exchanges = Vec::new();
        for token in 0..load.connections {
            let fd = client::connect(load.to)?;
            poll.add_stream(&fd, token)?;
            exchanges.push(Some(Exchange::new(fd, None)));
        }
        Ok(Self {
            pacer: load.rate.map(|rate| Pacer::new(&poll, rate)).transpose()?,
            poll,
            exchanges,
            standing: load.connections,
            question: Question::of(load),
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
        match exchange.work(flags, &self.question, &mut self.scratch) {
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
            && exchange.ask(since, &self.question).is_err()
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
