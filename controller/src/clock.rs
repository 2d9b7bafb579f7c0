//! Time as Leases need it: it goes on while the machine sleeps. Every decision about time takes it as an argument.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Since the machine began.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
