//! A proxy between Ballast and an API server. It counts what is asked, and fails as a test says: as an API server that is overloaded,
//! that refuses writes, that ends watches or forgets them, and as a network that loses them.
//!
//! It is asked by HTTP without TLS. Who asks is known by the address.

use std::convert::Infallible;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::corner::Corner;

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 429 to all, with `Retry-After`.
    TooManyRequests,
    /// 409 to writes.
    Conflicts,
    /// 500 to all.
    Errors,
    /// A watch is cut in the middle of an event, again and again.
    CutWatches,
    /// A watch is told that its version is too old, by turns as an answer and as an event.
    ExpiredWatches,
    /// A watch is answered, and then nothing is ever heard of it, not even of its end.
    HangingWatches,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    pub(crate) from: IpAddr,
    pub(crate) method: Method,
    pub(crate) path: String,
}

impl Asked {
    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }
}

/// It runs until it is dropped.
pub(crate) struct FaultProxy {
    state: Arc<State>,
    _runtime: Runtime,
}

/// A fault, and whom it hits.
#[derive(Clone, Debug)]
struct Trouble {
    fault: Fault,
    /// Empty: everybody.
    hit: Vec<IpAddr>,
}

struct State {
    client: Client,
    trouble: watch::Sender<Option<Trouble>>,
    asked: Mutex<Vec<Asked>>,
}

type Stream = BoxStream<'static, Result<Frame<Bytes>, Cut>>;
type Answer = Response<StreamBody<Stream>>;

/// The end of a connection in the middle of an answer.
#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct Cut;

impl FaultProxy {
    /// Starts it in the network of this thread. From now on what is started in this corner asks it in the API server's place.
    pub(crate) fn start(corner: &Corner<'_>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let config = corner.folder.path().join("proxy");
        // Who asks says who it is.
        fs::write(&config, corner.plane.kubeconfig("")).expect("a file");
        let client = runtime.block_on(client(&config));
        let state = Arc::new(State {
            client,
            trouble: watch::channel(None).0,
            asked: Mutex::default(),
        });
        let place = (crate::plane::PLACE, 0);
        let listener = runtime.block_on(TcpListener::bind(place));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(serve(listener, Arc::clone(&state)));
        corner.ask_at(format!("http://{address}"));
        Self {
            state,
            _runtime: runtime,
        }
    }

    /// From now on this happens to all, or to who has one of these addresses.
    pub(crate) fn fail(&self, fault: Fault, hit: &[IpAddr]) {
        let hit = hit.to_vec();
        self.state
            .trouble
            .send_replace(Some(Trouble { fault, hit }));
    }

    /// The end of [`Self::fail`]. A watch that hangs hangs on.
    pub(crate) fn mend(&self) {
        self.state.trouble.send_replace(None);
    }

    /// What was asked since then.
    pub(crate) fn asked_since(&self, begin: Instant) -> Vec<Asked> {
        let asked = self.state.asked();
        asked
            .iter()
            .filter(|one| one.at >= begin)
            .cloned()
            .collect()
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let mut file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    file.auth_infos.clear();
    for context in &mut file.contexts {
        if let Some(context) = &mut context.context {
            context.user = None;
        }
    }
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a kubeconfig");
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, from)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = service_fn(move |request| {
            let state = Arc::clone(&state);
            async move { Ok::<_, Infallible>(state.answer(request, from).await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // A client that goes away, or an answer that was cut.
            connection.await.ok();
        });
    }
}

impl State {
    fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that hits who has this address.
    fn fault(&self, from: IpAddr) -> Option<Fault> {
        fault(self.trouble.borrow().as_ref(), from)
    }

