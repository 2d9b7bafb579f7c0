//! The listening sockets: opened by `apply`, handed to the workers, and closed by them on order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ballast_core::handover::Handed;
use ballast_core::plan::{SocketKey, Transport};
use ballast_core::rng::mix;
use socket2::Socket;
use tokio::sync::oneshot;

use super::sharing::Sharing;
use crate::net::listen;
use crate::process::fd_store::FdStore;
use crate::process::handover::next::{MovedFlows, Taken};
use crate::process::handover::old::HandedSockets;
use crate::process::handover::{Lent, MovedFlow, inode};
use crate::process::succession::Succession;
use crate::worker::live::Serving;
use crate::worker::{Close, Order, Shared};

/// All listening sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    shared: Arc<Shared>,
    /// The limit of connections that was last logged.
    last_logged: usize,
    bound: BTreeMap<SocketKey, Bound>,
    failed: BTreeMap<SocketKey, String>,
    sharing: Sharing,
    succession: Succession,
    store: FdStore,
    /// What systemd has kept of a process that was killed, until the first table is in force.
    kept: BTreeMap<SocketKey, Vec<Socket>>,
    /// This process is ending: sockets of datagrams that are open still carry replies, and begin no flow.
    is_ending: bool,
}

/// The sockets of one address that are bound.
#[derive(Debug)]
struct Bound {
    key: Arc<SocketKey>,
    local: SocketAddr,
    /// The worker of each socket.
    workers: Vec<usize>,
    sockets: Vec<Arc<Socket>>,
    inodes: BTreeSet<u64>,
    is_foreign: bool,
}

/// Bound sockets of one address that no worker reads yet.
pub(super) type Opened = (SocketKey, Vec<Socket>);

impl Sockets {
    /// No sockets yet, but what systemd has kept.
    pub(super) fn new(shared: Arc<Shared>, succession: Succession) -> Self {
        let (store, kept) = FdStore::open();
        Self {
            last_logged: shared.room.at_rest().connections,
            shared,
            bound: BTreeMap::new(),
            failed: BTreeMap::new(),
            sharing: Sharing::default(),
            succession,
            store,
            kept,
            is_ending: false,
        }
    }

    pub(super) fn bound_keys(&self) -> BTreeSet<SocketKey> {
        self.bound.keys().cloned().collect()
    }

    /// The number of addresses that could not be bound, and are retried.
    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// Why this address could not be bound.
    pub(super) fn why_not(&self, key: &SocketKey) -> Option<&str> {
        self.failed.get(key).map(String::as_str)
    }

    /// Why addresses could not be bound.
    pub(super) fn failures(&self) -> impl Iterator<Item = &str> {
        self.failed.values().map(String::as_str)
    }

    /// Whether it is bound to an address that this node did not hold when last checked.
    pub(super) fn is_foreign(&self, key: &SocketKey) -> bool {
        self.bound.get(key).is_some_and(|bound| bound.is_foreign)
    }

    /// Binds the additional sockets of a plan. An address that cannot be bound fails that one bind only. Earlier failures are
    /// kept only for sockets that are still wanted.
    pub(super) fn open_wanted(&mut self, keys: &[SocketKey]) -> Vec<Opened> {
        let wanted: BTreeSet<&SocketKey> = keys.iter().collect();
        self.failed.retain(|key, _| wanted.contains(key));
        self.open(keys, self.listening())
    }

