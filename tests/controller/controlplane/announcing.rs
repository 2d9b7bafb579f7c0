//! An address of a pool, from the Service to the network: the controller writes the announcer's file, the announcer puts the address on
//! one node, and a client sees how it moves.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::backends::{Backends, service, slice_on};
use crate::corner::{Corner, with_its_own_server};
use crate::node::LbNode;
use crate::pools::{make_the_kinds, pool};
use crate::process::{Process, until};
use support::program::program;

/// A load balancer node with an announcer.
pub(crate) struct Edge<'a> {
    pub(crate) node: LbNode<'a>,
    announcer: Option<Process>,
    pub(crate) folder: PathBuf,
}

impl<'a> Edge<'a> {
    pub(crate) fn prepare(corner: &'a Corner<'_>, name: &str) -> Self {
        let mut node = LbNode::prepare(corner, name, &[]);
        let folder = node.table_folder();
        let key = corner.folder.path().join("members.key");
        fs::write(&key, KEY).expect("a key");
        let flag = |name: &str, path: PathBuf| format!("--announce-{name}={}", path.display());
        node.flags = vec![
            flag("file", folder.join("announce.yaml")),
            flag("key", key),
            flag("socket", Self::socket(&folder)),
        ];
        Self {
            node,
            announcer: None,
            folder,
        }
    }

    fn socket(folder: &std::path::Path) -> PathBuf {
        folder.with_file_name("sock")
    }

    pub(crate) fn start_dataplane(&mut self) {
        let socket = Self::socket(&self.folder).display().to_string();
        self.node.start_dataplane_with(&["--socket", &socket]);
    }

    pub(crate) fn start_announcer(&mut self) {
        let mut command = program("ballast-controller");
        let file = self.folder.join("announce.yaml");
        command.arg("announce").arg("--file").arg(file);
        let log = self.folder.with_file_name("announcer.log");
        let start = || Process::start(&mut command, &log);
        self.announcer = Some(self.node.host.network.within(start));
    }

    fn read(&self, name: &str) -> Value {
        let bytes = fs::read(self.folder.join(name)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// What the controller has written of the address: whether this node is ready for it. `None`: the file does not have it.
    fn is_ready(&self) -> Option<bool> {
        let file = self.read("announce.yaml");
        let mut addresses = file["addresses"].as_array().into_iter().flatten();
        addresses.next()?["ready"].as_bool()
    }

    /// The state of the address on this node, in the announcer's words.
    fn state(&self) -> String {
        let ack = self.read("announce-ack.json");
        let mut addresses = ack["addresses"].as_array().into_iter().flatten();
        let one = addresses.next();
        let state = one.and_then(|one| one["state"].as_str());
        state.unwrap_or_default().to_owned()
    }

    /// When the address left this node, and when the newest table was written, in milliseconds since 1970.
    fn left_and_written(&self) -> (i128, i128) {
        let ack = self.read("announce-ack.json");
        let left = ack["addresses"][0]["since"].as_u64().expect("a time");
        let table = fs::metadata(self.folder.join("table.json"));
        let written = table.and_then(|table| table.modified()).expect("a time");
        let written = written.duration_since(UNIX_EPOCH).expect("a time");
        (left.into(), written.as_millis() as i128)
    }

    /// Everything on this node ends without a word, and its network with it.
    fn lose_power(&mut self, corner: &Corner<'_>) {
        corner.yard.cut(&self.node.host);
        let of_node = [&mut self.node.dataplane, &mut self.node.controller];
        for process in of_node.into_iter().chain([&mut self.announcer]) {
            process.take().expect("it runs").crash();
        }
    }
}

/// Asks what answers at the address. A SYN that was lost while the address moved is sent again after a second.
fn ask(address: &str) -> io::Result<String> {
    let mut stream = connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"?\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.is_empty() {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(answer),
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let address: SocketAddr = format!("{address}:80").parse().expect("an address");
    TcpStream::connect_timeout(&address, Duration::from_secs(3))
}

/// As the component of kustomize does.
pub(crate) fn let_nodes_read(corner: &Corner<'_>) {
    let account = &corner.home;
    let name = format!("ballast-announce-{}", corner.name);
    corner.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules:
- {{apiGroups: [ballast.dev], resources: [addresspools, announcements], verbs: [list, watch]}}
- apiGroups: [metallb.io]
  resources: [ipaddresspools, l2advertisements, bgpadvertisements, bgppeers, communities, bfdprofiles]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}
subjects: [{{kind: ServiceAccount, name: ballast, namespace: {account}}}]
"
    ));
}

