//! Two nodes with Services at their addresses and at an address of a pool, and changes of these: what tests begin with that take
//! something away from Ballast, and what they end with.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::api::folder_of;
use crate::backends::{Backends, service};
use crate::corner::Corner;
use crate::node::{LbNode, ask};
use crate::pools::{make_the_kinds, pool};
use crate::process::{comes_within, until};
use support::netns::Namespace;

/// `plain` is published at both nodes and `pooled` at an address of a pool, both on port 80. `sN` is on port 100 + N, for the last
/// change N.
pub(crate) struct Scene<'a> {
    pub(crate) corner: &'a Corner<'a>,
    pub(crate) pods: Backends,
    pub(crate) nodes: [LbNode<'a>; 2],
    pub(crate) round: u16,
}

impl<'a> Scene<'a> {
    pub(crate) fn set(corner: &'a Corner<'a>) -> Self {
        make_the_kinds(corner.plane);
        let spec = json!({"addresses": ["198.51.100.7-198.51.100.9"], "autoAssign": false});
        pool(corner, "edge", spec);
        let pods = Backends::start(corner, 2);
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        for node in &nodes {
            let network = &node.host.network;
            network.ip(&format!("address add {POOLED}/32 dev lo"));
        }
        let named = "{name: pooled, annotations: {metallb.io/address-pool: edge}}";
        corner.apply(&service("pooled", 80, "").replace("{name: pooled}", named));
        corner.apply(&service("plain", 80, ""));
        corner.until_published("pooled", &[POOLED]);
        let scene = Self {
            corner,
            pods,
            nodes,
            round: 0,
        };
        scene.until_at_nodes("plain");
        scene.change();
        scene.until_changed();
        scene
    }

    pub(crate) fn until_at_nodes(&self, name: &str) {
        let addresses = self.nodes.each_ref().map(LbNode::address);
        self.corner
            .until_published(name, &[&addresses[0], &addresses[1]]);
    }

    /// Other endpoints, one Service less and one more.
    pub(crate) fn change(&self) {
        let endpoint = usize::from(self.round % 2);
        for name in ["plain", "pooled"] {
            self.corner.apply(&self.pods.slice(name, &[endpoint]));
        }
        if let Some(before) = self.round.checked_sub(1) {
            self.corner.delete("Service", &format!("s{before}"));
        }
        let name = format!("s{}", self.round);
        self.corner.apply(&service(&name, 100 + self.round, ""));
        self.corner.apply(&self.pods.slice(&name, &[endpoint]));
    }

    /// Waits until all of that is in effect.
    pub(crate) fn until_changed(&self) {
        let (corner, round) = (self.corner, self.round);
        self.until_at_nodes(&format!("s{round}"));
        let pod = self.pods.addresses[usize::from(round % 2)].to_string();
        let is_other =
            |answer: io::Result<String>| answer.is_ok_and(|answer| answer.starts_with(&pod));
        for node in &self.nodes {
            until("the other endpoint", || {
                is_other(node.ask(80))
                    && is_other(ask_pool(node))
                    && is_other(node.ask(100 + round))
            });
            node.until_in_force();
        }
        if let Some(before) = round.checked_sub(1) {
            until("the end of the Service that was deleted", || {
                corner.read("Service", &format!("s{before}")).is_none()
            });
            until("a closed port", || {
                let mut nodes = self.nodes.iter();
                nodes.all(|node| node.ask(100 + before).is_err())
            });
        }
    }

    /// That processes which begin now make the same tables and statuses.
    pub(crate) fn others_make_the_same(mut self) {
        let corner = self.corner;
        let contents = self.nodes.each_ref().map(LbNode::content);
        let before = statuses(corner);
        let published = Published::by(corner, &["plain", "pooled"]);
        for node in &mut self.nodes {
            node.controller.take().expect("it runs").crash();
            node.start_controller_alone();
        }
        corner.take_publisher().process.stop();
        corner.publish(&[]);
        // They are there when they follow a change.
        corner.apply(&service("proof", 83, ""));
        self.until_at_nodes("proof");
        corner.delete("Service", "proof");
        until("the end of the proof", || {
            corner.read("Service", "proof").is_none()
        });
        for (node, content) in self.nodes.iter().zip(&contents) {
            let mut now = Value::Null;
            let is_same = comes_within(Duration::from_secs(20), || {
                now = node.content();
                now == *content
            });
            assert!(
                is_same,
                "{}: {now:#} in the place of {content:#}",
                node.name
            );
        }
        assert_eq!(statuses(corner), before);
        published.stayed();
    }
}

pub(crate) fn ask_pool(node: &LbNode<'_>) -> io::Result<String> {
    let address = format!("{POOLED}:80").parse().expect("an address");
    node.host.network.within(|| ask(address))
}

/// The name, the version and the status of every Service.
fn statuses(corner: &Corner<'_>) -> Vec<String> {
    let services = corner.plane.admin.list("Service", corner.name);
    let text = |service: &Value| {
        let metadata = &service["metadata"];
        let version = &metadata["resourceVersion"];
        format!("{} {version} {}", metadata["name"], service["status"])
    };
    services.iter().map(text).collect()
}