    /// `there`: how many sockets listen already.
    fn open(&mut self, keys: &[SocketKey], mut there: usize) -> Vec<Opened> {
        let mut opened = Vec::new();
        let room = self.shared.room;
        let (descriptors, buffers) = (room.at_rest(), room.memory.map(|memory| memory.buffers));
        for key in keys {
            let Some(count) = descriptors.sockets(there) else {
                let why = format!(
                    "bind {}: {there} listening sockets are as many as {} descriptors allow; raise the limit (ulimit -n), or serve fewer addresses",
                    key.address, descriptors.total
                );
                self.fail(key, why);
                continue;
            };
            if let Some(sockets) = self.kept.remove(key) {
                let sockets = listen::adopt(key, sockets, count, buffers);
                there += sockets.len();
                self.failed.remove(key);
                opened.push((key.clone(), sockets));
                continue;
            }
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

    /// Serves from the sockets that the process before handed over, and binds the others of a plan. Datagrams wait in their
    /// sockets until the flows of that process have come; connections do not wait for that.
    pub(super) async fn take_over(&mut self, mut taken: Taken, keys: &[SocketKey]) {
        self.failed.clear();
        let is_udp = |key: &SocketKey| key.transport == Transport::Udp;
        let (datagrams, streams): (Vec<_>, Vec<_>) = keys.iter().cloned().partition(is_udp);
        let mut flows = MovedFlows::new();
        let opened = self.adopt(&mut taken.sockets, &streams, &flows);
        self.hand_out(opened).await;
        flows.extend(taken.flows().await);
        let opened = self.adopt(&mut taken.sockets, &datagrams, &flows);
        self.hand_out_with(opened, flows).await;
    }

    /// Prepares the sockets that were handed over, and binds the others. Where clients have flows, the number of sockets stays:
    /// another number would lead their datagrams to other workers.
    fn adopt(
        &mut self,
        inherited: &mut BTreeMap<SocketKey, Vec<Socket>>,
        keys: &[SocketKey],
        flows: &MovedFlows,
    ) -> Vec<Opened> {
        let room = self.shared.room;
        let (descriptors, buffers) = (room.at_rest(), room.memory.map(|memory| memory.buffers));
        let has_flows = |socket: &Socket| inode(socket).is_some_and(|it| flows.contains_key(&it));
        let mut adopted = Vec::new();
        let mut there = self.listening();
        for key in keys {
            let Some(sockets) = inherited.remove(key) else {
                continue;
            };
            let count = if sockets.iter().any(has_flows) {
                sockets.len()
            } else {
                descriptors.sockets(there).unwrap_or(1)
            };
            let sockets = listen::adopt(key, sockets, count, buffers);
            there += sockets.len();
            adopted.push((key.clone(), sockets));
        }
        let known: BTreeSet<SocketKey> = adopted.iter().map(|(key, _)| key.clone()).collect();
        let is_new = |key: &&SocketKey| !known.contains(*key);
        let rest: Vec<SocketKey> = keys.iter().filter(is_new).cloned().collect();
        adopted.extend(self.open(&rest, there));
        adopted
    }

    /// Every socket, for the next process.
    pub(super) fn lend(&self) -> Vec<Lent> {
        let all = self.bound.values().flat_map(|bound| {
            bound.sockets.iter().map(|socket| Lent {
                handed: Handed::of_clients(&bound.key),
                descriptor: Arc::clone(socket) as _,
            })
        });
        all.collect()
    }

    /// Closes what systemd has kept and the table does not have.
    pub(super) fn forget_kept(&mut self) {
        for (key, _) in std::mem::take(&mut self.kept) {
            // The process before may have handed over a socket of the same address, which systemd keeps now.
            if !self.bound.contains_key(&key) {
                self.store.forget(&key);
            }
        }
    }

    fn fail(&mut self, key: &SocketKey, why: String) {
        if self.failed.get(key) != Some(&why) {
            tracing::error!("{why}");
            self.failed.insert(key.clone(), why);
        }
    }

    /// Hands sockets to the workers. An address is served by all its sockets, or by none.
    pub(super) async fn hand_out(&mut self, opened: Vec<Opened>) {
        self.hand_out_with(opened, MovedFlows::new()).await;
    }

    /// Hands sockets to the workers, with the flows of the process before.
    async fn hand_out_with(&mut self, opened: Vec<Opened>, mut flows: MovedFlows) {
        let (mut adopted, all) = (0, flows.values().map(Vec::len).sum::<usize>());
        let mut waiting = Vec::new();
        let mut addresses = LocalAddresses::default();
        if !opened.is_empty() {
            self.succession.withdraw(CHANGED);
            self.sharing.begin();
        }
        let keys: Vec<SocketKey> = opened.iter().map(|(key, _)| key.clone()).collect();
        for (key, sockets) in opened {
            let sockets = sockets.into_iter().map(|socket| {
                let number = inode(&socket);
                let flows = number.and_then(|number| flows.remove(&number));
                (socket, flows.unwrap_or_default())
            });
            let bound = self.send_listen(&key, sockets.collect(), &mut addresses, &mut waiting);
            self.bound.insert(key, bound);
        }
        for (key, receiver) in waiting {
            match receiver.await {
                Ok(Ok(flows)) => adopted += flows,
                Ok(Err(error)) => {
                    let plan = self.shared.live.serving();
                    self.close(std::slice::from_ref(&key), &plan).await;
                    self.fail(&key, format!("bind {key}: cannot be watched: {error}"));
                }
                Err(_) => {}
            }
        }
        let bound = keys.iter().filter_map(|key| self.bound.get(key));
        bound.for_each(|bound| self.store.keep(&bound.key, &bound.sockets, 1));
        if all > 0 {
            tracing::info!("{adopted} of {all} UDP flows go on in this process");
        }
        self.publish_listening();
    }

    fn send_listen(
        &self,
        key: &SocketKey,
        sockets: Vec<(Socket, Vec<MovedFlow>)>,
        addresses: &mut LocalAddresses,
        waiting: &mut Vec<(SocketKey, oneshot::Receiver<std::io::Result<usize>>)>,
    ) -> Bound {
        let workers = self.shared.loads.len();
        let local = sockets
            .first()
            .and_then(|(socket, _)| socket.local_addr().ok()?.as_socket());
        // A single socket always belongs to the same worker.
        let first = match sockets.len() {
            1 => single_worker(key.address, workers),
            _ => 0,
        };
        let mut bound = Bound {
            key: Arc::new(key.clone()),
            local: local.unwrap_or(key.address),
            workers: Vec::new(),
            sockets: Vec::new(),
            inodes: sockets.iter().filter_map(|(it, _)| inode(it)).collect(),
            is_foreign: !addresses.is_local(key.address.ip()),
        };
        // Where a process with more workers handed over its sockets, a worker gets several.
        let all_workers = (0..workers).cycle().skip(first);
        for (worker, (socket, flows)) in all_workers.zip(sockets) {
            let socket = Arc::new(socket);
            let answer = self.order(worker, |done| Order::Listen {
                key: Arc::clone(&bound.key),
                socket: Arc::clone(&socket),
                flows,
                done,
            });
            if let Some(answer) = answer {
                bound.workers.push(worker);
                bound.sockets.push(socket);
                waiting.push((key.clone(), answer));
            }
        }
        bound
    }

    fn listening(&self) -> usize {
        self.bound.values().map(|bound| bound.workers.len()).sum()
    }

    fn publish_listening(&mut self) {
        let listening = self
            .bound
            .iter()
            .filter(|(key, _)| key.transport == Transport::Tcp || !self.is_ending)
            .map(|(key, bound)| (key.clone(), bound.local));
        self.shared.status.set_listening(listening.collect());
        let unbound = &self.shared.status.unbound;
        unbound.store(self.failed.len(), Ordering::SeqCst);
        let has_udp = self.bound.keys().any(|key| key.transport == Transport::Udp);
        self.shared
            .status
            .set_not_accepting(self.why_not_accepting());
        let descriptors = self.shared.divide(self.listening(), has_udp);
        if self.last_logged.abs_diff(descriptors.connections) > self.last_logged / 8 {
            self.last_logged = descriptors.connections;
            self.shared.room.log(&descriptors);
        }
    }

    /// Why no client can be accepted: addresses are wanted, and none could be bound.
    fn why_not_accepting(&self) -> Option<String> {
        let why = self.failed.values().next()?;
        let count = self.failed.len();
        self.bound
            .is_empty()
            .then(|| format!("none of the table's {count} addresses could be bound; {why}"))
    }

    /// Closes all sockets of these addresses, after the connections in their backlogs were accepted.
    pub(super) async fn close(&mut self, keys: &[SocketKey], last: &Arc<Serving>) {
        if !keys.is_empty() {
            self.succession.withdraw(CHANGED);
        }
        keys.iter().for_each(|key| self.store.forget(key));
        self.end(keys, || Close::Last(Arc::clone(last))).await;
    }

    async fn end(&mut self, keys: &[SocketKey], how: impl Fn() -> Close) {
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
                waiting.extend(self.order(worker, |done| Order::Close {
                    key: Arc::clone(&bound.key),
                    how: how(),
                    done,
                }));
            }
        }
        for receiver in waiting {
            receiver.await.ok();
        }
        self.publish_listening();
    }