    async fn answer(&self, request: Request<Incoming>, from: SocketAddr) -> Answer {
        let from = from.ip();
        let target = request.uri().path_and_query();
        let path = target.map(ToString::to_string).unwrap_or_default();
        let asked = Asked {
            at: Instant::now(),
            from,
            method: request.method().clone(),
            path,
        };
        let is_watch = asked.path.contains("watch=true");
        let is_write = asked.is_write();
        let number = {
            let mut all = self.asked();
            all.push(asked);
            all.len()
        };
        match self.fault(from) {
            Some(Fault::TooManyRequests) => refused(429, "TooManyRequests"),
            Some(Fault::Errors) => refused(500, "InternalError"),
            Some(Fault::Conflicts) if is_write => refused(409, "Conflict"),
            Some(Fault::ExpiredWatches) if is_watch && number % 2 == 0 => refused(410, "Expired"),
            _ => match self.pass_on(request).await {
                Some(answer) if is_watch => self.watched(answer, from),
                Some(answer) => answer.map(|body| StreamBody::new(passed_on(body))),
                None => refused(503, "ServiceUnavailable"),
            },
        }
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Option<Response<Body>> {
        let (mut head, body) = request.into_parts();
        // That of the API server takes its place.
        head.headers.remove(HOST);
        let body = body.collect().await.ok()?.to_bytes();
        let request = Request::from_parts(head, Body::from(body.to_vec()));
        self.client.send(request).await.ok()
    }

    /// A watch, which meets the faults of its time.
    fn watched(&self, answer: Response<Body>, from: IpAddr) -> Answer {
        let trouble = self.trouble.subscribe();
        answer.map(|body| {
            let events = body.into_data_stream().boxed();
            let watched = stream::unfold(Some((events, trouble)), move |state| async move {
                let (mut events, mut trouble) = state?;
                loop {
                    let fault = fault(trouble.borrow_and_update().as_ref(), from);
                    let (last, is_cut) = match fault {
                        None | Some(Fault::Conflicts) => {
                            tokio::select! {
                                event = events.next() => {
                                    let event = event?.map(Frame::data).map_err(|_| Cut);
                                    return Some((vec![event], Some((events, trouble))));
                                }
                                changed = trouble.changed() => {
                                    changed.ok()?;
                                    continue;
                                }
                            }
                        }
                        Some(Fault::HangingWatches) => std::future::pending().await,
                        Some(Fault::TooManyRequests | Fault::Errors) => return None,
                        Some(Fault::ExpiredWatches) => (expired(), false),
                        Some(Fault::CutWatches) => {
                            let event = timeout(BEFORE_CUT, events.next()).await;
                            (half(event.ok().flatten()), true)
                        }
                    };
                    let mut last = vec![Ok(Frame::data(last))];
                    last.extend(is_cut.then_some(Err(Cut)));
                    return Some((last, None));
                }
            });
            StreamBody::new(watched.flat_map(stream::iter).boxed())
        })
    }
}

fn fault(trouble: Option<&Trouble>, from: IpAddr) -> Option<Fault> {
    let trouble = trouble?;
    let is_hit = trouble.hit.is_empty() || trouble.hit.contains(&from);
    is_hit.then_some(trouble.fault)
}

fn passed_on(body: Body) -> Stream {
    let frames = body.into_data_stream();
    frames
        .map(|data| data.map(Frame::data).map_err(|_| Cut))
        .boxed()
}

/// The event that ends a watch whose version is too old.
fn expired() -> Bytes {
    let event = json!({"type": "ERROR", "object": status(410, "Expired")});
    Bytes::from(format!("{event}\n"))
}

/// The first half of what would be sent, or of some event.
fn half(event: Option<Result<Bytes, kube::Error>>) -> Bytes {
    match event {
        Some(Ok(event)) => event.slice(..event.len() / 2),
        _ => Bytes::from_static(br#"{"type":"MODIFIED","object":{"metadata":{"na"#),
    }
}

fn refused(code: u16, reason: &str) -> Answer {
    let text = Bytes::from(status(code, reason).to_string());
    let body = StreamBody::new(stream::iter([Ok(Frame::data(text))]).boxed());
    let mut answer = Response::builder()
        .status(code)
        .header(CONTENT_TYPE, "application/json");
    if code == 429 {
        answer = answer.header(RETRY_AFTER, "2");
    }
    answer.body(body).expect("an answer")
}

fn status(code: u16, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the proxy of a test answers so", "reason": reason, "code": code,
    })
}

/// Time for a watch to begin.
const BEFORE_CUT: Duration = Duration::from_secs(1);
