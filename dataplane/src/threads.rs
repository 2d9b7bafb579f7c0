//! Threads: how they are made, with a runtime of their own each, and how they share the processors.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::panics::Vital;
use crate::sys;

/// How a thread shares its processor with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// By short turns: who counts and shows may run beside it, but not make a client wait.
    Prompt,
    /// As any other thread: a check that waits for the processor would speak against its endpoint.
    Even,
    /// As background work: at a lower priority, and without interrupting others when it wakes.
    Quiet,
}

/// Starts a thread that the process cannot do without. Returns when it has a runtime, or why it gets none.
pub(crate) fn start(
    name: impl Into<String>,
    pace: Pace,
    run: impl FnOnce(LocalRuntime) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    start_prepared(name, pace, || Ok(()), |runtime, ()| run(runtime))
}

/// The same, with something that must be made within the thread's runtime, and may fail.
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
    let ended = |_| io::Error::other("a thread ended as soon as it began");
    start.recv().map_err(ended)??;
    Ok(thread)
}

/// Starts a thread that the process cannot do without, and that waits for nothing by a runtime.
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

/// A runtime for one thread.
pub(crate) fn local_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}

impl Pace {
    fn take(self) {
        match self {
            Self::Prompt => {
                if let Err(error) = sys::take_turns_of(TURN) {
                    tracing::debug!(%error, "a worker waits for others' turns to end");
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
/// The shortest that there is.
const TURN: Duration = Duration::from_micros(100);
