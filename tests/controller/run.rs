//! `ballast-controller run` from a folder of manifests, with a real `ballast` behind it: what a client meets.

mod announce;
mod edge;
mod host;
mod keys;
mod log;
mod moves;
mod names;
mod secure;
mod usage;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, symlink};

use std::thread;

use host::{Answers, Host, free_port, get, signal, until};
use rustix::process::Signal;

#[test]
fn a_client_reaches_the_endpoint_and_another_one_after_the_manifest_changed() {
    let (one, two) = (Answers::start("one"), Answers::start("two"));
    let mut host = Host::new();
    let port = free_port();
    host.manifest("web.yaml", &balancer("web", port));
    host.manifest("slice.yaml", &slice("web", one.port));
    host.start();
    host.until_says(port, "one");

    host.manifest("slice.yaml", &slice("web", two.port));
    host.until_says(port, "two");

    // A mistake is said, and spoils nothing else.
    host.manifest("broken.yaml", "kind: Service\nmetadata: {name: [\n");
    host.until_logged("broken.yaml");
    host.until_says(port, "two");
    host.manifest("slice.yaml", &slice("web", one.port));
    host.until_says(port, "one");

    host.remove("web.yaml");
    until("a closed port", || host.ask(port).is_err());
}

#[test]
fn services_of_a_folder_have_one_port_at_two_addresses_of_antreas_pool() {
    let answers = [Answers::start("one"), Answers::start("two")];
    let mut host = Host::new();
    let port = free_port();
    host.manifest(
        "pool.yaml",
        "apiVersion: crd.antrea.io/v1beta1\nkind: ExternalIPPool\nmetadata: {name: edge}\nspec: {ipRanges: [{cidr: 127.88.0.0/29}]}\n",
    );
    for (name, answers) in ["a", "b"].into_iter().zip(&answers) {
        let of_pool = "namespace: default, annotations: {service.antrea.io/external-ip-pool: edge}";
        let service = balancer(name, port).replace("namespace: default", of_pool);
        assert!(service.contains(of_pool), "{service}");
        host.manifest(&format!("{name}.yaml"), &service);
        host.manifest(&format!("{name}-slice.yaml"), &slice(name, answers.port));
    }
    host.start();
    for (address, word) in [([127, 88, 0, 1], "one"), ([127, 88, 0, 2], "two")] {
        until(&format!("{word}\n{}", host.logs()), || {
            let heard = host.ask_at((address, port).into());
            heard.is_ok_and(|heard| heard == word)
        });
    }
    assert!(host.ask(port).is_err(), "no other address");
}

#[test]
fn a_controller_that_dies_and_begins_anew_changes_nothing() {
    let one = Answers::start("one");
    let mut host = Host::new();
    let port = free_port();
    host.manifest("web.yaml", &balancer("web", port));
    host.manifest("slice.yaml", &slice("web", one.port));
    host.start();
    host.until_says(port, "one");
    let table = host.table.path().join("table.json");
    let inode = || fs::metadata(&table).map(|entry| entry.ino());
    let before = inode().unwrap();

    host.controller.take().unwrap().kill();
    host.until_says(port, "one");
    host.start_controller();
    host.until_answers("/readyz", 200);
    // It has decided, and whatever it wants to write is written.
    let two = Answers::start("two");
    host.manifest("other.yaml", "kind: Service\nmetadata: {name: other}\n");
    host.until_metric("decisions_total", |decisions| decisions >= 2);
    assert_eq!(inode().unwrap(), before);
    host.until_metric("tables_written_total", |tables| tables == 0);

    host.manifest("slice.yaml", &slice("web", two.port));
    host.until_says(port, "two");
    assert_ne!(inode().unwrap(), before);
}

#[test]
fn an_ordered_end_leaves_everything_served() {
    let one = Answers::start("one");
    let mut host = Host::new();
    let port = free_port();
    host.manifest("web.yaml", &balancer("web", port));
    host.manifest("slice.yaml", &slice("web", one.port));
    host.start();
    host.until_says(port, "one");
    let mut controller = host.controller.take().unwrap();
    signal(&controller, Signal::TERM);
    assert_eq!(controller.ends(), Some(0));
    assert_eq!(host.ask(port).unwrap(), "one");
}

