//! Readiness and deadlines of one worker's TCP connections.
//!
//! The worker watches the sockets of all its connections with one epoll, which is a single descriptor to the runtime.
//! Registering each socket with the runtime would cost an `epoll_ctl` on close (here, the kernel removes a closed descriptor),
//! and an allocation and a lock for each socket instead of a slot of a vector. Deadlines are in one timer wheel for the same
//! reason: setting or removing one costs a few instructions.
//!
//! A [`Stream`] or a [`Timer`] belongs to one task at a time: it stores one waker.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use ballast_core::deadlines::Deadlines;
use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use crate::os::clock::Clock;
use crate::os::sys;

/// The sockets and timers of one worker. [`Poller::run`] must run at the same time.
#[derive(Debug)]
pub(crate) struct Poller {
    clock: Clock,
    epoll: AsyncFd<OwnedFd>,
    sockets: RefCell<Slab<Socket>>,
    timers: RefCell<Timers>,
    /// Wakes [`Poller::run`].
    driver: RefCell<Option<Waker>>,
    /// When [`Poller::run`] wakes by itself.
    awaited: Cell<Moment>,
}

/// The state of a registered socket.
#[derive(Debug, Default)]
struct Socket {
    ready: Ready,
    waker: Option<Waker>,
    /// The endpoint that the socket is connected to.
    endpoint: Option<Arc<EndpointState>>,
}

#[derive(Debug, Default)]
struct Timers {
    deadlines: Deadlines,
    slab: Slab<Option<Waker>>,
}

impl Poller {
    pub(crate) fn new(clock: Clock) -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self {
            clock,
            epoll: sys::watched(epoll::create(epoll::CreateFlags::CLOEXEC)?)?,
            sockets: RefCell::default(),
            timers: RefCell::default(),
            driver: RefCell::default(),
            awaited: Cell::new(Moment(0)),
        }))
    }

    /// Wakes tasks whose sockets are ready or whose timers have expired, for as long as it is polled.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut sleep = pin!(self.sleep());
        poll_fn(|cx| self.drive(&mut events, sleep.as_mut(), cx)).await;
    }

    fn drive(
        &self,
        events: &mut Vec<Event>,
        mut sleep: Pin<&mut Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let driver = &mut *self.driver.borrow_mut();
        match driver {
            Some(known) => known.clone_from(cx.waker()),
            None => *driver = Some(cx.waker().clone()),
        }
        while let Poll::Ready(ready) = self.epoll.poll_read_ready(cx) {
            let Ok(mut ready) = ready else {
                // The runtime is shutting down.
                return Poll::Ready(());
            };
            if self.dispatch(events) < EVENTS {
                ready.clear_ready();
            }
        }
        loop {
            if sleep.as_mut().poll(cx).is_ready() {
                let now = self.clock.now();
                // The runtime may have looked at the sockets before the system took the processor from this worker for a while.
                // What arrived by now must not count as late.
                while self.dispatch(events) >= EVENTS {}
                self.expire(now);
                sleep.set(self.sleep());
            } else if sleep.deadline() > self.clock.instant(self.awaited.get()) {
                sleep.set(self.sleep());
            } else {
                return Poll::Pending;
            }
        }
    }

    /// Marks the streams that are connected to these endpoints as cut, and wakes their tasks.
    pub(crate) fn cut(&self, endpoints: &[Arc<EndpointState>]) {
        let gone: HashSet<*const EndpointState> = endpoints.iter().map(Arc::as_ptr).collect();
        for socket in &mut self.sockets.borrow_mut().items {
            let endpoint = socket.endpoint.as_ref().map(Arc::as_ptr);
            if endpoint.is_some_and(|endpoint| gone.contains(&endpoint)) {
                socket.ready.0 |= Ready::CUT;
                if let Some(waker) = &socket.waker {
                    waker.wake_by_ref();
                }
            }
        }
    }

    /// Wakes the tasks of all sockets.
    pub(crate) fn wake_all(&self) {
        for waker in self
            .sockets
            .borrow()
            .items
            .iter()
            .filter_map(|socket| socket.waker.as_ref())
        {
            waker.wake_by_ref();
        }
    }

    /// Reads the kernel's next events. Tasks run only afterwards, so no slot is reused in between.
    fn dispatch(&self, events: &mut Vec<Event>) -> usize {
        events.clear();
        let spare = spare_capacity(events);
        // This call fails only when it is interrupted.
        let got = epoll::wait(self.epoll.get_ref(), spare, Some(&Timespec::default()));
        let mut sockets = self.sockets.borrow_mut();
        for event in &*events {
            let Some(socket) = usize::try_from(event.data.u64())
                .ok()
                .and_then(|slot| sockets.items.get_mut(slot))
            else {
                continue;
            };
            socket.ready.add(event.flags);
            if let Some(waker) = &socket.waker {
                waker.wake_by_ref();
            }
        }
        got.unwrap_or(EVENTS)
    }

    /// Wakes the tasks whose timers have expired.
    fn expire(&self, now: Moment) {
        let mut timers = self.timers.borrow_mut();
        while let Some(due) = timers.deadlines.pop(now) {
            if let Some(Some(waker)) = timers.slab.items.get_mut(due as usize) {
                waker.wake_by_ref();
            }
        }
    }

    /// Sleeps until the next deadline, but not for longer than [`LONGEST_SLEEP`].
    fn sleep(&self) -> Sleep {
        let longest = self.clock.now().after(LONGEST_SLEEP);
        let next = self.timers.borrow().deadlines.next();
        let until = next.map_or(longest, |next| next.min(longest));
        self.awaited.set(until);
        sleep_until(self.clock.instant(until))
    }
}