    /// Begins no more flows and accepts no more connections. Existing flows need their listening socket for replies: it stays
    /// open until [`close_flows`](Self::close_flows). The sockets that are `left` to the next process go first: it accepts from
    /// them.
    pub(super) async fn finish(
        &mut self,
        last: &Arc<Serving>,
        left: Option<&HandedSockets>,
        is_handed_over: bool,
    ) {
        if let Some(left) = left {
            let has_it = |bound: &&Bound| bound.inodes.is_subset(&left.inodes);
            let keys = self.bound.values().filter(has_it);
            let keys: Vec<SocketKey> = keys.map(|bound| SocketKey::clone(&bound.key)).collect();
            self.end(&keys, || Close::HandedOver).await;
        }
        let mut waiting = Vec::new();
        for worker in 0..self.shared.inboxes.len() {
            waiting.extend(self.order(worker, |done| Order::Finish {
                is_handed_over,
                done,
            }));
        }
        for receiver in waiting {
            receiver.await.ok();
        }
        self.is_ending = true;
        self.publish_listening();
        self.close_all(Transport::Tcp, last).await;
        self.store.settle().await;
    }

    /// Closes the listening sockets of flows, which ends them: the kernel would give them a part of the next process's clients.
    pub(super) async fn close_flows(&mut self, last: &Arc<Serving>) {
        self.close_all(Transport::Udp, last).await;
    }

