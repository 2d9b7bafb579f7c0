//! The way from us to the endpoint of one flow: a connected socket, so that only the endpoint can answer there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ballast_core::flow::{FlowId, Key, Local};
use ballast_core::pick;
use ballast_core::preamble::{Addresses, Checksum, Extras, Transport, encode_v2};
use ballast_core::service::Service;
use ballast_core::table::{SendProxy, SendProxyUdp, Tlv};
use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, Socket, Type};

use crate::sys::datagrams::{self, Outgoing};
use crate::worker::Worker;

/// What a worker keeps for a flow.
#[derive(Debug)]
pub(super) struct Leg {
    socket: OwnedFd,
    /// Most flows have none, and need not pay for one.
    header: Option<Box<Header>>,
    large: Large,
    /// Whether answers are glued together: where they come in bulk.
    is_glued: bool,
    /// Whether the kernel cuts what is glued, towards the endpoint and towards the client; some devices cannot.
    pub(super) segments: Segments,
}

/// Which way a group of datagrams can be sent with one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segments {
    pub(super) up: bool,
    pub(super) down: bool,
}

/// The PROXY header of a flow.
#[derive(Debug)]
struct Header {
    bytes: Box<[u8]>,
    on: SendProxyUdp,
}

/// Whether the kernel was told to cut large datagrams, or for which protocol it is yet to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Large {
    NotYetV4,
    NotYetV6,
    Pass,
}

/// Whom an outbound PROXY header is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends<'a> {
    pub(super) key: &'a Key,
    /// What the client spoke to.
    pub(super) destination: SocketAddr,
}

impl Leg {
    /// Connects to `endpoint` from `local`, and has `watch` tell what comes back as coming by `flow`.
    pub(super) fn open(
        worker: &Worker,
        service: &Service,
        (local, endpoint): (Local, SocketAddr),
        ends: Ends<'_>,
        watch: BorrowedFd<'_>,
        flow: FlowId,
    ) -> io::Result<Self> {
        let socket = connected(local, endpoint)?;
        let data = EventData::new_u64(flow.bits());
        epoll::add(watch, &socket, data, EventFlags::IN)?;
        Ok(Self {
            socket: socket.into(),
            header: header(worker, service, ends),
            large: match endpoint.is_ipv4() {
                true => Large::NotYetV4,
                false => Large::NotYetV6,
            },
            is_glued: false,
            segments: Segments {
                up: true,
                down: true,
            },
        })
    }

    /// Whether each datagram, or the next one, needs something of its own before it.
    pub(super) fn has_header(&self) -> bool {
        self.header.is_some()
    }

    /// Sends one datagram, or a group that the kernel is to cut.
    pub(super) fn send(&mut self, bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
        let head = self.header.as_ref().map_or(&[][..], |header| &header.bytes);
        if self.large != Large::Pass && head.len() + bytes.len() > SURELY_PASSES {
            datagrams::allow_fragments(&self.socket, self.large == Large::NotYetV4)?;
            self.large = Large::Pass;
        }
        let outgoing = Outgoing {
            head,
            bytes,
            segment,
            ..Outgoing::default()
        };
        datagrams::send(&self.socket, &outgoing)?;
        self.header
            .take_if(|header| header.on == SendProxyUdp::First);
        Ok(())
    }

    /// Many answers came at once: they may be glued from now on.
    pub(super) fn glue(&mut self) {
        if !self.is_glued {
            self.is_glued = true;
            // An old kernel cannot; it is only slower without.
            datagrams::glue(&self.socket).ok();
        }
    }
}

impl AsFd for Leg {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket from `local` to `endpoint`. It fails with `AddrInUse` if somebody else has the port.
fn connected(local: Local, endpoint: SocketAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(endpoint), kind, None)?;
    if endpoint.is_ipv6() {
        // Else it could not have a port that a socket of IPv4 has.
        socket.set_only_v6(true)?;
    }
    // Unlike SO_REUSEADDR, this shares ports with processes of the same user only. The first socket at a port is bound without
    // it, so that ports of other processes, another Ballast included, are never shared.
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

fn header(worker: &Worker, service: &Service, ends: Ends<'_>) -> Option<Box<Header>> {
    let spec = service.spec();
    if spec.send_proxy == SendProxy::Off {
        return None;
    }
    let addresses = Addresses {
        source: ends.key.client,
        destination: pick::Key::new(ends.destination).client(),
    };
    let wants = |tlv| spec.send_proxy_tlvs.iter().any(|tlvs| tlvs.contains(&tlv));
    let id = worker.fresh_id();
    let extras = Extras {
        unique_id: wants(Tlv::UniqueId).then_some(id.as_slice()),
        checksum: match wants(Tlv::Crc32c) {
            true => Checksum::Crc32c,
            false => Checksum::Absent,
        },
        ..Extras::default()
    };
    let mut bytes = Vec::new();
    encode_v2(addresses, Transport::Datagram, &extras, &mut bytes);
    Some(Box::new(Header {
        bytes: bytes.into(),
        on: spec.send_proxy_udp,
    }))
}

/// A datagram of this size fits into the smallest packets that IPv6 allows, a header or two included.
const SURELY_PASSES: usize = 1_200;

// A worker keeps one for each flow, beside what the flow table knows of it.
const _: () = assert!(size_of::<Leg>() == 16);