/// A vector with reusable slots.
#[derive(Debug)]
struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Default> Slab<T> {
    fn take(&mut self, item: T) -> u32 {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.items.get_mut(slot as usize)
        {
            *place = item;
            return slot;
        }
        self.items.push(item);
        u32::try_from(self.items.len() - 1).unwrap_or(u32::MAX)
    }

    /// Returns the item of the slot. The caller drops it once nothing is borrowed any more.
    fn release(&mut self, slot: u32) -> T {
        self.free.push(slot);
        self.items
            .get_mut(slot as usize)
            .map(mem::take)
            .unwrap_or_default()
    }
}

/// Which operations on a socket can proceed without waiting, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
struct Ready(u8);

impl Ready {
    const READ: u8 = 1;
    const WRITE: u8 = 2;
    /// The peer has ended its direction, or the connection is broken: reads never wait again.
    const READ_END: u8 = 4;
    /// The connection is broken, or both directions have ended: writes never wait again.
    const WRITE_END: u8 = 8;
    const ERROR: u8 = 16;
    /// An operator or a table has cut the connection.
    const CUT: u8 = 32;

    fn add(&mut self, flags: EventFlags) {
        let mut add = |on: EventFlags, bits: u8| {
            if flags.intersects(on) {
                self.0 |= bits;
            }
        };
        add(EventFlags::IN, Self::READ);
        add(EventFlags::OUT, Self::WRITE);
        add(EventFlags::RDHUP, Self::READ_END);
        add(EventFlags::HUP, Self::READ_END | Self::WRITE_END);
        add(
            EventFlags::ERR,
            Self::READ_END | Self::WRITE_END | Self::ERROR,
        );
    }
}

/// A TCP socket that is connected or connecting. Dropping it resets the connection unless [`Stream::close_in_order`] was
/// called, so that the peer learns of every end that was not orderly.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: TcpStream,
    slot: Slot,
    is_orderly: Cell<bool>,
    nagle: Cell<Nagle>,
}

