//! Waits for room before a connection is accepted: in the process, and at its frontend.
//!
//! Where the table says `on-limit: wait`, clients above a limit stay in the kernel's backlog until there is room.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ballast_core::admit::{Accept, Permit, Refusal, Waiting, Wakeup};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, Listens, SocketKey, Transport};
use tokio::time::sleep_until;

use crate::worker::{Worker, WorkerPlan};

/// Room reserved for the next connection. A permit is `None` where the frontend does not make clients wait: there, clients
/// above a limit are accepted and then refused.
pub(super) struct Reservation {
    pub(super) process: Option<Permit>,
    pub(super) frontend: Option<Permit>,
    /// When the room was reserved.
    pub(super) now: Moment,
}

impl Reservation {
    /// Waits until there is room. Returns the reservation together with the plan whose limits were asked, because a newer plan
    /// may arrive during the wait. `None`: the plan in force no longer has this socket.
    pub(super) async fn wait(
        worker: &Worker,
        key: &SocketKey,
        mut now: Moment,
    ) -> Option<(WorkerPlan, Self)> {
        let mut queue: Option<Queue> = None;
        loop {
            let asked = poll_fn(|cx| {
                loop {
                    let wakeup = queue.take().and_then(|queue| {
                        now = worker.shared.clock.now();
                        queue.leave()
                    });
                    let plan = worker.plan();
                    let Some(frontend) = plan.frontend(key) else {
                        return Poll::Ready(None);
                    };
                    let reservation = match Self::ask(worker, frontend, wakeup, now, cx.waker()) {
                        Ok(reservation) => Ok(reservation),
                        Err(Retry::At(when)) => Err(when),
                        Err(Retry::WhenWoken(waiting)) => {
                            queue = Some(waiting);
                            // A swap wakes all waiting loops. A swap between reading the plan and entering the queue would be
                            // missed without this check.
                            if Arc::ptr_eq(&plan, &worker.plan()) {
                                return Poll::Pending;
                            }
                            continue;
                        }
                    };
                    return Poll::Ready(Some((plan, reservation)));
                }
            });
            match asked.await? {
                (plan, Ok(reservation)) => return Some((plan, reservation)),
                (_, Err(when)) => {
                    sleep_until(worker.shared.clock.instant(when)).await;
                    now = worker.shared.clock.now();
                }
            }
        }
    }

    /// The plan for a connection that was accepted just now, and what of the reservation counts there. The client may have come
    /// after a newer plan was put in force, and then gets that one, unless it no longer has this socket.
    pub(super) fn newest(
        mut self,
        worker: &Worker,
        key: &SocketKey,
        asked: WorkerPlan,
    ) -> (WorkerPlan, Self) {
        let newest = worker.plan();
        if Rc::ptr_eq(&asked, &newest) {
            return (asked, self);
        }
        let (Some(old), Some(new)) = (asked.frontend(key), newest.frontend(key)) else {
            return (asked, self);
        };
        if !Arc::ptr_eq(old.state(), new.state()) {
            self.frontend = None;
        }
        (newest, self)
    }

    /// Asks the frontend first. If the frontend has no room, dropping `wakeup` passes the process's wake-up on to another
    /// accept loop.
    fn ask(
        worker: &Worker,
        frontend: &Frontend,
        wakeup: Option<Wakeup>,
        now: Moment,
        waker: &Waker,
    ) -> Result<Self, Retry> {
        if !frontend.waits() {
            return Ok(Self {
                process: None,
                frontend: None,
                now,
            });
        }
        let (limits, state) = (frontend.limits(), frontend.state().admit());
        let frontend = if limits.connections.is_some() || limits.rate.is_some() {
            Some(granted(
                state.may_accept(limits, now, waker),
                Queue::Frontend,
            )?)
        } else {
            None
        };
        let shared = &worker.shared;
        let process = shared.admit.may_accept(&shared.limits(), now, waker);
        wakeup.into_iter().for_each(Wakeup::consume);
        Ok(Self {
            process: Some(granted(process, Queue::Process)?),
            frontend,
            now,
        })
    }
}

/// The frontend of a connection: the one that a plan has at a socket.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) plan: WorkerPlan,
    pub(super) key: Rc<SocketKey>,
}

