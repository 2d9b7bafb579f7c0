//! A bounded queue of lines with one thread that writes them: to a standard stream, or as datagrams to syslog.
//!
//! Adding lines never waits for their reader. Lines that find the queue full, and lines whose write fails, are lost and
//! counted. `tracing-appender` does this for standard error, but it does not count failed writes, cannot be flushed by a
//! process that is about to abort, and does not support syslog.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::lock;

/// The queue of one destination.
#[derive(Debug)]
pub struct LineQueue {
    state: Mutex<State>,
    /// Notified when lines were added, lines were written, or the queue was closed.
    changed: Condvar,
    lost: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    /// Complete lines, each with its line feed.
    lines: Vec<u8>,
    /// When the current write began.
    writing: Option<Instant>,
    is_closed: bool,
}

impl LineQueue {
    /// Creates an empty queue. Lost lines are added to `lost`.
    pub fn new(lost: Arc<AtomicU64>) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            lost,
        }
    }

    /// Adds lines, each with its line feed. Never waits for the reader: if the queue is full, the lines are lost.
    pub fn add(&self, lines: &[u8]) {
        let mut state = lock(&self.state);
        if state.lines.len() >= MAX_QUEUED {
            drop(state);
            self.lost.fetch_add(count(lines), Ordering::Relaxed);
            return;
        }
        state.lines.extend_from_slice(lines);
        drop(state);
        self.changed.notify_all();
    }

    /// The number of lines lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, but not longer than `within`, counted from the start of the current write if there is
    /// one.
    pub fn flush(&self, within: Duration) {
        let mut state = lock(&self.state);
        let until = state.writing.unwrap_or_else(Instant::now) + within;
        while state.writing.is_some() || !state.lines.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets the thread end once it has written the queued lines.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    /// Writes lines until the queue is closed. `write` returns the number of lines that it lost.
    fn run(&self, mut write: impl FnMut(&[u8]) -> u64) {
        let mut state = lock(&self.state);
        loop {
            if state.lines.is_empty() {
                if state.is_closed {
                    return;
                }
                let waited = self.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let lines = std::mem::take(&mut state.lines);
            state.writing = Some(Instant::now());
            drop(state);
            self.lost.fetch_add(write(&lines), Ordering::Relaxed);
            state = lock(&self.state);
            state.writing = None;
            self.changed.notify_all();
        }
    }
}

/// Starts the thread of a queue. If the thread panics, the process goes on and every line is lost. The thread has the priority
/// of a worker; otherwise the last lines of a process on a busy machine would not be written in time.
pub fn start(
    queue: impl Deref<Target = LineQueue> + Send + 'static,
    name: &str,
    write: impl FnMut(&[u8]) -> u64 + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(move || {
        queue.run(write);
    })?;
    Ok(())
}

/// Writes lines to a stream, such as standard error. The stream may be a pipe that other programs write to as well, so each
/// write has as many complete lines as the kernel writes atomically.
pub fn to_stream(stream: impl AsFd) -> impl FnMut(&[u8]) -> u64 {
    move |mut lines| {
        let mut lost = 0;
        while !lines.is_empty() {
            let (piece, rest) = lines.split_at(whole_lines(lines));
            if let Err(unwritten) = write_all(stream.as_fd(), piece) {
                lost += count(unwritten);
            }
            lines = rest;
        }
        lost
    }
}

/// Sends each line as a datagram to a local syslog socket. The path is resolved for each line, so that the syslog server may be
/// restarted. `tell` is told when lines begin to be lost, and when they arrive again.
pub fn to_unix(
    path: PathBuf,
    tell: impl FnMut(Delivery<'_>),
) -> io::Result<impl FnMut(&[u8]) -> u64> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut teller = Teller::new(tell);
    Ok(move |lines: &[u8]| to_syslog(lines, |line| socket.send_to(line, &path), &mut teller))
}

/// Sends each line as a datagram to a syslog server. The socket is connected, because only so does the kernel report that nobody
/// listens there. It reports that with the next line. `tell` is told when lines begin to be lost, and when they arrive again.
pub fn to_udp(address: SocketAddr, tell: impl FnMut(Delivery<'_>)) -> impl FnMut(&[u8]) -> u64 {
    let mut connected: Option<UdpSocket> = None;
    let mut teller = Teller::new(tell);
    move |lines: &[u8]| {
        let send = |line: &[u8]| {
            let socket = match connected.take() {
                Some(socket) => socket,
                None => connect(address)?,
            };
            let sent = match socket.send(line) {
                // This is about an earlier line; this line was not sent yet.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    socket.send(line).ok();
                    Err(error)
                }
                sent => sent,
            };
            // After any other error, a new socket gets the route and the source address of that time.
            let stays = |error: &io::Error| {
                matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock
                )
            };
            connected = sent.as_ref().err().is_none_or(stays).then_some(socket);
            sent
        };
        to_syslog(lines, send, &mut teller)
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.connect(address)?;
    Ok(socket)
}

/// What becomes of the lines for a syslog server.
#[derive(Debug)]
pub enum Delivery<'e> {
    /// Lines are lost from now on.
    Fails(&'e io::Error),
    /// Lines have arrived for some time.
    WorksAgain,
}

/// Tells of the first failure of a series only, and of its end.
struct Teller<T> {
    tell: T,
    last_failure: Option<Instant>,
}

impl<T: FnMut(Delivery<'_>)> Teller<T> {
    fn new(tell: T) -> Self {
        let last_failure = None;
        Self { tell, last_failure }
    }

    fn note(&mut self, error: Option<&io::Error>) {
        let now = Instant::now();
        match (error, self.last_failure) {
            (Some(error), last) => {
                if last.is_none() {
                    (self.tell)(Delivery::Fails(error));
                }
                self.last_failure = Some(now);
            }
            (None, Some(last)) if now.duration_since(last) > SERIES => {
                self.last_failure = None;
                (self.tell)(Delivery::WorksAgain);
            }
            (None, _) => {}
        }
    }
}

/// Returns the number of lost lines. If the receiver accepts nothing for [`PATIENCE`], all remaining lines are lost.
fn to_syslog(
    lines: &[u8],
    mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    teller: &mut Teller<impl FnMut(Delivery<'_>)>,
) -> u64 {
    let mut lost = 0;
    let mut left = lines;
    while !left.is_empty() {
        let (line, rest) = left.split_at(first_line(left));
        let error = send(line.trim_ascii_end()).err();
        let kind = error.as_ref().map(io::Error::kind);
        if kind == Some(io::ErrorKind::Interrupted) {
            continue;
        }
        teller.note(error.as_ref());
        if kind == Some(io::ErrorKind::WouldBlock) {
            return lost + count(left);
        }
        lost += u64::from(kind.is_some());
        left = rest;
    }
    lost
}

/// Writes all bytes, or returns those that could not be written.
fn write_all<'b>(stream: BorrowedFd<'_>, mut bytes: &'b [u8]) -> Result<(), &'b [u8]> {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Another user of the stream may have made it non-blocking.
            Err(Errno::AGAIN) => {
                let ready = poll(&mut [PollFd::new(&stream, PollFlags::OUT)], None);
                if ready.is_err_and(|error| error != Errno::INTR) {
                    return Err(bytes);
                }
            }
            Err(_) => return Err(bytes),
        }
    }
    Ok(())
}

