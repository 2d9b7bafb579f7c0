//! A connection for each request: connect, a handshake if TLS is spoken, the request, the answer, close. Closed loop: a number of them at any time. Open loop:
//! one is due at a fixed rate, however many are under way.

use std::io;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Dialer, Meter};
use crate::exchange::{Exchange, Question};
use crate::load::Load;
use crate::pace::{Pacer, TIMER};
use crate::poll::{self, EventFlags, Poll};

/// Connects for one window.
pub(crate) fn run(load: &Load) -> io::Result<Value> {
    let poll = Poll::new()?;
    let mut connects = Connects {
        pacer: load.rate.map(|rate| Pacer::new(&poll, rate)).transpose()?,
        poll,
        load,
        dialer: Dialer::new(load.to, load.protocol)?,
        exchanges: Vec::new(),
        free: Vec::new(),
        failed: Vec::new(),
        question: Question::of(load),
        scratch: vec![0; SCRATCH],
    };
    let mut meter = Meter::new(load);
    connects.begin(&mut meter);
    while !meter.is_over() {
        connects.turn(&mut meter)?;
    }
    Ok(meter.finish())
}

struct Connects<'a> {
    poll: Poll,
    load: &'a Load,
    dialer: Dialer,
    exchanges: Vec<Option<Exchange>>,
    free: Vec<usize>,
    /// Closed loop only: slots whose connect failed at once, tried again in the next turn.
    failed: Vec<usize>,
    question: Question,
    scratch: Vec<u8>,
    pacer: Option<Pacer>,
}

impl Connects<'_> {
    fn begin(&mut self, meter: &mut Meter<'_>) {
        if self.pacer.is_none() {
            for _ in 0..self.load.connections {
                self.open(Instant::now(), meter);
            }
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
        for token in std::mem::take(&mut self.failed) {
            self.free.push(token);
            self.open(Instant::now(), meter);
        }
        self.open_due(meter)
    }

    fn serve(&mut self, token: usize, flags: EventFlags, meter: &mut Meter<'_>) {
        let Some(slot) = self.exchanges.get_mut(token) else {
            return;
        };
        let Some(exchange) = slot else {
            return;
        };
        match exchange.work(flags, &self.question, &mut self.scratch) {
            Ok(false) => return,
            Ok(true) => {
                meter.count_latency(exchange.since.elapsed());
                // The first sessions have nothing to resume.
                if meter.has_begun() && exchange.is_resumed() != self.load.protocol.resumes() {
                    meter.count_error();
                }
            }
            Err(_) => meter.count_error(),
        }
        *slot = None;
        self.free.push(token);
        if self.pacer.is_none() {
            self.open(Instant::now(), meter);
        }
    }

    fn open_due(&mut self, meter: &mut Meter<'_>) -> io::Result<()> {
        let now = Instant::now();
        let Some(mut pacer) = self.pacer.take() else {
            return Ok(());
        };
        while let Some(due) = pacer.due(now) {
            let under_way = self.exchanges.len() - self.free.len();
            if under_way < MOST_UNDER_WAY {
                self.open(due, meter);
            } else {
                meter.count_error();
            }
        }
        let armed = pacer.arm(now);
        self.pacer = Some(pacer);
        armed
    }

    fn open(&mut self, since: Instant, meter: &mut Meter<'_>) {
        let token = self.free.pop().unwrap_or_else(|| {
            self.exchanges.push(None);
            self.exchanges.len() - 1
        });
        match self.connect(token, since) {
            Ok(exchange) => self.exchanges[token] = Some(exchange),
            Err(_) => {
                meter.count_error();
                let list = if self.pacer.is_none() {
                    &mut self.failed
                } else {
                    &mut self.free
                };
                list.push(token);
            }
        }
    }

    fn connect(&self, token: usize, since: Instant) -> io::Result<Exchange> {
        let fd = poll::stream_socket(&self.load.to)?;
        poll::start_connect(&fd, &self.load.to)?;
        self.poll.add_stream(&fd, token)?;
        let session = self.dialer.session()?;
        Ok(Exchange::begin(fd, session, since, &self.question))
    }
}

/// More than an answer has.
const SCRATCH: usize = 16 * 1024;
const TURN: Duration = Duration::from_millis(20);
const MOST_UNDER_WAY: usize = 5_000;
