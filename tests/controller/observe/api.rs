//! An API server as far as watching and writing need one: lists in pages, watches, gets, simple writes; and every way in which
//! it can fail.

mod writes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use writes::Habits;

/// A server of the test; ends with it.
pub(crate) struct Api {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    cluster: Mutex<Cluster>,
    /// The version: moved on by every change.
    moved: watch::Sender<u64>,
    /// Every connection ends when this changes.
    cut: watch::Sender<u64>,
}

#[derive(Default)]
struct Cluster {
    objects: BTreeMap<&'static str, BTreeMap<String, Value>>,
    log: Vec<Logged>,
    /// Versions below this one are forgotten.
    oldest: u64,
    /// How forgotten versions are answered: as an event, or with this status.
    forgets_with_status: bool,
    /// Whether a watch from a version that is not reached yet is taken.
    takes_what_is_to_come: bool,
    /// What is refused, and how.
    refused: BTreeMap<&'static str, Value>,
    /// Nobody is answered at all.
    is_away: bool,
    requests: Vec<String>,
    habits: Habits,
}

struct Logged {
    version: u64,
    resource: &'static str,
    event: Value,
}

const RESOURCES: [&str; 7] = [
    "services",
    "endpointslices",
    "nodes",
    "leases",
    "secrets",
    "events",
    "referencegrants",
];

