//! `ballast-controller run`: everything that is seen is decided upon, and every decision acted upon, until a signal.
//!
//! One loop: what is observed goes to [`decide()`], in a thread that may take its time; the decision goes to the parts of
//! [`crate::act`], each a task; what a decision wants to be looked up goes back to the observers. All of them talk by the
//! newest value alone, so that nobody who is slow holds anybody up.

mod cfg;
mod cluster;
mod mind;
mod release;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use ballast_core::table::Stats;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::act::{
    Decisions, Events, Folder, Pages, Publish, Report, Statuses, Written, fetch_pages, follow_acks,
};
use crate::decide::{self, Desired, decide};
use crate::leader::{Campaign, campaign};
use crate::metrics::Metrics;
use crate::observe::{self, BadDocument, Observed, Wanted};
use crate::request::MANAGER;
use crate::settings::{ClusterFlags, Place, RunFlags, Settings, WrongFlag};
use crate::{admin, plan};
use mind::Mind;
pub use release::{ReleaseFlags, release};

/// Runs until a signal says to end.
///
/// # Errors
/// A flag that cannot be followed, as a [`WrongFlag`]; or what the system refuses at the start.
pub fn run(flags: RunFlags) -> anyhow::Result<()> {
    let settings = flags.settings()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot begin")?;
    let result = runtime.block_on(begin(flags, settings));
    // A decision under way is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn begin(flags: RunFlags, mut settings: Settings) -> anyhow::Result<()> {
    for remark in &settings.remarks {
        tracing::warn!("{remark}");
    }
    let client = match &flags.manifests {
        Some(_) => None,
        None => Some(cluster::client(&flags.cluster).await?),
    };
    if let Some(client) = &client {
        settings = settings.in_namespace(client.default_namespace());
    }
    let (seen, observed) = watch::channel(None);
    let (want, wanted) = watch::channel(Wanted::default());
    let folder = flags.manifests.clone();
    let eyes = look(folder, &settings, client.clone(), wanted, seen);
    if flags.dry {
        tokio::select! {
            () = eyes => anyhow::bail!("nothing more is to be seen"),
            desired = decide_once(&settings, observed, &want) => {
                print!("{}", plan::print(&desired?, &[])?);
                return Ok(());
            }
        }
    }
    let folder = table_folder(&flags)?;
    let metrics = Arc::new(Metrics::default());
    let mut tasks = JoinSet::new();
    if let Place::At(address) = flags.admin {
        tasks.spawn(admin::serve(address, Arc::clone(&metrics)));
    }
    let table = flags.table_dir.clone().unwrap_or_default();
    tasks.spawn(admin::serve_probes(table, Arc::clone(&metrics)));
    tasks.spawn(eyes);
    let stats = decide::stats(&settings);
    let namespace = settings.own_namespace.clone();
    let (decided, decisions) = watch::channel(None);
    let (live, settings) = watch::channel(Arc::new(settings));
    tasks.spawn(cfg::follow(flags.flags.clone(), live));
    tasks.spawn(
        Mind {
            observed,
            settings,
            want,
            decided,
            is_alone: client.is_none(),
            metrics: Arc::clone(&metrics),
        }
        .run(),
    );
    let (end, ending) = watch::channel(false);
    let leaving = act(
        &flags, namespace, client, folder, stats, decisions, ending, metrics, &mut tasks,
    );
    tracing::info!("ballast-controller {} runs", env!("CARGO_PKG_VERSION"));
    tokio::select! {
        signal = told_to_end() => signal?,
        // A task that ends, ends by a fault.
        Some(ended) = tasks.join_next() => {
            ended.context("a part of the controller failed")?;
            anyhow::bail!("a part of the controller ended");
        }
    }
    tracing::info!("ending: what is served stays served");
    end.send_replace(true);
    let mut leaving = leaving;
    // Leases are given back, and the process does not wait for ever for that.
    let left = async { while leaving.join_next().await.is_some() {} };
    if timeout(FAREWELL, left).await.is_err() {
        tracing::warn!("ended without giving every Lease back");
    }
    Ok(())
}

