//! From endpoints to clients.

use std::io;
use std::rc::Rc;

use ballast_core::flow::{FlowId, FlowTable, Key, Listener, Load};
use ballast_core::moment::Moment;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};

use crate::sys::datagrams::{self, BATCH, Inbox, Outgoing};
use crate::worker::Worker;

use super::leg::Leg;
use super::questions::{cannot_cut, failure_of, say};
use super::{Door, State, Udp};

/// Whether there is more to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Something,
}

/// Receives what endpoints sent by the flows that have something, and passes it on.
pub(super) fn pass_on(worker: &Worker, udp: &Udp) -> Left {
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    let waited = epoll::wait(
        udp.watch.get_ref(),
        spare_capacity(&mut events),
        Some(&AT_ONCE),
    );
    if waited.is_err() {
        // Interrupted: asked again at once.
        return Left::Something;
    }
    let mut left = match events.len() {
        EVENTS.. => Left::Something,
        _ => Left::Nothing,
    };
    let mut state = udp.state.borrow_mut();
    let mut batch = Batch {
        worker,
        now: worker.shared.clock.now(),
        answers: Vec::with_capacity(BATCH),
        used: 0,
    };
    for event in &events {
        let flow = FlowId::from_bits(event.data.u64());
        if batch.receive(&mut state, flow) == Left::Something {
            left = Left::Something;
        }
    }
    batch.send(&mut state);
    left
}

/// Answers that leave together.
struct Batch<'a> {
    worker: &'a Worker,
    now: Moment,
    answers: Vec<Answered>,
    /// Slots of the inbox that hold them.
    used: usize,
}

struct Answered {
    slot: usize,
    flow: FlowId,
    key: Key,
    /// How many bytes of it go, and in datagrams of which size.
    length: usize,
    segment: Option<u16>,
}

impl Batch<'_> {
    fn receive(&mut self, state: &mut State, flow: FlowId) -> Left {
        if BATCH - self.used < AT_A_TIME {
            self.send(state);
        }
        let State {
            flows,
            inbox,
            doors,
            ..
        } = state;
        let Some(leg) = flows.leg(flow) else {
            return Left::Nothing;
        };
        let received = match inbox.receive(leg, self.used, AT_A_TIME) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Left::Nothing,
            Err(error) => {
                self.note(&error, flows, doors, flow);
                // Behind the error there may be datagrams, of which nobody is told once more.
                return Left::Something;
            }
        };
        if received == AT_A_TIME {
            leg.glue();
        }
        for slot in self.used..self.used + received {
            self.take(slot, flow, flows, inbox);
        }
        self.used += received;
        match received {
            AT_A_TIME.. => Left::Something,
            _ => Left::Nothing,
        }
    }

    fn take(&mut self, slot: usize, flow: FlowId, flows: &mut FlowTable<Leg>, inbox: &Inbox) {
        let Some(datagram) = inbox.datagram(slot) else {
            return;
        };
        let load = Load {
            datagrams: u32::try_from(datagram.count()).unwrap_or(u32::MAX),
            bytes: datagram.bytes.len() as u64,
        };
        let Some(answer) = flows.from_endpoint(self.now, flow, load) else {
            return;
        };
        if answer.datagrams == 0 {
            return;
        }
        let count = usize::try_from(answer.datagrams).unwrap_or(usize::MAX);
        let size = datagram.segment.unwrap_or(usize::MAX);
        self.answers.push(Answered {
            slot,
            flow,
            key: answer.key,
            length: datagram.bytes.len().min(count.saturating_mul(size)),
            segment: datagram.segment.and_then(|size| u16::try_from(size).ok()),
        });
    }

    /// The kernel says something of an earlier datagram.
    fn note(
        &self,
        error: &io::Error,
        flows: &mut FlowTable<Leg>,
        doors: &std::collections::HashMap<Listener, Rc<Door>>,
        flow: FlowId,
    ) {
        let (Some(failure), Some(key)) = (failure_of(error), flows.key(flow)) else {
            return;
        };
        let plan = self.worker.shared.live.plan();
        let frontend = doors
            .get(&key.listener)
            .and_then(|door| plan.frontend(&door.key));
        let news = flows.failed(self.now, flow, failure, frontend.map(AsRef::as_ref));
        say(self.worker, &news);
    }

    /// Sends what has come together, by each listening socket with as few calls as may be.
    fn send(&mut self, state: &mut State) {
        let State {
            flows,
            inbox,
            doors,
            ..
        } = state;
        self.used = 0;
        self.answers.sort_by_key(|answer| answer.key.listener);
        for answers in self
            .answers
            .chunk_by(|one, other| one.key.listener == other.key.listener)
        {
            let door = answers
                .first()
                .and_then(|answer| doors.get(&answer.key.listener));
            if let Some(door) = door {
                self.send_by(door, answers, flows, inbox);
            }
        }
        self.answers.clear();
    }

    fn send_by(
        &self,
        door: &Door,
        answers: &[Answered],
        flows: &mut FlowTable<Leg>,
        inbox: &Inbox,
    ) {
        let outgoing: Vec<Outgoing<'_>> = answers
            .iter()
            .map(|answer| {
                let bytes = inbox
                    .datagram(answer.slot)
                    .map_or(&[][..], |datagram| datagram.bytes);
                let local = answer.key.local;
                Outgoing {
                    head: &[],
                    bytes: bytes.get(..answer.length).unwrap_or_default(),
                    to: Some(answer.key.peer),
                    from: (!local.is_unspecified()).then_some(local),
                    segment: answer
                        .segment
                        .filter(|size| answer.length > usize::from(*size)),
                }
            })
            .collect();
        let mut done = 0;
        while let (Some(rest), Some(answer)) = (outgoing.get(done..), answers.get(done)) {
            let can_cut = flows.leg(answer.flow).is_none_or(|leg| leg.segments.down);
            let first_is_group = rest.first().is_some_and(|first| first.segment.is_some());
            let result = match first_is_group && !can_cut {
                true => Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::INVAL.raw_os_error(),
                )),
                false => datagrams::send_many(door.socket.get_ref(), rest),
            };
            match result {
                Ok(sent) => done += sent.max(1),
                Err(error) => {
                    // It is the first of them that could not be sent.
                    if let Some(first) = rest.first() {
                        self.send_apart(door, answer, first, &error, flows);
                    }
                    done += 1;
                }
            }
        }
    }

    /// A group, datagram by datagram; anything else is lost.
    fn send_apart(
        &self,
        door: &Door,
        answer: &Answered,
        outgoing: &Outgoing<'_>,
        error: &io::Error,
        flows: &mut FlowTable<Leg>,
    ) {
        let mut lost = 1;
        if let Some(segment) = outgoing.segment.filter(|_| cannot_cut(error)) {
            if let Some(leg) = flows.leg(answer.flow) {
                leg.segments.down = false;
            }
            lost = 0;
            for bytes in outgoing.bytes.chunks(segment.max(1).into()) {
                let one = Outgoing {
                    bytes,
                    segment: None,
                    ..*outgoing
                };
                lost += u64::from(datagrams::send(door.socket.get_ref(), &one).is_err());
            }
        }
        if lost > 0 {
            let plan = self.worker.shared.live.plan();
            if let Some(frontend) = plan.frontend(&door.key) {
                let counters = frontend.state().udp_counters(self.worker.id);
                counters.unsent.add(lost);
            }
        }
    }
}

/// Flows that are looked at before other tasks have their turn.
const EVENTS: usize = 256;
/// Answers that are taken from one flow before others have their turn.
const AT_A_TIME: usize = 8;
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
