//! The socket of one flow. It is connected to the flow's endpoint, so that only the endpoint can reply there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ballast_core::flow::{FlowId, HandedHeader, Local};
use ballast_core::preamble::{self, Addresses, Parsed, Transport, Versions};
use ballast_core::service::Service;
use ballast_core::table::{DatagramHeader, SendProxyUdp};
use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, Socket, Type};

use crate::connect::send_proxy;
use crate::os::sys::datagrams::{self, Outgoing};
use crate::worker::Worker;

/// The socket of a flow, and what sending by it needs.
#[derive(Debug)]
pub(super) struct FlowSocket {
    socket: OwnedFd,
    /// Boxed, because most flows have no PROXY header.
    header: Option<Box<Header>>,
    fragmentation: Fragmentation,
    /// Whether the kernel coalesces received datagrams (GRO). Set once replies arrive in bulk.
    is_coalescing: bool,
    /// Whether the kernel can segment groups (GSO), towards the endpoint and towards the client. Some devices cannot.
    pub(super) segments: Segments,
}

/// In which directions a group of datagrams can be sent with one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segments {
    pub(super) up: bool,
    pub(super) down: bool,
}

/// The PROXY header of a flow.
#[derive(Debug)]
struct Header {
    rule: DatagramHeader,
    bytes: Box<[u8]>,
    /// Whether a datagram with it was sent.
    was_sent: bool,
}

impl Header {
    /// Whether the next datagram carries it.
    fn is_due(&self) -> bool {
        self.rule.on == SendProxyUdp::Every || !self.was_sent
    }

    /// The two ends that it names.
    fn addresses(&self) -> Option<Addresses> {
        match preamble::step(&self.bytes, Versions::V2, Transport::Udp) {
            Parsed::Header(header) => Some(header.addresses),
            _ => None,
        }
    }
}

/// Whether the kernel may fragment large datagrams. If it has not been set so yet, the variant names the protocol of the
/// option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fragmentation {
    NotYetV4,
    NotYetV6,
    Allowed,
}

impl FlowSocket {
    /// Connects to `endpoint` from `local`, and registers the socket with `watch` under `flow`.
    pub(super) fn open(
        worker: &Worker,
        service: &Service,
        (local, endpoint): (Local, SocketAddr),
        ends: Addresses,
        watch: BorrowedFd<'_>,
        flow: FlowId,
    ) -> io::Result<Self> {
        let socket = connected(local, endpoint)?;
        let header = header(worker, service, ends);
        Self::watched(socket.into(), header, endpoint, watch, flow)
    }

    /// Goes on with the socket of a flow of another process, which is connected to `endpoint`.
    pub(super) fn adopt(
        socket: OwnedFd,
        header: Option<HandedHeader>,
        endpoint: SocketAddr,
        watch: BorrowedFd<'_>,
        flow: FlowId,
    ) -> io::Result<Self> {
        let header = header.map(|handed| {
            let rule = DatagramHeader {
                on: if handed.is_for_one {
                    SendProxyUdp::First
                } else {
                    SendProxyUdp::Every
                },
                has_unique_id: handed.has_unique_id,
                has_checksum: handed.has_checksum,
            };
            Box::new(Header {
                rule,
                bytes: handed.bytes.into(),
                was_sent: handed.was_sent,
            })
        });
        Self::watched(socket, header, endpoint, watch, flow)
    }

    /// Carries the PROXY header from now on as this service, in a new table, has it. A flow that has no header yet takes `ends`: what
    /// another proxy said of its destination is not known any more.
    pub(super) fn revise(&mut self, worker: &Worker, service: &Service, ends: Addresses) {
        let rule = self.header.as_ref().map(|header| header.rule);
        if rule == service.spec().datagram_header() {
            return;
        }
        let before = self.header.take();
        let known = before.as_ref().and_then(|before| before.addresses());
        self.header = header(worker, service, known.unwrap_or(ends));
        if let (Some(header), Some(before)) = (&mut self.header, before) {
            header.was_sent = before.was_sent;
        }
    }

