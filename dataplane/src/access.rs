//! Access lines: one a connection, to wherever the table's `log.to` says.
//!
//! A worker hands over a [`Record`] and goes on; a thread of its own writes the lines. If that thread cannot keep up, because
//! a pipe is full or a syslog server slow, records are dropped and counted: no worker ever waits for a log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arc_swap::ArcSwapOption;
use ballast_core::table;

mod entry;
mod line;
mod sink;

pub(crate) use entry::Entry;
pub(crate) use line::Date;
use line::Record;
use sink::Sinks;

/// What workers know of the access lines.
#[derive(Debug)]
pub(crate) struct AccessLog {
    is_on: AtomicBool,
    records: SyncSender<Box<Record>>,
    dropped: AtomicU64,
    wanted: ArcSwapOption<Wanted>,
}

/// What a table says of the lines, and the folder against which it names files.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    log: table::Log,
    folder: PathBuf,
}

impl AccessLog {
    /// A log that writes nothing yet, and what its thread needs.
    #[must_use]
    pub(crate) fn new() -> (Self, Receiver<Box<Record>>) {
        let (records, received) = sync_channel(WAITING);
        let log = Self {
            is_on: AtomicBool::new(false),
            records,
            dropped: AtomicU64::new(0),
            wanted: ArcSwapOption::empty(),
        };
        (log, received)
    }

    /// Whether anybody wants lines.
    #[must_use]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Has one line written, or counts that it cannot be.
    pub(crate) fn write(&self, record: Box<Record>) {
        if self.records.try_send(record).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that were dropped because they could not be written in time.
    #[must_use]
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// From now on lines are written as this table says.
    pub(crate) fn follow(&self, log: &table::Log, folder: &Path) {
        let is_on = log.access != table::Access::Off;
        let wanted = is_on.then(|| Wanted {
            log: log.clone(),
            folder: folder.into(),
        });
        if self.wanted.load().as_deref() != wanted.as_ref() {
            self.wanted.store(wanted.map(Arc::new));
        }
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Writes lines until nobody can send any more.
    pub(crate) fn run(&self, records: &Receiver<Box<Record>>) {
        let mut open: Option<(Arc<Wanted>, Sinks)> = None;
        while let Ok(first) = records.recv() {
            let Some(wanted) = self.wanted.load_full() else {
                open = None;
                continue;
            };
            let (wanted, sinks) = match &mut open {
                Some((known, sinks)) if Arc::ptr_eq(known, &wanted) => (wanted, sinks),
                stale => {
                    let sinks = Sinks::open(&wanted.log.to, &wanted.folder);
                    let (_, sinks) = stale.insert((Arc::clone(&wanted), sinks));
                    (wanted, sinks)
                }
            };
            for record in std::iter::once(first).chain(records.try_iter().take(BATCH)) {
                sinks.line(|text| line::render(&record, wanted.log.access, text));
            }
            sinks.flush();
            self.dropped
                .fetch_add(sinks.take_failed(), Ordering::Relaxed);
        }
    }
}

/// Records that wait to be written.
const WAITING: usize = 8192;
/// Lines written with one call to standard output.
const BATCH: usize = 256;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_reach_syslog_servers_and_sockets_and_what_cannot_be_written_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("log.sock")).unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let address = server.local_addr().unwrap();
        let text = format!(
            "version: 1\nlog: {{access: json, to: [\"unix:log.sock\", \"udp:{address}\", \"unix:nobody.sock\"]}}\n"
        );
        let table = table::parse(text.as_bytes(), table::Format::Yaml).unwrap();
        let (log, records) = AccessLog::new();
        assert!(!log.is_on());
        log.follow(&table.log, folder.path());
        assert!(log.is_on());

        log.write(Box::new(line::tests::record()));
        let log = Arc::new(log);
        let writer = Arc::clone(&log);
        // It never ends, as in the process; the test's end ends it.
        std::thread::spawn(move || writer.run(&records));
        let mut bytes = [0; 1024];
        for read in [
            socket.recv(&mut bytes).unwrap(),
            server.recv(&mut bytes).unwrap(),
        ] {
            let line = String::from_utf8_lossy(&bytes[..read]);
            assert!(line.starts_with("<134>"), "{line}");
            assert!(line.contains(" ballast["), "{line}");
            assert!(line.ends_with('}'), "{line}");
        }
        while log.dropped() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(log.dropped(), 1, "for the socket that nobody reads");
    }

    #[test]
    fn a_worker_never_waits_for_the_writer() {
        let (log, _nobody_reads) = AccessLog::new();
        for _ in 0..WAITING + 3 {
            log.write(Box::new(line::tests::record()));
        }
        assert_eq!(log.dropped(), 3);
    }
}
