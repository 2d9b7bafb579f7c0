//! Follows a folder of manifests. Called by `run --manifests`.
//!
//! inotify reports that something changed, and a look every [`LOOK_EVERY`] finds the rest. A file that changed is read once it was
//! the same in two looks, [`SETTLED`] apart, and a file that is missing is forgotten then: a file may be half written, and an editor
//! may put one aside to replace it. A file that changes all the time is read after [`PATIENCE`]. What changes while it is read is not
//! used. While a file, or one of its documents, cannot be read, the last good content of the file stays: that which was read last, or the
//! copy that an earlier process has [`Kept`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::super::debounce::Debouncer;
use super::super::{Earlier, Key, Observed, Wanted};
use super::{BadDocument, Kept, NOT_UTF8, is_manifest, is_readable};
use crate::follow::Follow;
use crate::settings::Settings;

/// Sends the state of the folder after every change, and calls `bad` when the set of bad documents changed. The last good content of
/// each file is `kept`, if somewhere. Never returns; ends by being dropped.
pub async fn watch(
    folder: PathBuf,
    kept: Option<Kept>,
    settings: Arc<Settings>,
    earlier: Earlier,
    wanted: watch::Receiver<Wanted>,
    observed: watch::Sender<Option<Arc<Observed>>>,
    mut bad: impl FnMut(&[BadDocument]),
) {
    let mut debouncer = Debouncer::new(None, settings.flags.dns_min_ttl, earlier, wanted, observed);
    let mut follow = Follow::folder(&folder, LOOK_EVERY);
    let mut files = Files {
        kept,
        ..Files::default()
    };
    let mut seen = None;
    let mut known_bad = Vec::new();
    loop {
        let place = folder.clone();
        // Large folders take a while, and small ones may lie on a slow disk.
        let looked = spawn_blocking(move || {
            let look = files.look(&place, Instant::now());
            (files, look)
        });
        let Ok((same_files, look)) = looked.await else {
            // The runtime ends.
            return;
        };
        files = same_files;
        if let Some((mut all, wrong)) = look.found {
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
        wait(&mut follow, look.is_settling, &mut debouncer, seen.as_ref()).await;
    }
}

/// Waits until the folder is to be looked at again, and sends the state that is due meanwhile.
async fn wait(
    follow: &mut Follow,
    is_settling: bool,
    debouncer: &mut Debouncer,
    seen: Option<&Observed>,
) {
    let again = async {
        match is_settling {
            true => sleep(SETTLED).await,
            false => follow.changed().await,
        }
    };
    tokio::pin!(again);
    loop {
        tokio::select! {
            () = &mut again => return,
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
    kept: Option<Kept>,
    known: BTreeMap<PathBuf, ManifestFile>,
    /// The files that were there at the last look.
    there: Stamps,
    /// The files that changed at each look since this time, and were not read.
    restless: BTreeMap<PathBuf, Instant>,
    /// The reason for which the folder itself cannot be read.
    unreadable: Option<String>,
    /// Whether all files of the folder could be read once. Before, nothing is sent.
    was_read: bool,
}

#[derive(Debug)]
struct ManifestFile {
    stamp: Stamp,
    /// The last good text; if there never was one, the current one.
    text: String,
    is_good: bool,
    bad: Vec<BadDocument>,
    copy: OnDisk,
}

/// The copy of a file that is [`Kept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDisk {
    /// It is the text.
    Same,
    /// It is an older text, or is not there.
    Older,
    /// The same, since it could not be written, which was told.
    Refused,
}

/// The result of a look at the folder.
struct Look {
    /// The state of all files together; `None`: nothing changed.
    found: Option<(Observed, Vec<BadDocument>)>,
    /// Whether a file has changed since the last look. It is read if the next look finds it as it is.
    is_settling: bool,
}

impl Files {
    /// Reads the files that changed before the last look, and not since. The first time, all files are read.
    fn look(&mut self, folder: &Path, now: Instant) -> Look {
        let listed = stamps(folder).map_err(|error| {
            format!("cannot be read: {error}; --manifests names the folder that has the manifests")
        });
        let unreadable = listed.as_ref().err().cloned();
        let mut changed = unreadable != self.unreadable;
        self.unreadable = unreadable;
        let mut is_settling = false;
        if let Ok(there) = listed {
            let taken = self.take(there, now);
            changed |= taken.changed;
            is_settling = taken.is_settling;
            if !is_settling && !self.was_read {
                self.was_read = true;
                if let Some(kept) = &self.kept {
                    kept.forget_others(self.known.keys());
                }
            }
        }
        Look {
            found: changed.then(|| self.together(folder)),
            is_settling,
        }
    }

    /// Reads what is to be read of the files that are there.
    fn take(&mut self, there: Stamps, now: Instant) -> Taken {
        let before = mem::replace(&mut self.there, there);
        let mut taken = Taken {
            changed: !self.was_read,
            is_settling: false,
        };
        let known = self.known.keys();
        let paths: BTreeSet<PathBuf> = known.chain(self.there.keys()).cloned().collect();
        self.restless.retain(|path, _| paths.contains(path));
        for path in paths {
            let stamp = self.there.get(&path).cloned();
            if self.known.get(&path).map(|file| &file.stamp) == stamp.as_ref() {
                self.restless.remove(&path);
                continue;
            }
            let since = *self.restless.entry(path.clone()).or_insert(now);
            let is_due = now.saturating_duration_since(since) >= PATIENCE;
            let is_settled = !self.was_read || before.get(&path) == stamp.as_ref();
            let Some(stamp) = stamp else {
                match is_settled {
                    true => {
                        taken.changed |= self.known.remove(&path).is_some();
                        self.kept.iter().for_each(|kept| kept.forget(&path));
                    }
                    false => taken.is_settling = true,
                }
                continue;
            };
            let text = match is_settled || is_due {
                true => read(&path, &stamp),
                false => Err(NoText::Changing),
            };
            if matches!(text, Err(NoText::Changing)) && !is_due {
                taken.is_settling = true;
                continue;
            }
            self.restless.remove(&path);
            let last = self.known.remove(&path);
            let last = last.or_else(|| self.kept.as_ref()?.read(&path).map(ManifestFile::earlier));
            let before = last.as_ref().map(|last| (last.text.clone(), last.copy));
            let mut file = ManifestFile::new(&path, stamp, text, last);
            file.copy = match before {
                Some((text, copy)) if text == file.text => copy,
                _ => OnDisk::Older,
            };
            self.known.insert(path, file);
            taken.changed = true;
        }
        self.keep();
        taken
    }

    /// Keeps the files whose copies are older; one that could not be kept is tried again at the next look.
    fn keep(&mut self) {
        let Some(kept) = &self.kept else {
            return;
        };
        let files = self.known.iter_mut();
        for (path, file) in files.filter(|(_, file)| file.is_good && file.copy != OnDisk::Same) {
            let was_told = file.copy == OnDisk::Refused;
            file.copy = match kept.write(path, &file.text, was_told) {
                true => OnDisk::Same,
                false => OnDisk::Refused,
            };
        }
    }

    fn together(&self, folder: &Path) -> (Observed, Vec<BadDocument>) {
        let mut all = Observed::default();
        let mut bad = Vec::new();
        if let Some(why) = &self.unreadable {
            bad.push(BadDocument::of_file(&folder.display().to_string(), why));
        }
        for (path, file) in &self.known {
            let wrong = all.take_file(&name(path), &file.text);
            // Of a file whose last good content stays, the current mistakes count.
            if is_readable(&file.bad) {
                bad.extend(wrong);
                continue;
            }
            bad.extend(file.bad.iter().cloned());
            let then = match file.is_good {
                true => LAST_GOOD_STAYS,
                false => NEVER_GOOD,
            };
            bad.push(BadDocument::of_file(&name(path), then));
        }
        (all, bad)
    }
}

/// What a look has done about the files.
struct Taken {
    /// Whether the content of a file is another one now.
    changed: bool,
    is_settling: bool,
}

impl ManifestFile {
    /// A file as an earlier process has read it.
    fn earlier(text: String) -> Self {
        Self {
            stamp: Stamp::Unreadable(String::new()),
            text,
            is_good: true,
            bad: Vec::new(),
            copy: OnDisk::Same,
        }
    }

    fn new(path: &Path, stamp: Stamp, text: Result<String, NoText>, last: Option<Self>) -> Self {
        // An editor on a full disk leaves an empty file.
        let text = text.and_then(|text| {
            let had_objects = last.as_ref().is_some_and(|last| !is_blank(&last.text));
            match is_blank(&text) && had_objects {
                true => Err(NoText::Empty),
                false => Ok(text),
            }
        });
        let bad = match &text {
            Ok(text) => Observed::default().take_file(&name(path), text),
            Err(why) => vec![BadDocument::of_file(&name(path), why.to_string())],
        };
        let text = text.unwrap_or_default();
        let is_good = is_readable(&bad);
        match last {
            Some(last) if !is_good && last.is_good => Self { stamp, bad, ..last },
            _ => Self {
                stamp,
                text,
                is_good,
                bad,
                copy: OnDisk::Older,
            },
        }
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Why there is no text of a file.
#[derive(Debug, thiserror::Error)]
enum NoText {
    #[error("changes whenever it is read; write another file and rename it to this one")]
    Changing,
    #[error("is empty; to end what it had before, delete the file")]
    Empty,
    #[error("{}", NOT_UTF8)]
    NotUtf8,
    #[error("cannot be read: {0}; let this program read it")]
    Unreadable(String),
}

/// The text of a file, if the file is still as its stamp says.
fn read(path: &Path, stamp: &Stamp) -> Result<String, NoText> {
    if let Stamp::Unreadable(why) = stamp {
        return Err(NoText::Unreadable(why.clone()));
    }
    let bytes = fs::read(path);
    if Stamp::of(path).as_ref() != Some(stamp) {
        return Err(NoText::Changing);
    }
    let bytes = bytes.map_err(|error| NoText::Unreadable(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| NoText::NotUtf8)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What the file system says of a file. A file whose stamp differs has changed, and is read again.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stamp {
    Metadata {
        device: u64,
        inode: u64,
        size: u64,
        changed: (i64, i64),
    },
    /// The file is there, and the file system refuses to describe it, for this reason.
    Unreadable(String),
}

type Stamps = BTreeMap<PathBuf, Stamp>;

impl Stamp {
    /// The stamp of a file. Links are followed. `None`: the file is gone, or a link leads to nothing.
    fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(entry) => Some(Self::Metadata {
                device: entry.dev(),
                inode: entry.ino(),
                size: entry.size(),
                changed: (entry.ctime(), entry.ctime_nsec()),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Self::Unreadable(error.to_string())),
        }
    }
}

/// The manifests of a folder.
fn stamps(folder: &Path) -> io::Result<Stamps> {
    let mut stamps = Stamps::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if is_manifest(&path)
            && let Some(stamp) = Stamp::of(&path)
        {
            stamps.insert(path, stamp);
        }
    }
    Ok(stamps)
}

/// Finds the changes that inotify does not report, such as those of network file systems.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// A file that did not change for so long is complete, and a file that was away for so long is deleted.
const SETTLED: Duration = Duration::from_millis(200);
/// A file that never settles is read after this time all the same.
const PATIENCE: Duration = Duration::from_secs(2);

const LAST_GOOD_STAYS: &str = "its last good content stays until it is mended";
const NEVER_GOOD: &str = "no good content of it is known: only the documents that can be read are served until it is mended";

#[cfg(test)]
mod tests;