    fn watched(
        socket: OwnedFd,
        header: Option<Box<Header>>,
        endpoint: SocketAddr,
        watch: BorrowedFd<'_>,
        flow: FlowId,
    ) -> io::Result<Self> {
        let data = EventData::new_u64(flow.bits());
        epoll::add(watch, &socket, data, EventFlags::IN)?;
        Ok(Self {
            socket,
            header,
            fragmentation: if endpoint.is_ipv4() {
                Fragmentation::NotYetV4
            } else {
                Fragmentation::NotYetV6
            },
            is_coalescing: false,
            segments: Segments {
                up: true,
                down: true,
            },
        })
    }

    /// The socket, which nothing here watches any more, and the header of its datagrams.
    pub(super) fn give(self, watch: BorrowedFd<'_>) -> (OwnedFd, Option<HandedHeader>) {
        let Self { socket, header, .. } = self;
        // The kernel would go on reporting it here for as long as the next process has it.
        epoll::delete(watch, &socket).ok();
        let header = header.map(|header| HandedHeader {
            is_for_one: header.rule.on == SendProxyUdp::First,
            was_sent: header.was_sent,
            has_unique_id: header.rule.has_unique_id,
            has_checksum: header.rule.has_checksum,
            bytes: header.bytes.into(),
        });
        (socket, header)
    }

    /// Whether each datagram, or the next one, needs a PROXY header.
    pub(super) fn has_header(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.is_due())
    }

    /// Sends one datagram, or a group that the kernel segments.
    pub(super) fn send(&mut self, bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
        let head = match &self.header {
            Some(header) if header.is_due() => &header.bytes[..],
            _ => &[],
        };
        if self.fragmentation != Fragmentation::Allowed
            && head.len() + bytes.len() > NEVER_FRAGMENTED
        {
            datagrams::allow_fragments(
                &self.socket,
                self.fragmentation == Fragmentation::NotYetV4,
            )?;
            self.fragmentation = Fragmentation::Allowed;
        }
        let outgoing = Outgoing {
            head,
            bytes,
            segment,
            ..Outgoing::default()
        };
        datagrams::send(&self.socket, &outgoing)?;
        if let Some(header) = &mut self.header {
            header.was_sent = true;
        }
        Ok(())
    }

    /// Lets the kernel coalesce received datagrams. Called once many replies have come at once.
    pub(super) fn coalesce(&mut self) {
        if !self.is_coalescing {
            self.is_coalescing = true;
            // An old kernel cannot; then receiving is only slower.
            datagrams::coalesce(&self.socket).ok();
        }
    }
}

impl AsFd for FlowSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Creates a socket from `local` to `endpoint`. Fails with `AddrInUse` if somebody else has the port.
fn connected(local: Local, endpoint: SocketAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(endpoint), kind, None)?;
    if endpoint.is_ipv6() {
        // Otherwise it could not use a port that an IPv4 socket uses.
        socket.set_only_v6(true)?;
    }
    // Unlike SO_REUSEADDR, SO_REUSEPORT shares ports only with processes of the same user. The first socket at a port is bound
    // without it, so that ports of other processes, another Ballast included, are never shared.
    if local.is_shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&local.address.into())?;
    if !local.is_shared {
        socket.set_reuse_port(true)?;
    }
    socket.connect(&endpoint.into())?;
    Ok(socket)
}

fn header(worker: &Worker, service: &Service, ends: Addresses) -> Option<Box<Header>> {
    let rule = service.spec().datagram_header()?;
    let bytes = send_proxy::header(worker, service, Transport::Udp, || Some(ends), None, None);
    Some(Box::new(Header {
        rule,
        bytes: bytes.into(),
        was_sent: false,
    }))
}

/// A datagram of this size fits into the smallest packets that IPv6 allows, even with a header or two.
const NEVER_FRAGMENTED: usize = 1_200;

// A worker keeps one of these for each flow, in addition to the flow table's entry.
const _: () = assert!(size_of::<FlowSocket>() == 16);
