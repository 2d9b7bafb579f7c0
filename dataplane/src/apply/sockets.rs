//! The listening sockets: opened by apply, handed out to the workers, and closed by them when apply says so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ballast_core::plan::{Plan, SocketKey, Transport};
use ballast_core::rng::mix;
use socket2::Socket;
use tokio::sync::oneshot;

use crate::listen;
use crate::worker::{Order, Shared};

/// All of them.
#[derive(Debug)]
pub(super) struct Sockets {
    shared: Arc<Shared>,
    /// How many connections fitted when that was last logged.
    said: usize,
    bound: BTreeMap<SocketKey, Bound>,
    failed: BTreeMap<SocketKey, String>,
}

/// A socket that is there.
#[derive(Debug)]
struct Bound {
    key: Arc<SocketKey>,
    local: SocketAddr,
    workers: Vec<usize>,
    foreign: bool,
}

/// Sockets of one address that nobody reads yet.
pub(super) type Opened = (SocketKey, Vec<Socket>);

impl Sockets {
    /// None are there yet.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            said: shared.room.at_rest().connections,
            shared,
            bound: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Those that are there.
    pub(super) fn there(&self) -> BTreeSet<SocketKey> {
        self.bound.keys().cloned().collect()
    }

    /// Those that are not there, but tried again.
    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// Why it is not there, if it was asked for.
    pub(super) fn why_not(&self, key: &SocketKey) -> Option<&str> {
        self.failed.get(key).map(String::as_str)
    }

    /// Whether it is bound to an address that this node did not hold when last looked at.
    pub(super) fn is_foreign(&self, key: &SocketKey) -> bool {
        self.bound.get(key).is_some_and(|bound| bound.foreign)
    }

    /// Binds what a plan wants beside what is there; what cannot be bound is that one bind's failure, and of the failures
    /// before it only those that are wanted still are remembered.
    pub(super) fn open_wanted(&mut self, keys: &[SocketKey]) -> Vec<Opened> {
        let wanted: BTreeSet<&SocketKey> = keys.iter().collect();
        self.failed.retain(|key, _| wanted.contains(key));
        self.open(keys)
    }

    fn open(&mut self, keys: &[SocketKey]) -> Vec<Opened> {
        let mut opened = Vec::new();
        let room = self.shared.room;
        let (descriptors, buffers) = (room.at_rest(), room.memory.map(|memory| memory.buffers));
        let mut there = self.listening();
        for key in keys {
            let Some(count) = descriptors.sockets(there) else {
                let why = format!(
                    "bind {}: {there} listening sockets are as many as {} descriptors allow; raise the limit (ulimit -n), or serve fewer addresses",
                    key.address, descriptors.total
                );
                self.fail(key, why);
                continue;
            };
            match listen::open(key, count, buffers) {
                Ok(sockets) => {
                    there += sockets.len();
                    self.failed.remove(key);
                    opened.push((key.clone(), sockets));
                }
                Err(error) => self.fail(key, listen::explain(key.address, &error)),
            }
        }
        opened
    }

    fn fail(&mut self, key: &SocketKey, why: String) {
        if self.failed.get(key) != Some(&why) {
            tracing::error!("{why}");
            self.failed.insert(key.clone(), why);
        }
    }

    /// Has the workers read them. An address is served by all its sockets, or by none.
    pub(super) async fn hand_out(&mut self, opened: Vec<Opened>) {
        let mut waiting = Vec::new();
        let mut addresses = Addresses::default();
        for (key, sockets) in opened {
            let bound = self.order_to_listen(&key, sockets, &mut addresses, &mut waiting);
            self.bound.insert(key, bound);
        }
        for (key, told) in waiting {
            if let Ok(Err(error)) = told.await {
                let plan = self.shared.live.plan();
                self.close(std::slice::from_ref(&key), &plan).await;
                self.fail(&key, format!("bind {key}: cannot be watched: {error}"));
            }
        }
        self.say_what_listens();
    }

    fn order_to_listen(
        &self,
        key: &SocketKey,
        sockets: Vec<Socket>,
        addresses: &mut Addresses,
        waiting: &mut Vec<(SocketKey, oneshot::Receiver<std::io::Result<()>>)>,
    ) -> Bound {
        let workers = self.shared.loads.len();
        let local = sockets
            .first()
            .and_then(|socket| socket.local_addr().ok()?.as_socket());
        // A single socket belongs to one worker for its life, always the same one.
        let first = if sockets.len() == workers {
            0
        } else {
            home(key.address, workers)
        };
        let mut bound = Bound {
            key: Arc::new(key.clone()),
            local: local.unwrap_or(key.address),
            workers: Vec::new(),
            foreign: !addresses.are_here(key.address.ip()),
        };
        for (worker, socket) in (first..).zip(sockets) {
            let (done, told) = oneshot::channel();
            let order = Order::Listen {
                key: Arc::clone(&bound.key),
                socket,
                done,
            };
            if self.order(worker, order) {
                bound.workers.push(worker);
                waiting.push((key.clone(), told));
            }
        }
        bound
    }

