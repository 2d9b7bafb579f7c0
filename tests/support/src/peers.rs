//! Scripted clients and servers: they half-close, reset, stop, drip and dawdle on purpose. And what a test can see of a data
//! plane from outside: the processor time of its workers, and the sockets that the kernel still keeps for it.
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ballast::sys::unacknowledged;
use ballast_core::counters::Cell;
use ballast_core::endpoint::EndpointCounters;
use ballast_core::rng::Rng;
use socket2::{Domain, SockRef, Socket, Type};

use crate::{Ballast, until};

/// A data plane whose processor time and counters are watched.
pub struct Watched {
    ballast: Ballast,
}

impl Watched {
    /// Serves `table`.
    pub fn serve(table: &str, threads: usize) -> Self {
        let ballast = Ballast::serve(table, threads);
        assert_eq!(ballast.workers.len(), threads);
        Self { ballast }
    }

    /// Ends it; how many connections had to be cut.
    pub fn stop(self) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(self.ballast.running.stop())
    }

    /// Processor time that the workers have used until now, to 10 ms.
    pub fn cpu(&self) -> Duration {
        let of = |id| processor_time(&format!("/proc/self/task/{id}/stat"));
        self.ballast.workers.iter().map(of).sum()
    }

    /// The sum of a counter over all endpoints of the plan in force, and all workers.
    pub fn count(&self, cell: impl Fn(&EndpointCounters) -> &Cell) -> u64 {
        let plan = self.running.shared().live.plan();
        let endpoints = plan
            .services()
            .iter()
            .flat_map(|service| service.endpoints());
        endpoints
            .filter_map(|endpoint| endpoint.live().all_counters())
            .map(|counters| counters.sum(&cell))
            .sum()
    }
}

impl Deref for Watched {
    type Target = Ballast;

    fn deref(&self) -> &Ballast {
        &self.ballast
    }
}

/// Held by who starts a data plane, and by who starts a process: a child has all descriptors of its parent until it has
/// become its program, and a port that was just given back would be in use for that long.
pub fn alone() -> MutexGuard<'static, ()> {
    static STARTS: Mutex<()> = Mutex::new(());
    STARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn worker_threads() -> BTreeSet<u32> {
    let tasks = fs::read_dir("/proc/self/task").expect("the threads of this process");
    tasks
        .flatten()
        .filter(|task| {
            // A thread may end while its name is read.
            fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.starts_with("worker-"))
        })
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .collect()
}

/// The processor time of the thread or process whose state this file tells, to 10 ms.
pub fn processor_time(stat: &str) -> Duration {
    let stat = fs::read_to_string(stat).expect("a thread or process");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    // utime and stime are the 14th and 15th of all, and the name is the second.
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("ticks"))
        .sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// A thread that looks how late this machine lets it wake up: what is measured meanwhile is late by as much.
pub struct Lateness {
    stop: Arc<AtomicBool>,
    looking: JoinHandle<Duration>,
}

impl Lateness {
    pub fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let looking = thread::spawn(move || {
            let (pause, mut worst) = (Duration::from_millis(5), Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                thread::sleep(pause);
                worst = worst.max(begun.elapsed().saturating_sub(pause));
            }
            worst
        });
        Self { stop, looking }
    }

    /// The worst of it.
    pub fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.looking.join().expect("no panic")
    }
}

/// Whether what is promised is held against this machine to the letter: it does nothing else.
pub fn is_for_figures() -> bool {
    std::env::var_os("FIGURES").is_some()
}

/// What may be forgiven to a machine that is late by so much; nothing with FIGURES=1.
pub fn forgiven(late: Duration) -> Duration {
    if is_for_figures() {
        return Duration::ZERO;
    }
    4 * late
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Clean,
    Reset,
    /// Nothing came for as long as the reader waits.
    Silence,
}

/// Everything that still comes, and how it ends.
pub fn hear(stream: &mut TcpStream) -> (Vec<u8>, End) {
    hear_slowly(stream, 64 << 10, Duration::ZERO)
}

