//! Addresses at which other processes listen, too. The kernel then gives each process a part of the clients, and no bind fails:
//! all sockets of frontends have SO_REUSEPORT.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use crate::os::listening;

/// Looks for such addresses for some time after sockets were opened.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// How many looks are left.
    looks: u8,
    /// The sockets of others, as last seen.
    seen: BTreeMap<SocketAddr, BTreeSet<u64>>,
    warned: BTreeSet<SocketAddr>,
}

impl Sharing {
    /// Sockets were opened.
    pub(super) fn begin(&mut self) {
        self.looks = LOOKS;
    }

    /// Warns of the addresses at which sockets listen that are not `own`: the inodes of the own ones by their address. A process
    /// that gives way to this one closes its sockets soon, so that only what is seen twice counts.
    pub(super) fn look<'o>(
        &mut self,
        own: impl FnOnce() -> HashMap<SocketAddr, &'o BTreeSet<u64>>,
    ) {
        if self.looks == 0 {
            return;
        }
        self.looks -= 1;
        let own = own();
        let mut others: BTreeMap<SocketAddr, BTreeSet<u64>> = BTreeMap::new();
        for (address, inode) in listening::sockets() {
            if own.get(&address).is_some_and(|own| !own.contains(&inode)) {
                others.entry(address).or_default().insert(inode);
            }
        }
        for (address, inodes) in &others {
            let stays = self
                .seen
                .get(address)
                .is_some_and(|seen| !seen.is_disjoint(inodes));
            if stays && self.warned.insert(*address) {
                tracing::warn!(
                    "bind {address}: another process listens there, too, and gets a part of the clients; `ss -ltnp` names it: stop it, or choose another address"
                );
            }
        }
        self.seen = others;
    }
}

/// One look every five seconds.
const LOOKS: u8 = 6;
