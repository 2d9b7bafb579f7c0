//! The ack: what became of the tables, for the ack file and for the admin side.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::{Ack, Exception, Refused, Served};
use tokio::time::Instant;

use crate::os::reserve;
use crate::worker::status::Status;

/// The ack, its file, and which version of it was written and published.
#[derive(Debug)]
pub(super) struct AckFile {
    ack: Arc<Ack>,
    /// The path of the ack file, if there is one.
    path: Option<PathBuf>,
    written: Option<Arc<Ack>>,
    published: Option<Arc<Ack>>,
    last_error: Option<WriteError>,
}

/// The last error of writing the file, with the time at which it was logged.
#[derive(Debug)]
struct WriteError {
    message: String,
    at: Instant,
}

impl AckFile {
    /// The ack of a process that serves nothing yet.
    pub(super) fn new(instance: String, path: Option<PathBuf>) -> Self {
        Self {
            ack: Arc::new(Ack::new(instance)),
            path,
            written: None,
            published: None,
            last_error: None,
        }
    }

    /// Whether a table is served.
    pub(super) fn has_served(&self) -> bool {
        self.ack.served.is_some()
    }

    /// Whether the table with this digest is the one refused last.
    pub(super) fn has_refused(&self, digest: &str) -> bool {
        let refused = self.ack.refused.as_ref();
        refused.is_some_and(|refused| refused.digest == digest)
    }

    /// The exceptions as last set.
    pub(super) fn exceptions(&self) -> &[Exception] {
        &self.ack.exceptions
    }

    /// Notes that a table is served.
    pub(super) fn set_served(&mut self, served: Served, exceptions: Vec<Exception>) {
        let ack = Ack {
            served: Some(served),
            exceptions,
            ..Ack::new(self.ack.instance.clone())
        };
        if *self.ack != ack {
            self.ack = Arc::new(ack);
        }
    }

    /// The refusal as last set.
    pub(super) fn refused(&self) -> Option<&Refused> {
        self.ack.refused.as_ref()
    }

    /// Notes that a table was refused; `None`: the last one was not.
    pub(super) fn set_refused(&mut self, refused: Option<Refused>) {
        Arc::make_mut(&mut self.ack).refused = refused;
    }

    pub(super) fn set_exceptions(&mut self, exceptions: Vec<Exception>) {
        if self.ack.exceptions != exceptions {
            Arc::make_mut(&mut self.ack).exceptions = exceptions;
        }
    }

    /// Publishes the ack in `status`, if it has changed.
    pub(super) fn publish(&mut self, status: &Status) {
        if !is_same(self.published.as_ref(), &self.ack) {
            self.published = Some(Arc::clone(&self.ack));
            status.set_ack(Arc::clone(&self.ack));
        }
    }

    /// Writes the file, if the ack has changed or the file is gone.
    pub(super) fn write(&mut self) {
        let Some(path) = &self.path else {
            return;
        };
        if is_same(self.written.as_ref(), &self.ack) && path.exists() {
            return;
        }
        match replace(path, &self.ack) {
            Ok(()) => {
                self.written = Some(Arc::clone(&self.ack));
                self.last_error = None;
            }
            Err(error) => {
                let message = format!(
                    "{}: cannot write the ack: {error}; make its folder one to write to, or choose another --ack",
                    path.display()
                );
                self.log_error(message);
            }
        }
    }

    /// Writes the file again, if its content was replaced.
    pub(super) fn restore(&mut self) {
        if let (Some(path), Some(written)) = (&self.path, &self.written)
            && !holds(path, written)
        {
            self.written = None;
            self.write();
        }
    }

    /// Logs an error. Writing is retried every few seconds, but the same error is logged less often.
    fn log_error(&mut self, message: String) {
        let last = self.last_error.as_ref();
        if last.is_some_and(|last| last.message == message && last.at.elapsed() < REPEAT_AFTER) {
            return;
        }
        tracing::error!("{message}");
        let at = Instant::now();
        self.last_error = Some(WriteError { message, at });
    }
}

/// Whether `known` is the same ack: a changed ack is another `Arc`.
fn is_same(known: Option<&Arc<Ack>>, ack: &Arc<Ack>) -> bool {
    known.is_some_and(|known| Arc::ptr_eq(known, ack))
}

fn replace(path: &Path, ack: &Ack) -> io::Result<()> {
    let draft = path.with_extension("json.tmp");
    let text = serde_json::to_vec(ack).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    reserve::open(&options, &draft)?.write_all(&text)?;
    fs::rename(&draft, path)
}

/// Whether the file at `path` holds this ack.
fn holds(path: &Path, ack: &Ack) -> bool {
    let Ok(text) = serde_json::to_vec(ack) else {
        return false;
    };
    // Checked first: the path may be a pipe or an endless device.
    let is_alike = |entry: fs::Metadata| entry.is_file() && entry.len() == text.len() as u64;
    let is_this = || {
        let mut there = Vec::with_capacity(text.len());
        let file = reserve::open(OpenOptions::new().read(true), path)?;
        file.take(text.len() as u64 + 1).read_to_end(&mut there)?;
        io::Result::Ok(there == text)
    };
    fs::metadata(path).is_ok_and(is_alike) && is_this().unwrap_or(false)
}

/// An error that persists is logged again after this time.
const REPEAT_AFTER: Duration = Duration::from_secs(300);
