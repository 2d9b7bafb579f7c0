//! The whole process: what it claims, the threads that it starts (workers, apply, probe, admin, the giver, the access log), and how
//! it ends.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use ballast_core::rng::{Rng, mix};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::access::{AccessLog, Writer};
use crate::net::ports;
use crate::operator::admin::{self, CommandLine, EarlyAdmin, Wanted};
use crate::operator::console::Consoles;
use crate::os::limits::{Budget, Room, cgroup_memory, cores};
use crate::os::panics::{self, vital};
use crate::os::reserve;
use crate::os::threads::{self, Pace};
use crate::probe::Probe;
use crate::process::config::Config;
use crate::process::handover::next::InheritedSockets;
use crate::process::handover::old::{self, Giver};
use crate::process::handover::{Decision, Freeze, GiveFlows, Inherited, LendRequest};
use crate::process::instance_lock::InstanceLocks;
use crate::process::start_error::StartError;
use crate::process::succession::Succession;
use crate::stats::Statistics;
use crate::table::apply::{Apply, ApplyConfig, End, Inheritance, Reread};
use crate::table::intake::{FirstTable, ParsedTable};
use crate::udp::FlowRoom;
use crate::worker::override_request::OverrideRequest;
use crate::worker::{FaultInjection, Order, Shared, Worker};

mod claims;
pub mod demo;
mod orders;

use claims::{AdminSide, Claims, Held};

/// A running data plane. If it is dropped, its connections are cut and the table's sockets are closed.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    stats: Arc<Statistics>,
    workers: Vec<JoinHandle<()>>,
    closed: oneshot::Receiver<()>,
    first_read: Option<oneshot::Receiver<()>>,
    failed: Option<oneshot::Receiver<String>>,
    /// Whether this process takes over from the one before; `None`: there is nothing to take over.
    decision: Option<Decision>,
    rereads: mpsc::UnboundedSender<Reread>,
    /// Dropped before `stop`, which ends the thread that knows what the next process was offered.
    _held: Held,
    stop: Stop,
    shutdown_delay: Duration,
    drain_timeout: Duration,
    succession: Succession,
}

/// Reads the table, and starts everything. Returns when the admin addresses answer and the first table, if it is a file, is
/// being applied.
pub fn start(config: Config) -> Result<Running, StartError> {
    let mut first = FirstTable::read(&config.table)?;
    start_on(config, &mut first, None, None)
}

/// Starts everything with a table that was read, with the admin addresses that were answered at meanwhile, and with what the
/// process before hands over. The table is left where another process is in the way.
pub fn start_on(
    config: Config,
    first: &mut FirstTable,
    early: Option<EarlyAdmin>,
    inherited: Option<Inherited>,
) -> Result<Running, StartError> {
    let claims = Claims::of(&config, first.stats(), early, inherited)?;
    start_with(config, claims, first.take(), None)
}

/// Starts without a table, and with fault injection.
#[cfg(test)]
pub(crate) fn start_faulty(
    config: Config,
    faults: Box<dyn FaultInjection>,
) -> Result<Running, StartError> {
    let claims = Claims::of(&config, None, None, None)?;
    start_with(config, claims, None, Some(faults))
}