/// When the kernel is asked to send small segments at once (TCP_NODELAY). It delays a segment only while an earlier one is
/// unacknowledged, so a connection with a single short request never needs the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nagle {
    /// The option is set.
    Off,
    /// The option is to be set before the second write, or before a first write of several segments.
    BeforeFirstWrite,
    BeforeSecondWrite,
}

impl Stream {
    /// Watches the socket of an accepted connection. The socket is non-blocking and has TCP_NODELAY.
    pub(crate) fn accepted(poller: &Rc<Poller>, fd: TcpStream) -> io::Result<Self> {
        Self::new(poller, fd, None, Nagle::Off)
    }

    /// Watches a non-blocking socket that is connecting to this endpoint.
    pub(crate) fn connecting(
        poller: &Rc<Poller>,
        fd: TcpStream,
        endpoint: &Arc<EndpointState>,
    ) -> io::Result<Self> {
        let endpoint = Some(Arc::clone(endpoint));
        Self::new(poller, fd, endpoint, Nagle::BeforeFirstWrite)
    }

    fn new(
        poller: &Rc<Poller>,
        fd: TcpStream,
        endpoint: Option<Arc<EndpointState>>,
        nagle: Nagle,
    ) -> io::Result<Self> {
        let stream = Self {
            fd,
            slot: Slot::new(poller, endpoint),
            is_orderly: Cell::new(false),
            nagle: Cell::new(nagle),
        };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(
            poller.epoll.get_ref(),
            &stream.fd,
            EventData::new_u64(stream.slot.index.into()),
            flags,
        )?;
        Ok(stream)
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.fd.peer_addr()
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.fd.local_addr()
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.fd.take_error()
    }

    /// Whether the kernel has reported that the connection is broken.
    pub(crate) fn is_broken(&self) -> bool {
        self.slot.has(Ready::ERROR)
    }

