//! The signals that `run` and `demo` handle. Nothing here waits for the log: signals work even if standard error is blocked.

use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use ballast::{GOES_ON, Predecessor, Running, Shared};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{FAULT, service_manager, upgrade};

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
    /// Whether a signal told the process to end.
    is_told: bool,
}

/// What a signal asks for.
enum Order {
    Reread,
    /// End; connections may finish for the drain timeout.
    End,
    /// End; connections may finish, however long they take.
    Drain,
    /// End: the next process serves from the sockets of this one.
    Replaced,
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
            is_told: false,
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
                        Order::End | Order::Drain | Order::Replaced => return None,
                    }
                }
            }
        })
    }

    /// Serves until a signal says to end, and ends. `predecessors` are notified when this process serves. If it `stays`, a process
    /// that was replaced ends by a signal, too.
    pub(crate) fn serve(
        self,
        mut running: Running,
        mut predecessors: Vec<Predecessor>,
        stays: bool,
    ) -> ExitCode {
        let Self {
            runtime,
            mut receivers,
        } = self;
        runtime.block_on(async {
            let mut reading: Pin<Box<dyn Future<Output = ()>>> = Box::pin(running.first_read());
            let mut is_reading = true;
            let shared = Arc::clone(running.shared());
            let mut serves = pin!(serves(&shared));
            let has_inherited = running.has_inherited();
            let mut failed = pin!(running.failed());
            let mut replaced = pin!(running.replaced());
            loop {
                tokio::select! {
                    why = &mut failed => {
                        tracing::error!("--handover: {why}");
                        return ExitCode::from(GOES_ON);
                    }
                    next = &mut replaced => {
                        service_manager::replaced(next);
                        let code = receivers.end(running, Order::Replaced).await;
                        if stays && !receivers.is_told {
                            tracing::info!("--stay: another process serves, and this one waits for SIGTERM");
                            while !matches!(receivers.next().await, Order::End) {}
                        }
                        return code;
                    }
                    () = &mut serves, if !predecessors.is_empty() => {
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
                        _ if running.give_up() => {
                            tracing::info!("ended by a signal, before it served: the process that runs goes on");
                            return ExitCode::SUCCESS;
                        }
                        order => {
                            service_manager::stopping();
                            return receivers.end(running, order).await;
                        }
                    },
                    () = &mut reading, if is_reading => {
                        is_reading = false;
                        service_manager::ready(has_inherited);
                        let taken = shared.status.inherited();
                        if taken.is_some() || shared.status.is_ready() {
                            upgrade::report(taken);
                        }
                    }
                }
            }
        })
    }
}

/// Waits until this process serves in place of the one before: clients should be sent here, and every address is bound. An
/// address that cannot be bound is waited for only so long.
async fn serves(shared: &Shared) {
    while !shared.status.is_ready() {
        sleep(READY_EVERY).await;
    }
    let until = Instant::now() + BINDS_WITHIN;
    while shared.status.unbound.load(Ordering::SeqCst) > 0 && Instant::now() < until {
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
        // A supervisor's signal reaches a process that was replaced as well. The first one changes nothing: it is ending.
        self.is_told = true;
        if matches!(order, Order::Replaced) {
            self.is_told = false;
            hurry.cancel();
            tracing::info!("the next process serves: connections may finish for {drain:?}");
        } else if matches!(order, Order::End) {
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
                Order::Reread | Order::Drain | Order::Replaced => {}
                Order::End if !self.is_told => {
                    self.is_told = true;
                    first = Instant::now();
                }
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
/// Time for addresses that could not be bound at once, which are retried every 5 s.
const BINDS_WITHIN: Duration = Duration::from_secs(8);
/// Two signals within this time count as one: `timeout`, for example, sends a signal to the process and to its whole group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);
