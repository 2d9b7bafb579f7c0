//! Access lines: one for each connection, or for each request of HTTP, written to the destinations of the table's `log.to`.
//!
//! A worker renders its lines into a buffer of its own, and hands over many at a time. One thread adds all lines to the queue of
//! each destination, and a thread of that destination writes them. Lines that find a queue full, and lines that cannot be written,
//! are lost and counted. So no worker ever waits for a log, and no destination for another one.

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
mod sink;

pub(crate) use line::{Dates, Record, Request, relay_letters, render};
pub(crate) use progress::{Progress, WaitPhase};
use sink::Sinks;

use crate::os::log;

/// The access log, as the workers use it.
#[derive(Debug)]
pub(crate) struct AccessLog {
    /// [`table::Access`] as a number.
    form: AtomicU8,
    messages: SyncSender<Message>,
    order: Arc<Order>,
}

/// The part of the log that the workers and the writer share.
#[derive(Debug, Default)]
struct Order {
    /// Bytes of rendered lines that wait for the writer.
    waiting: AtomicUsize,
    lost: Arc<AtomicU64>,
    wanted: ArcSwapOption<Wanted>,
}

/// Passes lines on to their destinations, in a thread of its own.
#[derive(Debug)]
pub(crate) struct Writer {
    messages: Receiver<Message>,
    order: Arc<Order>,
}

/// Messages to the thread that passes lines on.
#[derive(Debug)]
enum Message {
    /// Lines, each with its line feed.
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
    /// Creates a log that writes nothing yet, and its writer.
    pub(crate) fn new() -> (Self, Writer) {
        let (messages, received) = sync_channel(MAX_WAITING);
        let order = Arc::<Order>::default();
        let writer = Writer {
            messages: received,
            order: Arc::clone(&order),
        };
        let log = Self {
            form: AtomicU8::new(table::Access::Off as u8),
            messages,
            order,
        };
        (log, writer)
    }

    /// Whether access lines are wanted.
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

    /// Queues `count` lines, or counts them as lost.
    pub(crate) fn write(&self, lines: String, count: u64) {
        let length = lines.len();
        let waiting = self.order.waiting.fetch_add(length, Ordering::Relaxed);
        if waiting >= MOST_WAITING_BYTES || self.messages.try_send(Message::Lines(lines)).is_err() {
            self.order.waiting.fetch_sub(length, Ordering::Relaxed);
            self.order.lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The number of lost lines: dropped from a full queue, or not written. A line for two destinations may be counted twice.
    pub(crate) fn dropped(&self) -> u64 {
        self.order.lost.load(Ordering::Relaxed) + log::lost_at_stdout()
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
        if self.order.wanted.load().as_deref() != wanted.as_ref() {
            self.order.wanted.store(wanted.map(Arc::new));
        }
        self.form.store(log.access as u8, Ordering::Relaxed);
    }
}

impl Writer {
    /// Passes lines on until the log is gone.
    pub(crate) fn run(self) {
        let Self { messages, order } = &self;
        let mut open: Option<(Arc<Wanted>, Sinks)> = None;
        while let Ok(first) = messages.recv() {
            order.follow_wanted(&mut open);
            for message in std::iter::once(first).chain(messages.try_iter().take(BATCH)) {
                if let Message::Lines(lines) = &message {
                    order.waiting.fetch_sub(lines.len(), Ordering::Relaxed);
                }
                match (message, &mut open) {
                    (Message::Lines(lines), Some((_, sinks))) => sinks.add_lines(&lines),
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
}

#[cfg(test)]
impl Writer {
    /// The next lines that wait for the writer, if there are any.
    pub(crate) fn next_lines(&self) -> Option<String> {
        match self.messages.try_recv() {
            Ok(Message::Lines(lines)) => Some(lines),
            _ => None,
        }
    }
}

impl Order {
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

/// The most batches of lines that wait for the thread.
const MAX_WAITING: usize = 8192;
/// From this number of bytes of rendered lines on, no more are queued.
const MOST_WAITING_BYTES: usize = 4 << 20;
/// The most batches passed on between two deliveries to the destinations.
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
        let (log, writer) = AccessLog::new();
        assert!(!log.is_on());
        log.follow(&table.log, folder.path());
        assert!(log.is_on());

        log.write("{\"a\":1}\n".into(), 1);
        let writing = std::thread::spawn(move || writer.run());
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
        drop(log);
        writing
            .join()
            .expect("a writer ends with the log that it writes");
    }

    #[test]
    fn a_worker_never_waits_for_the_writer() {
        let (log, _nobody_reads) = AccessLog::new();
        for _ in 0..MAX_WAITING + 3 {
            log.write("a line\n".into(), 2);
        }
        assert_eq!(log.dropped(), 2 * 3);
    }
}
