//! From clients to endpoints.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ballast_core::flow::{
    Dropped, FlowEnd, FlowId, FlowTable, Key, Load, UdpCounters, Verdict, takes_groups,
};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, Serves};
use ballast_core::service::{Failure, Service};
use rustix::io::Errno;

use crate::fault;
use crate::source;
use crate::sys::datagrams::{BATCH, Received};
use crate::worker::Worker;

use super::introduce::introduce;
use super::leg::{Ends, Leg};
use super::{Door, State, Udp};

/// Receives a batch and passes it on. Says how many datagrams, or groups of them, it was.
pub(super) fn pass_on(worker: &Worker, udp: &Udp, door: &Door) -> usize {
    let mut state = udp.state.borrow_mut();
    let State {
        flows,
        inbox,
        gathered,
        ..
    } = &mut *state;
    let received = match inbox.receive(door.socket.get_ref(), 0, BATCH) {
        Ok(received) => received,
        Err(error) => {
            // Nothing there; or something befell one datagram, and the next may be well.
            return match error.kind() {
                io::ErrorKind::WouldBlock => 0,
                _ => BATCH,
            };
        }
    };
    let plan = worker.plan();
    let Some(frontend) = plan.frontend(&door.key) else {
        // No table wants this socket any more: the order to close it is on its way.
        return received;
    };
    let mut passage = Passage {
        worker,
        udp,
        door,
        frontend,
        flows,
        now: worker.shared.clock.now(),
    };
    let most = worker.shared.most_flows.load(Ordering::Relaxed);
    passage.flows.allow(most.min(worker.flow_room.most));
    let mut slot = 0;
    while slot < received {
        let Some(first) = inbox.datagram(slot) else {
            break;
        };
        let following = (slot + 1..received).map_while(|slot| inbox.datagram(slot));
        match passage.goes_together(&first) {
            true => slot += gather(gathered, first, following),
            false => {
                gathered.clear();
                slot += 1;
            }
        }
        passage.datagram(&first, gathered);
    }
    if let Some(last) = received
        .checked_sub(1)
        .and_then(|last| inbox.datagram(last))
    {
        passage.note_drops(&last);
    }
    received
}

/// Puts what one client has sent in a row into `gathered`, as one group, and says how many datagrams that are. One alone stays
/// where it is.
fn gather<'a>(
    gathered: &mut Vec<u8>,
    first: Received<'_>,
    following: impl Iterator<Item = Received<'a>>,
) -> usize {
    gathered.clear();
    let size = first.bytes.len();
    let mut count = 1;
    for next in following {
        let fits = next.segment.is_none() && (1..=size).contains(&next.bytes.len());
        if !fits || next.peer != first.peer || next.local != first.local {
            break;
        }
        if count == 1 {
            gathered.extend_from_slice(first.bytes);
        }
        gathered.extend_from_slice(next.bytes);
        count += 1;
        // A shorter one can only be the last.
        if next.bytes.len() < size {
            break;
        }
    }
    count
}

/// What all datagrams of a batch are passed on by.
struct Passage<'a> {
    worker: &'a Worker,
    udp: &'a Udp,
    door: &'a Door,
    frontend: &'a Frontend,
    flows: &'a mut FlowTable<Leg>,
    now: Moment,
}

