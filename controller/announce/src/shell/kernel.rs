//! Reads the kernel's interfaces, routes and addresses, and changes its addresses by one queue.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::connections::{self, Leaving, Order};
use super::netlink::{Failed, Netlink};
use super::packets::Packets;
use crate::file::MOST_ADDRESSES;
use crate::frames;
use crate::network::{Network, Route};
use crate::node::{Action, Connections, Present};

/// The kernel's interfaces, routes and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) network: Network,
    pub(super) addresses: Vec<Present>,
    /// So many actions of the worker were done before.
    pub(super) done: u64,
}

/// Looks at the kernel's tables.
pub(super) struct Look {
    pub(super) netlink: Netlink,
    pub(super) done: Arc<AtomicU64>,
    pub(super) again: Arc<Notify>,
}

impl Look {
    /// Looks whenever something changes. A host with the routes of a whole network changes them all the time, and to read them all
    /// takes long: they are read a few times each second at most, and now and then for changes that were not told.
    pub(super) async fn follow(self, mut changes: mpsc::Receiver<()>, seen: watch::Sender<Kernel>) {
        let (mut last, mut last_of_v6) = (String::new(), String::new());
        let mut v6 = Vec::new();
        loop {
            match self.netlink.v6_routes().await {
                Ok(routes) => {
                    last_of_v6.clear();
                    v6 = routes;
                }
                // The rest does not depend on them.
                Err(error) if is_news(&mut last_of_v6, &error) => {
                    tracing::error!(%error, "cannot read the routes of IPv6; they are taken as they were");
                }
                Err(_) => {}
            }
            match self.look(v6.clone()).await {
                Ok(kernel) => {
                    last.clear();
                    seen.send_replace(kernel);
                }
                Err(error) if is_news(&mut last, &error) => {
                    tracing::error!(%error, "cannot read the interfaces, routes and addresses; they are taken as they were");
                }
                Err(_) => {}
            }
            sleep(LOOK_PAUSE).await;
            tokio::select! {
                Some(()) = changes.recv() => {}
                () = self.again.notified() => {}
                () = sleep(LOOK_ANYWAY) => {}
            }
        }
    }

    async fn look(&self, v6: Vec<Route>) -> Result<Kernel, Failed> {
        let done = self.done.load(Ordering::Acquire);
        Ok(Kernel {
            network: self.netlink.network(v6).await?,
            addresses: self.netlink.addresses().await?,
            done,
        })
    }
}

/// Whether it is another error than the last one.
fn is_news(last: &mut String, error: &Failed) -> bool {
    let error = error.to_string();
    let is_news = *last != error;
    *last = error;
    is_news
}

/// An address that the kernel did not put on an interface, and why.
pub(super) type Refusal = (u32, IpAddr, String);

/// Puts addresses on interfaces, takes them away and sends frames, one after the other.
pub(super) struct Worker {
    pub(super) netlink: Netlink,
    pub(super) packets: Arc<[Packets; 2]>,
    /// So many actions are done.
    pub(super) done: Arc<AtomicU64>,
    /// So many of them the kernel has answered.
    pub(super) answered: Arc<AtomicU64>,
    /// Asks for another look.
    pub(super) again: Arc<Notify>,
}

/// What the worker remembers of its addresses.
#[derive(Default)]
struct Past {
    cannot_remove: BTreeSet<IpAddr>,
    cannot_renew: BTreeSet<IpAddr>,
    /// Those that something else put on an interface. They stay there.
    foreign: BTreeSet<(u32, IpAddr)>,
    /// Those that the kernel did not put on an interface. They are not announced.
    refused: BTreeSet<(u32, IpAddr)>,
    /// Those of IPv6 that it has just put there.
    new: BTreeSet<(u32, IpAddr)>,
    /// The frames of these, in their order.
    waiting: Vec<(u32, IpAddr, Vec<u8>)>,
    /// The addresses whose connections are about to be ended.
    ending: Vec<Weak<Leaving>>,
}

impl Worker {
    /// Goes on until nothing can come any more.
    pub(super) async fn act(
        self,
        mut acts: mpsc::UnboundedReceiver<Action>,
        refused: mpsc::UnboundedSender<Refusal>,
    ) {
        let mut past = Past::default();
        let orders = connections::start();
        let mut batch = Vec::new();
        loop {
            if acts.is_empty() {
                self.send_waiting(&mut past).await;
            }
            if acts.recv_many(&mut batch, AT_ONCE).await == 0 {
                return;
            }
            let ending = Ending::of(&mut past, &batch, &orders);
            let waits = |action: &Action| address_of(action).is_some_and(|it| ending.waits(it));
            let (later, at_once): (Vec<_>, Vec<_>) = batch.drain(..).partition(waits);
            self.carry_out_all(&mut past, at_once, &refused).await;
            ending.finish().await;
            self.carry_out_all(&mut past, later, &refused).await;
        }
    }

