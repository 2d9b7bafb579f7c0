//! The pause between two rounds of attempts, after every endpoint was tried in vain.

use std::future::poll_fn;
use std::task::Poll;

use ballast_core::pick::Unavailable;

use super::{Attempts, During, Unserved};
use crate::poller::{CutWatch, Timer};

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
        let poller = &worker.tools.poller;
        let cut = CutWatch::new(poller, &left);
        let mut timer = Timer::new(poller);
        timer.set(self.now.after(pause));
        let news = poll_fn(|cx| {
            if (self.caller.poll_gone)(cx).is_ready() {
                return Poll::Ready(News::ClientLeft);
            }
            // An order to cut the connections of that endpoint ends the pause, as it would end a dial.
            if cut.poll_cut(cx).is_ready() {
                return Poll::Ready(News::Cut);
            }
            timer.poll(cx).map(|()| News::Time)
        })
        .await;
        drop((cut, timer));
        self.now = worker.shared.clock.now();
        if news == News::ClientLeft {
            left.counters(worker.id).client_aborts.add(1);
            return Err(Unserved::Left(During::Dial));
        }
        self.follow_table()?;
        match news {
            News::Cut => self.tried.cut(&left),
            News::Time | News::ClientLeft => self.tried.begin_again(&self.service, self.now),
        }
        Ok(())
    }
}

/// What ends the pause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum News {
    Time,
    Cut,
    ClientLeft,
}
