//! HTTP and TLS from a real API server: names on the shared port, a LoadBalancer on port 80, and a Secret that changes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::backends::{service, slice};
use crate::corner::{Corner, as_installed, in_a_corner};
use crate::node::LbNode;
use crate::plane::Host;
use crate::process::until;
use support::papers::Papers;

fn names_are_served_as_installed_until_a_load_balancer_takes_port_80() {
    as_installed(|corner| {
        let pod = Pod::start(corner, "named");
        let balanced = Pod::start(corner, "balanced");
        let node = LbNode::start(corner, "a", &[]);
        // The newest Service is told for all; default/kubernetes is another one, and ages are whole seconds.
        support::pause(A_SECOND);
        corner.apply(&cluster_ip("web"));
        corner.apply(&pod.slice("web"));
        let name = format!("http://{}/web/a?b", node.address());
        let is_named = || curl(&node, &name) == "named hears GET /a?b HTTP/1.1";
        until("the name", is_named);

        corner.apply(&service("edge", 80, ""));
        corner.apply(&balanced.slice("edge"));
        corner.until_published("edge", &[&node.address()]);
        until("the LoadBalancer", || {
            curl(&node, &name) == "balanced hears GET /web/a?b HTTP/1.1"
        });
        corner.until_told("web", "RoutesWithdrawn");
        let controller = node.controller.as_ref().expect("it runs");
        until("a line in the log", || {
            controller.log().contains("RoutesWithdrawn")
        });
        // A younger Service that asks for a route of that port does not get it.
        support::pause(A_SECOND);
        corner.apply(&cluster_ip("late"));
        corner.annotate("late", &json!({"ballast.dev/host": "late.example.com"}));
        let told = corner.until_told("late", "AllocationFailed");
        assert!(told.message.contains("default/edge"), "{}", told.message);
        assert_eq!(corner.published("edge"), [node.address()]);

        corner.delete("Service", "edge");
        until("the name again", is_named);
    });
}

fn a_secret_that_changes_vanishes_or_is_garbage_closes_its_own_port_alone() {
    in_a_corner("papers", |corner| {
        let papers = Papers::new();
        papers.issue("one", &["one.example.com"]);
        papers.issue("more", &["one.example.com", "more.example.com"]);
        papers.issue("two", &["two.example.com"]);
        let pod = Pod::start(corner, "pod");
        let node = LbNode::start(corner, "a", &[]);
        corner.let_nodes_read_secrets(corner.name);
        for (name, key) in [
            ("one", "ballast.dev/tls-secret"),
            ("two", "ballast.dev/tls-secret"),
        ] {
            corner.apply(&cluster_ip(name));
            corner.apply(&pod.slice(name));
            put_secret(corner, name, &papers, name, name);
            let host = format!("{name}.example.com");
            corner.annotate(name, &json!({key: name, "ballast.dev/host": host}));
        }
        corner.apply(&service("own", 8443, ""));
        corner.apply(&pod.slice("own"));
        let own = json!({"loadbalancer.openstack.org/default-tls-container-ref": "one"});
        corner.annotate("own", &own);
        let asks = |host: &str, port: u16| {
            let resolve = format!("{host}:{port}:{}", node.address());
            let authority = papers.named("ca.pem");
            let url = format!("https://{host}:{port}/a");
            let words = format!("--cacert {authority} --resolve {resolve} {url}");
            curl(&node, &words) == "pod hears GET /a HTTP/1.1"
        };
        until("one", || asks("one.example.com", 443));
        until("two", || asks("two.example.com", 443));
        until("its own port", || asks("one.example.com", 8443));

        put_secret(corner, "one", &papers, "more", "more");
        until("the newer one", || asks("more.example.com", 8443));
        assert!(asks("one.example.com", 443));

        // Of another key.
        put_secret(corner, "one", &papers, "more", "two");
        until("a closed port", || node.ask(8443).is_err());
        corner.until_told("own", "SecretUnreadable");
        assert!(asks("two.example.com", 443));
        assert!(!asks("one.example.com", 443));

        put_secret(corner, "one", &papers, "one", "one");
        until("it is back", || asks("one.example.com", 8443));
        until("it is back for the other", || asks("one.example.com", 443));

        corner.delete("Secret", "one");
        until("a closed port", || node.ask(8443).is_err());
        until("a name that is gone", || !asks("one.example.com", 443));
        assert!(asks("two.example.com", 443));
    });
}

fn put_secret(corner: &Corner<'_>, name: &str, papers: &Papers, certificate: &str, key: &str) {
    let read = |file: String| fs::read_to_string(papers.path(&file)).expect("a file");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": corner.name},
        "stringData": {"tls.crt": read(format!("{certificate}.crt")), "tls.key": read(format!("{key}.key"))},
    });
    corner.must(corner.plane.admin.apply(&secret, corner.name));
}

fn cluster_ip(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80, targetPort: 8080}}]}}\n"
    )
}

/// The body of what curl is answered on that node's own machine, asked with these words.
fn curl(node: &LbNode<'_>, words: &str) -> String {
    let output = node.host.network.within(|| {
        Command::new("curl")
            .args(["--silent", "--noproxy", "*", "--max-time", "10"])
            .args(words.split(' '))
            .output()
            .expect("the program curl")
    });
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A server of HTTP on a machine of its own, at port 8080, that says who it is and what it was asked.
struct Pod {
    host: Host,
}

impl Pod {
    fn start(corner: &Corner<'_>, name: &'static str) -> Self {
        let host = corner.yard.host();
        let address = SocketAddr::from((host.address, 8080));
        host.network.within(|| {
            let listener = TcpListener::bind(address).expect("a listener");
            thread::spawn(move || {
                for mut client in listener.incoming().flatten() {
                    let mut lines = BufReader::new(&client).lines().map_while(Result::ok);
                    let Some(asked) = lines.next() else { continue };
                    // To the end of the head.
                    lines.find(String::is_empty);
                    let body = format!("{name} hears {asked}");
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                        body.len()
                    );
                    client.write_all((head + &body).as_bytes()).ok();
                }
            });
        });
        Self { host }
    }

    fn slice(&self, service: &str) -> String {
        slice(service, &[(self.host.address.to_string(), true)])
    }
}

/// And a little more.
const A_SECOND: Duration = Duration::from_millis(1100);

tests![
    names_are_served_as_installed_until_a_load_balancer_takes_port_80,
    a_secret_that_changes_vanishes_or_is_garbage_closes_its_own_port_alone,
];