impl Place {
    /// Where a client of a closed socket belongs in the plan in force: at the frontend of the same name, if that listens.
    pub(super) fn after(&self, worker: &Worker) -> Option<Self> {
        let (name, plan) = (self.frontend()?.name(), worker.plan());
        let is_meant = |frontend: &&Arc<Frontend>| {
            frontend.name() == name && frontend.listens() == Listens::Yes
        };
        if plan.frontend(&self.key).is_some_and(|it| is_meant(&it)) {
            let key = Rc::clone(&self.key);
            return Some(Self { plan, key });
        }
        let mut sockets = plan.frontends().iter().find(is_meant)?.sockets().iter();
        let key = sockets.find(|socket| socket.transport == Transport::Tcp)?;
        let key = Rc::new(key.clone());
        Some(Self { plan, key })
    }

    pub(super) fn frontend(&self) -> Option<&Arc<Frontend>> {
        self.plan.frontend(&self.key)
    }
}

/// Waits until there is room for this client at its frontend, whose socket at which it came is closed. Each new plan may move the
/// frontend, or refuse the client.
pub(super) async fn room_at(
    worker: &Worker,
    place: &mut Place,
    peer: SocketAddr,
) -> Result<Option<Permit>, Refusal> {
    let mut waiting: Option<Waiting> = None;
    loop {
        let asked = poll_fn(|cx| {
            loop {
                let wakeup = waiting.take().and_then(Waiting::finish);
                if !Rc::ptr_eq(&place.plan, &worker.plan()) {
                    *place = place.after(worker).ok_or(Refusal::NoEndpoint)?;
                }
                let frontend = place.frontend().ok_or(Refusal::NoEndpoint)?;
                let limits = frontend.limits();
                if !is_trusted(frontend, peer) {
                    limits.check_source(peer.ip())?;
                }
                if !frontend.waits() {
                    return Poll::Ready(Ok(Ok(None)));
                }
                let now = worker.shared.clock.now();
                let accept = frontend.state().admit().may_accept(limits, now, cx.waker());
                wakeup.into_iter().for_each(Wakeup::consume);
                return Poll::Ready(Ok(match accept {
                    Accept::Now(permit) => Ok(Some(permit)),
                    Accept::At(when) => Err(when),
                    Accept::WhenReleased(longer) => {
                        waiting = Some(longer);
                        // A swap before this entered the queue has not woken it.
                        if Rc::ptr_eq(&place.plan, &worker.plan()) {
                            return Poll::Pending;
                        }
                        continue;
                    }
                }));
            }
        });
        match asked.await? {
            Ok(permit) => return Ok(permit),
            Err(when) => sleep_until(worker.shared.clock.instant(when)).await,
        }
    }
}

/// Whether this peer names its client by a PROXY header.
pub(super) fn is_trusted(frontend: &Frontend, peer: SocketAddr) -> bool {
    let accept_proxy = frontend.accept_proxy();
    accept_proxy.is_some_and(|accept| accept.trusts(peer.ip()))
}

/// When to ask again.
enum Retry {
    At(Moment),
    WhenWoken(Queue),
}

/// The queue in which an accept loop waits.
enum Queue {
    Frontend(Waiting),
    Process(Waiting),
}

impl Queue {
    /// Leaves the queue to ask again. A wake-up of the process's queue is returned: it is meant for any accept loop, and this
    /// loop's frontend may have no room. A wake-up of a frontend's queue is meant for the loops of that frontend, each of which
    /// asks the frontend first.
    fn leave(self) -> Option<Wakeup> {
        match self {
            Self::Process(waiting) => waiting.finish(),
            Self::Frontend(waiting) => {
                waiting.finish().into_iter().for_each(Wakeup::consume);
                None
            }
        }
    }
}

fn granted(accept: Accept, queue: fn(Waiting) -> Queue) -> Result<Permit, Retry> {
    match accept {
        Accept::Now(permit) => Ok(permit),
        Accept::At(when) => Err(Retry::At(when)),
        Accept::WhenReleased(waiting) => Err(Retry::WhenWoken(queue(waiting))),
    }
}
