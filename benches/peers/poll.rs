//! Readiness: a thin coat over epoll, edge-triggered, that the floor, the origin and the client share.
//!
//! It owns the epoll descriptor and the list of events of one turn. It never owns a socket and never decides anything.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

pub(crate) use rustix::event::epoll::EventFlags;

/// One epoll descriptor and the events of its last turn.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        let none = epoll::Event {
            flags: EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: vec![none; EVENTS],
        })
    }

    /// Registers `fd` for everything that can happen to a stream, at its edges. It is never registered again.
    #[inline]
    pub(crate) fn add_stream(&self, fd: impl AsFd, token: usize) -> io::Result<()> {
        self.add(fd, token, STREAM)
    }

    #[inline]
    pub(crate) fn add(&self, fd: impl AsFd, token: usize, interest: EventFlags) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(token as u64),
            interest,
        )?)
    }

    /// Waits for events and returns how many there are. `None` waits for ever.
    #[inline]
    pub(crate) fn wait(&mut self, at_most: Option<Duration>) -> io::Result<usize> {
        let timeout = at_most.and_then(|limit| Timespec::try_from(limit).ok());
        match epoll::wait(&self.epoll, self.events.as_mut_slice(), timeout.as_ref()) {
            Ok(ready) => Ok(ready),
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The token and the flags of event `index` of the last turn.
    #[inline]
    pub(crate) fn event(&self, index: usize) -> (usize, EventFlags) {
        let Some(event) = self.events.get(index) else {
            return (usize::MAX, EventFlags::empty());
        };
        let token = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
        (token, event.flags)
    }
}

/// A listening socket whose accepted sockets inherit TCP_NODELAY from it.
pub(crate) fn listen(at: std::net::SocketAddr) -> io::Result<OwnedFd> {
    let listener = stream_socket(&at)?;
    net::sockopt::set_socket_reuseaddr(&listener, true)?;
    net::sockopt::set_tcp_nodelay(&listener, true)?;
    net::bind(&listener, &at)?;
    net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// A new stream socket that never blocks.
#[inline]
pub(crate) fn stream_socket(towards: &std::net::SocketAddr) -> io::Result<OwnedFd> {
    let family = if towards.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    Ok(net::socket_with(
        family,
        SocketType::STREAM,
        NONBLOCKING,
        None,
    )?)
}

/// Starts to connect `socket`; that it is not done yet is no error.
#[inline]
pub(crate) fn start_connect(socket: &OwnedFd, to: &std::net::SocketAddr) -> io::Result<()> {
    match net::connect(socket, to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// True where the event says that the other side has closed, or that the socket is broken.
#[inline]
pub(crate) fn is_closing(flags: EventFlags) -> bool {
    flags.intersects(
        EventFlags::RDHUP
            .union(EventFlags::HUP)
            .union(EventFlags::ERR),
    )
}

/// Flags of every socket here.
pub(crate) const NONBLOCKING: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

const STREAM: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
const EVENTS: usize = 256;
const BACKLOG: i32 = 4096;