/// Begins the parts that act; returns those that have something to do at the end.
fn act(
    flags: &RunFlags,
    namespace: String,
    client: Option<Client>,
    folder: Folder,
    stats: Stats,
    decisions: Decisions,
    ending: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    tasks: &mut JoinSet<()>,
) -> JoinSet<()> {
    let mut leaving = JoinSet::new();
    let (tell, acks) = watch::channel(None);
    tasks.spawn(follow_acks(folder.ack(), tell, Arc::clone(&metrics)));
    let (fetched, pages) = watch::channel(Pages::default());
    tasks.spawn(fetch_pages(decisions.clone(), fetched));
    let (written, writes) = watch::channel(Written::new());
    let publish = Publish {
        folder,
        stats,
        decisions: decisions.clone(),
        acks: acks.clone(),
        pages,
        written,
        metrics: Arc::clone(&metrics),
    };
    tasks.spawn(publish.run());
    let Some(client) = client else {
        return leaving;
    };
    let me = identity(flags);
    let (leading, election) = campaign(Campaign {
        client: client.clone(),
        namespace: namespace.clone(),
        me: me.clone(),
        ending: ending.clone(),
        metrics: Arc::clone(&metrics),
    });
    leaving.spawn(election);
    let (modes, known_modes) = watch::channel(None);
    let (teller, events) = Events::new(
        client.clone(),
        me,
        decisions.clone(),
        known_modes,
        leading.clone(),
        Arc::clone(&metrics),
    );
    tasks.spawn(events.run());
    match &flags.flags.node_name {
        Some(node) => {
            let report = Report {
                client: client.clone(),
                namespace,
                node: node.clone(),
                dataplane: flags.dataplane(),
                decisions: decisions.clone(),
                acks,
                written: writes,
                ending,
                teller: teller.clone(),
                metrics: Arc::clone(&metrics),
            };
            leaving.spawn(report.run());
        }
        None => tracing::warn!(
            "--node-name: not given, nor NODE_NAME: this node keeps no Lease, and its addresses are not published"
        ),
    }
    let statuses = Statuses {
        client,
        decisions,
        leading,
        teller,
        finalizer: flags.finalizer,
        suffix: flags.ingress_hostname_suffix.clone(),
        modes,
        metrics,
    };
    tasks.spawn(statuses.run());
    leaving
}

/// Sends what is seen, for as long as the process lives.
fn look(
    folder: Option<PathBuf>,
    settings: &Settings,
    client: Option<Client>,
    wanted: watch::Receiver<Wanted>,
    seen: watch::Sender<Option<Arc<Observed>>>,
) -> impl Future<Output = ()> + Send + 'static {
    let settings = Arc::new(settings.clone());
    async move {
        match (client, folder) {
            (Some(client), _) => observe::cluster::watch(client, settings, wanted, seen).await,
            (None, Some(folder)) => {
                let bad = |bad: &[BadDocument]| {
                    for document in bad {
                        tracing::warn!("--manifests: {document}");
                    }
                };
                observe::folder::watch(folder, settings, wanted, seen, bad).await;
            }
            (None, None) => {}
        }
    }
}

/// What would be decided for a cluster now.
///
/// # Errors
/// The cluster cannot be reached, or not all of it can be seen.
pub fn look_once(cluster: &ClusterFlags, settings: &Settings) -> anyhow::Result<Desired> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot begin")?;
    runtime.block_on(async {
        let client = cluster::client(cluster).await?;
        let settings = settings.clone().in_namespace(client.default_namespace());
        let (seen, observed) = watch::channel(None);
        let (want, wanted) = watch::channel(Wanted::default());
        tokio::select! {
            () = look(None, &settings, Some(client), wanted, seen) => {
                anyhow::bail!("nothing more is to be seen")
            }
            desired = decide_once(&settings, observed, &want) => desired,
        }
    })
}

/// Decides when all is seen, and everything that is wanted was looked up.
async fn decide_once(
    settings: &Settings,
    mut observed: watch::Receiver<Option<Arc<Observed>>>,
    want: &watch::Sender<Wanted>,
) -> anyhow::Result<Desired> {
    loop {
        timeout(PATIENCE, observed.changed())
            .await
            .context("not everything was seen in time")??;
        let Some(seen) = observed.borrow_and_update().clone() else {
            continue;
        };
        let desired = decide(&seen, settings);
        if waiting::is_looked_up(&desired.wanted, &seen) {
            return Ok(desired);
        }
        want.send_replace(desired.wanted);
    }
}

fn table_folder(flags: &RunFlags) -> Result<Folder, WrongFlag> {
    let wrong = |why: String| WrongFlag {
        flag: "--table-dir",
        why,
    };
    let path: &Path = flags
        .table_dir
        .as_deref()
        .ok_or_else(|| wrong("is missing".to_owned()))?;
    Folder::open(path.into()).map_err(|error| wrong(format!("{}: {error}", path.display())))
}

/// A name that no other process has or had.
fn identity(flags: &RunFlags) -> String {
    let node = flags.flags.node_name.as_deref().unwrap_or(MANAGER);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let begun = since.unwrap_or_default().as_nanos();
    format!("{node}_{}_{begun:x}", std::process::id())
}

async fn told_to_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Deciding has threads of its own.
const THREADS: usize = 2;
/// What looking may take where it is done once.
const PATIENCE: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(5);
