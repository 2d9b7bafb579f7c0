//! A test's own part of a cluster: a namespace for its Services, one for its controllers with all that rc.yaml makes there,
//! and nodes that only its controllers take for load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::{Answer, Place, documents};
use crate::plane::{Plane, Yard};
use crate::process::until;
use crate::publisher::Publisher;

pub(crate) struct Corner<'a> {
    pub(crate) yard: &'static Yard,
    pub(crate) plane: &'a Plane,
    /// Where its Services are.
    pub(crate) name: &'static str,
    /// Where its controllers are.
    pub(crate) home: String,
    /// What the programs are told there, with the table's folder as rc.yaml has it.
    pub(crate) arguments: Arguments,
    /// The one that writes statuses, if the test has no others. It ends before the folder goes, where its log is.
    publisher: Mutex<Option<Publisher>>,
    pub(crate) folder: TempDir,
    /// What is asked in the place of the API server.
    server: OnceLock<String>,
}

impl Drop for Corner<'_> {
    /// What can be seen of a test that failed.
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        for service in self.plane.admin.list("Service", self.name).iter().take(9) {
            let (metadata, status) = (&service["metadata"], &service["status"]);
            eprintln!(
                "--- {}: annotations {}, finalizers {}, status {status}",
                metadata["name"], metadata["annotations"], metadata["finalizers"]
            );
            let name = metadata["name"].as_str().unwrap_or_default();
            for event in self.events(name) {
                eprintln!("    {event:?}");
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) dataplane: Vec<String>,
    pub(crate) controller: Vec<String>,
    pub(crate) publisher: Vec<String>,
    /// The environment of both roles of the controller.
    pub(crate) environment: BTreeMap<String, String>,
}

/// Runs a test in a corner of the API server that tests share.
pub(crate) fn in_a_corner(name: &'static str, test: impl FnOnce(&Corner<'_>) + Send) {
    let yard = Yard::of_this_process();
    let plane = Plane::shared(yard);
    yard.place
        .within(|| Corner::make(yard, plane, name).run(test));
}

/// Runs a test with an API server of its own.
pub(crate) fn with_its_own_server(name: &'static str, test: impl FnOnce(&Corner<'_>) + Send) {
    let yard = Yard::of_this_process();
    let plane = Plane::start(yard);
    yard.place
        .within(|| Corner::make(yard, &plane, name).run(test));
}

