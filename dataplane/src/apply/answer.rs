//! The answer: what became of tables, for the ack file and for who looks at this process.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::{Ack, Exception, Refused, Served};
use tokio::time::Instant;

use crate::reserve;
use crate::status::Status;

/// The answer, and who knows it.
#[derive(Debug)]
pub(super) struct Answer {
    ack: Arc<Ack>,
    /// Where it is written, if anywhere.
    path: Option<PathBuf>,
    written: Option<Arc<Ack>>,
    told: Option<Arc<Ack>>,
    complaint: Option<Complaint>,
}

/// Why it could not be written, as last said.
#[derive(Debug)]
struct Complaint {
    words: String,
    said: Instant,
}

impl Answer {
    /// Of a process that serves nothing yet.
    pub(super) fn new(instance: String, path: Option<PathBuf>) -> Self {
        Self {
            ack: Arc::new(Ack::new(instance)),
            path,
            written: None,
            told: None,
            complaint: None,
        }
    }

    /// Whether some table is served.
    pub(super) fn serves(&self) -> bool {
        self.ack.served.is_some()
    }

    /// Whether the table of this digest was refused, and no other one since.
    pub(super) fn refuses(&self, digest: &str) -> bool {
        let refused = self.ack.refused.as_ref();
        refused.is_some_and(|refused| refused.digest == digest)
    }

    /// What does not listen as it was asked for, as last noted.
    pub(super) fn exceptions(&self) -> &[Exception] {
        &self.ack.exceptions
    }

    /// A table is served.
    pub(super) fn serve(&mut self, served: Served, exceptions: Vec<Exception>) {
        let ack = Ack {
            served: Some(served),
            exceptions,
            ..Ack::new(self.ack.instance.clone())
        };
        if *self.ack != ack {
            self.ack = Arc::new(ack);
        }
    }

    /// A table was refused.
    pub(super) fn refuse(&mut self, refused: Refused) {
        Arc::make_mut(&mut self.ack).refused = Some(refused);
    }

    /// So much does not listen now.
    pub(super) fn except(&mut self, exceptions: Vec<Exception>) {
        if self.ack.exceptions != exceptions {
            Arc::make_mut(&mut self.ack).exceptions = exceptions;
        }
    }

    /// Tells who looks at this process, if it is another answer.
    pub(super) fn tell(&mut self, status: &Status) {
        if !is(self.told.as_ref(), &self.ack) {
            self.told = Some(Arc::clone(&self.ack));
            status.set_ack(Arc::clone(&self.ack));
        }
    }

    /// Writes it, if it is another answer, or if somebody has removed it.
    pub(super) fn write(&mut self) {
        let Some(path) = &self.path else {
            return;
        };
        if is(self.written.as_ref(), &self.ack) && path.exists() {
            return;
        }
        match replace(path, &self.ack) {
            Ok(()) => {
                self.written = Some(Arc::clone(&self.ack));
                self.complaint = None;
            }
            Err(error) => {
                let words = format!(
                    "{}: cannot write the ack: {error}; make its folder one to write to, or choose another --ack",
                    path.display()
                );
                self.complain(words);
            }
        }
    }

    /// Writes it again, if somebody has put anything else in its place.
    pub(super) fn mend(&mut self) {
        if let (Some(path), Some(written)) = (&self.path, &self.written)
            && !holds(path, written)
        {
            self.written = None;
            self.write();
        }
    }

    /// It is tried again every few seconds, and need not be said as often.
    fn complain(&mut self, words: String) {
        let last = self.complaint.as_ref();
        if last.is_some_and(|last| last.words == words && last.said.elapsed() < SAID_AGAIN) {
            return;
        }
        tracing::error!("{words}");
        let said = Instant::now();
        self.complaint = Some(Complaint { words, said });
    }
}

/// Whether `known` is this very answer: one that changes is another one.
fn is(known: Option<&Arc<Ack>>, ack: &Arc<Ack>) -> bool {
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

/// Whether the file at `path` says this.
fn holds(path: &Path, ack: &Ack) -> bool {
    let Ok(text) = serde_json::to_vec(ack) else {
        return false;
    };
    // Looked at first: what stands there may be a pipe, or endless.
    let is_alike = |entry: fs::Metadata| entry.is_file() && entry.len() == text.len() as u64;
    let is_this = || {
        let mut there = Vec::with_capacity(text.len());
        let file = reserve::open(OpenOptions::new().read(true), path)?;
        file.take(text.len() as u64 + 1).read_to_end(&mut there)?;
        io::Result::Ok(there == text)
    };
    fs::metadata(path).is_ok_and(is_alike) && is_this().unwrap_or(false)
}

/// Trouble that lasts is said again after so long.
const SAID_AGAIN: Duration = Duration::from_secs(300);
