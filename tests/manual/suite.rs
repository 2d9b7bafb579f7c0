//! What README.md and docs/ say of both programs, compared with the programs and with their source.

mod commands;
mod flags;
mod lines;
mod metrics;
#[path = "../common/netns.rs"]
mod netns;
#[path = "../common/program.rs"]
mod program;
mod reasons;
mod recipes;
#[path = "../common/skip.rs"]
mod skip;
mod text;

/// What `netns` asks of its neighbours.
mod peers {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Held by whoever starts a process.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static STARTS: Mutex<()> = Mutex::new(());
        STARTS.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
