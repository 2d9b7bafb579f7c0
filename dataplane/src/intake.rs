//! Watches the table and the files that it names, and reads them when they changed.
//!
//! A rename, a ConfigMap's symlink swap and an edit in place are all seen: by inotify at once, and by a look every five
//! seconds where inotify cannot see.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_core::breath;
use ballast_core::table::Format;
use rustix::fs::inotify;
use sha2::{Digest, Sha256};
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use crate::sys;

pub(crate) mod named;

/// What was found at the table's place.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    pub(crate) format: Format,
}

/// The table's place, and what was last seen there.
#[derive(Debug)]
pub(crate) struct Intake {
    path: PathBuf,
    watch: Option<AsyncFd<OwnedFd>>,
    named: Vec<PathBuf>,
    stamps: Vec<Option<Stamp>>,
    digest: String,
}

impl Intake {
    /// Nothing has been seen yet. Within a runtime only.
    pub(crate) fn new(path: PathBuf) -> Self {
        let watch = watch(&folder_of(&path))
            .inspect_err(
                |error| tracing::warn!(%error, "cannot watch the table; looking every 5 s"),
            )
            .ok();
        Self {
            path,
            watch,
            named: Vec::new(),
            stamps: Vec::new(),
            digest: String::new(),
        }
    }

    /// The folder of the table.
    pub(crate) fn folder(&self) -> PathBuf {
        folder_of(&self.path)
    }

    /// Returns when something may have changed.
    pub(crate) async fn changed(&self) {
        match &self.watch {
            Some(watch) => tokio::select! {
                () = heard(watch) => {}
                () = sleep(LOOK_EVERY) => {}
            },
            None => sleep(LOOK_EVERY).await,
        }
    }

    /// How long to wait before reading, because somebody edits the table in place just now: half of it may be a table,
    /// too. One that came by a rename is whole.
    pub(crate) fn being_written(&self) -> Option<Duration> {
        let (path, _) = locate(&self.path).ok()?;
        let known = self.stamps.first()?.as_ref()?;
        let entry = fs::metadata(path).ok()?;
        if (entry.dev(), entry.ino()) != (known.device, known.inode) {
            return None;
        }
        let age = entry.modified().ok()?.elapsed().unwrap_or_default();
        SETTLED.checked_sub(age).filter(|rest| !rest.is_zero())
    }

    /// Reads the table if it, or a file that it names, is not what it was. `Err` says in a sentence why there is none.
    pub(crate) fn read(&mut self, anyhow: bool) -> Result<Option<Text>, String> {
        let (path, format) = locate(&self.path)?;
        let stamps = stamps(&path, &self.named);
        if !anyhow && stamps == self.stamps {
            return Ok(None);
        }
        is_file(&path)?;
        let bytes = read(&path)?;
        self.stamps = stamps;
        if !anyhow && digest(&bytes, &self.named) == self.digest {
            return Ok(None);
        }
        Ok(Some(Text { bytes, format }))
    }

    /// Remembers what was read, with the files that it names; returns their common digest.
    pub(crate) fn note(&mut self, text: &Text, named: Vec<PathBuf>) -> String {
        if named != self.named {
            // The table's own stamp stays the one from before it was read: another table may have come meanwhile.
            self.stamps.truncate(1);
            self.stamps.extend(named.iter().map(|path| stamp(path)));
            self.named = named;
        }
        self.digest = digest(&text.bytes, &self.named);
        self.digest.clone()
    }
}

/// Reads the one table that is at `path`.
pub fn read_once(path: &Path) -> Result<(Vec<u8>, Format), String> {
    let (path, format) = locate(path)?;
    Ok((read(&path)?, format))
}

/// What is read again and again must be a file: a pipe would have nothing more to say, and keep its reader waiting for
/// it. What is not there is no fault of that kind.
pub(crate) fn is_file(path: &Path) -> Result<(), String> {
    let kind = fs::metadata(path).ok().map(|entry| entry.file_type());
    match kind.and_then(named::what_else) {
        None => Ok(()),
        Some(what) => Err(format!(
            "{}: is {what}, not a file; name a table, or the folder of one",
            path.display()
        )),
    }
}

/// The table's file: `path` itself, or the one table in that folder.
fn locate(path: &Path) -> Result<(PathBuf, Format), String> {
    if !path.is_dir() {
        let json = path
            .extension()
            .is_some_and(|extension| extension == "json");
        return Ok((path.into(), if json { Format::Json } else { Format::Yaml }));
    }
    let (json, yaml) = (path.join("table.json"), path.join("table.yaml"));
    match (json.exists(), yaml.exists()) {
        (true, false) => Ok((json, Format::Json)),
        (false, true) => Ok((yaml, Format::Yaml)),
        (true, true) => Err(format!(
            "{}: has both table.json and table.yaml, and only one can be the table; remove one",
            path.display()
        )),
        (false, false) => Err(format!(
            "{}: has no table; put table.json or table.yaml there",
            path.display()
        )),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_READ).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{}: there is no such file; name a table, or the folder of one",
            path.display()
        ),
        _ => format!("{}: cannot be read: {error}", path.display()),
    })
}

/// The folder against which names in the table at `path` are meant.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.into();
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.into(),
        _ => PathBuf::from("."),
    }
}

/// What a look at a file's entry tells, without reading it.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

fn stamps(table: &Path, named: &[PathBuf]) -> Vec<Option<Stamp>> {
    std::iter::once(table)
        .chain(named.iter().map(PathBuf::as_path))
        .map(stamp)
        .collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let entry = fs::metadata(path).ok()?;
    Some(Stamp {
        device: entry.dev(),
        inode: entry.ino(),
        size: entry.size(),
        changed: (entry.ctime(), entry.ctime_nsec()),
        modified: (entry.mtime(), entry.mtime_nsec()),
    })
}

/// Of the table and of every file that it names. One that cannot be read has a digest too: its coming is a change.
fn digest(table: &[u8], named: &[PathBuf]) -> String {
    let (mut whole, mut text) = (Sha256::new(), Sha256::new());
    for part in table.chunks(A_PART) {
        text.update(part);
        breath::take();
    }
    whole.update(text.finalize());
    for path in named {
        match named::digest(path) {
            Ok(digest) => whole.update(digest),
            Err(_) => whole.update([0]),
        }
    }
    let hex: String = whole
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

fn watch(folder: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let events = inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE;
    inotify::add_watch(&watch, folder, events)?;
    sys::watched(watch)
}

async fn heard(watch: &AsyncFd<OwnedFd>) {
    let Ok(mut ready) = watch.readable().await else {
        return sleep(LOOK_EVERY).await;
    };
    // What happened does not matter: a look will tell.
    let mut events = [0; 4096];
    while rustix::io::read(watch.get_ref(), &mut events).is_ok_and(|read| read > 0) {}
    ready.clear_ready();
}

/// So that what inotify cannot see, such as a named file in another folder, is served within five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// A file that was not written to for so long is whole.
const SETTLED: Duration = Duration::from_millis(200);
/// A byte more than a table may have: enough to see that it has too many.
const MOST_READ: u64 = (64 << 20) + 1;
/// Hashed within microseconds.
const A_PART: usize = 4 << 10;
