//! A client's HTTP/2 connection.
//!
//! One task moves its bytes and takes its requests. Each request has a task of its own ([`request`]), so that a panic ends one
//! request. An idle connection holds neither a buffer nor the plan.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ballast_core::http2::{Config, Connection as Core, ErrorCode};
use ballast_core::moment::Moment;
use ballast_core::plan::HttpOptions;

use super::linger::linger;
use super::peer::Peer;
use crate::net::mux::{End, Mux, Stream};
use crate::net::poller::Timer;
use crate::os::log::LogLimiter;
use crate::worker::{Connection, Worker};

mod request;

/// A client's connection, as its requests see it.
struct Client {
    peer: Rc<Peer>,
    /// How many requests are being served.
    active: Cell<usize>,
    /// Whether one of them uses the share of the process's room that the connection itself has.
    share_is_used: Cell<bool>,
    /// When the last one ended.
    idle_since: Cell<Moment>,
    /// The window with which bodies of requests begin.
    window: usize,
}

/// Serves a client that speaks HTTP/2. `first` are bytes of the client that have been read.
pub(super) async fn serve(connection: &mut Connection, peer: Rc<Peer>, first: Vec<u8>) {
    connection.counters().http2_sessions.add(1);
    peer.learn_local_address(&connection.socket);
    let worker = Rc::clone(&peer.worker);
    let end = run(connection, &peer, first).await;
    match end {
        Ended::InOrder => connection.socket.close(),
        Ended::Refused(code) => {
            report(&peer, code);
            linger(&worker, &mut connection.socket).await;
        }
        Ended::Failed => {}
    }
    worker.pool.forget(Some(peer.id()));
}

enum Ended {
    InOrder,
    /// The client has been sent the reason, and may still be sending.
    Refused(ErrorCode),
    Failed,
}

/// Reports a client that was sent away.
fn report(peer: &Peer, code: ErrorCode) {
    static LIMITER: LogLimiter = LogLimiter::new();
    if let Some(suppressed) = LIMITER.allow(peer.worker.shared.clock.now()) {
        let (client, frontend) = (peer.key.client(), peer.frontend.name());
        tracing::info!(%frontend, %client, ?code, suppressed, "a client of HTTP/2 breaks the protocol or exceeds a limit, and is sent away");
    }
}

async fn run(connection: &mut Connection, peer: &Rc<Peer>, first: Vec<u8>) -> Ended {
    let worker = &peer.worker;
    let now = worker.shared.clock.now();
    let plan = worker.plan();
    let Some((_, http)) = peer.frontend_in(&plan) else {
        return Ended::InOrder;
    };
    let config = config(worker, http.options());
    let deadline = now.after(http.options().request_timeout);
    drop(plan);
    let client = Rc::new(Client {
        peer: Rc::clone(peer),
        active: Cell::new(0),
        share_is_used: Cell::new(false),
        idle_since: Cell::new(now),
        window: config.window as usize,
    });
    let mux = Mux::new(Core::server(config), now);
    let mut ended = EndedWithTask {
        mux: Rc::clone(&mux),
        in_order: false,
    };
    let mut timer = Timer::new(&worker.tools.poller);
    timer.set(deadline);
    let mut driver = Driver {
        client,
        is_ending: false,
    };
    mux.receive(&first, now, &mut |stream| driver.open(stream));
    drop(first);
    let end = poll_fn(|cx| driver.poll(&mux, connection, &mut timer, cx)).await;
    ended.in_order = true;
    end
}

/// Ends the requests of a connection whose task ends, also if an operator or a panic ends it.
struct EndedWithTask {
    mux: Rc<Mux>,
    /// Whether the task has come to its end.
    in_order: bool,
}

impl Drop for EndedWithTask {
    fn drop(&mut self) {
        if self.in_order {
            self.mux.end();
        } else {
            self.mux.cut();
        }
    }
}

/// The limits of a client's connection.
fn config(worker: &Worker, options: &HttpOptions) -> Config {
    // Each request may take a connection to an endpoint: those of one client must leave room for others.
    let most = worker.shared.most_streams();
    let max_streams = options.http2_streams.min(most).max(1);
    let window = options.http2_memory / max_streams as usize;
    let window = window.clamp(LEAST_WINDOW, MOST_WINDOW);
    Config {
        max_streams,
        window: u32::try_from(window).unwrap_or(u32::MAX),
        max_head: options.max_header_bytes,
    }
}

/// Takes the requests of a connection.
struct Driver {
    client: Rc<Client>,
    is_ending: bool,
}

impl Driver {
    fn open(&self, stream: Stream) {
        let active = Active::new(&self.client);
        tokio::task::spawn_local(request::serve_request(active, stream));
    }

