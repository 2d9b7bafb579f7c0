//! The wait for room, where every endpoint has as many connections as it may have.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ballast_core::admit::Refusal;
use ballast_core::pick::{Picked, Tried, Unavailable};
use ballast_core::plan::Plan;
use ballast_core::queue::Ticket;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::{Caller, During, Unserved, none_left};
use crate::worker::Worker;

/// Waits until it is this client's turn and there is room. Returns the plan that was in force then.
pub(super) async fn wait_in_queue(
    worker: &Worker,
    mut plan: Arc<Plan>,
    name: &str,
    client: &TcpStream,
    caller: &Caller,
    tried: &Tried,
) -> (Arc<Plan>, Duration, Result<Picked, Unserved>) {
    let began = worker.shared.clock.now();
    let Some(service) = plan.service(name) else {
        return (plan, Duration::ZERO, Err(Refusal::NoEndpoint.into()));
    };
    let state = Arc::clone(service.state());
    let until = Instant::now() + service.spec().timeouts.queue();
    let Some(ticket) = Ticket::take(&state, service.max_queue()) else {
        let none_tried = u64::from(tried.is_empty());
        state.counters(worker.id).unserved.add(none_tried);
        return (plan, Duration::ZERO, Err(Refusal::QueueFull.into()));
    };
    // One that is only done sending still waits for its answer.
    let mut left = pin!(client.ready(Interest::ERROR));
    let turn = loop {
        let returns = plan
            .service(name)
            .and_then(|service| service.next_return(worker.shared.clock.now()))
            .map_or(until, |moment| {
                worker.shared.clock.instant(moment).min(until)
            });
        // By turn, or because an ejection ends, which wakes nobody.
        let mut tick = pin!(sleep_until(returns));
        let news = poll_fn(|cx| {
            if left.as_mut().poll(cx).is_ready() {
                return Poll::Ready(News::ClientLeft);
            }
            match ticket.poll_turn(cx) {
                Poll::Ready(()) => Poll::Ready(News::Turn),
                Poll::Pending => tick.as_mut().poll(cx).map(|()| News::Time),
            }
        });
        match news.await {
            News::Turn => {}
            News::ClientLeft => break Err(Unserved::Left(During::Queue)),
            News::Time if Instant::now() >= until => break Err(Refusal::QueueTimeout.into()),
            News::Time => {
                state.queue().wake_head();
                continue;
            }
        }
        plan = worker.shared.live.plan();
        let Some(service) = plan.service(name) else {
            break Err(Refusal::NoEndpoint.into());
        };
        let now = worker.shared.clock.now();
        match service.pick_in_turn(&caller.key, tried, now, &mut worker.rng.borrow_mut()) {
            Ok(picked) => break Ok(picked),
            Err(Unavailable::Full) => {}
            Err(Unavailable::NoEndpoint) => break Err(none_left(tried).into()),
        }
    };
    let waited = worker.shared.clock.now().since(began);
    let counters = state.counters(worker.id);
    counters.queued(waited);
    match turn {
        Err(Unserved::Left(_)) => counters.client_aborts.add(1),
        Err(Unserved::Refused(_)) => counters.unserved.add(u64::from(tried.is_empty())),
        Ok(_) => {}
    }
    (plan, waited, turn)
}

/// What ends a wait in the queue.
enum News {
    Turn,
    Time,
    ClientLeft,
}
