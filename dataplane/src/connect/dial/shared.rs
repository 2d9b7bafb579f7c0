//! An attempt to get a part in a connection that serves many requests at once.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ballast_core::pick::Picked;

use super::{AttemptError, Attempts, Connected, Reach};
use crate::net::poller::Timer;
use crate::worker::Worker;
use crate::worker::pool::{Announced, Connecting, Found, Links, Multiplexed, Outcome, Use};

impl Attempts<'_> {
    /// Takes part in a connection to the picked endpoint, or makes one. While another caller makes one, this one waits for it.
    pub(super) async fn attempt_shared(
        &mut self,
        picked: &Picked,
        how: Multiplexed,
    ) -> Result<Connected, AttemptError> {
        let worker = self.caller.worker;
        let endpoint = picked.lease.endpoint();
        let links = &worker.pool.links;
        let mut has_waited = false;
        loop {
            let may_idle = has_waited || self.caller.idle.is_some();
            match links.find(worker, endpoint, self.service.spec(), how.owner, may_idle) {
                Found::Link(link) => {
                    endpoint.counters(worker.id).reuses.add(1);
                    let is_reused = true;
                    return Ok(Connected::Shared { link, is_reused });
                }
                Found::Connecting(coming) => {
                    if self.wait_for(&coming, picked).await? == Outcome::Failed {
                        break;
                    }
                    has_waited = true;
                }
                Found::Nothing => break,
            }
        }
        let announced = Links::announce(worker, endpoint, how.owner);
        let header = match self.service.spec().tls {
            None => (self.caller.proxy_header)(&self.service),
            // It is sent before the handshake.
            Some(_) => Vec::new(),
        };
        let coming = announced.coming();
        let mut making: Making = Box::pin(make(self.reach(picked), header, announced, how));
        let made = self.race(making.as_mut()).await;
        self.now = worker.shared.clock.now();
        if let Err(AttemptError::ClientLeft) = made {
            leave_behind(worker, &coming, making, how);
        }
        let link = made?;
        Ok(Connected::Shared {
            link,
            is_reused: false,
        })
    }

    /// Waits until the connection that another caller makes is there.
    async fn wait_for(
        &mut self,
        coming: &Connecting,
        picked: &Picked,
    ) -> Result<Outcome, AttemptError> {
        let worker = self.caller.worker;
        let mut timer = Timer::new(&worker.tools.poller);
        timer.set(self.attempt_deadline(picked));
        let poll_gone = self.caller.poll_gone;
        let _waiter = coming.waiter();
        let mut ended = pin!(coming.ended());
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(outcome) = ended.as_mut().poll(cx) {
                return Poll::Ready(Ok(outcome));
            }
            if poll_gone(cx).is_ready() {
                return Poll::Ready(Err(AttemptError::ClientLeft));
            }
            let late = || io::Error::from(io::ErrorKind::TimedOut);
            timer.poll(cx).map(|()| Err(late().into()))
        })
        .await;
        self.now = worker.shared.clock.now();
        outcome
    }
}

/// A connection for many requests that is being made.
type Making = Pin<Box<dyn Future<Output = Result<Use, AttemptError>>>>;

/// Goes on making a connection whose maker is gone: for requests that come later, if they may be of any client and the process has room,
/// else as long as another request waits for it.
fn leave_behind(
    worker: &Rc<Worker>,
    coming: &Rc<Connecting>,
    mut making: Making,
    how: Multiplexed,
) {
    let share = match how.owner {
        None => worker.shared.admit_request(),
        Some(_) => None,
    };
    if let Some(share) = share {
        tokio::task::spawn_local(async move {
            drop(making.await);
            drop(share);
        });
    } else if coming.is_awaited() {
        let coming = Rc::clone(coming);
        tokio::task::spawn_local(async move {
            let mut deserted = pin!(coming.deserted());
            poll_fn(|cx| match making.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => deserted.as_mut().poll(cx),
            })
            .await;
        });
    }
}

/// Makes a connection for many requests. `header` is sent first.
async fn make(
    reach: Reach,
    header: Vec<u8>,
    announced: Announced,
    how: Multiplexed,
) -> Result<Use, AttemptError> {
    let (worker, endpoint) = (Rc::clone(&reach.worker), Arc::clone(&reach.endpoint));
    let service = Arc::clone(&reach.service);
    let begun = match reach.run().await {
        Ok(stream) => {
            let begun = Links::begin(&worker, stream, header, &endpoint, &service, how);
            begun.await.map_err(AttemptError::Socket)
        }
        Err(error) => Err(error),
    };
    if begun.is_err() {
        announced.fail();
    }
    begun
}
