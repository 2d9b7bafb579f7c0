//! The destinations of access lines: standard output, syslog sockets, syslog servers. Each has a queue and a thread of its own,
//! so that a slow one does not delay the others.

use std::fmt::Write as _;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime};

use ballast_core::table::LogTarget;

use super::line::SyslogDate;
use crate::log::{self, LineQueue, start, to_udp, to_unix};

/// All destinations of one table, and the rendered lines for them.
#[derive(Debug)]
pub(super) struct Sinks {
    stdout: Option<&'static LineQueue>,
    syslog: Vec<Syslog>,
    /// The lines for standard output.
    lines: String,
    /// The same lines with syslog headers.
    with_header: String,
}

impl Sinks {
    /// Opens the destinations. One that cannot be opened is logged and left out.
    pub(super) fn open(targets: &[LogTarget], folder: &Path, lost: &Arc<AtomicU64>) -> Self {
        let mut sinks = Self {
            stdout: None,
            syslog: Vec::new(),
            lines: String::new(),
            with_header: String::new(),
        };
        for target in targets {
            if let Err(error) = sinks.add(target, folder, lost) {
                tracing::error!("log.to: {target}: {error}");
            }
        }
        sinks
    }

    fn add(&mut self, target: &LogTarget, folder: &Path, lost: &Arc<AtomicU64>) -> io::Result<()> {
        match target {
            LogTarget::Stdout => self.stdout = Some(log::stdout()?),
            LogTarget::Unix(path) => {
                let write = to_unix(folder.join(&**path))?;
                self.syslog.push(Syslog::start(lost, write)?);
            }
            LogTarget::Udp(address) => {
                let write = to_udp(*address)?;
                self.syslog.push(Syslog::start(lost, write)?);
            }
        }
        Ok(())
    }

    /// Renders one line, to be delivered by the next [`deliver`](Self::deliver).
    pub(super) fn line(&mut self, render: impl FnOnce(&mut String)) {
        let from = self.lines.len();
        render(&mut self.lines);
        self.lines.push('\n');
        if self.syslog.is_empty() {
            return;
        }
        let line = self.lines.get(from..).unwrap_or_default();
        let (date, pid) = (SyslogDate(SystemTime::now()), process::id());
        // Writing to a String cannot fail.
        write!(self.with_header, "<134>{date} ballast[{pid}]: {line}").unwrap_or_default();
    }

    /// Adds the rendered lines to every destination's queue.
    pub(super) fn deliver(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        if let Some(stdout) = self.stdout {
            stdout.add(self.lines.as_bytes());
        }
        for syslog in &self.syslog {
            syslog.add(self.with_header.as_bytes());
        }
        self.lines.clear();
        self.with_header.clear();
    }

    /// Waits until all lines are written, but not longer than `within`.
    pub(super) fn flush(&self, within: Duration) {
        let began = Instant::now();
        let syslog = self.syslog.iter().map(|syslog| &**syslog);
        for queue in self.stdout.into_iter().chain(syslog) {
            queue.flush(within.saturating_sub(began.elapsed()));
        }
    }
}

/// A syslog queue. Its thread ends once this is dropped and all lines are sent.
#[derive(Debug)]
struct Syslog(Arc<LineQueue>);

impl Syslog {
    fn start(
        lost: &Arc<AtomicU64>,
        write: impl FnMut(&[u8]) -> u64 + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(LineQueue::new(Arc::clone(lost)));
        start(Arc::clone(&queue), "syslog", write)?;
        Ok(Self(queue))
    }
}

impl Deref for Syslog {
    type Target = LineQueue;

    fn deref(&self) -> &LineQueue {
        &self.0
    }
}

impl Drop for Syslog {
    fn drop(&mut self) {
        self.close();
    }
}
