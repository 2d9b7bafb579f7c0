//! Endpoints whose ejection is over are tried without a client.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::pick::{Picked, Tried};
use ballast_core::plan::Plan;
use ballast_core::service::Service;
use tokio::time::Instant;

use super::{Caller, reach, short_attempt};
use crate::relay::reset_on_close;
use crate::worker::Worker;

/// An endpoint whose ejection is over may be as silent as before, and no client shall pay to learn that: while another
/// one can be had, it is tried without a client.
pub(super) fn spare(
    worker: &Rc<Worker>,
    plan: &Arc<Plan>,
    service: &Service,
    mut picked: Picked,
    caller: &Caller,
    tried: &Tried,
) -> Picked {
    let now = worker.shared.clock.now();
    while picked.lease.endpoint().begin_trial(TRIAL, now) {
        let another = service.pick_in_turn(&caller.key, tried, now, &mut worker.rng.borrow_mut());
        match another {
            Ok(another) if another.index != picked.index => {
                try_out(worker, plan, service, mem::replace(&mut picked, another));
            }
            _ => break,
        }
    }
    picked
}

/// Looks whether an endpoint is back.
fn try_out(worker: &Rc<Worker>, plan: &Arc<Plan>, service: &Service, picked: Picked) {
    let (worker, plan) = (Rc::clone(worker), Arc::clone(plan));
    let name = service.spec().name.clone();
    tokio::task::spawn_local(async move {
        let Some(service) = plan.service(&name) else {
            return;
        };
        let until = Instant::now() + short_attempt(service);
        let reached = reach(&worker, service, picked.lease.address(), until, None).await;
        let now = worker.shared.clock.now();
        match reached {
            Ok(stream) => {
                reset_on_close(&stream);
                service.connected(picked.index, now);
                tracing::info!(service = %name, endpoint = %picked.lease.address(), "endpoint is back");
            }
            Err(_) => {
                service.tried_in_vain(picked.index, now);
            }
        }
    });
}

/// Longer than an attempt without a client takes.
const TRIAL: Duration = Duration::from_secs(2);