impl Api {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a test that is set up");
        let state = Arc::new(State {
            cluster: Mutex::default(),
            moved: watch::channel(100).0,
            cut: watch::channel(0).0,
        });
        let address = listener.local_addr().expect("a test that is set up");
        let serve = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serve);
                tokio::spawn(async move {
                    let mut cut = state.cut.subscribe();
                    tokio::select! {
                        // A client that went away.
                        result = converse(&state, stream) => drop(result),
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self {
            address,
            state,
            task,
        }
    }

    pub(crate) fn client(&self) -> kube::Client {
        let url = format!("http://{}", self.address)
            .parse()
            .expect("a test that is set up");
        let mut config = kube::Config::new(url);
        // Whoever watches asks again when it wants to.
        config.default_retry = false;
        kube::Client::try_from(config).expect("a test that is set up")
    }

    /// Creates or replaces an object; its kind is told by `resource`.
    pub(crate) fn put(&self, resource: &'static str, mut object: Value) {
        let name = full_name(&object);
        let mut cluster = self.cluster();
        let version = *self.state.moved.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let of_kind = cluster.objects.entry(resource).or_default();
        let kind = match of_kind.insert(name, object.clone()) {
            Some(_) => "MODIFIED",
            None => "ADDED",
        };
        self.log(
            cluster,
            version,
            resource,
            json!({"type": kind, "object": object}),
        );
    }

    pub(crate) fn delete(&self, resource: &'static str, name: &str) {
        let mut cluster = self.cluster();
        let version = *self.state.moved.borrow() + 1;
        let of_kind = cluster.objects.entry(resource).or_default();
        let mut object = of_kind.remove(name).expect("an object that is there");
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        self.log(
            cluster,
            version,
            resource,
            json!({"type": "DELETED", "object": object}),
        );
    }

    /// Sends a bookmark to whoever watches; returns its version.
    pub(crate) fn bookmark(&self, resource: &'static str) -> u64 {
        let cluster = self.cluster();
        let version = *self.state.moved.borrow() + 1000;
        let object = json!({
            "kind": "Any", "apiVersion": "v1",
            "metadata": {"resourceVersion": version.to_string()},
        });
        let event = json!({"type": "BOOKMARK", "object": object});
        self.log(cluster, version, resource, event);
        version
    }

    fn log(
        &self,
        mut cluster: MutexGuard<'_, Cluster>,
        version: u64,
        resource: &'static str,
        event: Value,
    ) {
        cluster.log.push(Logged {
            version,
            resource,
            event,
        });
        drop(cluster);
        self.state.moved.send_replace(version);
    }

    /// Refuses everything about a kind with a status, until [`Api::allow`].
    pub(crate) fn refuse(&self, resource: &'static str, code: u16, retry_after: u32) {
        let status = status(code, retry_after);
        self.cluster().refused.insert(resource, status);
    }

    pub(crate) fn allow(&self, resource: &'static str) {
        self.cluster().refused.remove(resource);
    }

    /// Forgets every version up to now, and cuts every connection.
    pub(crate) fn forget(&self, with_status: bool) {
        let mut cluster = self.cluster();
        cluster.oldest = *self.state.moved.borrow() + 1;
        cluster.forgets_with_status = with_status;
        drop(cluster);
        self.state.moved.send_modify(|version| *version += 1);
        self.cut();
    }

    /// Goes back to an earlier version, as from a backup, and cuts every connection. A watch from a later version is refused, or
    /// hears nothing.
    pub(crate) fn go_back(&self, objects: &[(&'static str, Value)], refuses: bool) {
        let mut cluster = self.cluster();
        cluster.takes_what_is_to_come = !refuses;
        cluster.objects.clear();
        cluster.log.clear();
        for (resource, object) in objects {
            let of_kind = cluster.objects.entry(resource).or_default();
            of_kind.insert(full_name(object), object.clone());
        }
        drop(cluster);
        self.state.moved.send_replace(50);
        self.cut();
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        self.state.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Answers nobody, and lets go of everybody; or is there again.
    pub(crate) fn go_away(&self, is_away: bool) {
        self.cluster().is_away = is_away;
        self.cut();
    }

    /// What was asked for so far, in order: the path with its query, and `(metadata)` where only that was wanted.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.cluster().requests.clone()
    }

    /// Waits until something was asked for `times` times.
    pub(crate) async fn asked(&self, what: impl Fn(&str) -> bool, times: usize) {
        let is_asked = || self.requests().iter().filter(|path| what(path)).count() >= times;
        let in_time = support::comes_within_async(PATIENCE, is_asked).await;
        assert!(in_time, "{:#?}", self.requests());
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.state.cluster.lock().expect("a test that is set up")
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

/// Answers the requests of one connection.
async fn converse(state: &State, stream: TcpStream) -> std::io::Result<()> {
    let (reader, writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut writer = BufWriter::new(writer);
    while let Some(first) = lines.next_line().await? {
        let (mut only_metadata, mut length) = (false, 0);
        while let Some(line) = lines.next_line().await?.filter(|line| !line.is_empty()) {
            only_metadata |= line.contains("PartialObjectMetadata");
            let value = line.to_ascii_lowercase();
            if let Some(value) = value.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        lines.get_mut().read_exact(&mut body).await?;
        let mut words = first.split(' ').map(str::to_owned);
        let method = words.next().unwrap_or_default();
        let path = words.next().unwrap_or_default();
        let Some(asked) = Asked::parse(&path) else {
            respond(&mut writer, &about_pools(state, &path)).await?;
            continue;
        };
        {
            let mut cluster = state.cluster.lock().expect("a test that is set up");
            if cluster.is_away {
                return Ok(());
            }
            let suffix = if only_metadata { " (metadata)" } else { "" };
            let verb = match &*method {
                "GET" => String::new(),
                other => format!("{other} "),
            };
            cluster.requests.push(format!("{verb}{path}{suffix}"));
        }
        if habits(state).is_silent {
            return std::future::pending().await;
        }
        if method != "GET" {
            let written = writes::write(state, &asked, &method, &body);
            respond(&mut writer, &written).await?;
            continue;
        }
        if let Some(from) = asked.watch_from
            && !refused(state, &asked, from)
        {
            return stream_events(state, &asked, from, &mut writer).await;
        }
        respond(&mut writer, &answer(state, &asked, only_metadata)).await?;
    }
    Ok(())
}

async fn respond(writer: &mut (impl AsyncWriteExt + Unpin), body: &Value) -> std::io::Result<()> {
    let code = match body["kind"].as_str() {
        Some("Status") => body["code"].as_u64().unwrap_or(500),
        _ => 200,
    };
    let retry_after = match body["details"]["retryAfterSeconds"].as_u64() {
        Some(seconds @ 1..) => format!("retry-after: {seconds}\r\n"),
        _ => String::new(),
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code} Fine\r\ncontent-type: application/json\r\n{retry_after}content-length: {}\r\n\r\n",
        body.len()
    );
    writer.write_all(head.as_bytes()).await?;
    writer.write_all(body.as_bytes()).await?;
    writer.flush().await
}

fn refused(state: &State, asked: &Asked, from: u64) -> bool {
    let cluster = state.cluster.lock().expect("a test that is set up");
    cluster.refused.contains_key(asked.resource)
        || (from > *state.moved.borrow() && !cluster.takes_what_is_to_come)
        || (cluster.forgets_with_status && from < cluster.oldest && !asked.is_from_now)
}

async fn stream_events(
    state: &State,
    asked: &Asked,
    mut from: u64,
    writer: &mut (impl AsyncWriteExt + Unpin),
) -> std::io::Result<()> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    writer.write_all(head.as_bytes()).await?;
    if habits(state).ends_watches {
        writer.write_all(b"0\r\n\r\n").await?;
        return writer.flush().await;
    }
    let mut moved = state.moved.subscribe();
    if asked.is_from_now {
        let there: Vec<String> = {
            let cluster = state.cluster.lock().expect("a test that is set up");
            from = *moved.borrow_and_update();
            let of_kind = cluster.objects.get(asked.resource).into_iter().flatten();
            let seen = of_kind.filter(|(_, object)| asked.sees(object));
            seen.map(|(_, object)| json!({"type": "ADDED", "object": object}).to_string())
                .collect()
        };
        for event in there {
            chunk(writer, &event).await?;
        }
    }
    loop {
        let (events, is_forgotten) = {
            let cluster = state.cluster.lock().expect("a test that is set up");
            let news = cluster.log.iter().filter(|logged| logged.version > from);
            let events: Vec<String> = news
                .filter(|logged| logged.resource == asked.resource)
                .filter(|logged| {
                    logged.event["type"] == "BOOKMARK" || asked.sees(&logged.event["object"])
                })
                .map(|logged| logged.event.to_string())
                .collect();
            (events, from < cluster.oldest)
        };
        from = *moved.borrow_and_update();
        if is_forgotten {
            let event = json!({"type": "ERROR", "object": status(410, 0)}).to_string();
            return chunk(writer, &event).await;
        }
        for event in events {
            chunk(writer, &event).await?;
        }
        writer.flush().await?;
        if moved.changed().await.is_err() {
            return Ok(());
        }
    }
}

fn habits(state: &State) -> Habits {
    let cluster = state.cluster.lock().expect("a test that is set up");
    cluster.habits.clone()
}

async fn chunk(writer: &mut (impl AsyncWriteExt + Unpin), line: &str) -> std::io::Result<()> {
    let chunk = format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
    writer.write_all(chunk.as_bytes()).await?;
    writer.flush().await
}

fn answer(state: &State, asked: &Asked, only_metadata: bool) -> Value {
    let cluster = state.cluster.lock().expect("a test that is set up");
    if let Some(status) = cluster.refused.get(asked.resource) {
        return status.clone();
    }
    if asked.skip > 0 && cluster.habits.forgets_pages {
        return status(410, 0);
    }
    if let Some(from) = asked.watch_from {
        let is_to_come = from > *state.moved.borrow();
        return status(if is_to_come { 504 } else { 410 }, 0);
    }
    let none = BTreeMap::new();
    let objects = cluster.objects.get(asked.resource).unwrap_or(&none);
    if let Some(name) = &asked.name {
        return match objects.get(name) {
            Some(object) if only_metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            }),
            Some(object) => object.clone(),
            None => status(404, 0),
        };
    }
    let seen: Vec<&Value> = objects
        .values()
        .filter(|object| asked.sees(object))
        .collect();
    let rest = seen.get(asked.skip..).unwrap_or_default();
    let page = rest.get(..asked.limit).unwrap_or(rest);
    let mut metadata = json!({"resourceVersion": state.moved.borrow().to_string()});
    if page.len() < rest.len() {
        metadata["continue"] = json!((asked.skip + page.len()).to_string());
    }
    json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": page})
}

/// The kind AddressPool is there where it is refused.
fn about_pools(state: &State, path: &str) -> Value {
    let cluster = state.cluster.lock().expect("a test that is set up");
    match cluster.refused.get("addresspools") {
        Some(refusal) if path.contains("/addresspools") => refusal.clone(),
        Some(_) if path.ends_with("/apis/ballast.dev/v1") => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ballast.dev/v1",
            "resources": [{
                "name": "addresspools", "singularName": "addresspool", "namespaced": false,
                "kind": "AddressPool", "verbs": ["list", "watch"],
            }],
        }),
        _ => status(404, 0),
    }
}

fn status(code: u16, retry_after: u32) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "AlreadyExists",
        410 => "Expired",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let causes = match code {
        // As an API server says that a version is still to come.
        504 => {
            json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}])
        }
        _ => json!([]),
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "as the test wants it", "reason": reason, "code": code,
        "details": {"retryAfterSeconds": retry_after, "causes": causes},
    })
}

