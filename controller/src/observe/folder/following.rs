//! Follows a folder of manifests. Called by `run --manifests`.
//!
//! What is renamed into the folder, or closed after writing, is read at once, and so is all of a ConfigMap whose links
//! swap; a file that somebody is still writing to, once that paused; and one is gone once it stayed away. inotify says when;
//! a slow look sees what it cannot. A file that cannot be read, or of which a document cannot be understood, keeps what it
//! said when it last could.

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
use super::super::{Observed, Wanted};
use super::{BadDocument, is_manifest};
use crate::follow;
use crate::settings::Settings;

/// Sends what is seen in a folder, whenever that changed; says which documents are bad, whenever others are. Never
/// returns; ends by being dropped.
pub async fn watch(
    folder: PathBuf,
    settings: Arc<Settings>,
    wanted: watch::Receiver<Wanted>,
    observed: watch::Sender<Option<Arc<Observed>>>,
    mut bad: impl FnMut(&[BadDocument]),
) {
    let mut debouncer = Debouncer::new(None, wanted, observed);
    let ears = Ears::new(&folder);
    let mut files = Files::default();
    let mut seen = None;
    let mut said = Vec::new();
    let mut whole = Whole::All;
    loop {
        let place = folder.clone();
        // Large folders take a while, and small ones may lie on a slow disk.
        let looked = spawn_blocking(move || {
            let look = files.look(&place, &whole);
            (files, look)
        });
        let Ok((same_files, look)) = looked.await else {
            // The runtime ends.
            return;
        };
        files = same_files;
        if let Some((mut all, wrong)) = look.found {
            all.services
                .retain(|key, _| settings.looks_at(&key.namespace));
            all.slices
                .retain(|key, _| settings.looks_at(&key.namespace));
            if files.was_read {
                seen = Some(all);
                debouncer.changed();
            }
            if wrong != said {
                bad(&wrong);
                said = wrong;
            }
        }
        let pause = look.again_in.unwrap_or(LOOK_EVERY);
        whole = wait(&ears, &folder, pause, &mut debouncer, seen.as_ref()).await;
    }
}

/// Waits until there may be something to look at, and sends what is due meanwhile.
async fn wait(
    ears: &Ears,
    folder: &Path,
    pause: Duration,
    debouncer: &mut Debouncer,
    seen: Option<&Observed>,
) -> Whole {
    let pause = sleep(pause);
    tokio::pin!(pause);
    loop {
        tokio::select! {
            whole = ears.heard() => return whole,
            () = &mut pause => {
                ears.listen(folder);
                return Whole::default();
            }
            () = debouncer.due(), if seen.is_some() => {
                if let Some(seen) = seen {
                    debouncer.send(seen.clone());
                }
            }
        }
    }
}

/// The files as they were when they were read last.
#[derive(Debug, Default)]
struct Files {
    known: BTreeMap<PathBuf, File>,
    /// Why the folder itself cannot be read.
    lost: Option<String>,
    /// Whether it ever could. Before that there is something to say, and nothing to send.
    was_read: bool,
}

#[derive(Debug)]
struct File {
    stamp: Stamp,
    /// The last good text; if there never was one, the one that is there.
    text: String,
    is_good: bool,
    bad: Vec<BadDocument>,
    missing_since: Option<Instant>,
}

struct Look {
    /// What all files say together; `None`: nothing changed.
    found: Option<(Observed, Vec<BadDocument>)>,
    /// Somebody writes just now.
    again_in: Option<Duration>,
}

impl Files {
    fn look(&mut self, folder: &Path, whole: &Whole) -> Look {
        let mut look = Look {
            found: None,
            again_in: None,
        };
        let listed = fs::read_dir(folder)
            .and_then(|entries| {
                let paths = entries.map(|entry| Ok(entry?.path()));
                paths.collect::<io::Result<Vec<PathBuf>>>()
            })
            .map_err(|error| format!("cannot be read: {error}"));
        let mut changed = listed.as_ref().err() != self.lost.as_ref();
        match listed {
            Ok(paths) => {
                changed |= self.look_at(paths, whole, &mut look.again_in) || !self.was_read;
                self.was_read = true;
                self.lost = None;
            }
            Err(why) => self.lost = Some(why),
        }
        look.found = changed.then(|| self.together(folder));
        look
    }

