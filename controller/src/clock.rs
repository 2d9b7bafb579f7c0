//! Time as Leases need it: it goes on while the machine sleeps; and as Kubernetes writes it. Every decision about time takes it as an argument.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

/// The time since the boot of the machine.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::Boottime)
        .try_into()
        .unwrap_or_default()
}

/// Sleeps for this long; for ever without a duration.
pub(crate) async fn pause(duration: Option<Duration>) {
    match duration {
        Some(duration) => sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// Sleeps until this time since the boot of the machine; for ever without a time.
pub(crate) async fn pause_until(at: Option<Duration>) {
    pause(at.map(|at| at.saturating_sub(now()))).await;
}

/// The processor time of this thread.
pub(crate) fn of_thread() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// The time of day, in the form of the fields of a Lease.
pub(crate) fn micros() -> MicroTime {
    MicroTime(Timestamp::now())
}
