//! Tells systemd what the process does, where it was started with `Type=notify` or `notify-reload`. Without systemd nothing is sent.

use sd_notify::{NotifyState, notify};

/// The table was read: the process serves. If it has taken over from another one, it is the service's process now.
pub(crate) fn ready(has_taken_over: bool) {
    if has_taken_over {
        send(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
    } else {
        send(&[NotifyState::Ready]);
    }
}

/// The table is being read again.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
    }
}

/// The next process serves. If it is of the same service (`next` is its number), it is the service's process now. Otherwise this
/// service is ending, so that it can be started again in its turn.
pub(crate) fn replaced(next: Option<u32>) {
    match next {
        Some(next) => send(&[NotifyState::MainPid(next)]),
        None => stopping(),
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