/// The same, in steps of `step` bytes with a pause after each.
pub fn hear_slowly(stream: &mut TcpStream, step: usize, pause: Duration) -> (Vec<u8>, End) {
    let (mut heard, mut bytes) = (Vec::new(), vec![0; step]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return (heard, End::Clean),
            Ok(read) => heard.extend_from_slice(&bytes[..read]),
            Err(error) => match error.kind() {
                ErrorKind::ConnectionReset => return (heard, End::Reset),
                ErrorKind::WouldBlock => return (heard, End::Silence),
                ErrorKind::Interrupted => {}
                other => panic!("{other}: {error}"),
            },
        }
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
}

/// Says one byte, and hears it echoed: then the connection stands from end to end.
pub fn ping(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&[7])?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    assert_eq!(byte, [7]);
    Ok(())
}

/// Writes until nobody takes any more for a while; how much that was.
pub fn stuff(stream: &mut TcpStream) -> usize {
    let block = vec![0x5a; 64 << 10];
    let mut written = 0;
    stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .expect("an option");
    loop {
        match stream.write(&block) {
            Ok(taken) => written += taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return written,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until the peer's kernel has all that was written.
pub fn await_delivery(stream: &TcpStream) {
    until("what was written is delivered", || {
        unacknowledged(stream).expect("a queue") == 0
    });
}

/// Closes by a reset.
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .expect("an option");
}

/// A client that its kernel buffers little for, so that its own pace is felt.
pub fn narrow_client(address: SocketAddr, buffer: usize) -> TcpStream {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(buffer).expect("an option");
    socket.connect(&address.into()).expect("a connection");
    let stream = TcpStream::from(socket);
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("an option");
    stream
}

/// Bytes without a pattern, the same for the same seed.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A listener whose queue is full: whoever connects hears nothing, and tries again every second, until it is opened.
pub struct ShutDoor {
    socket: Socket,
    waiting: Vec<TcpStream>,
}

impl ShutDoor {
    #[expect(clippy::new_without_default, reason = "it opens sockets")]
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .expect("a port");
        socket.listen(0).expect("a listener");
        let mut door = Self {
            socket,
            waiting: Vec::new(),
        };
        let address = door.address();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            door.waiting.push(stream);
        }
        door
    }

    pub fn address(&self) -> SocketAddr {
        let address = self.socket.local_addr().expect("an address");
        address.as_socket().expect("an IP address")
    }

    /// Accepts from now on, and does this with each connection.
    pub fn open(self, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
        drop(self.waiting);
        self.socket.listen(1024).expect("a longer queue");
        let listener = TcpListener::from(self.socket);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let serve = serve.clone();
                thread::spawn(move || serve(client));
            }
        });
    }
}

/// How many connections to `peer` the kernel keeps in TIME_WAIT on the side that connected. A port that the kernel chose may have
/// been another test's a moment ago, so `peer` has an IP address that no other test uses.
pub fn time_waits_towards(peer: SocketAddr) -> usize {
    sockets_towards(peer, TIME_WAIT)
}

/// How many connections to `peer` are being made, and have heard nothing yet.
pub fn dials_towards(peer: SocketAddr) -> usize {
    sockets_towards(peer, SYN_SENT)
}

fn sockets_towards(peer: SocketAddr, state: &str) -> usize {
    let SocketAddr::V4(peer) = peer else {
        panic!("{peer}: the list of sockets is that of IPv4");
    };
    let sockets = fs::read_to_string("/proc/thread-self/net/tcp").expect("the list of sockets");
    // The kernel prints the bytes of the address as a number of this machine.
    let ip = u32::from_ne_bytes(peer.ip().octets());
    let remote = format!("{ip:08X}:{:04X}", peer.port());
    sockets
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| matches!(fields[..], [_, _, to, is, ..] if to == remote && is == state))
        .count()
}

const TICKS_PER_SECOND: u64 = 100;
const SYN_SENT: &str = "02";
const TIME_WAIT: &str = "06";
