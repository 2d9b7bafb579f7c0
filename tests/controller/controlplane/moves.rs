//! A cluster that moves from MetalLB: its pools, its Services with the statuses that it wrote, and clients that come all the time.
//!
//! MetalLB is no part of this: what it writes is there, and the test plays what carries its clients, kube-proxy's rules on the node to
//! which MetalLB's speaker leads the addresses. kube-proxy has such a rule for every address whose `ipMode` is not `Proxy`.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::api::path;
use crate::backends::{Backends, service};
use crate::corner::{Corner, with_its_own_server};
use crate::node::LbNode;
use crate::plane::Host;
use crate::pools::{apply, make_the_kind_of_metallb};
use crate::process::comes_within;
use crate::scene::{Clients, Published};

fn no_address_moves_and_no_client_fails_when_ballast_takes_over_from_metallb() {
    with_its_own_server("moves", |corner| {
        make_the_kind_of_metallb(corner);
        metallb_pool(
            corner,
            "first",
            &json!({"addresses": ["10.10.0.2-10.10.0.10"]}),
        );
        let by_name = json!({"addresses": ["10.10.1.0/28"], "autoAssign": false});
        metallb_pool(corner, "second", &by_name);
        let pods = Backends::start(corner, 1);
        for moved in &MOVED {
            moved.make(corner, &pods);
        }
        let mut node = LbNode::prepare(corner, "a", &[]);
        node.start_dataplane();
        be_kube_proxy(&node.host, &pods);
        let client = corner.yard.host();
        client
            .network
            .ip(&format!("route add 10.10.0.0/16 via {}", node.address()));
        let mut clients = Clients::default();
        for moved in &MOVED {
            clients.come(&client.network, moved.place());
        }
        let names = MOVED.map(|moved| moved.name);
        let published = Published::by(corner, &names);

        // Beside MetalLB: a class of its own. What MetalLB gave is nobody else's.
        let class = "--lb-class=ballast.dev/ballast";
        node.flags = vec![class.to_owned()];
        node.start_controller();
        let ours = "  loadBalancerClass: ballast.dev/ballast\n";
        corner.apply(&service("ours", 80, ours));
        corner.until_published("ours", &["10.10.0.5"]);
        node.until_serves("moves.ours:80");
        assert_eq!(node.frontends(), ["moves.ours:80"]);

        // MetalLB's controller is scaled to 0, and Ballast takes over.
        let all = [class, "--default-class", "--take-over"];
        assert_eq!(corner.take_publisher().process.stop(), Some(0));
        corner.publish(&all);
        node.controller.take().expect("it runs").stop();
        node.flags = all[..2].iter().map(|&flag| flag.to_owned()).collect();
        node.start_controller_alone();
        for moved in &MOVED {
            let is_moved = comes_within(Duration::from_secs(120), || {
                is_proxied(&corner.service(moved.name))
            });
            assert!(is_moved, "{}", corner.service(moved.name)["status"]);
            moved.rule(&node.host, "-D", &pods);
            corner.until_told(moved.name, "TakenOver");
        }

        // MetalLB goes, with its pools; then Ballast begins anew.
        let kind = ["delete", "crd", "ipaddresspools.metallb.io"];
        corner
            .yard
            .kubectl(corner.plane, &kind)
            .expect("it is deleted");
        support::pause(Duration::from_secs(3));
        assert_eq!(corner.take_publisher().process.stop(), Some(0));
        corner.publish(&all);
        node.controller.take().expect("it runs").crash();
        node.start_controller_alone();
        corner.apply(&service("late", 83, ""));
        corner.until_published("late", &[&node.address()]);
        published.stayed();
        clients.were_all_answered();
        assert_eq!(corner.published("ours"), ["10.10.0.5"]);
    });
}

