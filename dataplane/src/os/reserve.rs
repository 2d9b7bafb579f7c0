//! One spare descriptor, so that tables can be read and acknowledged when all other descriptors are in use.
//!
//! [`open`] opens a file as usual. Only if descriptors are exhausted, the spare descriptor is closed and the file takes its
//! number. When the file is closed, the number is reserved again at once, so no other thread can take it in between.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Mutex;

use rustix::io::{DupFlags, dup3};

use crate::os::socket_error;
use crate::os::threads::lock;

/// The reserved descriptor.
struct Reserve {
    /// Always open; the spare descriptor is a duplicate of it.
    null: Option<OwnedFd>,
    spare: Option<OwnedFd>,
}

static RESERVE: Mutex<Reserve> = Mutex::new(Reserve {
    null: None,
    spare: None,
});

/// Reserves the descriptor. Without this call, or if it fails, files are opened as usual.
pub(crate) fn keep() -> io::Result<()> {
    let null = OwnedFd::from(File::open("/dev/null")?);
    let spare = null.try_clone()?;
    let mut reserve = lock(&RESERVE);
    (reserve.null, reserve.spare) = (Some(null), Some(spare));
    Ok(())
}

/// Opens a file, with the spare descriptor if there is no other one.
pub(crate) fn open(options: &OpenOptions, path: &Path) -> io::Result<Opened> {
    let opened = match options.open(path) {
        Err(error) if socket_error::is_exhausted(&error) => {
            drop(lock(&RESERVE).spare.take());
            options.open(path)
        }
        opened => opened,
    };
    opened.map(|file| Opened(Some(file)))
}

/// A file that may have the number of the spare descriptor.
#[derive(Debug)]
pub(crate) struct Opened(Option<File>);

impl Opened {
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file()?.metadata()
    }

    /// The file is always present: only the drop takes it out.
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
        let mut reserve = lock(&RESERVE);
        if let (
            Some(file),
            Reserve {
                null: Some(null),
                spare,
            },
        ) = (self.0.take(), &mut *reserve)
            && spare.is_none()
        {
            let mut number = OwnedFd::from(file);
            *spare = dup3(null, &mut number, DupFlags::CLOEXEC)
                .is_ok()
                .then_some(number);
        }
    }
}