/// Looks all the time at what Services publish, until it is dropped.
pub(crate) struct Published {
    begun: BTreeMap<String, Vec<String>>,
    looks: Lane,
}

impl Published {
    /// What these publish now is what they are to publish.
    pub(crate) fn by(corner: &Corner<'_>, services: &[&str]) -> Self {
        Self::seen(corner, services, |found, begun| found == begun)
    }

    /// These are always to publish something of what they publish now.
    pub(crate) fn in_part_by(corner: &Corner<'_>, services: &[&str]) -> Self {
        Self::seen(corner, services, |found, begun| {
            !found.is_empty() && found.iter().all(|address| begun.contains(address))
        })
    }

    fn seen(
        corner: &Corner<'_>,
        services: &[&str],
        is_so: fn(&[String], &[String]) -> bool,
    ) -> Self {
        let begun = services.iter().map(|&name| {
            let mut addresses = corner.published(name);
            assert!(!addresses.is_empty(), "{name} publishes nothing");
            addresses.sort();
            (name.to_owned(), addresses)
        });
        let begun: BTreeMap<_, _> = begun.collect();
        let (admin, wanted) = (corner.plane.admin.clone(), begun.clone());
        let folder = folder_of("Service", corner.name);
        let looks = Lane::start(move || {
            // The API server may be away.
            let Ok(list) = admin.ask(Method::GET, &folder, None) else {
                return Ok(());
            };
            let found = list["items"].as_array().into_iter().flatten();
            let found: BTreeMap<_, _> = found
                .map(|service| {
                    let name = service["metadata"]["name"].as_str().unwrap_or_default();
                    (name.to_owned(), ingress(service))
                })
                .filter(|(name, _)| wanted.contains_key(name))
                .collect();
            let is_so = wanted.iter().all(|(name, begun)| {
                let found = found.get(name);
                found.is_some_and(|found| is_so(found, begun))
            });
            match is_so {
                true => Ok(()),
                false => Err(format!("{found:?}")),
            }
        });
        Self { begun, looks }
    }

    /// That they did, whenever somebody looked.
    pub(crate) fn stayed(self) {
        let begun = &self.begun;
        let (looks, otherwise) = self.looks.end();
        assert!(otherwise.is_empty(), "{begun:?}, and then {otherwise:#?}");
        println!("{looks} looks at statuses, none of which was otherwise");
    }
}

/// Clients that come all the time, one after the other at each place, until this is dropped.
#[derive(Default)]
pub(crate) struct Clients(Vec<Lane>);

impl Clients {
    /// At port 80 of the nodes, and of the address of the pool.
    pub(crate) fn of(scene: &Scene<'_>) -> Self {
        let mut clients = Self::default();
        for node in &scene.nodes {
            clients.come(&scene.corner.yard.place, (node.host.address, 80).into());
            let pooled = format!("{POOLED}:80").parse().expect("an address");
            clients.come(&node.host.network, pooled);
        }
        clients
    }

    /// From this network to this address.
    pub(crate) fn come(&mut self, network: &Namespace, address: SocketAddr) {
        let ask = move || match ask(address) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("{address}: {why}")),
        };
        self.0.push(network.within(|| Lane::start(ask)));
    }

    /// That every one was answered; how many came.
    pub(crate) fn were_all_answered(self) -> u32 {
        let (counts, failures): (Vec<_>, Vec<_>) = self.0.into_iter().map(Lane::end).unzip();
        let count = counts.iter().sum();
        let failures = failures.concat();
        assert!(failures.is_empty(), "of {count}: {failures:#?}");
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        println!("{count} clients came, and all were answered");
        count
    }
}

/// Does something again and again on a thread, until it is dropped.
struct Lane {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<(u32, Vec<String>)>>,
}

impl Lane {
    fn start(mut work: impl FnMut() -> Result<(), String> + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let (mut count, mut failures) = (0, Vec::new());
            while !ends.load(Ordering::Relaxed) {
                count += 1;
                failures.extend(work().err());
                support::pause(BETWEEN);
            }
            (count, failures)
        });
        Self {
            over,
            thread: Some(thread),
        }
    }

    /// How often it was done, and what failed.
    fn end(mut self) -> (u32, Vec<String>) {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it ends once");
        thread.join().expect("a thread that ends")
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn ingress(service: &Value) -> Vec<String> {
    let entries = service["status"]["loadBalancer"]["ingress"].as_array();
    let entries = entries.into_iter().flatten();
    let mut addresses: Vec<_> = entries
        .filter_map(|entry| entry["ip"].as_str().map(str::to_owned))
        .collect();
    addresses.sort();
    addresses
}

/// Of the pool, and of `pooled`.
pub(crate) const POOLED: &str = "198.51.100.7";
/// The pause between two clients, and between two looks.
const BETWEEN: Duration = Duration::from_millis(50);
