//! What the data plane answers, followed. Read by [`super::table`] and [`super::report`].

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::Ack;
use tokio::sync::watch;

use crate::follow::Follow;
use crate::metrics::Metrics;

/// Reads the ack whenever it changes, for as long as anybody wants to know.
pub(crate) async fn follow(
    path: PathBuf,
    tell: watch::Sender<Option<Arc<Ack>>>,
    metrics: Arc<Metrics>,
) {
    let mut watched = Follow::new(&path, LOOK_EVERY);
    let mut last = Vec::new();
    let mut refused = None;
    loop {
        let bytes = fs::read(&path).unwrap_or_default();
        if bytes != last {
            // It is replaced by rename, so that what does not parse is nothing that will.
            match serde_json::from_slice::<Ack>(&bytes) {
                Ok(ack) => {
                    note(&ack, &mut refused, &metrics);
                    tell.send_replace(Some(Arc::new(ack)));
                }
                Err(_) if bytes.is_empty() => {
                    tell.send_replace(None);
                }
                Err(error) => tracing::warn!(%error, "cannot understand the data plane's ack"),
            }
            last = bytes;
        }
        tokio::select! {
            () = watched.changed() => {}
            () = tell.closed() => return,
        }
    }
}

/// Says what is served; and what was refused, once: an answer says it again as long as it stands.
fn note(ack: &Ack, known: &mut Option<String>, metrics: &Metrics) {
    let served = ack.served.as_ref().and_then(|served| served.generation);
    let digest = ack.refused.as_ref().map(|refused| refused.digest.clone());
    let is_news = *known != digest;
    *known = digest;
    metrics.table_is_refused(known.is_some());
    if let Some(refused) = ack.refused.as_ref().filter(|_| is_news) {
        metrics.table_refused();
        for problem in refused.problems.iter().take(MOST_SAID) {
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

/// Where inotify cannot see.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const MOST_SAID: usize = 10;
