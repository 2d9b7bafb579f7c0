//! A node is emptied while clients connect all the time: a connection that begins then is answered.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
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
    failed: Vec<String>,
    /// The longest that an answered one took. A SYN that is lost is sent again after a second.
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
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(std::io::Error::other("the server said something")),
    }
}

/// Both addresses go to and fro: their announcer is told to end, or the file says that the node cannot serve.
pub(crate) fn hand_over(place: &mut Place) {
    let addresses = format!(
        "- {{address: {V4}, mode: l2, nodes: [NODES], ready: true}}
- {{address: \"{V6}\", mode: l2, nodes: [NODES], ready: true}}
return: never
"
    );
    place.start_with(0, &addresses);
    let have_moved = |place: &Place, to: usize| {
        until("all have moved", || {
            place.holders(V4) == [to] && place.holders(V6) == [to]
        });
    };
    have_moved(place, 0);
    place.start_with(1, &addresses);
    pause(LISTENS);
    let clients = [V4, V6].map(|address| Client::start(place, address));
    let moves = figures::rounds(4);
    for number in 0..moves {
        let (from, to) = (number % 2, 1 - number % 2);
        if number < moves / 2 {
            until("the other one knows the owner", || {
                let owner = format!("\"owner\":\"edge{}\"", from + 1);
                place.hosts[to].ack().matches(&owner).count() == 2
            });
            place.hosts[from].signal("TERM");
            until("it ended", || place.hosts[from].has_ended());
            have_moved(place, to);
            place.hosts[from].kill();
            place.start_with(from, &addresses);
            pause(LISTENS);
        } else {
            let ready = |host: &Host, is_ready: bool| {
                let [old, new] = [!is_ready, is_ready].map(|word| format!("ready: {word}"));
                host.write(&host.file().replace(&old, &new));
            };
            ready(&place.hosts[to], true);
            ready(&place.hosts[from], false);
            have_moved(place, to);
            pause(Duration::from_millis(1_200));
        }
    }
    for (client, address) in clients.into_iter().zip([V4, V6]) {
        let seen = client.end();
        println!(
            "{address}, {moves} moves: {} answered, {:?} failed, {:?} at most",
            seen.answered, seen.failed, seen.slowest
        );
        assert!(seen.answered > 100, "{seen:?}");
        // The address is removed here, and the other host asks the network before it takes it: a SYN of that moment, which lasts
        // some 0.1 s, is sent again after a second.
        assert!(seen.slowest < Duration::from_millis(2_500), "{seen:?}");
        // A connection does not move with its address: one that is open at that moment is lost. It is open for some 0.5 ms of every 10,
        // so that it happens in one of twenty moves.
        assert!(seen.failed.len() <= 1.max(moves / 5), "{seen:?}");
    }
}

/// An announcer that begins listens for a second before it can hold anything.
const LISTENS: Duration = Duration::from_millis(1_500);
