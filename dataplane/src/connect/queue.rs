//! The queue of a service: clients wait there while every endpoint has its maximum of connections. Requests of HTTP/2 wait as long
//! for room in the process.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use ballast_core::admit::{Admission, Refusal, Waiting, Wakeup};
use ballast_core::moment::Moment;
use ballast_core::pick::{Picked, Unavailable};
use ballast_core::queue::Ticket;
use ballast_core::service::ServiceState;
use tokio::time::sleep_until;

use super::dial::{Attempts, Unserved};
use crate::access::WaitPhase;

impl Attempts<'_> {
    /// Waits until it is this client's turn and there is room, then uses the service of the plan in force. The inner error: no
    /// endpoint is left for which the client could wait, or the client has come to another service, which is full.
    pub(super) async fn wait_in_queue(&mut self) -> Result<Result<Picked, Unavailable>, Unserved> {
        let began = self.now;
        let state = Arc::clone(self.service.state());
        self.progress.before = state.queue().len();
        let until = self.end_of_wait();
        let Some(ticket) = Ticket::take(&state, self.max_queue(), &self.tried) else {
            self.count_unserved();
            return Err(Refusal::QueueFull.into());
        };
        let worker = self.caller.worker;
        worker
            .connections
            .borrow_mut()
            .set_queued(self.caller.slot, &state);
        self.progress.is_queued = true;
        let turn = self.wait_for_turn(ticket, until).await;
        // The connect timeout does not run while the client waits in the queue.
        let waited = self.now.since(began);
        self.deadline = self.deadline.map(|deadline| deadline.after(waited));
        self.left_queue(&state, began, turn)
    }

    /// Waits until the process has room for a request that takes as much as a connection, and puts the share of this request into
    /// `room`.
    pub(super) async fn wait_for_room(
        &mut self,
        room: &OnceCell<Admission>,
    ) -> Result<(), Unserved> {
        let began = self.now;
        self.progress.is_queued = true;
        let admitted = self.room_in_process(room).await;
        let state = Arc::clone(self.service.state());
        self.left_queue(&state, began, admitted)?;
        self.refresh_service()?;
        Ok(())
    }

    async fn room_in_process(&mut self, room: &OnceCell<Admission>) -> Result<(), Unserved> {
        let shared = &self.caller.worker.shared;
        let until = self.end_of_wait();
        let mut timeout = pin!(sleep_until(shared.clock.instant(until)));
        let mut waiting: Option<Waiting> = None;
        let admitted = poll_fn(|cx| {
            if (self.caller.poll_gone)(cx).is_ready() {
                return Poll::Ready(Err(Unserved::ClientLeft(WaitPhase::Queue)));
            }
            let wakeup = waiting.take().and_then(Waiting::finish);
            let asked = shared.may_request(cx.waker());
            wakeup.into_iter().for_each(Wakeup::consume);
            match asked {
                Ok(admission) => Poll::Ready(Ok(admission)),
                Err(longer) => {
                    waiting = Some(longer);
                    let timeout = timeout.as_mut().poll(cx);
                    timeout.map(|()| Err(Refusal::QueueTimeout.into()))
                }
            }
        })
        .await;
        self.now = shared.clock.now();
        room.set(admitted?).ok();
        Ok(())
    }

    /// Accounts for a wait for this service that began at this moment. A newer plan may have given the client another service.
    fn left_queue<T>(
        &mut self,
        state: &ServiceState,
        began: Moment,
        turn: Result<T, Unserved>,
    ) -> Result<T, Unserved> {
        self.progress.is_queued = false;
        let waited = self.now.since(began);
        let counters = state.counters(self.caller.worker.id);
        counters.queued(waited);
        match turn {
            Err(Unserved::ClientLeft(_)) => counters.client_aborts.add(1),
            Err(Unserved::Refused(Refusal::QueueTimeout)) => {
                counters.unserved.add(u64::from(self.tried.is_empty()));
            }
            // The service is no more, or not what the client came for: it goes elsewhere, or is turned away by its frontend.
            Err(Unserved::Refused(_)) | Ok(_) => {}
        }
        self.queued += waited;
        self.progress.queued = Some(self.waited + self.queued);
        turn
    }

    /// When a wait that begins now has taken too long. Those before it count, for other services and in other dials, too.
    fn end_of_wait(&self) -> Moment {
        let timeout = self.service.spec().timeouts.queue();
        let waited = self.waited + self.queued;
        self.now.after(timeout.saturating_sub(waited))
    }

    /// How many may wait beside this client. One that has waited for this service already, and was routed anew, has its place.
    fn max_queue(&self) -> usize {
        if self.caller.has_come && !self.waited.is_zero() {
            return usize::MAX;
        }
        self.service.max_queue()
    }

    async fn wait_for_turn(
        &mut self,
        ticket: Ticket,
        until: Moment,
    ) -> Result<Result<Picked, Unavailable>, Unserved> {
        let worker = self.caller.worker;
        let state = Arc::clone(self.service.state());
        loop {
            let tick = match self.service.next_return(self.now) {
                Some(returns) => returns.min(until),
                None => until,
            };
            // The tick is needed for the end of an ejection, which wakes no client.
            let mut tick = pin!(sleep_until(worker.shared.clock.instant(tick)));
            let ended_by = poll_fn(|cx| {
                if (self.caller.poll_gone)(cx).is_ready() {
                    return Poll::Ready(WaitEnd::ClientLeft);
                }
                match ticket.poll_turn(cx) {
                    Poll::Ready(()) => Poll::Ready(WaitEnd::Turn),
                    Poll::Pending => tick.as_mut().poll(cx).map(|()| WaitEnd::Tick),
                }
            })
            .await;
            self.now = worker.shared.clock.now();
            match ended_by {
                WaitEnd::Turn => {}
                WaitEnd::ClientLeft => return Err(Unserved::ClientLeft(WaitPhase::Queue)),
                WaitEnd::Tick if self.now >= until => return Err(Refusal::QueueTimeout.into()),
                WaitEnd::Tick => {
                    state.queue().wake_head();
                    continue;
                }
            }
            if self.refresh_service()? {
                return Ok(self.pick_behind_the_queue());
            }
            match self.pick_in_turn() {
                Err(Unavailable::Full) => {}
                picked => return Ok(picked),
            }
        }
    }
}

/// What ended a wait in the queue.
enum WaitEnd {
    Turn,
    Tick,
    ClientLeft,
}
