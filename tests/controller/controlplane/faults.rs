//! An API server that fails, between Ballast and a healthy one: while it does nothing that is published goes and nobody writes in a
//! loop; afterwards all is as if nothing had been.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::corner::with_its_own_server;
use crate::process::comes_within;
use crate::proxy::{Asked, Fault, FaultProxy};
use crate::scene::{Clients, Published, Scene};

fn requests_that_fail_take_nothing_away() {
    with_its_own_server("requests", |corner| {
        let proxy = FaultProxy::start(corner);
        let mut scene = Scene::set(corner);
        scene.withstands(&proxy, Fault::TooManyRequests, Hit::All);
        scene.withstands(&proxy, Fault::Conflicts, Hit::All);
        scene.withstands(&proxy, Fault::Errors, Hit::All);
        scene.withstands(&proxy, Fault::Errors, Hit::Nodes);
        scene.withstands(&proxy, Fault::Errors, Hit::Publisher);
        scene.rests(&proxy);
        scene.others_make_the_same();
    });
}

fn watches_that_fail_take_nothing_away() {
    with_its_own_server("watches", |corner| {
        let proxy = FaultProxy::start(corner);
        let mut scene = Scene::set(corner);
        scene.withstands(&proxy, Fault::CutWatches, Hit::All);
        scene.withstands(&proxy, Fault::ExpiredWatches, Hit::All);
        scene.withstands(&proxy, Fault::HangingWatches, Hit::All);
        scene.rests(&proxy);
        scene.others_make_the_same();
    });
}

/// Whom a fault hits.
#[derive(Clone, Copy, Debug)]
enum Hit {
    All,
    Nodes,
    Publisher,
}

impl Scene<'_> {
    /// The fault, changes meanwhile, and then its end.
    fn withstands(&mut self, proxy: &FaultProxy, fault: Fault, hit: Hit) {
        let corner = self.corner;
        let of_nodes = self.nodes.iter().map(|node| node.host.address.into());
        let who: Vec<IpAddr> = match hit {
            Hit::All => Vec::new(),
            Hit::Nodes => of_nodes.collect(),
            Hit::Publisher => vec![corner.publisher_address().into()],
        };
        self.round += 1;
        let pooled = Published::by(corner, &["pooled"]);
        // Two nodes do not fall silent, and are not heard again, at one moment: one of them leaves the status meanwhile.
        let plain = match hit {
            Hit::Nodes => Published::in_part_by(corner, &["plain"]),
            Hit::All | Hit::Publisher => Published::by(corner, &["plain"]),
        };
        let clients = Clients::of(self);
        println!("{fault:?} for {hit:?}");
        let begin = Instant::now();
        proxy.fail(fault, &who);
        self.change();
        support::pause(LASTS);
        no_storm(&proxy.asked_since(begin), begin);
        let mended = Instant::now();
        proxy.mend();
        self.until_changed();
        println!("all is in effect {:.1?} after it", mended.elapsed());
        self.until_at_nodes("plain");
        pooled.stayed();
        plain.stayed();
        clients.were_all_answered();
    }

    /// That in the end nothing is written but Leases.
    fn rests(&self, proxy: &FaultProxy) {
        let begin = Instant::now();
        let is_at_rest = comes_within(Duration::from_secs(60), || {
            let before = self.corner.writes().len();
            support::pause(Duration::from_secs(5));
            self.corner.writes().len() == before
        });
        assert!(is_at_rest, "{:#?}", words(&proxy.asked_since(begin), begin));
    }
}

/// That nobody asked, or wrote, faster than pauses between failures permit.
fn no_storm(asked: &[Asked], begin: Instant) {
    let mut all: Vec<IpAddr> = asked.iter().map(|one| one.from).collect();
    all.sort();
    all.dedup();
    for who in all {
        let of_one: Vec<Asked> = asked
            .iter()
            .filter(|one| one.from == who)
            .cloned()
            .collect();
        let writes = of_one.iter().filter(|one| one.is_write()).count();
        let reads = of_one.len() - writes;
        println!("  {who}: {writes} writes and {reads} reads in {LASTS:?}");
        let words = words(&of_one, begin);
        assert!(writes < WRITES, "{words:#?}");
        assert!(reads < READS, "{words:#?}");
    }
}

fn words(asked: &[Asked], begin: Instant) -> Vec<String> {
    let words = asked.iter().map(|one| {
        let at = one.at.saturating_duration_since(begin);
        format!("{at:.1?} {} {}", one.method, one.path)
    });
    words.collect()
}

/// Longer than Leases of nodes and of the leader live.
const LASTS: Duration = Duration::from_secs(20);
/// What one process may write in that time while its writes fail: a few Services, events and Leases, each with a pause.
const WRITES: usize = 100;
/// What one process may read in that time: it follows up to ten kinds.
const READS: usize = 320;

tests![
    requests_that_fail_take_nothing_away,
    watches_that_fail_take_nothing_away,
];
