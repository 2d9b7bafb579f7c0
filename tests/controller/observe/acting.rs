//! What `ballast-controller run` and `publish` write to API servers that are not as they should be.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::api::{Api, Habits, PATIENCE};
use support::program::program;

#[tokio::test]
async fn a_server_that_drops_modes_is_published_to_once_and_its_upgrade_is_noticed_by_the_next_leader()
 {
    let old = Habits {
        drops_modes: true,
        ..Habits::default()
    };
    let api = Api::start().await;
    api.behave(old);
    let node = Node::start(&api, 12).await;
    api.until("every Service is published", |api| {
        published(api).len() == 12
    })
    .await;
    // What the server makes of a write is not written again.
    quiet(&api).await;
    let writes = |api: &Api| {
        let requests = api.requests();
        let statuses = requests
            .iter()
            .filter(|path| path.starts_with("PATCH") && path.contains("/status"));
        statuses.count()
    };
    assert!(writes(&api) <= 12 * 4, "{} writes", writes(&api));

    api.behave(Habits::default());
    drop(node);
    let mut node = Node::of(&api).await;
    api.until("modes", |api| {
        let published = published(api);
        published.len() == 12 && published.iter().all(|entry| entry["ipMode"] == "Proxy")
    })
    .await;
    node.is_well();
}

#[tokio::test]
async fn another_leader_tells_nothing_again() {
    let api = Api::start().await;
    let mut wrong = service(0);
    wrong["metadata"]["annotations"] = json!({"ballast.dev/algorithm": "fastest"});
    api.put("services", wrong.clone());
    let node = Node::start(&api, 0).await;
    let told = |api: &Api| api.events("InvalidAnnotation", None);
    api.until("its owner is told", |api| told(api) == 1).await;
    quiet(&api).await;
    let before = api.objects("events");
    drop(node);
    let _node = Node::of(&api).await;
    wrong["metadata"]["name"] = json!("late");
    wrong["metadata"]["uid"] = json!("late");
    wrong["spec"]["ports"] = json!([{"port": 30_000}]);
    api.put("services", wrong);
    api.until("the later one is told", |api| told(api) == 2)
        .await;
    quiet(&api).await;
    let after = api.objects("events");
    let same = before.iter().filter(|event| after.contains(event));
    assert_eq!(same.count(), before.len(), "none is counted up");
}

#[tokio::test]
async fn two_installations_that_rewrite_each_other_leave_it_at_that() {
    let api = Api::start().await;
    let node = Node::start(&api, 1).await;
    api.until("it is published", |api| published(api).len() == 1)
        .await;
    // This one has no node, and takes the Service for its own, too.
    let _other = node.another_publisher();
    api.until("its owner is told", |api| {
        api.events("ForeignStatus", None) > 0
    })
    .await;
    quiet(&api).await;
    let requests = api.requests();
    let writes = requests
        .iter()
        .filter(|path| path.starts_with("PATCH") && path.contains("/status"));
    let writes = writes.count();
    assert!(writes <= 20, "{writes} writes");
}

#[tokio::test]
async fn a_status_that_is_refused_is_told_to_its_owner_in_the_servers_words() {
    let api = Api::start().await;
    let refusing = |code| Habits {
        refuses_status: Some(code),
        ..Habits::default()
    };
    // Who is asked to be patient is, and tells nobody.
    api.behave(refusing(429));
    let _node = Node::start(&api, 2).await;
    let writes = |path: &str| path.starts_with("PATCH") && path.contains("/status");
    api.asked(writes, 6).await;
    assert_eq!(api.events("SyncLoadBalancerFailed", None), 0);

    api.behave(refusing(422));
    api.until("both are told", |api| {
        api.events("SyncLoadBalancerFailed", None) == 2
    })
    .await;
    for event in api.objects("events") {
        let note = event["note"].as_str().unwrap_or_default();
        let is_it = event["reason"] == "SyncLoadBalancerFailed";
        assert!(!is_it || note.ends_with("as the test wants it"), "{note}");
    }
    let before = api.requests().iter().filter(|path| writes(path)).count();
    support::pause_async(Duration::from_secs(4)).await;
    let after = api.requests().iter().filter(|path| writes(path)).count();
    assert!(
        after - before <= 2,
        "it is left alone for a while: {before}, {after}"
    );
    assert_eq!(api.events("SyncLoadBalancerFailed", None), 2);
    // Something else is tried at once; where that fails otherwise, it is not tried without end.
    api.behave(refusing(503));
    let mut named = service(0);
    named["metadata"]["annotations"] = json!({"ballast.dev/hostname": "edge.example.com"});
    api.put("services", named);
    let count = || api.requests().iter().filter(|path| writes(path)).count();
    api.until("another try", |_| count() > after).await;
    support::pause_async(Duration::from_secs(3)).await;
    assert!(count() - after <= 10, "{} tries", count() - after);
    api.behave(Habits::default());
    api.until("addresses", |api| published(api).len() == 2)
        .await;
}

