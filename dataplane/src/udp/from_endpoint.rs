//! Replies from endpoints to clients.

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

use crate::os::socket_error;
use crate::os::sys::datagrams::{self, BATCH, Inbox, Outgoing};
use crate::worker::Worker;

use super::flow_socket::FlowSocket;
use super::from_client::{MAX_GATHERED, cannot_segment, report_flow_failure};
use super::{State, Udp, UdpListener};

/// Whether all that endpoints sent has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    Yes,
    No,
}

/// Receives the replies of the flows whose sockets are readable, and forwards them.
pub(super) fn pass_on(worker: &Worker, udp: &Udp) -> Drained {
    let mut state = udp.state.borrow_mut();
    let mut batch = mem::take(&mut state.replies);
    let mut pass = ReplyPass {
        worker,
        now: worker.shared.clock.now(),
        batch: &mut batch,
    };
    let drained = pass.receive_all(udp, &mut state);
    state.replies = batch;
    drained
}

/// Replies that leave together. The buffers are kept, so that later passes allocate nothing.
#[derive(Default)]
pub(super) struct ReplyBatch {
    events: Vec<Event>,
    replies: Vec<Reply>,
    groups: Vec<ReplyGroup>,
    /// Slots of the inbox that hold these replies.
    used: usize,
}

impl fmt::Debug for ReplyBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyBatch").finish_non_exhaustive()
    }
}

struct Reply {
    slot: usize,
    flow: FlowId,
    key: Key,
    /// The number of bytes to forward, in datagrams of the size `segment`.
    length: usize,
    segment: Option<u16>,
}

/// The context in which the replies of one wake-up are forwarded.
struct ReplyPass<'a> {
    worker: &'a Worker,
    now: Moment,
    batch: &'a mut ReplyBatch,
}

impl ReplyPass<'_> {
    fn receive_all(&mut self, udp: &Udp, state: &mut State) -> Drained {
        let mut events = mem::take(&mut self.batch.events);
        events.clear();
        events.reserve(EVENTS);
        let spare = spare_capacity(&mut events);
        let mut drained = match epoll::wait(udp.watch.get_ref(), spare, Some(&NO_WAIT)) {
            // A full event buffer or an interrupted call: more may be waiting.
            Ok(EVENTS..) | Err(_) => Drained::No,
            Ok(_) => Drained::Yes,
        };
        for event in &events {
            let flow = FlowId::from_bits(event.data.u64());
            if self.receive(state, flow) == Drained::No {
                drained = Drained::No;
            }
        }
        self.send(state);
        self.batch.events = events;
        drained
    }

    fn receive(&mut self, state: &mut State, flow: FlowId) -> Drained {
        if BATCH - self.batch.used < REPLIES_PER_FLOW {
            self.send(state);
        }
        let State {
            flows,
            inbox,
            listeners,
            ..
        } = state;
        let Some(socket) = flows.attached(flow) else {
            return Drained::Yes;
        };
        let received = match inbox.receive(socket, self.batch.used, REPLIES_PER_FLOW) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Drained::Yes,
            Err(error) => {
                self.report_error(&error, flows, listeners, flow);
                // Datagrams may be queued behind the error, and the runtime is not notified of them again.
                return Drained::No;
            }
        };
        if received == REPLIES_PER_FLOW {
            socket.coalesce();
        }
        let used = self.batch.used;
        for slot in used..used + received {
            self.take(slot, flow, flows, inbox);
        }
        self.batch.used += received;
        match received {
            REPLIES_PER_FLOW.. => Drained::No,
            _ => Drained::Yes,
        }
    }

    fn take(
        &mut self,
        slot: usize,
        flow: FlowId,
        flows: &mut FlowTable<FlowSocket>,
        inbox: &Inbox,
    ) {
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
        let Some(reply) = flows.from_endpoint(self.now, flow, load) else {
            return;
        };
        if reply.datagrams == 0 {
            return;
        }
        let count = usize::try_from(reply.datagrams).unwrap_or(usize::MAX);
        let size = datagram.segment.unwrap_or(usize::MAX);
        self.batch.replies.push(Reply {
            slot,
            flow,
            key: reply.key,
            length: datagram.bytes.len().min(count.saturating_mul(size)),
            segment: datagram.segment.and_then(|size| u16::try_from(size).ok()),
        });
    }

    /// Handles an error that the kernel reports for an earlier datagram.
    fn report_error(
        &self,
        error: &io::Error,
        flows: &mut FlowTable<FlowSocket>,
        listeners: &std::collections::HashMap<Listener, Rc<UdpListener>>,
        flow: FlowId,
    ) {
        let (Some(failure), Some(key)) = (socket_error::endpoint_failure(error), flows.key(flow))
        else {
            return;
        };
        let plan = self.worker.plan();
        let frontend = listeners
            .get(&key.listener)
            .and_then(|listener| plan.frontend(&listener.key));
        let frontend = frontend.map(AsRef::as_ref);
        report_flow_failure(self.worker, flows, (flow, failure), frontend, self.now);
    }

    /// Sends the collected replies, with as few calls as possible for each listening socket.
    fn send(&mut self, state: &mut State) {
        let State {
            flows,
            inbox,
            listeners,
            gathered,
            ..
        } = state;
        let ReplyBatch {
            replies,
            groups,
            used,
            ..
        } = &mut *self.batch;
        *used = 0;
        // Usually there is one listening socket; sorting may allocate, so it is skipped if possible.
        if !replies.is_sorted_by_key(|reply| reply.key.listener) {
            replies.sort_by_key(|reply| reply.key.listener);
        }
        for replies in replies.chunk_by(|one, other| one.key.listener == other.key.listener) {
            let listener = replies
                .first()
                .and_then(|reply| listeners.get(&reply.key.listener));
            if let Some(listener) = listener {
                group_replies(replies, flows, inbox, gathered, groups);
                let batch = ListenerReplies {
                    worker: self.worker,
                    listener,
                    replies,
                    groups,
                };
                batch.send(flows, inbox, gathered);
            }
        }
        replies.clear();
    }
}