#[test]
fn the_file_of_cfg_is_followed_and_a_bad_one_keeps_the_last() {
    let one = Answers::start("one");
    let mut host = Host::new();
    let (first, second) = (free_port(), free_port());
    host.manifest("web.yaml", &cluster_ip("web", &[first, second]));
    host.manifest(
        "slice.yaml",
        &slice_of_ports("web", &[("a", one.port), ("b", one.port)]),
    );
    // As a ConfigMap is mounted: the file is a link through `..data`, which is swapped.
    let folder = host.folder.path().join("config");
    let put = |version: &str, text: &str| {
        fs::create_dir_all(folder.join(version)).unwrap();
        fs::write(folder.join(version).join("loadbalancer.json"), text).unwrap();
        symlink(version, folder.join("..draft")).unwrap();
        fs::rename(folder.join("..draft"), folder.join("..data")).unwrap();
    };
    let cfg = |port: u16| format!(r#"{{"tcpServices": {{"web": {port}}}}}"#);
    put("v1", &cfg(first));
    symlink("..data/loadbalancer.json", folder.join("loadbalancer.json")).unwrap();
    let path = folder.join("loadbalancer.json").display().to_string();
    host.flags(&["--cfg", &path]);
    host.start();
    host.until_says(first, "one");

    put("v2", &cfg(second));
    host.until_says(second, "one");
    until("a closed port", || host.ask(first).is_err());

    put("v3", "{");
    host.until_logged("--cfg: ");
    host.until_logged("stays");
    assert_eq!(host.ask(second).unwrap(), "one");

    put("v4", &cfg(first));
    host.until_says(first, "one");
}

#[test]
fn dry_prints_once_and_changes_nothing() {
    let host = Host::new();
    host.manifest("web.yaml", &balancer("web", 80));
    let folder = host.manifests.path().display().to_string();
    for flags in [
        &["run", "--manifests", &folder, "--dry"][..],
        &[
            "run",
            "--manifests",
            &folder,
            "--dry=true",
            "--table-dir",
            "/nowhere/at/all",
        ],
    ] {
        let (code, out, err) = host::to_its_end(flags);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("default/web served"), "{out}");
        assert!(out.contains("# The table of this node"), "{out}");
    }
    assert_eq!(fs::read_dir(host.table.path()).unwrap().count(), 0);
}

#[test]
fn a_node_that_is_no_load_balancer_closes_what_it_served() {
    let one = Answers::start("one");
    let mut host = Host::new();
    let port = free_port();
    let node = |labels: &str| {
        format!(
            "kind: Node\nmetadata: {{name: here, labels: {labels}}}\nstatus: {{addresses: [{{type: InternalIP, address: 127.0.0.1}}]}}\n"
        )
    };
    host.manifest("node.yaml", &node("{role: loadbalancer}"));
    host.manifest("web.yaml", &balancer("web", port));
    host.manifest("slice.yaml", &slice("web", one.port));
    host.flags(&["--node-name", "here"]);
    host.start();
    host.until_says(port, "one");
    host.manifest("node.yaml", &node("{role: worker}"));
    until("a closed port", || host.ask(port).is_err());
    // The data plane is well, and says so.
    until("a ready data plane", || {
        get(host.stats, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    host.manifest("node.yaml", &node("{role: loadbalancer}"));
    host.until_says(port, "one");
}

#[test]
fn it_answers_for_itself() {
    let mut host = Host::new();
    host.start_controller();
    host.until_answers("/healthz", 200);
    host.until_answers("/readyz", 200);
    host.until_answers("/nothing", 404);
    host.manifest("web.yaml", &balancer("web", 80));
    host.until_metric("services{verdict=\"served\"}", |services| services == 1);
}

#[test]
fn an_admin_port_that_another_process_has_ends_nothing_and_is_taken_when_it_is_free() {
    let one = Answers::start("one");
    let mut host = Host::new();
    let port = free_port();
    host.manifest("web.yaml", &balancer("web", port));
    host.manifest("slice.yaml", &slice("web", one.port));
    let taken = TcpListener::bind(host.admin).unwrap();
    host.start();
    host.until_says(port, "one");
    host.until_logged("--admin: cannot listen there");
    drop(taken);
    host.until_answers("/healthz", 200);
}

#[test]
fn a_probe_hears_the_controller_and_nobody_else() {
    let mut host = Host::new();
    let folder = host.table.path().display().to_string();
    let probe = |question: &str| host::to_its_end(&["probe", "--table-dir", &folder, question]);
    let (code, _, said) = probe("live");
    assert_eq!(code, Some(1), "there is none: {said}");
    host.start_controller();
    until("an answer", || probe("live").0 == Some(0));
    until("a decision", || probe("ready").0 == Some(0));
    host.controller.take().unwrap().kill();
    // Another process takes the controller's port, and answers 200 there.
    let other = TcpListener::bind(host.admin).unwrap();
    thread::spawn(move || {
        for stream in other.incoming() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            stream.and_then(|mut stream| stream.write_all(answer)).ok();
        }
    });
    let (code, _, said) = probe("live");
    assert_eq!(code, Some(1), "{said}");
    // And the next one takes over its socket.
    host.start_controller();
    until("an answer", || probe("live").0 == Some(0));
}

/// A Service of type LoadBalancer with one port.
fn balancer(name: &str, port: u16) -> String {
    format!(
        "kind: Service\nmetadata: {{name: {name}, namespace: default}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}\n"
    )
}

/// A Service that only a flag gives ports of its own.
fn cluster_ip(name: &str, ports: &[u16; 2]) -> String {
    let [first, second] = ports;
    format!(
        "kind: Service\nmetadata: {{name: {name}, namespace: default}}\nspec: {{ports: [{{name: a, port: {first}}}, {{name: b, port: {second}}}]}}\n"
    )
}

fn slice(service: &str, port: u16) -> String {
    slice_of_ports(service, &[("", port)])
}

fn slice_of_ports(service: &str, ports: &[(&str, u16)]) -> String {
    let ports: Vec<String> = ports
        .iter()
        .map(|(name, port)| format!("{{name: \"{name}\", port: {port}}}"))
        .collect();
    format!(
        "kind: EndpointSlice\nmetadata: {{name: {service}-1, namespace: default, labels: {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nports: [{}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n",
        ports.join(", ")
    )
}
