//! The whole process: what it claims, the threads that it starts (workers, apply, probe, admin, the access log), and how it
//! ends.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ballast_core::rng::{Rng, mix};
use ballast_core::table::Stats;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::access::AccessLog;
use crate::net::ports;
use crate::operator::admin::auth::Auth;
use crate::operator::admin::{self, CommandLine, EarlyAdmin, Listeners, Viewers, Wanted};
use crate::operator::console;
use crate::os::limits::{Budget, Room, cgroup_memory, cores};
use crate::os::panics::{self, vital};
use crate::os::reserve;
use crate::os::threads::{self, Pace, lock};
use crate::probe::Probe;
use crate::process::config::{Config, Level};
use crate::process::instance_lock::{self, InstanceLock, InstanceLocks, LockName};
use crate::process::socket_file::SocketFile;
use crate::process::start_error::StartError;
use crate::process::succession::Succession;
use crate::table::apply::{Apply, ApplyConfig, End, Reread};
use crate::table::intake::{FirstTable, ParsedTable};
use crate::udp::FlowRoom;
use crate::worker::override_request::OverrideRequest;
use crate::worker::{FaultInjection, Order, Shared, Worker};

pub mod demo;
mod orders;

/// A running data plane. If it is dropped, its connections are cut and the table's sockets are closed.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    closed: oneshot::Receiver<()>,
    first_read: Option<oneshot::Receiver<()>>,
    rereads: mpsc::UnboundedSender<Reread>,
    stop: Stop,
    shutdown_delay: Duration,
    drain_timeout: Duration,
    succession: Succession,
    _held: Held,
}

/// Reads the table, and starts everything. Returns when the admin addresses answer and the first table, if it is a file, is
/// being applied.
pub fn start(config: Config) -> Result<Running, StartError> {
    let mut first = FirstTable::read(&config.table)?;
    start_on(config, &mut first, None)
}

/// Starts everything with a table that was read, and with the admin addresses that were answered at meanwhile. The table is left
/// where another process is in the way.
pub fn start_on(
    config: Config,
    first: &mut FirstTable,
    early: Option<EarlyAdmin>,
) -> Result<Running, StartError> {
    let claims = Claims::of(&config, first.stats(), early)?;
    start_with(config, claims, first.take(), None)
}

/// Starts without a table, and with fault injection.
#[cfg(test)]
pub(crate) fn start_faulty(
    config: Config,
    faults: Box<dyn FaultInjection>,
) -> Result<Running, StartError> {
    let claims = Claims::of(&config, None, None)?;
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
    let (access, messages) = AccessLog::new();
    let (sender, overrides) = mpsc::unbounded_channel();
    let (shared, inboxes) = Shared::new(room, seeds.hash_one(0), access, sender, faults);
    {
        let shared = Arc::clone(&shared);
        // This thread ends with the process: it could only wait for a reader that may never read.
        threads::spawn("access".into(), Pace::Quiet, move || {
            shared.access.run(&messages);
        })?;
    }
    let stop = Stop::default();
    let workers = start_workers(inboxes, &shared, &seeds, &stop.workers)?;
    shared.status.set_admin(claims.admin.listeners.bound());
    let (admin, wanted) = watch::channel(None);
    let succession = Succession::new();
    let held = Held(Arc::new(Mutex::new(claims.held)));
    start_admin(claims.admin, &held, wanted, &shared, &succession)?;
    start_probe(&config, &shared, budget, &seeds, stop.probe.clone())?;
    let (shutdown_delay, drain_timeout) = (config.shutdown_delay, config.drain_timeout);
    let settings = ApplyConfig {
        first,
        ..apply_config(config, claims.command_line, &seeds, admin, overrides)
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
        workers,
        closed,
        first_read: Some(first_read),
        rereads,
        stop,
        shutdown_delay,
        drain_timeout,
        succession,
        _held: held,
    })
}

impl Running {
    /// The state shared with the workers, such as the plan and the counters.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The admin addresses in use.
    #[must_use]
    pub fn admin(&self) -> Vec<SocketAddr> {
        self.shared.status.admin()
    }

    /// How long accepting goes on after the order to end, and how long connections may then take to finish.
    #[must_use]
    pub fn times(&self) -> (Duration, Duration) {
        (self.shutdown_delay, self.drain_timeout)
    }

