//! The pause between two rounds of attempts, after every endpoint was tried in vain.

use std::future::poll_fn;
use std::task::Poll;

use ballast_core::pick::Unavailable;

use super::{Attempts, During, Unserved};
use crate::poller::Timer;

impl Attempts<'_> {
    /// Waits until endpoints that were tried may be tried again, and then follows the table. The client holds no lease meanwhile.
    /// Returns the refusal at once if there is no further attempt. `why` no endpoint could be picked.
    pub(super) async fn wait_to_try_again(&mut self, why: Unavailable) -> Result<(), Unserved> {
        let worker = self.caller.worker;
        let deadline = self.deadline();
        let pause = self.service.pause(&self.tried, self.now, deadline);
        let (Some(pause), Some(left)) = (pause, self.left.clone()) else {
            self.count_unserved();
            return Err(self.none_left(why).into());
        };
        let mut timer = Timer::new(&worker.tools.poller);
        timer.set(self.now.after(pause));
        let is_gone = poll_fn(|cx| {
            if (self.caller.poll_gone)(cx).is_ready() {
                return Poll::Ready(true);
            }
            timer.poll(cx).map(|()| false)
        })
        .await;
        drop(timer);
        self.now = worker.shared.clock.now();
        if is_gone {
            left.counters(worker.id).client_aborts.add(1);
            return Err(Unserved::Left(During::Dial));
        }
        self.follow_table()?;
        self.tried.begin_again(&self.service, self.now);
        Ok(())
    }
}
