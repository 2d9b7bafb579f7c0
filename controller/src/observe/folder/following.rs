//! Follows a folder of manifests. Called by `run --manifests`.
//!
//! A file that was renamed into the folder, or closed after writing, is read at once, and so are all files of a ConfigMap after the
//! swap of its link. A file that is being written is read after a pause of its writer. A file counts as deleted after a pause, too,
//! because an editor may replace it. inotify reports changes; a scan every [`SCAN_EVERY`] finds the rest. While a file, or one of
//! its documents, cannot be read, the last good content of the file stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::inotify;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::super::debounce::Debouncer;
use super::super::{Earlier, Key, Observed, Wanted};
use super::{BadDocument, is_manifest};
use crate::follow;
use crate::settings::Settings;

/// Sends the state of the folder after every change, and calls `bad` when the set of bad documents changed. Never returns; ends by
/// being dropped.
pub async fn watch(
    folder: PathBuf,
    settings: Arc<Settings>,
    earlier: Earlier,
    wanted: watch::Receiver<Wanted>,
    observed: watch::Sender<Option<Arc<Observed>>>,
    mut bad: impl FnMut(&[BadDocument]),
) {
    let mut debouncer = Debouncer::new(None, settings.flags.dns_min_ttl, earlier, wanted, observed);
    let watcher = FolderWatcher::new(&folder);
    let mut files = Files::default();
    let mut seen = None;
    let mut known_bad = Vec::new();
    let mut complete = Complete::All;
    loop {
        let place = folder.clone();
        // Large folders take a while, and small ones may lie on a slow disk.
        let scanned = spawn_blocking(move || {
            let scan = files.scan(&place, &complete);
            (files, scan)
        });
        let Ok((same_files, scan)) = scanned.await else {
            // The runtime ends.
            return;
        };
        files = same_files;
        if let Some((mut all, wrong)) = scan.found {
            let is_seen = |key: &Key| settings.looks_at(&key.namespace);
            all.services.retain(|key, _| is_seen(key));
            all.slices.retain(|key, _| is_seen(key));
            if files.was_read {
                seen = Some(all);
                debouncer.changed();
            }
            if wrong != known_bad {
                bad(&wrong);
                known_bad = wrong;
            }
        }
        let pause = scan.again_in.unwrap_or(SCAN_EVERY);
        complete = wait(&watcher, &folder, pause, &mut debouncer, seen.as_ref()).await;
    }
}

/// Waits until the folder may have changed, and sends the state that is due meanwhile.
async fn wait(
    watcher: &FolderWatcher,
    folder: &Path,
    pause: Duration,
    debouncer: &mut Debouncer,
    seen: Option<&Observed>,
) -> Complete {
    let pause = sleep(pause);
    tokio::pin!(pause);
    loop {
        tokio::select! {
            complete = watcher.changed() => return complete,
            () = &mut pause => {
                watcher.watch(folder);
                return Complete::default();
            }
            () = debouncer.due(), if seen.is_some() => {
                if let Some(seen) = seen {
                    debouncer.send(seen.clone());
                }
            }
        }
    }
}

/// The files as they were read last.
#[derive(Debug, Default)]
struct Files {
    known: BTreeMap<PathBuf, ManifestFile>,
    /// The reason for which the folder itself cannot be read.
    unreadable: Option<String>,
    /// Whether the folder could be read once. Before, nothing is sent.
    was_read: bool,
}

#[derive(Debug)]
struct ManifestFile {
    stamp: Stamp,
    /// The last good text; if there never was one, the current one.
    text: String,
    is_good: bool,
    bad: Vec<BadDocument>,
    missing_since: Option<Instant>,
}

struct Scan {
    /// The state of all files together; `None`: nothing changed.
    found: Option<(Observed, Vec<BadDocument>)>,
    /// The pause before the next scan, if a file is being written.
    again_in: Option<Duration>,
}

