//! Many nodes against one API server: what they ask of it at rest, when one Service changes, and when a node dies.
//!
//! Each node is a real `ballast-controller run`; one thread stands for all data planes: it answers `/readyz` and acknowledges tables.
//! With FIGURES=1 there are fifty, else a few.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::backends::service;
use crate::corner::{Corner, NODES, PUBLISHERS, with_its_own_server, words};
use crate::figures::{holds, in_time, make_many, promised, quiet};
use crate::plane::Host;
use crate::process::{Process, until};
use support::program::program;

fn many_nodes_ask_little() {
    with_its_own_server("load", |corner| {
        let (count, services) = if promised() { (50, 100) } else { (8, 20) };
        let mut fleet = Fleet::start(corner, count);
        corner.publish(&[]);
        for number in 0..services {
            let extra = "  allocateLoadBalancerNodePorts: false\n";
            corner.apply(&service(&format!("s{number}"), 10_000 + number, extra));
        }
        let published_at = |addresses: usize| {
            let all = corner.plane.admin.list("Service", corner.name);
            all.iter().all(|service| {
                let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
                ingress.is_some_and(|entries| entries.len() == addresses)
            })
        };
        until("all is published", || published_at(count));
        support::pause(Duration::from_secs(10));

        let (rest, seconds) = (corner.asked_by(NODES).len(), 20);
        support::pause(Duration::from_secs(seconds));
        let asked = corner.asked_by(NODES).split_off(rest);
        for entry in &asked {
            let is_own = entry["verb"] == "patch" && entry["objectRef"]["resource"] == "leases";
            assert!(is_own || entry["verb"] == "watch", "{}", words(entry));
        }
        let renewals = renewals(&asked);
        let most = renewals.values().max().copied().unwrap_or_default();
        println!("{count} nodes at rest: at most {most} writes of a node in {seconds} s");
        assert!(renewals.len() == count && most <= 6, "{renewals:?}");

        // A change of a table that is none of what listens.
        let (before, writes) = (corner.asked_by(NODES).len(), corner.writes().len());
        for round in 0..20 {
            let change = json!({"ballast.dev/description": round.to_string()});
            corner.annotate("s7", &change);
            support::pause(Duration::from_millis(400));
        }
        let asked = corner.asked_by(NODES).split_off(before);
        let renewals = self::renewals(&asked);
        let most = renewals.values().max().copied().unwrap_or_default();
        println!(
            "{count} nodes while a Service changes 20 times in 8 s: at most {most} writes of a node"
        );
        assert!(most <= 4, "{renewals:?}");
        assert_eq!(corner.writes().len(), writes, "and none of the publisher");

        let begun = Instant::now();
        fleet.nodes.pop().expect("a node").crash();
        until("the dead node is unpublished", || published_at(count - 1));
        let lasted = begun.elapsed();
        in_time(
            "a node of many died, and all is unpublished",
            lasted,
            Duration::from_secs(16),
        );
        let patches = corner.asked_by(PUBLISHERS);
        let patches = patches
            .iter()
            .filter(|entry| entry["verb"] == "patch")
            .count();
        println!("the publisher has patched {patches} times for {services} Services");

        let begun = Instant::now();
        let extra = "  allocateLoadBalancerNodePorts: false\n";
        corner.apply(&service("last", 9_999, extra));
        until("one more on all", || published_at(count - 1));
        holds(
            "one more Service, published at all of them",
            begun.elapsed(),
            Duration::from_secs(2),
        );
        drop(fleet);
    });
}

fn a_node_that_dies_leaves_the_statuses_of_thousands_of_services() {
    with_its_own_server("dying", |corner| {
        let services = if promised() { 5000 } else { 200 };
        make_many(corner, services, 1);
        let mut fleet = Fleet::start(corner, 2);
        corner.publish(&[]);
        until_all_published(corner, services, 2);
        let publisher = corner.take_publisher();
        quiet(&publisher.process);
        let begun = Instant::now();
        fleet.nodes.pop().expect("a node").crash();
        until_all_published(corner, services, 1);
        println!(
            "a dead node has left the statuses of {services} Services after {:.1?}",
            begun.elapsed()
        );
        drop(fleet);
    });
}

