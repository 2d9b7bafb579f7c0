//! Connections to endpoints that wait for the next request. Each worker has its own.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::endpoint::{EndpointState, Idling};
use ballast_core::moment::Moment;
use ballast_core::table;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::net::tls::MaybeTls;
use crate::worker::Worker;

mod by_owner;
mod links;

use by_owner::ByOwner;
pub(crate) use by_owner::Owner;
pub(crate) use links::{
    Announced, Connecting, ENDPOINT_WINDOW, Found, Links, Multiplexed, Outcome, Use,
};

/// The idle connections of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// The last one of a list was used most recently.
    idle: RefCell<ByOwner<Idle>>,
    count: Cell<usize>,
    /// The most connections of clients, and requests of HTTP/2, that were under way since the last sweep. As many idle connections are
    /// kept: each of them has reserved a descriptor, and requests of HTTP/2 end together and begin together.
    peak: Cell<usize>,
    is_swept: Cell<bool>,
    /// Connections that are being made, whose requests are gone, and that no other request waits for.
    left: RefCell<ByOwner<Rc<LeftBehind>>>,
    /// Its connections of HTTP/2, idle or not.
    pub(crate) links: Links,
}

#[derive(Debug)]
struct Idle {
    stream: MaybeTls,
    endpoint: Idling,
    /// The service as it was when the connection was made.
    service: Arc<table::Service>,
    since: Moment,
}

/// A connection that is being made for a request that is gone. It serves the next one, of any client.
#[derive(Debug)]
pub(crate) struct LeftBehind {
    service: Arc<table::Service>,
    made: RefCell<Option<io::Result<MaybeTls>>>,
    is_made: Notify,
}

impl LeftBehind {
    /// Waits until the connection is there.
    pub(crate) async fn made(&self) -> io::Result<MaybeTls> {
        loop {
            let is_made = self.is_made.notified();
            if let Some(made) = self.made.borrow_mut().take() {
                return made;
            }
            is_made.await;
        }
    }
}

impl Pool {
    /// Goes on making a connection for a request that is gone, if the process has room for one more connection of a client: clients
    /// that come and go would leave any number behind.
    pub(crate) fn leave_behind(
        worker: &Rc<Worker>,
        endpoint: &Arc<EndpointState>,
        service: &Arc<table::Service>,
        making: impl Future<Output = io::Result<MaybeTls>> + 'static,
    ) {
        let Some(share) = worker.shared.admit_request() else {
            return;
        };
        let left = Rc::new(LeftBehind {
            service: Arc::clone(service),
            made: RefCell::default(),
            is_made: Notify::new(),
        });
        let list = &worker.pool.left;
        list.borrow_mut().push(None, endpoint, Rc::clone(&left));
        let (worker, endpoint) = (Rc::clone(worker), Arc::clone(endpoint));
        tokio::task::spawn_local(async move {
            let made = making.await;
            drop(share);
            let is_this = |other: &mut Rc<LeftBehind>| Rc::ptr_eq(other, &left);
            let unclaimed = worker.pool.left.borrow_mut().remove_if(is_this);
            match made {
                Ok(stream) if !unclaimed.is_empty() => {
                    Self::put(&worker, stream, &endpoint, &left.service, None);
                }
                made => {
                    *left.made.borrow_mut() = Some(made);
                    left.is_made.notify_one();
                }
            }
        });
    }

    /// A connection to this endpoint that was left behind.
    pub(crate) fn claim(
        &self,
        endpoint: &Arc<EndpointState>,
        service: &Arc<table::Service>,
    ) -> Option<Rc<LeftBehind>> {
        let mut left = self.left.borrow_mut();
        let list = left.get_mut(None, endpoint)?;
        let at = list
            .iter()
            .position(|left| is_same_service(&left.service, service))?;
        Some(list.remove(at))
    }

    /// Takes back a connection that was claimed for a request that is gone, too.
    pub(crate) fn leave_again(
        worker: &Rc<Worker>,
        endpoint: &Arc<EndpointState>,
        left: Rc<LeftBehind>,
    ) {
        let made = left.made.borrow_mut().take();
        match made {
            None => worker.pool.left.borrow_mut().push(None, endpoint, left),
            Some(Ok(stream)) => Self::put(worker, stream, endpoint, &left.service, None),
            Some(Err(_)) => {}
        }
    }