    fn look_at(
        &mut self,
        paths: Vec<PathBuf>,
        whole: &Whole,
        again_in: &mut Option<Duration>,
    ) -> bool {
        let there: BTreeSet<PathBuf> = paths.into_iter().filter(|path| is_manifest(path)).collect();
        let mut changed = self.forget_missing(&there, again_in);
        for path in there {
            // `None`: it went away meanwhile, and the next look will tell.
            let Some((stamp, age)) = stamp(&path) else {
                sooner(again_in, SETTLED);
                continue;
            };
            let known = self.known.get(&path);
            if known.is_some_and(|file| file.stamp == stamp) {
                continue;
            }
            let rest = SETTLED.saturating_sub(age);
            if !whole.contains(&path) && !rest.is_zero() {
                sooner(again_in, rest);
                continue;
            }
            changed = true;
            let last = self.known.remove(&path);
            self.known.insert(path.clone(), read(&path, stamp, last));
        }
        changed
    }

    /// An editor may put a file aside and write another one: only one that stays away is gone.
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
            // It has another name now.
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
        if let Some(why) = &self.lost {
            bad.push(BadDocument {
                file: folder.display().to_string(),
                document: 1,
                why: why.clone(),
            });
        }
        for (path, file) in &self.known {
            let wrong = all.take_file(&name(path), &file.text);
            // Of a file that was not taken as it is now: what is wrong with it now.
            bad.extend(if file.bad.is_empty() {
                wrong
            } else {
                file.bad.clone()
            });
        }
        (all, bad)
    }
}

fn sooner(again_in: &mut Option<Duration>, rest: Duration) {
    *again_in = Some(again_in.map_or(rest, |other| other.min(rest)));
}

fn read(path: &Path, stamp: Stamp, last: Option<File>) -> File {
    let alone = |why: String| {
        vec![BadDocument {
            file: name(path),
            document: 1,
            why,
        }]
    };
    let text = match fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(_)) => Err(alone("is not UTF-8".to_owned())),
        Err(error) => Err(alone(format!("cannot be read: {error}"))),
    };
    let (text, bad) = match text {
        Ok(text) => {
            let bad = Observed::default().take_file(&name(path), &text);
            (text, bad)
        }
        Err(bad) => (String::new(), bad),
    };
    match last {
        Some(last) if !bad.is_empty() && last.is_good => File { stamp, bad, ..last },
        _ => File {
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

/// What a look at a file's entry tells, without reading it.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Which file it is, whatever it holds.
    fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// With the time since it was written to. Links are followed.
fn stamp(path: &Path) -> Option<(Stamp, Duration)> {
    let entry = fs::metadata(path).ok()?;
    let age = entry.modified().ok().and_then(|modified| {
        // One from the future is as old as any.
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

/// The files of which it is known that nobody writes to them just now.
#[derive(Debug)]
enum Whole {
    All,
    These(BTreeSet<Vec<u8>>),
}

impl Default for Whole {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Whole {
    fn contains(&self, path: &Path) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => path
                .file_name()
                .is_some_and(|name| names.contains(name.as_encoded_bytes())),
        }
    }
}

/// Hears of changes in a folder.
struct Ears {
    inotify: Option<pipe::Receiver>,
}

impl Ears {
    fn new(folder: &Path) -> Self {
        let inotify = follow::listener().inspect_err(|error| {
            tracing::warn!(%error, "cannot watch {}; looking now and then", folder.display());
        });
        let ears = Self {
            inotify: inotify.ok(),
        };
        ears.listen(folder);
        ears
    }

    /// Listens to the folder that is there now: it may be another one than before.
    fn listen(&self, folder: &Path) {
        if let Some(inotify) = &self.inotify
            && let Err(error) = follow::listen(inotify, folder)
        {
            tracing::debug!(%error, "cannot watch {}", folder.display());
        }
    }

    /// Returns when something happened, with the files that are whole now.
    async fn heard(&self) -> Whole {
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
                // Too much happened to be told.
                swapped |= mask.contains(inotify::ReadFlags::QUEUE_OVERFLOW);
                if mask.intersects(inotify::ReadFlags::CLOSE_WRITE | inotify::ReadFlags::MOVED_TO) {
                    // `..data`, to which every link of a ConfigMap leads.
                    swapped |= name.starts_with(b"..");
                    names.insert(name.to_vec());
                }
            }
        }
        match swapped {
            true => Whole::All,
            false => Whole::These(names),
        }
    }
}

/// What the kernel wrote (inotify(7)): each event with its kind and the name of the file.
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

/// Where inotify cannot see.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// A file that was not written to for so long is whole, and one that was away for so long is gone.
const SETTLED: Duration = Duration::from_millis(200);
