//! Readers that are slow, or many: they cost themselves, and nobody else.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::admin::client::{Answer, Request, connect_from, get, is_open, many};
use support::{Ballast, connect, echo_server};

#[test]
fn a_reader_that_takes_nothing_is_given_up_and_others_are_served() {
    let ballast = Ballast::serve(&many(500, 10), 1);
    let admin = ballast.running.admin()[0];
    let mut slow = slow_readers(admin, 20);
    for _ in 0..10 {
        assert_eq!(get(admin, "/healthz").status, 200);
        assert_eq!(get(admin, "/;csv?scope=s499").status, 200);
    }
    support::until_within(Duration::from_secs(120), "all are given up", || {
        slow.iter().all(|stream| !is_open(admin, stream))
    });
    // What was on its way may still be read; then it ends before it is whole.
    for stream in &mut slow {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut bytes = Vec::new();
        let result = stream.read_to_end(&mut bytes);
        assert!(
            !bytes.ends_with(b"]\n\r\n0\r\n\r\n"),
            "{result:?}: it is whole"
        );
    }
}

/// The client has the head of its answer, and the rest is in buffers, of the kernel and of Ballast.
#[test]
fn an_answer_that_is_still_being_read_is_no_idle_connection() {
    let ballast = Ballast::serve(&many(45, 10), 1);
    let admin = ballast.running.admin()[0];
    let whole = get(admin, "/;csv").body;
    assert!((80_000..125_000).contains(&whole.len()), "{}", whole.len());
    // So that the kernel takes little.
    let slow = asks_and_waits(admin, "/;csv", Some(536));
    while slow.peek(&mut [0; 12]).unwrap() < 12 {}
    // For longer than a client that has asked nothing is spared.
    support::pause(Duration::from_millis(500));
    let silent: Vec<TcpStream> = (0..128).map(|_| connect_from(1, admin)).collect();
    support::until("one gives way", || {
        silent.iter().any(|stream| !is_open(admin, stream))
    });
    slow.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let answer = Answer::read(slow);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body.lines().count(), whole.lines().count());
}

#[test]
fn one_client_has_all_places_for_answers_that_no_other_one_asks_for() {
    let ballast = Ballast::serve(&many(500, 10), 1);
    let admin = ballast.running.admin()[0];
    let mut slow = slow_readers(admin, 48);
    for stream in &mut slow {
        let mut line = [0; 12];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(line, *b"HTTP/1.1 200");
    }
    let other = Request::new("GET", "/;csv?scope=s499").over(connect_from(2, admin));
    assert_eq!(other.status, 200);
    support::until("one gives way", || {
        slow.iter().any(|stream| !is_open(admin, stream))
    });
}

#[test]
fn somebody_who_says_nothing_is_let_go() {
    let ballast = Ballast::serve("version: 1\n", 1);
    let admin = ballast.running.admin()[0];
    let others = (3..6).flat_map(|client| (0..24).map(move |_| connect_from(client, admin)));
    let greedy = (0..128 - 3 * 24).map(|_| connect_from(2, admin));
    let mut silent: Vec<TcpStream> = others.chain(greedy).collect();
    for stream in &mut silent {
        write!(stream, "GET / HTTP/1.1\r\n").unwrap();
    }
    // All places are taken; probes do not wait until they are given up, but take those of the greedy one.
    for client in [1, 2, 3] {
        let mut probe = connect_from(client, admin);
        Request::new("GET", "/healthz").write(&mut probe);
        let mut line = [0; 12];
        probe.read_exact(&mut line).unwrap();
        assert_eq!(line, *b"HTTP/1.1 200", "client {client}");
    }
    let is_there = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let heard = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        heard.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let gone = silent[3 * 24..].iter().filter(|one| !is_there(one)).count();
    assert!((1..=3).contains(&gone), "{gone}");
    assert_eq!(silent[..3 * 24].iter().filter(is_there).count(), 3 * 24);
    for mut stream in silent {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).ok();
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
    }
}