fn full_name(object: &Value) -> String {
    let of_meta = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match of_meta("namespace") {
        "" => of_meta("name").to_owned(),
        namespace => format!("{namespace}/{}", of_meta("name")),
    }
}

/// A request, understood.
struct Asked {
    resource: &'static str,
    namespace: Option<String>,
    /// With its namespace.
    name: Option<String>,
    /// Of the object.
    is_status: bool,
    watch_from: Option<u64>,
    /// A watch from now on, which begins with everything that is there.
    is_from_now: bool,
    /// The only name that is asked for.
    only: Option<String>,
    limit: usize,
    skip: usize,
}

impl Asked {
    /// `None`: it is about no object.
    fn parse(path: &str) -> Option<Self> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<&str> = path.split('/').collect();
        let at = parts.iter().position(|part| RESOURCES.contains(part))?;
        let resource = RESOURCES.iter().find(|known| **known == parts[at]);
        let namespace =
            (at >= 2 && parts[at - 2] == "namespaces").then(|| parts[at - 1].to_owned());
        let of_query = |field: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(name, value)| (name == field).then_some(value))
        };
        let number = |field: &str| of_query(field).and_then(|value| value.parse::<usize>().ok());
        Some(Self {
            resource: resource.expect("a kind that the test knows"),
            is_status: parts.get(at + 2) == Some(&"status"),
            name: parts.get(at + 1).map(|name| match &namespace {
                Some(namespace) => format!("{namespace}/{name}"),
                None => (*name).to_owned(),
            }),
            namespace,
            watch_from: of_query("watch").map(|_| match of_query("resourceVersion") {
                Some("") => 0,
                version => {
                    let version = version.and_then(|text| text.parse().ok());
                    version.expect("a watch from a version")
                }
            }),
            is_from_now: of_query("resourceVersion") == Some(""),
            only: of_query("fieldSelector")
                .and_then(|text| text.strip_prefix("metadata.name%3D"))
                .map(str::to_owned),
            limit: number("limit").unwrap_or(usize::MAX),
            skip: number("continue").unwrap_or_default(),
        })
    }

    fn sees(&self, object: &Value) -> bool {
        let of_meta = |field: &str| object["metadata"][field].as_str();
        let is_meant = self.only.is_none() || self.only.as_deref() == of_meta("name");
        is_meant && (self.namespace.is_none() || self.namespace.as_deref() == of_meta("namespace"))
    }
}

/// For anything that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
