//! Services of every kind, from the API server to a client's answer: UDP, IPv6, names, endpoints by their node, and by the ways of
//! kube-proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::backends::{Backends, service, slice_on};
use crate::corner::{Corner, in_a_corner};
use crate::node::{LbNode, ask};
use crate::process::until;

fn datagrams_reach_their_endpoint_and_another_one_when_it_goes() {
    in_a_corner("datagrams", |corner| {
        let pods = Backends::start(corner, 2);
        for address in &pods.addresses {
            pods.echo_at((*address, 8080).into());
        }
        let node = LbNode::start(corner, "a", &[]);
        let udp =
            |text: String| text.replace("targetPort: 8080", "targetPort: 8080, protocol: UDP");
        let slice = |pods: String| pods.replace("protocol: TCP", "protocol: UDP");
        corner.apply(&udp(service("dns", 53, "")));
        corner.apply(&slice(pods.slice("dns", &[0])));
        corner.until_published("dns", &[&node.address()]);
        let client = corner.yard.host();
        // One client, whose endpoint goes: no datagram may be sent to it any more.
        let socket = client.network.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            let patience = Some(Duration::from_millis(500));
            socket.set_read_timeout(patience).expect("a timeout");
            socket
        });
        let says = |pod: usize| {
            socket.send_to(b"?", (node.host.address, 53)).ok();
            let mut heard = [0; 100];
            let heard = socket
                .recv(&mut heard)
                .map(|length| String::from_utf8_lossy(&heard[..length]).into_owned());
            heard.is_ok_and(|heard| heard.starts_with(&format!("{} ", pods.addresses[pod])))
        };
        until("an answer", || says(0));
        corner.apply(&slice(pods.slice("dns", &[1])));
        until("an answer of the other one", || says(1));
        // A knob of datagrams alone.
        corner.annotate("dns", &json!({"ballast.dev/udp-timeout": "35s"}));
        until("it is in the table", || {
            node.table().is_some_and(|table| table.contains("35s"))
        });
        node.until_in_force();
        assert!(says(1) || says(1), "it goes on");
    });
}

fn a_service_of_both_families_is_published_and_served_in_both() {
    in_a_corner("families", |corner| {
        let pods = Backends::start(corner, 1);
        let inner = pods.host.address6();
        pods.answer_at(SocketAddr::new(inner.into(), 8080));
        let node = LbNode::start(corner, "a", &[]);
        let outer = node.host.address6();
        let addresses = [node.address(), outer.to_string()];
        let addresses = addresses.map(|address| json!({"type": "InternalIP", "address": address}));
        let both = json!({"status": {"addresses": addresses}});
        let path = format!("/api/v1/nodes/{}/status", node.name);
        let patched = corner
            .plane
            .admin
            .ask(hyper::Method::PATCH, &path, Some(&both));
        corner.must(patched);
        let families = "  ipFamilyPolicy: RequireDualStack\n  ipFamilies: [IPv6, IPv4]\n";
        corner.apply(&service("both", 80, families));
        let slice = pods.slice("both", &[]);
        let slice = slice.replace("addressType: IPv4", "addressType: IPv6");
        let six = format!("endpoints:\n- {{addresses: [\"{inner}\"]}}");
        corner.apply(&slice.replace("endpoints: []", &six));
        let (four, six) = (node.address(), outer.to_string());
        corner.until_published("both", &[&four, &six]);
        assert_eq!(
            corner.published("both"),
            [six, four],
            "in the Service's order"
        );
        let client = corner.yard.host();
        for address in [IpAddr::V6(outer), node.host.address.into()] {
            let mut heard = Ok(String::new());
            until("an answer", || {
                heard = client.network.within(|| ask((address, 80).into()));
                heard.is_ok()
            });
            let heard = heard.expect("an answer");
            assert!(
                heard.starts_with(&format!("{inner} ")),
                "{address}: {heard}"
            );
        }
    });
}

fn a_strict_local_service_is_published_where_its_endpoints_are() {
    in_a_corner("strict", |corner| {
        let pods = Backends::start(corner, 2);
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        let strict = service("web", 80, "  externalTrafficPolicy: Local\n").replace(
            "{name: web}",
            "{name: web, annotations: {ballast.dev/external-traffic-policy-mode: strict}}",
        );
        corner.apply(&strict);
        let addresses = nodes.each_ref().map(LbNode::address);
        for (pod, node) in [(0, 0), (1, 1)] {
            let endpoint = pods.addresses[pod].to_string();
            corner.apply(&slice_on("web", &[(endpoint.clone(), &nodes[node].name)]));
            corner.until_published("web", &[&addresses[node]]);
            until("an answer", || {
                nodes[node]
                    .ask(80)
                    .is_ok_and(|heard| heard.starts_with(&endpoint))
            });
            until("a closed port", || nodes[1 - node].ask(80).is_err());
        }
    });
}

