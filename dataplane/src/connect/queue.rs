//! The queue of a service: clients wait there while every endpoint has its maximum of connections.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use ballast_core::admit::Refusal;
use ballast_core::moment::Moment;
use ballast_core::pick::{Picked, Unavailable};
use ballast_core::queue::Ticket;
use tokio::time::sleep_until;

use super::dial::{Attempts, Unserved};
use crate::access::WaitPhase;

impl Attempts<'_> {
    /// Waits until it is this client's turn and there is room, then uses the service of the plan in force. The inner error: no
    /// endpoint is left for which the client could wait.
    pub(super) async fn wait_in_queue(&mut self) -> Result<Result<Picked, Unavailable>, Unserved> {
        let began = self.now;
        let state = Arc::clone(self.service.state());
        self.progress.before = state.queue().len();
        let until = began.after(self.service.spec().timeouts.queue());
        let Some(ticket) = Ticket::take(&state, self.service.max_queue(), &self.tried) else {
            self.count_unserved();
            return Err(Refusal::QueueFull.into());
        };
        let worker = self.caller.worker;
        let mut connections = worker.connections.borrow_mut();
        connections.set_queued(self.caller.slot, &state);
        drop(connections);
        self.progress.is_queued = true;
        let turn = self.wait_for_turn(ticket, until).await;
        self.progress.is_queued = false;
        let waited = self.now.since(began);
        let counters = state.counters(worker.id);
        counters.queued(waited);
        match turn {
            Err(Unserved::ClientLeft(_)) => counters.client_aborts.add(1),
            Err(Unserved::Refused(_)) => counters.unserved.add(u64::from(self.tried.is_empty())),
            Ok(_) => {}
        }
        self.queued += waited;
        self.progress.queued = Some(self.queued);
        // The connect timeout does not run while the client waits in the queue.
        self.deadline = self.deadline.map(|deadline| deadline.after(waited));
        turn
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
            self.refresh_service()?;
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
