//! Endpoints whose ejection is over are tried without a client.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::pick::Picked;
use tokio::time::Instant;

use super::{Attempts, InVain, reach, short_attempt};
use crate::fault;
use crate::relay::reset_on_close;

impl Attempts<'_> {
    /// An endpoint whose ejection is over may be as silent as before, and no client shall pay to learn that: while another
    /// one can be had, it is tried without a client.
    pub(super) fn spare_client(&self, mut picked: Picked) -> Picked {
        while picked.lease.endpoint().begin_trial(TRIAL, self.now) {
            match self.pick_in_turn() {
                Ok(another) if another.index != picked.index => {
                    self.try_out(mem::replace(&mut picked, another));
                }
                _ => break,
            }
        }
        picked
    }

    /// Looks whether an endpoint is back.
    fn try_out(&self, picked: Picked) {
        let worker = Rc::clone(self.client.worker);
        let (service, plan) = (Arc::clone(&self.service), Arc::clone(&self.plan));
        tokio::task::spawn_local(async move {
            let until = Instant::now() + short_attempt(&service);
            let reached = reach(&service, picked.lease.address(), until, None).await;
            let now = worker.shared.clock.now();
            match reached {
                Ok(stream) => {
                    reset_on_close(&stream);
                    service.connected(picked.index, now);
                    tracing::info!(
                        service = service.state().name(),
                        endpoint = %picked.lease.address(),
                        "endpoint is back"
                    );
                }
                // What says nothing about the endpoint leaves it as it was: soon somebody else tries it.
                Err(InVain::Failed(error)) if fault::of_endpoint(&error).is_none() => {}
                Err(_) => {
                    service.tried_in_vain(picked.index, now);
                }
            }
            // The last one to hold a plan may have much to free: that is left to `apply`, which holds it, too.
            drop((service, plan));
        });
    }
}

/// Longer than an attempt without a client takes.
const TRIAL: Duration = Duration::from_secs(2);
