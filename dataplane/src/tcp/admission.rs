//! The wait for room before a connection is accepted: in the process, and at its frontend.
//!
//! Clients above a limit stay in the kernel's backlog until there is room, where the table says `on-limit: wait`.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ballast_core::admit::{Accept, Call, Permit, Waiting};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, Plan, SocketKey};
use tokio::time::sleep_until;

use crate::worker::Worker;

/// Room reserved for the next connection. `None` where the frontend does not make clients wait: those above a limit are refused once
/// they are accepted.
pub(super) struct Reservation {
    pub(super) process: Option<Permit>,
    pub(super) frontend: Option<Permit>,
    /// When it was reserved.
    pub(super) now: Moment,
}

impl Reservation {
    /// Waits until there is room, and returns the reservation with the plan whose limits were asked: a newer plan may come while this waits.
    /// `None`: the plan in force does not want this socket any more.
    pub(super) async fn wait(
        worker: &Worker,
        key: &SocketKey,
        mut now: Moment,
    ) -> Option<(Rc<Arc<Plan>>, Self)> {
        let mut queue: Option<Queue> = None;
        loop {
            let asked = poll_fn(|cx| {
                loop {
                    let call = queue.take().and_then(|queue| {
                        now = worker.shared.clock.now();
                        queue.leave()
                    });
                    let plan = worker.plan();
                    let Some(frontend) = plan.frontend(key) else {
                        return Poll::Ready(None);
                    };
                    let reservation = match Self::ask(worker, frontend, call, now, cx.waker()) {
                        Ok(reservation) => Ok(reservation),
                        Err(Later::At(when)) => Err(when),
                        Err(Later::OnceCalled(place)) => {
                            queue = Some(place);
                            // A swap wakes whoever waits. One that came after the plan was read, and before this loop began to
                            // wait, is seen here.
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

    /// Asks the frontend first. If the frontend has no room, the process's `call` is passed on to another accept loop.
    fn ask(
        worker: &Worker,
        frontend: &Frontend,
        call: Option<Call>,
        now: Moment,
        waker: &Waker,
    ) -> Result<Self, Later> {
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
        call.into_iter().for_each(Call::heeded);
        Ok(Self {
            process: Some(granted(process, Queue::Process)?),
            frontend,
            now,
        })
    }
}

/// When to ask again.
enum Later {
    At(Moment),
    OnceCalled(Queue),
}

/// The queue in which an accept loop waits.
enum Queue {
    Frontend(Waiting),
    Process(Waiting),
}

impl Queue {
    /// Leaves the queue to ask again. A call of the process is returned: it is meant for any accept loop, and this one's frontend may
    /// have no room. A call of the frontend is meant for the loops of that frontend, all of which ask it first.
    fn leave(self) -> Option<Call> {
        match self {
            Self::Process(waiting) => waiting.over(),
            Self::Frontend(waiting) => {
                waiting.over().into_iter().for_each(Call::heeded);
                None
            }
        }
    }
}

fn granted(accept: Accept, queue: fn(Waiting) -> Queue) -> Result<Permit, Later> {
    match accept {
        Accept::Now(permit) => Ok(permit),
        Accept::At(when) => Err(Later::At(when)),
        Accept::WhenReleased(waiting) => Err(Later::OnceCalled(queue(waiting))),
    }
}
