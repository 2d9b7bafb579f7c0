//! Places for connections that are about to be accepted, and the wait for them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use ballast_core::admit::{Accept, Call, Permit, Waiting};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, Plan, SocketKey};
use tokio::time::sleep_until;

use crate::worker::Worker;

/// Places reserved for the next connection, in the process and at its frontend. There are none where clients do not wait
/// for one: those are turned away.
pub(super) struct Permits {
    pub(super) process: Option<Permit>,
    pub(super) frontend: Option<Permit>,
    /// When they were given.
    pub(super) now: Moment,
}

impl Permits {
    /// Waits until there is a place, and returns the plan that it was given by: while waiting, a newer one may
    /// have come with other limits. `None`: no plan wants this socket any more.
    pub(super) async fn wait(
        worker: &Worker,
        key: &SocketKey,
        mut now: Moment,
    ) -> Option<(Arc<Plan>, Self)> {
        let mut line: Option<Line> = None;
        loop {
            let asked = poll_fn(|cx| {
                loop {
                    let call = line.take().and_then(|line| {
                        now = worker.shared.clock.now();
                        line.over()
                    });
                    let plan = worker.shared.live.plan();
                    let Some(frontend) = plan.frontend(key) else {
                        return Poll::Ready(None);
                    };
                    let permits = match Self::ask(worker, frontend, call, now, cx.waker()) {
                        Ok(permits) => Ok(permits),
                        Err(Later::At(when)) => Err(when),
                        Err(Later::InTurn(place)) => {
                            line = Some(place);
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
                (_, Err(when)) => {
                    sleep_until(worker.shared.clock.instant(when)).await;
                    now = worker.shared.clock.now();
                }
            }
        }
    }

    /// Asks the frontend first. If that one makes the next client wait, the process's `call` goes on to somebody else.
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
                Line::Frontend,
            )?)
        } else {
            None
        };
        let shared = &worker.shared;
        let process = shared.admit.may_accept(&shared.limits(), now, waker);
        call.into_iter().for_each(Call::heeded);
        Ok(Self {
            process: Some(granted(process, Line::Process)?),
            frontend,
            now,
        })
    }
}

/// When to ask again.
enum Later {
    At(Moment),
    InTurn(Line),
}

/// Where it waits.
enum Line {
    Frontend(Waiting),
    Process(Waiting),
}

impl Line {
    /// It asks again now. What the process called it for is for whoever may come: frontends differ. A frontend's call
    /// is only for its own loops, and all of them ask it first.
    fn over(self) -> Option<Call> {
        match self {
            Self::Process(waiting) => waiting.over(),
            Self::Frontend(waiting) => {
                waiting.over().into_iter().for_each(Call::heeded);
                None
            }
        }
    }
}

fn granted(accept: Accept, line: fn(Waiting) -> Line) -> Result<Permit, Later> {
    match accept {
        Accept::Now(permit) => Ok(permit),
        Accept::At(when) => Err(Later::At(when)),
        Accept::WhenReleased(waiting) => Err(Later::InTurn(line(waiting))),
    }
}