/// Starts everything, with what was claimed for it.
fn start_with(
    config: Config,
    claims: Claims,
    first: Option<ParsedTable>,
    faults: Option<Box<dyn FaultInjection>>,
) -> Result<Running, StartError> {
    panics::install_hook();
    let budget = Budget::claim();
    let workers = config.threads.unwrap_or_else(cores).max(1);
    budget.suffices(workers)?;
    reserve::keep()?;
    let room = Room::new(budget, workers, cgroup_memory(), config.max_connections);
    room.log(&room.with_listening(0, false));
    let seeds = RandomState::new();
    let (access, writer) = AccessLog::new();
    let (sender, overrides) = mpsc::unbounded_channel();
    let (shared, inboxes) = Shared::new(room, seeds.hash_one(0), access, sender, faults);
    start_access(writer)?;
    let stop = Stop::default();
    let workers = start_workers(inboxes, &shared, &seeds, &stop.workers)?;
    shared.status.set_admin(claims.admin.listeners.bound());
    let (admin, wanted) = watch::channel(None);
    let succession = Succession::new();
    let held = Held::new(claims.held, &succession);
    let (lend, lend_requests) = mpsc::unbounded_channel();
    let (freeze, freezes) = mpsc::unbounded_channel();
    let taken = claims.admin.taken.clone();
    let goes_on = claims.sockets.is_some();
    let stats = Arc::new(Statistics::new(Arc::clone(&shared), goes_on));
    let (asks, ended) = ((lend, freeze), stop.admin.clone());
    start_admin(claims.admin, &held, wanted, &stats, asks, ended)?;
    start_probe(&config, &shared, budget, &seeds, stop.probe.clone())?;
    let (shutdown_delay, drain_timeout) = (config.shutdown_delay, config.drain_timeout);
    let (failing, failed) = oneshot::channel();
    let decision = claims.sockets.as_ref().map(InheritedSockets::decision);
    let inheritance = Inheritance {
        sockets: claims.sockets,
        taken,
        failed: Some(failing),
        lend_requests,
        succession: succession.clone(),
        freezes,
    };
    let settings = ApplyConfig {
        first,
        ..apply_config(
            config,
            claims.command_line,
            &seeds,
            admin,
            overrides,
            inheritance,
        )
    };
    let (first, first_read) = oneshot::channel();
    let (rereads, orders) = mpsc::unbounded_channel();
    let (closing, closed) = oneshot::channel();
    let end = End {
        stop: stop.apply.clone(),
        over: stop.workers.clone(),
        succession: succession.clone(),
        closed: closing,
    };
    start_apply(&shared, settings, first, orders, end)?;
    Ok(Running {
        shared,
        stats,
        workers,
        closed,
        first_read: Some(first_read),
        failed: Some(failed),
        decision,
        rereads,
        stop,
        shutdown_delay,
        drain_timeout,
        succession,
        _held: held,
    })
}

/// Starts the thread that writes access lines. It ends with the log, and the process does not wait for it: a reader may never read.
fn start_access(writer: Writer) -> io::Result<()> {
    threads::spawn("access".into(), Pace::Quiet, move || writer.run())?;
    Ok(())
}

impl Running {
    /// The state shared with the workers, such as the plan and the counters.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What operators see of it.
    pub fn stats(&self) -> &Statistics {
        &self.stats
    }

    /// The admin addresses in use.
    pub fn admin(&self) -> Vec<SocketAddr> {
        self.shared.status.admin()
    }

    /// How long accepting goes on after the order to end, and how long connections may then take to finish.
    pub fn times(&self) -> (Duration, Duration) {
        (self.shutdown_delay, self.drain_timeout)
    }

    /// Waits until the table was read for the first time: it is in force, it was refused, or no table exists yet.
    pub fn first_read(&mut self) -> impl Future<Output = ()> + use<> {
        dropped(self.first_read.take())
    }

    /// Reads the table again, even if it has not changed. The future is ready when the table is in force or was refused; the order
    /// is carried out without it, too.
    pub fn reread(&self) -> impl Future<Output = ()> + use<> {
        let (order, done) = oneshot::channel();
        let sent = self.rereads.send(order);
        dropped(sent.is_ok().then_some(done))
    }

