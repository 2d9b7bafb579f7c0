//! The addresses that routers are told of: their state is what BIRD was seen to have, not what it is to have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Node;
use crate::ack::{State as AckState, Status};
use crate::bgp::{Routes, Sessions, is_told};
use crate::file::{Address, Mode};

/// What is known of BIRD.
#[derive(Default)]
pub(super) struct Routers {
    routes: Routes,
    /// The peers with which a session stands.
    up: BTreeSet<String>,
    /// Addresses that are not in the file any more, and of which BIRD may still tell.
    leaving: BTreeMap<IpAddr, Status>,
}

impl Routers {
    pub(super) fn leaving(&self) -> impl Iterator<Item = &Status> {
        self.leaving.values()
    }
}

impl Node {
    /// This is known of BIRD now.
    pub fn set_routers(&mut self, now: Duration, routes: &Routes, sessions: &Sessions) {
        let up = sessions.peers.iter().filter(|(_, (stands, _))| *stands);
        let up: BTreeSet<String> = up.map(|(name, _)| name.clone()).collect();
        if self.routers.routes == *routes && self.routers.up == up {
            return;
        }
        self.routers.routes.clone_from(routes);
        self.routers.up = up;
        let leaving = self.routers.leaving.len();
        self.routers
            .leaving
            .retain(|address, _| routes.may_have(*address));
        self.noted += u64::from(self.routers.leaving.len() != leaving);
        let file = Arc::clone(&self.file);
        for one in file.addresses.iter().filter(|one| one.mode == Mode::Bgp) {
            self.note_told(now, one);
        }
    }

    /// The address leaves the file. It stays in the ack until BIRD has withdrawn it.
    pub(super) fn withdraw(&mut self, address: IpAddr) {
        let status = self.entries.get(address).map(|entry| &entry.status);
        if let Some(status) = status.filter(|status| status.mode == Some(Mode::Bgp))
            && self.routers.routes.may_have(address)
        {
            self.routers.leaving.insert(address, status.clone());
        }
    }

    /// The address is in the file, perhaps again. Returns its state if it was about to leave.
    pub(super) fn back(&mut self, address: IpAddr) -> Option<Status> {
        self.routers.leaving.remove(&address)
    }

    /// Writes down what became of an address that routers are told of.
    pub(super) fn note_told(&mut self, now: Duration, one: &Address) {
        let (serves, routers) = (self.serves(one), &self.routers);
        let is_heard = || {
            let bgp = self.file.bgp.as_ref();
            bgp.is_some_and(|bgp| {
                let mut up = bgp
                    .peers
                    .iter()
                    .filter(|peer| routers.up.contains(&peer.name));
                up.any(|peer| is_told(bgp, peer, one.address))
            })
        };
        let (state, detail) = match serves {
            // Withdrawal comes before the end of serving: what waits for that waits for BIRD.
            false if routers.routes.may_have(one.address) => (AckState::Held, ""),
            false if !one.names(&self.file.node) => (AckState::NotOurs, ""),
            false => (AckState::NotReady, self.why_not()),
            true if !routers.routes.has(one.address) => (AckState::NotReady, NOT_YET),
            true if !is_heard() => (AckState::NotReady, NO_SESSION),
            true => (AckState::Held, ""),
        };
        let owner = (state == AckState::Held).then(|| self.file.node.clone());
        self.entries
            .change(one.address, |entry| entry.status.owner = owner);
        self.set_status(now, one.address, state, detail.to_owned());
    }
}

const NOT_YET: &str = "BIRD does not have it yet; see that BIRD runs and takes its configuration";
const NO_SESSION: &str =
    "BIRD has it, and has no session with a router that is told of it; see birdc show protocols";