/// Waits until so many Services are published, each at so many addresses.
fn until_all_published(corner: &Corner<'_>, services: usize, addresses: usize) {
    let (tell, told) = mpsc::channel();
    let mut published = BTreeSet::new();
    let admin = &corner.plane.admin;
    admin.follow("Service", corner.name, "", 600, move |service| {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
        match ingress.map_or(0, Vec::len) == addresses {
            true => published.insert(name.to_owned()),
            false => published.remove(name),
        };
        let is_over = published.len() == services;
        if is_over {
            tell.send(()).ok();
        }
        !is_over
    });
    told.try_recv().expect("all are published in time");
}

/// How often each node has written its Lease.
fn renewals(asked: &[Value]) -> BTreeMap<String, usize> {
    let mut renewals = BTreeMap::new();
    for entry in asked.iter().filter(|entry| entry["verb"] == "patch") {
        let name = entry["objectRef"]["name"].as_str().unwrap_or_default();
        *renewals.entry(name.to_owned()).or_default() += 1;
    }
    renewals
}

/// Nodes on one machine, and what passes for their data planes.
struct Fleet {
    nodes: Vec<Process>,
    ended: Arc<AtomicBool>,
    _host: Host,
}

impl Fleet {
    fn start(corner: &Corner<'_>, count: usize) -> Self {
        let host = corner.yard.host();
        let ended = Arc::new(AtomicBool::new(false));
        let dataplane = format!("{}:1936", host.address);
        let listener = host.network.within(|| TcpListener::bind(&dataplane));
        let listener = listener.expect("a port");
        thread::spawn(move || be_ready(&listener));
        let mut folders = Vec::new();
        let nodes = (0..count).map(|number| {
            let name = format!("{}-n{number}", corner.name);
            let folder = corner.folder.path().join(&name);
            fs::create_dir_all(&folder).expect("a folder");
            folders.push(folder.clone());
            let config = folder.join("kubeconfig");
            let token = corner.token_on(NODES, &name, &format!("pod-{number}"));
            fs::write(&config, corner.plane.kubeconfig(&token)).expect("a file");
            corner.apply(&format!(
                "apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{role: loadbalancer, corner: {}}}}}
status: {{addresses: [{{type: InternalIP, address: 10.99.0.{number}}}]}}
",
                corner.name
            ));
            let mut command = program("ballast-controller");
            let own = corner.arguments.controller.iter();
            let place = folder.display().to_string();
            command
                .args(own.map(|word| word.replace(crate::corner::TABLE_FOLDER, &place)))
                .args(["--admin", "none", "--dataplane", &dataplane, "--kubeconfig"])
                .arg(&config)
                .env("NODE_NAME", &name)
                .env("POD_NAMESPACE", &corner.home);
            start(&host, &mut command, &folder)
        });
        let nodes = nodes.collect();
        let over = Arc::clone(&ended);
        thread::spawn(move || acknowledge(&folders, &over));
        Self {
            nodes,
            ended,
            _host: host,
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn start(host: &Host, command: &mut Command, folder: &Path) -> Process {
    let log = folder.join("log");
    host.network.within(|| Process::start(command, &log))
}

fn be_ready(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        thread::spawn(move || {
            let mut asked = [0; 1024];
            while let Ok(1..) = stream.read(&mut asked) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        });
    }
}

/// Says of every table that it is served.
fn acknowledge(folders: &[PathBuf], ended: &AtomicBool) {
    let mut known = BTreeMap::new();
    while !ended.load(Ordering::Relaxed) {
        for folder in folders {
            let text = fs::read_to_string(folder.join("table.json")).unwrap_or_default();
            let table: Value = serde_json::from_str(&text).unwrap_or_default();
            let generation = table["generation"].clone();
            if generation.is_null() || known.get(folder) == Some(&generation) {
                continue;
            }
            let ack = json!({
                "version": 1, "instance": "i", "refused": null, "exceptions": [],
                "served": {"generation": generation, "digest": "d"},
            });
            let draft = folder.join("ack.draft");
            let written = fs::write(&draft, ack.to_string());
            if written
                .and_then(|()| fs::rename(&draft, folder.join("ack.json")))
                .is_ok()
            {
                known.insert(folder.clone(), generation);
            }
        }
        support::pause(Duration::from_millis(20));
    }
}

tests![
    many_nodes_ask_little,
    a_node_that_dies_leaves_the_statuses_of_thousands_of_services,
];
