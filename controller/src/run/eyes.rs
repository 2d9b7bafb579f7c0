//! For now.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::observe::{Observed, Wanted, read_folder};
use crate::settings::Settings;

pub(super) async fn cluster(
    _client: Client,
    _settings: Arc<Settings>,
    _wanted: watch::Receiver<Wanted>,
    seen: watch::Sender<Option<Arc<Observed>>>,
) {
    seen.closed().await;
}

pub(super) async fn folder(
    folder: PathBuf,
    _wanted: watch::Receiver<Wanted>,
    seen: watch::Sender<Option<Arc<Observed>>>,
) {
    loop {
        if let Ok((observed, _)) = read_folder(&folder) {
            let observed = Some(Arc::new(observed));
            seen.send_if_modified(|now| {
                let is_new = *now != observed;
                *now = observed;
                is_new
            });
        }
        sleep(Duration::from_millis(200)).await;
    }
}
