//! Watches the table and the files that it names, and reads them when they changed.
//!
//! A rename, a ConfigMap's symlink swap and an edit in place are all seen: by inotify at once, and by a look every five
//! seconds where inotify cannot see.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ballast_core::table::Format;
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use crate::reserve;

mod check;
pub(crate) mod named;
mod watch;

pub(crate) use check::table_at;
pub use check::{check, warnings};
use watch::{Came, Watch};

/// The text of a table.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    pub(crate) format: Format,
}

/// What a look at the table's place has found.
#[derive(Debug)]
pub(crate) enum Found {
    /// What was there before.
    Nothing,
    /// Something that somebody writes just now, to be left alone for so long.
    Unfinished(Duration),
    /// A table.
    Text(Text),
}

/// Which table is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// One whose file, or a file that it names, was written or moved since it was read.
    Changed,
    /// One that differs from what was noted.
    Other,
    /// Whatever is there.
    Any,
}

/// The table's place, and what was last seen there.
#[derive(Debug)]
pub(crate) struct Intake {
    path: PathBuf,
    watch: Option<Watch>,
    named: Vec<PathBuf>,
    stamps: Vec<Option<Stamp>>,
    digest: String,
    /// Since when somebody writes the table.
    writing: Option<Instant>,
}

impl Intake {
    /// Nothing has been seen yet. Within a runtime only.
    pub(crate) fn new(path: PathBuf) -> Self {
        let watch = Watch::of(&folder_of(&path), names(&path))
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
            writing: None,
        }
    }

    /// The folder of the table.
    pub(crate) fn folder(&self) -> PathBuf {
        folder_of(&self.path)
    }

    /// Returns when something may have changed.
    pub(crate) async fn changed(&mut self) {
        let look = sleep(LOOK_EVERY);
        let Some(watch) = &mut self.watch else {
            return look.await;
        };
        tokio::select! {
            () = look => {}
            heard = watch.happened() => if let Err(error) = heard {
                tracing::warn!(%error, "cannot watch the table any longer; looking every 5 s");
                self.watch = None;
            }
        }
    }

    /// Reads the table, unless it and the files that it names are what they were. `Err` says in a sentence why there is none.
    pub(crate) fn read(&mut self, which: Which) -> Result<Found, String> {
        let (path, format) = locate(&self.path)?;
        let mut stamps = stamps(&path, &self.named);
        if stamps.first() == self.stamps.first() {
            // How it came has been heard of too late.
            self.forget_how_it_came();
        }
        if which == Which::Changed && stamps == self.stamps {
            return Ok(Found::Nothing);
        }
        is_file(&path)?;
        let cannot = |error| cannot_be_read(&path, &error);
        let file = reserve::open(OpenOptions::new().read(true), &path).map_err(cannot)?;
        // It may be another one by now; this one is read, and none else.
        let entry = file.metadata().map_err(cannot)?;
        if let Some(rest) = self.being_written(&path, &entry) {
            return Ok(Found::Unfinished(rest));
        }
        let bytes = read(file).map_err(cannot)?;
        if let Some(table) = stamps.first_mut() {
            *table = Some(Stamp::of(&entry));
        }
        self.stamps = stamps;
        self.forget_how_it_came();
        if which != Which::Any && digest(&bytes, &self.named) == self.digest {
            return Ok(Found::Nothing);
        }
        Ok(Found::Text(Text { bytes, format }))
    }

    /// How long to leave the table alone, because somebody writes it just now where it is: half of it may be a table, too.
    /// One that was moved there is whole, and what was read already is waited for by nobody.
    fn being_written(&mut self, path: &Path, entry: &Metadata) -> Option<Duration> {
        let rest = self.unsettled(path, entry);
        let began = rest.map(|_| self.writing.unwrap_or_else(Instant::now));
        self.writing = began.filter(|began| began.elapsed() < PATIENCE);
        rest.filter(|_| self.writing.is_some())
    }

    fn unsettled(&mut self, path: &Path, entry: &Metadata) -> Option<Duration> {
        let now = Stamp::of(entry);
        let known = self.stamps.first().and_then(Option::as_ref);
        if known == Some(&now) {
            return None;
        }
        let is_same_file = known.is_some_and(|known| known.is_same_file(&now));
        // Asked after the look at the file, so that it tells how that one came.
        match self.came(path) {
            Came::Whole => return None,
            Came::Unheard if !is_same_file => return None,
            Came::Unheard | Came::Empty => {}
        }
        // A time that is yet to come was not made by writing.
        let age = entry.modified().ok()?.elapsed().ok()?;
        SETTLED.checked_sub(age).filter(|rest| !rest.is_zero())
    }

    fn came(&mut self, table: &Path) -> Came {
        let Some(watch) = &mut self.watch else {
            // Then it is found by a look now and then, and a little later does not matter.
            return Came::Empty;
        };
        let came = table.file_name().map(|name| watch.came(name));
        match came.unwrap_or(Came::Unheard) {
            // A link is whole as soon as it is there.
            Came::Empty if table.is_symlink() => Came::Whole,
            came => came,
        }
    }

    fn forget_how_it_came(&mut self) {
        self.watch.iter_mut().for_each(Watch::forget);
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
fn read_once(path: &Path) -> Result<(Vec<u8>, Format), String> {
    let (path, format) = locate(path)?;
    let bytes = File::open(&path).and_then(read);
    let bytes = bytes.map_err(|error| cannot_be_read(&path, &error))?;
    Ok((bytes, format))
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

/// The names that the table may have in its folder.
fn names(path: &Path) -> Vec<OsString> {
    if path.is_dir() {
        return vec!["table.json".into(), "table.yaml".into()];
    }
    path.file_name().map(Into::into).into_iter().collect()
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

fn read(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST_READ).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn cannot_be_read(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{}: there is no such file; name a table, or the folder of one",
            path.display()
        ),
        _ => format!("{}: cannot be read: {error}", path.display()),
    }
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
    Some(Stamp::of(&fs::metadata(path).ok()?))
}

impl Stamp {
    fn of(entry: &Metadata) -> Self {
        Self {
            device: entry.dev(),
            inode: entry.ino(),
            size: entry.size(),
            changed: (entry.ctime(), entry.ctime_nsec()),
            modified: (entry.mtime(), entry.mtime_nsec()),
        }
    }

    fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Of the table and of every file that it names. One that cannot be read has a digest too: its coming is a change.
fn digest(table: &[u8], named: &[PathBuf]) -> String {
    let mut whole = Sha256::new();
    whole.update(Sha256::digest(table));
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

/// So that what inotify cannot see, such as a named file in another folder, is served within five seconds.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// A file that was not written to for so long is whole.
const SETTLED: Duration = Duration::from_millis(200);
/// Somebody who writes again and again is waited for so long; then what is there is read.
const PATIENCE: Duration = Duration::from_secs(2);
/// A byte more than a table may have: enough to see that it has too many.
const MOST_READ: u64 = (64 << 20) + 1;
