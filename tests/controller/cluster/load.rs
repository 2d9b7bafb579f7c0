//! Clients outside of the cluster, and what they notice while something is done there.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Shown};

/// What clients noticed.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    /// Those that ask where the Service is published at that moment, as those do who are sent by DNS or a router.
    pub(crate) led: Story,
    /// Those that ask one node, whatever happens: the first, and the second.
    pub(crate) fixed: [Story; 2],
    /// How often the status named no address at all.
    pub(crate) unpublished: u64,
}

impl Noticed {
    pub(crate) fn failed(&self) -> u64 {
        self.led.failed() + self.fixed.iter().map(Story::failed).sum::<u64>()
    }
}

/// What one kind of clients got.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) answered: u64,
    /// By reason: how often, and when it was the first and the last time.
    failures: BTreeMap<String, (u64, Duration, Duration)>,
    /// The longest time between two answers in which there was a failure.
    pub(crate) outage: Duration,
    /// The longest time that a client waited for its answer, whose that was, and when.
    slowest: (Duration, String, Duration),
}

impl Story {
    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().map(|(times, ..)| times).sum()
    }

    /// The time from the first failure to the last.
    pub(crate) fn failing(&self) -> Duration {
        let first = self.failures.values().map(|&(_, first, _)| first).min();
        let last = self.failures.values().map(|&(.., last)| last).max();
        last.unwrap_or_default() - first.unwrap_or_default()
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slowest, pod, moment) = &self.slowest;
        let (slowest, moment) = (slowest.as_millis(), moment.as_secs_f32());
        write!(
            f,
            "{} answers, after {slowest} ms at most (that of {pod}, at {moment:.2} s)",
            self.answered
        )?;
        for (why, (times, first, last)) in &self.failures {
            let (first, last) = (first.as_secs_f32(), last.as_secs_f32());
            write!(f, "; {times} times {why}, at {first:.2} to {last:.2} s")?;
        }
        if self.failed() > 0 {
            let outage = self.outage.as_millis();
            write!(f, "; without an answer for {outage} ms at most")?;
        }
        Ok(())
    }
}

/// Does something in the cluster under a steady load: about 240 requests a second, each on a connection of its own.
pub(crate) fn during(cluster: &Cluster, work: impl FnOnce()) -> Noticed {
    let _shown = Shown(cluster);
    let over = AtomicBool::new(false);
    let published = Mutex::new(cluster.published());
    let [first, second] = cluster.addresses();
    let [led, one, other] = [Instant::now(); 3].map(Watch::since);
    let fixed = [one, other];
    let mut noticed = Noticed::default();
    thread::scope(|scope| {
        let (over, published, led) = (&over, &published, &led);
        let follows = scope.spawn(move || {
            let mut unpublished = 0;
            while !over.load(Ordering::Relaxed) {
                let now = cluster.published();
                unpublished += u64::from(now.is_empty());
                *lock(published) = now;
                support::pause(LOOK);
            }
            unpublished
        });
        for client in 0..4 {
            scope.spawn(move || {
                let address = move |turn: usize| {
                    let published = lock(published);
                    (!published.is_empty()).then(|| published[turn % published.len()])
                };
                ask_on(cluster, over, led, PATIENCE, move |turn| {
                    address(turn + client)
                });
            });
        }
        for (address, watch) in [first, second].into_iter().zip(&fixed) {
            scope.spawn(move || ask_on(cluster, over, watch, PATIENCE, move |_| Some(address)));
        }
        // A failure of the work ends the load, too.
        let ends = Ends(over);
        support::pause(BEFORE_AND_AFTER);
        work();
        support::pause(BEFORE_AND_AFTER);
        drop(ends);
        noticed.unpublished = follows.join().expect("a thread that ends");
    });
    noticed.led = led.into_story();
    noticed.fixed = fixed.map(Watch::into_story);
    println!("    clients of published addresses: {}", noticed.led);
    for (story, node) in noticed.fixed.iter().zip(&cluster.nodes) {
        println!("    clients of {}: {story}", node.name);
    }
    assert!(noticed.led.answered > 0, "nobody was served");
    noticed
}