/// Runs a test in a cluster of its own that Ballast was installed in by `kubectl create -f rc.yaml`, with the arguments which
/// that says.
pub(crate) fn as_installed(test: impl FnOnce(&Corner<'_>) + Send) {
    let yard = Yard::of_this_process();
    let plane = Plane::start(yard);
    yard.place
        .within(|| Corner::installed(yard, &plane).run(test));
}

/// The same, of Ballast in wrong hands: what it asks for may be denied.
pub(crate) fn as_installed_and_captured(test: impl FnOnce(&Corner<'_>) + Send) {
    let yard = Yard::of_this_process();
    let plane = Plane::start(yard);
    yard.place.within(|| test(&Corner::installed(yard, &plane)));
}

impl Arguments {
    fn of_rc_yaml() -> Self {
        let documents = documents(&rc_yaml());
        let of_kind = |kind: &str| {
            let found = documents.iter().find(|document| document["kind"] == kind);
            found.expect("a document of rc.yaml")
        };
        let words = |kind: &str, name: &str| {
            let containers = of_kind(kind)["spec"]["template"]["spec"]["containers"].as_array();
            let mut containers = containers.into_iter().flatten();
            let container = containers.find(|one| one["name"] == name);
            let words = container.and_then(|container| container["args"].as_array());
            let words = words.into_iter().flatten().filter_map(Value::as_str);
            words.map(str::to_owned).collect()
        };
        let environment = of_kind("ConfigMap")["data"].as_object();
        let environment = environment.into_iter().flatten().map(|(name, value)| {
            let value = value.as_str().expect("text");
            (name.clone(), value.to_owned())
        });
        Self {
            dataplane: words("ReplicationController", "ballast"),
            controller: words("ReplicationController", "ballast-controller"),
            publisher: words("Deployment", "ballast-controller"),
            environment: environment.collect(),
        }
    }

    /// For a corner: everything but what others would see of it.
    fn of_a_corner(name: &str) -> Self {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let nodes = format!("--node-selector=role=loadbalancer,corner={name}");
        Self {
            dataplane: words(&["run", "--table=/run/ballast"]),
            controller: words(&[
                "run",
                "--table-dir=/run/ballast",
                "--namespace",
                name,
                &nodes,
            ]),
            publisher: words(&["publish", "--namespace", name, &nodes]),
            environment: BTreeMap::new(),
        }
    }
}

impl<'a> Corner<'a> {
    fn installed(yard: &'static Yard, plane: &'a Plane) -> Self {
        let created = yard.kubectl(plane, &["create", "-f", RC_YAML]);
        created.expect("a cluster that takes rc.yaml");
        Self {
            yard,
            plane,
            name: "default",
            home: "ballast".to_owned(),
            arguments: Arguments::of_rc_yaml(),
            folder: tempfile::tempdir().expect("a folder"),
            publisher: Mutex::default(),
            server: OnceLock::new(),
        }
    }

    fn make(yard: &'static Yard, plane: &'a Plane, name: &'static str) -> Self {
        let corner = Self {
            yard,
            plane,
            name,
            home: format!("ballast-{name}"),
            arguments: Arguments::of_a_corner(name),
            folder: tempfile::tempdir().expect("a folder"),
            publisher: Mutex::default(),
            server: OnceLock::new(),
        };
        corner.apply(&format!(
            "kind: Namespace\napiVersion: v1\nmetadata: {{name: {name}}}"
        ));
        for document in corner.installation() {
            let kind = document["kind"].as_str().unwrap_or_default();
            if !["ReplicationController", "Deployment"].contains(&kind) {
                corner.must(plane.admin.create(&document, ""));
            }
        }
        corner
    }

    /// Nothing that Ballast asked for in it may have been denied; Secrets have tests of their own.
    fn run(&self, test: impl FnOnce(&Self)) {
        test(self);
        let granted = |entry: &&Value| entry["responseStatus"]["code"] != 403;
        let granted: BTreeSet<_> = self.asked().iter().filter(granted).map(words).collect();
        let mut denied = self.denied();
        // An API server that has just begun denies for a moment what it grants.
        // The log has no name of an object that was not created.
        let is_granted = |entry: &String| match entry.strip_suffix(" null") {
            Some(unnamed) => granted.iter().any(|one| one.starts_with(unnamed)),
            None => granted.contains(entry),
        };
        // Kubernetes grants the lists of kinds to everybody, and rc.yaml does not.
        let of_kinds = "\"get\" null null null";
        denied.retain(|entry| {
            !entry.contains("\"secrets\"") && entry != of_kinds && !is_granted(entry)
        });
        assert_eq!(denied, [""; 0], "what rc.yaml does not grant");
    }

    /// What rc.yaml says, with this corner's names. The roles and the policies are for all, and there already for all but the first.
    fn installation(&self) -> Vec<Value> {
        let text = rc_yaml().replace(
            "namespace: ballast\n",
            &format!("namespace: {}\n", self.home),
        );
        // The accounts of every corner.
        let text = of_all_corners(&text);
        documents(&text)
            .into_iter()
            .filter_map(|mut document| {
                match document["kind"].as_str() {
                    Some("Namespace") => document["metadata"]["name"] = json!(self.home),
                    Some("ClusterRoleBinding") => {
                        let name = document["metadata"]["name"].as_str().unwrap_or_default();
                        document["metadata"]["name"] = json!(format!("{name}-{}", self.name));
                    }
                    Some(
                        "ClusterRole"
                        | "ValidatingAdmissionPolicy"
                        | "ValidatingAdmissionPolicyBinding",
                    ) => {
                        let applied = self.plane.admin.apply(&document, "");
                        applied.expect("a role that the API server takes");
                        return None;
                    }
                    _ => {}
                }
                Some(document)
            })
            .collect()
    }

    /// A token for the account that a role runs as.
    pub(crate) fn token(&self, account: &str) -> String {
        self.token_for(account, &json!({}))
    }

    /// A token for that account, as the kubelet of a node has it for a pod there.
    pub(crate) fn token_on(&self, account: &str, node: &str, pod: &str) -> String {
        let container = json!({"name": "it", "image": "none"});
        let document = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": self.home},
            "spec": {"nodeName": node, "serviceAccountName": account, "containers": [container]},
        });
        let made = self.must(self.plane.admin.create(&document, &self.home));
        let uid = &made["metadata"]["uid"];
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid});
        self.token_for(account, &json!({"boundObjectRef": bound}))
    }

    fn token_for(&self, account: &str, spec: &Value) -> String {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{account}/token",
            self.home
        );
        let mut asked = json!({"spec": spec});
        asked["spec"]["expirationSeconds"] = json!(7200);
        let answer = self
            .plane
            .admin
            .ask(hyper::Method::POST, &path, Some(&asked));
        let token = self.must(answer)["status"]["token"].take();
        token.as_str().expect("a token").to_owned()
    }

    /// The kubeconfig of who has this token.
    pub(crate) fn kubeconfig(&self, token: &str) -> String {
        match self.server.get() {
            Some(url) => self.plane.kubeconfig_of(url, token),
            None => self.plane.kubeconfig(token),
        }
    }

    /// What is started from now on asks there, in the place of the API server.
    pub(crate) fn ask_at(&self, url: String) {
        self.server.set(url).expect("one place");
    }

    /// Starts the publisher, with these arguments beside the corner's own.
    pub(crate) fn publish(&self, flags: &[&str]) {
        *self.publisher() = Some(Publisher::start(self, flags));
    }

    /// Starts one if there is none.
    pub(crate) fn be_published(&self, flags: &[String]) {
        let mut publisher = self.publisher();
        if publisher.is_none() {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            *publisher = Some(Publisher::start(self, &flags));
        }
    }

    /// The publisher, which is the test's from now on. Another one is not started by itself.
    pub(crate) fn take_publisher(&self) -> Publisher {
        self.publisher().take().expect("one was started")
    }

    /// The address of the machine of the publisher.
    pub(crate) fn publisher_address(&self) -> Ipv4Addr {
        self.publisher()
            .as_ref()
            .expect("one was started")
            .address()
    }

    fn publisher(&self) -> std::sync::MutexGuard<'_, Option<Publisher>> {
        self.publisher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits the nodes to read the Secrets of a namespace, as the manual says.
    pub(crate) fn let_nodes_read_secrets(&self, namespace: &str) {
        let bound = self.yard.kubectl(
            self.plane,
            &[
                "create",
                "rolebinding",
                "ballast-tls",
                "--clusterrole=ballast-tls",
                &format!("--namespace={namespace}"),
                &format!("--serviceaccount={}:ballast", self.home),
            ],
        );
        bound.expect("a binding");
    }

    /// The name of an account to the API server.
    fn user(&self, account: &str) -> String {
        format!("system:serviceaccount:{}:{account}", self.home)
    }

    /// Every document of this YAML becomes so.
    pub(crate) fn apply(&self, yaml: &str) {
        for document in documents(yaml) {
            let applied = self.plane.admin.apply(&document, self.name);
            applied.unwrap_or_else(|refused| panic!("{refused:?}: {document}"));
        }
    }

    pub(crate) fn place<'b>(&'b self, kind: &'b str, name: &'b str) -> Place<'b> {
        Place {
            kind,
            namespace: self.name,
            name,
        }
    }

    pub(crate) fn read(&self, kind: &str, name: &str) -> Option<Value> {
        self.plane.admin.read(self.place(kind, name))
    }

    pub(crate) fn service(&self, name: &str) -> Value {
        self.read("Service", name).expect("a Service")
    }

    pub(crate) fn patch(&self, kind: &str, name: &str, patch: &Value) -> Value {
        self.plane.admin.patch(self.place(kind, name), patch)
    }

    /// Sets annotations of a Service; null removes one.
    pub(crate) fn annotate(&self, service: &str, annotations: &Value) {
        self.patch(
            "Service",
            service,
            &json!({"metadata": {"annotations": annotations}}),
        );
    }

    pub(crate) fn delete(&self, kind: &str, name: &str) {
        self.plane.admin.delete(self.place(kind, name));
    }

    /// What a Service's status publishes.
    pub(crate) fn published(&self, service: &str) -> Vec<String> {
        let found = self.service(service);
        let ingress = found["status"]["loadBalancer"]["ingress"].as_array();
        let entries = ingress.into_iter().flatten();
        let text = |entry: &Value| {
            let address = entry["ip"].as_str().or_else(|| entry["hostname"].as_str());
            address.unwrap_or_default().to_owned()
        };
        entries.map(text).collect()
    }

    /// Waits until a Service publishes these.
    pub(crate) fn until_published(&self, service: &str, addresses: &[&str]) {
        until(&format!("{service} publishes {addresses:?}"), || {
            let mut found = self.published(service);
            found.sort();
            let mut wanted = addresses.to_vec();
            wanted.sort_unstable();
            found == wanted
        });
    }

    /// The events about an object.
    pub(crate) fn events(&self, object: &str) -> Vec<Event> {
        let events = self.plane.admin.list("Event", self.name);
        events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == object)
            .map(Event::of)
            .collect()
    }

    /// Waits for an event about an object.
    pub(crate) fn until_told(&self, object: &str, reason: &str) -> Event {
        let mut told = None;
        until(&format!("{object} is told {reason}"), || {
            told = self
                .events(object)
                .into_iter()
                .find(|event| event.reason == reason);
            told.is_some()
        });
        told.expect("it was just found")
    }

    /// What Ballast has asked of the API server so far, and was answered.
    pub(crate) fn asked(&self) -> Vec<Value> {
        let mut all = self.asked_by(NODES);
        all.extend(self.asked_by(PUBLISHERS));
        all
    }

    /// What one role of it has asked.
    pub(crate) fn asked_by(&self, account: &str) -> Vec<Value> {
        self.plane.asked_by(&self.user(account))
    }

    /// What of that it has no right to, in words.
    pub(crate) fn denied(&self) -> Vec<String> {
        let asked = self.asked();
        let denied = asked
            .iter()
            .filter(|entry| entry["responseStatus"]["code"] == 403);
        denied.map(words).collect()
    }

    /// What of that were writes of anything but Leases and events, in words.
    pub(crate) fn writes(&self) -> Vec<String> {
        let asked = self.asked();
        let writes = asked.iter().filter(|entry| {
            let reads = ["get", "list", "watch"];
            let verb = entry["verb"].as_str().unwrap_or_default();
            let what = entry["objectRef"]["resource"].as_str().unwrap_or_default();
            !reads.contains(&verb) && what != "leases" && what != "events"
        });
        writes.map(words).collect()
    }

    pub(crate) fn must(&self, answer: Answer) -> Value {
        answer.unwrap_or_else(|refused| panic!("{}: {refused:?}", self.name))
    }
}

