//! What an API server does with what is written to it, as far as the tests need that: no versions are compared, and all that is
//! said of who writes is that somebody wrote the status.

use serde_json::{Value, json};

use super::{Api, Asked, PATIENCE, State, full_name, status};

/// What this server does otherwise than others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Habits {
    /// As servers before 1.30 do.
    pub(crate) drops_modes: bool,
    /// With which code the status of Services is refused.
    pub(crate) refuses_status: Option<u16>,
    /// Every page of a list but the first one is expired.
    pub(crate) forgets_pages: bool,
    /// Every watch ends as soon as it began.
    pub(crate) ends_watches: bool,
    /// Requests are read and not answered.
    pub(crate) is_silent: bool,
}

impl Api {
    /// From now on it does so.
    pub(crate) fn behave(&self, habits: Habits) {
        self.cluster().habits = habits;
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All objects of a kind.
    pub(crate) fn objects(&self, resource: &'static str) -> Vec<Value> {
        let cluster = self.cluster();
        let objects = cluster.objects.get(resource).into_iter().flatten();
        objects.map(|(_, object)| object.clone()).collect()
    }

    /// How many events of a reason there are about an object, or about all.
    pub(crate) fn events(&self, reason: &str, about: Option<&str>) -> usize {
        let events = self.objects("events");
        let is_it = |event: &&Value| {
            event["reason"] == reason && about.is_none_or(|name| event["regarding"]["name"] == name)
        };
        events.iter().filter(is_it).count()
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let in_time = support::comes_within_async(PATIENCE, || is_so(self)).await;
        assert!(in_time, "never: {what}");
    }
}

/// Does what is asked, and says what became of it.
pub(super) fn write(state: &State, asked: &Asked, method: &str, body: &[u8]) -> Value {
    let mut cluster = state.cluster.lock().expect("a test that is set up");
    let habits = cluster.habits.clone();
    if let Some(code) = habits.refuses_status.filter(|_| asked.is_status) {
        return status(code, 0);
    }
    let sent: Value = serde_json::from_slice(body).expect("JSON");
    let objects = cluster.objects.entry(asked.resource).or_default();
    let name = match (&asked.name, &asked.namespace) {
        (Some(name), _) => name.clone(),
        (None, namespace) => {
            let mut named = sent.clone();
            if let Some(namespace) = namespace {
                named["metadata"]["namespace"] = json!(namespace);
            }
            full_name(&named)
        }
    };
    let mut object = match (method, objects.get(&name)) {
        ("PATCH" | "PUT", None) => return status(404, 0),
        ("POST", Some(_)) => return status(409, 0),
        ("PATCH", Some(found)) => {
            let mut found = found.clone();
            merge(&mut found, &sent);
            found
        }
        _ => sent,
    };
    if let Some(namespace) = &asked.namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let entries = object.pointer_mut("/status/loadBalancer/ingress");
    for entry in entries.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(entry) = entry.as_object_mut().filter(|_| habits.drops_modes) {
            entry.remove("ipMode");
        }
    }
    let annotations = object["metadata"]["annotations"].as_object();
    let bytes = annotations.into_iter().flatten();
    let bytes = bytes.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    if bytes.sum::<usize>() > MOST_ANNOTATIONS {
        return status(422, 0);
    }
    if asked.is_status {
        object["metadata"]["managedFields"] = json!([
            {"manager": "ballast", "operation": "Update", "subresource": "status"},
        ]);
    }
    let version = *state.moved.borrow() + 1;
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    let kind = match objects.insert(name, object.clone()) {
        Some(_) => "MODIFIED",
        None => "ADDED",
    };
    cluster.log.push(super::Logged {
        version,
        resource: asked.resource,
        event: json!({"type": kind, "object": object}),
    });
    drop(cluster);
    state.moved.send_replace(version);
    object
}

/// As a merge patch says.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => {
                into.as_object_mut().expect("an object").remove(key);
            }
            value => merge(&mut into[key], value),
        }
    }
}

/// As Kubernetes has it, in bytes.
const MOST_ANNOTATIONS: usize = 256 << 10;