    /// Waits until this process must end, because the one before goes on, which was to hand its sockets over. Returns why.
    pub fn failed(&mut self) -> impl Future<Output = String> + use<> {
        let failed = self.failed.take();
        async move {
            match failed {
                Some(failed) => match failed.await {
                    Ok(why) => why,
                    Err(_) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until the next process serves, from the sockets of this one. Returns its number, if it is of the same service.
    pub fn replaced(&self) -> impl Future<Output = Option<u32>> + use<> {
        let succession = self.succession.clone();
        async move {
            succession.replaced().await;
            let handed = succession.handed();
            let handed = handed.filter(|handed| handed.is_of_this_service);
            handed.and_then(|handed| handed.pid)
        }
    }

    /// Whether this process began with the sockets of the one before.
    #[must_use]
    pub fn has_inherited(&self) -> bool {
        self.decision.is_some()
    }

    /// Decides that this process does not take over. `false`: it has taken over already, or there is nothing to take over.
    /// Otherwise it must end at once, without a word to anybody: the one before goes on.
    #[must_use]
    pub fn give_up(&self) -> bool {
        self.decision.as_ref().is_some_and(Decision::give_up)
    }

    /// Ends in order: reports that the process is ending, stops the health checks, accepts for the shutdown delay or until the
    /// next process serves, lets connections finish for the drain timeout, and cuts the rest. Returns the number of connections
    /// cut.
    pub async fn stop(self) -> usize {
        self.drain(std::future::ready(())).await
    }

    /// Ends as [`stop`](Self::stop) does, but the drain timeout begins only when `hurry` is ready; until then connections may
    /// take as long as they need. Others see that this process is ending as soon as this is called, not only when the returned
    /// future runs.
    pub fn drain(self, hurry: impl Future<Output = ()>) -> impl Future<Output = usize> {
        self.succession.end();
        self.shared.status.stop();
        self.stop.probe.cancel();
        self.drained(hurry)
    }

    async fn drained(mut self, hurry: impl Future<Output = ()>) -> usize {
        self.succession.accepts(self.shutdown_delay).await;
        self.stop.apply.cancel();
        let mut deadline = pin!(async {
            hurry.await;
            sleep(self.drain_timeout).await;
        });
        let mut is_over = false;
        // Where nothing listens there is nothing to close, and a large table may be parsed for long.
        let listens = !self.shared.status.listening().is_empty();
        let longest = if listens {
            self.drain_timeout.max(THREAD_END_TIME)
        } else {
            EVENT_TIME
        };
        let mut closing = pin!(timeout(longest, &mut self.closed));
        let has_closed = loop {
            tokio::select! {
                closed = &mut closing => break closed.is_ok(),
                () = &mut deadline, if !is_over => is_over = true,
            }
        };
        if !has_closed && listens {
            // For example because a disk does not respond. Sockets that still listen are closed with the workers.
            tracing::error!("the apply thread does not end: no longer waiting for it");
        }
        if has_closed && listens {
            let connections = self.shared.connections();
            tracing::info!(connections, "no more clients are accepted");
        }
        while self.shared.connections() > 0 && !is_over {
            tokio::select! {
                () = &mut deadline => is_over = true,
                () = sleep(POLL_INTERVAL) => {}
            }
        }
        if is_over && self.succession.handed().is_some() {
            self.end_idle().await;
        }
        let cut = self.shared.connections();
        if cut > 0 {
            tracing::warn!(cut, "connections did not finish in time and are cut");
        }
        self.shared.status.end();
        let until = Instant::now() + EVENT_TIME;
        while self.is_answering() && Instant::now() < until {
            sleep(POLL_INTERVAL).await;
        }
        self.stop.workers.cancel();
        let until = Instant::now() + THREAD_END_TIME;
        for (id, worker) in self.workers.iter().enumerate() {
            if !has_ended(worker, until).await {
                tracing::error!(
                    worker = id,
                    "a worker does not end: no longer waiting for it"
                );
            }
        }
        self.shared.access.finish().await;
        cut
    }
}

impl Running {
    /// Whether clients of the admin side wait for a last answer. Those that connected before the next process had the address
    /// wait for this one's.
    fn is_answering(&self) -> bool {
        let status = &self.shared.status;
        let is_replaced = self.succession.handed().is_some();
        status.listeners.load(Ordering::SeqCst) > 0
            || is_replaced
                && [&status.admin_connections, &status.console_connections]
                    .iter()
                    .any(|count| count.load(Ordering::SeqCst) > 0)
    }

    /// Ends, in order, the connections whose clients have sent no request since the next process serves.
    async fn end_idle(&self) {
        self.shared.tell_workers(|| Order::EndIdle);
        let until = Instant::now() + EVENT_TIME;
        while self.shared.connections() > 0 && Instant::now() < until {
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits for the end of a thread. `false`: it had not ended by `until`.
async fn has_ended(thread: &JoinHandle<()>, until: Instant) -> bool {
    while !thread.is_finished() {
        if Instant::now() >= until {
            return false;
        }
        sleep(POLL_INTERVAL).await;
    }
    true
}

/// The tokens that stop the threads. Threads that nothing can stop any more are stopped at once.
#[derive(Debug, Default)]
struct Stop {
    probe: CancellationToken,
    apply: CancellationToken,
    workers: CancellationToken,
    admin: CancellationToken,
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.probe.cancel();
        self.apply.cancel();
        self.workers.cancel();
        self.admin.cancel();
    }
}

fn start_workers(
    inboxes: Vec<mpsc::UnboundedReceiver<Order>>,
    shared: &Arc<Shared>,
    seeds: &RandomState,
    stop: &CancellationToken,
) -> io::Result<Vec<JoinHandle<()>>> {
    let room = shared.room;
    let workers = room.workers;
    let (pipes, flows) = (room.at_rest().pipes, room.budget.flows(workers));
    let ports = ports::local(flows, workers);
    let start = |(id, inbox)| {
        let flow_room = FlowRoom {
            most: flows,
            ports: ports.share(id, workers),
        };
        let (shared, stop) = (Arc::clone(shared), stop.clone());
        let rng = Rng::new(seeds.hash_one(id + 1));
        let counted = Arc::clone(&shared);
        threads::start_prepared(
            format!("worker-{id}"),
            Pace::Prompt,
            move || Worker::new(id, shared, pipes, rng),
            move |runtime, worker| {
                let _counted = counted.count_tasks(&runtime);
                runtime.block_on(orders::run(worker, flow_room, inbox, stop));
                // Dropping the runtime drops the remaining connections, which resets them.
            },
        )
    };
    inboxes.into_iter().enumerate().map(start).collect()
}

/// Starts the thread that answers at the admin addresses and the runtime sockets until the next process takes over, or this data
/// plane has ended.
fn start_admin(
    mut side: AdminSide,
    held: &Held,
    wanted: watch::Receiver<Option<Wanted>>,
    stats: &Arc<Statistics>,
    asks: Asks,
    ended: CancellationToken,
) -> io::Result<JoinHandle<()>> {
    let giver = side.handover.take().map(|listener| {
        let locks = side.locks.clone();
        start_giver(listener, locks, held, &stats.shared, asks, ended.clone())
    });
    let giver = giver.transpose()?;
    let (succession, stats) = (held.succession.clone(), Arc::clone(stats));
    let held = Arc::downgrade(&held.holdings);
    threads::start("admin", Pace::Quiet, move |runtime| {
        let _counted = stats.shared.count_tasks(&runtime);
        let answering = async {
            side.taken.cancelled().await;
            if let Some(holdings) = held.upgrade() {
                claims::settle(&holdings);
            }
            let (lend_admin, lend_requests) = mpsc::unbounded_channel();
            if let Some(giver) = giver {
                // Where that thread has ended, this process is ending.
                giver.send(lend_admin).ok();
            }
            let answering = succession.clone().answer(side.locks);
            tokio::task::spawn_local(vital("the next process", answering));
            let mut consoles = Consoles::begin(side.commands, &stats);
            let leaving = async {
                succession.wanted().await;
                succession.quiet().await;
                succession.handed()
            };
            let AdminSide {
                listeners,
                viewers,
                auth,
                announced,
                ..
            } = side;
            admin::serve(
                listeners,
                wanted,
                stats,
                auth,
                viewers,
                announced,
                lend_requests,
                leaving,
            )
            .await;
            consoles.leave(succession.handed().as_deref()).await;
            if let Some(holdings) = held.upgrade() {
                let succession = succession.clone();
                Held {
                    holdings,
                    succession,
                }
                .free();
            }
            consoles.give_up().await;
            succession.set_free();
            tracing::info!("the next process has the admin addresses and the runtime sockets now");
            // Replies that are being sent are finished.
            std::future::pending::<()>().await;
        };
        runtime.block_on(ended.run_until_cancelled(answering));
    })
}

/// Where apply is asked for its sockets, and to change nothing.
type Asks = (
    mpsc::UnboundedSender<LendRequest>,
    mpsc::UnboundedSender<Freeze>,
);

/// Starts the thread that hands over to the next process, once it is sent where the admin thread is asked for its sockets. While
/// flows go over, their datagrams wait: this thread does not have the low priority of the admin thread.
fn start_giver(
    listener: UnixListener,
    locks: InstanceLocks,
    held: &Held,
    shared: &Arc<Shared>,
    (lend, freezes): Asks,
    ended: CancellationToken,
) -> io::Result<oneshot::Sender<mpsc::UnboundedSender<LendRequest>>> {
    let (begin, begins) = oneshot::channel();
    let (succession, shared) = (held.succession.clone(), Arc::clone(shared));
    let held = Arc::downgrade(&held.holdings);
    threads::start("giver", Pace::Even, move |runtime| {
        let _counted = shared.count_tasks(&runtime);
        let giving = async {
            let Ok(lend_admin) = begins.await else {
                return;
            };
            let giver = Giver {
                succession,
                give_flows: give_flows(&shared),
                threads: vec![lend, lend_admin],
                freezes,
                of_no_thread: move || {
                    let files = held.upgrade().map(|held| claims::lend_files(&held));
                    let mut all = claims::lend_locks(&locks);
                    all.extend(files.unwrap_or_default());
                    all
                },
                busy_with: RefCell::default(),
            };
            old::serve(listener, giver).await;
            // What was begun goes on.
            std::future::pending::<()>().await;
        };
        runtime.block_on(ended.run_until_cancelled(vital("the path of --handover", giving)));
    })?;
    Ok(begin)
}

fn give_flows(shared: &Arc<Shared>) -> GiveFlows {
    let shared = Arc::clone(shared);
    Box::new(move |sockets| {
        let sockets = Arc::new(sockets);
        let ask = |inbox: &mpsc::UnboundedSender<Order>| {
            let (done, given) = oneshot::channel();
            let sockets = Arc::clone(&sockets);
            // A worker that has ended has no flows.
            inbox.send(Order::GiveFlows { sockets, done }).ok();
            given
        };
        shared.inboxes.iter().map(ask).collect()
    })
}

fn start_probe(
    config: &Config,
    shared: &Arc<Shared>,
    budget: Budget,
    seeds: &RandomState,
    stop: CancellationToken,
) -> io::Result<JoinHandle<()>> {
    let (shared, rate) = (Arc::clone(shared), config.max_checks);
    let rng = Rng::new(seeds.hash_one("probe"));
    threads::start("probe", Pace::Even, move |runtime| {
        let _counted = shared.count_tasks(&runtime);
        let probe = Probe::new(shared, rate, budget.checks(), rng);
        runtime.block_on(probe.run(stop));
    })
}

fn apply_config(
    config: Config,
    command_line: CommandLine,
    seeds: &RandomState,
    admin: watch::Sender<Option<Wanted>>,
    overrides: mpsc::UnboundedReceiver<OverrideRequest>,
    inheritance: Inheritance,
) -> ApplyConfig {
    let in_folder = config.table.is_dir().then(|| config.table.join("ack.json"));
    ApplyConfig {
        ack: config.ack.or(in_folder),
        table: config.table,
        first: None,
        instance: format!("{:016x}", mix(seeds.hash_one("instance"))),
        rng: Rng::new(seeds.hash_one("apply")),
        command_line,
        admin,
        overrides,
        inheritance,
    }
}

fn start_apply(
    shared: &Arc<Shared>,
    apply_config: ApplyConfig,
    first: Reread,
    rereads: mpsc::UnboundedReceiver<Reread>,
    end: End,
) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    threads::start("apply", Pace::Even, move |runtime| {
        let _counted = shared.count_tasks(&runtime);
        runtime.block_on(async {
            let apply = Apply::new(shared, apply_config);
            apply.run(first, rereads, end).await;
        });
    })
}

/// Waits until the sender of `done` is dropped.
async fn dropped(done: Option<oneshot::Receiver<()>>) {
    if let Some(done) = done {
        done.await.ok();
    }
}

/// Time for a thread to end, however short the drain timeout is.
const THREAD_END_TIME: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time for clients that listen to events to receive the end.
const EVENT_TIME: Duration = Duration::from_millis(500);
