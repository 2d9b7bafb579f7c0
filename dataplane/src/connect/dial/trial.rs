//! Trials of endpoints whose ejection is over, without a client.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::pick::Picked;

use super::{AttemptError, Attempts, open_stream, short_attempt};
use crate::os::socket_error;

impl Attempts<'_> {
    /// An endpoint may be as unreachable after its ejection as before, and no client should bear the cost of a trial. If
    /// another endpoint is available, the client gets that one, and a separate task tries the returning endpoint.
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

    /// Tries whether an endpoint is reachable again.
    fn try_out(&self, picked: Picked) {
        let worker = Rc::clone(self.caller.worker);
        let (service, plan) = (Arc::clone(&self.service), Rc::clone(&self.plan));
        tokio::task::spawn_local(async move {
            let until = worker.shared.clock.now().after(short_attempt(&service));
            let reached = open_stream(&worker, &service, picked.lease.endpoint(), until).await;
            let now = worker.shared.clock.now();
            match reached {
                Ok(_stream) => {
                    picked.lease.endpoint().connected(now);
                    tracing::info!(
                        service = service.state().name(),
                        endpoint = %picked.lease.address(),
                        "endpoint is back"
                    );
                }
                // An error that says nothing about the endpoint changes nothing: a later client causes another trial.
                Err(AttemptError::Socket(error))
                    if socket_error::endpoint_failure(&error).is_none() => {}
                Err(_) => {
                    service.trial_failed(picked.index, now);
                }
            }
            // `apply` holds the plan too and frees it, so this task is never the last owner of a large plan.
            drop((service, plan));
        });
    }
}

/// Longer than an attempt without a client takes.
const TRIAL: Duration = Duration::from_secs(2);
