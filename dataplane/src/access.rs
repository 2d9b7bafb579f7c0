//! Access lines: one for each connection, or for each request of HTTP, written to the destinations of the table's `log.to`.
//!
//! A worker hands over a [`Record`] of a connection and goes on. Requests are more frequent: a worker renders their lines itself,
//! into a buffer of its own, and hands over many at a time. One thread adds all lines to the queue of each
//! destination, and a thread of that destination writes them. Lines that find a queue full, and lines that cannot be written, are
//! lost and counted. So no worker ever waits for a log, and no destination for another one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use ballast_core::table;
use tokio::sync::oneshot;
use tokio::time::timeout;

mod line;
mod progress;
mod request;
mod sink;

pub(crate) use line::{Record, relay_letters};
pub(crate) use progress::{Progress, WaitPhase};
pub(crate) use request::{Dates, RequestRecord, render};
use sink::Sinks;

use crate::os::log;

/// The access log, as the workers use it.
#[derive(Debug)]
pub(crate) struct AccessLog {
    /// [`table::Access`] as a number.
    form: AtomicU8,
    messages: SyncSender<Message>,
    /// Bytes of rendered lines that wait for the thread.
    waiting: AtomicUsize,
    lost: Arc<AtomicU64>,
    wanted: ArcSwapOption<Wanted>,
}

/// Messages to the thread that renders.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection has ended.
    Line(Box<Record>),
    /// Lines of requests, each with its line feed.
    Lines(String),
    /// Write all lines so far, and notify the sender.
    Flush(oneshot::Sender<()>),
}

/// The `log` section of a table, and the folder that its relative paths refer to.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    log: table::Log,
    folder: PathBuf,
}

impl AccessLog {
    /// Creates a log that writes nothing yet, and the receiver for its thread.
    #[must_use]
    pub(crate) fn new() -> (Self, Receiver<Message>) {
        let (messages, received) = sync_channel(MAX_WAITING);
        let log = Self {
            form: AtomicU8::new(table::Access::Off as u8),
            messages,
            waiting: AtomicUsize::new(0),
            lost: Arc::default(),
            wanted: ArcSwapOption::empty(),
        };
        (log, received)
    }

    /// Whether access lines are wanted.
    #[must_use]
    pub(crate) fn is_on(&self) -> bool {
        self.form() != table::Access::Off
    }

    /// The form of access lines.
    #[must_use]
    pub(crate) fn form(&self) -> table::Access {
        let form = self.form.load(Ordering::Relaxed);
        let forms = [table::Access::Haproxy, table::Access::Json];
        let mut forms = forms.into_iter();
        let wanted = forms.find(|wanted| *wanted as u8 == form);
        wanted.unwrap_or(table::Access::Off)
    }

    /// Queues one record, or counts it as lost.
    pub(crate) fn write(&self, record: Box<Record>) {
        if self.messages.try_send(Message::Line(record)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues the lines of `count` requests, or counts them as lost.
    pub(crate) fn write_lines(&self, lines: String, count: u64) {
        let length = lines.len();
        let waiting = self.waiting.fetch_add(length, Ordering::Relaxed);
        if waiting >= MOST_WAITING_BYTES || self.messages.try_send(Message::Lines(lines)).is_err() {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The number of lost lines: dropped from a full queue, or not written. A line for two destinations may be counted twice.
    #[must_use]
    pub(crate) fn dropped(&self) -> u64 {
        self.lost.load(Ordering::Relaxed) + log::lost_at_stdout()
    }

    /// Waits a short time for the queued lines to be written.
    pub(crate) async fn finish(&self) {
        let (done, written) = oneshot::channel();
        if self.is_on() && self.messages.try_send(Message::Flush(done)).is_ok() {
            timeout(FLUSH_TIME, written).await.ok();
        }
    }

    /// Writes lines as this table says from now on.
    pub(crate) fn follow(&self, log: &table::Log, folder: &Path) {
        let is_on = log.access != table::Access::Off;
        let wanted = is_on.then(|| Wanted {
            log: log.clone(),
            folder: folder.into(),
        });
        if self.wanted.load().as_deref() != wanted.as_ref() {
            self.wanted.store(wanted.map(Arc::new));
        }
        self.form.store(log.access as u8, Ordering::Relaxed);
    }

    /// Renders lines until all senders are gone.
    pub(crate) fn run(&self, messages: &Receiver<Message>) {
        let mut open: Option<(Arc<Wanted>, Sinks)> = None;
        while let Ok(first) = messages.recv() {
            self.follow_wanted(&mut open);
            for message in std::iter::once(first).chain(messages.try_iter().take(BATCH)) {
                if let Message::Lines(lines) = &message {
                    self.waiting.fetch_sub(lines.len(), Ordering::Relaxed);
                }
                match (message, &mut open) {
                    (Message::Lines(lines), Some((_, sinks))) => sinks.lines(&lines),
                    (Message::Line(record), Some((wanted, sinks))) => {
                        sinks.line(|text| line::render(&record, wanted.log.access, text));
                    }
                    (Message::Flush(done), Some((_, sinks))) => {
                        sinks.deliver();
                        sinks.flush(FLUSH_TIME);
                        // The sender may have stopped waiting.
                        done.send(()).ok();
                    }
                    // No lines are wanted any more. Dropping a flush request answers it.
                    (_, None) => {}
                }
            }
            if let Some((_, sinks)) = &mut open {
                sinks.deliver();
            }
        }
    }

    /// Opens the destinations of the table in force, if they differ from the open ones.
    fn follow_wanted(&self, open: &mut Option<(Arc<Wanted>, Sinks)>) {
        let wanted = self.wanted.load_full();
        let known = open.as_ref().map(|(known, _)| Arc::as_ptr(known));
        if known != wanted.as_ref().map(Arc::as_ptr) {
            *open = wanted.map(|wanted| {
                let sinks = Sinks::open(&wanted.log.to, &wanted.folder, &self.lost);
                (wanted, sinks)
            });
        }
    }
}

/// The most records that wait to be rendered.
const MAX_WAITING: usize = 8192;
/// From so many bytes of rendered lines on, no more are queued.
const MOST_WAITING_BYTES: usize = 4 << 20;
/// The most records rendered between two deliveries to the destinations.
const BATCH: usize = 256;
/// Time for the last lines to be written at the end of the process.
const FLUSH_TIME: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

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
        let (log, messages) = AccessLog::new();
        assert!(!log.is_on());
        log.follow(&table.log, folder.path());
        assert!(log.is_on());

        log.write(Box::new(line::tests::record()));
        let log = Arc::new(log);
        let writer = Arc::clone(&log);
        // This thread never ends, as in the process; the end of the test ends it.
        std::thread::spawn(move || writer.run(&messages));
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
        for _ in 0..MAX_WAITING + 3 {
            log.write(Box::new(line::tests::record()));
        }
        assert_eq!(log.dropped(), 3);
    }
}
