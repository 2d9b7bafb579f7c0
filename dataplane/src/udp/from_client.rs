//! Datagrams from clients to endpoints.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ballast_core::flow::{
    Dropped, FlowEnd, FlowId, FlowTable, Key, Load, UdpCounters, Verdict, takes_groups,
};
use ballast_core::moment::Moment;
use ballast_core::plan::Frontend;
use ballast_core::preamble::Addresses;
use ballast_core::service::{Failure, Service};
use rustix::io::Errno;

use crate::net::source_address;
use crate::os::socket_error;
use crate::os::sys::datagrams::{BATCH, Received};
use crate::worker::Worker;

use super::flow_socket::FlowSocket;
use super::proxy_header::read_client;
use super::{State, Udp, UdpListener, service_of};

/// Receives a batch and forwards it. Returns the number of datagrams or groups received.
pub(super) fn pass_on(worker: &Worker, udp: &Udp, listener: &UdpListener) -> usize {
    if listener.is_given.get() {
        return 0;
    }
    let mut state = udp.state.borrow_mut();
    let State {
        flows,
        inbox,
        gathered,
        ..
    } = &mut *state;
    let received = match inbox.receive(listener.socket.get_ref(), 0, BATCH) {
        Ok(received) => received,
        Err(error) => {
            // The socket is empty, or one datagram had an error and the next one may be good.
            return match error.kind() {
                io::ErrorKind::WouldBlock => 0,
                _ => BATCH,
            };
        }
    };
    let plan = worker.plan();
    let Some(frontend) = plan.frontend(&listener.key) else {
        // The plan no longer has this socket: the order to close it is on its way.
        return received;
    };
    let mut batch = ClientBatch {
        worker,
        udp,
        listener,
        frontend,
        flows,
        now: worker.shared.clock.now(),
    };
    let most = worker.shared.most_flows.load(Ordering::Relaxed);
    batch.flows.allow(most.min(udp.most));
    let mut slot = 0;
    while slot < received {
        let Some(first) = inbox.datagram(slot) else {
            break;
        };
        let following = (slot + 1..received).map_while(|slot| inbox.datagram(slot));
        if batch.may_gather(&first) {
            slot += gather(gathered, first, following);
        } else {
            gathered.clear();
            slot += 1;
        }
        batch.pass(&first, gathered);
    }
    if let Some(last) = received
        .checked_sub(1)
        .and_then(|last| inbox.datagram(last))
    {
        batch.note_drops(&last);
    }
    received
}

/// Collects datagrams that one client sent in a row into `gathered`, as one group, and returns their number. A single datagram
/// is not copied.
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
        // A shorter datagram must be the last of a group.
        if next.bytes.len() < size {
            break;
        }
    }
    count
}

/// The context in which the datagrams of one batch are forwarded.
struct ClientBatch<'a> {
    worker: &'a Worker,
    udp: &'a Udp,
    listener: &'a UdpListener,
    frontend: &'a Frontend,
    flows: &'a mut FlowTable<FlowSocket>,
    now: Moment,
}

