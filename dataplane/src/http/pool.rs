//! Connections to endpoints that wait for the next request. Each worker has its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::table;
use rustc_hash::FxHashMap;
use tokio::time::sleep;

use super::links::Links;
use crate::tls::MaybeTls;
use crate::worker::Worker;

/// The idle connections of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// By the address of the endpoint's state. The last one of a list was used most recently.
    idle: RefCell<FxHashMap<usize, VecDeque<Idle>>>,
    count: Cell<usize>,
    is_swept: Cell<bool>,
    /// Its connections of HTTP/2, idle or not.
    pub(crate) links: Links,
}

/// The client connection to which the idle connections of a service that does not share them belong: its slot among the worker's
/// connections, and when it began.
pub(crate) type Owner = Option<(usize, Moment)>;

#[derive(Debug)]
struct Idle {
    stream: MaybeTls,
    endpoint: Arc<EndpointState>,
    /// The service as it was when the connection was made.
    service: Arc<table::Service>,
    owner: Owner,
    since: Moment,
}

impl Pool {
    /// Takes a connection to this endpoint that is still open.
    pub(crate) fn take(
        &self,
        endpoint: &Arc<EndpointState>,
        service: &Arc<table::Service>,
        owner: Owner,
    ) -> Option<MaybeTls> {
        let mut pool = self.idle.borrow_mut();
        let idle = pool.get_mut(&key(endpoint))?;
        while let Some(at) = idle.iter().rposition(|idle| idle.owner == owner) {
            let mut found = idle.remove(at)?;
            self.count.set(self.count.get() - 1);
            if found.is_usable(service) {
                found.stream.close_by_reset();
                return Some(found.stream);
            }
        }
        None
    }

    /// Keeps a connection on which a response has just ended.
    pub(super) fn put(
        worker: &Rc<Worker>,
        stream: MaybeTls,
        endpoint: &Arc<EndpointState>,
        service: &Arc<table::Service>,
        owner: Owner,
    ) {
        let pool = &worker.pool;
        stream.close_in_order();
        if pool.count.get() >= worker.shared.connections().max(ALWAYS_KEPT) {
            return;
        }
        let idle = Idle {
            stream,
            endpoint: Arc::clone(endpoint),
            service: Arc::clone(service),
            owner,
            since: worker.shared.clock.soon(),
        };
        let mut lists = pool.idle.borrow_mut();
        lists.entry(key(endpoint)).or_default().push_back(idle);
        pool.count.set(pool.count.get() + 1);
        drop(lists);
        if !pool.is_swept.replace(true) {
            tokio::task::spawn_local(sweep(Rc::clone(worker)));
        }
    }

    /// Closes the connections that a client connection owned.
    pub(super) fn forget(&self, owner: Owner) {
        if owner.is_some() {
            self.retain(|idle| idle.owner != owner);
            self.links.forget(owner);
        }
    }

    /// Closes the connections to these endpoints.
    pub(crate) fn cut(&self, endpoints: &[Arc<EndpointState>]) {
        for endpoint in endpoints {
            let gone = self.idle.borrow_mut().remove(&key(endpoint));
            self.count
                .set(self.count.get() - gone.map_or(0, |gone| gone.len()));
        }
        self.links.cut(endpoints);
    }

    fn retain(&self, mut keep: impl FnMut(&mut Idle) -> bool) {
        let mut count = 0;
        self.idle.borrow_mut().retain(|_, idle| {
            idle.retain_mut(&mut keep);
            count += idle.len();
            !idle.is_empty()
        });
        self.count.set(count);
    }
}

impl Idle {
    /// Whether the endpoint may take a request by this connection, of a service that is like this.
    fn is_usable(&mut self, service: &Arc<table::Service>) -> bool {
        is_same_service(&self.service, service)
            && !self.endpoint.has_ended()
            && !self.stream.is_cut()
            && self.stream.is_idle()
    }
}

/// Whether a connection that was made for `before` may serve requests for `now`.
pub(super) fn is_same_service(before: &Arc<table::Service>, now: &Arc<table::Service>) -> bool {
    Arc::ptr_eq(before, now) || before.tls == now.tls && before.source == now.source
}

pub(super) fn key(endpoint: &Arc<EndpointState>) -> usize {
    Arc::as_ptr(endpoint).addr()
}

/// Closes the connections that nobody has used for [`IDLE`], and those that the endpoint has closed.
async fn sweep(worker: Rc<Worker>) {
    let pool = &worker.pool;
    while pool.count.get() > 0 {
        sleep(SWEEP).await;
        let now = worker.shared.clock.now();
        pool.retain(|idle| {
            now.since(idle.since) < IDLE && !idle.endpoint.has_ended() && idle.stream.is_idle()
        });
    }
    pool.is_swept.set(false);
}

/// Shorter than 5 s, after which Node.js and Apache close a connection by default: the fewer requests meet a connection that is
/// just being closed, the better.
pub(super) const IDLE: Duration = Duration::from_secs(4);
pub(super) const SWEEP: Duration = Duration::from_secs(1);
/// An idle connection uses the descriptor that a client's connection has reserved for its endpoint. So many are kept even if there
/// are fewer clients.
const ALWAYS_KEPT: usize = 32;
