//! An API server as a person with kubectl sees it: objects in YAML go in, objects as plain JSON come out.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use hyper::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{Status, WatchEvent};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Somebody who may ask an API server.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    runtime: Arc<Runtime>,
}

/// What the API server says; an error where it does not do what it is asked.
pub(crate) type Answer = Result<Value, Box<Status>>;

/// An object's kind, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Api {
    /// Whoever this kubeconfig speaks for. Its connections are made in the network of this thread.
    pub(crate) fn of(kubeconfig: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(async {
            let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options).await;
            Client::try_from(config.expect("a kubeconfig")).expect("a client")
        });
        Self {
            client,
            runtime: Arc::new(runtime),
        }
    }

    /// The text at a path, if the server answers well.
    pub(crate) fn text(&self, path: &str) -> Result<String, kube::Error> {
        let request = Request::get(path).body(Vec::new()).expect("a request");
        let client = self.client.clone();
        self.wait(async move { client.request_text(request).await })
    }

    /// Does it on the thread that is in the network where this was made: nothing may leave by the network of who asks.
    fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let done = self.runtime.spawn(work);
        self.runtime.block_on(done).expect("a request that ends")
    }

    /// Any request; a patch is a merge patch, or a server-side apply where the path says so.
    pub(crate) fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let kind = match (&method, path.contains("fieldManager=")) {
            (&Method::PATCH, true) => "application/apply-patch+yaml",
            (&Method::PATCH, false) => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        let request = request.body(body).expect("a request");
        let client = self.client.clone();
        let answer = self.wait(async move { client.request::<Value>(request).await });
        answer.map_err(|error| match error {
            kube::Error::Api(status) => status,
            other => Box::new(Status::failure(&format!("{other:?}"), "NoAnswer")),
        })
    }

    /// Makes an object what this document says, as `kubectl apply --server-side` does; its status too, if there is one.
    pub(crate) fn apply(&self, document: &Value, namespace: &str) -> Answer {
        let place = place_of(document, namespace);
        let path = path(place);
        let applied = self.ask(Method::PATCH, &(path.clone() + APPLIED), Some(document))?;
        if document.get("status").is_some() {
            let path = path + "/status" + APPLIED;
            return self.ask(Method::PATCH, &path, Some(document));
        }
        Ok(applied)
    }

    pub(crate) fn create(&self, document: &Value, namespace: &str) -> Answer {
        let place = place_of(document, namespace);
        let path = folder_of(place.kind, place.namespace);
        self.ask(Method::POST, &path, Some(document))
    }

    pub(crate) fn read(&self, place: Place<'_>) -> Option<Value> {
        match self.ask(Method::GET, &path(place), None) {
            Ok(found) => Some(found),
            Err(refused) if refused.code == 404 => None,
            Err(refused) => panic!("{place:?}: {refused:?}"),
        }
    }

    /// All objects of a kind.
    pub(crate) fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let mut list = self.ask(Method::GET, &folder_of(kind, namespace), None);
        items(list.as_mut().expect("a list"))
    }

    /// Passes every object of a kind with this label to `see`, as it is and as it changes, until that says no, or for so many seconds.
    /// Whether it said no.
    pub(crate) fn follow(
        &self,
        kind: &str,
        namespace: &str,
        label: &str,
        seconds: u64,
        mut see: impl FnMut(&Value) -> bool + Send + 'static,
    ) -> bool {
        let all = format!("{}?labelSelector={label}", folder_of(kind, namespace));
        let client = self.client.clone();
        let until = Instant::now() + Duration::from_secs(seconds);
        self.wait(async move {
            // The server ends a watch that it cannot serve fast enough.
            while Instant::now() < until {
                let request = Request::get(&all).body(Vec::new()).expect("a request");
                let mut list: Value = client.request(request).await.expect("a list");
                if !items(&mut list).iter().all(&mut see) {
                    return true;
                }
                // A watch from no version may wait for as long as nothing of this kind is written: the server's cache learns of versions
                // by what is written, where etcd cannot be asked how far it is.
                let version = list["metadata"]["resourceVersion"].as_str();
                let left = until.saturating_duration_since(Instant::now()).as_secs();
                let path = format!(
                    "{all}&watch=true&timeoutSeconds={left}&resourceVersion={}",
                    version.expect("a list has a version")
                );
                let request = Request::get(path).body(Vec::new()).expect("a request");
                let events = client.request_events::<Value>(request).await;
                let mut events = pin!(events.expect("a watch"));
                while let Some(event) = events.try_next().await.expect("an event") {
                    match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                            if !see(&object) {
                                return true;
                            }
                        }
                        WatchEvent::Error(error) => {
                            assert!([410, 504].contains(&error.code), "{error:?}");
                        }
                        WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                    }
                }
                support::pause_async(Duration::from_millis(100)).await;
            }
            false
        })
    }

    /// A merge patch.
    pub(crate) fn patch(&self, place: Place<'_>, patch: &Value) -> Value {
        let answer = self.ask(Method::PATCH, &path(place), Some(patch));
        answer.unwrap_or_else(|refused| panic!("{place:?}: {refused:?}"))
    }

    pub(crate) fn delete(&self, place: Place<'_>) {
        let now = json!({"gracePeriodSeconds": 0});
        let answer = self.ask(Method::DELETE, &path(place), Some(&now));
        answer.unwrap_or_else(|refused| panic!("{place:?}: {refused:?}"));
    }
}

