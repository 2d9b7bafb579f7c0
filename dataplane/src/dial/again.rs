//! The pause between two rounds of attempts, after every endpoint was tried in vain.

use tokio::time::sleep_until;

use super::{Attempts, During, InVain, Unserved};

impl Attempts<'_> {
    /// Waits until endpoints that were tried may be tried again, and follows the table. The client holds no lease meanwhile.
    /// It is told at once if it may not try again.
    pub(super) async fn wait_to_try_again(&mut self) -> Result<(), Unserved> {
        let worker = self.client.worker;
        let deadline = self.deadline();
        let pause = self.service.pause(&self.tried, self.now, deadline);
        let (Some(pause), Some(left)) = (pause, self.left.clone()) else {
            self.count_unserved();
            return Err(self.none_left().into());
        };
        // An order to cut the connections of that endpoint ends the pause, as it would end a dial.
        worker
            .seats
            .borrow_mut()
            .at_endpoint(self.client.seat, &left);
        let over = worker.shared.clock.instant(self.now.after(pause));
        let pausing = async {
            sleep_until(over).await;
            Ok(())
        };
        let paused = self.client.wait(pausing).await;
        worker.seats.borrow_mut().dialed_in_vain(self.client.seat);
        self.now = worker.shared.clock.now();
        if let Err(InVain::ClientLeft) = paused {
            left.counters(worker.id).client_aborts.add(1);
            return Err(Unserved::Left(During::Dial));
        }
        self.follow_table()?;
        match paused {
            Err(InVain::Cut) => self.tried.cut(&left),
            _ => self.tried.begin_again(&self.service, self.now),
        }
        Ok(())
    }
}
