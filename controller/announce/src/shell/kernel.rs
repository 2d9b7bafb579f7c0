//! Reads the kernel's interfaces, routes and addresses, and changes its addresses by one queue.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::netlink::{Failed, Found, Netlink, Origin};
use super::packets::Packets;
use crate::network::Network;
use crate::node::Action;

/// The kernel's interfaces, routes and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) network: Network,
    pub(super) found: Vec<Found>,
    /// Whether it keeps who put an address on an interface.
    pub(super) has_tags: bool,
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
        let mut last_error = String::new();
        loop {
            match self.look().await {
                Ok(kernel) => {
                    last_error.clear();
                    seen.send_replace(kernel);
                }
                Err(error) => {
                    let words = error.to_string();
                    if words != last_error {
                        tracing::error!(
                            error = words,
                            "cannot read the interfaces, routes and addresses; they are taken as they were"
                        );
                        last_error = words;
                    }
                }
            }
            sleep(LOOK_PAUSE).await;
            tokio::select! {
                Some(()) = changes.recv() => {}
                () = self.again.notified() => {}
                () = sleep(LOOK_ANYWAY) => {}
            }
        }
    }

    async fn look(&self) -> Result<Kernel, Failed> {
        let done = self.done.load(Ordering::Acquire);
        Ok(Kernel {
            network: self.netlink.network().await?,
            found: self.netlink.addresses().await?,
            has_tags: self.netlink.has_tags(),
            done,
        })
    }
}

/// Puts addresses on interfaces, takes them away and sends frames, one after the other.
pub(super) struct Worker {
    pub(super) netlink: Netlink,
    pub(super) packets: Arc<[Packets; 2]>,
    /// So many actions are done.
    pub(super) done: Arc<AtomicU64>,
    /// Asks for another look.
    pub(super) again: Arc<Notify>,
}

impl Worker {
    /// Goes on until nothing can come any more.
    pub(super) async fn act(
        self,
        mut acts: mpsc::UnboundedReceiver<Action>,
        refused: mpsc::UnboundedSender<(u32, IpAddr, String)>,
    ) {
        let mut cannot_remove = BTreeSet::new();
        let mut cannot_renew = BTreeSet::new();
        // Addresses that something else put on an interface. They stay there.
        let mut foreign = BTreeSet::new();
        while let Some(action) = acts.recv().await {
            match action {
                Action::Add { interface, address } => {
                    match self.netlink.add(interface, address).await {
                        Ok(Origin::Foreign) => {
                            foreign.insert((interface, address));
                            tracing::warn!(%address, "an address was on the interface before, and something else put it there; this node announces it, and does not remove it later");
                        }
                        Ok(Origin::Ours | Origin::Alike) => {
                            foreign.remove(&(interface, address));
                        }
                        Err(error) => {
                            refused.send((interface, address, error.to_string())).ok();
                            // A kernel that did not answer may have taken it.
                            self.again.notify_one();
                        }
                    }
                }
                Action::Renew { interface, address } if foreign.contains(&(interface, address)) => {
                }
                Action::Renew { interface, address } => {
                    match self.netlink.renew(interface, address).await {
                        Ok(()) => {
                            cannot_renew.remove(&address);
                        }
                        Err(error) => {
                            if cannot_renew.insert(address) {
                                tracing::warn!(%address, %error, "cannot renew the lifetime of an address; it is tried again");
                            }
                        }
                    }
                }
                Action::Remove { interface, address } if foreign.remove(&(interface, address)) => {}
                Action::Remove { interface, address } => {
                    match self.netlink.remove(interface, address).await {
                        Ok(()) => {
                            cannot_remove.remove(&address);
                        }
                        // The next look at the kernel finds the address, and the removal is tried again.
                        Err(error) => {
                            if cannot_remove.insert(address) {
                                tracing::error!(%address, %error, "cannot remove an address that this node gives up; it is tried again. Remove it: ip address del");
                            }
                            self.again.notify_one();
                        }
                    }
                }
                Action::Frame { interface, bytes } => self.send(interface, &bytes).await,
                // `Life::go_on` carries these out itself.
                Action::Send(..) | Action::Probe { .. } | Action::Locate(_) | Action::Tell(_) => {}
            }
            self.done.fetch_add(1, Ordering::AcqRel);
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
/// So many milliseconds it is waited for a queue that is full.
const FULL_FOR: usize = 50;
