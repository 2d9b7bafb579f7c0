//! Follows the files of the acks: of the data plane, for [`super::table`] and [`super::lease`], and of the announcer.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::Ack;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::follow::Follow;
use crate::metrics::Metrics;

/// Reads the ack of the data plane after every change, until the receivers are gone.
pub(crate) async fn follow(
    path: PathBuf,
    acks: watch::Sender<Option<Arc<Ack>>>,
    metrics: Arc<Metrics>,
) {
    let mut refused = None;
    follow_file(path, acks, |ack| log(ack, &mut refused, &metrics)).await;
}

/// Reads the ack of the announcer likewise.
pub(crate) async fn follow_announcer(
    path: PathBuf,
    acks: watch::Sender<Option<Arc<ballast_announce::ack::Ack>>>,
) {
    follow_file(path, acks, |_| {}).await;
}

async fn follow_file<A: DeserializeOwned>(
    path: PathBuf,
    acks: watch::Sender<Option<Arc<A>>>,
    mut log: impl FnMut(&A),
) {
    let mut watched = Follow::new(&path, LOOK_EVERY);
    let mut last = Vec::new();
    loop {
        let bytes = fs::read(&path).unwrap_or_default();
        if bytes != last {
            // The file is replaced by a rename: one that does not parse is not half written.
            match serde_json::from_slice::<A>(&bytes) {
                Ok(ack) => {
                    log(&ack);
                    acks.send_replace(Some(Arc::new(ack)));
                }
                Err(_) if bytes.is_empty() => {
                    acks.send_replace(None);
                }
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%error, "cannot understand the ack {path}");
                }
            }
            last = bytes;
        }
        tokio::select! {
            () = watched.changed() => {}
            () = acks.closed() => return,
        }
    }
}

/// Logs the served table, and a refused table once: the data plane repeats the refusal in every ack while it holds.
fn log(ack: &Ack, known: &mut Option<String>, metrics: &Metrics) {
    let served = ack.served.as_ref().and_then(|served| served.generation);
    let digest = ack.refused.as_ref().map(|refused| refused.digest.clone());
    let is_new = *known != digest;
    *known = digest;
    metrics.table_refused.set(known.is_some().into());
    if let Some(refused) = ack.refused.as_ref().filter(|_| is_new) {
        metrics.tables_refused.inc();
        for problem in refused.problems.iter().take(MOST_LOGGED) {
            tracing::error!(
                generation = refused.generation,
                "the data plane refused a table: {}: {}",
                problem.at,
                problem.why
            );
        }
    }
    tracing::info!(
        generation = served,
        exceptions = ack.exceptions.len(),
        "the data plane serves"
    );
}

/// For changes that inotify does not report.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const MOST_LOGGED: usize = 10;