/// Calm and storm take turns, and beside each round trip through the data plane there is one that goes straight to the
/// endpoint: what the scrapers take from the machine moves both, and what the machine does anyway moves the calm of both too.
#[test]
fn a_storm_of_scrapes_leaves_the_data_path_alone() {
    let echo = echo_server();
    let text = many(SERVICES, 10).replacen(
        "endpoints: [",
        &format!("endpoints: [{{address: \"{echo}\"}}], max-queue: 7, x: ["),
        1,
    );
    let ballast = Ballast::serve(&without_x(&text), 1);
    let admin = ballast.running.admin()[0];
    let (weather, scrapes, bytes) = (Weather::default(), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut through = Path::to(ballast.address());
    let mut straight = Path::to(echo);
    let worst = thread::scope(|scope| {
        for client in 0..50 {
            let (weather, scrapes, bytes) = (&weather, &scrapes, &bytes);
            scope.spawn(move || {
                // What they need themselves should not be missing elsewhere.
                rustix::process::nice(19).unwrap();
                let address = STORM[client % STORM.len()];
                while weather.is_stormy() {
                    let got = get(admin, address);
                    assert!([200, 503].contains(&got.status), "{got:?}");
                    scrapes.fetch_add(1, Ordering::Relaxed);
                    bytes.fetch_add(got.body.len(), Ordering::Relaxed);
                    weather.is_done();
                }
            });
        }
        let probes = scope.spawn(|| {
            let mut worst = Duration::ZERO;
            while weather.is_stormy() {
                let begun = Instant::now();
                assert_eq!(get(admin, "/healthz").status, 200);
                worst = worst.max(begun.elapsed());
                weather.is_done();
            }
            worst
        });
        for round in 0..2 * ROUNDS {
            let is_stormy = round % 2 == 1;
            weather.turn(is_stormy);
            for _ in 0..ROUND_TRIPS {
                support::pause(Duration::from_millis(1));
                through.round_trip();
                straight.round_trip();
            }
            through.end_round(is_stormy);
            straight.end_round(is_stormy);
        }
        weather.end();
        probes.join().unwrap()
    });
    let scrapes = scrapes.into_inner();
    println!(
        "{scrapes} scrapes, {} MB; worst /healthz in the storm {worst:?}",
        bytes.into_inner() / 1_000_000
    );
    println!("p99 through: {through}; straight: {straight}");
    assert!(worst < Duration::from_secs(60), "{worst:?}");
    assert!(scrapes >= 50);
    let usual = straight.moved() + through.differs().max(straight.differs());
    assert!(
        through.moved() < usual + Duration::from_millis(1),
        "through {through}; straight {straight}"
    );
}

/// Whether there is a storm, and who is still in it.
#[derive(Debug, Default)]
struct Weather {
    now: Mutex<Now>,
    turned: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    is_stormy: bool,
    is_over: bool,
    busy: usize,
}

impl Weather {
    /// Waits for the storm, and is part of it until `is_done`. `false`: there will be no other.
    fn is_stormy(&self) -> bool {
        let now = self.now.lock().unwrap();
        let mut now = self
            .turned
            .wait_while(now, |now| !now.is_stormy && !now.is_over)
            .unwrap();
        now.busy += usize::from(!now.is_over);
        !now.is_over
    }

    fn is_done(&self) {
        self.now.lock().unwrap().busy -= 1;
        self.turned.notify_all();
    }

    /// Returns when it is really calm, if it is to be.
    fn turn(&self, is_stormy: bool) {
        let mut now = self.now.lock().unwrap();
        now.is_stormy = is_stormy;
        self.turned.notify_all();
        if !is_stormy {
            drop(self.turned.wait_while(now, |now| now.busy > 0).unwrap());
        }
    }

    fn end(&self) {
        self.turn(false);
        self.now.lock().unwrap().is_over = true;
        self.turned.notify_all();
    }
}

/// The first service has one endpoint, which answers.
fn without_x(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| match line.split_once(", max-queue: 7, x: [") {
            Some((before, _)) => format!("{before}}}"),
            None => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// Round trips over one connection.
struct Path {
    client: TcpStream,
    took: Vec<Duration>,
    /// The 99th percentile of each round, in the calm and in the storm.
    calm: Vec<Duration>,
    storm: Vec<Duration>,
}

impl Path {
    fn to(address: SocketAddr) -> Self {
        let client = connect(address);
        client.set_nodelay(true).unwrap();
        Self {
            client,
            took: Vec::new(),
            calm: Vec::new(),
            storm: Vec::new(),
        }
    }

    fn round_trip(&mut self) {
        let begun = Instant::now();
        self.client.write_all(b"ping").unwrap();
        self.client.read_exact(&mut [0; 4]).unwrap();
        self.took.push(begun.elapsed());
    }

    fn end_round(&mut self, is_stormy: bool) {
        self.took.sort_unstable();
        let p99 = self.took[self.took.len() * 99 / 100];
        self.took.clear();
        let rounds = if is_stormy {
            &mut self.storm
        } else {
            &mut self.calm
        };
        rounds.push(p99);
        rounds.sort_unstable();
    }

    /// By how much the storm made it slower, in the median of the rounds.
    fn moved(&self) -> Duration {
        self.storm[ROUNDS / 2].saturating_sub(self.calm[ROUNDS / 2])
    }

    /// By how much rounds in the calm differ from each other.
    fn differs(&self) -> Duration {
        self.calm[ROUNDS - 1] - self.calm[0]
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "calm {:?} (±{:?}), in the storm {:?}",
            self.calm[ROUNDS / 2],
            self.differs(),
            self.storm[ROUNDS / 2]
        )
    }
}

fn slow_readers(admin: SocketAddr, count: usize) -> Vec<TcpStream> {
    let readers = (0..count).map(|_| asks_and_waits(admin, "/;json", None));
    readers.collect()
}

/// Asks for much, and has room for little; `segment` are the most bytes of one.
fn asks_and_waits(admin: SocketAddr, address: &str, segment: Option<u32>) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    if let Some(segment) = segment {
        socket.set_tcp_mss(segment).unwrap();
    }
    socket.connect(&admin.into()).unwrap();
    let mut stream: TcpStream = socket.into();
    Request::new("GET", address).write(&mut stream);
    stream
}

const SERVICES: usize = 200;
const STORM: [&str; 5] = [
    "/;csv",
    "/metrics?scope=backend",
    "/",
    "/;csv",
    "/api/snapshot",
];
/// Of each weather.
const ROUNDS: usize = 5;
/// In a round.
const ROUND_TRIPS: usize = 300;
