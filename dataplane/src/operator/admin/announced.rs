//! The ack of the announcer that runs beside this process, as the page shows it. It is read when somebody looks at the page, beside
//! the admin thread, and bounded: whatever stands at the path costs no client anything, and a slow disk delays nobody but those who look.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ballast_core::announce_ack::{Ack, State};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::os::files::{self, Fault, allow};

/// Where the ack is, and what stood there a moment ago.
#[derive(Debug)]
pub(crate) struct AnnouncerAck {
    path: PathBuf,
    /// Reads it; may block.
    from: fn(&Path) -> Announced,
    /// The read that goes on: one at a time, however long the disk takes.
    reading: Mutex<Option<JoinHandle<Announced>>>,
    /// All readers of the page share it.
    recent: RefCell<Option<(Instant, Arc<Announced>)>>,
}

/// What the announcer says.
#[derive(Debug)]
pub(super) struct Announced {
    /// Its addresses in the order of the page. `Err`: why it is not known, for the page.
    pub(super) ack: Result<Ack, String>,
    /// How long ago the announcer showed last that it runs.
    pub(super) age: Duration,
    /// Milliseconds since 1970 when it was read.
    pub(super) now: u64,
}

impl AnnouncerAck {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self {
            path,
            from: Announced::read,
            reading: Mutex::default(),
            recent: RefCell::new(None),
        }
    }

    /// What the announcer says, at most half a second ago.
    pub(super) async fn read(&self) -> Arc<Announced> {
        // Requests that come during a read wait for the same read.
        let mut reading = self.reading.lock().await;
        if let Some((read, announced)) = &*self.recent.borrow()
            && read.elapsed() < SHARED_FOR
        {
            return Arc::clone(announced);
        }
        let task = reading.get_or_insert_with(|| {
            let (from, path) = (self.from, self.path.clone());
            spawn_blocking(move || from(&path))
        });
        let announced = match timeout(PATIENCE, task).await {
            Ok(read) => {
                *reading = None;
                read.unwrap_or_else(|_| self.unread("reading it has failed; the log says more"))
            }
            Err(_) => {
                self.unread("reading it takes too long; see why the disk that it is on is slow")
            }
        };
        let announced = Arc::new(announced);
        self.recent
            .replace(Some((Instant::now(), Arc::clone(&announced))));
        announced
    }

    fn unread(&self, why: &str) -> Announced {
        Announced::new(Err(format!("{}: {why}", self.path.display())), None)
    }
}

impl Announced {
    fn read(path: &Path) -> Self {
        let written = fs::metadata(path).and_then(|about| about.modified());
        Self::new(ack(path), written.ok())
    }

    fn new(ack: Result<Ack, String>, written: Option<SystemTime>) -> Self {
        let now = SystemTime::now();
        let age = written.and_then(|written| now.duration_since(written).ok());
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            ack,
            age: age.unwrap_or_default(),
            now: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Whether the announcer that wrote it does not run any more.
    pub(super) fn is_old(&self) -> bool {
        self.age > Ack::OLDEST
    }
}

fn ack(path: &Path) -> Result<Ack, String> {
    let place = path.display();
    let bytes = files::read_at_most(LARGEST, path).map_err(|fault| match fault {
        Fault::Unreadable(error) if error.kind() == std::io::ErrorKind::NotFound => format!(
            "{place} is not there: see that the announcer of this host runs, and that its --ack is the path of --announce-ack"
        ),
        Fault::Unreadable(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("{place}: {error}; {}; a folder that was made after the start of this process is outside of its sandbox until it starts again", allow())
        }
        fault => format!("{place}: {fault}; name the announcer's ack by --announce-ack"),
    })?;
    let not_one = || {
        format!("{place} is no ack of an announcer; name the path of its --ack by --announce-ack")
    };
    let mut ack: Ack = serde_json::from_slice(&bytes).map_err(|_| not_one())?;
    if ack.version != Ack::VERSION {
        return Err(format!(
            "{place} is of version {}, and this page reads version {}; run both programs in the same version",
            ack.version,
            Ack::VERSION
        ));
    }
    // Those that need a look first; among those of one state the order of the file stays.
    ack.addresses.sort_by_key(|one| match one.state {
        State::Conflict => 0,
        State::NoInterface => 1,
        State::NotReady => 2,
        State::Held => 3,
        State::NotOurs => 4,
    });
    Ok(ack)
}

const SHARED_FOR: Duration = Duration::from_millis(500);
/// The longest time that a request of the page waits for the ack.
const PATIENCE: Duration = Duration::from_secs(1);
/// As many addresses as an announcer takes, and more.
const LARGEST: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A pipe is a disk that answers when somebody writes.
    #[tokio::test]
    async fn a_disk_that_does_not_answer_delays_nothing_but_the_ack() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ack");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let ack = AnnouncerAck {
            from: |path| Announced::new(Err(fs::read_to_string(path).unwrap()), None),
            ..AnnouncerAck::at(path.clone())
        };
        let began = Instant::now();
        let others = async {
            tokio::task::yield_now().await;
            began.elapsed()
        };
        let (one, same, others) = tokio::join!(ack.read(), ack.read(), others);
        assert!(others < PATIENCE, "the thread was free: {others:?}");
        assert!(one.ack.as_ref().unwrap_err().contains("takes too long"));
        assert!(Arc::ptr_eq(&one, &same), "there is one read at a time");

        let mut writer = fs::File::options().write(true).open(&path).unwrap();
        writer.write_all(b"what it says").unwrap();
        drop(writer);
        support::pause_async(SHARED_FOR).await;
        assert_eq!(ack.read().await.ack.as_ref().unwrap_err(), "what it says");
    }
}
