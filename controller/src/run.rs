//! `ballast-controller run`: everything that is seen is decided upon, and every decision acted upon, until a signal.
//!
//! One loop: what is observed goes to [`decide`], in a thread that may take its time; the decision goes to the parts of
//! [`crate::act`], each a task; what a decision wants to be looked up goes back to the observers. All of them talk by the
//! newest value alone, so that nobody who is slow holds anybody up.

mod cfg;
mod mind;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::act::{
    Decisions, Events, Folder, MANAGER, Publish, Report, Statuses, Written, follow_acks,
};
use crate::decide::decide;
use crate::leader::{Campaign, campaign};
use crate::metrics::Metrics;
use crate::observe::{self, BadDocument, Observed, Wanted};
use crate::settings::{Place, RunFlags, Settings, WrongFlag};
use crate::{admin, plan};
use mind::Mind;

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
    // Watchers of files sleep in the kernel.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn begin(flags: RunFlags, settings: Settings) -> anyhow::Result<()> {
    for remark in &settings.remarks {
        tracing::warn!("{remark}");
    }
    let client = match &flags.manifests {
        Some(_) => None,
        None => Some(client(&flags).await?),
    };
    let (seen, observed) = watch::channel(None);
    let (want, wanted) = watch::channel(Wanted::default());
    let eyes = look(&flags, &settings, client.clone(), wanted, seen);
    if flags.dry {
        tokio::select! {
            () = eyes => anyhow::bail!("nothing more is to be seen"),
            result = print_once(&settings, observed, &want) => return result,
        }
    }
    let folder = table_folder(&flags)?;
    let metrics = Arc::new(Metrics::default());
    let mut tasks = JoinSet::new();
    if let Place::At(address) = flags.admin {
        let listener = admin::listen(address).await.map_err(|error| WrongFlag {
            flag: "--admin",
            why: format!("{address}: {error}"),
        })?;
        tasks.spawn(admin::serve(listener, Arc::clone(&metrics)));
    }
    tasks.spawn(eyes);
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
        &flags, client, folder, decisions, ending, metrics, &mut tasks,
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
    client: Option<Client>,
    folder: Folder,
    decisions: Decisions,
    ending: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    tasks: &mut JoinSet<()>,
) -> JoinSet<()> {
    let mut leaving = JoinSet::new();
    let (tell, acks) = watch::channel(None);
    tasks.spawn(follow_acks(folder.ack(), tell));
    let (written, writes) = watch::channel(Written::new());
    let publish = Publish {
        folder,
        stats_port: flags.flags.stats_port,
        decisions: decisions.clone(),
        acks: acks.clone(),
        written,
        metrics: Arc::clone(&metrics),
    };
    tasks.spawn(publish.run());
    let Some(client) = client else {
        return leaving;
    };
    let namespace = &flags.flags.own_namespace;
    let me = identity(flags);
    match &flags.flags.node_name {
        Some(node) => {
            let report = Report {
                client: client.clone(),
                namespace: namespace.clone(),
                node: node.clone(),
                dataplane: flags.dataplane(),
                decisions: decisions.clone(),
                acks,
                written: writes,
                ending: ending.clone(),
                metrics: Arc::clone(&metrics),
            };
            leaving.spawn(report.run());
        }
        None => tracing::warn!(
            "--node-name: not given, nor NODE_NAME: this node keeps no Lease, and its addresses are not published"
        ),
    }
    let (leading, election) = campaign(Campaign {
        client: client.clone(),
        namespace: namespace.clone(),
        me: me.clone(),
        ending,
        metrics: Arc::clone(&metrics),
    });
    leaving.spawn(election);
    let (teller, events) = Events::new(
        client.clone(),
        me,
        decisions.clone(),
        leading.clone(),
        Arc::clone(&metrics),
    );
    tasks.spawn(events.run());
    let statuses = Statuses {
        client,
        decisions,
        leading,
        teller,
        finalizer: flags.finalizer,
        suffix: flags.ingress_hostname_suffix.clone(),
        metrics,
    };
    tasks.spawn(statuses.run());
    leaving
}

/// Sends what is seen, for as long as the process lives.
fn look(
    flags: &RunFlags,
    settings: &Settings,
    client: Option<Client>,
    wanted: watch::Receiver<Wanted>,
    seen: watch::Sender<Option<Arc<Observed>>>,
) -> impl Future<Output = ()> + Send + 'static {
    let settings = Arc::new(settings.clone());
    let folder = flags.manifests.clone();
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

/// What would be served, and why.
async fn print_once(
    settings: &Settings,
    mut observed: watch::Receiver<Option<Arc<Observed>>>,
    want: &watch::Sender<Wanted>,
) -> anyhow::Result<()> {
    let mut waits = PATIENCE;
    loop {
        let seen = timeout(waits, observed.wait_for(Option::is_some)).await;
        let seen = seen.context("not everything was seen in time")?;
        let Some(seen) = seen.context("nothing is seen")?.clone() else {
            continue;
        };
        let desired = decide(&seen, settings);
        let wanted = desired.wanted.clone();
        if mind::is_looked_up(&wanted, &seen) {
            print!("{}", plan::print(&desired, &[])?);
            return Ok(());
        }
        want.send_replace(wanted);
        timeout(waits, observed.changed())
            .await
            .context("not everything was found in time")??;
        waits = PATIENCE;
    }
}

/// How to reach the cluster.
async fn client(flags: &RunFlags) -> anyhow::Result<Client> {
    let is_told = flags.kubeconfig.is_some() || flags.context.is_some();
    let by_kubeconfig = is_told || flags.use_kubernetes_cluster_service == Some(false);
    let mut config = match by_kubeconfig {
        true => from_kubeconfig(flags).await?,
        false => Config::incluster().map_err(|error| WrongFlag {
            flag: "--kubeconfig",
            why: format!("is not given, and this is no pod of a cluster: {error}"),
        })?,
    };
    config.connect_timeout = Some(CONNECT);
    Client::try_from(config).map_err(|error| {
        let flag = match by_kubeconfig {
            true => "--kubeconfig",
            false => "--use-kubernetes-cluster-service",
        };
        WrongFlag {
            flag,
            why: error.to_string(),
        }
        .into()
    })
}

async fn from_kubeconfig(flags: &RunFlags) -> Result<Config, WrongFlag> {
    let wrong = |flag: &'static str, why: String| WrongFlag { flag, why };
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let kubeconfig = kubeconfig.map_err(|error| wrong("--kubeconfig", error.to_string()))?;
    if let Some(name) = &flags.context
        && !kubeconfig.contexts.iter().any(|one| one.name == *name)
    {
        let known: Vec<&str> = kubeconfig
            .contexts
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        let why = format!(
            "{name:?} is not in the kubeconfig; it has {}",
            known.join(", ")
        );
        return Err(wrong("--context", why));
    }
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| wrong("--kubeconfig", error.to_string()))
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
const CONNECT: Duration = Duration::from_secs(5);
/// What looking may take where it is done once.
const PATIENCE: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(5);
