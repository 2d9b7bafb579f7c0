//! Time as Leases need it: it goes on while the machine sleeps; and as Kubernetes writes it. Every decision about time takes it as an argument.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The time since the boot of the machine.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::Boottime)
        .try_into()
        .unwrap_or_default()
}

/// The processor time of this thread.
pub(crate) fn of_thread() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// The time of day, as Kubernetes writes it.
pub(crate) fn micros() -> String {
    format!("{:.6}", Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_has_six_digits_after_the_second() {
        let text = micros();
        let (_, fraction) = text.split_once('.').unwrap();
        assert_eq!(fraction.len(), 7, "{text}");
        assert!(text.ends_with('Z'));
    }
}