    async fn carry_out_all(
        &self,
        past: &mut Past,
        actions: Vec<Action>,
        refused: &mpsc::UnboundedSender<Refusal>,
    ) {
        for action in actions {
            if past.waiting.len() >= WAIT_AT_ONCE {
                self.send_waiting(past).await;
            }
            let done = self.carry_out(past, action, refused).await;
            let is_answered = !matches!(done, Err(Failed::Silent));
            self.answered
                .fetch_add(u64::from(is_answered), Ordering::AcqRel);
            self.done.fetch_add(1, Ordering::AcqRel);
        }
    }

    async fn carry_out(
        &self,
        past: &mut Past,
        action: Action,
        refused: &mpsc::UnboundedSender<Refusal>,
    ) -> Result<(), Failed> {
        match action {
            Action::Add { interface, address } => {
                let done = self.add(past, interface, address).await;
                if let Err(error) = &done {
                    refused.send((interface, address, error.to_string())).ok();
                }
                done
            }
            Action::Renew { interface, address } => self.renew(past, interface, address).await,
            Action::Remove {
                interface, address, ..
            } => self.remove(past, interface, address).await,
            Action::Frame { interface, bytes } => {
                if let Some(claim) = frames::claim(&bytes) {
                    self.announce(past, interface, claim.address, bytes).await;
                }
                Ok(())
            }
            // `Life::go_on` carries these out itself.
            Action::Send(..) | Action::Probe { .. } | Action::Locate(_) | Action::Tell(_) => Ok(()),
        }
    }

    async fn add(&self, past: &mut Past, interface: u32, address: IpAddr) -> Result<(), Failed> {
        past.refused.remove(&(interface, address));
        for leaving in past.ending.iter().filter_map(Weak::upgrade) {
            leaving.is_back(address);
        }
        let added = self.netlink.add(interface, address).await;
        if added.is_ok() && address.is_ipv6() {
            past.new.insert((interface, address));
        }
        match added {
            Ok(false) => {
                past.foreign.insert((interface, address));
                tracing::warn!(%address, "an address was on the interface before, and something else put it there; this node announces it, and does not remove it later");
            }
            Ok(true) => {
                past.foreign.remove(&(interface, address));
            }
            Err(error) => {
                // A kernel that did not answer may have taken it.
                self.again.notify_one();
                past.refused.insert((interface, address));
                return Err(error);
            }
        }
        Ok(())
    }

    async fn renew(&self, past: &mut Past, interface: u32, address: IpAddr) -> Result<(), Failed> {
        if past.foreign.contains(&(interface, address)) {
            return Ok(());
        }
        let done = self.netlink.renew(interface, address).await;
        if let Some(error) = begins_to_fail(&mut past.cannot_renew, address, &done) {
            tracing::warn!(%address, %error, "cannot renew the lifetime of an address; it is tried again");
        }
        done
    }

    async fn remove(&self, past: &mut Past, interface: u32, address: IpAddr) -> Result<(), Failed> {
        past.new.remove(&(interface, address));
        past.waiting
            .retain(|(on, of, _)| (*on, *of) != (interface, address));
        if past.foreign.remove(&(interface, address)) {
            return Ok(());
        }
        let done = self.netlink.remove(interface, address).await;
        if let Some(error) = begins_to_fail(&mut past.cannot_remove, address, &done) {
            tracing::error!(%address, %error, "cannot remove an address that this node gives up; it is tried again. Remove it: ip address del");
        }
        if done.is_err() {
            // The next look at the kernel finds the address, and the removal is tried again.
            self.again.notify_one();
        }
        done
    }

    /// Sends what announces an address that is on the interface.
    async fn announce(&self, past: &mut Past, interface: u32, address: IpAddr, frame: Vec<u8>) {
        if past.refused.contains(&(interface, address)) {
            return;
        }
        match past.new.contains(&(interface, address)) {
            true => past.waiting.push((interface, address, frame)),
            false => self.send(interface, &frame).await,
        }
    }

