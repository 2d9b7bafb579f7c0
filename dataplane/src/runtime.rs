//! The whole process: what it claims, the threads that it starts (N workers, apply, probe, admin, the access log), and how
//! it ends.

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
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::access::AccessLog;
use crate::admin::{self, CommandLine, Listeners, Viewers, Wanted};
use crate::apply::{Apply, Duty};
use crate::auth::Auth;
use crate::by_hand::Changes;
use crate::config::Config;
use crate::console::{self, SocketFile};
use crate::guard::{self, Guard, Guards, Name};
use crate::intake;
use crate::limits::{Budget, Room, cgroup_memory, cores};
use crate::panics::{self, vital};
use crate::ports;
use crate::probe::Probe;
use crate::reserve;
use crate::start_error::StartError;
use crate::threads::{self, Pace};
use crate::udp::FlowRoom;
use crate::worker::{Faults, Order, Shared, Worker};

/// A data plane that serves.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    apply: JoinHandle<()>,
    reread: Arc<Notify>,
    stop: Stop,
    shutdown_delay: Duration,
    drain_timeout: Duration,
    names: Guards,
    _guard: Option<Guard>,
    _console: Option<SocketFile>,
}

/// Starts everything, and returns when the admin addresses answer and the first table, if it is a file, is being applied.
pub fn start(config: Config) -> Result<Running, StartError> {
    start_with(config, None)
}

/// The same, with connections that fail where a test wants them to.
pub(crate) fn start_with(
    config: Config,
    faults: Option<Box<dyn Faults>>,
) -> Result<Running, StartError> {
    panics::count();
    let claims = Claims::of(&config)?;
    let budget = Budget::claim();
    let workers = config.threads.unwrap_or_else(cores).max(1);
    budget.suffices(workers)?;
    reserve::keep()?;
    let room = Room::new(budget, workers, cgroup_memory(), config.max_connections);
    room.say(&room.beside(0, false));
    let seeds = RandomState::new();
    let (access, messages) = AccessLog::new();
    let (hand, by_hand) = mpsc::unbounded_channel();
    let (shared, inboxes) = Shared::new(room, seeds.hash_one(0), access, hand, faults);
    {
        let shared = Arc::clone(&shared);
        // Ends with the process: there is nothing to wait for but a reader who may never read.
        threads::spawn("access".into(), Pace::Quiet, move || {
            shared.access.run(&messages);
        })?;
    }
    let (stop, reread) = (Stop::default(), Arc::new(Notify::new()));
    let workers = start_workers(inboxes, &shared, &seeds, &stop.workers)?;
    shared.status.set_admin(claims.listeners.bound());
    let (admin, wanted) = watch::channel(None);
    start_admin(
        claims.listeners,
        claims.viewers,
        wanted,
        claims.commands,
        Arc::clone(&shared),
        claims.auth,
    )?;
    start_probe(&config, &shared, budget, &seeds, stop.probe.clone())?;
    let (shutdown_delay, drain_timeout) = (config.shutdown_delay, config.drain_timeout);
    let duty = duty(config, claims.command_line, &seeds, admin, by_hand);
    let apply = start_apply(&shared, duty, Arc::clone(&reread), stop.apply.clone())?;
    Ok(Running {
        shared,
        workers,
        apply,
        reread,
        stop,
        shutdown_delay,
        drain_timeout,
        names: claims.names,
        _guard: claims.guard,
        _console: claims.console,
    })
}

impl Running {
    /// What is shared with the workers: the plan, the counters.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Where the admin side answers now.
    #[must_use]
    pub fn admin(&self) -> Vec<SocketAddr> {
        self.shared.status.admin()
    }

    /// Reads the table again, changed or not.
    pub fn reread(&self) {
        self.reread.notify_one();
    }

    /// Ends in order: says that it will, checks nobody any more, accepts for the shutdown delay, then lets connections
    /// finish for the drain timeout, and cuts the rest. Returns how many had to be cut.
    pub async fn stop(self) -> usize {
        self.drain(std::future::ready(())).await
    }

    /// Ends as [`stop`](Self::stop) does, but the drain timeout does not begin before `hurry` is over: until then
    /// connections may take as long as they need to finish. Others see at once, not only when the future runs, that this
    /// process is ending.
    pub fn drain(self, hurry: impl Future<Output = ()>) -> impl Future<Output = usize> {
        self.names.end();
        self.shared.status.stop();
        self.stop.probe.cancel();
        self.drained(hurry)
    }

    async fn drained(self, hurry: impl Future<Output = ()>) -> usize {
        sleep(self.shutdown_delay).await;
        self.stop.apply.cancel();
        let mut deadline = pin!(async {
            hurry.await;
            sleep(self.drain_timeout).await;
        });
        let mut is_over = false;
        let until = Instant::now() + self.drain_timeout.max(CLOSING);
        let mut closing = pin!(until_ended(&self.apply, until));
        let has_closed = loop {
            tokio::select! {
                ended = &mut closing => break ended,
                () = &mut deadline, if !is_over => is_over = true,
            }
        };
        if !has_closed {
            // A disk that does not answer, for example. What still listens ends with the workers.
            tracing::error!("apply does not end: not waiting for it any longer");
        }
        while self.shared.connections() > 0 && !is_over {
            tokio::select! {
                () = &mut deadline => is_over = true,
                () = sleep(LOOK) => {}
            }
        }
        let cut = self.shared.connections();
        if cut > 0 {
            tracing::warn!(cut, "connections did not finish in time and are cut");
        }
        self.shared.status.end();
        let until = Instant::now() + LAST_WORDS;
        while self.shared.status.listeners.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            sleep(LOOK).await;
        }
        self.stop.workers.cancel();
        let until = Instant::now() + CLOSING;
        for (id, worker) in self.workers.iter().enumerate() {
            if !until_ended(worker, until).await {
                tracing::error!(
                    worker = id,
                    "a worker does not end: not waiting for it any longer"
                );
            }
        }
        self.shared.access.finish().await;
        cut
    }
}