    /// Ready when a read may make progress.
    pub(crate) fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        self.slot.poll_any(Ready::READ | Ready::READ_END, cx)
    }

    /// Ready when a write may make progress.
    pub(crate) fn poll_writable(&self, cx: &Context<'_>) -> Poll<()> {
        self.slot.poll_any(Ready::WRITE | Ready::WRITE_END, cx)
    }

    /// Ready when the connection is broken.
    pub(crate) fn poll_failed(&self, cx: &Context<'_>) -> Poll<()> {
        self.slot.poll_any(Ready::ERROR, cx)
    }

    /// Ends this side's direction of the connection.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        self.fd.shutdown(Shutdown::Write)
    }

    /// Lets the next read ask the kernel, even if that has reported nothing.
    pub(crate) fn look_again(&self) {
        self.slot.set(Ready::READ);
    }

    /// Whether the peer has neither sent a byte nor ended the connection since everything was read, as far as the kernel has reported.
    pub(crate) fn is_idle(&self) -> bool {
        if self.slot.has(Ready::READ_END | Ready::WRITE_END) {
            return false;
        }
        if !self.slot.has(Ready::READ) {
            return true;
        }
        // The last read may have emptied the socket without noticing.
        let mut byte = [0];
        match recv(&self.fd, &mut byte, RecvFlags::PEEK) {
            Err(rustix::io::Errno::AGAIN) => {
                self.slot.clear(Ready::READ);
                true
            }
            _ => false,
        }
    }

    /// Whether an order has cut the connection. The task is woken when that happens.
    pub(crate) fn is_cut(&self) -> bool {
        self.slot.has(Ready::CUT)
    }

    /// Makes dropping the stream an ordinary close from now on.
    pub(crate) fn close_in_order(&self) {
        self.is_orderly.set(true);
    }

    /// Makes dropping the stream a reset again.
    pub(crate) fn close_by_reset(&self) {
        self.is_orderly.set(false);
    }

    /// Ready when the attempt to connect has ended, with the error if it failed.
    pub(crate) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_writable(cx));
        // Only a socket that reports a failure is asked for its error.
        if self.slot.has(Ready::WRITE_END)
            && let Some(error) = self.take_error()?
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }

    /// Reads into `buffer`, which is not empty. Returns 0 once the peer has ended its direction.
    pub(crate) fn poll_recv(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let most = buffer.len();
        loop {
            ready!(self.poll_readable(cx));
            match recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((_, taken)) => {
                    // A short read has emptied the socket. The next bytes cause a new event.
                    if taken < most && taken > 0 {
                        self.slot.clear(Ready::READ);
                    }
                    return Poll::Ready(Ok(taken));
                }
                Err(error) => self.clear_if_blocked(Ready::READ | Ready::READ_END, error)?,
            }
        }
    }

    /// Writes some of `bytes`.
    pub(crate) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_writable(cx));
            self.before_writing(bytes.len());
            match send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(given) => {
                    if given < bytes.len() {
                        self.slot.clear(Ready::WRITE);
                    }
                    return Poll::Ready(Ok(given));
                }
                Err(error) => self.clear_if_blocked(Ready::WRITE | Ready::WRITE_END, error)?,
            }
        }
    }

    /// Makes a call that reads from the socket, once it may succeed. `WouldBlock` from the call means that the socket is empty.
    pub(crate) fn poll_reading<T>(
        &self,
        cx: &Context<'_>,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(self.poll_readable(cx));
            match call() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.slot.clear(Ready::READ | Ready::READ_END);
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// Makes a call that writes to the socket, once it may succeed.
    pub(crate) fn poll_writing<T>(
        &self,
        cx: &Context<'_>,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(self.poll_writable(cx));
            self.before_writing(usize::MAX);
            match call() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.slot.clear(Ready::WRITE | Ready::WRITE_END);
                }
                result => return Poll::Ready(result),
            }
        }
    }

    fn before_writing(&self, bytes: usize) {
        let nagle = match self.nagle.get() {
            Nagle::Off => return,
            Nagle::BeforeFirstWrite if bytes <= ONE_SEGMENT => Nagle::BeforeSecondWrite,
            Nagle::BeforeFirstWrite | Nagle::BeforeSecondWrite => {
                // This fails only for a closed socket, which the write reports.
                self.fd.set_nodelay(true).ok();
                Nagle::Off
            }
        };
        self.nagle.set(nagle);
    }

    fn clear_if_blocked(&self, bits: u8, error: rustix::io::Errno) -> io::Result<()> {
        match error {
            rustix::io::Errno::AGAIN => self.slot.clear(bits),
            rustix::io::Errno::INTR => {}
            error => return Err(error.into()),
        }
        Ok(())
    }
}

/// A slot among the poller's sockets, released when this is dropped.
#[derive(Debug)]
struct Slot {
    index: u32,
    poller: Rc<Poller>,
}

impl Slot {
    fn new(poller: &Rc<Poller>, endpoint: Option<Arc<EndpointState>>) -> Self {
        let socket = Socket {
            endpoint,
            ..Socket::default()
        };
        Self {
            index: poller.sockets.borrow_mut().take(socket),
            poller: Rc::clone(poller),
        }
    }

    fn has(&self, bits: u8) -> bool {
        let sockets = self.poller.sockets.borrow();
        let socket = sockets.items.get(self.index as usize);
        socket.is_some_and(|socket| socket.ready.0 & bits != 0)
    }

    fn set(&self, bits: u8) {
        let mut sockets = self.poller.sockets.borrow_mut();
        if let Some(socket) = sockets.items.get_mut(self.index as usize) {
            socket.ready.0 |= bits;
        }
    }

    fn clear(&self, bits: u8) {
        let mut sockets = self.poller.sockets.borrow_mut();
        if let Some(socket) = sockets.items.get_mut(self.index as usize) {
            socket.ready.0 &= !bits;
        }
    }

