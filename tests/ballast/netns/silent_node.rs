//! A node of two goes silent under load: its packets are dropped, and nobody is told. Then it comes back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::netns::echo_at;
use support::connect;
use support::netns::{Site, node_address};
use support::peers::{Lateness, Watched, ping};

#[test]
fn a_silent_node_costs_the_first_clients_little_once_and_later_ones_nothing() {
    let Some(site) = Site::build(2) else {
        return;
    };
    for node in &site.nodes {
        node.within(|| [7001, 7002].map(echo_at));
    }
    site.place.within(|| {
        let ballast = Watched::serve(&table_of_two_nodes(), 2);
        let pings = Pings::begin(established(&ballast, node_address(1)));
        let (load, lateness) = (Load::begin(ballast.address()), Lateness::watch());
        support::pause(Duration::from_millis(700));

        site.silence(0);
        let silent_from = load.begun.elapsed();
        support::pause(Duration::from_millis(4200));
        let sessions = || sessions(&ballast, node_address(0));
        let before = sessions();
        site.heal(0);
        ballast.until(|_| sessions() > before + 10);

        // Who was connected when it happened has said something to the node, and nobody else can answer that.
        let (mut visits, late) = (load.end(), lateness.end());
        visits.retain(|visit| visit.came >= silent_from);
        assert!(pings.end() > 100, "established connections go on");
        let longest = visits.iter().map(|visit| visit.took).max();
        assert!(
            longest < Some(Duration::from_millis(1500) + 2 * late),
            "{longest:?} on a machine that is late by {late:?}"
        );
        let lost: Vec<_> = visits
            .iter()
            // An attempt at the silent node takes 1.25 s, however late the machine is.
            .filter(|visit| visit.took > Duration::from_millis(600) + late.min(TOLERATED))
            .map(|visit| visit.came - silent_from)
            .collect();
        println!(
            "{} of {} clients lost time, after {lost:?}",
            lost.len(),
            visits.len()
        );
        assert!(!lost.is_empty(), "nobody noticed: the test shows nothing");
        let later = lost.iter().filter(|came| **came > FIRST + late).count();
        assert_eq!(
            later, 0,
            "clients lost time though the node is known to be silent"
        );
    });
}

/// What the first clients need to notice: an attempt's time, and some.
/// Lateness beyond this would hide what a silent node costs.
const TOLERATED: Duration = Duration::from_millis(500);
const FIRST: Duration = Duration::from_millis(1500);

fn table_of_two_nodes() -> String {
    let endpoint = |node, port| {
        let ip = node_address(node);
        format!("{{address: \"{ip}:{port}\", node: w{node}}}")
    };
    let endpoints = [(0, 7001), (1, 7001), (0, 7002), (1, 7002)];
    let endpoints = endpoints.map(|(node, port)| endpoint(node, port));
    format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}]\nservices: [{{name: s, endpoints: [{}]}}]\n",
        endpoints.join(", ")
    )
}

/// Connections that stand to endpoints of this node.
fn established(ballast: &Watched, node: Ipv4Addr) -> Vec<TcpStream> {
    let mut kept = Vec::new();
    while kept.len() < 4 {
        let before = sessions(ballast, node);
        let mut client = connect(ballast.address());
        ping(&mut client).expect("an echo");
        if sessions(ballast, node) > before {
            kept.push(client);
        }
    }
    kept
}

/// How many connections this node has answered.
fn sessions(ballast: &Watched, node: Ipv4Addr) -> u64 {
    let plan = ballast.running.shared().live.plan();
    let endpoints = plan.services()[0].endpoints().iter();
    endpoints
        .filter(|endpoint| endpoint.address().ip() == IpAddr::from(node))
        .filter_map(|endpoint| endpoint.live().all_counters())
        .map(|counters| counters.sum(|counters| &counters.sessions))
        .sum()
}

/// Established connections in use.
struct Pings {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<usize>>,
}

impl Pings {
    fn begin(clients: Vec<TcpStream>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ping_until = |mut client: TcpStream, stop: Arc<AtomicBool>| {
            let mut answers = 0;
            while !stop.load(Ordering::Relaxed) {
                ping(&mut client).expect("an echo");
                answers += 1;
                support::pause(Duration::from_millis(10));
            }
            answers
        };
        let threads = clients
            .into_iter()
            .map(|client| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || ping_until(client, stop))
            })
            .collect();
        Self { stop, threads }
    }

    /// How many answers came.
    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        threads.map(|thread| thread.join().expect("no panic")).sum()
    }
}

/// New clients at every moment.
struct Load {
    begun: Instant,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Visit>>>,
}

/// One client: when it came, and how long it took to be served.
struct Visit {
    came: Duration,
    took: Duration,
}

impl Load {
    fn begin(address: SocketAddr) -> Self {
        let (begun, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let visit_until = move |stop: Arc<AtomicBool>| {
            let mut visits = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let came = begun.elapsed();
                ping(&mut connect(address)).expect("a connection");
                let took = begun.elapsed() - came;
                visits.push(Visit { came, took });
                support::pause(Duration::from_millis(20));
            }
            visits
        };
        let threads = (0..16)
            .map(|_| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || visit_until(stop))
            })
            .collect();
        Self {
            begun,
            stop,
            threads,
        }
    }

    fn end(self) -> Vec<Visit> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        threads
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    }
}
