//! `ballast-controller run`: the table of one node, and the node's Lease, until a signal.
//!
//! The observer sends the state of the cluster to `reconcile`, and `reconcile` sends its decisions to the tasks of `node`. Each
//! channel holds only the newest value, so a slow task delays no other one.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ballast_core::table::Stats;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::decide::{self, Desired, decide};
use crate::metrics::Metrics;
use crate::node::{
    Announcer, Folder, LeaseRenewer, Pages, TableWriter, Target, Written, fetch_pages, follow_acks,
    follow_announcer,
};
use crate::observe::{self, BadDocument, Earlier, Kept, Observed, Wanted};
use crate::reconcile::{Decisions, Reconciler};
use crate::settings::{
    AdminAddress, AdminFlags, ClusterFlags, Role, RunFlags, Settings, WrongFlag, follow_cfg,
};
use crate::waiting::is_looked_up;
use crate::{admin, client, plan};

/// Runs until a signal says to end.
///
/// # Errors
/// A flag that cannot be followed, as a [`WrongFlag`]; or what the system refuses at the start.
pub fn run(flags: RunFlags) -> anyhow::Result<()> {
    let settings = flags.settings()?;
    block_on(begin(flags, settings))
}

/// Runs this to its end. A decision under way is not waited for.
pub(crate) fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot begin")
}

async fn begin(flags: RunFlags, mut settings: Settings) -> anyhow::Result<()> {
    for remark in &settings.remarks {
        tracing::warn!("{remark}");
    }
    let client = match &flags.manifests {
        Some(_) => None,
        None => Some(client::client(&flags.cluster).await?),
    };
    if let Some(client) = &client {
        settings = settings.in_namespace(client.default_namespace());
    }
    let role = match (&client, flags.dry) {
        (Some(_), false) => Role::Node,
        // All of it is printed, statuses too.
        (Some(_), true) | (None, _) => Role::Whole,
    };
    let settings = settings.in_role(role);
    let (seen, observed) = watch::channel(None);
    let (want, wanted) = watch::channel(Wanted::default());
    let manifests = flags.manifests.clone();
    if flags.dry {
        let earlier = Earlier::default();
        let manifests = manifests.map(Manifests::of);
        let observing = observe(manifests, &settings, client, earlier, wanted, seen);
        tokio::select! {
            () = observing => anyhow::bail!("nothing more is to be seen"),
            desired = decide_once(&settings, observed, &want, PATIENCE) => {
                print!("{}", plan::print(&desired?, &[], true)?);
                return Ok(());
            }
        }
    }
    let folder = table_folder(&flags)?;
    let announcer = announcer(&flags, &folder)?;
    let earlier = Earlier::new(folder.addresses());
    let metrics = Arc::new(Metrics::default());
    let manifests = manifests.map(|folder| Manifests {
        kept: flags.table_dir.as_deref().map(Kept::beside),
        metrics: Arc::clone(&metrics),
        folder,
    });
    let observing = observe(manifests, &settings, client.clone(), earlier, wanted, seen);
    let mut tasks = JoinSet::new();
    serve_admin(&flags.process, &metrics, &mut tasks);
    let table = flags.table_dir.clone().unwrap_or_default();
    tasks.spawn(admin::serve_probes(table, Arc::clone(&metrics)));
    tasks.spawn(observing);
    let stats = decide::stats(&settings);
    let (decided, decisions) = watch::channel(None);
    let (live, settings) = watch::channel(Arc::new(settings));
    tasks.spawn(follow_cfg(flags.flags.clone(), live));
    let reconciler = Reconciler {
        observed,
        settings: settings.clone(),
        want,
        decided,
        earlier: Arc::new(folder.served()),
        logs_notices: client.is_none(),
        metrics: Arc::clone(&metrics),
    };
    tasks.spawn(reconciler.start().context("cannot begin to decide")?);
    let (end, ending) = watch::channel(false);
    let parts = Parts {
        client,
        folder,
        announcer,
        stats,
        settings,
        decisions,
        ending,
        metrics,
    };
    let mut leaving = parts.start(&flags, &mut tasks);
    tracing::info!("ballast-controller {} runs", *crate::VERSION);
    until_told_to_end(&mut tasks, &mut leaving).await?;
    tracing::info!("ending: what is served stays served");
    end.send_replace(true);
    leave(leaving, LeaseRenewer::STAYS + RELEASE_TIME).await;
    Ok(())
}

/// The input of the tasks that act on decisions.
struct Parts {
    client: Option<Client>,
    folder: Folder,
    announcer: Option<Announcer>,
    stats: Stats,
    settings: watch::Receiver<Arc<Settings>>,
    decisions: Decisions,
    ending: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
}