    /// Announces the addresses that the kernel has just put on interfaces, when it takes in what comes for them: who hears of them
    /// sooner sends what the kernel drops. It has to find the time for that, which it does not while this thread goes on.
    async fn send_waiting(&self, past: &mut Past) {
        let new = std::mem::take(&mut past.new);
        let all_are_taken_in = async {
            for (interface, address) in new {
                while !self.netlink.takes_in(interface, address).await {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        };
        timeout(TAKES_IN, all_are_taken_in).await.ok();
        for (interface, _, frame) in std::mem::take(&mut past.waiting) {
            self.send(interface, &frame).await;
        }
    }

    /// Sends a frame. One that the network does not take is lost: each is sent several times. Of many at once the queue of the
    /// interface may be full for a moment.
    async fn send(&self, interface: u32, frame: &[u8]) {
        for _ in 0..FULL_FOR {
            match send(&self.packets, interface, frame) {
                Err(error) if is_full(&error) => sleep(Duration::from_millis(1)).await,
                _ => return,
            }
        }
    }
}

/// The address that an action is about.
fn address_of(action: &Action) -> Option<IpAddr> {
    match action {
        Action::Add { address, .. }
        | Action::Renew { address, .. }
        | Action::Remove { address, .. } => Some(*address),
        Action::Frame { bytes, .. } => frames::claim(bytes).map(|claim| claim.address),
        Action::Send(..) | Action::Probe { .. } | Action::Locate(_) | Action::Tell(_) => None,
    }
}

/// The end of the connections of the addresses that some actions remove. It is done for all of them at once, since the kernel looks at
/// the connections of all addresses.
struct Ending {
    /// These addresses leave when their connections have ended.
    first: BTreeSet<IpAddr>,
    over: oneshot::Receiver<()>,
}

impl Ending {
    /// Begins to end them.
    fn of(past: &mut Past, actions: &[Action], orders: &std::sync::mpsc::Sender<Order>) -> Self {
        let mut leaving = BTreeSet::new();
        let mut first = BTreeSet::new();
        for action in actions {
            if let Action::Remove {
                interface,
                address,
                connections,
            } = action
                && *connections != Connections::Stay
                && !past.foreign.contains(&(*interface, *address))
            {
                leaving.insert(*address);
                first.extend((*connections == Connections::EndFirst).then_some(*address));
            }
        }
        let (is_over, over) = oneshot::channel();
        if !leaving.is_empty() {
            let leaving = Arc::new(Leaving::of(leaving));
            past.ending.retain(|order| order.strong_count() > 0);
            past.ending.push(Arc::downgrade(&leaving));
            // Without the thread, which was told, nobody waits.
            orders.send((leaving, is_over)).ok();
        }
        Self { first, over }
    }

    /// Whether the address stays until its connections have ended.
    fn waits(&self, address: IpAddr) -> bool {
        self.first.contains(&address)
    }

    /// Waits until those that are to end first have ended, but not for long: the next node has the address already.
    async fn finish(self) {
        if !self.first.is_empty() {
            timeout(connections::AT_ONCE, self.over).await.ok();
        }
    }
}

/// The error of an action, if the same action at this address has not failed since it was done last. `failing`: where it fails.
fn begins_to_fail<'e>(
    failing: &mut BTreeSet<IpAddr>,
    address: IpAddr,
    done: &'e Result<(), Failed>,
) -> Option<&'e Failed> {
    match done {
        Ok(()) => {
            failing.remove(&address);
            None
        }
        Err(error) => failing.insert(address).then_some(error),
    }
}

/// Waits for the end of the worker, `at_most` so long, and no longer than the kernel goes on to answer it: `answer` is the time in which
/// it answers once. `answered`: so many actions it has answered.
pub(super) async fn has_finished(
    worker: &mut JoinHandle<()>,
    answered: &AtomicU64,
    answer: Duration,
    at_most: Duration,
) -> bool {
    let begun = Instant::now();
    let mut last = (answered.load(Ordering::Acquire), begun);
    loop {
        if let Ok(ended) = timeout(answer / 50, &mut *worker).await {
            return ended.is_ok();
        }
        let count = answered.load(Ordering::Acquire);
        if count != last.0 {
            last = (count, Instant::now());
        }
        if begun.elapsed() >= at_most || last.1.elapsed() >= answer {
            return false;
        }
    }
}

/// Sends a frame by the socket for its kind.
pub(super) fn send(packets: &[Packets; 2], interface: u32, frame: &[u8]) -> io::Result<()> {
    let mut sockets = packets.iter();
    let socket = sockets.find(|socket| socket.is_for(frame));
    socket.map_or(Ok(()), |socket| socket.send(interface, frame))
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Looks are no more frequent.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
const LOOK_ANYWAY: Duration = Duration::from_secs(10);
/// So many actions are taken together at most: a file has no more addresses.
const AT_ONCE: usize = MOST_ADDRESSES;
/// So many frames at most wait for addresses that the kernel takes in at once.
const WAIT_AT_ONCE: usize = 32;
/// After this time addresses are announced anyway: the second announcement is not far.
const TAKES_IN: Duration = Duration::from_millis(100);
/// So many milliseconds it is waited for a queue that is full.
const FULL_FOR: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a worker whose kernel answers so often, each 5 ms, is waited for.
    async fn is_waited_for(answers: u64, ends: bool) -> bool {
        let answered = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&answered);
        let mut worker = tokio::spawn(async move {
            let mut turns = tokio::time::interval(Duration::from_millis(5));
            for _ in 0..answers {
                turns.tick().await;
                counter.fetch_add(1, Ordering::AcqRel);
            }
            if !ends {
                std::future::pending::<()>().await;
            }
        });
        let [answer, at_most] = [200, 1_000].map(Duration::from_millis);
        let is_done = has_finished(&mut worker, &answered, answer, at_most).await;
        worker.abort();
        is_done
    }

    #[tokio::test]
    async fn the_last_actions_are_waited_for_as_long_as_the_kernel_answers_but_not_for_ever() {
        // 0.5 s in all.
        assert!(is_waited_for(100, true).await);
        let begun = Instant::now();
        assert!(!is_waited_for(10, false).await);
        assert!(begun.elapsed() < Duration::from_millis(900));
        assert!(!is_waited_for(u64::MAX, true).await);
        let mut panicked = tokio::spawn(async { panic!("for the test") });
        let long = Duration::from_secs(5);
        assert!(!has_finished(&mut panicked, &AtomicU64::new(0), long, long).await);
    }
}
