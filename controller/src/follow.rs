//! Tells when a file may have changed: at once by inotify, and after a pause for changes that inotify does not report.
//!
//! Used for the data plane's ack, for `--cfg` and for `--manifests`. A rename, a ConfigMap's symlink swap and an edit in place are
//! all noticed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify;
use tokio::net::unix::pipe;
use tokio::time::sleep;

/// A folder, watched.
#[derive(Debug)]
pub(crate) struct Follow {
    folder: PathBuf,
    inotify: Option<pipe::Receiver>,
    every: Duration,
}

impl Follow {
    /// Watches the folder of the file `path`, and looks `every` so often.
    pub(crate) fn new(path: &Path, every: Duration) -> Self {
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => Self::folder(folder, every),
            _ => Self::folder(Path::new("."), every),
        }
    }

    /// Watches a folder, and looks `every` so often.
    pub(crate) fn folder(folder: &Path, every: Duration) -> Self {
        let inotify = listener().inspect_err(|error| {
            tracing::warn!(%error, "cannot watch {}; looking now and then", folder.display());
        });
        let follow = Self {
            folder: folder.to_owned(),
            inotify: inotify.ok(),
            every,
        };
        follow.listen();
        follow
    }

    /// Listens to the folder that is there now: it may be another one than before.
    fn listen(&self) {
        let events = inotify::WatchFlags::CLOSE_WRITE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE;
        if let Some(inotify) = &self.inotify
            && let Err(error) = inotify::add_watch(inotify, &self.folder, events)
        {
            tracing::debug!(%error, "cannot watch {}", self.folder.display());
        }
    }

    /// Returns when something may have changed.
    pub(crate) async fn changed(&mut self) {
        let Some(inotify) = &self.inotify else {
            return sleep(self.every).await;
        };
        tokio::select! {
            readable = inotify.readable() => if readable.is_err() {
                self.inotify = None;
                return;
            },
            () = sleep(self.every) => self.listen(),
        }
        // The events themselves do not matter: the caller reads the files.
        while inotify.try_read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
    }
}

/// An inotify descriptor, which is no pipe, but can be read like one.
fn listener() -> io::Result<pipe::Receiver> {
    let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    pipe::Receiver::from_owned_fd_unchecked(inotify)
}
