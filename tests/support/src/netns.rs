//! Network namespaces of a test's own, joined by cables that the test can cut.
//!
//! A namespace here has no name and no process: it lives as long as somebody holds it, a [`Namespace`] or a thread that was
//! started in it. So nothing is left behind, however a test ends.
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;
use std::process::{Command, Output, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::peers::alone;
use crate::skip::skip;

/// A network of its own.
pub struct Namespace(File);

impl Namespace {
    /// One that has only loopback, or why there is none.
    pub fn make() -> Result<Self, String> {
        let alone = alone();
        // The child enters a new namespace, and when it echoes we know that it has; it ends with its stdin.
        let mut child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        drop(alone);
        let echoed = child
            .stdin
            .as_mut()
            .zip(child.stdout.as_mut())
            .map(|(asked, heard)| {
                asked.write_all(b"?")?;
                heard.read_exact(&mut [0])
            });
        let file = File::open(format!("/proc/{}/ns/net", child.id()));
        let said = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        match (echoed, file) {
            (Some(Ok(())), Ok(file)) => {
                let namespace = Self(file);
                namespace.ip("link set lo up");
                Ok(namespace)
            }
            _ => Err(String::from_utf8_lossy(&said.stderr).trim().to_owned()),
        }
    }

    /// Does this in the namespace, on a thread of its own. What it starts stays there.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter().expect("a namespace can be entered");
                work()
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&self.0),
            Some(LinkNameSpaceType::Network),
        )?)
    }

    fn run(&self, program: &str, words: &str) -> io::Result<Output> {
        let _alone = alone();
        self.within(|| {
            Command::new(program)
                .args(words.split_whitespace())
                .output()
        })
    }

    /// `ip WORDS`, in here.
    pub fn ip(&self, words: &str) {
        let output = self.run("ip", words).expect("the program ip");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {words}: {why}");
    }

    /// `tc WORDS`, in here; says why not.
    pub fn tc(&self, words: &str) -> Result<(), String> {
        let output = self
            .run("tc", words)
            .map_err(|error| format!("tc: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(format!("tc {words}: {}", why.trim()))
    }

    /// Sets `/proc/sys/net/NAME`, in here.
    pub fn set(&self, name: &str, value: &str) {
        self.within(|| fs::write(format!("/proc/sys/net/{name}"), value))
            .unwrap_or_else(|error| panic!("net/{name}: {error}"));
    }

    /// Lays a cable from `port` here to `eth0` there.
    pub fn lay_cable(&self, port: &str, other: &Self) {
        let there = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        self.ip(&format!(
            "link add {port} type veth peer name eth0 netns {there}"
        ));
        self.ip(&format!("link set {port} up"));
    }
}

/// A place with a switch, and as many nodes on it as wanted. The place is `10.77.0.1`, the first node `10.77.0.2`, and so on.
pub struct Site {
    pub place: Namespace,
    pub nodes: Vec<Namespace>,
}

impl Site {
    /// Builds it. Where namespaces are not permitted: `None`, having said so; but they must be where CI=true.
    pub fn build(nodes: u8) -> Option<Self> {
        let made = Namespace::make().and_then(|place| {
            let nodes = (0..nodes)
                .map(|_| Namespace::make())
                .collect::<Result<_, _>>()?;
            Ok(Self { place, nodes })
        });
        match made {
            Ok(site) => {
                site.connect();
                Some(site)
            }
            Err(why) => {
                skip(&format!("no network namespaces: {why}"));
                None
            }
        }
    }

    fn connect(&self) {
        self.place.ip("link add switch type bridge");
        self.place.ip(&format!("address add {PLACE}/24 dev switch"));
        self.place.ip("link set switch up");
        for (index, node) in self.nodes.iter().enumerate() {
            let port = format!("port{index}");
            self.place.lay_cable(&port, node);
            self.place.ip(&format!("link set {port} master switch"));
            node.ip(&format!("address add {}/24 dev eth0", node_address(index)));
            node.ip("link set eth0 up");
        }
    }

    /// From now on packets to the nodes take their time. Says why not.
    pub fn slow_down(&self) -> Result<(), String> {
        let netem = "qdisc add dev switch root netem delay 500ms";
        // Without netem a narrow pipe does: what thousands send at once has to queue.
        self.place
            .tc(netem)
            .or_else(|no_netem| self.narrow().map_err(|no_tbf| no_netem + "; " + &no_tbf))
    }

    /// From now on a packet to a node takes 0.4 ms or more: so narrow that also a slow sender has to queue.
    pub fn narrow(&self) -> Result<(), String> {
        let narrow = "qdisc add dev switch root tbf rate 1500kbit burst 2000 limit 4000000";
        self.place.tc(narrow)
    }

    /// From now on no packet passes between this node and anybody, and nobody is told.
    pub fn silence(&self, node: usize) {
        self.nodes[node].ip("link set eth0 down");
    }

    /// The end of [`Site::silence`].
    pub fn heal(&self, node: usize) {
        self.nodes[node].ip("link set eth0 up");
    }
}

/// Where a site's place is.
pub const PLACE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Where a node of a site is.
pub fn node_address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 2 + u8::try_from(node).expect("few nodes"))
}