impl ClientBatch<'_> {
    /// Whether following datagrams of the same client may be gathered with this one. A group costs little more than one
    /// datagram.
    fn may_gather(&self, datagram: &Received<'_>) -> bool {
        let size = datagram.bytes.len();
        datagram.segment.is_none()
            && (1..=MAX_GATHERED).contains(&size)
            && takes_groups(self.frontend)
            && self.frontend.accept_proxy().is_none()
    }

    fn note_drops(&self, datagram: &Received<'_>) {
        if let Some(drops) = datagram.drops {
            let more = drops.wrapping_sub(self.listener.drops.get());
            // The number is that of the moment at which the datagram came. Of an inherited socket those that waited have an older
            // one than the socket has.
            if more <= u32::MAX / 2 {
                self.listener.drops.set(drops);
                self.counters().kernel_drops.add(more.into());
            }
        }
    }

    /// Forwards this datagram, or the group that was gathered beginning with it.
    fn pass(&mut self, datagram: &Received<'_>, gathered: &[u8]) {
        let Some(peer) = datagram.peer else {
            return;
        };
        let is_trusted = self
            .frontend
            .accept_proxy()
            .is_some_and(|accept| accept.trusts(peer.ip().to_canonical()));
        let key = Key {
            listener: self.listener.id,
            peer,
            local: datagram.local.unwrap_or_else(|| self.listener.local.ip()),
            client: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
        };
        if !gathered.is_empty() {
            let size = u16::try_from(datagram.bytes.len()).unwrap_or(u16::MAX);
            return self.forward(key, None, gathered, Some(size));
        }
        let group = datagram
            .segment
            .and_then(|segment| u16::try_from(segment).ok());
        match group {
            Some(segment) if !is_trusted && takes_groups(self.frontend) => {
                self.forward(key, None, datagram.bytes, Some(segment));
            }
            _ if is_trusted => datagram
                .each()
                .for_each(|bytes| self.with_header(key, bytes)),
            _ => datagram
                .each()
                .for_each(|bytes| self.forward(key, None, bytes, None)),
        }
    }

    /// Forwards a datagram of a trusted peer.
    fn with_header(&mut self, key: Key, bytes: &[u8]) {
        match read_client(bytes, &key, self.flows) {
            Ok(datagram) => {
                let key = Key {
                    client: datagram.client,
                    ..key
                };
                self.forward(key, datagram.destination, datagram.payload, None);
            }
            Err(why) => self.counters().dropped[why.index()].add(1),
        }
    }

    fn forward(
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
        // A send error concerns an earlier datagram, so this one is sent to another endpoint at once, but only once.
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
            let is_open = opened.is_ok();
            let sent = opened.and_then(|()| Ok(self.send(flow, bytes, segment)?));
            let error = match sent {
                Ok(()) => return,
                Err(OpenError::NoPort) => return self.refuse(flow, load),
                Err(OpenError::Failed(error)) => error,
            };
            self.flows.unsent(flow, load);
            let Some(failure) = socket_error::endpoint_failure(&error) else {
                if !is_open {
                    self.flows.end(self.now, flow, FlowEnd::Evicted);
                }
                break;
            };
            report_flow_failure(
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
    ) -> Result<(), OpenError> {
        let state = self.flows.endpoint(flow);
        let Some(service) = state.and_then(|state| service_of(self.frontend, state)) else {
            return Ok(());
        };
        let ends = self.listener.ends(key, destination);
        let turn = || service.state().next_source();
        let sources = source_address::candidates(&service.spec().source, endpoint, turn);
        let way = (service.as_ref(), endpoint, ends);
        let opened = self.open_from_any(flow, way, sources.clone());
        // The flow that was idle for the longest time gives up its port or its descriptor.
        let has_room = match &opened {
            Err(OpenError::NoPort) => self.flows.evict_for_port(self.now, flow, sources.clone()),
            Err(OpenError::Failed(error)) if socket_error::is_exhausted(error) => {
                self.flows.evict_for(self.now, flow)
            }
            _ => false,
        };
        let opened = if has_room {
            self.open_from_any(flow, way, sources)
        } else {
            opened
        };
        self.flows.attach(flow, opened?);
        Ok(())
    }

    /// Opens a socket from the first of these source addresses that has a free port.
    fn open_from_any(
        &mut self,
        flow: FlowId,
        way: (&Service, SocketAddr, Addresses),
        sources: impl Iterator<Item = Option<IpAddr>>,
    ) -> Result<FlowSocket, OpenError> {
        let (mut is_full, mut unavailable) = (false, None);
        for source in sources {
            match self.open_from(flow, way, source) {
                Err(OpenError::NoPort) => is_full = true,
                Err(OpenError::Failed(error)) if source_address::has_no_port(&error) => {
                    unavailable = Some(error);
                }
                opened => return opened,
            }
        }
        // A source address that this host lacks must not hide that another one has no free port.
        Err(match unavailable {
            Some(error) if !is_full => OpenError::Failed(error),
            _ => OpenError::NoPort,
        })
    }

    fn open_from(
        &mut self,
        flow: FlowId,
        (service, endpoint, ends): (&Service, SocketAddr, Addresses),
        source: Option<IpAddr>,
    ) -> Result<FlowSocket, OpenError> {
        let watch = self.udp.watch.as_fd();
        for _ in 0..PORT_ATTEMPTS {
            let mut rng = self.worker.rng.borrow_mut();
            let local = self.flows.take_port(self.now, flow, source, &mut rng);
            drop(rng);
            let way = (local.ok_or(OpenError::NoPort)?, endpoint);
            match FlowSocket::open(self.worker, service, way, ends, watch, flow) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    self.flows.port_is_foreign(self.now, flow);
                }
                opened => return Ok(opened?),
            }
        }
        Err(OpenError::NoPort)
    }

    /// Ends a new flow for which no local port could be freed.
    fn refuse(&mut self, flow: FlowId, load: Load) {
        self.flows.unsent(flow, load);
        self.flows.end(self.now, flow, FlowEnd::Evicted);
        let dropped = &self.counters().dropped[Dropped::MaxConnections.index()];
        dropped.add(load.datagrams.into());
    }

    fn send(&mut self, flow: FlowId, bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
        let Some(socket) = self.flows.attached(flow) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let Some(segment) = segment else {
            return socket.send(bytes, None);
        };
        if socket.segments.up && !socket.has_header() {
            match socket.send(bytes, Some(segment)) {
                Err(error) if cannot_segment(&error) => socket.segments.up = false,
                sent => return sent,
            }
        }
        bytes
            .chunks(segment.max(1).into())
            .try_for_each(|bytes| socket.send(bytes, None))
    }

    fn counters(&self) -> &UdpCounters {
        self.frontend.state().udp_counters(self.worker.id)
    }
}

/// Why a flow's socket could not be opened.
#[derive(Debug)]
enum OpenError {
    /// All local ports are in use towards its endpoint.
    NoPort,
    Failed(io::Error),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Foreign ports to try before a flow is given up. Each foreign port is left alone for a while.
const PORT_ATTEMPTS: usize = 16;

/// Larger datagrams are not gathered: most networks carry no larger packets, and the kernel could not segment such a group.
pub(super) const MAX_GATHERED: usize = 1_472;

/// Reports that a flow's endpoint failed.
pub(super) fn report_flow_failure(
    worker: &Worker,
    flows: &mut FlowTable<FlowSocket>,
    (flow, failure): (FlowId, Failure),
    frontend: Option<&Frontend>,
    now: Moment,
) {
    let endpoint = flows.endpoint(flow).map(Arc::clone);
    let news = flows.failed(now, flow, failure, frontend);
    if let Some(endpoint) = endpoint {
        socket_error::report_failure(&endpoint, &news, &worker.plan(), now);
    }
}

/// Whether the error says that the kernel or a device cannot segment groups.
pub(super) fn cannot_segment(error: &io::Error) -> bool {
    [Errno::IO, Errno::INVAL, Errno::MSGSIZE, Errno::OPNOTSUPP]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
