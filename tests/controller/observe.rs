//! `ballast-controller`: what is seen of a cluster and of a folder, as it changes, and while it cannot be seen; what is written to an
//! API server that is not as it should be.

mod acting;
mod api;
mod cluster;
mod folder;
mod lookups;
mod namespace;

use std::sync::{Arc, Mutex};

use ballast_controller::observe::{Earlier, Observed, Wanted};
use ballast_controller::settings::{Flags, Role, Settings};
use clap::Parser;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use api::{Api, PATIENCE};

/// Somebody who watches; ends with the test.
struct Watch {
    wanted: watch::Sender<Wanted>,
    seen: watch::Receiver<Option<Arc<Observed>>>,
    /// Everything that was sent.
    all: Arc<Mutex<Vec<Arc<Observed>>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Watch {
    /// Watches a cluster.
    fn of(api: &Api, arguments: &[&str]) -> Self {
        Self::in_role(api, arguments, Role::Whole)
    }

    fn in_role(api: &Api, arguments: &[&str], role: Role) -> Self {
        let settings = Settings::clone(&settings(arguments)).in_role(role);
        let settings = Arc::new(settings);
        Self::start(|wanted, observed| {
            ballast_controller::observe::cluster::watch(
                api.client(),
                settings,
                Earlier::default(),
                wanted,
                observed,
            )
        })
    }

    fn start<F: Future<Output = ()> + Send + 'static>(
        watch: impl FnOnce(watch::Receiver<Wanted>, watch::Sender<Option<Arc<Observed>>>) -> F,
    ) -> Self {
        let (wanted, wants) = watch::channel(Wanted::default());
        let (observed, seen) = watch::channel(None);
        let all = Arc::new(Mutex::new(Vec::new()));
        let (noted, mut notes) = (Arc::clone(&all), seen.clone());
        let note = async move {
            while notes.changed().await.is_ok() {
                let sent = notes.borrow_and_update().clone();
                noted.lock().expect("a test that is set up").extend(sent);
            }
        };
        Self {
            tasks: vec![tokio::spawn(note), tokio::spawn(watch(wants, observed))],
            wanted,
            seen,
            all,
        }
    }

    /// Waits until what is seen is as it should be.
    async fn until(&mut self, is_right: impl Fn(&Observed) -> bool) -> Arc<Observed> {
        let right = self
            .seen
            .wait_for(|seen| seen.as_deref().is_some_and(&is_right));
        if let Ok(Ok(seen)) = timeout(PATIENCE, right)
            .await
            .map(|seen| seen.map(|seen| seen.clone()))
        {
            return seen.expect("something is seen");
        }
        panic!("not seen in time; last was {:#?}", self.seen.borrow());
    }

    fn is_silent(&self) -> bool {
        self.seen.borrow().is_none()
    }

    async fn sent(&self) -> usize {
        // Whoever takes notes has its turn first.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        self.all.lock().expect("a test that is set up").len()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn settings(arguments: &[&str]) -> Arc<Settings> {
    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }
    let cli = Cli::parse_from(arguments);
    Arc::new(Settings::new(cli.flags).expect("settings"))
}
