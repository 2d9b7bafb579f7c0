//! The announcer as a process: sockets, files, clocks and signals around a node.
//!
//! One thread runs everything but files and BIRD, for which it never waits: it answers the probes of the members. Addresses and frames
//! leave through one queue, so that they are done in the order in which the node asked for them, and datagrams of the members never
//! wait for the kernel's tables.

mod admin;
mod alone;
mod bird;
mod connections;
mod data_plane;
mod disk;
mod files;
mod kernel;
mod life;
mod log;
mod netlink;
mod packets;
mod sys;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::table::Problem;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::ack::{Ack, Refused, State, Status, Wrong};
use crate::file::Mode;
use admin::Shown;
pub use admin::{parse as parse_admin, table};
use alone::alone;
use disk::{Disk, Found};
use files::Watch;
pub use files::{Wanted, check};
use life::{End, bind_first, files_ended, live};

/// The arguments of the process.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file.
    pub file: PathBuf,
    /// The file of the ack. `None`: `announce-ack.json` beside the file.
    pub ack: Option<PathBuf>,
    /// The admin address.
    pub admin: Option<SocketAddr>,
    /// Whether /metrics has MetalLB's names, too.
    pub has_metallb_names: bool,
}

/// Why the announcer cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The system refused something that the announcer needs.
    #[error("{what}: {error}; {remedy}")]
    System {
        /// The attempt.
        what: String,
        /// The error of the system.
        error: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
}

impl Failure {
    pub(crate) fn of(
        what: impl Into<String>,
        remedy: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System {
            what,
            error,
            remedy,
        }
    }
}