#[tokio::test]
async fn a_service_without_room_for_our_annotations_is_published_all_the_same() {
    let api = Api::start().await;
    let mut full = service(0);
    // By the latter, the published address is written into an annotation.
    full["metadata"]["annotations"] =
        json!({"filler": "x".repeat((256 << 10) - 60), "loadbalancer.openstack.org/x": "y"});
    api.put("services", full);
    let _node = Node::start(&api, 0).await;
    api.until("it is published", |api| published(api).len() == 1)
        .await;
    let services = api.objects("services");
    let finalizers = &services[0]["metadata"]["finalizers"];
    assert_eq!(
        *finalizers,
        json!(["service.kubernetes.io/load-balancer-cleanup"])
    );
    api.until("its owner is told", |api| {
        api.events("SyncLoadBalancerFailed", None) == 1
    })
    .await;
    let writes = || {
        let requests = api.requests();
        let patches = requests
            .iter()
            .filter(|path| path.starts_with("PATCH") && path.contains("/services"));
        patches.count()
    };
    let before = writes();
    support::pause_async(Duration::from_secs(4)).await;
    assert!(writes() - before <= 1, "{before} and then {}", writes());
}

#[tokio::test]
async fn what_was_told_is_read_once_however_much_a_node_does_not_serve() {
    let api = Api::start().await;
    let node = Node::start(&api, 300).await;
    node.fail(300).await;
    api.until("all are told", |api| {
        api.events("SyncLoadBalancerFailed", None) == 300
    })
    .await;
    let lists = |path: &&String| path.starts_with('/') && path.contains("/events?");
    let requests = api.requests();
    let count = requests.iter().filter(lists).count();
    // One when the publisher begins to lead, and one for each batch.
    assert!(count <= 5, "{count} lists");
}

/// A load balancer node with both roles of the controller, and what passes for a data plane.
struct Node {
    controller: Child,
    publisher: Child,
    folder: TempDir,
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    /// With so many Services.
    async fn start(api: &Api, services: usize) -> Self {
        Self::start_with(api, services, &[]).await
    }

    async fn start_with(api: &Api, services: usize, flags: &[&str]) -> Self {
        let addresses = json!([{"type": "InternalIP", "address": "127.0.0.9"}]);
        api.put(
            "nodes",
            json!({
                "metadata": {"name": "lb1", "uid": "n", "labels": {"role": "loadbalancer"}},
                "status": {"addresses": addresses},
            }),
        );
        for number in 0..services {
            api.put("services", service(number));
        }
        Self::with(api, flags).await
    }

    /// On a server where everything is already.
    async fn of(api: &Api) -> Self {
        Self::with(api, &[]).await
    }

