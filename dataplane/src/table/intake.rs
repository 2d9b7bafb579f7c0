//! Watches the table and the files that it names, and reads them when they have changed.
//!
//! Renames, symlink swaps of ConfigMaps and edits in place are noticed: by inotify at once, and by polling within five seconds
//! where inotify cannot see them.

use std::ffi::OsString;
use std::fs::{self, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballast_core::table::Format;
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use crate::os::files::{self, NamedFiles, folder_of};
use crate::os::reserve;

mod check;
mod watch;

pub(crate) use check::ParsedTable;
pub use check::{Checked, FirstTable, Verdict, check};
use watch::{Origin, Watch};

#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    pub(crate) format: Format,
    /// The files that the previous table named, read together with this table.
    files: NamedFiles,
}

/// The result of reading the table.
#[derive(Debug)]
pub(crate) enum Found {
    /// The table has not changed.
    Nothing,
    /// The table is being written; read again after this time.
    Unfinished(Duration),
    /// A new table.
    Text(Text),
}

/// Which table is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// A table whose file, or a file that it names, was written or moved since it was read.
    Changed,
    /// A table whose content differs from what was noted.
    Other,
    /// Any table.
    Any,
}

/// The path of the table, and what was last read there.
#[derive(Debug)]
pub(crate) struct Intake {
    path: PathBuf,
    watch: Option<Watch>,
    /// The names of the files in the table, in its order.
    names: Vec<PathBuf>,
    files: Arc<NamedFiles>,
    /// The stamps of the table and of these files.
    stamps: Vec<Option<Stamp>>,
    digest: String,
    /// Since when the table is being written.
    writing: Option<Instant>,
}

impl Intake {
    /// Nothing has been read yet. Must be called within a runtime.
    pub(crate) fn new(path: PathBuf) -> Self {
        let watch = Watch::of(&folder_of(&path), names(&path))
            .inspect_err(
                |error| tracing::warn!(%error, "cannot watch the table; polling every 5 s"),
            )
            .ok();
        Self {
            path,
            watch,
            names: Vec::new(),
            files: Arc::default(),
            stamps: Vec::new(),
            digest: String::new(),
            writing: None,
        }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        folder_of(&self.path)
    }

    /// The files that the table names, as they were when it was read.
    pub(crate) fn files(&self) -> &Arc<NamedFiles> {
        &self.files
    }

    /// Returns when something may have changed.
    pub(crate) async fn changed(&mut self) {
        let look = sleep(POLL_INTERVAL);
        let Some(watch) = &mut self.watch else {
            return look.await;
        };
        tokio::select! {
            () = look => {}
            event = watch.event() => if let Err(error) = event {
                tracing::warn!(%error, "cannot watch the table any longer; polling every 5 s");
                self.watch = None;
            }
        }
    }

    /// Reads the table, unless it and the files that it names are unchanged. `Err` says in a sentence why there is no table.
    pub(crate) fn read(&mut self, which: Which) -> Result<Found, String> {
        let (path, format) = locate(&self.path)?;
        let mut stamps = vec![stamp(&path)];
        stamps.extend(self.stamps_of_files());
        if stamps.first() == self.stamps.first() {
            // This notice of the file that was read already came late.
            self.forget_origin();
        }
        if which == Which::Changed && stamps == self.stamps {
            return Ok(Found::Nothing);
        }
        is_file(&path)?;
        let cannot = |error| cannot_be_read(&path, &error);
        let file = reserve::open(&files::at_once(), &path).map_err(cannot)?;
        // The path may name another file by now. Everything below refers to the opened file.
        let entry = file.metadata().map_err(cannot)?;
        is_plain(&path, entry.file_type())?;
        if let Some(rest) = self.being_written(&path, &entry) {
            return Ok(Found::Unfinished(rest));
        }
        let bytes = read(file).map_err(cannot)?;
        if let Some(table) = stamps.first_mut() {
            *table = Some(Stamp::of(&entry));
        }
        self.stamps = stamps;
        self.forget_origin();
        let mut files = NamedFiles::default();
        files.read(&self.folder(), &self.names);
        if which != Which::Any && digest(&bytes, &self.names, &files) == self.digest {
            return Ok(Found::Nothing);
        }
        Ok(Found::Text(Text {
            bytes,
            format,
            files,
        }))
    }

