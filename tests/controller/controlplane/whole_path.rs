//! The whole path: what users of other systems bring, applied with kubectl, served by two nodes as rc.yaml runs them, and looked
//! at by a client outside and by the pods that hear it.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Place;
use crate::corner::{Corner, as_installed};
use crate::manifests::{be_named, brought_by};
use crate::node::LbNode;
use crate::plane::Host;
use crate::process::until;
use support::papers::Papers;

fn what_users_of_openstack_bring() {
    as_installed(|corner| {
        let path = Path::lay(corner, &[]);
        let (client, nodes) = (path.client.address, path.addresses());
        path.bring("openstack");
        for name in [
            "echo",
            "tuned",
            "filtered",
            "forwarded",
            "internal",
            "service-1",
        ] {
            path.until_published(
                "os",
                name,
                &nodes.map(|node| json!({"ip": node, "ipMode": "Proxy"})),
            );
        }
        for node in nodes {
            for port in [80, 8003, 8004, 8006, 8007, 8008, 8009] {
                path.until_heard(node, port, "/a", |heard| {
                    heard == "GET /a HTTP/1.1\r\nHost: it\r\nConnection: close"
                });
            }
            for port in [8002, 8443] {
                path.until_heard(node, port, "/a", |heard| {
                    let header = heard.split_once("\r\n").map(|(header, _)| header);
                    let header = header.and_then(|header| header.strip_prefix("PROXY TCP4 "));
                    let words: Vec<&str> = header.unwrap_or_default().split(' ').collect();
                    words.len() == 4
                        && words[..2] == [client.to_string(), node.to_string()]
                        && words[3] == port.to_string()
                        && heard.contains("\r\nGET /a HTTP/1.1\r\n")
                });
            }
            let forwarded = format!("\r\nx-forwarded-for: {client}\r\n");
            path.until_heard(node, 8005, "/a", |heard| {
                format!("{}\r\n", heard.to_lowercase()).contains(&forwarded)
            });
            // This client is in none of its ranges.
            path.is_refused(node, 8001);
            path.is_refused(node, 8010);
            path.is_refused(node, 8011);
        }
        path.until_published("os", "ingress", &[json!({"hostname": "edge.example.com"})]);
        path.until_published("os", "wanted", &[]);
        path.until_told("os", "wanted", "AllocationFailed");
        // The pod's node is no longer selected.
        path.kubectl(&["label", "node", "worker", "env-"]);
        for node in nodes {
            until("nobody serves the Service that selects nodes", || {
                path.ask(node, 8004, "/a").is_err()
            });
        }
        // The certificate comes later.
        path.until_told("os", "tls", "SecretUnreadable");
        let papers = Papers::new();
        papers.issue("shop", &["shop.example.com"]);
        corner.let_nodes_read_secrets("os");
        let read = |file: &str| fs::read_to_string(papers.path(file)).expect("a file");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "shop-cert", "namespace": "os"},
            "stringData": {"tls.crt": read("shop.crt"), "tls.key": read("shop.key")},
        });
        corner.must(corner.plane.admin.apply(&secret, "os"));
        for node in nodes {
            let forwarded = format!("\r\nx-forwarded-for: {client}\r\n");
            until("TLS is ended, and the client is named", || {
                let heard = path.curl(&papers, node, "https://shop.example.com:8011/a");
                let heard = heard.to_lowercase();
                heard.contains("get /a http/1.1\r\n") && (heard + "\r\n").contains(&forwarded)
            });
        }
    });
}

fn what_users_of_exoscale_metakube_antrea_and_metallb_bring() {
    as_installed(|corner| {
        let path = Path::lay(corner, &[]);
        let (client, nodes) = (path.client.address, path.addresses());
        let plain = |heard: &str| heard.starts_with("GET /a HTTP/1.1\r\n");

        let exoscale = path.bring("exoscale");
        for node in nodes {
            // 8000 has a health check by HTTP.
            for port in [80, 8000, 8085, 9080] {
                path.until_heard(node, port, "/a", plain);
            }
            for port in [9080, 9081] {
                until(&format!("an echo of UDP at {node}:{port}"), || {
                    path.client
                        .network
                        .within(|| echo((node, port).into()))
                        .is_ok()
                });
            }
        }
        path.until_told("exo", "udp-local", "ExternalTrafficPolicyLocal");
        path.take_back(&exoscale);

        let metakube = path.bring("metakube");
        let names_client = |heard: &str| heard.starts_with(&format!("PROXY TCP4 {client} "));
        for node in nodes {
            path.until_heard(node, 80, "/a", names_client);
        }
        // Live, both ways.
        for (value, hears) in [
            ("false", &plain as &dyn Fn(&str) -> bool),
            ("true", &names_client),
        ] {
            let annotation = format!("loadbalancer.openstack.org/proxy-protocol={value}");
            path.kubectl(&[
                "-n",
                "mk",
                "annotate",
                "--overwrite",
                "service/ingress-controller",
                &annotation,
            ]);
            for node in nodes {
                path.until_heard(node, 80, "/a", hears);
            }
        }
        path.take_back(&metakube);

        let antrea = path.bring("antrea");
        for node in nodes {
            path.until_heard(node, 80, "/a", plain);
        }
        for name in ["shared-1", "shared-2"] {
            path.until_told("antrea", name, "AllocationFailed");
            path.until_published("antrea", name, &[]);
        }
        for (node, port) in [(nodes[0], 8101), (nodes[1], 8102)] {
            path.is_refused(node, port);
        }
        path.take_back(&antrea);

        path.bring("metallb");
        path.until_told("mlb", "pinned", "AllocationFailed");
        path.until_published("mlb", "pinned", &[]);
        path.is_refused(nodes[0], 8201);
    });
}

