//! The threads of the process: N workers, apply, probe, admin; how they start, and how they end.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::panic;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ballast_core::admit::AdmitState;
use ballast_core::breath;
use ballast_core::counters::{PerWorker, WorkerId};
use ballast_core::rng::{Rng, mix};
use ballast_core::table;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::access::AccessLog;
use crate::admin::{self, Doors, Places, Wanted};
use crate::apply::{Apply, Changes, Duty};
use crate::auth::Auth;
use crate::clock::Clock;
use crate::config::Config;
use crate::console::{self, Door};
use crate::guard::{self, Guard};
use crate::intake::{self, named};
use crate::limits::{Budget, cgroup_memory, cores};
use crate::listen;
use crate::live::Live;
use crate::probe::Probe;
use crate::relay::Tools;
use crate::stats::Stats;
use crate::status::Status;
use crate::sys;
use crate::worker::{Order, Shared, Worker};

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The table, if it is a file, must be good.
    #[error("{0}")]
    Table(String),
    /// Somebody else does this already.
    #[error(
        "another ballast runs in this network namespace with the same admin port ({0}); stop it, or choose another --admin"
    )]
    SecondOne(SocketAddr),
    /// Somebody else serves this table already.
    #[error("{0}: another ballast serves this table in this network namespace; stop it first")]
    SameTable(PathBuf),
    /// The admin address cannot be had.
    #[error("admin: {}; choose another --admin", listen::explain(*.0, .1))]
    Admin(SocketAddr, io::Error),
    /// The address for health alone cannot be had.
    #[error("healthz: {}; choose another --healthz", listen::explain(*.0, .1))]
    Healthz(SocketAddr, io::Error),
    /// The file that says who may see the admin side is wrong.
    #[error("{0}")]
    Auth(String),
    /// The runtime socket cannot be had.
    #[error("socket {}: {why}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What is in the way, and what to do.
        why: String,
    },
    /// The system refuses.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A data plane that serves.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    reread: Arc<Notify>,
    stop_probe: CancellationToken,
    stop_apply: CancellationToken,
    stop_workers: CancellationToken,
    shutdown_delay: Duration,
    drain_timeout: Duration,
    _guard: Option<Guard>,
    _console: Option<Door>,
}