fn endpoints_are_reached_by_node_ports_or_by_the_cluster_ip_where_that_is_asked_for() {
    in_a_corner("via", |corner| {
        let pods = Backends::start(corner, 1);
        let by_port = LbNode::start(corner, "a", &["--endpoints-via=nodeport"]);
        let by_address = LbNode::start(corner, "b", &["--endpoints-via=clusterip"]);
        let port = "ports: [{port: 80, targetPort: 8080, nodePort: 30080}]";
        corner
            .apply(&service("web", 80, "").replace("ports: [{port: 80, targetPort: 8080}]", port));
        let worker = pods.addresses[0];
        corner.apply(&format!(
            "apiVersion: v1
kind: Node
metadata: {{name: {}-worker}}
status: {{addresses: [{{type: InternalIP, address: {worker}}}], conditions: [{{type: Ready, status: \"True\"}}]}}
",
            corner.name
        ));
        corner.apply(&slice_on(
            "web",
            &[(worker.to_string(), &format!("{}-worker", corner.name))],
        ));
        pods.answer_at((worker, 30080).into());
        // As kube-proxy would: whatever is sent to the Service's own address reaches a pod.
        let found = corner.service("web")["spec"]["clusterIP"].clone();
        let cluster: Ipv4Addr = found
            .as_str()
            .and_then(|text| text.parse().ok())
            .expect("an address");
        pods.host
            .network
            .ip(&format!("address add {cluster}/32 dev eth0"));
        pods.answer_at((cluster, 80).into());
        by_address
            .host
            .network
            .ip("route add 10.96.0.0/16 dev eth0");
        corner.until_published("web", &[&by_port.address(), &by_address.address()]);
        until("an answer by the node's port", || {
            by_port
                .ask(80)
                .is_ok_and(|heard| heard.starts_with(&worker.to_string()))
        });
        until("an answer by the Service's address", || {
            by_address
                .ask(80)
                .is_ok_and(|heard| heard.starts_with(&cluster.to_string()))
        });
    });
}

fn a_service_that_is_a_name_is_served_by_whoever_has_the_name() {
    in_a_corner("names", |corner| {
        let pods = Backends::start(corner, 2);
        let flag = "--tcp-services=names/outside:8080";
        let node = LbNode::prepare(corner, "a", &[flag]);
        let names = NameServer::start(&node, pods.addresses[0]);
        let mut node = node;
        node.start_dataplane();
        node.start_controller();
        corner.apply(
            "apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {type: ExternalName, externalName: db.elsewhere.example, ports: [{port: 8080}]}
",
        );
        let says = |pod: usize| {
            let begin = pods.addresses[pod].to_string();
            node.ask(8080).is_ok_and(|heard| heard.starts_with(&begin))
        };
        until("an answer", || says(0));
        names.now(pods.addresses[1]);
        until("an answer of the other one", || says(1));
        // Whoever is asked and does not answer any more changes nothing.
        drop(names);
        assert!(!crate::process::comes_within(
            Duration::from_secs(3),
            || !says(1)
        ));
        assert!(corner_is_quiet(corner), "a name is nobody's load balancer");
    });
}

/// A Service that is a name has no status of ours.
fn corner_is_quiet(corner: &Corner<'_>) -> bool {
    let found = corner.service("outside");
    found["metadata"]["finalizers"].is_null() && corner.published("outside").is_empty()
}

/// Answers for every name with one address, where the machines of this test ask.
struct NameServer {
    address: Arc<std::sync::Mutex<Ipv4Addr>>,
    ended: Arc<AtomicBool>,
}

impl NameServer {
    /// In the network of a node alone, at the addresses that resolv.conf names.
    fn start(node: &LbNode<'_>, address: Ipv4Addr) -> Self {
        let server = Self {
            address: Arc::new(std::sync::Mutex::new(address)),
            ended: Arc::default(),
        };
        let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let words = text
            .lines()
            .filter_map(|line| line.strip_prefix("nameserver "));
        let mut places: Vec<Ipv4Addr> = words.filter_map(|word| word.trim().parse().ok()).collect();
        if places.is_empty() {
            places.push(Ipv4Addr::LOCALHOST);
        }
        for place in places {
            if !place.is_loopback() {
                node.host
                    .network
                    .ip(&format!("address add {place}/32 dev lo"));
            }
            let (address, ended) = (Arc::clone(&server.address), Arc::clone(&server.ended));
            node.host.network.within(|| {
                let socket = UdpSocket::bind((place, 53)).expect("a socket");
                let patience = Some(Duration::from_millis(100));
                socket.set_read_timeout(patience).expect("a timeout");
                thread::spawn(move || {
                    let mut bytes = [0; 512];
                    while !ended.load(Ordering::Relaxed) {
                        if let Ok((length, from)) = socket.recv_from(&mut bytes) {
                            let address = *address.lock().expect("a lock");
                            let answer = answer(&bytes[..length], address);
                            socket.send_to(&answer, from).ok();
                        }
                    }
                });
            });
        }
        server
    }

    /// From now on it is that one.
    fn now(&self, address: Ipv4Addr) {
        *self.address.lock().expect("a lock") = address;
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// A question, answered: an A record that holds for a second; nothing of any other kind.
fn answer(asked: &[u8], address: Ipv4Addr) -> Vec<u8> {
    // The head is 12 bytes; the question's name ends with a zero, and type and class follow.
    let end = asked
        .iter()
        .skip(12)
        .position(|byte| *byte == 0)
        .unwrap_or(0)
        + 12
        + 5;
    let question = asked.get(12..end).unwrap_or_default();
    let is_a = question.len() > 4 && question[question.len() - 4..question.len() - 2] == [0, 1];
    let mut answer = asked[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(question);
    if is_a {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}

tests![
    datagrams_reach_their_endpoint_and_another_one_when_it_goes,
    a_service_of_both_families_is_published_and_served_in_both,
    a_strict_local_service_is_published_where_its_endpoints_are,
    endpoints_are_reached_by_node_ports_or_by_the_cluster_ip_where_that_is_asked_for,
    a_service_that_is_a_name_is_served_by_whoever_has_the_name,
];
