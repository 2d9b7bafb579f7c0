//! How soon a new Service is published, alone and while others are.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{a_service, holds, make_many, promised, quiet, tell, until_all_published};
use crate::corner::{Corner, in_a_corner, with_its_own_server};
use crate::node::LbNode;
use crate::process::until;

fn ten_services_a_second_are_each_published_soon() {
    with_its_own_server("wave", |corner| {
        let seconds = if promised() { 60 } else { 10 };
        let before = if promised() { 300 } else { 50 };
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        let addresses = nodes.each_ref().map(LbNode::address);
        for number in 0..before {
            corner.apply(&a_service(number));
        }
        let last = format!("s{}", before - 1);
        corner.until_published(&last, &[&addresses[0], &addresses[1]]);
        let lasted = published_while_created(corner, before, seconds * 10, 2);
        let promises = [Duration::from_secs(2); 2];
        soon("ten Services a second", &lasted, promises);
    });
}

fn a_service_that_is_created_alone_is_published_soon() {
    in_a_corner("alone", |corner| {
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        let addresses = nodes.each_ref().map(LbNode::address);
        let count = if promised() { 200 } else { 20 };
        let mut lasted: Vec<Duration> = (0..count)
            .map(|number| {
                corner.apply(&a_service(number));
                let begun = Instant::now();
                let name = format!("s{number}");
                corner.until_published(&name, &[&addresses[0], &addresses[1]]);
                let lasted = begun.elapsed();
                support::pause(Duration::from_millis(300));
                lasted
            })
            .collect();
        lasted.sort();
        let promises = [250, 600].map(Duration::from_millis);
        soon("a Service alone", &lasted, promises);
    });
}

fn ten_services_a_second_are_published_soon_beside_thousands() {
    with_its_own_server("thousands", |corner| {
        let (others, count) = if promised() { (5000, 600) } else { (200, 50) };
        make_many(corner, others.into(), 20);
        let node = LbNode::start(corner, "a", &[]);
        let begun = Instant::now();
        until("the first of them is published", || {
            (0..others)
                .step_by(usize::from(others) / 20)
                .any(|number| !corner.published(&format!("s{number}")).is_empty())
        });
        let lasted = published_while_created(corner, others, count, 1);
        soon(
            &format!("ten Services a second while {others} x 20 are published"),
            &lasted,
            [Duration::from_secs(2); 2],
        );
        until_all_published(corner, usize::from(others) + usize::from(count), 1);
        tell(
            &format!("all {others} are published after"),
            begun.elapsed(),
        );
        let publisher = corner.take_publisher();
        quiet(&publisher.process);
        let controller = node.controller.as_ref().expect("it runs");
        let (before, begun) = (controller.cpu(), Instant::now());
        let lasted = published_while_created(corner, others + count, count, 1);
        let share = (controller.cpu() - before).as_secs_f64() / begun.elapsed().as_secs_f64();
        tell("the node's controller takes of a core meanwhile", share);
        soon(
            &format!("ten Services a second beside {others} x 20 at rest"),
            &lasted,
            [Duration::from_secs(2); 2],
        );
    });
}

/// How long Services took to be published, sorted, with the promises for half and for 99 % of them.
fn soon(what: &str, lasted: &[Duration], promises: [Duration; 2]) {
    let most = lasted[lasted.len() * 99 / 100];
    let found = [lasted[lasted.len() / 2], most];
    for ((found, promise), part) in found.into_iter().zip(promises).zip(["p50", "p99"]) {
        let what = format!("{what}: created to published, {part}");
        holds(&what, found, promise);
    }
    assert!(most < Duration::from_secs(20), "{most:?}");
}

/// Creates so many Services, one each 100 ms; returns how long each waited until that many addresses were published, sorted.
fn published_while_created(
    corner: &Corner<'_>,
    first: u16,
    count: u16,
    addresses: usize,
) -> Vec<Duration> {
    let (created, published) = thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let (tell, told) = mpsc::channel();
            let mut published = BTreeMap::new();
            let patience = u64::from(count) / 10 + 60;
            let admin = &corner.plane.admin;
            admin.follow("Service", corner.name, "wave", patience, move |service| {
                let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
                let name = service["metadata"]["name"].as_str().unwrap_or_default();
                let number: u16 = name.trim_start_matches('s').parse().unwrap_or(0);
                // An earlier wave has the same label.
                if number >= first && ingress.is_some_and(|entries| entries.len() == addresses) {
                    published.entry(number).or_insert_with(Instant::now);
                }
                let is_over = published.len() == usize::from(count);
                if is_over {
                    tell.send(std::mem::take(&mut published)).ok();
                }
                !is_over
            });
            told.recv().expect("all are published in time")
        });
        let begun = Instant::now();
        let created: Vec<Instant> = (0..count)
            .map(|number| {
                let at = begun + Duration::from_millis(100) * u32::from(number);
                support::pause(at.saturating_duration_since(Instant::now()));
                let wave =
                    a_service(first + number).replace("{name:", "{labels: {wave: new}, name:");
                corner.apply(&wave);
                Instant::now()
            })
            .collect();
        let published = seen.join();
        (created, published.expect("all are published"))
    });
    let mut lasted: Vec<Duration> = published
        .values()
        .zip(created)
        .map(|(published, created)| published.saturating_duration_since(created))
        .collect();
    lasted.sort();
    lasted
}

tests![
    a_service_that_is_created_alone_is_published_soon,
    ten_services_a_second_are_each_published_soon,
    ten_services_a_second_are_published_soon_beside_thousands,
];
