//! A node is emptied while clients connect all the time, and hold connections: a connection that begins then is answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::hosts::{Host, Place, enter, pause, until};
use crate::{V4, V6, figures};

/// A client of an address, which connects every 10 ms and waits until the server closes.
struct Client {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// What became of connections.
#[derive(Debug, Default)]
struct Seen {
    answered: u32,
    /// Those that took so long that a SYN was lost, which is sent again after a second.
    slow: usize,
    /// Those that the next host did not know, which are reset.
    reset: usize,
    failed: Vec<String>,
    /// The longest that an answered one took.
    slowest: Duration,
}

impl Client {
    fn start(place: &Place, address: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, network) = (Arc::clone(&is_over), place.client.holder());
        let to = SocketAddr::new(address.parse::<IpAddr>().expect("an address"), 80);
        let thread = thread::spawn(move || {
            enter(network);
            let mut seen = Seen::default();
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                match ask(to) {
                    Ok(()) => {
                        seen.answered += 1;
                        seen.slowest = seen.slowest.max(begun.elapsed());
                        seen.slow += usize::from(begun.elapsed() >= Duration::from_millis(900));
                    }
                    // EPIPE: the reset came after the end of the server's half.
                    Err(error)
                        if [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe]
                            .contains(&error.kind()) =>
                    {
                        seen.reset += 1;
                    }
                    Err(error) => seen.failed.push(error.to_string()),
                }
                pause(Duration::from_millis(10));
            }
            seen
        });
        Self { is_over, thread }
    }

    fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// A connection until its end.
fn ask(to: SocketAddr) -> std::io::Result<()> {
    let mut stream = connect(to)?;
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(std::io::Error::other("the server said something")),
    }
}

/// A client that asks by one connection every 10 ms, and connects again when that ends.
struct Holder {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Held>,
}

/// What became of connections that were open.
#[derive(Debug, Default)]
struct Held {
    answers: u32,
    /// Connections that ended.
    ended: u32,
    /// Connections that were not taken, and answers that did not come at all.
    failed: Vec<String>,
    /// The longest time between two answers, of one connection or of two.
    longest: Duration,
}

impl Holder {
    fn start(place: &Place, address: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, network) = (Arc::clone(&is_over), place.client.holder());
        let to = SocketAddr::new(address.parse::<IpAddr>().expect("an address"), ECHO);
        let thread = thread::spawn(move || {
            enter(network);
            let mut held = Held::default();
            let mut last = Instant::now();
            while !ends.load(Ordering::Relaxed) {
                match connect(to) {
                    Ok(stream) => hold(stream, &ends, &mut held, &mut last),
                    Err(error) => held.failed.push(format!("a connection: {error}")),
                }
            }
            held
        });
        Self { is_over, thread }
    }

    fn end(self) -> Held {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// Asks by a connection until its end.
fn hold(mut stream: TcpStream, ends: &AtomicBool, held: &mut Held, last: &mut Instant) {
    while !ends.load(Ordering::Relaxed) {
        let asked = stream.write_all(b"x");
        match asked.and_then(|()| stream.read_exact(&mut [0])) {
            Ok(()) => {
                held.answers += 1;
                held.longest = held.longest.max(last.elapsed());
                *last = Instant::now();
            }
            Err(error) => {
                held.ended += 1;
                // The host that has the address now does not know the connection, and says so.
                if error.kind() == ErrorKind::WouldBlock {
                    held.failed.push(format!("an answer: {error}"));
                }
                return;
            }
        }
        pause(Duration::from_millis(10));
    }
}

fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    Ok(stream)
}

/// A connection on which the client waits, and sends nothing.
fn silent(place: &Place, address: &str) -> TcpStream {
    let network = place.client.holder();
    let to = SocketAddr::new(address.parse::<IpAddr>().expect("an address"), ECHO);
    let connecting = thread::spawn(move || {
        enter(network);
        connect(to).expect("a connection")
    });
    connecting.join().expect("no panic")
}

