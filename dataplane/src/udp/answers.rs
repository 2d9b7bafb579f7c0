//! From endpoints to clients.

use std::fmt;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

use ballast_core::flow::{FlowId, FlowTable, Key, Listener, Load};
use ballast_core::moment::Moment;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};

use crate::fault;
use crate::sys::datagrams::{self, BATCH, Inbox, Outgoing};
use crate::worker::Worker;

use super::leg::Leg;
use super::questions::{MOST_GATHERED, cannot_cut, note_failure};
use super::{Door, State, Udp};

/// Whether there is more to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Something,
}

/// Receives what endpoints sent by the flows that have something, and passes it on.
pub(super) fn pass_on(worker: &Worker, udp: &Udp) -> Left {
    let mut state = udp.state.borrow_mut();
    let mut batch = mem::take(&mut state.batch);
    let mut passage = Passage {
        worker,
        now: worker.shared.clock.now(),
        batch: &mut batch,
    };
    let left = passage.receive_all(udp, &mut state);
    state.batch = batch;
    left
}

/// Answers that leave together. Kept for the next time, so that nothing is allocated anew.
#[derive(Default)]
pub(super) struct Batch {
    events: Vec<Event>,
    answers: Vec<Answered>,
    groups: Vec<Leaving>,
    /// Slots of the inbox that hold them.
    used: usize,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

struct Answered {
    slot: usize,
    flow: FlowId,
    key: Key,
    /// How many bytes of it go, and in datagrams of which size.
    length: usize,
    segment: Option<u16>,
}

/// What all answers of a wake-up are passed on by.
struct Passage<'a> {
    worker: &'a Worker,
    now: Moment,
    batch: &'a mut Batch,
}

impl Passage<'_> {
    fn receive_all(&mut self, udp: &Udp, state: &mut State) -> Left {
        let mut events = mem::take(&mut self.batch.events);
        events.clear();
        events.reserve(EVENTS);
        let spare = spare_capacity(&mut events);
        let mut left = match epoll::wait(udp.watch.get_ref(), spare, Some(&AT_ONCE)) {
            // Or interrupted: asked again at once.
            Ok(EVENTS..) | Err(_) => Left::Something,
            Ok(_) => Left::Nothing,
        };
        for event in &events {
            let flow = FlowId::from_bits(event.data.u64());
            if self.receive(state, flow) == Left::Something {
                left = Left::Something;
            }
        }
        self.send(state);
        self.batch.events = events;
        left
    }

    fn receive(&mut self, state: &mut State, flow: FlowId) -> Left {
        if BATCH - self.batch.used < AT_A_TIME {
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
        let received = match inbox.receive(leg, self.batch.used, AT_A_TIME) {
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
        let used = self.batch.used;
        for slot in used..used + received {
            self.take(slot, flow, flows, inbox);
        }
        self.batch.used += received;
        match received {
            AT_A_TIME.. => Left::Something,
            _ => Left::Nothing,
        }
    }

    fn take(&mut self, slot: usize, flow: FlowId, flows: &mut FlowTable<Leg>, inbox: &Inbox) {
        let Some(datagram) = inbox.datagram(slot) else {
            return;
        };
        let endpoint = flows.endpoint(flow).map(|endpoint| endpoint.address());
        if !is_from(datagram.peer, endpoint) {
            return;
        }
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
        self.batch.answers.push(Answered {
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
        let (Some(failure), Some(key)) = (fault::of_endpoint(error), flows.key(flow)) else {
            return;
        };
        let plan = self.worker.plan();
        let frontend = doors
            .get(&key.listener)
            .and_then(|door| plan.frontend(&door.key));
        let frontend = frontend.map(AsRef::as_ref);
        note_failure(self.worker, flows, (flow, failure), frontend, self.now);
    }

    /// Sends what has come together, by each listening socket with as few calls as may be.
    fn send(&mut self, state: &mut State) {
        let State {
            flows,
            inbox,
            doors,
            gathered,
            ..
        } = state;
        let Batch {
            answers,
            groups,
            used,
            ..
        } = &mut *self.batch;
        *used = 0;
        // Mostly there is one socket, and sorting may allocate.
        if !answers.is_sorted_by_key(|answer| answer.key.listener) {
            answers.sort_by_key(|answer| answer.key.listener);
        }
        for answers in answers.chunk_by(|one, other| one.key.listener == other.key.listener) {
            let door = answers
                .first()
                .and_then(|answer| doors.get(&answer.key.listener));
            if let Some(door) = door {
                group(answers, flows, inbox, gathered, groups);
                let leaving = Departure {
                    worker: self.worker,
                    door,
                    answers,
                    groups,
                };
                leaving.send(flows, inbox, gathered);
            }
        }
        answers.clear();
    }
}

/// Answers that leave by one listening socket.
struct Departure<'a> {
    worker: &'a Worker,
    door: &'a Door,
    answers: &'a [Answered],
    groups: &'a [Leaving],
}

impl Departure<'_> {
    fn send(&self, flows: &mut FlowTable<Leg>, inbox: &Inbox, gathered: &[u8]) {
        let mut outgoing = [Outgoing::default(); BATCH];
        let mut count = 0;
        for ((answer, group), place) in self.each().zip(&mut outgoing) {
            *place = group.outgoing(answer, inbox, gathered);
            count += 1;
        }
        let mut done = 0;
        while let Some((answer, _)) = self.each().nth(done)
            && let Some(rest @ [first, ..]) = outgoing.get(done..count)
        {
            let can_cut = flows.leg(answer.flow).is_none_or(|leg| leg.segments.down);
            let result = match first.segment.is_some() && !can_cut {
                true => Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::INVAL.raw_os_error(),
                )),
                false => datagrams::send_many(self.door.socket.get_ref(), rest),
            };
            match result {
                Ok(sent) => done += sent.max(1),
                Err(error) => {
                    // It is the first of them that could not be sent.
                    self.send_apart(answer, first, &error, flows);
                    done += 1;
                }
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = (&Answered, &Leaving)> {
        let answer = |group: &Leaving| self.answers.get(group.first);
        self.groups
            .iter()
            .filter_map(move |group| Some((answer(group)?, group)))
    }

    /// A group, datagram by datagram; anything else is lost.
    fn send_apart(
        &self,
        answer: &Answered,
        outgoing: &Outgoing<'_>,
        error: &io::Error,
        flows: &mut FlowTable<Leg>,
    ) {
        let size = outgoing.segment.map_or(usize::MAX, usize::from).max(1);
        let mut lost = outgoing.bytes.len().div_ceil(size).max(1) as u64;
        if outgoing.segment.is_some() && cannot_cut(error) {
            if let Some(leg) = flows.leg(answer.flow) {
                leg.segments.down = false;
            }
            lost = 0;
            for bytes in outgoing.bytes.chunks(size) {
                let one = Outgoing {
                    bytes,
                    segment: None,
                    ..*outgoing
                };
                lost += u64::from(datagrams::send(self.door.socket.get_ref(), &one).is_err());
            }
        }
        if lost > 0 {
            let plan = self.worker.plan();
            if let Some(frontend) = plan.frontend(&self.door.key) {
                let counters = frontend.state().udp_counters(self.worker.id);
                counters.unsent.add(lost);
            }
        }
    }
}

/// One or several answers of a flow that leave with one message.
struct Leaving {
    /// The place of the first one.
    first: usize,
    /// Where several lie that were gathered.
    gathered: Option<Range<usize>>,
}

/// Brings together what leaves together: answers of one flow in a row, the last of which may be shorter.
fn group(
    answers: &[Answered],
    flows: &mut FlowTable<Leg>,
    inbox: &Inbox,
    gathered: &mut Vec<u8>,
    groups: &mut Vec<Leaving>,
) {
    gathered.clear();
    groups.clear();
    let mut place = 0;
    while let Some([first, behind @ ..]) = answers.get(place..) {
        let fits = |next: &&Answered| {
            next.flow == first.flow
                && next.segment.is_none()
                && (1..=first.length).contains(&next.length)
        };
        let may = (1..=MOST_GATHERED).contains(&first.length)
            && first.segment.is_none()
            && behind.first().as_ref().is_some_and(fits)
            && flows.leg(first.flow).is_some_and(|leg| leg.segments.down);
        let mut count = 1;
        let from = gathered.len();
        if may {
            gathered.extend_from_slice(first.bytes(inbox));
            for next in behind.iter().take_while(fits) {
                gathered.extend_from_slice(next.bytes(inbox));
                count += 1;
                if next.length < first.length {
                    break;
                }
            }
        }
        groups.push(Leaving {
            first: place,
            gathered: may.then_some(from..gathered.len()),
        });
        place += count;
    }
}

impl Answered {
    fn bytes<'a>(&self, inbox: &'a Inbox) -> &'a [u8] {
        let datagram = inbox.datagram(self.slot);
        let bytes = datagram.map_or(&[][..], |datagram| datagram.bytes);
        bytes.get(..self.length).unwrap_or_default()
    }
}