/// rc.yaml, with policies that are for the accounts of all corners.
fn of_all_corners(rc: &str) -> String {
    let mut text = rc.to_owned();
    for account in [NODES, PUBLISHERS] {
        let one = format!("== 'system:serviceaccount:ballast:{account}'");
        assert!(text.contains(&one), "no policy for {account}");
        let all = format!(".matches('^system:serviceaccount:ballast(-[a-z0-9-]+)?:{account}$')");
        text = text.replace(
            &format!("request.userInfo.username {one}"),
            &format!("request.userInfo.username{all}"),
        );
    }
    text
}

/// An entry of the audit log.
pub(crate) fn words(entry: &Value) -> String {
    let of = &entry["objectRef"];
    format!(
        "{} {} {} {}",
        entry["verb"], of["resource"], of["subresource"], of["name"]
    )
}

/// An event, whoever wrote it in whichever of the two APIs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// How often it was told.
    pub(crate) count: u64,
}

impl Event {
    fn of(event: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let count = event["series"]["count"].as_u64();
        Self {
            kind: text(&event["type"]),
            reason: text(&event["reason"]),
            message: text(&event["message"]),
            count: count.or_else(|| event["count"].as_u64()).unwrap_or(1),
        }
    }
}

/// rc.yaml, as it is shipped.
pub(crate) fn rc_yaml() -> String {
    fs::read_to_string(RC_YAML).expect("rc.yaml")
}

/// Where that is.
pub(crate) const RC_YAML: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rc.yaml");
/// The account of `run`.
pub(crate) const NODES: &str = "ballast";
/// The account of `publish`.
pub(crate) const PUBLISHERS: &str = "ballast-publish";
/// Where rc.yaml has the table.
pub(crate) const TABLE_FOLDER: &str = "/run/ballast";
/// Where it has the runtime socket.
pub(crate) const SOCKET: &str = "/tmp/haproxy";
