//! Watches the folder of the table: tells when to read, and how a table's file came there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

use crate::os::sys;

#[derive(Debug)]
pub(super) struct Watch {
    events: AsyncFd<OwnedFd>,
    /// The names that a table may have there, and the origin of the file with that name.
    tables: Vec<(OsString, Origin)>,
}

/// How a file came to its name since the previous one was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// No event: it is the file that was there before, or it appeared through a symbolic link.
    Unknown,
    /// It was moved there, so it is complete.
    Moved,
    /// It was created there empty, to be written.
    Created,
}

impl Watch {
    /// Watches `folder`, in which a table may have these names. Must be called within a runtime.
    pub(super) fn of(folder: &Path, tables: Vec<OsString>) -> io::Result<Self> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let events = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::CREATE
            | WatchFlags::DELETE;
        inotify::add_watch(&watch, folder, events)?;
        Ok(Self {
            events: sys::watched(watch)?,
            tables: tables
                .into_iter()
                .map(|name| (name, Origin::Unknown))
                .collect(),
        })
    }

    /// Returns when something has happened there.
    pub(super) async fn event(&mut self) -> io::Result<()> {
        let Self { events, tables } = self;
        let mut ready = events.readable().await?;
        read_events(ready.get_inner(), tables);
        ready.clear_ready();
        Ok(())
    }

    /// How the file with this name came there.
    ///
    /// The file's metadata does not tell: its times are as coarse as the kernel's ticks, and most tables are moved within the
    /// tick in which they were written; and it may have the inode of a deleted file.
    pub(super) fn origin(&mut self, table: &OsStr) -> Origin {
        read_events(self.events.get_ref(), &mut self.tables);
        let known = self.tables.iter().find(|(name, _)| name == table);
        known.map_or(Origin::Unknown, |(_, origin)| *origin)
    }

    /// Forgets the origins, once the present file has been read.
    pub(super) fn forget(&mut self) {
        for (_, origin) in &mut self.tables {
            *origin = Origin::Unknown;
        }
    }
}

/// Notes all events so far.
fn read_events(events: &OwnedFd, tables: &mut [(OsString, Origin)]) {
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(events, &mut space);
    while let Ok(event) = events.next() {
        let origin = match event.events() {
            what if what.contains(ReadFlags::QUEUE_OVERFLOW) => {
                // The lost events are unknown, so each file is treated as being written.
                tables
                    .iter_mut()
                    .for_each(|(_, origin)| *origin = Origin::Created);
                continue;
            }
            what if what.contains(ReadFlags::CREATE) => Origin::Created,
            what if what.contains(ReadFlags::MOVED_TO) => Origin::Moved,
            _ => continue,
        };
        let Some(name) = event.file_name() else {
            continue;
        };
        let name = OsStr::from_bytes(name.to_bytes());
        if let Some(table) = tables.iter_mut().find(|(table, _)| table == name) {
            table.1 = origin;
        }
    }
}
