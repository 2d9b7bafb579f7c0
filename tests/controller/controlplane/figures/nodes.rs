//! Many nodes against one API server: what they ask of it at rest, when one Service changes, and when a node dies.
//!
//! Each node is a real `ballast-controller run`; one thread stands for all data planes: it answers `/readyz` and acknowledges tables.
//! With FIGURES=1 there are fifty, else a few.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{FIRST_PORT, holds, in_time, make_many, promised, quiet, tell, until_all_published};
use crate::backends::service;
use crate::corner::{Corner, NODES, PUBLISHERS, with_its_own_server, words};
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
            corner.apply(&service(&format!("s{number}"), FIRST_PORT + number, extra));
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
        let what = format!("{count} nodes at rest: writes of a node in {seconds} s, at most");
        holds(&what, most, 6);
        assert!(renewals.len() == count && most <= 6, "{renewals:?}");
        let reads = asked.iter().filter(|entry| entry["verb"] != "patch");
        let reads = reads.filter(|entry| entry["verb"] != "watch").count();
        holds(
            &format!("{count} nodes at rest: reads but watches"),
            reads,
            0,
        );
        ports_that_change(corner, count);

        // A change of a table that is none of what listens.
        let (before, writes) = (corner.asked_by(NODES).len(), corner.writes().len());
        let begun = Instant::now();
        for round in 0..20 {
            let change = json!({"ballast.dev/description": round.to_string()});
            corner.annotate("s7", &change);
            support::pause(Duration::from_millis(400));
        }
        let asked = corner.asked_by(NODES).split_off(before);
        let renewals = self::renewals(&asked);
        let most = renewals.values().max().copied().unwrap_or_default();
        let lasted = begun.elapsed();
        println!(
            "{count} nodes while a Service changes 20 times in {lasted:.1?}: at most {most} writes of a node"
        );
        // A renewal in 4 s. On a busy machine the changes take longer than 8 s.
        let renewed = usize::try_from(lasted.as_secs() / 4).expect("a few seconds");
        assert!(most <= renewed + 2, "{lasted:?}: {renewals:?}");
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

/// Services come and go all the time.
fn ports_that_change(corner: &Corner<'_>, nodes: usize) {
    let lasts = Duration::from_secs(if promised() { 60 } else { 12 });
    let (before, begun) = (corner.asked_by(NODES).len(), Instant::now());
    let mut number = 0;
    while begun.elapsed() < lasts {
        let name = format!("flips-{}", number % 10);
        match number / 10 % 2 {
            0 => {
                let extra = "  allocateLoadBalancerNodePorts: false\n";
                corner.apply(&service(&name, 8_000 + number, extra));
            }
            _ => corner.delete("Service", &name),
        }
        number += 1;
        support::pause(Duration::from_millis(250));
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let asked = corner.asked_by(NODES).split_off(before);
    let most = renewals(&asked).into_values().max().unwrap_or_default();
    let most = f64::from(u32::try_from(most).unwrap_or(u32::MAX)) / minutes;
    let what = format!(
        "{nodes} nodes while ports change all the time: writes of a node a minute, at most"
    );
    holds(&what, most.floor(), 15.0);
    for left in 0..10 {
        let name = format!("flips-{left}");
        if corner.read("Service", &name).is_some() {
            corner.delete("Service", &name);
        }
    }
    until("the end of those", || {
        let all = corner.plane.admin.list("Service", corner.name);
        let names = all
            .iter()
            .filter_map(|one| one["metadata"]["name"].as_str());
        !names.into_iter().any(|name| name.starts_with("flips-"))
    });
    support::pause(Duration::from_secs(5));
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
        let what = format!("a dead node has left the statuses of {services} Services after");
        tell(&what, begun.elapsed());
        drop(fleet);
    });
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
pub(super) struct Fleet {
    pub(super) nodes: Vec<Process>,
    ended: Arc<AtomicBool>,
    _host: Host,
}

impl Fleet {
    pub(super) fn start(corner: &Corner<'_>, count: usize) -> Self {
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
    let mut seen = BTreeMap::new();
    while !ended.load(Ordering::Relaxed) {
        for folder in folders {
            let metadata = fs::metadata(folder.join("table.json"));
            let inode = metadata.ok().map(|metadata| metadata.ino());
            // A table may be of many MiB.
            if inode.is_none() || seen.insert(folder, inode) == Some(inode) {
                continue;
            }
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