impl Parts {
    /// Starts them; returns those that have something to do at the end.
    fn start(self, flags: &RunFlags, tasks: &mut JoinSet<()>) -> JoinSet<()> {
        let mut leaving = JoinSet::new();
        let (ack, acks) = watch::channel(None);
        tasks.spawn(follow_acks(
            self.folder.ack(),
            ack,
            Arc::clone(&self.metrics),
        ));
        let (answered, announcer) = watch::channel(None);
        if let Some(announcer) = &self.announcer {
            let ack = flags.announce.announce_ack.clone();
            let ack = ack.unwrap_or_else(|| announcer.ack());
            tasks.spawn(follow_announcer(ack, answered));
        }
        let (fetched, pages) = watch::channel(Pages::default());
        tasks.spawn(fetch_pages(self.decisions.clone(), fetched));
        let (written, writes) = watch::channel(Written::new());
        let table = TableWriter {
            folder: self.folder,
            stats: self.stats,
            decisions: self.decisions.clone(),
            acks: acks.clone(),
            pages,
            written,
            announcer: self.announcer,
            announced: announcer.clone(),
            metrics: Arc::clone(&self.metrics),
        };
        tasks.spawn(table.run());
        let Some(client) = self.client else {
            return leaving;
        };
        let Some(node) = &flags.flags.node_name else {
            tracing::warn!(
                "--node-name: not given, nor NODE_NAME: this node keeps no Lease, and its addresses are not published"
            );
            return leaving;
        };
        let namespace = self.settings.borrow().own_namespace.clone();
        let lease = LeaseRenewer {
            client,
            namespace,
            node: node.clone(),
            duration: flags.lease_duration,
            dataplane: flags.dataplane(),
            settings: self.settings,
            decisions: self.decisions,
            acks,
            announcer,
            written: writes,
            ending: self.ending,
            metrics: self.metrics,
        };
        leaving.spawn(lease.run());
        leaving
    }
}

/// Answers at `--admin`, if it is somewhere.
pub(crate) fn serve_admin(flags: &AdminFlags, metrics: &Arc<Metrics>, tasks: &mut JoinSet<()>) {
    if let AdminAddress::At(address) = flags.admin {
        tasks.spawn(admin::serve(address, Arc::clone(metrics)));
    }
}

/// Returns when a signal says to end. Until then no task ends but by a fault, not even those of `leaving`.
pub(crate) async fn until_told_to_end(
    tasks: &mut JoinSet<()>,
    leaving: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let ended = tokio::select! {
        signal = told_to_end() => return signal,
        Some(ended) = tasks.join_next() => ended,
        Some(ended) = leaving.join_next() => ended,
    };
    ended.context("a part of the controller failed")?;
    anyhow::bail!("a part of the controller ended");
}

/// Waits for those that give Leases back, and not for longer than this.
pub(crate) async fn leave(mut leaving: JoinSet<()>, at_most: Duration) {
    let left = async { while leaving.join_next().await.is_some() {} };
    if timeout(at_most, left).await.is_err() {
        tracing::warn!("ended without giving every Lease back");
    }
}

/// A folder of manifests, where the last good content of each file is kept, and where the bad ones are counted.
pub(crate) struct Manifests {
    folder: PathBuf,
    kept: Option<Kept>,
    metrics: Arc<Metrics>,
}

impl Manifests {
    /// A folder that is looked at once.
    fn of(folder: PathBuf) -> Self {
        Self {
            folder,
            kept: None,
            metrics: Arc::default(),
        }
    }

    fn tell(&self, bad: &[BadDocument]) {
        let files = bad.iter().filter(|one| !one.is_remark).map(|one| &one.file);
        let files: BTreeSet<&String> = files.collect();
        self.metrics.manifests_are_bad(files.len());
        for document in bad {
            match document.is_remark {
                true => tracing::warn!("--manifests: {document}"),
                false => tracing::error!("--manifests: {document}"),
            }
        }
        if bad.is_empty() {
            tracing::info!("--manifests: nothing is wrong with the manifests any more");
        }
    }
}

/// Sends what is seen, for as long as the process lives.
pub(crate) fn observe(
    manifests: Option<Manifests>,
    settings: &Settings,
    client: Option<Client>,
    earlier: Earlier,
    wanted: watch::Receiver<Wanted>,
    seen: watch::Sender<Option<Arc<Observed>>>,
) -> impl Future<Output = ()> + Send + 'static {
    let settings = Arc::new(settings.clone());
    async move {
        match (client, manifests) {
            (Some(client), _) => {
                observe::cluster::watch(client, settings, earlier, wanted, seen).await;
            }
            (None, Some(mut manifests)) => {
                let (folder, kept) = (manifests.folder.clone(), manifests.kept.take());
                let bad = |bad: &[BadDocument]| manifests.tell(bad);
                observe::folder::watch(folder, kept, settings, earlier, wanted, seen, bad).await;
            }
            (None, None) => {}
        }
    }
}