impl Files {
    fn scan(&mut self, folder: &Path, complete: &Complete) -> Scan {
        let mut scan = Scan {
            found: None,
            again_in: None,
        };
        let listed = fs::read_dir(folder)
            .and_then(|entries| {
                let paths = entries.map(|entry| Ok(entry?.path()));
                paths.collect::<io::Result<Vec<PathBuf>>>()
            })
            .map_err(|error| format!("cannot be read: {error}"));
        let mut changed = listed.as_ref().err() != self.unreadable.as_ref();
        match listed {
            Ok(paths) => {
                changed |= self.read_changed(paths, complete, &mut scan.again_in) || !self.was_read;
                self.was_read = true;
                self.unreadable = None;
            }
            Err(why) => self.unreadable = Some(why),
        }
        scan.found = changed.then(|| self.together(folder));
        scan
    }

    /// Reads the files that changed. Returns whether any did.
    fn read_changed(
        &mut self,
        paths: Vec<PathBuf>,
        complete: &Complete,
        again_in: &mut Option<Duration>,
    ) -> bool {
        let there: BTreeSet<PathBuf> = paths.into_iter().filter(|path| is_manifest(path)).collect();
        let mut changed = self.forget_missing(&there, again_in);
        for path in there {
            // `None`: the file went away meanwhile, and the next scan decides.
            let Some((stamp, age)) = stamp(&path) else {
                sooner(again_in, SETTLED);
                continue;
            };
            let known = self.known.get(&path);
            if known.is_some_and(|file| file.stamp == stamp) {
                continue;
            }
            let rest = SETTLED.saturating_sub(age);
            if !complete.contains(&path) && !rest.is_zero() {
                sooner(again_in, rest);
                continue;
            }
            changed = true;
            let last = self.known.remove(&path);
            self.known.insert(path.clone(), read(&path, stamp, last));
        }
        changed
    }

    /// Drops the files that stayed away. An editor may rename a file and write a new one in its place.
    fn forget_missing(
        &mut self,
        there: &BTreeSet<PathBuf>,
        again_in: &mut Option<Duration>,
    ) -> bool {
        let before = self.known.len();
        let now = Instant::now();
        let is_missing = |path: &PathBuf| !there.contains(path);
        let mut inodes = BTreeSet::new();
        if self.known.keys().any(is_missing) {
            let stamps = there.iter().filter_map(|path| stamp(path));
            inodes.extend(stamps.map(|(stamp, _)| stamp.file()));
        }
        self.known.retain(|path, file| {
            if !is_missing(path) {
                file.missing_since = None;
                return true;
            }
            // The file was renamed.
            if inodes.contains(&file.stamp.file()) {
                return false;
            }
            let since = *file.missing_since.get_or_insert(now);
            let rest = SETTLED.saturating_sub(now.saturating_duration_since(since));
            if !rest.is_zero() {
                sooner(again_in, rest);
            }
            !rest.is_zero()
        });
        self.known.len() != before
    }

    fn together(&self, folder: &Path) -> (Observed, Vec<BadDocument>) {
        let mut all = Observed::default();
        let mut bad = Vec::new();
        if let Some(why) = &self.unreadable {
            bad.push(BadDocument {
                file: folder.display().to_string(),
                document: 1,
                why: why.clone(),
            });
        }
        for (path, file) in &self.known {
            let wrong = all.take_file(&name(path), &file.text);
            // Of a file whose last good content stays, the current mistakes count.
            bad.extend(match file.bad.is_empty() {
                true => wrong,
                false => file.bad.clone(),
            });
        }
        (all, bad)
    }
}

fn sooner(again_in: &mut Option<Duration>, rest: Duration) {
    *again_in = Some(again_in.map_or(rest, |other| other.min(rest)));
}