    async fn with(api: &Api, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": api.url()}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        });
        fs::write(&kubeconfig, config.to_string()).expect("a file");
        let table = folder.path().join("table");
        fs::create_dir(&table).expect("a folder");
        let readyz = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let dataplane = readyz.local_addr().expect("an address").to_string();
        let serves = table.clone();
        let tasks = vec![
            tokio::spawn(be_ready(readyz)),
            tokio::spawn(async move {
                loop {
                    answer(&serves, &[]);
                    support::pause_async(Duration::from_millis(20)).await;
                }
            }),
        ];
        let log = fs::File::create(folder.path().join("log")).expect("a file");
        let controller = program("ballast-controller")
            .args([
                "run",
                "--node-name",
                "lb1",
                "--admin",
                "none",
                "--dataplane",
            ])
            .args([&dataplane, "--kubeconfig"])
            .arg(&kubeconfig)
            .arg("--table-dir")
            .arg(&table)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.try_clone().expect("a file"))
            .spawn();
        let publisher = program("ballast-controller")
            .args(["publish", "--admin", "none", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self {
            controller: controller.expect("a controller"),
            publisher: publisher.expect("a publisher"),
            folder,
            tasks,
        }
    }

    /// A publisher of another installation, which writes in the same name.
    fn another_publisher(&self) -> Ended {
        let publisher = program("ballast-controller")
            .args(["publish", "--admin", "none", "--own-namespace", "other"])
            .arg("--kubeconfig")
            .arg(self.folder.path().join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ended(publisher.expect("a publisher"))
    }

    /// From now on none of these is served.
    async fn fail(&self, services: usize) {
        let table = self.folder.path().join("table");
        // Services come into the table as they are given their ports.
        let is_served = || frontends(&table) >= services && table.join("ack.json").exists();
        let in_time = support::comes_within_async(PATIENCE, is_served).await;
        assert!(in_time, "no table");
        self.tasks[1].abort();
        let failed: Vec<Value> = (0..services)
            .map(|number| {
                let port = 20_000 + number;
                json!({"frontend": format!("shop.web-{number}:{port}"), "bind": format!("*:{port}"), "state": "failed", "why": "in use"})
            })
            .collect();
        answer(&table, &failed);
    }

    fn is_well(&mut self) {
        for child in [&mut self.controller, &mut self.publisher] {
            let ended = child.try_wait().expect("a child");
            assert_eq!(ended, None, "it runs");
        }
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // In order, so that the next publisher leads at once.
        for child in [&self.controller, &self.publisher] {
            let process = rustix::process::Pid::from_child(child);
            rustix::process::kill_process(process, rustix::process::Signal::TERM).ok();
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            eprintln!("{}", log.unwrap_or_default());
        }
    }
}

/// Says that the newest table is served, but for these.
fn answer(folder: &std::path::Path, exceptions: &[Value]) {
    let text = fs::read_to_string(folder.join("table.json")).unwrap_or_default();
    let table: Value = serde_json::from_str(&text).unwrap_or_default();
    let ack = json!({
        "version": 1, "instance": "i", "refused": null, "exceptions": exceptions,
        "served": {"generation": table["generation"], "digest": "d"},
    });
    let draft = folder.join("ack.draft");
    let ack = ack.to_string();
    let known = fs::read_to_string(folder.join("ack.json")).unwrap_or_default();
    if !table.is_null() && known != ack {
        fs::write(&draft, ack).expect("a file");
        fs::rename(&draft, folder.join("ack.json")).expect("a rename");
    }
}

/// How many frontends the newest table has.
fn frontends(folder: &std::path::Path) -> usize {
    let text = fs::read_to_string(folder.join("table.json")).unwrap_or_default();
    let table: Value = serde_json::from_str(&text).unwrap_or_default();
    table["frontends"].as_array().map_or(0, Vec::len)
}

/// As a data plane that is well.
async fn be_ready(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut asked = [0; 1024];
            while let Ok(1..) = stream.read(&mut asked).await {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                if stream.write_all(answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

fn service(number: usize) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": format!("web-{number}"), "uid": format!("u{number}")},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 20_000 + number}]},
    })
}

/// Everything that any Service publishes.
fn published(api: &Api) -> Vec<Value> {
    let services = api.objects("services");
    let entries = services.iter().filter_map(|service| {
        let entries = service.pointer("/status/loadBalancer/ingress")?;
        entries.as_array().cloned()
    });
    entries.flatten().collect()
}

/// Waits until nobody has written anything but Leases for a while.
async fn quiet(api: &Api) {
    let count = || {
        let requests = api.requests();
        let writes = requests
            .iter()
            .filter(|path| path.starts_with('P') && !path.contains("/leases"));
        writes.count()
    };
    let mut before = count();
    loop {
        support::pause_async(Duration::from_secs(3)).await;
        let now = count();
        if now == before {
            return;
        }
        before = now;
    }
}
