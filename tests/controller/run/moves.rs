//! A host that serves from a folder what Antrea served in a cluster: every Service keeps the address that Antrea gave it.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::edge::at_the_edge;
use super::host::{Answers, Host, to_its_end, until};
use super::slice;

#[test]
fn services_of_antrea_keep_their_addresses_in_a_folder() {
    at_the_edge(|mut host| {
        // Leads the addresses here, as a router would.
        let route = ["route", "add", "local", "10.10.0.0/24", "dev", "lo"];
        let status = Command::new("ip").args(route).status();
        assert!(status.expect("the program ip").success());
        let pods = ["web", "mail", "new"].map(Answers::start);
        let [web, mail, new] = pods.each_ref().map(|pod| pod.port);
        host.manifest("pool.yaml", POOL);
        // Not the addresses that are given first.
        host.manifest("web.yaml", &of_antrea("web", web, "10.10.0.5"));
        host.manifest("mail.yaml", &of_antrea("mail", mail, "10.10.0.3"));
        plans(&host, &["10.10.0.5:80", "10.10.0.3:80"]);

        host.start();
        let places = [("10.10.0.5:80", "web"), ("10.10.0.3:80", "mail")];
        for (address, word) in places {
            until_says(&host, address, word);
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients = places.map(|(address, word)| {
                let (host, over) = (&host, &over);
                scope.spawn(move || come(host, address, word, over))
            });
            let ends = Over(&over);
            changes(&host, new);
            drop(ends);
            for client in clients {
                let (asked, failed) = client.join().expect("a client");
                assert_eq!(failed, 0, "of {asked}: {}", host.logs());
            }
        });

        // A process that begins anew knows no more than the folder.
        let controller = host.controller.take().expect("it runs");
        controller.kill();
        host.start_controller();
        host.manifest("web.yaml", &of_antrea("web", mail, "10.10.0.5"));
        until_says(&host, "10.10.0.5:80", "mail");
        until_says(&host, "10.10.0.3:80", "mail");
        until_says(&host, "10.10.0.2:80", "new");
    });
}

/// One Service more, whose name comes first; then a smaller pool, and another one.
fn changes(host: &Host, port: u16) {
    host.manifest("a-new.yaml", &of_antrea("a-new", port, ""));
    until_says(host, "10.10.0.2:80", "new");
    host.manifest("pool.yaml", &POOL.replace("10.10.0.10", "10.10.0.5"));
    host.manifest("other.yaml", &of_antrea("other", port, ""));
    until_says(host, "10.10.0.4:80", "new");
    plans(host, &["10.10.0.5:80", "10.10.0.3:80", "10.10.0.2:80"]);
}

/// That `plan` gives these.
fn plans(host: &Host, addresses: &[&str]) {
    let folder = host.manifests.path().display().to_string();
    let (code, plan, said) = to_its_end(&["plan", "--manifests", &folder]);
    assert_eq!(code, Some(0), "{plan}{said}");
    for address in addresses {
        assert!(plan.contains(address), "{address}: {plan}{said}");
    }
}

/// Asks there until it is over, and at least 50 times: how often, and how often without this answer.
fn come(host: &Host, address: &str, word: &str, over: &AtomicBool) -> (u32, u32) {
    let address: SocketAddr = address.parse().expect("an address");
    let (mut asked, mut failed) = (0, 0);
    while asked < 50 || !over.load(Ordering::Relaxed) {
        asked += 1;
        failed += u32::from(host.ask_at(address).ok().as_deref() != Some(word));
        support::pause(Duration::from_millis(10));
    }
    (asked, failed)
}

/// The end of clients, also where a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn until_says(host: &Host, address: &str, word: &str) {
    let place: SocketAddr = address.parse().expect("an address");
    until(&format!("{word} at {address}\n{}", host.logs()), || {
        host.ask_at(place).is_ok_and(|heard| heard == word)
    });
}

/// A Service and its endpoints, as `kubectl get -o yaml` shows them: with the address that Antrea gave, if it gave one.
fn of_antrea(name: &str, port: u16, given: &str) -> String {
    let ingress = match given {
        "" => String::new(),
        given => format!("ingress: [{{ip: {given}}}]"),
    };
    format!(
        "apiVersion: v1
kind: Service
metadata:
  name: {name}
  annotations: {{service.antrea.io/external-ip-pool: edge, ballast.dev/take-over: \"true\"}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
status: {{loadBalancer: {{{ingress}}}}}
---
{}",
        slice(name, port)
    )
}

const POOL: &str = "apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: edge}
spec: {ipRanges: [{start: 10.10.0.2, end: 10.10.0.10}], nodeSelector: {}}
";