impl Passage<'_> {
    /// Whether more of the same client may join this one, so that all of them cost little more than one.
    fn goes_together(&self, datagram: &Received<'_>) -> bool {
        let size = datagram.bytes.len();
        datagram.segment.is_none()
            && (1..=MOST_GATHERED).contains(&size)
            && takes_groups(self.frontend)
            && self.frontend.accept_proxy().is_none()
    }

    fn note_drops(&self, datagram: &Received<'_>) {
        if let Some(drops) = datagram.drops {
            let before = self.door.drops.replace(drops);
            let more = drops.wrapping_sub(before);
            self.counters().kernel_drops.add(more.into());
        }
    }

    /// This datagram, or the group that was gathered from it on.
    fn datagram(&mut self, datagram: &Received<'_>, gathered: &[u8]) {
        let Some(peer) = datagram.peer else {
            return;
        };
        let is_trusted = self
            .frontend
            .accept_proxy()
            .is_some_and(|accept| accept.trusts(peer.ip().to_canonical()));
        let key = Key {
            listener: self.door.id,
            peer,
            local: datagram.local.unwrap_or_else(|| self.door.local.ip()),
            client: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
        };
        if !gathered.is_empty() {
            let size = u16::try_from(datagram.bytes.len()).unwrap_or(u16::MAX);
            return self.plain(key, None, gathered, Some(size));
        }
        let group = datagram
            .segment
            .and_then(|segment| u16::try_from(segment).ok());
        match group {
            Some(segment) if !is_trusted && takes_groups(self.frontend) => {
                self.plain(key, None, datagram.bytes, Some(segment));
            }
            _ if is_trusted => datagram.each().for_each(|bytes| self.headed(key, bytes)),
            _ => datagram
                .each()
                .for_each(|bytes| self.plain(key, None, bytes, None)),
        }
    }

    /// One of a trusted peer.
    fn headed(&mut self, key: Key, bytes: &[u8]) {
        match introduce(bytes, &key, self.frontend, self.flows) {
            Ok(introduced) => {
                let key = Key {
                    client: introduced.client,
                    ..key
                };
                self.plain(key, introduced.destination, introduced.payload, None);
            }
            Err(why) => self.counters().dropped[why.index()].add(1),
        }
    }

    fn plain(
        &mut self,
        key: Key,
        destination: Option<SocketAddr>,
        bytes: &[u8],
        segment: Option<u16>,
    ) {
        let count = segment.map_or(1, |segment| bytes.len().div_ceil(segment.max(1).into()));
        let load = Load {
            datagrams: u32::try_from(count).unwrap_or(u32::MAX),
            bytes: bytes.len() as u64,
        };
        // What failed says something about an earlier datagram; this one goes elsewhere at once, but only once.
        for _ in 0..2 {
            let mut rng = self.worker.rng.borrow_mut();
            let verdict = self
                .flows
                .from_client(self.now, key, load, self.frontend, &mut rng);
            drop(rng);
            let (flow, opened) = match verdict {
                Verdict::Drop(_) => return,
                Verdict::Forward(flow) => (flow, Ok(())),
                Verdict::Open { flow, endpoint } => {
                    (flow, self.open(flow, endpoint, key, destination))
                }
            };
            let has_way = opened.is_ok();
            let sent = opened.and_then(|()| Ok(self.send(flow, bytes, segment)?));
            let error = match sent {
                Ok(()) => return,
                Err(Unopened::NoPort) => return self.refuse(flow, load),
                Err(Unopened::Failed(error)) => error,
            };
            self.flows.unsent(flow, load);
            let Some(failure) = fault::of_endpoint(&error) else {
                if !has_way {
                    self.flows.end(self.now, flow, FlowEnd::Evicted);
                }
                break;
            };
            note_failure(
                self.worker,
                self.flows,
                (flow, failure),
                Some(self.frontend),
                self.now,
            );
        }
        self.counters().unsent.add(load.datagrams.into());
    }

    fn open(
        &mut self,
        flow: FlowId,
        endpoint: SocketAddr,
        key: Key,
        destination: Option<SocketAddr>,
    ) -> Result<(), Unopened> {
        let Serves::Udp(service) = self.frontend.serves() else {
            return Ok(());
        };
        let ours = SocketAddr::new(key.local, self.door.local.port());
        let ends = Ends {
            key: &key,
            destination: destination.unwrap_or(ours),
        };
        let turn = || service.state().next_source();
        let sources = source::candidates(&service.spec().source, endpoint, turn);
        let way = (service.as_ref(), endpoint, ends);
        let opened = self.open_by_any(flow, way, sources.clone());
        // Whoever was idle for the longest time gives up its port or its descriptor.
        let has_room = match &opened {
            Err(Unopened::NoPort) => self.flows.evict_for_port(self.now, flow, sources.clone()),
            Err(Unopened::Failed(error)) if fault::is_exhausted(error) => {
                self.flows.evict_for(self.now, flow)
            }
            _ => false,
        };
        let opened = match has_room {
            true => self.open_by_any(flow, way, sources),
            false => opened,
        };
        self.flows.attach(flow, opened?);
        Ok(())
    }

    /// From the first of these source addresses that has a port left.
    fn open_by_any(
        &mut self,
        flow: FlowId,
        way: (&Service, SocketAddr, Ends<'_>),
        sources: impl Iterator<Item = Option<IpAddr>>,
    ) -> Result<Leg, Unopened> {
        let (mut is_full, mut not_here) = (false, None);
        for source in sources {
            match self.open_from(flow, way, source) {
                Err(Unopened::NoPort) => is_full = true,
                Err(Unopened::Failed(error)) if source::is_used_up(&error) => {
                    not_here = Some(error);
                }
                opened => return opened,
            }
        }
        // A source address that is not here must not hide that another one has no port left.
        Err(match not_here {
            Some(error) if !is_full => Unopened::Failed(error),
            _ => Unopened::NoPort,
        })
    }

    fn open_from(
        &mut self,
        flow: FlowId,
        (service, endpoint, ends): (&Service, SocketAddr, Ends<'_>),
        source: Option<IpAddr>,
    ) -> Result<Leg, Unopened> {
        let watch = self.udp.watch.as_fd();
        for _ in 0..PORTS_TRIED {
            let mut rng = self.worker.rng.borrow_mut();
            let local = self.flows.take_port(self.now, flow, source, &mut rng);
            drop(rng);
            let way = (local.ok_or(Unopened::NoPort)?, endpoint);
            match Leg::open(self.worker, service, way, ends, watch, flow) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    self.flows.port_is_foreign(self.now, flow);
                }
                opened => return Ok(opened?),
            }
        }
        Err(Unopened::NoPort)
    }

    /// The new flow has no port, and nobody can give it one.
    fn refuse(&mut self, flow: FlowId, load: Load) {
        self.flows.unsent(flow, load);
        self.flows.end(self.now, flow, FlowEnd::Evicted);
        let dropped = &self.counters().dropped[Dropped::MaxConnections.index()];
        dropped.add(load.datagrams.into());
    }

    fn send(&mut self, flow: FlowId, bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
        let Some(leg) = self.flows.leg(flow) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let Some(segment) = segment else {
            return leg.send(bytes, None);
        };
        if leg.segments.up && !leg.has_header() {
            match leg.send(bytes, Some(segment)) {
                Err(error) if cannot_cut(&error) => leg.segments.up = false,
                sent => return sent,
            }
        }
        bytes
            .chunks(segment.max(1).into())
            .try_for_each(|bytes| leg.send(bytes, None))
    }

    fn counters(&self) -> &UdpCounters {
        self.frontend.state().udp_counters(self.worker.id)
    }
}

/// Why a flow has no socket.
#[derive(Debug)]
enum Unopened {
    /// All local ports are in use towards its endpoint.
    NoPort,
    Failed(io::Error),
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Ports that somebody else may turn out to have before a flow is given up. Each is left alone for a while then.
const PORTS_TRIED: usize = 16;

/// Larger ones are not gathered: the packets of most networks hold no more, and those cannot be cut by the kernel.
pub(super) const MOST_GATHERED: usize = 1_472;

/// The way to the endpoint of a flow has failed.
pub(super) fn note_failure(
    worker: &Worker,
    flows: &mut FlowTable<Leg>,
    (flow, failure): (FlowId, Failure),
    frontend: Option<&Frontend>,
    now: Moment,
) {
    let endpoint = flows.endpoint(flow).map(Arc::clone);
    let news = flows.failed(now, flow, failure, frontend);
    if let Some(endpoint) = endpoint {
        fault::announce(&endpoint, &news, &worker.plan(), now);
    }
}

/// Whether the kernel or a device cannot cut a group into datagrams.
pub(super) fn cannot_cut(error: &io::Error) -> bool {
    [Errno::IO, Errno::INVAL, Errno::MSGSIZE, Errno::OPNOTSUPP]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
