//! How fast, and at what cost. Printed always; held against what is promised with FIGURES=1, which wants a release build and a
//! machine that does nothing else:
//!
//!   FIGURES=1 cargo test --release -p ballast-controller --test controlplane -- --test-threads 1

use std::env;
use std::fmt::Debug;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::backends::{Backends, service};
use crate::corner::{Corner, in_a_corner, with_its_own_server};
use crate::node::LbNode;
use crate::process::{Process, comes_within, until};

fn an_endpoint_change_reaches_the_next_client() {
    in_a_corner("latency", |corner| {
        let pods = Backends::start(corner, 2);
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&node.address()]);
        until("an answer", || node.ask(80).is_ok());
        let mut lasted: Vec<_> = (0..if promised() { 200 } else { 30 })
            .map(|round| {
                let pod = (round + 1) % 2;
                let address = pods.addresses[pod].to_string();
                corner.apply(&pods.slice("web", &[pod]));
                let begun = Instant::now();
                support::until("the answer of the other pod", || {
                    node.ask(80).is_ok_and(|heard| heard.starts_with(&address))
                });
                let lasted = begun.elapsed();
                // Changes that come apart, not into each other's debounce.
                support::pause(Duration::from_millis(250));
                lasted
            })
            .collect();
        lasted.sort();
        let (half, most) = (lasted[lasted.len() / 2], lasted[lasted.len() * 99 / 100]);
        holds(
            "an endpoint change to the first client, p50",
            half,
            Duration::from_millis(100),
        );
        holds(
            "an endpoint change to the first client, p99",
            most,
            Duration::from_millis(100),
        );
    });
}

fn many_services_cost_little() {
    with_its_own_server("many", |corner| {
        let (services, endpoints) = if promised() { (5000, 20) } else { (200, 20) };
        make_many(corner, services, endpoints);
        let mut node = LbNode::prepare(corner, "a", &[]);
        node.start_dataplane();
        node.start_controller();
        let patience = Duration::from_secs(300);
        assert!(comes_within(patience, || node.frontends().len() == services));
        node.controller = None;
        fs::remove_file(node.table_folder().join("table.json")).expect("a table");
        let begun = Instant::now();
        node.start_controller_alone();
        until("a table", || node.table().is_some());
        holds(
            "the first table after start",
            begun.elapsed(),
            Duration::from_secs(1),
        );
        assert_eq!(node.frontends().len(), services, "all of it, at once");
        // Two writes for each Service, and few at once: the last one has to wait for minutes.
        let last = format!("s{}", services - 1);
        assert!(comes_within(patience, || !corner
            .published(&last)
            .is_empty()));
        quiet(node.controller.as_ref().expect("it runs"));

        let controller = node.controller.as_ref().expect("it runs");
        let (before, changes) = (controller.cpu(), 10);
        for change in 0..changes {
            let table = node.table();
            let one = json!({"endpoints": [{"addresses": [format!("10.88.201.{change}")]}]});
            corner.patch("EndpointSlice", "s7", &one);
            until("a new table", || node.table() != table);
        }
        quiet(controller);
        let each = (controller.cpu() - before) / changes;
        holds(
            "processor time of a change",
            each,
            Duration::from_millis(400),
        );
        let (before, writes) = (controller.cpu(), corner.writes().len());
        support::pause(Duration::from_secs(20));
        let rest = (controller.cpu() - before) / 20;
        holds(
            "processor time a second at rest",
            rest,
            Duration::from_millis(10),
        );
        assert_eq!(corner.writes().len(), writes, "at rest nothing is written");

        let memory = controller.peak_memory();
        println!(
            "{services} Services x {endpoints} endpoints: at most {memory} MiB of memory; promised: 200"
        );
        assert!(!promised() || memory <= 200, "{memory} MiB");
    });
}

/// Makes Services with so many endpoints each.
pub(crate) fn make_many(corner: &Corner<'_>, services: usize, endpoints: usize) {
    thread::scope(|scope| {
        for lane in 0..8 {
            scope.spawn(move || {
                for number in (lane..services).step_by(8) {
                    let name = format!("s{number}");
                    // Ports of nodes are fewer than Services.
                    let extra = "  allocateLoadBalancerNodePorts: false\n";
                    let port = 10_000 + u16::try_from(number).expect("few Services");
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

pub(crate) fn holds<T: PartialOrd + Debug>(what: &str, found: T, promise: T) {
    println!("{what}: {found:.1?}; promised: {promise:?}");
    assert!(!promised() || found <= promise, "{what}: {found:?}");
}

/// Whether the promises are held against this machine.
pub(crate) fn promised() -> bool {
    env::var_os("FIGURES").is_some()
}

/// What a busy machine may add.
const BUSY: Duration = Duration::from_secs(5);

tests![
    an_endpoint_change_reaches_the_next_client,
    many_services_cost_little,
];
