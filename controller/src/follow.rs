//! Says when a file may have changed: by inotify at once, and by a slow look where inotify cannot see.
//!
//! Used for the data plane's ack and for `--cfg`. A rename, a ConfigMap's symlink swap and an edit in place are all seen.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, thread};

use rustix::fs::inotify;
use tokio::sync::watch;
use tokio::time::sleep;

/// A file, watched.
#[derive(Debug)]
pub(crate) struct Follow {
    heard: Option<watch::Receiver<()>>,
    every: Duration,
}

impl Follow {
    /// Watches the folder of `path`, and looks `every` so often.
    pub(crate) fn new(path: &Path, every: Duration) -> Self {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.into(),
            _ => PathBuf::from("."),
        };
        let heard = listen(&folder)
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot watch {}; looking now and then", folder.display());
            })
            .ok();
        Self { heard, every }
    }

    /// Returns when something may have changed.
    pub(crate) async fn changed(&mut self) {
        let Some(heard) = &mut self.heard else {
            return sleep(self.every).await;
        };
        let ended = tokio::select! {
            heard = heard.changed() => heard.is_err(),
            () = sleep(self.every) => false,
        };
        if ended {
            self.heard = None;
        }
    }
}

/// A thread that sleeps in the kernel: it ends with the process, or when nobody wants to know any more.
fn listen(folder: &Path) -> io::Result<watch::Receiver<()>> {
    let inotify = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    let events = inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE;
    inotify::add_watch(&inotify, folder, events)?;
    let (tell, heard) = watch::channel(());
    let follow = move || {
        // What happened does not matter: a look will tell.
        let mut events = [0; 4096];
        let mut read = || rustix::io::retry_on_intr(|| rustix::io::read(&inotify, &mut events));
        while read().is_ok_and(|read| read > 0) && tell.send(()).is_ok() {}
    };
    thread::Builder::new()
        .name("follow".to_owned())
        .spawn(follow)?;
    Ok(heard)
}
