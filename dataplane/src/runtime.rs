//! The threads of the process: N workers, apply, admin; how they start, and how they end.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::panic;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ballast_core::admit::{AdmitState, Limits};
use ballast_core::counters::{PerWorker, WorkerId};
use ballast_core::rng::{Rng, mix};
use ballast_core::table;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::apply::Apply;
use crate::clock::Clock;
use crate::config::{Admin, Config};
use crate::intake;
use crate::limits::{Budget, cgroup_memory, cores};
use crate::live::Live;
use crate::relay::Tools;
use crate::stats::Stats;
use crate::status::Status;
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
    SecondOne(String),
    /// The admin address cannot be had.
    #[error("admin {0}: {1}")]
    Admin(SocketAddr, io::Error),
    /// The system refuses.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A data plane that serves.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    admin: Vec<SocketAddr>,
    workers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    reread: Arc<Notify>,
    stop_apply: CancellationToken,
    stop_workers: CancellationToken,
    shutdown_delay: Duration,
    drain_timeout: Duration,
    _guard: UnixListener,
}

/// Starts everything, and returns when the admin addresses answer and the first table, if it is a file, is being applied.
pub fn start(config: Config) -> Result<Running, StartError> {
    let first = if config.table.is_dir() {
        None
    } else {
        Some(check(&config.table)?)
    };
    let admin_addresses = match (&config.admin, &first) {
        (Admin::At(addresses), _) => addresses.clone(),
        (Admin::FromTable, Some(table)) => table
            .stats
            .bind()
            .iter()
            .flat_map(table::Bind::addresses)
            .collect(),
        (Admin::FromTable, None) => vec![DEFAULT_ADMIN],
    };
    drop(first);
    let guard = only_one(&admin_addresses, &config.table)?;
    count_panics();
    let budget = Budget::claim();
    let workers = config.threads.unwrap_or_else(cores).max(1);
    let (derived, why) = budget.connections(cgroup_memory());
    let most = config.max_connections.unwrap_or(derived);
    match config.max_connections {
        Some(_) => tracing::info!("at most {most} connections, as told"),
        None => tracing::info!("at most {most} connections: {why}"),
    }
    let seeds = RandomState::new();
    let (shared, inboxes) = shared(workers, most, seeds.hash_one(0));
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
                rng,
                stop_workers.clone(),
            )
        })
        .collect::<io::Result<_>>()?;
    let (admin_thread, admin) = admin_thread(admin_addresses, Arc::clone(&shared))?;
    let (stop_apply, reread) = (CancellationToken::new(), Arc::new(Notify::new()));
    let apply = {
        let (shared, stop, reread) = (Arc::clone(&shared), stop_apply.clone(), Arc::clone(&reread));
        let instance = format!("{:016x}", mix(seeds.hash_one("instance")));
        let ack = config
            .ack
            .or_else(|| config.table.is_dir().then(|| config.table.join("ack.json")));
        let rng = Rng::new(seeds.hash_one("apply"));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        quiet_thread("apply", move || {
            runtime.block_on(async {
                let apply = Apply::new(shared, config.table, ack, instance, rng, budget);
                apply.run(reread, stop).await;
            });
        })?
    };
    Ok(Running {
        shared,
        admin,
        workers,
        others: vec![apply, admin_thread],
        reread,
        stop_apply,
        stop_workers,
        shutdown_delay: config.shutdown_delay,
        drain_timeout: config.drain_timeout,
        _guard: guard,
    })
}

impl Running {
    /// What is shared with the workers: the plan, the counters.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Where the admin side answers.
    #[must_use]
    pub fn admin(&self) -> &[SocketAddr] {
        &self.admin
    }

    /// Reads the table again, changed or not.
    pub fn reread(&self) {
        self.reread.notify_one();
    }