    /// Ready when the connection has ended.
    fn poll(
        &mut self,
        mux: &Rc<Mux>,
        connection: &mut Connection,
        timer: &mut Timer,
        cx: &mut Context<'_>,
    ) -> Poll<Ended> {
        let peer = Rc::clone(&self.client.peer);
        let worker = &peer.worker;
        loop {
            if !self.is_ending && self.should_end() {
                self.shut_down(mux);
                timer.set(worker.shared.clock.now().after(LAST_WORDS));
            }
            let open = &mut |stream| self.open(stream);
            if let Poll::Ready(end) = mux.poll(&mut connection.socket, &worker.tools, cx, open) {
                return Poll::Ready(match end {
                    End::ByPeer => Ended::InOrder,
                    End::Refused(code) => Ended::Refused(code),
                    End::Failed => Ended::Failed,
                });
            }
            if self.is_ending && self.has_ended(mux) {
                return Poll::Ready(Ended::InOrder);
            }
            self.watch(mux, timer);
            ready!(timer.poll(cx));
            let now = worker.shared.clock.now();
            match self.next_deadline(mux, now) {
                Deadline::At(deadline) => timer.set(deadline),
                Deadline::Slow => {
                    // The client may not read what it is sent, either.
                    self.is_ending = true;
                    timer.set(now.after(LAST_WORDS));
                    mux.fail(ErrorCode::ENHANCE_YOUR_CALM);
                }
                Deadline::Idle if self.is_ending => {
                    return Poll::Ready(if mux.with(|core| core.output().is_empty()) {
                        Ended::InOrder
                    } else {
                        Ended::Failed
                    });
                }
                Deadline::Idle => {
                    self.shut_down(mux);
                    timer.set(now.after(LAST_WORDS));
                }
            }
        }
    }

    fn shut_down(&mut self, mux: &Mux) {
        self.is_ending = true;
        mux.shut_down();
    }

    /// Whether the client is to send no further requests by this connection.
    fn should_end(&self) -> bool {
        let peer = &self.client.peer;
        peer.is_draining() || peer.is_shut_out()
    }

    /// Whether the client knows of the end, and all its requests have been answered.
    fn has_ended(&self, mux: &Mux) -> bool {
        self.client.active.get() == 0
            && mux
                .with(|core| core.is_shut_down() && core.streams() == 0 && core.output().is_empty())
    }

    /// Sets the timer for a frame of which the client has sent a part.
    fn watch(&self, mux: &Mux, timer: &mut Timer) {
        if let Some(since) = mux.with(Core::incomplete_since) {
            let timeout = self.timeouts().0;
            timer.set_if_earlier(since.after(timeout));
        }
    }

    /// The timeouts for a head, and between two requests.
    fn timeouts(&self) -> (Duration, Duration) {
        let peer = &self.client.peer;
        let plan = peer.worker.plan();
        match peer.frontend_in(&plan) {
            Some((_, http)) => {
                let options = http.options();
                (options.request_timeout, options.keep_alive_timeout)
            }
            None => (LAST_WORDS, LAST_WORDS),
        }
    }

    /// When to look again whether the connection is too slow, or idle for too long.
    fn next_deadline(&self, mux: &Mux, now: Moment) -> Deadline {
        let (request, keep_alive) = self.timeouts();
        let slow = mux
            .with(Core::incomplete_since)
            .map(|since| since.after(request));
        if slow.is_some_and(|slow| slow <= now) {
            return Deadline::Slow;
        }
        let client = &self.client;
        let timeout = match client.peer.requests.get() {
            _ if self.is_ending => LAST_WORDS,
            0 => request,
            _ => keep_alive,
        };
        let idle = match client.active.get() {
            0 => client.idle_since.get().after(timeout),
            _ => now.after(timeout),
        };
        if idle <= now {
            return Deadline::Idle;
        }
        if client.active.get() == 0 {
            mux.shrink();
        }
        Deadline::At(slow.map_or(idle, |slow| slow.min(idle)))
    }
}

/// What becomes of a connection whose timer has expired.
enum Deadline {
    /// It goes on, and is looked at again then.
    At(Moment),
    /// The client takes too long for a frame or a head.
    Slow,
    /// It has had no request for too long.
    Idle,
}

/// A request that is being served.
struct Active {
    client: Rc<Client>,
    /// Whether it uses the connection's own share of the process's room.
    uses_share: Cell<bool>,
}

impl Active {
    fn new(client: &Rc<Client>) -> Self {
        client.active.set(client.active.get() + 1);
        Self {
            client: Rc::clone(client),
            uses_share: Cell::new(false),
        }
    }

    /// Gives the request the connection's own share of the process's room, unless another request has it.
    fn takes_share(&self) -> bool {
        if !self.client.share_is_used.replace(true) {
            self.uses_share.set(true);
        }
        self.uses_share.get()
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let client = &self.client;
        if self.uses_share.get() {
            client.share_is_used.set(false);
        }
        client.active.set(client.active.get() - 1);
        client
            .idle_since
            .set(client.peer.worker.shared.clock.soon());
    }
}

/// The first windows of the bodies of requests: a share of the connection's memory, but room for one frame of any length at
/// least.
const LEAST_WINDOW: usize = 16 * 1024;
const MOST_WINDOW: usize = 65_535;
/// A client that was sent the end of the connection has this time to confirm that, if it has no requests.
const LAST_WORDS: Duration = Duration::from_secs(2);
