//! Ten thousand Services with addresses of one pool: what they cost the publisher and a node, and a leader that takes them in.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::nodes::Fleet;
use super::{holds, make_many, promised, quiet, tell, until_all_published};
use crate::backends::service;
use crate::corner::{Corner, with_its_own_server};
use crate::pools::{make_the_kinds, pool};
use crate::process::until;
use crate::publisher::Publisher;

fn thousands_of_addresses_of_a_pool_cost_little() {
    with_its_own_server("crowd", |corner| {
        let (services, endpoints) = if promised() { (10_000, 10) } else { (300, 10) };
        let all = format!("{services} x {endpoints} of one pool");
        make_the_kinds(corner.plane);
        pool(corner, "edge", json!({"addresses": ["10.64.0.0/16"]}));
        make_many(corner, services, endpoints);
        let fleet = Fleet::start(corner, 1);
        let node = &fleet.nodes[0];
        let begun = Instant::now();
        let publisher = Publisher::start(corner, &[]);
        until_all_published(corner, services, 1);
        tell(&format!("{all}: all are published after"), begun.elapsed());
        quiet(&publisher.process);
        quiet(node);
        tell(
            &format!("{all}: processor time of the publisher for all"),
            publisher.process.cpu(),
        );

        let (before, more) = (publisher.process.cpu(), 20);
        for number in 0..more {
            let name = format!("more-{number}");
            corner.apply(&service(&name, 80, NO_NODE_PORTS));
            until("it is published", || !corner.published(&name).is_empty());
        }
        quiet(&publisher.process);
        let each = (publisher.process.cpu() - before) / more;
        tell(
            &format!("{all}: processor time of the publisher for one more"),
            each,
        );

        let writes = corner.writes().len();
        support::pause(Duration::from_secs(20));
        let writes = corner.writes().len() - writes;
        holds(
            &format!("{all}: writes in 20 s at rest but Leases"),
            writes,
            0,
        );
        for (whose, process) in [
            ("the publisher", &publisher.process),
            ("the node's controller", node),
        ] {
            let what = format!("{all}: MiB of {whose}, at most");
            holds(&what, process.peak_memory(), 150);
        }
        is_taken_in(corner, publisher, &all);
        drop(fleet);
    });
}

/// Another publisher follows the one that leads: it gives to a new Service, and moves none.
fn is_taken_in(corner: &Corner<'_>, leader: Publisher, all: &str) {
    let other = Publisher::start(corner, &[]);
    quiet(&other.process);
    let before = states(corner);
    let begun = Instant::now();
    assert_eq!(leader.process.stop(), Some(0));
    corner.apply(&service("late", 80, NO_NODE_PORTS));
    until("the next leader publishes", || {
        !corner.published("late").is_empty()
    });
    let lasted = begun.elapsed();
    holds(
        &format!("{all}: a new leader publishes after"),
        lasted,
        Duration::from_secs(3),
    );

    assert_eq!(other.process.stop(), Some(0));
    let begun = Instant::now();
    let alone = Publisher::start(corner, &[]);
    corner.apply(&service("last", 80, NO_NODE_PORTS));
    until("the only publisher publishes", || {
        !corner.published("last").is_empty()
    });
    tell(
        &format!("{all}: a publisher that begins publishes after"),
        begun.elapsed(),
    );
    quiet(&alone.process);
    let mut now = states(corner);
    now.retain(|state| !state.starts_with("\"late\"") && !state.starts_with("\"last\""));
    let moved = before.iter().filter(|state| !now.contains(*state)).count();
    holds(
        &format!("{all}: Services that two new leaders wrote to"),
        moved,
        0,
    );
}

/// The name and the version of every Service, sorted.
fn states(corner: &Corner<'_>) -> BTreeSet<String> {
    let services = corner.plane.admin.list("Service", corner.name);
    let state = |service: &Value| {
        let metadata = &service["metadata"];
        format!("{} {}", metadata["name"], metadata["resourceVersion"])
    };
    services.iter().map(state).collect()
}

const NO_NODE_PORTS: &str = "  allocateLoadBalancerNodePorts: false\n";

tests![thousands_of_addresses_of_a_pool_cost_little];
