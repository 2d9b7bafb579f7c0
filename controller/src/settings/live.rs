//! Follows the file of `--cfg`: a change is applied at once, and an invalid file leaves the settings as they are.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Flags, Settings};
use crate::follow::Follow;

/// Reads the file whenever it changes, until all receivers are gone.
pub(crate) async fn follow(flags: Flags, live: watch::Sender<Arc<Settings>>) {
    let Some(path) = flags.cfg.clone() else {
        return live.closed().await;
    };
    let mut watched = Follow::new(&path, LOOK_EVERY);
    let read = || fs::read(&path).map_err(|error| error.to_string());
    let mut last = read();
    loop {
        tokio::select! {
            () = watched.changed() => {}
            () = live.closed() => return,
        }
        let now = read();
        if now == last {
            continue;
        }
        last = now;
        let again = live.borrow().read_again(flags.clone());
        match again {
            Ok(settings) => {
                tracing::info!("--cfg: {}: read anew", path.display());
                for remark in &settings.remarks {
                    tracing::warn!("{remark}");
                }
                live.send_replace(Arc::new(settings));
            }
            Err(wrong) => tracing::error!("{wrong}; what it said before stays"),
        }
    }
}

/// How often the file is looked at where inotify reports nothing.
const LOOK_EVERY: Duration = Duration::from_secs(5);
