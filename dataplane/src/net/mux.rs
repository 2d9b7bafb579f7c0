//! The shell around one HTTP/2 connection: [`Connection`] decides, and this moves the bytes and wakes the tasks.
//!
//! A connection has a driver, which owns its socket and polls [`Mux::poll`], and a task for each of its streams. A task writes to the
//! connection's output, and the driver sends what all tasks have written since it ran last. Output is bounded: above
//! [`MOST_OUTPUT`] bytes tasks wait, in order, so each stream gets its turn. A peer that does not read is not read from.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use ballast_core::http2::{Connection, ErrorCode, Event, Fields, Head, Key, Reset};
use ballast_core::moment::Moment;
use tokio::io::AsyncWrite;

use crate::net::poller::store_waker;
use crate::net::relay::{Tools, yield_to_others};
use crate::net::tls::MaybeTls;

/// One HTTP/2 connection, shared by its driver and the tasks of its streams.
pub(crate) struct Mux {
    core: RefCell<Connection>,
    /// The tasks of streams, by the place of the stream.
    tasks: RefCell<Vec<Option<Waker>>>,
    /// Streams that wait for room in the output.
    waiting: RefCell<VecDeque<Key>>,
    driver: RefCell<Option<Waker>>,
    events: RefCell<Vec<Event>>,
    failed: Cell<Option<ErrorCode>>,
    /// Whether this process has ended the connection, by an order or by a panic.
    is_cut: Cell<bool>,
    /// When bytes of the peer arrived last.
    last_read: Cell<Moment>,
    /// Whether the peer has sent something since it was asked for a sign of life.
    is_alive: Cell<bool>,
    /// Client: when the first of the requests was sent that are under way.
    busy_since: Cell<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    ByPeer,
    /// The peer did not keep to the protocol or to its limits, and was sent the error.
    Refused(ErrorCode),
    /// The connection is broken.
    Failed,
}

impl Mux {
    pub(crate) fn new(core: Connection, now: Moment) -> Rc<Self> {
        Rc::new(Self {
            core: RefCell::new(core),
            tasks: RefCell::default(),
            waiting: RefCell::default(),
            driver: RefCell::default(),
            events: RefCell::default(),
            failed: Cell::default(),
            is_cut: Cell::new(false),
            last_read: Cell::new(now),
            is_alive: Cell::new(true),
            busy_since: Cell::new(now),
        })
    }

    /// Sends and receives what can be sent and received, and calls `opened` for each new request. Ready when the connection has
    /// ended; its streams have been notified then.
    pub(crate) fn poll(
        self: &Rc<Self>,
        io: &mut MaybeTls,
        tools: &Tools,
        cx: &mut Context<'_>,
        opened: &mut dyn FnMut(Stream),
    ) -> Poll<End> {
        let replaced = store_waker(&mut self.driver.borrow_mut(), cx);
        drop(replaced);
        let mut read = 0;
        loop {
            let sent = self.poll_send(io, cx);
            if let Poll::Ready(Err(_)) = sent {
                return Poll::Ready(self.lose(End::Failed));
            }
            if let Some(code) = self.failed.get() {
                return sent.map(|_| End::Refused(code));
            }
            if self.backlog() >= MOST_OUTPUT {
                return Poll::Pending;
            }
            if read >= TURN {
                yield_to_others(cx);
                return Poll::Pending;
            }
            match ready!(self.poll_receive(io, tools, cx)) {
                Ok(0) => return Poll::Ready(self.lose(End::ByPeer)),
                Ok(count) => read += count,
                Err(_) => return Poll::Ready(self.lose(End::Failed)),
            }
            self.dispatch(opened);
        }
    }

    /// Takes in bytes that were read before the connection was known to speak HTTP/2.
    pub(crate) fn receive(
        self: &Rc<Self>,
        bytes: &[u8],
        now: Moment,
        opened: &mut dyn FnMut(Stream),
    ) {
        self.received(bytes, now);
        self.dispatch(opened);
    }

    fn poll_receive(
        &self,
        io: &mut MaybeTls,
        tools: &Tools,
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut scratch = tools.scratch();
        let count = ready!(io.poll_recv(cx, &mut scratch))?;
        self.received(scratch.split_at(count).0, tools.clock().soon());
        Poll::Ready(Ok(count))
    }

    fn received(&self, bytes: &[u8], now: Moment) {
        self.last_read.set(now);
        self.is_alive.set(true);
        let mut core = self.core.borrow_mut();
        if let Err(code) = core.receive(bytes, now, &mut self.events.borrow_mut()) {
            self.failed.set(Some(code));
        }
    }

