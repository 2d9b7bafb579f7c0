//! Bulk: a few streams that carry as much as they can, all up or all down. The unit is a byte; in TLS, one that was encrypted:
//! it is read and forgotten as it is, records' heads and tags (0.1 %) included.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Dialer, Meter};
use crate::load::{Kind, Load};
use crate::origin;
use crate::poll::Poll;

/// Sends or receives for one window.
pub(crate) fn run(load: &Load) -> io::Result<Value> {
    let mut bulk = Bulk::open(load)?;
    let mut meter = Meter::new(load);
    while !meter.is_over() {
        bulk.turn(&mut meter)?;
    }
    Ok(meter.finish())
}

struct Bulk {
    poll: Poll,
    streams: Vec<OwnedFd>,
    /// Streams whose budget ended before their bytes did.
    again: Vec<usize>,
    way: Way,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

impl Bulk {
    fn open(load: &Load) -> io::Result<Self> {
        let way = match load.kind {
            Kind::Upload => Way::Up,
            _ => Way::Down,
        };
        let dialer = Dialer::new(load.to, load.protocol)?;
        let poll = Poll::new()?;
        let mut streams = Vec::new();
        for token in 0..load.connections {
            let fd = match way {
                Way::Up => dialer.open_sink()?,
                Way::Down => dialer.open_source()?,
            };
            poll.add_stream(&fd, token)?;
            streams.push(fd);
        }
        Ok(Self {
            poll,
            streams,
            again: Vec::new(),
            way,
            scratch: vec![0; SCRATCH],
        })
    }

    fn turn(&mut self, meter: &mut Meter<'_>) -> io::Result<()> {
        let patience = if self.again.is_empty() {
            TURN
        } else {
            Duration::ZERO
        };
        let ready = self.poll.wait(Some(patience))?;
        let mut busy = std::mem::take(&mut self.again);
        for index in 0..ready {
            let (token, _) = self.poll.event(index);
            if !busy.contains(&token) {
                busy.push(token);
            }
        }
        for token in busy {
            self.work(token, meter)?;
        }
        Ok(())
    }

    fn work(&mut self, token: usize, meter: &mut Meter<'_>) -> io::Result<()> {
        let Some(fd) = self.streams.get(token) else {
            return Ok(());
        };
        for _ in 0..BUDGET {
            let moved = match self.way {
                Way::Up => origin::supply(fd, &self.scratch)?,
                Way::Down => origin::discard(fd, &mut self.scratch)?,
            };
            match (moved, self.way) {
                (Some(0), Way::Down) => return Err(io::ErrorKind::UnexpectedEof.into()),
                (Some(bytes), _) => meter.count(bytes),
                (None, _) => return Ok(()),
            }
        }
        self.again.push(token);
        Ok(())
    }
}

const SCRATCH: usize = 1024 * 1024;
const BUDGET: usize = 8;
const TURN: Duration = Duration::from_millis(20);
