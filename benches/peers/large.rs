//! The large table: 10,000 services of 10 endpoints behind 100 frontends, of which one endpoint's address changes again and again.
//!
//! Runs as a process in the client's place. It replaces the table itself, so that one clock sees both the rename and the first
//! client that the new endpoint serves. Beside it two clients play ping-pong, one through the proxy and one without it: their
//! longest pauses, in windows with a swap and in windows of the same length without, tell what a swap costs others, and
//! what the machine does to everybody.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hist::nanos;
use crate::protocol::Protocol;
use crate::{client, origin, proxies, tables, usage};

/// What the process is told on its command line.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) front: SocketAddr,
    pub(crate) origin: SocketAddr,
    pub(crate) direct: SocketAddr,
    pub(crate) proxy: u32,
    pub(crate) swaps: u32,
}

impl Job {
    pub(crate) fn to_words(&self) -> [String; 5] {
        [
            self.front.to_string(),
            self.origin.to_string(),
            self.direct.to_string(),
            self.proxy.to_string(),
            self.swaps.to_string(),
        ]
    }

    pub(crate) fn from_words(words: &[String]) -> io::Result<Self> {
        let [front, origin, direct, proxy, swaps] = words else {
            return Err(io::Error::other("large: five words wanted"));
        };
        Ok(Self {
            front: front.parse().map_err(io::Error::other)?,
            origin: origin.parse().map_err(io::Error::other)?,
            direct: direct.parse().map_err(io::Error::other)?,
            proxy: proxy.parse().map_err(io::Error::other)?,
            swaps: swaps.parse().map_err(io::Error::other)?,
        })
    }
}

/// Swaps tables in `folder` and prints what it saw as one line of JSON.
pub(crate) fn run(folder: &Path, job: &Job) -> io::Result<()> {
    client::Dialer::new(job.front, Protocol::Tcp)?.wait_until_served()?;
    let through = PingPong::start(tables::second_front(job.front))?;
    let beside = PingPong::start(job.direct)?;
    std::thread::sleep(WINDOW);
    let mut seen: Vec<Window> = Vec::new();
    for number in 0..job.swaps {
        let port = job.origin.port() + u16::from(number % 2 == 0);
        let next = tables::large(
            job.front,
            SocketAddr::new(job.origin.ip(), port),
            number + 2,
        );
        let draft = folder.join("table.next");
        fs::write(&draft, next)?;
        std::thread::sleep(SETTLE);
        for swap in [false, true] {
            seen.push(window(job, &through, &beside, || {
                if swap {
                    fs::rename(&draft, proxies::table_file(folder))?;
                    return until_served_by(job.front, port).map(Some);
                }
                Ok(None)
            })?);
        }
    }
    through.stop()?;
    beside.stop()?;
    println!("{}", outcome(&seen, job.proxy));
    Ok(())
}

/// What one window saw. `served`: how long the rename took to reach a client; `None` without a swap.
struct Window {
    served: Option<Duration>,
    pause_ns: u64,
    direct_pause_ns: u64,
    proxy_ns: u64,
}

fn window(
    job: &Job,
    through: &PingPong,
    beside: &PingPong,
    work: impl FnOnce() -> io::Result<Option<Duration>>,
) -> io::Result<Window> {
    let begun = Instant::now();
    through.take_longest();
    beside.take_longest();
    let before = usage::cpu_ns(&[job.proxy]);
    let served = work()?;
    std::thread::sleep(WINDOW.saturating_sub(begun.elapsed()));
    Ok(Window {
        served,
        pause_ns: through.take_longest(),
        direct_pause_ns: beside.take_longest(),
        proxy_ns: usage::cpu_ns(&[job.proxy]).saturating_sub(before),
    })
}

/// Connects again and again until the endpoint at `port` answers.
fn until_served_by(front: SocketAddr, port: u16) -> io::Result<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if asked_port(front)? == port {
            return Ok(begun.elapsed());
        }
        std::thread::sleep(BETWEEN_ASKS);
    }
    Err(io::Error::other(format!(
        "the table was replaced {} s ago, and port {port} serves nobody",
        PATIENCE.as_secs()
    )))
}

fn asked_port(front: SocketAddr) -> io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&front, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[origin::WHICH])?;
    let mut port = [0; 2];
    stream.read_exact(&mut port)?;
    Ok(u16::from_be_bytes(port))
}

fn outcome(seen: &[Window], proxy: u32) -> Value {
    let numbers = |with_swap: bool, number: fn(&Window) -> f64| -> Vec<f64> {
        let windows = seen
            .iter()
            .filter(|window| window.served.is_some() == with_swap);
        windows.map(number).collect()
    };
    let pause = |window: &Window| window.pause_ns as f64 / 1e6;
    let direct = |window: &Window| window.direct_pause_ns as f64 / 1e6;
    let cpu = |window: &Window| window.proxy_ns as f64 / 1e6;
    let served = |window: &Window| window.served.unwrap_or_default().as_secs_f64() * 1e3;
    json!({
        "served_ms": numbers(true, served),
        "pause_ms": numbers(true, pause),
        "quiet_pause_ms": numbers(false, pause),
        "direct_pause_ms": numbers(true, direct),
        "cpu_ms": numbers(true, cpu),
        "quiet_cpu_ms": numbers(false, cpu),
        "resident": usage::resident_bytes(&[proxy]),
        "peak": usage::peak_bytes(proxy),
    })
}

/// One connection on which a few bytes go there and back all the time; it remembers the longest that they took.
struct PingPong {
    longest_ns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl PingPong {
    fn start(to: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (longest_ns, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (longest, stopped) = (Arc::clone(&longest_ns), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut bytes = [origin::ECHO; 16];
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                stream.write_all(&bytes)?;
                stream.read_exact(&mut bytes)?;
                longest.fetch_max(nanos(begun.elapsed()), Ordering::Relaxed);
                std::thread::sleep(BETWEEN_PINGS);
            }
            Ok(())
        });
        Ok(Self {
            longest_ns,
            stop,
            thread,
        })
    }

    fn take_longest(&self) -> u64 {
        self.longest_ns.swap(0, Ordering::Relaxed)
    }

    /// An error if the connection did not last.
    fn stop(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| io::Error::other("a ping-pong client panicked"))?
    }
}

/// Long enough for the plan before to be freed.
const WINDOW: Duration = Duration::from_millis(1_500);
/// Between the writing of the next table's draft and the first window.
const SETTLE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_ASKS: Duration = Duration::from_millis(1);
const BETWEEN_PINGS: Duration = Duration::from_micros(200);