/// Takes the objects out of a list.
fn items(list: &mut Value) -> Vec<Value> {
    match list["items"].take() {
        Value::Array(items) => items,
        other => panic!("the items of a list are {other}"),
    }
}

/// All documents of a YAML text.
pub(crate) fn documents(yaml: &str) -> Vec<Value> {
    let read = serde_saphyr::from_multiple::<Value>(yaml);
    read.unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

/// What a document is, and where it belongs.
pub(crate) fn place_of<'a>(document: &'a Value, namespace: &'a str) -> Place<'a> {
    let metadata = &document["metadata"];
    Place {
        kind: document["kind"].as_str().expect("a kind"),
        namespace: metadata["namespace"].as_str().unwrap_or(namespace),
        name: metadata["name"].as_str().expect("a name"),
    }
}

pub(crate) fn path(place: Place<'_>) -> String {
    format!("{}/{}", folder_of(place.kind, place.namespace), place.name)
}

/// Where objects of a kind are. With no namespace: all of them.
pub(crate) fn folder_of(kind: &str, namespace: &str) -> String {
    let (group, plural, scope) = *KINDS
        .iter()
        .find_map(|(known, place)| (*known == kind).then_some(place))
        .unwrap_or_else(|| panic!("the kind {kind} is not known here"));
    match (scope, namespace) {
        (Scope::Cluster, _) | (_, "") => format!("/{group}/{plural}"),
        (Scope::Namespace, namespace) => format!("/{group}/namespaces/{namespace}/{plural}"),
    }
}

/// Whether every API server knows this kind.
pub(crate) fn is_known(kind: &str) -> bool {
    KINDS.iter().any(|(known, _)| *known == kind)
}

#[derive(Clone, Copy)]
enum Scope {
    Cluster,
    Namespace,
}

type Kind = (&'static str, (&'static str, &'static str, Scope));

const KINDS: [Kind; 20] = [
    (
        "CustomResourceDefinition",
        (
            "apis/apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            Scope::Cluster,
        ),
    ),
    ("ClusterRole", (RBAC, "clusterroles", Scope::Cluster)),
    (
        "ClusterRoleBinding",
        (RBAC, "clusterrolebindings", Scope::Cluster),
    ),
    ("ConfigMap", ("api/v1", "configmaps", Scope::Namespace)),
    (
        "Deployment",
        ("apis/apps/v1", "deployments", Scope::Namespace),
    ),
    (
        "EndpointSlice",
        (
            "apis/discovery.k8s.io/v1",
            "endpointslices",
            Scope::Namespace,
        ),
    ),
    ("Endpoints", ("api/v1", "endpoints", Scope::Namespace)),
    ("Event", ("api/v1", "events", Scope::Namespace)),
    (
        "Lease",
        ("apis/coordination.k8s.io/v1", "leases", Scope::Namespace),
    ),
    ("Namespace", ("api/v1", "namespaces", Scope::Cluster)),
    ("Node", ("api/v1", "nodes", Scope::Cluster)),
    ("Pod", ("api/v1", "pods", Scope::Namespace)),
    (
        "ReplicationController",
        ("api/v1", "replicationcontrollers", Scope::Namespace),
    ),
    ("Role", (RBAC, "roles", Scope::Namespace)),
    ("RoleBinding", (RBAC, "rolebindings", Scope::Namespace)),
    ("Secret", ("api/v1", "secrets", Scope::Namespace)),
    ("Service", ("api/v1", "services", Scope::Namespace)),
    (
        "ServiceAccount",
        ("api/v1", "serviceaccounts", Scope::Namespace),
    ),
    (
        "ValidatingAdmissionPolicy",
        (ADMISSION, "validatingadmissionpolicies", Scope::Cluster),
    ),
    (
        "ValidatingAdmissionPolicyBinding",
        (
            ADMISSION,
            "validatingadmissionpolicybindings",
            Scope::Cluster,
        ),
    ),
];

const ADMISSION: &str = "apis/admissionregistration.k8s.io/v1";

const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";
const APPLIED: &str = "?fieldManager=person&force=true";