/// A client that connects again and again, and notes when nobody answered.
struct Client {
    over: Arc<AtomicBool>,
    thread: JoinHandle<(u32, u32, Duration)>,
}

impl Client {
    fn start(ask: impl Fn() -> io::Result<()> + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let (mut answered, mut failed) = (0, 0);
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            while !ends.load(Ordering::Relaxed) {
                match ask() {
                    Ok(()) => {
                        answered += 1;
                        longest = longest.max(last.elapsed());
                        last = Instant::now();
                    }
                    Err(_) => failed += 1,
                }
                support::pause(Duration::from_millis(5));
            }
            (answered, failed, longest)
        });
        Self { over, thread }
    }

    /// How many were answered, how many not, and the longest time without an answer.
    fn end(self) -> (u32, u32, Duration) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a client")
    }
}

fn an_address_is_on_one_node_that_serves_and_moves_when_that_one_leaves_or_dies() {
    with_its_own_server("announcing", |corner| {
        make_the_kinds(corner.plane);
        let_nodes_read(corner);
        pool(
            corner,
            "edge",
            json!({"addresses": [format!("{ADDRESS}/32")]}),
        );
        let pods = Backends::start(corner, 1);
        corner.be_published(&[]);
        let mut edges = ["a", "b"].map(|name| Edge::prepare(corner, name));
        for edge in &mut edges {
            edge.node.start_controller_alone();
            edge.start_announcer();
        }
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        // No data plane listens: nobody announces.
        for edge in &edges {
            until("the address is given", || edge.is_ready() == Some(false));
            until("the announcer has the file", || edge.state() == "not-ready");
        }
        for edge in &mut edges {
            edge.start_dataplane();
        }
        for edge in &edges {
            until("the data plane listens", || edge.is_ready() == Some(true));
        }
        let held = |edges: &[Edge<'_>; 2]| {
            let held = edges.iter().map(|edge| edge.state() == "held");
            held.collect::<Vec<_>>()
        };
        until("one node has it", || {
            held(&edges).iter().filter(|held| **held).count() == 1
        });
        let first = usize::from(held(&edges)[1]);
        let second = 1 - first;
        corner.until_published("web", &[ADDRESS]);
        until("the other one knows", || {
            edges[second].state() == "not-ours"
        });

        cordon(corner, &edges[first]);

        // The label goes: the other node takes the address, and this one serves on. A connection does not move with its address, so
        // the one that was open at that moment may fail.
        let client = Client::start(|| ask(ADDRESS).map(drop));
        let label = |value: Value| {
            let patch = json!({"metadata": {"labels": {"role": value}}});
            corner.patch("Node", &edges[first].node.name, &patch);
        };
        label(Value::Null);
        until("the other node has it", || edges[second].state() == "held");
        until("it is not in the file any more", || {
            edges[first].is_ready().is_none()
        });
        let (answered, failed, longest) = client.end();
        println!("label: {answered} answered, {failed} not, {longest:?} without an answer");
        assert!(answered > 0 && failed <= 1, "{answered} and {failed}");
        assert!(longest < Duration::from_secs(2), "{longest:?}");
        label(json!("loadbalancer"));
        until("it serves again", || edges[first].is_ready() == Some(true));

        // The node that has it loses its power. Which one that is depends on which of the two was there first.
        let client = Client::start(|| ask(ADDRESS).map(drop));
        until("one node has it", || {
            held(&edges).iter().filter(|held| **held).count() == 1
        });
        let powerless = usize::from(held(&edges)[1]);
        let left = 1 - powerless;
        edges[powerless].lose_power(corner);
        until("the other node has it", || edges[left].state() == "held");
        let (answered, failed, longest) = client.end();
        println!("power: {answered} answered, {failed} not, {longest:?} without an answer");
        assert!(longest < Duration::from_secs(4), "{longest:?}");
        until("clients are answered", || ask(ADDRESS).is_ok());

        // The Service goes: nothing is announced any more.
        corner.delete("Service", "web");
        until("it is not in the file any more", || {
            edges[left].is_ready().is_none()
        });
        until("nobody has the address", || ask(ADDRESS).is_err());
    });
}