    /// Ends in order: says that it will, accepts for the shutdown delay, then lets connections finish for the drain
    /// timeout, and cuts the rest. Returns how many had to be cut.
    pub async fn stop(mut self) -> usize {
        self.shared.status.stop();
        sleep(self.shutdown_delay).await;
        self.stop_apply.cancel();
        let until = Instant::now() + self.drain_timeout;
        while !self.others.first().is_none_or(JoinHandle::is_finished) {
            sleep(LOOK).await;
        }
        while self.shared.connections() > 0 && Instant::now() < until {
            sleep(LOOK).await;
        }
        let cut = self.shared.connections();
        if cut > 0 {
            tracing::warn!(cut, "connections did not finish in time and are cut");
        }
        self.stop_workers.cancel();
        for worker in self.workers.drain(..) {
            // A worker's panic was counted and logged already.
            worker.join().ok();
        }
        cut
    }
}

/// Reads and checks the table at `path`.
pub fn check(path: &std::path::Path) -> Result<table::RoutingTable, StartError> {
    let (bytes, format) = intake::read_once(path).map_err(StartError::Table)?;
    table::parse(&bytes, format).map_err(|problems| StartError::Table(problems.to_string()))
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
            tracing::error!("a task panicked, and only it has ended: {panic}");
            before(panic);
        }));
    });
}

fn shared(
    workers: usize,
    most: u32,
    seed: u64,
) -> (Arc<Shared>, Vec<mpsc::UnboundedReceiver<Order>>) {
    let (inboxes, receivers) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
    let inboxes: Vec<_> = inboxes;
    let shared = Shared {
        live: Live::default(),
        clock: Clock::start(),
        loads: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
        inboxes: inboxes.into(),
        limits: Limits {
            connections: Some(most),
            ..Limits::default()
        },
        admit: Arc::new(AdmitState::new(seed)),
        counters: PerWorker::new(workers),
        accept_errors: std::sync::Mutex::default(),
        status: Status::default(),
        stats: Stats::default(),
    };
    (Arc::new(shared), receivers)
}

fn worker(
    id: usize,
    inbox: mpsc::UnboundedReceiver<Order>,
    shared: Arc<Shared>,
    pipes: usize,
    rng: Rng,
    stop: CancellationToken,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("worker-{id}"))
        .spawn(move || {
            let runtime = match local_runtime() {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "worker {id} cannot start"),
            };
            let worker = Rc::new(Worker {
                id: WorkerId(id),
                tools: Tools::new(shared.clock, pipes),
                shared,
                rng: std::cell::RefCell::new(rng),
                sources: std::cell::Cell::new(0),
            });
            runtime.block_on(worker.run(inbox, stop));
            // Dropping the runtime drops what is left of its connections: each is reset.
        })
}

fn local_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
}

fn admin_thread(
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
) -> Result<(JoinHandle<()>, Vec<SocketAddr>), StartError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = std::net::TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| StartError::Admin(address, error))?;
        listeners.push(listener);
    }
    let bound = listeners
        .iter()
        .map(std::net::TcpListener::local_addr)
        .collect::<io::Result<_>>()?;
    let (started, ready) = oneshot::channel();
    let thread = quiet_thread("admin", move || match local_runtime() {
        Ok(runtime) => runtime.block_on(admin::serve(listeners, shared, started)),
        Err(error) => tracing::error!(%error, "the admin side cannot start"),
    })?;
    ready.blocking_recv().ok();
    Ok((thread, bound))
}

/// A thread that gives way to the workers.
fn quiet_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            if let Err(error) = rustix::process::nice(QUIET) {
                tracing::debug!(%error, "cannot lower the priority of a thread");
            }
            run();
        })
}

/// SO_REUSEPORT would let a second process take half of the connections unnoticed.
fn only_one(admin: &[SocketAddr], table: &std::path::Path) -> Result<UnixListener, StartError> {
    let name = match admin.iter().find(|address| address.port() != 0) {
        Some(address) => format!("ballast/admin/{}", address.port()),
        None => {
            let path: PathBuf = table.canonicalize().unwrap_or_else(|_| table.into());
            format!(
                "ballast/table/{:016x}",
                mix(fixed_hash(path.as_os_str().as_encoded_bytes()))
            )
        }
    };
    let address = UnixAddr::from_abstract_name(&name)?;
    UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::SecondOne(name),
        _ => StartError::System(error),
    })
}

fn fixed_hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |hash, byte| mix(hash ^ u64::from(*byte)))
}

const DEFAULT_ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1936);
const QUIET: i32 = 10;
const LOOK: Duration = Duration::from_millis(10);