    /// How long to wait because the table is being written in place: half of it may be a valid table, too. A table that was
    /// moved to its path is complete, and a table that was read already is not waited for.
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
        // Asked after the metadata was read, so that it describes how that file came.
        match self.origin(path) {
            Origin::Moved => return None,
            Origin::Unknown if !is_same_file => return None,
            Origin::Unknown | Origin::Created => {}
        }
        // A time in the future does not come from writing.
        let age = entry.modified().ok()?.elapsed().ok()?;
        SETTLED.checked_sub(age).filter(|rest| !rest.is_zero())
    }

    fn origin(&mut self, table: &Path) -> Origin {
        let Some(watch) = &mut self.watch else {
            // Without a watch the table is found by polling, and a little delay does not matter.
            return Origin::Created;
        };
        let origin = table.file_name().map(|name| watch.origin(name));
        match origin.unwrap_or(Origin::Unknown) {
            // A symbolic link is complete as soon as it exists.
            Origin::Created if table.is_symlink() => Origin::Moved,
            origin => origin,
        }
    }

    fn forget_origin(&mut self) {
        self.watch.iter_mut().for_each(Watch::forget);
    }

    /// Notes what was read, and reads the files that it names. Returns their common digest.
    pub(crate) fn note(&mut self, text: Text, names: Vec<PathBuf>) -> String {
        let mut files = text.files;
        if names != self.names {
            self.names = names;
            // The table's own stamp stays the one from before it was read, because the file may have been replaced since.
            self.stamps.truncate(1);
            let stamps: Vec<_> = self.stamps_of_files().collect();
            self.stamps.extend(stamps);
            files.retain(&self.names);
            files.read(&self.folder(), &self.names);
        }
        self.digest = digest(&text.bytes, &self.names, &files);
        self.files = Arc::new(files);
        self.digest.clone()
    }

    fn stamps_of_files(&self) -> impl Iterator<Item = Option<Stamp>> {
        let folder = self.folder();
        self.names.iter().map(move |name| stamp(&folder.join(name)))
    }
}

fn read_once(path: &Path) -> Result<(Vec<u8>, Format), String> {
    let (path, format) = locate(path)?;
    is_file(&path)?;
    let bytes = files::at_once().open(&path).and_then(read);
    let bytes = bytes.map_err(|error| cannot_be_read(&path, &error))?;
    Ok((bytes, format))
}

/// Refuses paths that cannot be read repeatedly: a pipe would deliver nothing more and block its reader. A missing file is not
/// an error here.
fn is_file(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(entry) => is_plain(path, entry.file_type()),
        Err(_) => Ok(()),
    }
}

fn is_plain(path: &Path, kind: FileType) -> Result<(), String> {
    match files::other_kind(kind) {
        None => Ok(()),
        Some(what) => Err(format!(
            "{}: is {what}, not a file; name a table, or the folder of one",
            path.display()
        )),
    }
}

/// The file names that the table may have in its folder.
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
        (false, false) => Err([&json, &yaml]
            .into_iter()
            .find_map(|table| leads_nowhere(table))
            .unwrap_or_else(|| {
                format!(
                    "{}: has no table; put table.json or table.yaml there",
                    path.display()
                )
            })),
    }
}

/// The message about a table that is a symbolic link to no file; `None`: the table is no link, or its link leads to a file.
fn leads_nowhere(table: &Path) -> Option<String> {
    let is_link = |path: &Path| {
        path.symlink_metadata()
            .is_ok_and(|entry| entry.is_symlink())
    };
    if !is_link(table) || table.exists() {
        return None;
    }
    let mut link = table.to_owned();
    for _ in 0..MOST_LINKS {
        let named = link.read_link().ok()?;
        let next = link.parent().unwrap_or_else(|| Path::new("")).join(&named);
        let why = match next.symlink_metadata() {
            Ok(entry) if entry.is_symlink() => {
                link = next;
                continue;
            }
            Ok(_) => return None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "where nothing is; put a table there, or change the link".to_owned()
            }
            Err(error) => format!("which cannot be reached: {error}"),
        };
        return Some(format!(
            "{}: is a link to {}, {why}",
            link.display(),
            named.display()
        ));
    }
    Some(format!(
        "{}: is a link that leads in a circle; have it lead to a table",
        table.display()
    ))
}

fn read(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST_READ).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn cannot_be_read(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => leads_nowhere(path).unwrap_or_else(|| {
            format!(
                "{}: there is no such file; name a table, or the folder of one",
                path.display()
            )
        }),
        io::ErrorKind::PermissionDenied => {
            format!(
                "{}: cannot be read: {error}; {}",
                path.display(),
                files::allow()
            )
        }
        _ => format!("{}: cannot be read: {error}", path.display()),
    }
}

/// The metadata by which a changed file is recognised without reading it.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

/// The stamp of the table at `path`, which may be a folder.
fn stamp_of_table(path: &Path) -> Option<Stamp> {
    stamp(&locate(path).ok()?.0)
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

/// The digest of the table and of every file that it names. A file that cannot be read counts too: its appearance is a change.
fn digest(table: &[u8], names: &[PathBuf], files: &NamedFiles) -> String {
    let mut whole = Sha256::new();
    whole.update(Sha256::digest(table));
    for name in names {
        match files.get(name) {
            Ok(bytes) => whole.update(Sha256::digest(bytes)),
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

/// With this interval, a change that inotify cannot see, such as in another folder, is served within five seconds.
const POLL_INTERVAL: Duration = Duration::from_secs(4);
/// A file that was not written for this time is complete.
const SETTLED: Duration = Duration::from_millis(200);
/// A table that is written continuously is read after this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// One byte more than a table may have, which shows that it is too large.
const MOST_READ: u64 = (64 << 20) + 1;
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
