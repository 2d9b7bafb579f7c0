//! What the data plane answers, followed. Read by [`super::publish`] and [`super::report`].

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::Ack;
use tokio::sync::watch;

use crate::follow::Follow;

/// Reads the ack whenever it changes, for as long as anybody wants to know.
pub(crate) async fn follow(path: PathBuf, tell: watch::Sender<Option<Arc<Ack>>>) {
    let mut watched = Follow::new(&path, LOOK_EVERY);
    let mut last = Vec::new();
    loop {
        let bytes = fs::read(&path).unwrap_or_default();
        if bytes != last {
            // It is replaced by rename, so that what does not parse is nothing that will.
            match serde_json::from_slice::<Ack>(&bytes) {
                Ok(ack) => {
                    log(&ack);
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

fn log(ack: &Ack) {
    let served = ack.served.as_ref().and_then(|served| served.generation);
    if let Some(refused) = &ack.refused {
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
