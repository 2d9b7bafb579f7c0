//! The pause between two rounds of attempts, after every endpoint was tried without success.

use std::future::poll_fn;
use std::task::Poll;

use ballast_core::pick::Unavailable;

use super::{Attempts, Unserved, WaitPhase};
use crate::net::poller::{CutWatch, Timer};

impl Attempts<'_> {
    /// Waits until the tried endpoints may be tried again, and then reads the plan in force. The client holds no lease
    /// meanwhile. Returns the refusal at once if there is no further attempt. `why` tells why no endpoint could be picked.
    pub(super) async fn wait_to_try_again(&mut self, why: Unavailable) -> Result<(), Unserved> {
        let worker = self.caller.worker;
        let deadline = self.deadline();
        let pause = self.service.pause(&self.tried, self.now, deadline);
        let (Some(pause), Some(last_failed)) = (pause, self.last_failed.clone()) else {
            self.count_unserved();
            return Err(self.refusal(why).into());
        };
        let poller = &worker.tools.poller;
        let cut = CutWatch::new(poller, &last_failed);
        let mut timer = Timer::new(poller);
        timer.set(self.now.after(pause));
        let ended_by = poll_fn(|cx| {
            if (self.caller.poll_gone)(cx).is_ready() {
                return Poll::Ready(WaitEnd::ClientLeft);
            }
            // An order to cut the connections of that endpoint ends the pause, as it would end an attempt.
            if cut.poll_cut(cx).is_ready() {
                return Poll::Ready(WaitEnd::Cut);
            }
            timer.poll(cx).map(|()| WaitEnd::Elapsed)
        })
        .await;
        drop((cut, timer));
        self.now = worker.shared.clock.now();
        if ended_by == WaitEnd::ClientLeft {
            last_failed.counters(worker.id).client_aborts.add(1);
            return Err(Unserved::ClientLeft(WaitPhase::Dial));
        }
        self.refresh_service()?;
        match ended_by {
            WaitEnd::Cut => self.tried.cut(&last_failed),
            WaitEnd::Elapsed | WaitEnd::ClientLeft => {
                self.tried.begin_again(&self.service, self.now);
            }
        }
        Ok(())
    }
}

/// What ended the pause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitEnd {
    Elapsed,
    Cut,
    ClientLeft,
}