impl Leaving {
    fn outgoing<'a>(
        &self,
        answer: &Answered,
        inbox: &'a Inbox,
        gathered: &'a [u8],
    ) -> Outgoing<'a> {
        let Answered {
            key,
            length,
            segment,
            ..
        } = *answer;
        let (bytes, segment) = match &self.gathered {
            Some(range) => (
                gathered.get(range.clone()).unwrap_or_default(),
                u16::try_from(length).ok(),
            ),
            None => (
                answer.bytes(inbox),
                segment.filter(|size| length > usize::from(*size)),
            ),
        };
        Outgoing {
            head: &[],
            bytes,
            to: Some(key.peer),
            from: (!key.local.is_unspecified()).then_some(key.local),
            segment,
        }
    }
}

/// Whether it is the endpoint of the flow that sent a datagram. A socket is bound a moment before it is connected, and what comes from
/// others in between stays in its queue: a late answer to an earlier flow, for example, which is another client's.
fn is_from(peer: Option<SocketAddr>, endpoint: Option<SocketAddr>) -> bool {
    let pair = |address: SocketAddr| (address.ip(), address.port());
    peer.map(pair) == endpoint.map(pair)
}

/// Flows that are looked at before other tasks have their turn.
const EVENTS: usize = 256;
/// Answers that are taken from one flow before others have their turn.
const AT_A_TIME: usize = 8;
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_endpoint_of_a_flow_answers_there() {
        let address = |text: &str| Some(text.parse().unwrap());
        for (peer, endpoint, is_it) in [
            ("10.0.0.1:53", "10.0.0.1:53", true),
            ("10.0.0.1:54", "10.0.0.1:53", false),
            ("10.0.0.2:53", "10.0.0.1:53", false),
            ("[fe80::1%7]:53", "[fe80::1]:53", true),
            ("[fe80::2]:53", "[fe80::1]:53", false),
        ] {
            assert_eq!(is_from(address(peer), address(endpoint)), is_it, "{peer}");
        }
        assert!(!is_from(None, address("10.0.0.1:53")));
    }
}