fn what_users_of_service_loadbalancer_bring() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.example.com"]);
    let read = |file: &str| fs::read_to_string(papers.path(file)).expect("a file");
    papers.write(
        "both.pem",
        (read("shop.crt") + &read("shop.key")).as_bytes(),
    );
    as_installed(|corner| {
        let certificate = format!("--ssl-cert={}", papers.named("both.pem"));
        let path = Path::lay(
            corner,
            &["--tcp-services=mysql:3306,nginxsvc:443@8080", &certificate],
        );
        path.bring("service-loadbalancer");
        for node in path.addresses() {
            for (port, asked, heard) in [
                (80, "/nginxsvc/a?b", "GET /a?b HTTP/1.1\r\n"),
                (80, "/kube-ui/a", "GET /a HTTP/1.1\r\n"),
                (80, "/kube-system/kube-ui/a", "GET /a HTTP/1.1\r\n"),
                (8080, "/a", "GET /a HTTP/1.1\r\n"),
                (3306, "/a", "GET /a HTTP/1.1\r\n"),
            ] {
                path.until_heard(node, port, asked, |found| found.starts_with(heard));
            }
            until("the shop over TLS", || {
                let answer = path.curl(&papers, node, "--include https://shop.example.com/shop/a");
                let answer = answer.to_lowercase();
                answer.contains("get /shop/a http/1.1\r\n")
                    && answer.contains("\r\nset-cookie: serverid=")
                    && answer.contains("\r\nstrict-transport-security: max-age=15768000\r\n")
            });
        }
    });
}

/// From a client, over two nodes, to a pod. The pod answers at every port that these manifests name with what it hears.
struct Path<'a> {
    corner: &'a Corner<'a>,
    client: Host,
    nodes: [LbNode<'a>; 2],
    pod: Host,
}