/// Announces until SIGTERM or SIGINT.
///
/// # Errors
/// A socket that the announcer needs cannot be opened.
pub fn run(options: &Options) -> Result<(), Failure> {
    if sys::run_first().is_err() {
        let nice = rustix::process::setpriority_process(None, -10);
        if nice.is_err() {
            tracing::warn!(
                "runs with the priority of every other process: SCHED_FIFO and a nice value of -10 are not permitted. On a busy host it may seem dead; give it CAP_SYS_NICE"
            );
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(Failure::of("the runtime", "see the limits of this process"))?;
    runtime.block_on(serve(options))
}

async fn serve(options: &Options) -> Result<(), Failure> {
    let mut end = Signals::new()?;
    tokio::select! {
        alone = alone() => alone.map_err(Failure::of(
            "a socket with an abstract name",
            "see the limits of this process",
        ))?,
        () = end.come() => return Ok(()),
    }
    let (mut reporter, found) = Reporter::new(options)?;
    let result = serve_with(options, &mut reporter, found, end).await;
    reporter.disk.end();
    result
}

async fn serve_with(
    options: &Options,
    reporter: &mut Reporter,
    found: Found,
    mut end: Signals,
) -> Result<(), Failure> {
    if let Some(address) = options.admin {
        let listener = TcpListener::bind(address).await;
        let what = format!("the admin address {address}");
        let listener =
            listener.map_err(Failure::of(what, "give another one with --admin, or none"))?;
        tokio::spawn(admin::serve(
            listener,
            reporter.shown.subscribe(),
            options.has_metallb_names,
        ));
    }
    let watch = Watch::of(&options.file);
    let mut source = Source { watch, found };
    let Some(mut wanted) = first(&mut source, &mut end, reporter).await? else {
        return Ok(());
    };
    let mut udp = bind_first(&wanted.file)?;
    loop {
        match live(options, wanted, udp, &mut source, &mut end, reporter).await? {
            End::Asked => return Ok(()),
            // The node, its socket or its data plane is another one. Addresses stay while it begins again.
            End::Again(next, socket) => (wanted, udp) = (*next, socket),
        }
    }
}

/// Where files come from.
struct Source {
    watch: Watch,
    found: Found,
}

/// Waits for the first good file. `None`: the process is told to end.
async fn first(
    source: &mut Source,
    end: &mut Signals,
    reporter: &mut Reporter,
) -> Result<Option<Wanted>, Failure> {
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            () = source.watch.changed() => reporter.look(),
            _ = look.tick() => reporter.look(),
            found = source.found.recv() => match found.ok_or_else(files_ended)? {
                Ok(wanted) => return Ok(Some(wanted)),
                Err(problems) => reporter.refuse(&problems),
            },
            () = end.come() => return Ok(None),
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals([tokio::signal::unix::Signal; 2]);

impl Signals {
    fn new() -> Result<Self, Failure> {
        let open =
            |kind| signal(kind).map_err(Failure::of("signals", "see the limits of this process"));
        Ok(Self([
            open(SignalKind::terminate())?,
            open(SignalKind::interrupt())?,
        ]))
    }

    async fn come(&mut self) {
        let [terminate, interrupt] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// Writes the ack, and shows it at the admin address.
struct Reporter {
    disk: Disk,
    digest: Option<String>,
    refused: Option<Vec<Problem>>,
    /// What was told of the key file last.
    warning: Option<String>,
    shown: watch::Sender<Arc<Shown>>,
    bird: bird::Link,
    /// The addresses of which an earlier process told routers. BIRD goes on with them until this process has a file.
    told: Vec<Status>,
}

impl Reporter {
    fn new(options: &Options) -> Result<(Self, Found), Failure> {
        let beside = options.file.with_file_name("announce-ack.json");
        let path = options.ack.clone().unwrap_or(beside);
        let before = files::content(&path, MOST_OF_ACK).unwrap_or_default();
        let before: Option<Ack> = serde_json::from_slice(&before).ok();
        let statuses = before.into_iter().flat_map(|ack| ack.addresses);
        let told = statuses.filter(|one| (one.state, one.mode) == (State::Held, Some(Mode::Bgp)));
        let told: Vec<Status> = told.collect();
        let addresses = told.iter().map(|one| one.address).collect();
        let bird = bird::Link::open(options.file.clone(), addresses);
        let disk = Disk::start(options.file.clone(), path);
        let (disk, found) =
            disk.map_err(Failure::of("a thread", "see the limits of this process"))?;
        let reporter = Self {
            disk,
            digest: None,
            refused: None,
            warning: None,
            shown: watch::Sender::default(),
            bird,
            told,
        };
        Ok((reporter, found))
    }

    /// A file is in force.
    fn take(&mut self, wanted: &Wanted) {
        self.digest = Some(wanted.digest.clone());
        self.refused = None;
        if self.warning != wanted.warning {
            self.warning.clone_from(&wanted.warning);
            if let Some(warning) = &wanted.warning {
                tracing::warn!("{warning}");
            }
        }
    }

    /// Has the file read if it changed. One that is refused is read again: what is in its way may have passed.
    fn look(&self) {
        self.disk.look(self.refused.is_some());
    }

    /// The file that is there is refused. It is told once.
    fn refuse(&mut self, problems: &[Problem]) {
        if self.refused.as_deref() == Some(problems) {
            return;
        }
        for problem in problems {
            match self.digest {
                Some(_) => {
                    tracing::error!("the file is refused, the last good one stays: {problem}");
                }
                None => tracing::error!(
                    "the file is refused, and nothing is announced until there is a good one: {problem}"
                ),
            }
        }
        self.refused = Some(problems.to_vec());
        let shown = Arc::clone(&self.shown.borrow());
        let statuses = shown.ack.as_ref().map(|ack| ack.addresses.clone());
        let statuses = statuses.unwrap_or_else(|| self.told.clone());
        self.report(statuses, |_| {});
    }

    /// Has the ack written if it is another one.
    fn report(&self, addresses: Vec<Status>, more: impl FnOnce(&mut Shown)) {
        let refused = self.refused.as_ref().map(|problems| Refused {
            problems: problems.iter().map(Wrong::from).collect(),
        });
        let ack = Ack {
            version: Ack::VERSION,
            file_digest: self.digest.clone(),
            refused,
            addresses,
        };
        let mut shown = Shown::clone(&self.shown.borrow());
        if shown.ack.as_ref() != Some(&ack) {
            self.disk.write(ack.clone());
            shown.ack = Some(ack);
        }
        more(&mut shown);
        self.shown.send_replace(Arc::new(shown));
    }
}

/// The bytes of an ack at most: it says more of an address than the file.
const MOST_OF_ACK: usize = 64 << 20;
/// For changes that inotify does not report.
const LOOK_EVERY: Duration = Duration::from_secs(1);