/// Replies that leave by one listening socket.
struct ListenerReplies<'a> {
    worker: &'a Worker,
    listener: &'a UdpListener,
    replies: &'a [Reply],
    groups: &'a [ReplyGroup],
}

impl ListenerReplies<'_> {
    fn send(&self, flows: &mut FlowTable<FlowSocket>, inbox: &Inbox, gathered: &[u8]) {
        let mut outgoing = [Outgoing::default(); BATCH];
        let mut count = 0;
        for ((reply, group), place) in self.each().zip(&mut outgoing) {
            *place = group.outgoing(reply, inbox, gathered);
            count += 1;
        }
        let mut done = 0;
        while let Some((reply, _)) = self.each().nth(done)
            && let Some(rest @ [first, ..]) = outgoing.get(done..count)
        {
            let can_segment = flows
                .attached(reply.flow)
                .is_none_or(|socket| socket.segments.down);
            let result = if first.segment.is_some() && !can_segment {
                Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::INVAL.raw_os_error(),
                ))
            } else {
                datagrams::send_many(self.listener.socket.get_ref(), rest)
            };
            match result {
                Ok(sent) => done += sent.max(1),
                Err(error) => {
                    // The error concerns the first of these messages.
                    self.send_one_by_one(reply, first, &error, flows);
                    done += 1;
                }
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = (&Reply, &ReplyGroup)> {
        let reply = |group: &ReplyGroup| self.replies.get(group.first);
        self.groups
            .iter()
            .filter_map(move |group| Some((reply(group)?, group)))
    }

    /// Sends the datagrams of a group one by one. Any other message is lost.
    fn send_one_by_one(
        &self,
        reply: &Reply,
        outgoing: &Outgoing<'_>,
        error: &io::Error,
        flows: &mut FlowTable<FlowSocket>,
    ) {
        let size = outgoing.segment.map_or(usize::MAX, usize::from).max(1);
        let mut lost = outgoing.bytes.len().div_ceil(size).max(1) as u64;
        if outgoing.segment.is_some() && cannot_segment(error) {
            if let Some(socket) = flows.attached(reply.flow) {
                socket.segments.down = false;
            }
            lost = 0;
            for bytes in outgoing.bytes.chunks(size) {
                let one = Outgoing {
                    bytes,
                    segment: None,
                    ..*outgoing
                };
                lost += u64::from(datagrams::send(self.listener.socket.get_ref(), &one).is_err());
            }
        }
        if lost > 0 {
            let plan = self.worker.plan();
            if let Some(frontend) = plan.frontend(&self.listener.key) {
                let counters = frontend.state().udp_counters(self.worker.id);
                counters.unsent.add(lost);
            }
        }
    }
}

/// One or several replies of a flow that leave with one message.
struct ReplyGroup {
    /// The index of the first one.
    first: usize,
    /// The range of `gathered` that holds them, if there are several.
    gathered: Option<Range<usize>>,
}

/// Groups replies of one flow in a row, of which the last one may be shorter, for sending together.
fn group_replies(
    replies: &[Reply],
    flows: &mut FlowTable<FlowSocket>,
    inbox: &Inbox,
    gathered: &mut Vec<u8>,
    groups: &mut Vec<ReplyGroup>,
) {
    gathered.clear();
    groups.clear();
    let mut place = 0;
    while let Some([first, behind @ ..]) = replies.get(place..) {
        let fits = |next: &&Reply| {
            next.flow == first.flow
                && next.segment.is_none()
                && (1..=first.length).contains(&next.length)
        };
        let may = (1..=MAX_GATHERED).contains(&first.length)
            && first.segment.is_none()
            && behind.first().as_ref().is_some_and(fits)
            && flows
                .attached(first.flow)
                .is_some_and(|socket| socket.segments.down);
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
        groups.push(ReplyGroup {
            first: place,
            gathered: may.then_some(from..gathered.len()),
        });
        place += count;
    }
}

impl Reply {
    fn bytes<'a>(&self, inbox: &'a Inbox) -> &'a [u8] {
        let datagram = inbox.datagram(self.slot);
        let bytes = datagram.map_or(&[][..], |datagram| datagram.bytes);
        bytes.get(..self.length).unwrap_or_default()
    }
}

impl ReplyGroup {
    fn outgoing<'a>(&self, reply: &Reply, inbox: &'a Inbox, gathered: &'a [u8]) -> Outgoing<'a> {
        let Reply {
            key,
            length,
            segment,
            ..
        } = *reply;
        let (bytes, segment) = match &self.gathered {
            Some(range) => (
                gathered.get(range.clone()).unwrap_or_default(),
                u16::try_from(length).ok(),
            ),
            None => (
                reply.bytes(inbox),
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

/// Whether a datagram was sent by the flow's endpoint. A socket is bound a moment before it is connected, and datagrams from
/// others that arrive in between stay in its queue: for example a late reply to an earlier flow, which belongs to another
/// client.
fn is_from(peer: Option<SocketAddr>, endpoint: Option<SocketAddr>) -> bool {
    let pair = |address: SocketAddr| (address.ip(), address.port());
    peer.map(pair) == endpoint.map(pair)
}

/// Readable flows that are handled before other tasks run.
const EVENTS: usize = 256;
/// Replies that are received from one flow before other flows are handled.
const REPLIES_PER_FLOW: usize = 8;
const NO_WAIT: Timespec = Timespec {
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
