//! The signals that `run` and `demo` handle. Nothing here waits for the log: signals work even if standard error is blocked.

use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ballast::{Predecessor, Running, Shared};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{FAULT, service_manager};

/// The handled signals. They are registered before the start, so that none of them kills a process that is just starting.
pub(crate) struct Signals {
    runtime: Runtime,
    receivers: Receivers,
}

struct Receivers {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

/// What a signal asks for.
enum Order {
    Reread,
    /// End; connections may finish for the drain timeout.
    End,
    /// End; connections may finish, however long they take.
    Drain,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot handle signals")?;
        let within = runtime.enter();
        let receivers = Receivers {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        };
        drop(within);
        Ok(Self { runtime, receivers })
    }

    /// Waits for `what`. `None`: a signal asked the process, which does not serve yet, to end.
    pub(crate) fn wait_for<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        self.runtime.block_on(async {
            let mut what = pin!(what);
            loop {
                tokio::select! {
                    done = &mut what => return Some(done),
                    order = self.receivers.next() => match order {
                        Order::Reread => {}
                        Order::End | Order::Drain => return None,
                    }
                }
            }
        })
    }

    /// Serves until a signal says to end, and ends. `predecessors` are told when this process serves.
    pub(crate) fn serve(
        self,
        mut running: Running,
        mut predecessors: Vec<Predecessor>,
    ) -> ExitCode {
        let Self {
            runtime,
            mut receivers,
        } = self;
        runtime.block_on(async {
            let mut reading: Pin<Box<dyn Future<Output = ()>>> = Box::pin(running.first_read());
            let mut is_reading = true;
            let shared = Arc::clone(running.shared());
            let mut ready = pin!(ready(&shared));
            loop {
                tokio::select! {
                    () = &mut ready, if !predecessors.is_empty() => {
                        for predecessor in predecessors.drain(..) {
                            predecessor.replace().await;
                        }
                    }
                    order = receivers.next() => match order {
                        Order::Reread => {
                            service_manager::reloading();
                            reading = Box::pin(running.reread());
                            is_reading = true;
                        }
                        order => {
                            service_manager::stopping();
                            return receivers.end(running, order).await;
                        }
                    },
                    () = &mut reading, if is_reading => {
                        is_reading = false;
                        service_manager::ready();
                    }
                }
            }
        })
    }
}

/// Waits until clients should be sent here.
async fn ready(shared: &Shared) {
    while !shared.status.is_ready() {
        sleep(READY_EVERY).await;
    }
}

impl Receivers {
    async fn next(&mut self) -> Order {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Order::End,
                _ = self.interrupt.recv() => return Order::End,
                _ = self.hangup.recv() => return Order::Reread,
                _ = self.user1.recv() => return Order::Drain,
                _ = self.user2.recv() => tracing::warn!(
                    "SIGUSR2 is ignored: there is no reload by signal; SIGHUP reads the table again"
                ),
            }
        }
    }

    /// Ends in order, or at once if a second order to end comes. The drain timeout begins with the first order.
    async fn end(&mut self, running: Running, order: Order) -> ExitCode {
        let hurry = CancellationToken::new();
        let mut first = Instant::now();
        let (delay, drain) = running.times();
        let accepts = match delay {
            Duration::ZERO => String::new(),
            delay => format!("clients are accepted for {delay:?}, then "),
        };
        let mut stop = pin!(running.drain(hurry.cancelled()));
        if matches!(order, Order::End) {
            hurry.cancel();
            tracing::info!(
                "ending: {accepts}connections may finish for {drain:?}; a second signal ends at once"
            );
        } else {
            tracing::info!(
                "ending by SIGUSR1: connections may finish, however long they take; SIGTERM begins the drain timeout of {drain:?}"
            );
        }
        loop {
            let order = tokio::select! {
                cut = &mut stop => {
                    tracing::info!(cut, "ended");
                    return ExitCode::SUCCESS;
                }
                order = self.next() => order,
            };
            match order {
                Order::Reread | Order::Drain => {}
                Order::End if !hurry.is_cancelled() => {
                    tracing::info!(
                        "the drain timeout begins: connections may finish for {drain:?}; another signal ends at once"
                    );
                    hurry.cancel();
                    first = Instant::now();
                }
                Order::End if first.elapsed() < ONE_SIGNAL => {}
                Order::End => {
                    tracing::warn!("ended at once, by a second signal");
                    return ExitCode::from(FAULT);
                }
            }
        }
    }
}

const READY_EVERY: Duration = Duration::from_millis(20);
/// Two signals within this time count as one: `timeout`, for example, sends a signal to the process and to its whole group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);
