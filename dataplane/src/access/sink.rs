//! The destinations of access lines: standard output, syslog sockets, syslog servers. Each has a queue and a thread of its own,
//! so that a slow one does not delay the others.

use std::io;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime};

use ballast_core::table::LogTarget;

use crate::os::clock::utc;
use crate::os::log::{self, Delivery, LineQueue, start, to_udp, to_unix};

/// All destinations of one table, and the rendered lines for them.
#[derive(Debug)]
pub(super) struct Sinks {
    stdout: Option<&'static LineQueue>,
    syslog: Vec<Arc<LineQueue>>,
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
                self.begin(lost, to_unix(folder.join(&**path), tell(target))?)?;
            }
            LogTarget::Udp(address) => self.begin(lost, to_udp(*address, tell(target)))?,
        }
        Ok(())
    }

    /// Begins a syslog destination, with a queue and a thread.
    fn begin(
        &mut self,
        lost: &Arc<AtomicU64>,
        write: impl FnMut(&[u8]) -> u64 + Send + 'static,
    ) -> io::Result<()> {
        let queue = Arc::new(LineQueue::new(Arc::clone(lost)));
        start(Arc::clone(&queue), "syslog", write)?;
        self.syslog.push(queue);
        Ok(())
    }

    /// Adds lines, each with its line feed, to be delivered by the next [`deliver`](Self::deliver).
    pub(super) fn add_lines(&mut self, lines: &str) {
        self.lines.push_str(lines);
        if self.syslog.is_empty() {
            return;
        }
        let (date, pid) = (utc(SystemTime::now(), SYSLOG_DATE), process::id());
        let header = format!("<134>{date} ballast[{pid}]: ");
        for line in lines.split_inclusive('\n') {
            self.with_header.push_str(&header);
            self.with_header.push_str(line);
        }
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

/// Logs that lines for this destination begin to be lost, and that they arrive again.
fn tell(target: &LogTarget) -> impl FnMut(Delivery<'_>) + Send + 'static {
    let target = target.to_string();
    move |delivery| match delivery {
        Delivery::Fails(error) => tracing::error!(
            "log.to: {target}: {error}; access lines for it are lost: start the syslog server there, or correct log.to"
        ),
        Delivery::WorksAgain => tracing::info!("log.to: {target}: access lines arrive again"),
    }
}

impl Drop for Sinks {
    /// Each thread ends once it has sent the lines of its queue.
    fn drop(&mut self) {
        self.syslog.iter().for_each(|syslog| syslog.close());
    }
}

/// The date of old syslog: `Nov 21 15:04:05`.
const SYSLOG_DATE: &str = "%b %e %H:%M:%S";

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_day_of_a_syslog_date_takes_two_columns() {
        let time = UNIX_EPOCH + Duration::from_secs(86_400 * 4);
        assert_eq!(utc(time, SYSLOG_DATE).to_string(), "Jan  5 00:00:00");
    }
}