impl<'a> Path<'a> {
    /// The nodes have these flags beside those of rc.yaml.
    fn lay(corner: &'a Corner<'_>, flags: &[&str]) -> Self {
        corner.apply(WORKER);
        let pod = corner.yard.host();
        pod.network.within(|| {
            for port in [80, 443, 3306, 8080, 9376] {
                let listener = TcpListener::bind((pod.address, port)).expect("a listener");
                thread::spawn(move || {
                    for client in listener.incoming().flatten() {
                        thread::spawn(move || say_what_is_heard(client).ok());
                    }
                });
            }
            let socket = UdpSocket::bind((pod.address, 8080)).expect("a socket");
            thread::spawn(move || {
                let mut bytes = [0; 1024];
                while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                    socket.send_to(&bytes[..length], from).ok();
                }
            });
        });
        Self {
            corner,
            client: corner.yard.host(),
            nodes: ["a", "b"].map(|name| LbNode::start(corner, name, flags)),
            pod,
        }
    }

    fn addresses(&self) -> [Ipv4Addr; 2] {
        self.nodes.each_ref().map(|node| node.host.address)
    }

    /// Applies what users of that system bring, and for each of its Services a slice with the pod.
    fn bring(&self, system: &str) -> String {
        let mut documents = brought_by(system);
        be_named(self.corner.plane, &documents);
        let services = documents
            .iter()
            .filter(|document| document["kind"] == "Service");
        let slices: Vec<Value> = services.map(|service| self.slice(service)).collect();
        documents.extend(slices);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
        let file = self
            .corner
            .folder
            .path()
            .join(system)
            .with_extension("json");
        fs::write(&file, list.to_string()).expect("a file");
        let file = file.display().to_string();
        self.kubectl(&["apply", "-f", &file]);
        file
    }

    /// Deletes what was brought, and waits until it is gone.
    fn take_back(&self, file: &str) {
        self.kubectl(&["delete", "-f", file, "--timeout=60s"]);
    }

    /// What an endpoint controller makes of a Service whose pods name their port 8080 `http`.
    fn slice(&self, service: &Value) -> Value {
        let metadata = &service["metadata"];
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let ports = ports.map(|port| {
            let target = match &port["targetPort"] {
                Value::String(_) => json!(8080),
                Value::Null => port["port"].clone(),
                number => number.clone(),
            };
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            let name = port["name"].as_str().unwrap_or_default();
            json!({"name": name, "port": target, "protocol": protocol})
        });
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": metadata["name"], "namespace": metadata["namespace"],
                "labels": {"kubernetes.io/service-name": metadata["name"]},
            },
            "ports": ports.collect::<Vec<Value>>(),
            "endpoints": [{"addresses": [self.pod.address], "nodeName": "worker"}],
        })
    }

    fn kubectl(&self, words: &[&str]) -> String {
        let said = self.corner.yard.kubectl(self.corner.plane, words);
        said.unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// Waits until the pod hears such a request, which is made at this port of this node.
    fn until_heard(&self, node: Ipv4Addr, port: u16, path: &str, is_it: impl Fn(&str) -> bool) {
        let mut last = Ok(String::new());
        let heard = crate::process::comes_within(crate::process::PATIENCE, || {
            last = self.ask(node, port, path);
            last.as_ref().is_ok_and(|heard| is_it(heard))
        });
        assert!(heard, "{node}:{port}{path}: {last:?}");
    }

    /// What the pod hears of the client's request.
    fn ask(&self, node: Ipv4Addr, port: u16, path: &str) -> io::Result<String> {
        let ask = || request((node, port).into(), path);
        self.client.network.within(ask)
    }

    /// That this client is not served there.
    fn is_refused(&self, node: Ipv4Addr, port: u16) {
        let answer = self.ask(node, port, "/a");
        assert!(answer.is_err(), "{node}:{port}: {answer:?}");
    }

    /// What curl prints, for whom the shop is on that node.
    fn curl(&self, papers: &Papers, node: Ipv4Addr, words: &str) -> String {
        let output = self.client.network.within(|| {
            Command::new("curl")
                .args(["--silent", "--noproxy", "*", "--max-time", "10", "--cacert"])
                .arg(papers.path("ca.pem"))
                .args(["--connect-to", &format!("shop.example.com::{node}:")])
                .args(words.split(' '))
                .output()
                .expect("the program curl")
        });
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn until_published(&self, namespace: &str, name: &str, wanted: &[Value]) {
        let mut found = Value::Null;
        until(
            &format!("{namespace}/{name} is published at {wanted:?}"),
            || {
                let place = Place {
                    kind: "Service",
                    namespace,
                    name,
                };
                found = self.corner.plane.admin.read(place).unwrap_or_default();
                let ingress = found["status"]["loadBalancer"]["ingress"].as_array();
                ingress.map(Vec::as_slice).unwrap_or_default() == wanted
            },
        );
    }

    fn until_told(&self, namespace: &str, service: &str, reason: &str) {
        until(&format!("{namespace}/{service} is told {reason}"), || {
            let events = self.corner.plane.admin.list("Event", namespace);
            events.iter().any(|event| {
                event["involvedObject"]["name"] == service && event["reason"] == reason
            })
        });
    }
}

/// Answers a request with a response whose body is all that was heard of it.
fn say_what_is_heard(mut client: TcpStream) -> io::Result<()> {
    let mut heard = Vec::new();
    let mut bytes = [0; 4096];
    while !heard.ends_with(b"\r\n\r\n") {
        match client.read(&mut bytes)? {
            0 => return Ok(()),
            length => heard.extend_from_slice(&bytes[..length]),
        }
    }
    let body = heard.strip_suffix(b"\r\n\r\n").unwrap_or_default();
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    client.write_all(&[head.as_bytes(), body].concat())
}

/// The body of the answer.
fn request(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        Some((head, _)) => Err(io::Error::other(head.to_owned())),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// A datagram there and back.
fn echo(address: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.send_to(b"hello", address)?;
    let mut bytes = [0; 64];
    let (length, from) = socket.recv_from(&mut bytes)?;
    if &bytes[..length] == b"hello" && from == address {
        Ok(())
    } else {
        Err(io::Error::other("something else"))
    }
}

/// The node that the pod is on.
const WORKER: &str = "apiVersion: v1
kind: Node
metadata: {name: worker, labels: {env: production, region: default}}
";

tests![
    what_users_of_openstack_bring,
    what_users_of_exoscale_metakube_antrea_and_metallb_bring,
    what_users_of_service_loadbalancer_bring,
];
