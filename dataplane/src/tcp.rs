//! A TCP connection's story: accept, admit, PROXY header, dial, relay, account.
//!
//! Each step has its file: `accept` takes connections in, `arrival` admits them and gives each to a worker, a `newcomer` is
//! led to an endpoint by `dial`, and the story goes on with the relay until the end, which is counted.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::admit::{Admission, Refusal};
use ballast_core::endpoint::{EndpointCounters, Lease};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, FrontendState, Serves};
use tokio::net::TcpStream;

use crate::access::Entry;
use crate::dial::{Client, Dialed};
use crate::relay::{Patience, Side, relay};
use crate::worker::Worker;

mod accept;
mod arrival;
mod newcomer;
mod permits;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use accept::accept_loop;
pub(crate) use arrival::Arrival;
use newcomer::{Newcomer, NoWay};

/// Begins the story of one connection.
pub(crate) fn serve(worker: &Rc<Worker>, arrival: Arrival) {
    let seat = Seat::take(worker);
    let index = seat.index;
    // In a box of its own, which ends with it: an idle connection needs no room for what led to it.
    let reached = Box::pin(reach(Rc::clone(worker), index, arrival));
    let task = tokio::task::spawn_local(story(seat, reached));
    worker.seats.borrow_mut().occupy(index, task.abort_handle());
}

/// A connection's place in its worker, which counts it there however it ends.
struct Seat {
    worker: Rc<Worker>,
    index: usize,
}

impl Seat {
    fn take(worker: &Rc<Worker>) -> Self {
        worker.load().fetch_add(1, Ordering::Relaxed);
        Self {
            index: worker.seats.borrow_mut().reserve(),
            worker: Rc::clone(worker),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.worker.seats.borrow_mut().leave(self.index);
        self.worker.load().fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client, and the endpoint that was found for it.
struct Reached {
    client: TcpStream,
    admission: Admission,
    process: Option<Admission>,
    frontend: Arc<FrontendState>,
    began: Moment,
    entry: Option<Box<Entry>>,
    endpoint: TcpStream,
    lease: Lease,
    /// What the endpoint hears before the client's own bytes.
    first: Vec<u8>,
    /// How many bytes of `first` are the client's: they came with its PROXY header.
    carried: u64,
    patience: Patience,
    /// The client's idle time is not longer than the endpoint's.
    client_is_stricter: bool,
}

/// The story of one connection: an endpoint is reached, and bytes go both ways until the end.
async fn story(seat: Seat, reached: Pin<Box<impl Future<Output = Option<Reached>>>>) {
    // Taken apart at once: a name for the whole would keep its room.
    let Some(Reached {
        client,
        admission: _admission,
        process: _process,
        frontend,
        began,
        mut entry,
        endpoint,
        lease,
        first,
        carried,
        patience,
        client_is_stricter,
    }) = reached.await
    else {
        return;
    };
    let worker = &*seat.worker;
    let session = Session {
        worker,
        lease,
        began,
    };
    #[cfg(test)]
    let peer = client.peer_addr().ok();
    let mut moved = |up, down| {
        #[cfg(test)]
        tests::come_by(tests::RELAYING, peer);
        let (frontend, endpoint) = (frontend.counters().of(worker.id), session.counters());
        frontend.bytes_in.add(up);
        frontend.bytes_out.add(down);
        endpoint.bytes_in.add(up);
        endpoint.bytes_out.add(down);
        let spliced = worker.tools.pipes.take_spliced();
        if spliced > 0 {
            worker.counters().spliced.add(spliced);
        }
        if let Some(entry) = &mut entry {
            entry.moved(up, down);
        }
    };
    if carried > 0 {
        moved(carried, 0);
    }
    let closed = relay(client, endpoint, first, patience, &worker.tools, moved).await;
    let fault = closed.fault(client_is_stricter);
    if let Some(mut entry) = entry {
        entry.closed(closed.why, fault);
    }
    session.account(fault);
}

/// From the accepted socket to an endpoint; `None` if there is none for it, which then was counted and told.
async fn reach(worker: Rc<Worker>, seat: usize, arrival: Arrival) -> Option<Reached> {
    let Arrival {
        socket,
        peer,
        began,
        key,
        plan,
        mut admission,
        process,
        trusted,
        handed_over,
    } = arrival;
    drop(handed_over);
    let frontend = plan.frontend(&key)?;
    let state = Arc::clone(frontend.state());
    let counters = state.counters().of(worker.id);
    let Ok(socket) = TcpStream::from_std(socket.heard()?) else {
        // It cannot be watched: this system has no room for one more.
        counters.refused[Refusal::Failed.index()].add(1);
        return None;
    };
    let client = Client {
        worker: &worker,
        seat,
        socket: &socket,
    };
    let mut newcomer = Newcomer::new(client, &state, peer, began);
    worker.seats.borrow_mut().came(seat, peer, key, began);
    let mut first = Vec::new();
    if trusted {
        match newcomer.introduce(frontend, &mut admission).await {
            Ok(rest) => first = rest,
            Err(why) => {
                newcomer.ends(why);
                return None;
            }
        }
    }
    counters.sessions.add(1);
    let Serves::Tcp(service) = frontend.serves() else {
        newcomer.ends(NoWay::Refused(Refusal::NoEndpoint));
        return None;
    };
    let (service, ours) = (Arc::clone(service), ClientSide::of(frontend));
    let mut dialed = match newcomer.connect(service, plan).await {
        Ok(dialed) => dialed,
        Err(why) => {
            newcomer.ends(why);
            return None;
        }
    };
    let entry = newcomer.served(&mut dialed);
    let carried = first.len() as u64;
    dialed.header.append(&mut first);
    let patience = ours.patience(&dialed);
    Some(Reached {
        client_is_stricter: ours.idle.is_some() && patience.idle == ours.idle,
        client: socket,
        admission,
        process,
        frontend: state,
        began,
        entry,
        endpoint: dialed.stream,
        lease: dialed.lease,
        first: dialed.header,
        carried,
        patience,
    })
}

/// How long a frontend waits for clients.
#[derive(Clone, Copy)]
struct ClientSide {
    idle: Option<Duration>,
    fin: Duration,
}

impl ClientSide {
    fn of(frontend: &Frontend) -> Self {
        Self {
            idle: frontend.client_timeout(),
            fin: frontend.client_fin(),
        }
    }

    fn patience(self, dialed: &Dialed) -> Patience {
        Patience {
            idle: shorter(self.idle, dialed.server_timeout),
            half_closed: self.fin.min(dialed.server_fin),
            abort: self.fin,
        }
    }
}

/// A connection that an endpoint has, counted there however it ends: also by a panic, or by being cut.
struct Session<'a> {
    worker: &'a Worker,
    lease: Lease,
    began: Moment,
}

impl Session<'_> {
    fn counters(&self) -> &EndpointCounters {
        self.lease.endpoint().counters(self.worker.id)
    }

    /// Counts whose fault its end was, as the letters of its access line say.
    fn account(self, fault: Option<Side>) {
        match fault {
            Some(Side::Client) => self.counters().client_aborts.add(1),
            Some(Side::Server) => {
                self.counters().server_aborts.add(1);
                self.counters().response_errors.add(1);
            }
            None => {}
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let now = self.worker.shared.clock.now();
        self.counters().ended(now.since(self.began));
    }
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