/// The length of the complete lines that a pipe accepts atomically; at least one line.
fn whole_lines(lines: &[u8]) -> usize {
    let at_once = lines.get(..PIPE_ATOMIC).unwrap_or(lines);
    match at_once.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        None => first_line(lines),
    }
}

fn first_line(lines: &[u8]) -> usize {
    let end = lines.iter().position(|byte| *byte == b'\n');
    end.map_or(lines.len(), |end| end + 1)
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The size in bytes from which on a queue accepts no more lines.
const MAX_QUEUED: usize = 256 * 1024;
/// PIPE_BUF: a write of at most this size is not mixed with those of other programs.
const PIPE_ATOMIC: usize = 4096;
/// Time for a syslog server to accept one line.
const PATIENCE: Duration = Duration::from_secs(1);
/// Failures within this time are one series: a line for a closed port of UDP seems to be sent, and fails with the next one.
const SERIES: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::sync::mpsc;

    use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
    use rustix::pipe::pipe;

    use super::*;

    fn queue() -> Arc<LineQueue> {
        Arc::new(LineQueue::new(Arc::default()))
    }

    /// Waits for what must come.
    fn until(mut come: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !come() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it never came");
            thread::yield_now();
        }
    }

    #[test]
    fn whoever_adds_a_line_never_waits_and_what_is_too_much_is_counted() {
        let queue = queue();
        let (go_on, held) = mpsc::channel::<()>();
        let (taken, written) = mpsc::channel();
        start(Arc::clone(&queue), "stuck", move |lines| {
            taken.send(lines.len()).unwrap();
            held.recv().ok();
            0
        })
        .unwrap();
        queue.add(b"first\n");
        assert_eq!(written.recv().unwrap(), 6);
        let line = [b'x'; 1023].iter().chain(b"\n").copied();
        let line: Vec<u8> = line.collect();
        for _ in 0..MAX_QUEUED / 1024 {
            queue.add(&line);
        }
        assert_eq!(queue.lost(), 0);
        queue.add(b"one\ntwo\n");
        assert_eq!(queue.lost(), 2);

        let began = Instant::now();
        queue.flush(Duration::from_millis(20));
        assert!(began.elapsed() < Duration::from_secs(10));
        drop(go_on);
        assert_eq!(written.recv().unwrap(), MAX_QUEUED);
        queue.flush(Duration::from_secs(30));
        assert!(lock(&queue.state).lines.is_empty());
    }

    #[test]
    fn a_write_that_has_lasted_too_long_is_not_waited_for_again() {
        let queue = queue();
        let (_never, held) = mpsc::channel::<()>();
        start(Arc::clone(&queue), "stuck", move |_| {
            held.recv().ok();
            0
        })
        .unwrap();
        queue.add(b"x\n");
        until(|| lock(&queue.state).writing.is_some());
        queue.flush(Duration::from_millis(50));
        let first = lock(&queue.state).writing.unwrap();
        assert!(first.elapsed() >= Duration::from_millis(50));
        // Returns, or the test would take that long.
        lock(&queue.state).writing = Instant::now().checked_sub(Duration::from_secs(3600));
        queue.flush(Duration::from_secs(3600));
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let full = open("/dev/full", OFlags::WRONLY, Mode::empty()).unwrap();
        assert_eq!(to_stream(full)(b"one\ntwo\n"), 2);
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        assert_eq!(to_stream(writer)(b"one\n"), 1);
    }

    #[test]
    fn lines_are_written_whole_however_long_they_are() {
        assert_eq!(whole_lines(b"one\ntwo\n"), 8);
        let long = format!("{}\n", "x".repeat(3 * PIPE_ATOMIC));
        let lines = format!("short\n{long}last\n");
        assert_eq!(whole_lines(lines.as_bytes()), 6);
        assert_eq!(whole_lines(long.as_bytes()), long.len());

        let (reader, writer) = pipe().unwrap();
        assert_eq!(to_stream(writer)(lines.as_bytes()), 0);
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, lines);
    }

    #[test]
    fn a_stream_that_does_not_block_is_waited_for() {
        let (reader, writer) = pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let lines = "a line\n".repeat(40_000);
        let expected = lines.clone();
        let writing = thread::spawn(move || to_stream(writer)(lines.as_bytes()));
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(writing.join().unwrap(), 0);
        assert!(text == expected);
    }

    #[test]
    fn a_syslog_server_that_takes_nothing_costs_what_waits_and_no_more_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let server = UnixDatagram::bind(&path).unwrap();
        let mut send = to_unix(path, |_| {}).unwrap();
        let began = Instant::now();
        let lines = "line\n".repeat(1000);
        let lost = send(lines.as_bytes());
        assert!(began.elapsed() < 20 * PATIENCE);
        server.set_nonblocking(true).unwrap();
        let mut received = 0;
        let mut line = [0; 16];
        while let Ok(length) = server.recv(&mut line) {
            assert_eq!(line.get(..length), Some(&b"line"[..]));
            received += 1;
        }
        assert!(lost > 0);
        assert_eq!(received + lost, 1000);
        assert_eq!(send(b"again\n"), 0);
    }

    #[test]
    fn a_syslog_server_that_is_not_there_is_told_of_once() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, told) = mpsc::channel();
        let tell = |sender: mpsc::Sender<bool>| {
            move |delivery: Delivery<'_>| {
                let fails = matches!(delivery, Delivery::Fails(_));
                sender.send(fails).unwrap();
            }
        };
        let mut send = to_unix(folder.path().join("nobody"), tell(sender.clone())).unwrap();
        assert_eq!(send(b"one\ntwo\n"), 2);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [true]);

        let port = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        let mut send = to_udp(address, tell(sender));
        until(|| {
            send(b"line\n");
            told.try_recv() == Ok(true)
        });
        let again = UdpSocket::bind(address).unwrap();
        send(b"first\n");
        send(b"second\n");
        let mut line = [0; 16];
        again
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        for expected in ["first", "second"] {
            let length = again.recv(&mut line).unwrap();
            assert_eq!(line.get(..length), Some(expected.as_bytes()));
        }
        assert_eq!(told.try_iter().count(), 0, "one series of failures");
    }
}
