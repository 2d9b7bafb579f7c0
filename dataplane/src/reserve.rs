//! A descriptor that is kept, so that tables can be read and answered when all others are in use.
//!
//! [`open`] opens a file as usual. Only where that fails for want of a descriptor, the kept one is closed, and the file gets its
//! number. When the file is closed, the number is kept again at once: nobody else can take it in between.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::{DupFlags, dup3};

use crate::fault;

/// What is kept.
struct Kept {
    /// Open for ever: what a kept descriptor is a duplicate of.
    null: Option<OwnedFd>,
    spare: Option<OwnedFd>,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept {
    null: None,
    spare: None,
});

/// Begins to keep a descriptor. Without this call, and where it fails, files are opened as usual.
pub(crate) fn keep() -> io::Result<()> {
    let null = OwnedFd::from(File::open("/dev/null")?);
    let spare = null.try_clone()?;
    let mut kept = kept();
    (kept.null, kept.spare) = (Some(null), Some(spare));
    Ok(())
}

/// Opens a file, with the kept descriptor if there is no other one.
pub(crate) fn open(options: &OpenOptions, path: &Path) -> io::Result<Opened> {
    let opened = match options.open(path) {
        Err(error) if fault::is_exhausted(&error) => {
            drop(kept().spare.take());
            options.open(path)
        }
        opened => opened,
    };
    opened.map(|file| Opened(Some(file)))
}

/// A file that may have the number of the kept descriptor.
#[derive(Debug)]
pub(crate) struct Opened(Option<File>);

impl Opened {
    /// What is known of the file.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file()?.metadata()
    }

    /// There always is one: it is taken out only by the drop.
    fn file(&self) -> io::Result<&File> {
        self.0
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Read for Opened {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file()?.read(buffer)
    }
}

impl Write for Opened {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.flush()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut kept = kept();
        if let (
            Some(file),
            Kept {
                null: Some(null),
                spare,
            },
        ) = (self.0.take(), &mut *kept)
            && spare.is_none()
        {
            let mut number = OwnedFd::from(file);
            *spare = dup3(null, &mut number, DupFlags::CLOEXEC)
                .is_ok()
                .then_some(number);
        }
    }
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}
