//! Threads: how they are created, each with a runtime of its own, and how they share the processors.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::os::panics::Vital;
use crate::os::sys;

/// How a thread shares its processor with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A worker: short time slices, so that threads that count and render may run at the same time without delaying a client.
    Prompt,
    /// Like any other thread: a delayed check would count against its endpoint.
    Even,
    /// Background work: at a lower priority, and without interrupting others when it wakes.
    Quiet,
}

/// Starts a thread without which the process ends. Returns once the thread has a runtime, or why it cannot have one.
pub(crate) fn start(
    name: impl Into<String>,
    pace: Pace,
    run: impl FnOnce(LocalRuntime) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    start_prepared(name, pace, || Ok(()), |runtime, ()| run(runtime))
}

/// Starts such a thread with a value that must be created within the thread's runtime, which may fail.
pub(crate) fn start_prepared<T>(
    name: impl Into<String>,
    pace: Pace,
    prepare: impl FnOnce() -> io::Result<T> + Send + 'static,
    run: impl FnOnce(LocalRuntime, T) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (started, start) = mpsc::channel();
    let thread = spawn(name.into(), pace, move || {
        let prepared = local_runtime().and_then(|runtime| {
            let within = runtime.enter();
            let prepared = prepare()?;
            drop(within);
            Ok((runtime, prepared))
        });
        match prepared {
            Ok((runtime, prepared)) => {
                started.send(Ok(())).ok();
                run(runtime, prepared);
            }
            Err(error) => started.send(Err(error)).unwrap_or_default(),
        }
    })?;
    let ended = |_| io::Error::other("a thread ended as soon as it started");
    start.recv().map_err(ended)??;
    Ok(thread)
}

/// Starts a thread without which the process ends, and which needs no runtime.
pub(crate) fn spawn(
    name: String,
    pace: Pace,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.clone()).spawn(move || {
        let _vital = Vital(format!("the {name}"));
        pace.take();
        run();
    })
}

/// Locks a mutex, also after a thread has panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runtime for one thread.
pub(crate) fn local_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}

impl Pace {
    /// Has the calling thread run so from now on.
    pub(crate) fn take(self) {
        match self {
            Self::Prompt => {
                if let Err(error) = sys::set_time_slice(TIME_SLICE) {
                    tracing::debug!(%error, "cannot set the time slice of a worker");
                }
            }
            Self::Even => {}
            Self::Quiet => {
                if let Err(error) = rustix::process::nice(QUIET) {
                    tracing::debug!(%error, "cannot lower the priority of a thread");
                }
                if let Err(error) = sys::run_as_batch() {
                    tracing::debug!(%error, "cannot make a thread a batch job");
                }
            }
        }
    }
}

/// Added to the nice value of the process.
const QUIET: i32 = 10;
/// The shortest time slice that the kernel supports.
const TIME_SLICE: Duration = Duration::from_micros(100);