    /// Sockets that listen now.
    fn listening(&self) -> usize {
        self.bound.values().map(|bound| bound.workers.len()).sum()
    }

    fn say_what_listens(&mut self) {
        let listening = self
            .bound
            .iter()
            .map(|(key, bound)| (key.clone(), bound.local));
        self.shared.status.set_listening(listening.collect());
        let has_udp = self.bound.keys().any(|key| key.transport == Transport::Udp);
        self.shared
            .status
            .set_not_accepting(self.why_not_accepting());
        let descriptors = self.shared.divide(self.listening(), has_udp);
        if self.said.abs_diff(descriptors.connections) > self.said / 8 {
            self.said = descriptors.connections;
            self.shared.room.say(&descriptors);
        }
    }

    /// Why no client can be accepted, if none can: addresses are wanted, and not one of them could be bound.
    fn why_not_accepting(&self) -> Option<String> {
        let why = self.failed.values().next()?;
        let count = self.failed.len();
        self.bound
            .is_empty()
            .then(|| format!("none of the table's {count} addresses could be bound; {why}"))
    }

    /// Closes whole addresses, each after what its queue holds was accepted.
    pub(super) async fn close(&mut self, keys: &[SocketKey], last: &Arc<Plan>) {
        if keys.is_empty() {
            return;
        }
        let mut waiting = Vec::new();
        let gone: Vec<Bound> = keys
            .iter()
            .filter_map(|key| self.bound.remove(key))
            .collect();
        for bound in gone {
            for worker in bound.workers {
                let (done, told) = oneshot::channel();
                let order = Order::Close {
                    key: Arc::clone(&bound.key),
                    plan: Arc::clone(last),
                    done,
                };
                if self.order(worker, order) {
                    waiting.push(told);
                }
            }
        }
        for told in waiting {
            told.await.ok();
        }
        self.say_what_listens();
    }

    /// Begins no more flows, and accepts no more connections. Flows that go on need the socket that they came by.
    pub(super) async fn finish(&mut self, last: &Arc<Plan>) {
        let mut waiting = Vec::new();
        for worker in 0..self.shared.inboxes.len() {
            let (done, told) = oneshot::channel();
            if self.order(worker, Order::Finish { done }) {
                waiting.push(told);
            }
        }
        for told in waiting {
            told.await.ok();
        }
        let connections: Vec<SocketKey> = self
            .bound
            .keys()
            .filter(|key| key.transport == Transport::Tcp)
            .cloned()
            .collect();
        self.close(&connections, last).await;
    }

    fn order(&self, worker: usize, order: Order) -> bool {
        let inbox = self.shared.inboxes.get(worker);
        inbox.is_some_and(|inbox| inbox.send(order).is_ok())
    }

    /// Tries again what could not be bound, and looks again at addresses that may have come or gone.
    pub(super) async fn retry(&mut self) {
        let keys: Vec<SocketKey> = self.failed.keys().cloned().collect();
        let opened = self.open(&keys);
        for (key, _) in &opened {
            tracing::info!(address = %key, "listening at last");
        }
        self.hand_out(opened).await;
        let mut addresses = Addresses::default();
        for bound in self.bound.values_mut() {
            bound.foreign = !addresses.are_here(bound.key.address.ip());
        }
    }
}

/// What one pass over the sockets has found out about addresses: each is looked at once.
#[derive(Default)]
struct Addresses(HashMap<IpAddr, bool>);

impl Addresses {
    fn are_here(&mut self, address: IpAddr) -> bool {
        *self
            .0
            .entry(address)
            .or_insert_with(|| listen::is_local(address))
    }
}

/// The worker that owns a single socket.
fn home(address: SocketAddr, workers: usize) -> usize {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => {
            mix(u64::try_from(ip.to_bits() >> 64).unwrap_or(0))
                ^ u64::try_from(ip.to_bits() & u128::from(u64::MAX)).unwrap_or(0)
        }
    };
    let spread = mix(ip.rotate_left(16) ^ u64::from(address.port()));
    usize::try_from(spread % workers as u64).unwrap_or(0)
}