    async fn close_all(&mut self, transport: Transport, last: &Arc<Serving>) {
        let keys = self.bound.keys().filter(|key| key.transport == transport);
        let keys: Vec<SocketKey> = keys.cloned().collect();
        keys.iter().for_each(|key| self.store.forget(key));
        self.end(&keys, || Close::Last(Arc::clone(last))).await;
    }

    /// Gives an order to a worker. Returns its answer to come, unless the worker has ended.
    fn order<T>(
        &self,
        worker: usize,
        order: impl FnOnce(oneshot::Sender<T>) -> Order,
    ) -> Option<oneshot::Receiver<T>> {
        let (done, answer) = oneshot::channel();
        let inbox = self.shared.inboxes.get(worker)?;
        inbox.send(order(done)).ok()?;
        Some(answer)
    }

    /// Warns of addresses at which other processes listen, too.
    fn look_for_others(&mut self) {
        let Self { sharing, bound, .. } = self;
        sharing.look(|| {
            let tcp = bound
                .values()
                .filter(|bound| bound.key.transport == Transport::Tcp);
            tcp.map(|bound| (bound.local, &bound.inodes)).collect()
        });
    }

    /// Has systemd keep what it had no room for, or was not told yet: one socket of each address first, then the others.
    pub(super) fn keep_rest(&mut self) {
        for most in [1, usize::MAX] {
            for key in self.store.short_of(most) {
                if let Some(bound) = self.bound.get(&key) {
                    self.store.keep(&bound.key, &bound.sockets, most);
                }
            }
        }
        self.store.check();
    }

    /// Retries addresses that could not be bound, and checks again which bound addresses are local.
    pub(super) async fn retry(&mut self) {
        let keys: Vec<SocketKey> = self.failed.keys().cloned().collect();
        let opened = self.open(&keys, self.listening());
        for (key, _) in &opened {
            tracing::info!(address = %key, "listening after a retry");
        }
        self.hand_out(opened).await;
        self.keep_rest();
        self.look_for_others();
        let mut addresses = LocalAddresses::default();
        for bound in self.bound.values_mut() {
            bound.is_foreign = !addresses.is_local(bound.key.address.ip());
        }
    }
}

/// Caches which addresses are local during one pass over the sockets.
#[derive(Default)]
struct LocalAddresses(HashMap<IpAddr, bool>);

impl LocalAddresses {
    fn is_local(&mut self, address: IpAddr) -> bool {
        *self
            .0
            .entry(address)
            .or_insert_with(|| listen::is_local(address))
    }
}

const CHANGED: &str = "the table of the process that runs has changed, and with it the sockets; start the next one again";

/// The worker that owns a single socket.
fn single_worker(address: SocketAddr, workers: usize) -> usize {
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
