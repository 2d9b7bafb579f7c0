//! Hears what happens in the folder of the table: when to look, and how a table came there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

use crate::sys;

/// A folder that is watched.
#[derive(Debug)]
pub(super) struct Watch {
    events: AsyncFd<OwnedFd>,
    /// The names that a table may have there, and how the file of that name came.
    tables: Vec<(OsString, Came)>,
}

/// How a file came to its name, since the one before was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Nobody heard of it: it is the one that was there, or it came by a link.
    Unheard,
    /// It was moved there, and is whole.
    Whole,
    /// It was made there empty, to be written.
    Empty,
}

impl Watch {
    /// Of `folder`, in which a table may have these names. Within a runtime only.
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
                .map(|name| (name, Came::Unheard))
                .collect(),
        })
    }

    /// Returns when something has happened there.
    pub(super) async fn happened(&mut self) -> io::Result<()> {
        let Self { events, tables } = self;
        let mut ready = events.readable().await?;
        hear(ready.get_inner(), tables);
        ready.clear_ready();
        Ok(())
    }

    /// How the file of this name came there.
    ///
    /// What can be seen of it does not tell: its times are as coarse as the kernel's ticks, and most tables are moved within
    /// the tick in which they were written; and it may have the inode of one that is gone.
    pub(super) fn came(&mut self, table: &OsStr) -> Came {
        hear(self.events.get_ref(), &mut self.tables);
        let known = self.tables.iter().find(|(name, _)| name == table);
        known.map_or(Came::Unheard, |(_, came)| *came)
    }

    /// What is there now has been read.
    pub(super) fn forget(&mut self) {
        for (_, came) in &mut self.tables {
            *came = Came::Unheard;
        }
    }
}

/// Takes note of all that has happened until now.
fn hear(events: &OwnedFd, tables: &mut [(OsString, Came)]) {
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(events, &mut space);
    while let Ok(event) = events.next() {
        let came = match event.events() {
            what if what.contains(ReadFlags::QUEUE_OVERFLOW) => {
                // Whatever it was is unheard.
                tables.iter_mut().for_each(|(_, came)| *came = Came::Empty);
                continue;
            }
            what if what.contains(ReadFlags::CREATE) => Came::Empty,
            what if what.contains(ReadFlags::MOVED_TO) => Came::Whole,
            _ => continue,
        };
        let Some(name) = event.file_name() else {
            continue;
        };
        let name = OsStr::from_bytes(name.to_bytes());
        if let Some(table) = tables.iter_mut().find(|(table, _)| table == name) {
            table.1 = came;
        }
    }
}