    /// Sends the output. Ready when all of it has been sent.
    fn poll_send(&self, io: &mut MaybeTls, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = loop {
            let mut core = self.core.borrow_mut();
            if core.output().is_empty() {
                drop(core);
                // Bytes that are encrypted and not sent are a part of the output.
                break Pin::new(io).poll_flush(cx);
            }
            match io.poll_send(cx, core.output()) {
                Poll::Ready(Ok(count)) => core.advance(count),
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        if self.backlog() <= MOST_OUTPUT / 2 {
            let waiting = mem::take(&mut *self.waiting.borrow_mut());
            waiting.into_iter().for_each(|key| self.wake(key));
        }
        result
    }

    fn dispatch(self: &Rc<Self>, opened: &mut dyn FnMut(Stream)) {
        let mut events = mem::take(&mut *self.events.borrow_mut());
        for event in events.drain(..) {
            match event {
                Event::Request(key) => opened(Stream::new(self, key)),
                Event::Changed(key) => self.wake(key),
                Event::AllChanged => self.wake_all(),
            }
        }
        *self.events.borrow_mut() = events;
    }

    fn lose(&self, end: End) -> End {
        self.end();
        end
    }

    /// Tells the tasks of all streams that the connection has ended.
    pub(crate) fn end(&self) {
        self.core.borrow_mut().end(&mut Vec::new());
        self.wake_all();
    }

    /// Tells the tasks of all streams that an order or a panic has ended the connection.
    pub(crate) fn cut(&self) {
        self.is_cut.set(true);
        self.end();
    }

    /// Ends the connection with an error, which is sent to the peer.
    pub(crate) fn fail(&self, code: ErrorCode) {
        if self.failed.get().is_none() {
            self.failed.set(Some(code));
            self.core.borrow_mut().fail(code, &mut Vec::new());
            self.wake_all();
        }
    }

    /// Bytes that wait to be sent.
    fn backlog(&self) -> usize {
        self.core.borrow().output().len()
    }

    fn wake(&self, key: Key) {
        if let Some(Some(task)) = self.tasks.borrow().get(key.index()) {
            task.wake_by_ref();
        }
    }

    fn wake_all(&self) {
        for task in self.tasks.borrow().iter().flatten() {
            task.wake_by_ref();
        }
    }

    pub(crate) fn wake_driver(&self) {
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    /// Lets the driver send what was written.
    fn written<T>(&self, result: T) -> T {
        self.wake_driver();
        result
    }

    /// Client: sends the head of a request. `None`: the endpoint takes no request by this connection now.
    pub(crate) fn request(
        self: &Rc<Self>,
        block: &[u8],
        ends: bool,
        asks_for_head: bool,
        now: Moment,
    ) -> Option<Stream> {
        let mut core = self.core.borrow_mut();
        if core.streams() == 0 {
            self.busy_since.set(now);
        }
        let key = core.request_stream(block, ends, asks_for_head)?;
        drop(core);
        self.wake_driver();
        Some(Stream::new(self, key))
    }

    /// Client: when the endpoint gave its last sign of life, or when requests began to wait for one.
    pub(crate) fn heard(&self) -> Moment {
        self.last_read.get().max(self.busy_since.get())
    }

    /// When bytes of the peer arrived last.
    pub(crate) fn last_read(&self) -> Moment {
        self.last_read.get()
    }

    /// Asks the peer for a sign of life.
    pub(crate) fn ping(&self) {
        self.is_alive.set(false);
        self.core.borrow_mut().ping();
    }

    /// Whether the peer has sent something since it was asked.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_alive.get()
    }

    /// Server: tells the client to open no further streams.
    pub(crate) fn shut_down(&self) {
        self.core.borrow_mut().shut_down();
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        look(&self.core.borrow())
    }

    /// Gives back the memory that an idle connection does not need.
    pub(crate) fn shrink(&self) {
        self.core.borrow_mut().shrink();
        if self.with(|core| core.streams() == 0) {
            let tasks = mem::take(&mut *self.tasks.borrow_mut());
            drop(tasks);
            *self.events.borrow_mut() = Vec::new();
            *self.waiting.borrow_mut() = VecDeque::new();
        }
    }
}

/// One stream of a connection, held by its task. Dropping it frees the stream; one that has not ended is reset.
pub(crate) struct Stream {
    mux: Rc<Mux>,
    key: Key,
}

#[derive(Debug)]
pub(crate) enum Arrived {
    /// Bytes; `is_last`: nothing follows them.
    Data {
        bytes: Vec<u8>,
        is_last: bool,
    },
    Trailers(Head),
    End,
}

impl Stream {
    fn new(mux: &Rc<Mux>, key: Key) -> Self {
        let mut tasks = mux.tasks.borrow_mut();
        if tasks.len() <= key.index() {
            tasks.resize_with(key.index() + 1, || None);
        }
        drop(tasks);
        Self {
            mux: Rc::clone(mux),
            key,
        }
    }

    /// Notes the task that is to be woken when something changes.
    fn register(&self, cx: &Context<'_>) {
        let mut tasks = self.mux.tasks.borrow_mut();
        let task = tasks.get_mut(self.key.index());
        let replaced = task.and_then(|task| store_waker(task, cx));
        drop(tasks);
        drop(replaced);
    }

    /// The head from the peer, if it is there.
    pub(crate) fn take_head(&self) -> Option<Head> {
        self.mux
            .core
            .borrow_mut()
            .take_head(self.key)
            .ok()
            .flatten()
    }

    /// The next head from the peer.
    pub(crate) fn poll_head(&self, cx: &Context<'_>) -> Poll<Result<Head, Reset>> {
        let head = self.mux.core.borrow_mut().take_head(self.key);
        match head {
            Ok(Some(head)) => Poll::Ready(Ok(head)),
            Ok(None) => {
                self.register(cx);
                Poll::Pending
            }
            Err(reset) => Poll::Ready(Err(reset)),
        }
    }

    /// Gives back a head for its memory.
    pub(crate) fn recycle(&self, head: Head) {
        self.mux.core.borrow_mut().recycle(head);
    }

    /// The next part of the body from the peer. Its bytes must be [released](Self::release).
    pub(crate) fn poll_body(&self, cx: &Context<'_>) -> Poll<Result<Arrived, Reset>> {
        let mut core = self.mux.core.borrow_mut();
        let bytes = core.take_body(self.key);
        let end = core.body_end(self.key);
        if bytes.is_empty() && end == Ok(false) {
            drop(core);
            self.register(cx);
            return Poll::Pending;
        }
        if !bytes.is_empty() {
            let is_last = end == Ok(true) && !core.has_trailers(self.key);
            return Poll::Ready(Ok(Arrived::Data { bytes, is_last }));
        }
        end?;
        let trailers = core.take_trailers(self.key);
        Poll::Ready(Ok(trailers.map_or(Arrived::End, Arrived::Trailers)))
    }

    /// Bytes of the body have gone on.
    pub(crate) fn release(&self, count: usize) {
        let mut core = self.mux.core.borrow_mut();
        let before = core.output().len();
        core.release_body(self.key, count);
        let has_grown = core.output().len() > before;
        drop(core);
        if has_grown {
            self.mux.wake_driver();
        }
    }

    /// Lets the peer send `window` bytes before they have gone on.
    pub(crate) fn widen(&self, window: u32) {
        self.mux.core.borrow_mut().widen(self.key, window);
        self.mux.wake_driver();
    }

    /// Whether the connection was cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.mux.is_cut.get()
    }

    /// Whether the stream has been reset.
    pub(crate) fn is_reset(&self) -> bool {
        self.mux.core.borrow().reset_reason(self.key).is_some()
    }

    /// Whether the peer has said all, and all of it was taken.
    pub(crate) fn is_read(&self) -> bool {
        self.mux.core.borrow().is_read(self.key)
    }

    /// Ready when the output has room.
    pub(crate) fn poll_output(&self, cx: &Context<'_>) -> Poll<Result<usize, Reset>> {
        let core = self.mux.core.borrow();
        let window = core.room(self.key)?;
        let backlog = core.output().len();
        drop(core);
        if backlog < MOST_OUTPUT {
            return Poll::Ready(Ok(window.min(MOST_OUTPUT)));
        }
        let mut waiting = self.mux.waiting.borrow_mut();
        if !waiting.contains(&self.key) {
            waiting.push_back(self.key);
        }
        drop(waiting);
        self.register(cx);
        Poll::Pending
    }

    /// How many bytes of a body may be sent now, at least one.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<Result<usize, Reset>> {
        match ready!(self.poll_output(cx))? {
            0 => {
                self.register(cx);
                Poll::Pending
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    /// Ready when the stream has been reset.
    pub(crate) fn poll_reset(&self, cx: &Context<'_>) -> Poll<Reset> {
        let reset = self.mux.core.borrow().reset_reason(self.key);
        match reset {
            Some(reset) => Poll::Ready(reset),
            None => {
                self.register(cx);
                Poll::Pending
            }
        }
    }

    /// Server: sends the head of a response, whose fields `write` appends. Returns its length.
    pub(crate) fn respond(
        &self,
        status: u16,
        ends: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, Reset> {
        let mut core = self.mux.core.borrow_mut();
        self.mux
            .written(core.respond(self.key, status, ends, write))
    }

    /// Sends bytes of a body, not more than there is room for.
    pub(crate) fn send(&self, bytes: &[u8], ends: bool) -> Result<(), Reset> {
        let mut core = self.mux.core.borrow_mut();
        self.mux.written(core.send_body(self.key, bytes, ends))
    }

    /// Ends a body with trailers.
    pub(crate) fn send_trailers(&self, write: impl FnOnce(&mut Fields<'_>)) -> Result<(), Reset> {
        let mut core = self.mux.core.borrow_mut();
        self.mux.written(core.send_trailers(self.key, write))
    }

    pub(crate) fn reset(&self, code: ErrorCode) {
        self.mux.core.borrow_mut().reset(self.key, code);
        self.mux.wake_driver();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.mux.core.borrow_mut().release(self.key);
        let mut tasks = self.mux.tasks.borrow_mut();
        let task = tasks.get_mut(self.key.index()).and_then(Option::take);
        drop(tasks);
        drop(task);
        self.mux.wake_driver();
    }
}

/// Most bytes that wait to be sent on a connection before the tasks of its streams wait.
const MOST_OUTPUT: usize = 64 * 1024;
/// Bytes of a peer that are handled before other tasks run.
const TURN: usize = 64 * 1024;