/// A node serves its own pods only, and the last one of the node that has the address ends.
fn an_address_leaves_its_node_before_the_port_of_the_last_local_pod_is_closed() {
    with_its_own_server("emptied", |corner| {
        make_the_kinds(corner.plane);
        let_nodes_read(corner);
        let addresses = json!({"addresses": [format!("{OF_PODS}/32")]});
        pool(corner, "edge", addresses);
        let pods = Backends::start(corner, 2);
        corner.be_published(&[]);
        let mut edges = ["a", "b"].map(|name| Edge::prepare(corner, name));
        for edge in &mut edges {
            edge.node.start_controller_alone();
            edge.start_announcer();
            edge.start_dataplane();
        }
        let strict = service("web", 80, "  externalTrafficPolicy: Local\n").replace(
            "{name: web}",
            "{name: web, annotations: {ballast.dev/external-traffic-policy-mode: strict}}",
        );
        corner.apply(&strict);
        let on = |which: &[usize]| {
            let pods = which.iter().map(|&one| {
                let name: &str = &edges[one].node.name;
                (pods.addresses[one].to_string(), name)
            });
            corner.apply(&slice_on("web", &pods.collect::<Vec<_>>()));
        };
        on(&[0, 1]);
        for edge in &edges {
            until("the data plane listens", || edge.is_ready() == Some(true));
        }
        let holders = || (0..2).filter(|&one| edges[one].state() == "held");
        until("one node has it", || holders().count() == 1);
        until("clients are answered", || ask(OF_PODS).is_ok());
        let client = Client::start(|| connect(OF_PODS).map(drop));
        for _ in 0..MOVES {
            let from = holders().next().expect("a node");
            on(&[1 - from]);
            until("the other node has it", || holders().eq([1 - from]));
            until("its port is closed", || {
                edges[from].node.content()["services"][0]["endpoints"].is_null()
            });
            let (left, written) = edges[from].left_and_written();
            println!("the table was written {} ms after it left", written - left);
            assert!(left <= written, "{left} and {written}");
            edges[from].node.until_in_force();
            on(&[0, 1]);
            until("it serves again", || edges[from].is_ready() == Some(true));
        }
        let (answered, failed, longest) = client.end();
        println!("{MOVES} moves: {answered} connected, {failed} not, {longest:?} without one");
        assert!(answered > 0 && failed == 0, "{answered} and {failed}");
        assert!(longest < Duration::from_secs(2), "{longest:?}");
    });
}

/// A cordon moves nothing, and no client notices it.
fn cordon(corner: &Corner<'_>, edge: &Edge<'_>) {
    let client = Client::start(|| ask(ADDRESS).map(drop));
    for is_cordoned in [true, false] {
        let patch = json!({"spec": {"unschedulable": is_cordoned}});
        corner.patch("Node", &edge.node.name, &patch);
        support::pause(Duration::from_secs(1));
        assert_eq!(edge.state(), "held");
    }
    let (answered, failed, longest) = client.end();
    println!("cordon: {answered} answered, {failed} not, {longest:?} without an answer");
    assert!(answered > 0 && failed == 0, "{answered} and {failed}");
}

tests![
    an_address_is_on_one_node_that_serves_and_moves_when_that_one_leaves_or_dies,
    an_address_leaves_its_node_before_the_port_of_the_last_local_pod_is_closed,
];

const ADDRESS: &str = "10.88.250.10";
const OF_PODS: &str = "10.88.250.11";
const MOVES: u32 = 4;
/// 32 bytes.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
