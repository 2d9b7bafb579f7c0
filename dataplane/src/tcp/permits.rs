//! Places for connections that are about to be accepted, and the wait for them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ballast_core::admit::{Accept, Permit, Waiting};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, Plan, SocketKey};
use tokio::time::sleep_until;

use crate::worker::Worker;

/// Places reserved for the next connection: in the process, and at a frontend whose clients wait for one.
pub(super) struct Permits {
    pub(super) process: Permit,
    pub(super) frontend: Option<Permit>,
}

impl Permits {
    /// Waits until there is a place, and returns the plan that it was given by: while waiting, a newer one may
    /// have come with other limits. `None`: no plan wants this socket any more.
    pub(super) async fn wait(worker: &Worker, key: &SocketKey) -> Option<(Arc<Plan>, Self)> {
        let mut waiting: Option<Waiting> = None;
        loop {
            let asked = poll_fn(|cx| {
                loop {
                    if let Some(waiting) = waiting.take() {
                        waiting.over();
                    }
                    let plan = worker.shared.live.plan();
                    let Some(frontend) = plan.frontend(key) else {
                        return Poll::Ready(None);
                    };
                    let permits = match Self::ask(worker, frontend, cx.waker()) {
                        Ok(permits) => Ok(permits),
                        Err(Later::At(when)) => Err(when),
                        Err(Later::InTurn(place)) => {
                            waiting = Some(place);
                            // A swap wakes who is in the line; one that came just before this was is seen here.
                            if Arc::ptr_eq(&plan, &worker.shared.live.plan()) {
                                return Poll::Pending;
                            }
                            continue;
                        }
                    };
                    return Poll::Ready(Some((plan, permits)));
                }
            });
            match asked.await? {
                (plan, Ok(permits)) => return Some((plan, permits)),
                (_, Err(when)) => sleep_until(worker.shared.clock.instant(when)).await,
            }
        }
    }

    fn ask(worker: &Worker, frontend: &Frontend, waker: &Waker) -> Result<Self, Later> {
        let now = worker.shared.clock.now();
        let (limits, state) = (frontend.limits(), frontend.state().admit());
        let frontend =
            if frontend.waits() && (limits.connections.is_some() || limits.rate.is_some()) {
                Some(granted(state.may_accept(limits, now, waker))?)
            } else {
                None
            };
        let shared = &worker.shared;
        let process = granted(shared.admit.may_accept(&shared.limits(), now, waker))?;
        Ok(Self { process, frontend })
    }
}

/// When to ask again.
enum Later {
    At(Moment),
    InTurn(Waiting),
}

fn granted(accept: Accept) -> Result<Permit, Later> {
    match accept {
        Accept::Now(permit) => Ok(permit),
        Accept::At(when) => Err(Later::At(when)),
        Accept::WhenReleased(waiting) => Err(Later::InTurn(waiting)),
    }
}
