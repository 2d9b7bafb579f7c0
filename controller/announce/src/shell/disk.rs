//! The thread that reads the file and writes the ack: a disk that stalls delays no datagram of the members.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ballast_core::table::Problem;
use tokio::sync::mpsc;

use super::files::{MOST_OF_KEYS, Wanted, beside, content, read, replace, touch};
use crate::ack::Ack;
use crate::file::LARGEST;

/// The files that were read: those that changed.
pub(super) type Found = mpsc::UnboundedReceiver<Result<Wanted, Vec<Problem>>>;

/// Asks the thread for something, and never waits for it.
pub(super) struct Disk(Arc<Asked>);

/// What the thread is to do.
#[derive(Default)]
struct Asked {
    wishes: Mutex<Wishes>,
    changed: Condvar,
}

/// The tasks of the thread: of several acks the newest, and of several looks one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wishes {
    ack: Option<Ack>,
    /// To look at the file, also if it has not changed.
    look: Option<bool>,
    is_last: bool,
    has_ended: bool,
}

impl Disk {
    /// Starts the thread for the file, and for the ack.
    pub(super) fn start(file: PathBuf, ack: PathBuf) -> io::Result<(Self, Found)> {
        let asked = Arc::<Asked>::default();
        let (finds, found) = mpsc::unbounded_channel();
        let mut files = Files::of(file, ack);
        let thread = thread::Builder::new().name("files".to_owned());
        let own = Arc::clone(&asked);
        thread.spawn(move || {
            loop {
                let wishes = own.next();
                files.write(wishes.ack);
                if let Some(found) = wishes.look.and_then(|again| files.look(again)) {
                    // At the end nobody listens.
                    finds.send(found).ok();
                }
                if wishes.is_last {
                    break;
                }
            }
            own.wish(|wishes| wishes.has_ended = true);
        })?;
        Ok((Self(asked), found))
    }

    /// Reads the file if it has changed, or `again` if it has not, and shows with the time of the ack that this process runs.
    pub(super) fn look(&self, again: bool) {
        self.0.wish(|wishes| {
            let before = wishes.look.unwrap_or_default();
            wishes.look = Some(before || again);
        });
    }

    /// Writes this ack, and none of those before it that still wait.
    pub(super) fn write(&self, ack: Ack) {
        self.0.wish(|wishes| wishes.ack = Some(ack));
    }

    /// Waits until the last ack is written, unless the disk stalls.
    pub(super) fn end(&self) {
        self.0.wish(|wishes| wishes.is_last = true);
        let wishes = self.0.lock();
        let has_more = |wishes: &mut Wishes| !wishes.has_ended;
        let ended = self.0.changed.wait_timeout_while(wishes, LAST, has_more);
        if ended.is_ok_and(|(_, waited)| waited.timed_out()) {
            tracing::error!(
                "the last ack was not written within 2 s: the disk stalls; see that of the ack's folder"
            );
        }
    }
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wish(&self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits for something to do.
    fn next(&self) -> Wishes {
        let has_none = |wishes: &mut Wishes| *wishes == Wishes::default();
        let wishes = self.changed.wait_while(self.lock(), has_none);
        std::mem::take(&mut *wishes.unwrap_or_else(PoisonError::into_inner))
    }
}

/// The files, as the thread knows them.
struct Files {
    file: PathBuf,
    /// The file of the keys, by the last good file.
    key: Option<PathBuf>,
    /// The content of both when they were read last.
    known: Option<[Vec<u8>; 2]>,
    path: PathBuf,
    ack: Option<Ack>,
    /// When the ack got its time. `None`: it is not written.
    written: Option<Instant>,
    /// Whether the last ack could not be written, which was told.
    has_failed: bool,
}

impl Files {
    fn of(file: PathBuf, path: PathBuf) -> Self {
        Self {
            file,
            key: None,
            known: None,
            path,
            ack: None,
            written: None,
            has_failed: false,
        }
    }