    fn poll_any(&self, bits: u8, cx: &Context<'_>) -> Poll<()> {
        let mut sockets = self.poller.sockets.borrow_mut();
        let Some(socket) = sockets.items.get_mut(self.index as usize) else {
            return Poll::Ready(());
        };
        if socket.ready.0 & bits != 0 {
            return Poll::Ready(());
        }
        let replaced = store_waker(&mut socket.waker, cx);
        drop(sockets);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let socket = self.poller.sockets.borrow_mut().release(self.index);
        drop(socket);
    }
}

/// Tells a task without a stream to an endpoint when an order cuts that endpoint's connections.
#[derive(Debug)]
pub(crate) struct CutWatch(Slot);

impl CutWatch {
    pub(crate) fn new(poller: &Rc<Poller>, endpoint: &Arc<EndpointState>) -> Self {
        Self(Slot::new(poller, Some(Arc::clone(endpoint))))
    }

    /// Ready once the endpoint's connections have been cut.
    pub(crate) fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.poll_any(Ready::CUT, cx)
    }
}

/// Stores the task's waker, unless it is already stored. Returns the previous waker, which the caller drops once nothing is
/// borrowed: it may be the last owner of a task, whose drop may call into the poller.
pub(crate) fn store_waker(known: &mut Option<Waker>, cx: &Context<'_>) -> Option<Waker> {
    match known {
        Some(known) if known.will_wake(cx.waker()) => None,
        known => known.replace(cx.waker().clone()),
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_orderly.get() {
            // This fails only for a socket that is already closed.
            SockRef::from(&self.fd)
                .set_linger(Some(Duration::ZERO))
                .ok();
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let taken = ready!(self.poll_recv(cx, buffer.initialize_unfilled()))?;
        buffer.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end_writing())
    }
}

/// A deadline of a task, which can be set again and again.
#[derive(Debug)]
pub(crate) struct Timer {
    slot: u32,
    poller: Rc<Poller>,
    deadline: Moment,
}

impl Timer {
    pub(crate) fn new(poller: &Rc<Poller>) -> Self {
        Self {
            slot: poller.timers.borrow_mut().slab.take(None),
            poller: Rc::clone(poller),
            deadline: Moment(u64::MAX),
        }
    }

    /// Sets the deadline, replacing the previous one.
    pub(crate) fn set(&mut self, deadline: Moment) {
        self.deadline = deadline;
        self.poller
            .timers
            .borrow_mut()
            .deadlines
            .set(self.slot, deadline);
        if deadline < self.poller.awaited.get() {
            self.poller.awaited.set(deadline);
            if let Some(driver) = &*self.poller.driver.borrow() {
                driver.wake_by_ref();
            }
        }
    }

    /// Sets the deadline, unless it is earlier already.
    pub(crate) fn set_if_earlier(&mut self, deadline: Moment) {
        if deadline < self.deadline {
            self.set(deadline);
        }
    }

    /// Removes the deadline.
    pub(crate) fn clear(&mut self) {
        self.deadline = Moment(u64::MAX);
        self.poller.timers.borrow_mut().deadlines.remove(self.slot);
    }

    /// Ready once the deadline has passed.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut timers = self.poller.timers.borrow_mut();
        if !timers.deadlines.has(self.slot) {
            if self.deadline != Moment(u64::MAX) {
                return Poll::Ready(());
            }
            return Poll::Pending;
        }
        let Some(waker) = timers.slab.items.get_mut(self.slot as usize) else {
            return Poll::Pending;
        };
        let replaced = store_waker(waker, cx);
        drop(timers);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut timers = self.poller.timers.borrow_mut();
        timers.deadlines.remove(self.slot);
        let waker = timers.slab.release(self.slot);
        drop(timers);
        drop(waker);
    }
}

/// A write of this size fits into one segment on every path.
const ONE_SEGMENT: usize = 1_200;
/// Events read with one call.
const EVENTS: usize = 128;
/// [`Poller::run`] wakes at least this often. Setting a deadline that is farther away does not wake it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