/// Does something in the cluster while one client connects to an address again and again, whichever node has it. `holder`: which one
/// that is. Returns what the client got, and how often the address moved.
pub(crate) fn during_moves(
    cluster: &Cluster,
    address: Ipv4Addr,
    holder: impl Fn() -> Option<usize> + Sync,
    work: impl FnOnce(),
) -> (Story, u64) {
    let _shown = Shown(cluster);
    let over = AtomicBool::new(false);
    let watch = Watch::since(Instant::now());
    let mut moves = 0;
    thread::scope(|scope| {
        let (over, holder, watch) = (&over, &holder, &watch);
        let follows = scope.spawn(move || {
            let (mut last, mut moves) = (holder(), 0);
            while !over.load(Ordering::Relaxed) {
                let now = holder();
                moves += u64::from(now.is_some() && now != last);
                last = now.or(last);
                support::pause(Duration::from_millis(10));
            }
            moves
        });
        // A client whose node died while it waited for an answer gets none, and gives up after this time.
        let patience = Duration::from_secs(1);
        scope.spawn(move || ask_on(cluster, over, watch, patience, |_| Some(address)));
        let ends = Ends(over);
        support::pause(BEFORE_AND_AFTER);
        work();
        support::pause(BEFORE_AND_AFTER);
        drop(ends);
        moves = follows.join().expect("a thread that ends");
    });
    let story = watch.into_story();
    println!("    {moves} moves; the client of {address}: {story}");
    assert!(story.answered > 0, "nobody was served");
    (story, moves)
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The record of one kind of clients, and the time at which it began.
struct Watch(Mutex<Watched>, Instant);

#[derive(Default)]
struct Watched {
    story: Story,
    last_answer: Option<Instant>,
    /// Since the last answer.
    failed: bool,
}

impl Watch {
    fn since(begun: Instant) -> Self {
        Self(Mutex::default(), begun)
    }

    fn note(&self, asked: Instant, answer: io::Result<String>) {
        let now = Instant::now();
        let mut watched = lock(&self.0);
        let failed = watched.failed;
        watched.failed = answer.is_err();
        let moment = now - self.1;
        let pod = match answer {
            Ok(pod) => pod,
            Err(error) => {
                let failures = watched.story.failures.entry(reason(&error));
                let (times, _, last) = failures.or_insert((0, moment, moment));
                *times += 1;
                *last = moment;
                return;
            }
        };
        let before = watched.last_answer.replace(now);
        let story = &mut watched.story;
        story.answered += 1;
        if now - asked > story.slowest.0 {
            story.slowest = (now - asked, pod, moment);
        }
        if let Some(before) = before.filter(|_| failed) {
            story.outage = story.outage.max(now - before);
        }
    }

    fn into_story(self) -> Story {
        let watched = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut story = watched.story;
        if let Some(before) = watched.last_answer.filter(|_| watched.failed) {
            story.outage = story.outage.max(before.elapsed());
        }
        story
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "timeout".to_owned(),
        ErrorKind::Other => error.to_string(),
        kind => kind.to_string(),
    }
}

/// One client: a request every 25 ms.
fn ask_on(
    cluster: &Cluster,
    over: &AtomicBool,
    watch: &Watch,
    patience: Duration,
    address: impl Fn(usize) -> Option<Ipv4Addr> + Send + Sync,
) {
    cluster.client.network.within(|| {
        for turn in 0.. {
            if over.load(Ordering::Relaxed) {
                return;
            }
            if let Some(address) = address(turn) {
                let asked = Instant::now();
                watch.note(asked, get(address, "/", patience));
            }
            support::pause(Duration::from_millis(25));
        }
    });
}

/// The body of what is at this path of a node's port 80: the name of a pod.
pub(crate) fn get(address: Ipv4Addr, path: &str, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&(address, 80).into(), Duration::from_secs(2))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: web\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .or_else(|| answer.split_once("\n\n"))
        .unwrap_or_default();
    if head.contains(" 200 ") && body.trim().starts_with("web-") {
        Ok(body.trim().to_owned())
    } else {
        Err(io::Error::other(format!("the answer {answer:?}")))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often clients look where the Service is published.
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);
const BEFORE_AND_AFTER: Duration = Duration::from_millis(500);