/// Starts everything, and returns when the admin addresses answer and the first table, if it is a file, is being applied.
pub fn start(config: Config) -> Result<Running, StartError> {
    if !config.table.is_dir() {
        intake::is_file(&config.table).map_err(StartError::Table)?;
    }
    // A file must be good at once. A folder may be filled later; what it holds now says where to answer.
    let first = match read(&config.table) {
        Ok(table) => Some(table),
        Err(_) if config.table.is_dir() => None,
        Err(error) => return Err(error),
    };
    let auth = config.stats_auth_file.as_deref().map(Auth::read);
    let auth = auth.transpose().map_err(StartError::Auth)?;
    let places = Places::of(&config);
    let wanted = places.wanted(first.as_ref().map(|table| &table.stats));
    drop(first);
    let guard = match guard::port(&admin::admin_addresses(&wanted)) {
        // The admin side guards each of its ports.
        Some(_) => None,
        None => Some(
            Guard::of_table(&config.table).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => StartError::SameTable(config.table.clone()),
                _ => StartError::System(error),
            })?,
        ),
    };
    let doors = Doors::take(&wanted, auth.is_some())?;
    let console = config.socket.as_deref().map(Door::open).transpose()?;
    let commands = console.as_ref().map(Door::listener).transpose()?;
    count_panics();
    let budget = Budget::claim();
    let workers = config.threads.unwrap_or_else(cores).max(1);
    budget.suffices(workers)?;
    let most = budget.connections(workers, config.max_connections, cgroup_memory());
    let seeds = RandomState::new();
    let (access, records) = AccessLog::new();
    let (hand, by_hand) = mpsc::unbounded_channel();
    let (shared, inboxes) = shared(workers, most, seeds.hash_one(0), access, hand);
    {
        let shared = Arc::clone(&shared);
        // Ends with the process: there is nothing to wait for but a reader who may never read.
        quiet_thread("access", move || shared.access.run(&records))?;
    }
    let stop_workers = CancellationToken::new();
    let workers = inboxes
        .into_iter()
        .enumerate()
        .map(|(id, inbox)| {
            let rng = Rng::new(seeds.hash_one(id + 1));
            worker(
                id,
                inbox,
                Arc::clone(&shared),
                budget.pipes(workers),
                budget.flows(workers),
                rng,
                stop_workers.clone(),
            )
        })
        .collect::<io::Result<_>>()?;
    shared.status.set_admin(doors.bound());
    let (admin, wanted) = watch::channel(None);
    let admin_thread = admin_thread(doors, wanted, commands, Arc::clone(&shared), auth)?;
    let (stop_apply, reread) = (CancellationToken::new(), Arc::new(Notify::new()));
    let folder = intake::folder_of(&config.table);
    let duty = Duty {
        ack: config
            .ack
            .or_else(|| config.table.is_dir().then(|| config.table.join("ack.json"))),
        table: config.table,
        instance: format!("{:016x}", mix(seeds.hash_one("instance"))),
        rng: Rng::new(seeds.hash_one("apply")),
        budget,
        told: config.max_connections,
        places,
        admin,
        by_hand,
    };
    let apply = {
        let (shared, stop, reread) = (Arc::clone(&shared), stop_apply.clone(), Arc::clone(&reread));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        quiet_thread("apply", move || {
            runtime.block_on(async { Apply::new(shared, duty).run(reread, stop).await });
        })?
    };
    let stop_probe = CancellationToken::new();
    let probe = {
        let (shared, stop) = (Arc::clone(&shared), stop_probe.clone());
        let rng = Rng::new(seeds.hash_one("probe"));
        // Not a quiet one: a check that waits for the processor would speak against its endpoint.
        std::thread::Builder::new()
            .name("probe".into())
            .spawn(move || match local_runtime() {
                Ok(runtime) => {
                    let probe = Probe::new(shared, config.max_checks, budget.checks(), folder, rng);
                    runtime.block_on(probe.run(stop));
                }
                Err(error) => tracing::error!(%error, "endpoints cannot be checked"),
            })?
    };
    Ok(Running {
        shared,
        workers,
        others: vec![apply, admin_thread, probe],
        reread,
        stop_probe,
        stop_apply,
        stop_workers,
        shutdown_delay: config.shutdown_delay,
        drain_timeout: config.drain_timeout,
        _guard: guard,
        _console: console,
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
    pub async fn stop(mut self) -> usize {
        self.shared.status.stop();
        self.stop_probe.cancel();
        sleep(self.shutdown_delay).await;
        self.stop_apply.cancel();
        let until = Instant::now() + self.drain_timeout;
        let closed = Instant::now() + self.drain_timeout.max(CLOSING);
        while !self.others.first().is_none_or(JoinHandle::is_finished) {
            if Instant::now() >= closed {
                // A disk that does not answer, for example. What still listens ends with the workers.
                tracing::error!("apply does not end: not waiting for it any longer");
                break;
            }
            sleep(LOOK).await;
        }
        while self.shared.connections() > 0 && Instant::now() < until {
            sleep(LOOK).await;
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
        self.stop_workers.cancel();
        for worker in self.workers.drain(..) {
            // A worker's panic was counted and logged already.
            worker.join().ok();
        }
        cut
    }
}

/// Reads the table at `path`, and looks for whatever is wrong with it or with the files that it names.
pub fn check(path: &Path) -> Result<table::RoutingTable, StartError> {
    let table = read(path)?;
    let folder = intake::folder_of(path);
    let missing: Vec<String> = table::files(&table)
        .into_iter()
        .filter_map(|(at, file)| {
            let fault = named::look(&folder.join(&file)).err()?;
            Some(fault.problem(at, &file).to_string())
        })
        .collect();
    if missing.is_empty() {
        Ok(table)
    } else {
        Err(StartError::Table(missing.join("\n")))
    }
}

fn read(path: &Path) -> Result<table::RoutingTable, StartError> {
    let (bytes, format) = intake::read_once(path).map_err(StartError::Table)?;
    table::parse(&bytes, format).map_err(|problems| {
        let count = match problems.len() {
            1 => "a problem".to_owned(),
            count => format!("{count} problems"),
        };
        StartError::Table(format!(
            "{}: refused for {count}\n{problems}",
            path.display()
        ))
    })
}

/// Tasks that ended in a panic.
#[must_use]
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// A panic ends one task. It is counted, and said.
fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            let trace = Backtrace::capture();
            match trace.status() {
                BacktraceStatus::Captured => tracing::error!("{PANICKED}: {panic}\n{trace}"),
                _ => tracing::error!("{PANICKED}: {panic}"),
            }
            // Where there is a log, every line is one of the log's.
            if !tracing::dispatcher::has_been_set() {
                before(panic);
            }
        }));
    });
}

