//! How fast, and at what cost. Printed always. With FIGURES=1, which wants a release build and a machine that does nothing else, the
//! numbers are the large ones, one table is printed in the end, and the run fails if a promise is not held:
//!
//!   FIGURES=1 cargo test --workspace --release --test controlplane figures:: -- --test-threads 1

mod changes;
mod crowd;
mod nodes;
mod publishing;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::backends::service;
use crate::corner::Corner;
use crate::process::{Process, comes_within};

/// Makes Services with so many endpoints each.
pub(crate) fn make_many(corner: &Corner<'_>, services: usize, endpoints: usize) {
    thread::scope(|scope| {
        for lane in 0..8 {
            scope.spawn(move || {
                for number in (lane..services).step_by(8) {
                    let name = format!("s{number}");
                    // Ports of nodes are fewer than Services.
                    let extra = "  allocateLoadBalancerNodePorts: false\n";
                    let port = FIRST_PORT + u16::try_from(number).expect("few Services");
                    corner.apply(&service(&name, port, extra));
                    let list: Vec<_> = (0..endpoints)
                        .map(|index| {
                            let [high, low] =
                                u16::try_from(number).expect("few Services").to_be_bytes();
                            (format!("10.{}.{high}.{low}", 100 + index), true)
                        })
                        .collect();
                    corner.apply(&crate::backends::slice(&name, &list));
                }
            });
        }
    });
}

/// With a port of its own, and none of the nodes'.
pub(crate) fn a_service(number: u16) -> String {
    let extra = "  allocateLoadBalancerNodePorts: false\n";
    service(&format!("s{number}"), FIRST_PORT + number, extra)
}

/// The port of the Service `s0`. No port from here on is reserved: 10250 is a kubelet's.
pub(crate) const FIRST_PORT: u16 = 11_000;

/// Waits until so many Services are published, each at so many addresses.
pub(crate) fn until_all_published(corner: &Corner<'_>, services: usize, addresses: usize) {
    let waiting = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&waiting);
    let mut published = BTreeSet::new();
    let admin = &corner.plane.admin;
    let are_all = admin.follow("Service", corner.name, "", 600, move |service| {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
        let mut waiting = seen.lock().expect("a lock");
        if ingress.map_or(0, Vec::len) == addresses {
            published.insert(name.to_owned());
            waiting.remove(name);
        } else {
            published.remove(name);
            waiting.insert(name.to_owned(), service["status"].to_string());
        }
        published.len() < services
    });
    let waiting = waiting.lock().expect("a lock");
    assert!(are_all, "not published in time: {waiting:#?}");
}

/// Waits until a process has nothing to do. The events of thousands of Services take minutes.
pub(crate) fn quiet(process: &Process) {
    let is_quiet = || {
        let before = process.cpu();
        support::pause(Duration::from_secs(2));
        process.cpu() - before <= Duration::from_millis(30)
    };
    assert!(comes_within(Duration::from_secs(600), is_quiet));
}

/// What is promised in seconds: a busy machine may add a few, where nobody holds it against it.
pub(crate) fn in_time(what: &str, found: Duration, promise: Duration) {
    holds(what, found, promise);
    assert!(found < promise + BUSY, "{what}: {found:?}");
}

/// Adds a figure with its promise to the table.
pub(crate) fn holds<T: PartialOrd + Debug>(what: &str, found: T, promise: T) {
    let is_held = found <= promise;
    println!("{what}: {found:.1?}; promised: {promise:?}");
    add(Row {
        what: what.to_owned(),
        found: format!("{found:.1?}"),
        promise: format!("{promise:?}"),
        is_held,
    });
}

/// Adds a figure of which nothing is promised.
pub(crate) fn tell<T: Debug>(what: &str, found: T) {
    println!("{what}: {found:.1?}");
    add(Row {
        what: what.to_owned(),
        found: format!("{found:.1?}"),
        promise: String::new(),
        is_held: true,
    });
}

fn add(row: Row) {
    TABLE.lock().expect("a lock").push(row);
}

/// Prints the table, where promises are held against this machine. Whether all of them were held.
pub(crate) fn are_held() -> bool {
    let table = TABLE.lock().expect("a lock");
    if !promised() || table.is_empty() {
        return true;
    }
    let width = table.iter().map(|row| row.what.len()).max().unwrap_or(0);
    println!("\n{:width$}  {:>10}  {:>10}", "figure", "found", "promised");
    for row in table.iter() {
        let missed = if row.is_held { "" } else { "  missed" };
        let (what, found, promise) = (&row.what, &row.found, &row.promise);
        println!("{what:width$}  {found:>10}  {promise:>10}{missed}");
    }
    table.iter().all(|row| row.is_held)
}

/// A line of the table.
struct Row {
    what: String,
    found: String,
    promise: String,
    is_held: bool,
}

static TABLE: Mutex<Vec<Row>> = Mutex::new(Vec::new());

/// Whether the promises are held against this machine.
pub(crate) fn promised() -> bool {
    env::var_os("FIGURES").is_some()
}

/// What a busy machine may add.
const BUSY: Duration = Duration::from_secs(5);

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    [
        changes::TESTS,
        crowd::TESTS,
        nodes::TESTS,
        publishing::TESTS,
    ]
    .concat()
}