    /// Waits until the table was read for the first time: it is in force, it was refused, or there is none yet.
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
        let longest = match listens {
            true => self.drain_timeout.max(THREAD_END_TIME),
            false => EVENT_TIME,
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
        let cut = self.shared.connections();
        if cut > 0 {
            tracing::warn!(cut, "connections did not finish in time and are cut");
        }
        self.shared.status.end();
        let until = Instant::now() + EVENT_TIME;
        while self.shared.status.listeners.load(Ordering::SeqCst) > 0 && Instant::now() < until {
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

/// The tokens that stop the threads. Threads that nobody can stop any more are stopped at once.
#[derive(Debug, Default)]
struct Stop {
    probe: CancellationToken,
    apply: CancellationToken,
    workers: CancellationToken,
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.probe.cancel();
        self.apply.cancel();
        self.workers.cancel();
    }
}

/// What this process holds, so that no other has it at the same time. It is free when the next process takes over, at the
/// latest when this is dropped.
#[derive(Debug)]
struct Held(Arc<Mutex<Holdings>>);

#[derive(Debug, Default)]
struct Holdings {
    _lock: Option<InstanceLock>,
    _consoles: Vec<SocketFile>,
}

impl Held {
    fn free(&self) {
        drop(std::mem::take(&mut *lock(&self.0)));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.free();
    }
}

/// What no other process may have at the same time, and what must be valid before anything starts.
struct Claims {
    command_line: CommandLine,
    admin: AdminSide,
    held: Holdings,
}

/// What the admin side answers at, and to whom.
struct AdminSide {
    auth: Option<Auth>,
    locks: InstanceLocks,
    listeners: Listeners,
    viewers: Viewers,
    commands: Vec<(UnixListener, Level)>,
}

impl Claims {
    /// `stats`: what the first table says of the admin side. `early`: what was claimed of it already.
    fn of(
        config: &Config,
        stats: Option<&Stats>,
        early: Option<EarlyAdmin>,
    ) -> Result<Self, StartError> {
        let auth = config.stats_auth_file.as_deref().map(Auth::read);
        let auth = auth.transpose().map_err(StartError::Auth)?;
        let command_line = CommandLine::of(config);
        let Wanted { addresses, viewers } = command_line.wanted(stats);
        let (locks, mut listeners) = early.map_or_else(Default::default, EarlyAdmin::into_parts);
        let lock = match instance_lock::lock_port(&admin::admin_addresses(&addresses)) {
            // The admin side locks each of its ports itself.
            Some(_) => None,
            None => {
                let lock = locks.take(LockName::Table(config.table.clone()));
                Some(lock.map_err(|error| {
                    StartError::lock_failed(error, || StartError::SameTable(config.table.clone()))
                })?)
            }
        };
        listeners.take(&addresses, &locks)?;
        if !listeners.bound().is_empty() {
            viewers.log();
        }
        let admin = config.socket.as_ref();
        let admin = admin.map(|path| ("--socket", path, config.socket_access, Level::Admin));
        let monitor = config.monitor_socket.as_ref();
        let monitor =
            monitor.map(|(path, access, level)| ("--monitor-socket", path, *access, *level));
        let (mut consoles, mut commands) = (Vec::new(), Vec::new());
        for (flag, path, access, level) in admin.into_iter().chain(monitor) {
            let file = SocketFile::open(flag, path, access, &locks)?;
            commands.push((file.listener()?, level));
            consoles.push(file);
        }
        Ok(Self {
            command_line,
            admin: AdminSide {
                auth,
                locks,
                listeners,
                viewers,
                commands,
            },
            held: Holdings {
                _lock: lock,
                _consoles: consoles,
            },
        })
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

/// Starts the thread that answers at the admin addresses and the runtime sockets until the next process takes over.
fn start_admin(
    side: AdminSide,
    held: &Held,
    wanted: watch::Receiver<Option<Wanted>>,
    shared: &Arc<Shared>,
    succession: &Succession,
) -> io::Result<JoinHandle<()>> {
    let (held, shared) = (Arc::downgrade(&held.0), Arc::clone(shared));
    let succession = succession.clone();
    threads::start("admin", Pace::Quiet, move |runtime| {
        let _counted = shared.count_tasks(&runtime);
        runtime.block_on(async {
            let answering = succession.clone().answer(side.locks);
            tokio::task::spawn_local(vital("the next process", answering));
            let mut consoles = JoinSet::new();
            for (commands, level) in side.commands {
                let serving = console::serve(commands, level, Arc::clone(&shared));
                consoles.spawn_local(vital("the runtime socket", serving));
            }
            let leaving = async {
                succession.wanted().await;
                succession.quiet().await;
            };
            let AdminSide {
                listeners,
                viewers,
                auth,
                ..
            } = side;
            admin::serve(listeners, wanted, shared, auth, viewers, leaving).await;
            consoles.shutdown().await;
            if let Some(held) = held.upgrade() {
                Held(held).free();
            }
            succession.set_free();
            tracing::info!("the next process has the admin addresses and the runtime sockets now");
            // Replies that are being sent are finished.
            std::future::pending::<()>().await;
        });
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
    threads::start("apply", Pace::Quiet, move |runtime| {
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
/// Time for clients that listen to events to be told of the end.
const EVENT_TIME: Duration = Duration::from_millis(500);