    fn look(&mut self, again: bool) -> Option<Result<Wanted, Vec<Problem>>> {
        let key = self.key.as_ref();
        let there = [
            content(&self.file, LARGEST + 1).unwrap_or_default(),
            key.and_then(|key| content(key, MOST_OF_KEYS).ok())
                .unwrap_or_default(),
        ];
        if !again && self.known.as_ref() == Some(&there) {
            return None;
        }
        self.known = Some(there);
        let found = read(&self.file);
        if let Ok(wanted) = &found {
            let members = wanted.file.members.as_ref();
            self.key = members.map(|members| beside(&self.file, &members.key_file));
        }
        Some(found)
    }

    /// Writes the ack if it is another one, could not be written, or is not there any more. Its time is at most [`Ack::OLDEST`] ago.
    fn write(&mut self, new: Option<Ack>) {
        if new.is_some() {
            (self.ack, self.written) = (new, None);
        }
        let Some(ack) = &self.ack else {
            return;
        };
        match self.written {
            Some(last) if last.elapsed() < BEAT_EVERY => return,
            Some(_) if touch(&self.path).is_ok() => {
                self.written = Some(Instant::now());
                return;
            }
            _ => self.written = None,
        }
        let bytes = serde_json::to_vec(ack).unwrap_or_default();
        match replace(&self.path, &bytes, 0o644) {
            Ok(()) => {
                self.written = Some(Instant::now());
                self.has_failed = false;
            }
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => {
                let path = self.path.display();
                tracing::error!(%error, "cannot write the ack {path}; it is tried again each second. See that its folder is there, has space, and may be written by this process");
            }
            Err(_) => {}
        }
    }
}

const BEAT_EVERY: Duration = Duration::from_secs(5);
const LAST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn ack(digest: &str) -> Ack {
        Ack {
            version: Ack::VERSION,
            file_digest: Some(digest.to_owned()),
            refused: None,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn of_what_waits_for_a_disk_that_stalls_the_newest_is_done() {
        let disk = Disk(Arc::default());
        disk.look(true);
        for digest in ["one", "two", "three"] {
            disk.write(ack(digest));
            disk.look(false);
        }
        let expected = Wishes {
            ack: Some(ack("three")),
            look: Some(true),
            ..Wishes::default()
        };
        assert_eq!(disk.0.next(), expected);
        assert_eq!(*disk.0.lock(), Wishes::default());
    }

    #[test]
    fn an_ack_that_was_deleted_or_could_not_be_written_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/ack.json");
        let mut files = Files::of(folder.path().join("announce.yaml"), path.clone());
        files.write(None);
        files.write(Some(ack("one")));
        assert!(files.has_failed && files.written.is_none());
        fs::create_dir(folder.path().join("sub")).unwrap();
        files.write(None);
        let digest = || {
            let ack: Ack = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            ack.file_digest.unwrap()
        };
        assert_eq!(digest(), "one");
        fs::remove_file(&path).unwrap();
        files.write(None);
        assert!(!path.exists(), "it is not looked at each time");
        files.written = Instant::now().checked_sub(BEAT_EVERY);
        files.write(None);
        assert_eq!(digest(), "one");
        files.write(Some(ack("two")));
        assert_eq!(digest(), "two");
    }

    #[test]
    fn the_file_is_told_when_it_or_its_key_changed_and_the_last_ack_is_there_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let minimal = include_str!("../../../../templates/announce-minimal.yaml");
        let (disk, mut found) = Disk::start(at("announce.yaml"), at("ack.json")).unwrap();
        let mut next = |again| {
            disk.look(again);
            found.blocking_recv().unwrap().is_ok()
        };
        assert!(!next(false), "there is none");
        fs::write(at("announce.yaml"), minimal).unwrap();
        assert!(!next(false), "it has no key");
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
        fs::write(at("members.key"), key).unwrap();
        assert!(next(true));
        assert!(next(false), "the place of the key is known now");
        fs::write(at("members.key"), "x").unwrap();
        assert!(!next(false));
        disk.look(false);
        disk.write(ack("last"));
        disk.end();
        assert!(found.try_recv().is_err(), "nothing has changed");
        assert!(fs::read_to_string(at("ack.json")).unwrap().contains("last"));
    }
}
