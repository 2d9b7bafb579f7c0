//! How soon a change is in effect on a node, and what tables of thousands of Services cost there.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{holds, make_many, promised, quiet, tell};
use crate::backends::{Backends, service};
use crate::corner::{in_a_corner, with_its_own_server};
use crate::node::LbNode;
use crate::process::{comes_within, until};

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
            Duration::from_millis(60),
        );
        holds(
            "an endpoint change to the first client, p99",
            most,
            Duration::from_millis(60),
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
        let starts = if promised() { 10 } else { 2 };
        let mut lasted: Vec<Duration> = (0..starts)
            .map(|_| {
                node.controller = None;
                fs::remove_file(node.table_folder().join("table.json")).expect("a table");
                let begun = Instant::now();
                node.start_controller_alone();
                until("a table", || node.table().is_some());
                let lasted = begun.elapsed();
                assert_eq!(node.frontends().len(), services, "all of it, at once");
                lasted
            })
            .collect();
        lasted.sort();
        let what = format!("the first table of {services} x {endpoints} after start");
        tell(
            &format!("{what}, the middle of {starts}"),
            lasted[lasted.len() / 2],
        );
        holds(
            &format!("{what}, the slowest of {starts}"),
            lasted[lasted.len() - 1],
            Duration::from_secs(1),
        );
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
        let what = format!("{services} x {endpoints}: MiB of the node's controller, at most");
        holds(&what, memory, 200);
    });
}

tests![
    an_endpoint_change_reaches_the_next_client,
    many_services_cost_little,
];