pub(crate) fn shared(
    workers: usize,
    most: u32,
    seed: u64,
    access: AccessLog,
    by_hand: mpsc::UnboundedSender<Changes>,
) -> (Arc<Shared>, Vec<mpsc::UnboundedReceiver<Order>>) {
    let (inboxes, receivers) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
    let inboxes: Vec<_> = inboxes;
    let shared = Shared {
        live: Live::default(),
        clock: Clock::start(),
        loads: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
        by_hand,
        inboxes: inboxes.into(),
        most: AtomicU32::new(most),
        admit: Arc::new(AdmitState::new(seed)),
        counters: PerWorker::new(workers),
        accept_errors: std::sync::Mutex::default(),
        status: Status::default(),
        new_plan: Notify::new(),
        access,
        stats: Stats::default(),
    };
    (Arc::new(shared), receivers)
}

fn worker(
    id: usize,
    inbox: mpsc::UnboundedReceiver<Order>,
    shared: Arc<Shared>,
    pipes: usize,
    flows: usize,
    rng: Rng,
    stop: CancellationToken,
) -> io::Result<JoinHandle<()>> {
    let (started, start) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(format!("worker-{id}"))
        .spawn(move || {
            let runtime = match local_runtime() {
                Ok(runtime) => runtime,
                Err(error) => return started.send(Err(error)).unwrap_or_default(),
            };
            // Who counts and shows may share its processor with a worker, but not make a client wait.
            if let Err(error) = sys::take_turns_of(TURN) {
                tracing::debug!(%error, "a worker waits for others' turns to end");
            }
            started.send(Ok(())).unwrap_or_default();
            let worker = Rc::new(Worker {
                id: WorkerId(id),
                tools: Tools::new(shared.clock, pipes),
                shared,
                rng: std::cell::RefCell::new(rng),
                seats: std::cell::RefCell::default(),
                most_flows: flows,
                udp: std::cell::OnceCell::new(),
            });
            runtime.block_on(worker.run(inbox, stop));
            // Dropping the runtime drops what is left of its connections: each is reset.
        })?;
    start.recv().unwrap_or(Ok(()))?;
    Ok(thread)
}

pub(crate) fn local_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}

fn admin_thread(
    doors: Doors,
    wanted: watch::Receiver<Option<Wanted>>,
    commands: Option<UnixListener>,
    shared: Arc<Shared>,
    auth: Option<Auth>,
) -> io::Result<JoinHandle<()>> {
    quiet_thread("admin", move || match local_runtime() {
        Ok(runtime) => runtime.block_on(async {
            if let Some(commands) = commands {
                tokio::task::spawn_local(console::serve(commands, Arc::clone(&shared)));
            }
            admin::serve(doors, wanted, shared, auth).await;
        }),
        Err(error) => tracing::error!(%error, "the admin side cannot start"),
    })
}

/// A thread that gives way to the workers.
fn quiet_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            if let Err(error) = rustix::process::nice(QUIET) {
                tracing::debug!(%error, "cannot lower the priority of a thread");
            }
            breath::between(std::thread::yield_now);
            run();
        })
}

const QUIET: i32 = 10;
/// The shortest that there is.
const TURN: Duration = Duration::from_micros(100);
/// For apply to close what listens, however short the drain timeout is.
const CLOSING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);
/// For whoever listens to events to hear that this is the end.
const LAST_WORDS: Duration = Duration::from_millis(500);
const PANICKED: &str = "a task panicked, and only it has ended";