    /// Takes a connection to this endpoint that is still open.
    pub(crate) fn take(
        &self,
        endpoint: &Arc<EndpointState>,
        service: &Arc<table::Service>,
        owner: Owner,
    ) -> Option<MaybeTls> {
        let mut idle = self.idle.borrow_mut();
        let list = idle.get_mut(owner, endpoint)?;
        loop {
            let mut last = list.pop()?;
            self.count.set(self.count.get() - 1);
            if last.is_usable(service) {
                last.stream.close_by_reset();
                return Some(last.stream);
            }
        }
    }

    /// Keeps a connection on which a response has just ended.
    pub(crate) fn put(
        worker: &Rc<Worker>,
        stream: MaybeTls,
        endpoint: &Arc<EndpointState>,
        service: &Arc<table::Service>,
        owner: Owner,
    ) {
        let pool = &worker.pool;
        stream.close_in_order();
        let in_use = worker.shared.admit.current() as usize;
        pool.peak.set(pool.peak.get().max(in_use));
        if pool.count.get() >= pool.peak.get().max(ALWAYS_KEPT) {
            return;
        }
        let idle = Idle {
            stream,
            endpoint: Idling::begin(endpoint, worker.id, owner.is_some()),
            service: Arc::clone(service),
            since: worker.shared.clock.soon(),
        };
        pool.idle.borrow_mut().push(owner, endpoint, idle);
        pool.count.set(pool.count.get() + 1);
        Self::begin_sweeping(worker);
    }

    /// Closes the connections that a client connection owned.
    pub(crate) fn forget(&self, owner: Owner) {
        self.close(|idle| idle.remove_owned(owner));
        self.links.forget(owner);
    }

    /// Closes the connections to these endpoints.
    pub(crate) fn cut(&self, endpoints: &[Arc<EndpointState>]) {
        self.close(|idle| idle.remove_of(endpoints));
        self.links.cut(endpoints);
    }

    /// Closes the connections that `remove` removes.
    fn close(&self, remove: impl FnOnce(&mut ByOwner<Idle>) -> Vec<Idle>) {
        let gone = remove(&mut self.idle.borrow_mut());
        self.count.set(self.count.get() - gone.len());
    }

    /// Spawns the worker's sweep, unless it runs already. Called after a connection was added.
    pub(crate) fn begin_sweeping(worker: &Rc<Worker>) {
        if !worker.pool.is_swept.replace(true) {
            tokio::task::spawn_local(sweep(Rc::clone(worker)));
        }
    }
}

impl Idle {
    /// Whether the endpoint may take a request by this connection, of a service that is like this.
    fn is_usable(&mut self, service: &Arc<table::Service>) -> bool {
        is_same_service(&self.service, service)
            && !self.endpoint.endpoint().has_ended()
            && !self.stream.is_cut()
            && self.stream.is_idle()
    }
}

/// Whether a connection that was made for `before` may serve requests for `now`.
pub(crate) fn is_same_service(before: &Arc<table::Service>, now: &Arc<table::Service>) -> bool {
    let is_alike = || {
        before.tls == now.tls
            && before.source == now.source
            && before.send_proxy == now.send_proxy
            && before.send_proxy_tlvs == now.send_proxy_tlvs
    };
    Arc::ptr_eq(before, now) || is_alike()
}

/// Closes the connections that were not used for [`IDLE`], and those that the endpoint has closed.
async fn sweep(worker: Rc<Worker>) {
    let pool = &worker.pool;
    while !(pool.idle.borrow().is_empty() && pool.links.is_empty()) {
        sleep(SWEEP).await;
        let now = worker.shared.clock.now();
        pool.close(|idle| {
            idle.remove_if(|idle| {
                now.since(idle.since) >= IDLE
                    || idle.endpoint.endpoint().has_ended()
                    || !idle.stream.is_idle()
            })
        });
        pool.links.sweep(now);
        pool.peak.set(worker.shared.admit.current() as usize);
    }
    pool.is_swept.set(false);
}

/// Shorter than 5 s, after which Node.js and Apache close a connection by default: the fewer requests meet a connection that is
/// just being closed, the better.
pub(crate) const IDLE: Duration = Duration::from_secs(4);
const SWEEP: Duration = Duration::from_secs(1);
/// This many connections are kept even if there are fewer clients.
const ALWAYS_KEPT: usize = 32;
