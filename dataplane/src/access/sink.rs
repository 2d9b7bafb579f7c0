//! Where lines go: standard output, a syslog socket, a syslog server. Each has a queue and a thread of its own, so that one
//! which takes nothing costs the others nothing.

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
use crate::log::{self, Outlet, start, to_udp, to_unix};

/// All destinations of one table, and the lines that are rendered for them.
#[derive(Debug)]
pub(super) struct Sinks {
    stdout: Option<&'static Outlet>,
    syslog: Vec<Syslog>,
    /// Lines as they are.
    lines: String,
    /// The same ones behind syslog's head.
    with_head: String,
}

impl Sinks {
    /// Opens them. What cannot be opened is said, and left out.
    pub(super) fn open(targets: &[LogTarget], folder: &Path, lost: &Arc<AtomicU64>) -> Self {
        let mut sinks = Self {
            stdout: None,
            syslog: Vec::new(),
            lines: String::new(),
            with_head: String::new(),
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

    /// Keeps one line for the next [`pass_on`](Self::pass_on).
    pub(super) fn line(&mut self, render: impl FnOnce(&mut String)) {
        let from = self.lines.len();
        render(&mut self.lines);
        self.lines.push('\n');
        if self.syslog.is_empty() {
            return;
        }
        let line = self.lines.get(from..).unwrap_or_default();
        let (date, pid) = (SyslogDate(SystemTime::now()), process::id());
        // Writing into a string cannot fail.
        write!(self.with_head, "<134>{date} ballast[{pid}]: {line}").unwrap_or_default();
    }

    /// Gives the kept lines to every destination's queue.
    pub(super) fn pass_on(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        if let Some(stdout) = self.stdout {
            stdout.add(self.lines.as_bytes());
        }
        for syslog in &self.syslog {
            syslog.add(self.with_head.as_bytes());
        }
        self.lines.clear();
        self.with_head.clear();
    }

    /// Waits until all lines are written, but not for longer than this.
    pub(super) fn flush(&self, within: Duration) {
        let began = Instant::now();
        let syslog = self.syslog.iter().map(|syslog| &**syslog);
        for outlet in self.stdout.into_iter().chain(syslog) {
            outlet.flush(within.saturating_sub(began.elapsed()));
        }
    }
}

/// A queue whose thread ends when this is dropped and everything in it is sent.
#[derive(Debug)]
struct Syslog(Arc<Outlet>);

impl Syslog {
    fn start(
        lost: &Arc<AtomicU64>,
        write: impl FnMut(&[u8]) -> u64 + Send + 'static,
    ) -> io::Result<Self> {
        let outlet = Arc::new(Outlet::new(Arc::clone(lost)));
        start(Arc::clone(&outlet), "syslog", write)?;
        Ok(Self(outlet))
    }
}

impl Deref for Syslog {
    type Target = Outlet;

    fn deref(&self) -> &Outlet {
        &self.0
    }
}

impl Drop for Syslog {
    fn drop(&mut self) {
        self.close();
    }
}