/// Waits for the end of a thread. `false`: it had not come by then.
async fn until_ended(thread: &JoinHandle<()>, until: Instant) -> bool {
    while !thread.is_finished() {
        if Instant::now() >= until {
            return false;
        }
        sleep(LOOK).await;
    }
    true
}

/// The orders to end.
#[derive(Debug, Default)]
struct Stop {
    probe: CancellationToken,
    apply: CancellationToken,
    workers: CancellationToken,
}

/// What nobody else may have at the same time, and what must be right before anything begins.
struct Claims {
    command_line: CommandLine,
    auth: Option<Auth>,
    names: Guards,
    guard: Option<Guard>,
    listeners: Listeners,
    viewers: Viewers,
    console: Option<SocketFile>,
    commands: Option<UnixListener>,
}

impl Claims {
    fn of(config: &Config) -> Result<Self, StartError> {
        if !config.table.is_dir() {
            intake::is_file(&config.table).map_err(StartError::Table)?;
        }
        // A file must be good at once. A folder may be filled later; what it holds now says where to answer.
        let first = match intake::table_at(&config.table) {
            Ok(table) => Some(table),
            Err(_) if config.table.is_dir() => None,
            Err(error) => return Err(error),
        };
        let auth = config.stats_auth_file.as_deref().map(Auth::read);
        let auth = auth.transpose().map_err(StartError::Auth)?;
        let command_line = CommandLine::of(config);
        let stats = first.as_ref().map(|table| &table.stats);
        let Wanted { addresses, viewers } = command_line.wanted(stats);
        drop(first);
        let names = Guards::default();
        let guard = match guard::port(&admin::admin_addresses(&addresses)) {
            // The admin side guards each of its ports.
            Some(_) => None,
            None => {
                let guard = names.take(Name::Table(config.table.clone()));
                Some(guard.map_err(|taken| {
                    StartError::taken(taken, || StartError::SameTable(config.table.clone()))
                })?)
            }
        };
        let listeners = Listeners::take(&addresses, &names)?;
        if !listeners.bound().is_empty() {
            viewers.log();
        }
        let console = config.socket.as_deref();
        let console = console
            .map(|path| SocketFile::open(path, &names))
            .transpose()?;
        let commands = console.as_ref().map(SocketFile::listener).transpose()?;
        Ok(Self {
            command_line,
            auth,
            names,
            guard,
            listeners,
            viewers,
            console,
            commands,
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
            move || Worker::new(id, shared, pipes, flow_room, rng),
            move |runtime, worker| {
                let _counted = counted.count_tasks(&runtime);
                runtime.block_on(worker.run(inbox, stop));
                // Dropping the runtime drops what is left of its connections: each is reset.
            },
        )
    };
    inboxes.into_iter().enumerate().map(start).collect()
}

fn start_admin(
    listeners: Listeners,
    viewers: Viewers,
    wanted: watch::Receiver<Option<Wanted>>,
    commands: Option<UnixListener>,
    shared: Arc<Shared>,
    auth: Option<Auth>,
) -> io::Result<JoinHandle<()>> {
    threads::start("admin", Pace::Quiet, move |runtime| {
        let _counted = shared.count_tasks(&runtime);
        runtime.block_on(async {
            if let Some(commands) = commands {
                let serving = console::serve(commands, Arc::clone(&shared));
                tokio::task::spawn_local(vital("the runtime socket", serving));
            }
            admin::serve(listeners, wanted, shared, auth, viewers).await;
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

fn duty(
    config: Config,
    command_line: CommandLine,
    seeds: &RandomState,
    admin: watch::Sender<Option<Wanted>>,
    by_hand: mpsc::UnboundedReceiver<Changes>,
) -> Duty {
    let in_folder = config.table.is_dir().then(|| config.table.join("ack.json"));
    Duty {
        ack: config.ack.or(in_folder),
        table: config.table,
        instance: format!("{:016x}", mix(seeds.hash_one("instance"))),
        rng: Rng::new(seeds.hash_one("apply")),
        command_line,
        admin,
        by_hand,
    }
}

fn start_apply(
    shared: &Arc<Shared>,
    duty: Duty,
    reread: Arc<Notify>,
    stop: CancellationToken,
) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    threads::start("apply", Pace::Quiet, move |runtime| {
        let _counted = shared.count_tasks(&runtime);
        runtime.block_on(async { Apply::new(shared, duty).run(reread, stop).await });
    })
}

/// For a thread to end, however short the drain timeout is.
const CLOSING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);
/// For whoever listens to events to hear that this is the end.
const LAST_WORDS: Duration = Duration::from_millis(500);