fn read(path: &Path, stamp: Stamp, last: Option<ManifestFile>) -> ManifestFile {
    let text = match fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(_)) => Err("is not UTF-8".to_owned()),
        Err(error) => Err(format!("cannot be read: {error}")),
    };
    let bad = match &text {
        Ok(text) => Observed::default().take_file(&name(path), text),
        Err(why) => vec![BadDocument {
            file: name(path),
            document: 1,
            why: why.clone(),
        }],
    };
    let text = text.unwrap_or_default();
    match last {
        Some(last) if !bad.is_empty() && last.is_good => ManifestFile { stamp, bad, ..last },
        _ => ManifestFile {
            stamp,
            text,
            is_good: bad.is_empty(),
            bad,
            missing_since: None,
        },
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The metadata by which a changed file is found without reading it.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// The identity of the file, whatever its content.
    fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// The metadata of a file, and the time since it was written. Links are followed.
fn stamp(path: &Path) -> Option<(Stamp, Duration)> {
    let entry = fs::metadata(path).ok()?;
    let age = entry.modified().ok().and_then(|modified| {
        // A time in the future counts as old.
        SystemTime::now().duration_since(modified).ok()
    });
    let stamp = Stamp {
        device: entry.dev(),
        inode: entry.ino(),
        size: entry.size(),
        changed: (entry.ctime(), entry.ctime_nsec()),
    };
    Some((stamp, age.unwrap_or(SETTLED)))
}

/// The files that are known to be completely written.
#[derive(Debug)]
enum Complete {
    All,
    These(BTreeSet<Vec<u8>>),
}

impl Default for Complete {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Complete {
    fn contains(&self, path: &Path) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => path
                .file_name()
                .is_some_and(|name| names.contains(name.as_encoded_bytes())),
        }
    }
}

/// Watches a folder for changes.
struct FolderWatcher {
    inotify: Option<pipe::Receiver>,
}

impl FolderWatcher {
    fn new(folder: &Path) -> Self {
        let inotify = follow::listener().inspect_err(|error| {
            tracing::warn!(%error, "cannot watch {}; looking now and then", folder.display());
        });
        let watcher = Self {
            inotify: inotify.ok(),
        };
        watcher.watch(folder);
        watcher
    }

    /// Watches the current folder at the path: it may be another folder than before.
    fn watch(&self, folder: &Path) {
        if let Some(inotify) = &self.inotify
            && let Err(error) = follow::listen(inotify, folder)
        {
            tracing::debug!(%error, "cannot watch {}", folder.display());
        }
    }

    /// Returns after a change, with the files that are completely written now.
    async fn changed(&self) -> Complete {
        let Some(inotify) = &self.inotify else {
            return std::future::pending().await;
        };
        if inotify.readable().await.is_err() {
            return std::future::pending().await;
        }
        let mut names = BTreeSet::new();
        let mut swapped = false;
        let mut buffer = [0; 8192];
        while let Ok(read @ 1..) = inotify.try_read(&mut buffer) {
            for (mask, name) in events(buffer.get(..read).unwrap_or_default()) {
                // The kernel dropped events.
                swapped |= mask.contains(inotify::ReadFlags::QUEUE_OVERFLOW);
                if mask.intersects(inotify::ReadFlags::CLOSE_WRITE | inotify::ReadFlags::MOVED_TO) {
                    // `..data` is the link through which every file of a ConfigMap is reached.
                    swapped |= name.starts_with(b"..");
                    names.insert(name.to_vec());
                }
            }
        }
        match swapped {
            true => Complete::All,
            false => Complete::These(names),
        }
    }
}

/// The events in the kernel's format (inotify(7)), with the name of the file.
fn events(mut bytes: &[u8]) -> Vec<(inotify::ReadFlags, &[u8])> {
    let mut events = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<16>() {
        let field = |at: usize| {
            let field = head.get(at..).and_then(|rest| rest.first_chunk());
            u32::from_ne_bytes(field.copied().unwrap_or_default())
        };
        let length = usize::try_from(field(12)).unwrap_or(usize::MAX);
        let Some((name, rest)) = rest.split_at_checked(length) else {
            break;
        };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        events.push((inotify::ReadFlags::from_bits_retain(field(4)), name));
        bytes = rest;
    }
    events
}

/// Finds the changes that inotify does not report, such as those of network file systems.
const SCAN_EVERY: Duration = Duration::from_secs(4);
/// A file without writes for so long is complete, and a file that was away for so long is deleted.
const SETTLED: Duration = Duration::from_millis(200);
