//! The addresses that routers are told of: their state is what BIRD was seen to have, not what it is to have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Node;
use crate::ack::{State as AckState, Status};
use crate::bgp::{Routes, Sessions, is_told};
use crate::file::{Address, Mode};

/// The routes and sessions of BIRD, as the shell read them last.
#[derive(Default)]
pub(super) struct Routers {
    routes: Routes,
    /// The peers with which a session stands.
    up: BTreeSet<String>,
    /// Addresses that are not in the file any more, and of which BIRD may still tell.
    leaving: BTreeMap<IpAddr, Status>,
}

impl Routers {
    /// Whether BIRD may tell of the address.
    pub(super) fn may_have(&self, address: IpAddr) -> bool {
        self.routes.may_have(address)
    }

    pub(super) fn leaving(&self) -> impl Iterator<Item = &Status> {
        self.leaving.values()
    }

    pub(super) fn move_since(&mut self, moved: impl Fn(u64) -> u64) {
        for status in self.leaving.values_mut() {
            status.since = moved(status.since);
        }
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
        self.settle_loopback(now);
    }

    /// The address leaves the file. It stays in the ack until BIRD has withdrawn it.
    pub(super) fn withdraw(&mut self, address: IpAddr) {
        let status = self.entries.get(address).map(|entry| entry.status.clone());
        if let Some(mut status) = status.filter(|status| status.mode == Some(Mode::Bgp))
            && self.routers.routes.may_have(address)
        {
            status.state = AckState::Held;
            status.owner = Some(self.file.node.clone());
            status.detail = String::new();
            self.routers.leaving.insert(address, status);
        }
    }

    /// The address is in the file, perhaps again. Returns its state if it was about to leave.
    pub(super) fn back(&mut self, address: IpAddr) -> Option<Status> {
        self.routers.leaving.remove(&address)
    }

    /// Writes down what became of an address that routers are told of.
    pub(super) fn note_told(&mut self, now: Duration, one: &Address) {
        let (serves, routers) = (self.serves(one), &self.routers);
        let last = self
            .entries
            .get(one.address)
            .map(|entry| entry.status.state);
        let was_held = last == Some(AckState::Held);
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
            false if routers.routes.may_have(one.address) => (AckState::Held, String::new()),
            false if !one.names(&self.file.node) => (AckState::NotOurs, String::new()),
            false => (AckState::NotReady, self.why_not().to_owned()),
            true if !self.loopback.has(one.address) => {
                (AckState::NotReady, self.loopback.why_not(one.address))
            }
            // Another process, or somebody else, gave it to BIRD.
            true if was_held
                && !routers.routes.has(one.address)
                && routers.routes.may_have(one.address) =>
            {
                (AckState::Held, String::new())
            }
            true if !routers.routes.has(one.address) => (AckState::NotReady, NOT_YET.to_owned()),
            true if !is_heard() => (AckState::NotReady, NO_SESSION.to_owned()),
            true => (AckState::Held, String::new()),
        };
        let owner = (state == AckState::Held).then(|| self.file.node.clone());
        self.entries
            .change(one.address, |entry| entry.status.owner = owner);
        self.set_status(now, one.address, state, detail);
    }
}

const NOT_YET: &str = "BIRD does not have it yet; see that BIRD runs and takes its configuration";
const NO_SESSION: &str =
    "BIRD has it, and has no session with a router that is told of it; see birdc show protocols";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;
    use crate::node::{DataPlane, LOOPBACK, Present};

    const TEXT: &str = "version: 1
