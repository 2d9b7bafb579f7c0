//! `ballast-controller publish`: one of several processes writes statuses, finalizers and events of Services, until a signal.

use std::fs;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client;
use crate::cluster::{Campaign, EventWriter, PoolStatusWriter, StatusWriter, campaign, tell_nodes};
use crate::metrics::Metrics;
use crate::observe::{Earlier, Wanted, cluster::namespaces};
use crate::reconcile::{Decisions, Reconciler};
use crate::request::REPORTER;
use crate::run::{RELEASE_TIME, block_on, leave, observe, serve_admin, until_told_to_end};
use crate::settings::{PublishFlags, Settings, follow_cfg};

/// Runs until a signal says to end.
///
/// # Errors
/// A flag that cannot be followed, as a [`WrongFlag`](crate::settings::WrongFlag); or what the system refuses at the start.
pub fn publish(flags: PublishFlags) -> anyhow::Result<()> {
    let settings = flags.settings()?;
    block_on(begin(flags, settings))
}

async fn begin(flags: PublishFlags, settings: Settings) -> anyhow::Result<()> {
    for remark in &settings.remarks {
        tracing::warn!("{remark}");
    }
    let client = client::client(&flags.cluster).await?;
    let metrics = Arc::new(Metrics::default());
    let mut tasks = JoinSet::new();
    let settings = settings.in_namespace(client.default_namespace());
    let namespace = settings.own_namespace.clone();
    serve_admin(&flags.process, &metrics, &mut tasks);
    let (seen, observed) = watch::channel(None);
    // The publisher looks nothing up beside the objects that it watches.
    let (want, wanted) = watch::channel(Wanted::default());
    tasks.spawn(observe(
        None,
        &settings,
        Some(client.clone()),
        Earlier::default(),
        wanted,
        seen,
    ));
    let (decided, decisions) = watch::channel(None);
    let (live, settings) = watch::channel(Arc::new(settings));
    let shown = settings.clone();
    tasks.spawn(follow_cfg(flags.flags.clone(), live));
    let reconciler = Reconciler {
        observed,
        settings,
        want,
        decided,
        earlier: Arc::default(),
        logs_notices: false,
        metrics: Arc::clone(&metrics),
    };
    tasks.spawn(reconciler.start().context("cannot begin to decide")?);
    let (end, ending) = watch::channel(false);
    let mut leaving = begin_writers(
        &flags,
        namespace,
        client,
        decisions,
        shown,
        ending,
        Arc::clone(&metrics),
        &mut tasks,
    );
    tracing::info!("ballast-controller {} publishes", *crate::VERSION);
    until_told_to_end(&mut tasks, &mut leaving).await?;
    tracing::info!("ending: what is published stays published");
    end.send_replace(true);
    leave(leaving, RELEASE_TIME).await;
    Ok(())
}

/// Starts the tasks that write to Services. Returns those that have something to do at the end.
fn begin_writers(
    flags: &PublishFlags,
    namespace: String,
    client: Client,
    decisions: Decisions,
    settings: watch::Receiver<Arc<Settings>>,
    ending: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    tasks: &mut JoinSet<()>,
) -> JoinSet<()> {
    let me = identity();
    let (leading, election) = campaign(Campaign {
        client: client.clone(),
        namespace: namespace.clone(),
        me: me.clone(),
        ending,
        metrics: Arc::clone(&metrics),
    });
    let mut leaving = JoinSet::new();
    leaving.spawn(election);
    let (events, writer) = EventWriter::new(
        client.clone(),
        &me,
        decisions.clone(),
        leading.clone(),
        Arc::clone(&metrics),
    );
    tasks.spawn(writer.run());
    tasks.spawn(tell_nodes(
        client.clone(),
        namespace.clone(),
        decisions.clone(),
        settings,
        leading.clone(),
    ));
    let pools = PoolStatusWriter {
        client: client.clone(),
        decisions: decisions.clone(),
        leading: leading.clone(),
        metrics: Arc::clone(&metrics),
    };
    tasks.spawn(pools.run());
    let statuses = StatusWriter {
        client,
        decisions,
        leading,
        events,
        finalizer: flags.finalizer,
        namespaces: namespaces(&flags.flags),
        own_namespace: namespace,
        metrics,
    };
    tasks.spawn(statuses.run());
    leaving
}

/// A name that no other process has, or had before. In a pod it begins with the pod's name.
fn identity() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = Some(host.trim()).filter(|host| !host.is_empty());
    let host = host.unwrap_or(REPORTER);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let begun = since.unwrap_or_default().as_nanos();
    format!("{host}_{}_{begun:x}", std::process::id())
}
