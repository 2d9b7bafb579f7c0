//! An attempt to get a part in a connection that serves many requests at once.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use ballast_core::pick::Picked;

use super::{AttemptError, Attempts, Connected};
use crate::http::{Connecting, Found, Links, Multiplexed, Outcome};
use crate::poller::Timer;

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
        let begun = match self.connect(picked).await {
            Ok(stream) => {
                // With TLS it was sent before the handshake.
                let header = match stream.session() {
                    None => (self.caller.preface)(&self.service),
                    Some(_) => Vec::new(),
                };
                let begun = Links::begin(worker, stream, header, endpoint, &self.service, how);
                begun.await.map_err(AttemptError::Socket)
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok(link) => Ok(Connected::Shared {
                link,
                is_reused: false,
            }),
            Err(error) => {
                if !matches!(error, AttemptError::ClientLeft) {
                    announced.fail();
                }
                Err(error)
            }
        }
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