/// A Service that has an address of MetalLB's.
#[derive(Clone, Copy)]
struct Moved {
    name: &'static str,
    port: u16,
    /// Those by which it asks MetalLB.
    annotations: &'static str,
    address: &'static str,
    pool: &'static str,
}

/// Smallest first, as MetalLB gives: the addresses that it gave are those which Ballast would give.
const MOVED: [Moved; 5] = [
    Moved {
        name: "web",
        port: 80,
        annotations: "{}",
        address: "10.10.0.2",
        pool: "first",
    },
    Moved {
        name: "asks",
        port: 80,
        annotations: "{metallb.io/loadBalancerIPs: 10.10.0.4}",
        address: "10.10.0.4",
        pool: "first",
    },
    Moved {
        name: "shares",
        port: 80,
        annotations: "{metallb.io/allow-shared-ip: key}",
        address: "10.10.0.3",
        pool: "first",
    },
    Moved {
        name: "too",
        port: 81,
        annotations: "{metallb.io/allow-shared-ip: key}",
        address: "10.10.0.3",
        pool: "first",
    },
    Moved {
        name: "names",
        port: 80,
        annotations: "{metallb.io/address-pool: second}",
        address: "10.10.1.9",
        pool: "second",
    },
];

impl Moved {
    fn place(&self) -> SocketAddr {
        let place = format!("{}:{}", self.address, self.port);
        place.parse().expect("an address")
    }

    /// It, its endpoints, and what the controller of MetalLB writes to it.
    fn make(&self, corner: &Corner<'_>, pods: &Backends) {
        let named = format!("{{name: {}}}", self.name);
        let annotated = format!("{{name: {}, annotations: {}}}", self.name, self.annotations);
        corner.apply(&service(self.name, self.port, "").replace(&named, &annotated));
        corner.apply(&pods.slice(self.name, &[0]));
        let path = path(corner.place("Service", self.name));
        let theirs = json!({
            "metadata": {"annotations": {"metallb.io/ip-allocated-from-pool": self.pool}},
            "status": {"loadBalancer": {"ingress": [{"ip": self.address, "ipMode": "VIP"}]}},
        });
        for path in [path.clone(), path + "/status"] {
            corner.must(corner.plane.admin.ask(Method::PATCH, &path, Some(&theirs)));
        }
    }

    /// Adds or removes kube-proxy's rule for its address.
    fn rule(&self, host: &Host, action: &str, pods: &Backends) {
        let (address, port, pod) = (self.address, self.port, pods.addresses[0]);
        iptables(
            host,
            &format!(
                "{action} PREROUTING -d {address} -p tcp --dport {port} -j DNAT --to-destination {pod}:8080"
            ),
        );
    }
}

fn metallb_pool(corner: &Corner<'_>, name: &str, spec: &Value) {
    let pool = json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": name, "namespace": corner.name}, "spec": spec,
    });
    apply(corner.yard, corner.plane, &pool, &[]).unwrap_or_else(|error| panic!("{error}"));
}

/// Whether the address of a Service is left to who listens at it.
fn is_proxied(service: &Value) -> bool {
    service["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "Proxy"
}

/// Begins to play kube-proxy on a node.
fn be_kube_proxy(host: &Host, pods: &Backends) {
    host.network.set("ipv4/ip_forward", "1");
    // The way for clients of who listens there.
    host.network.ip("route add local 10.10.0.0/16 dev lo");
    iptables(
        host,
        "-A POSTROUTING -m conntrack --ctstate DNAT -j MASQUERADE",
    );
    for moved in &MOVED {
        moved.rule(host, "-A", pods);
    }
}

fn iptables(host: &Host, words: &str) {
    let run = || {
        let mut command = Command::new("iptables");
        let words = words.split_whitespace();
        command.args(["-w", "-t", "nat"]).args(words).output()
    };
    let output = host.network.within(run).expect("the program iptables");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "iptables {words}: {why}");
}

tests![no_address_moves_and_no_client_fails_when_ballast_takes_over_from_metallb];