/// Answers each byte of each connection to the host.
fn echo(host: &Host) {
    let network = host.holder();
    thread::spawn(move || {
        enter(network);
        let listener = TcpListener::bind(("::", ECHO)).expect("a port");
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
}

/// What makes an address move.
#[derive(Clone, Copy, Debug)]
enum Reason {
    /// The announcer is told to end.
    End,
    /// The file says that the node cannot serve it.
    Unready,
    /// The file does not name the node any more.
    Unnamed,
}

impl Reason {
    fn begin(self, host: &mut Host) {
        match self {
            Self::End => {
                host.signal("TERM");
                until("it ended", || host.has_ended());
            }
            Self::Unready => host.replace("ready: true", "ready: false"),
            Self::Unnamed => host.replace("[edge1, edge2]", &others(host)),
        }
    }

    fn end(self, place: &mut Place, number: usize, addresses: &str) {
        let host = &mut place.hosts[number];
        match self {
            Self::End => {
                host.kill();
                place.start_with(number, addresses);
            }
            Self::Unready => host.replace("ready: false", "ready: true"),
            Self::Unnamed => host.replace(&others(host), "[edge1, edge2]"),
        }
    }
}

/// The nodes but this one, as its file has them.
fn others(host: &Host) -> String {
    format!("[edge{}]", 3 - host.number)
}

/// Both addresses go to and fro while clients connect and hold connections: none is refused, and none is kept waiting.
pub(crate) fn hand_over(place: &mut Place) {
    let addresses = format!(
        "- {{address: {V4}, mode: l2, nodes: [NODES], ready: true}}
- {{address: \"{V6}\", mode: l2, nodes: [NODES], ready: true}}
return: never
"
    );
    let have_moved = |place: &Place, to: usize| {
        until("all have moved", || {
            place.holders(V4) == [to] && place.holders(V6) == [to]
        });
    };
    place.hosts.iter().for_each(echo);
    place.start_with(0, &addresses);
    have_moved(place, 0);
    place.start_with(1, &addresses);
    pause(LISTENS);
    let clients = [V4, V6].map(|address| Client::start(place, address));
    let holders = [V4, V6].map(|address| Holder::start(place, address));
    let moves = figures::rounds(6);
    for number in 0..moves {
        let (from, to) = (number % 2, 1 - number % 2);
        println!("move {number}, from edge{}", from + 1);
        until("the other one knows the owner", || {
            let owner = format!("\"owner\":\"edge{}\"", from + 1);
            place.hosts[to].ack().matches(&owner).count() == 2
        });
        let reason = [Reason::End, Reason::Unready, Reason::Unnamed][number / 2 % 3];
        let silent = [V4, V6].map(|address| silent(place, address));
        reason.begin(&mut place.hosts[from]);
        have_moved(place, to);
        for (mut stream, address) in silent.into_iter().zip([V4, V6]) {
            let heard = stream.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(heard, Err(ErrorKind::ConnectionReset), "{address}");
            until("no connection of it is left", || {
                let mut ss = place.hosts[from].program("ss");
                let listed = ss.args(["-Htn", "state", "connected", "src", address]);
                let listed = listed.output().expect("ss").stdout;
                let listed = String::from_utf8_lossy(&listed);
                listed.lines().all(|line| line.starts_with("TIME-WAIT"))
            });
        }
        reason.end(place, from, &addresses);
        pause(LISTENS);
    }
    for (client, address) in clients.into_iter().zip([V4, V6]) {
        let seen = client.end();
        println!(
            "{address}, {moves} moves: {} answered, {} reset, {} slow, {:?} failed, {:?} at most",
            seen.answered, seen.reset, seen.slow, seen.failed, seen.slowest
        );
        // None is refused, and none gets no answer.
        assert!(seen.answered > 100 && seen.failed.is_empty(), "{seen:?}");
        assert!(seen.slow <= 1.max(moves / 20), "{seen:?}");
        assert!(seen.slowest < Duration::from_millis(2_500), "{seen:?}");
        // A connection does not move with its address: one that is open while the next host announces it may be lost.
        assert!(seen.reset <= 1.max(moves / 5), "{seen:?}");
    }
    for (holder, address) in holders.into_iter().zip([V4, V6]) {
        let held = holder.end();
        println!(
            "{address}, {moves} moves: {} connections ended, {} answers, {:?} failed, {:?} between two at most",
            held.ended, held.answers, held.failed, held.longest
        );
        // A connection does not move with its address: it ends, and the next one is there at once.
        let moves = u32::try_from(moves).expect("few");
        assert!(held.ended <= moves && held.failed.is_empty(), "{held:?}");
        assert!(held.longest < Duration::from_millis(2_500), "{held:?}");
    }
}

/// An announcer that begins listens for a second before it can hold anything.
const LISTENS: Duration = Duration::from_millis(1_500);
const ECHO: u16 = 81;