node: edge1
addresses:
- {address: 192.0.2.1, mode: bgp, nodes: [edge1]}
- {address: \"2001:db8::1\", mode: bgp, nodes: [edge1]}
- {address: 192.0.2.3, mode: bgp, nodes: [edge2]}
bgp:
  bird: {config: bird.conf, socket: bird.ctl}
  router-id: 10.0.0.1
  my-asn: 1
  peers: [{name: tor, peer-asn: 2, peer-address: 10.0.0.2}]
";

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn after(routes: &mut Routes, change: impl FnOnce(&mut Routes)) -> Routes {
        change(routes);
        routes.clone()
    }

    fn states(node: &Node) -> Vec<(String, AckState, u64)> {
        let statuses = node.statuses().into_iter();
        statuses
            .map(|one| (one.address.to_string(), one.state, one.since))
            .collect()
    }

    #[test]
    fn an_address_is_held_while_bird_may_tell_of_it_and_announced_where_a_session_stands() {
        let parse = |text: &str| file::parse(text.as_bytes()).unwrap();
        let mut node = Node::new(at(0), 1_000, parse(TEXT), None);
        let [a, b]: [IpAddr; 2] = ["192.0.2.1", "2001:db8::1"].map(|one| one.parse().unwrap());
        let all = |node: &Node| {
            states(node)
                .into_iter()
                .map(|one| one.1)
                .collect::<Vec<_>>()
        };
        use AckState::{Held, NotOurs, NotReady};
        // No router leads clients here before the kernel takes in what comes.
        node.set_addresses(at(0), &[]);
        assert_eq!(node.for_routers(), Vec::<IpAddr>::new());
        node.set_addresses(at(0), &on_lo(&[a, b]));
        assert_eq!(node.for_routers(), [a, b]);
        let mut routes = Routes::default();
        for (step, (routes, sessions, expected)) in [
            // BIRD does not run.
            (routes.clone(), up(false), [NotReady, NotReady, NotOurs]),
            // It is about to have them.
            (
                after(&mut routes, |it| it.attempt(&[a, b])),
                up(true),
                [NotReady, NotReady, NotOurs],
            ),
            // It has them: of IPv6 the router is not told.
            (
                after(&mut routes, |it| it.applied(&[a, b])),
                up(true),
                [Held, NotReady, NotOurs],
            ),
            (routes.clone(), up(false), [NotReady, NotReady, NotOurs]),
            // An operator has given BIRD another configuration.
            (
                after(&mut routes, Routes::forget),
                up(true),
                [NotReady, NotReady, NotOurs],
            ),
            (
                after(&mut routes, |it| it.applied(&[a, b])),
                up(true),
                [Held, NotReady, NotOurs],
            ),
        ]
        .into_iter()
        .enumerate()
        {
            node.set_routers(at(step as u64), &routes, &sessions);
            assert_eq!(all(&node), expected, "step {step}");
        }
        // One is not served any more, the other is not in the file.
        let lines = TEXT.lines().filter(|line| !line.contains("2001:db8"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let text = text.replacen("nodes: [edge1]", "nodes: [edge1], ready: false", 1);
        node.set_file(at(10), parse(&text));
        assert_eq!(all(&node), [Held, NotOurs, Held]);
        routes.attempt(&[]);
        node.set_routers(at(11), &routes, &up(true));
        assert_eq!(all(&node), [Held, NotOurs, Held]);
        routes.applied(&[]);
        node.set_routers(at(12), &routes, &up(true));
        assert_eq!(all(&node), [NotReady, NotOurs]);
    }

    /// The session with the router.
    fn up(stands: bool) -> Sessions {
        let peer = ("tor".to_owned(), (stands, String::new()));
        Sessions {
            peers: [peer].into(),
            ..Sessions::default()
        }
    }

    fn on_lo(addresses: &[IpAddr]) -> Vec<Present> {
        let present = addresses.iter().map(|address| Present {
            interface: LOOPBACK,
            address: *address,
            is_ours: true,
        });
        present.collect()
    }

    #[test]
    fn it_is_told_at_once_that_nothing_is_served_any_more() {
        let file = file::parse(TEXT.as_bytes()).unwrap();
        let mut node = Node::new(at(0), 1_000, file, None);
        let [address]: [IpAddr; 1] = ["192.0.2.1"].map(|one| one.parse().unwrap());
        node.set_addresses(at(0), &on_lo(&[address]));
        let mut routes = Routes::default();
        routes.applied(&[address]);
        node.set_routers(at(1), &routes, &up(true));
        assert_eq!(node.for_routers(), [address]);
        for (number, data_plane) in [DataPlane::Gone, DataPlane::Ready].into_iter().enumerate() {
            let noted = node.noted();
            node.set_data_plane(at(2 + number as u64), data_plane);
            // It is held until BIRD has withdrawn it, so its state stays.
            assert_eq!(states(&node)[0].1, AckState::Held);
            assert!(node.noted() > noted, "{data_plane:?}");
        }
    }

    #[test]
    fn ages_stay_when_the_clock_is_set() {
        let file = file::parse(TEXT.as_bytes()).unwrap();
        let mut node = Node::new(at(0), 1_000, file, None);
        let [address]: [IpAddr; 1] = ["192.0.2.1"].map(|one| one.parse().unwrap());
        let mut routes = Routes::default();
        routes.applied(&[address]);
        node.set_addresses(at(0), &on_lo(&[address]));
        node.set_routers(at(500), &routes, &up(true));
        assert_eq!(
            states(&node)[0],
            ("192.0.2.1".to_owned(), AckState::Held, 1_500)
        );
        let noted = node.noted();
        node.set_epoch(1_700_000_000_000);
        assert_eq!(states(&node)[0].2, 1_700_000_000_500);
        assert!(node.noted() > noted, "the ack is written again");
        node.set_epoch(10);
        assert_eq!(states(&node)[0].2, 510);
    }
}