/// The decision for a folder of manifests, or for a cluster, now.
pub fn look_once(
    manifests: Option<PathBuf>,
    cluster: &ClusterFlags,
    settings: &Settings,
) -> anyhow::Result<Desired> {
    runtime()?.block_on(async {
        let mut settings = settings.clone();
        let client = match &manifests {
            Some(_) => None,
            None => Some(client::client(cluster).await?),
        };
        if let Some(client) = &client {
            settings = settings.in_namespace(client.default_namespace());
        }
        let (seen, observed) = watch::channel(None);
        let (want, wanted) = watch::channel(Wanted::default());
        tokio::select! {
            () = observe(manifests.map(Manifests::of), &settings, client, Earlier::default(), wanted, seen) => {
                anyhow::bail!("nothing more is to be seen")
            }
            desired = decide_once(&settings, observed, &want, PATIENCE) => desired,
        }
    })
}

/// Decides when all is seen, and everything that is wanted was looked up. Lookups of names that still wait for their turn
/// then are not waited for: the decision says which.
async fn decide_once(
    settings: &Settings,
    mut observed: watch::Receiver<Option<Arc<Observed>>>,
    want: &watch::Sender<Wanted>,
    patience: Duration,
) -> anyhow::Result<Desired> {
    let until = Instant::now() + patience;
    let mut last = None;
    loop {
        match timeout_at(until, observed.changed()).await {
            Ok(changed) => changed?,
            Err(_) => return last.context("not everything was seen in time"),
        }
        let Some(seen) = observed.borrow_and_update().clone() else {
            continue;
        };
        let desired = decide(&seen, settings);
        if is_looked_up(&desired.wanted, &seen) {
            return Ok(desired);
        }
        want.send_replace(desired.wanted.clone());
        let waits_for_names_alone = Wanted {
            names: seen.looked_up.names.clone(),
            ..desired.wanted.clone()
        };
        last = is_looked_up(&waits_for_names_alone, &seen).then_some(desired);
    }
}

fn table_folder(flags: &RunFlags) -> Result<Folder, WrongFlag> {
    let path = flags.table_dir.as_deref();
    let path = path.ok_or_else(|| WrongFlag::new("--table-dir", "is missing"))?;
    let wrong = |error| WrongFlag::new("--table-dir", format!("{}: {error}", path.display()));
    Folder::open(path.into()).map_err(wrong)
}

/// What writes the announcer's file, if a flag names one.
fn announcer(flags: &RunFlags, folder: &Folder) -> Result<Option<Announcer>, WrongFlag> {
    let announce = &flags.announce;
    let (Some(path), Some(node)) = (&announce.announce_file, &flags.flags.node_name) else {
        return Ok(None);
    };
    let target = Target {
        node: node.clone(),
        port: announce.announce_port,
        key: announce.announce_key.clone(),
        socket: announce.announce_socket.clone(),
        bird: announce.announce_bird.clone().unwrap_or_default(),
        dataplane: flags.dataplane(),
        comes_back: announce.announce_return,
    };
    let begun = Announcer::begin(path.clone(), target, folder);
    let wrong = |error| WrongFlag::new("--announce-file", format!("{}: {error}", path.display()));
    begun.map(Some).map_err(wrong)
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
/// The longest time to observe a cluster once.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time for giving a Lease back.
pub(crate) const RELEASE_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_plan_says_which_names_wait_and_is_none_without_a_secret() {
        let manifests = "kind: Service
metadata: {name: db, namespace: shop, annotations: {ballast.dev/path: /db}}
spec: {type: ExternalName, externalName: db.example.com, ports: [{port: 80}]}
---
kind: Service
metadata: {name: web, namespace: shop, annotations: {ballast.dev/tls-secret: cert}}
spec: {type: LoadBalancer, ports: [{port: 443}]}
";
        let observed = |looked_up: Wanted| Observed {
            leases: Some(Default::default()),
            looked_up: Arc::new(looked_up),
            ..Observed::of(manifests)
        };
        let settings = Settings::without_flags();
        let (want, wanted) = watch::channel(Wanted::default());
        let patience = Duration::from_millis(200);
        let (seen, look) = watch::channel(None);
        seen.send_replace(Some(Arc::new(observed(Wanted::default()))));
        let mut look = look;
        look.mark_changed();
        let none = decide_once(&settings, look.clone(), &want, patience).await;
        assert!(none.is_err());
        assert!(wanted.borrow().names.contains("db.example.com"));

        let mut looked_up = wanted.borrow().clone();
        looked_up.names = BTreeSet::new();
        seen.send_replace(Some(Arc::new(observed(looked_up))));
        look.mark_changed();
        let desired = decide_once(&settings, look, &want, patience).await.unwrap();
        let said = desired.notices.iter().map(ToString::to_string);
        let waits = said.filter(|line| line.contains("db.example.com waits to be looked up"));
        assert_eq!(waits.count(), 1);
    }
}
