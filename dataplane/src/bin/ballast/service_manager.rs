//! Tells systemd what the process does, where it was started with `Type=notify` or `notify-reload`. Without systemd nothing is sent.

use sd_notify::{NotifyState, notify};

/// The table was read: the process serves.
pub(crate) fn ready() {
    send(&[NotifyState::Ready]);
}

/// The table is being read again.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
    }
}

/// The process is ending.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::debug!(%error, "cannot tell the service manager");
    }
}
