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
    /// The peers with which a session stands. `None`: BIRD was not asked yet, and what an earlier process saw counts.
    up: Option<BTreeSet<String>>,
    /// Addresses of which the file does not have routers told any more, and of which BIRD may still tell, or that `lo` still has.
    leaving: BTreeMap<IpAddr, Status>,
}

impl Routers {
    /// Whether BIRD may tell of the address.
    pub(super) fn may_have(&self, address: IpAddr) -> bool {
        self.routes.may_have(address)
    }

    pub(super) fn leaving(&self) -> &BTreeMap<IpAddr, Status> {
        &self.leaving
    }

    pub(super) fn move_since(&mut self, moved: impl Fn(u64) -> u64) {
        for status in self.leaving.values_mut() {
            status.since = moved(status.since);
        }
    }
}

impl Node {
    /// This is known of BIRD now. `sessions`: `None` before BIRD was asked for the first time.
    pub fn set_routers(&mut self, now: Duration, routes: &Routes, sessions: Option<&Sessions>) {
        let up = sessions.map(|sessions| {
            let up = sessions.peers.iter().filter(|(_, (stands, _))| *stands);
            up.map(|(name, _)| name.clone()).collect()
        });
        if self.routers.routes == *routes && self.routers.up == up {
            return;
        }
        self.routers.routes.clone_from(routes);
        self.routers.up = up;
        self.note_all_told(now);
        self.settle_loopback(now);
    }

    /// The address leaves the file, or is announced otherwise. What it was stays in the ack until BIRD has withdrawn it.
    pub(super) fn withdraw(&mut self, address: IpAddr) {
        let status = self.entries.get(address).map(|entry| &entry.status);
        let held = status
            .filter(|status| (status.mode, status.state) == (Some(Mode::Bgp), AckState::Held));
        if let Some(status) = held
            && self.routers.routes.may_have(address)
        {
            let detail = String::new();
            let status = Status {
                detail,
                ..status.clone()
            };
            self.routers.leaving.insert(address, status);
        }
    }

    /// Routers are to be told of the address, perhaps again: it goes on as it was if it was about to leave.
    pub(super) fn come_back(&mut self, address: IpAddr) {
        if let Some(status) = self.routers.leaving.remove(&address) {
            self.entries.change(address, |entry| entry.status = status);
        }
    }

    /// Notes which addresses leave: BIRD may tell of them, or they are on `lo`, and the file does not have routers told of them.
    pub(super) fn note_leaving(&mut self, now: Duration) {
        let is_told = |address: &IpAddr| {
            let entry = self.entries.get(*address);
            entry.is_some_and(|entry| entry.status.mode == Some(Mode::Bgp))
        };
        let here = self.routers.routes.possible().chain(self.loopback.ours());
        let here: BTreeSet<IpAddr> = here.filter(|address| !is_told(address)).collect();
        let (since, node) = (self.wall(now), &self.file.node);
        let leaving = &mut self.routers.leaving;
        let before = leaving.len();
        leaving.retain(|address, _| here.contains(address));
        let has_less = leaving.len() != before;
        let remained = leaving.len();
        for address in here {
            leaving.entry(address).or_insert_with(|| Status {
                address,
                state: AckState::Held,
                owner: Some(node.clone()),
                since,
                detail: String::new(),
                mode: Some(Mode::Bgp),
            });
        }
        self.noted += u64::from(has_less || leaving.len() != remained);
    }

    /// Writes down what became of the addresses that routers are told of.
    pub(super) fn note_all_told(&mut self, now: Duration) {
        let file = Arc::clone(&self.file);
        for one in file.addresses.iter().filter(|one| one.mode == Mode::Bgp) {
            self.note_told(now, one);
        }
    }

    /// Whether routers may still lead clients of the address here: BIRD may tell of it, or routers may not have heard yet that it does
    /// not, for which it stays on `lo`.
    fn is_led_here(&self, address: IpAddr) -> bool {
        self.routers.may_have(address) || self.loopback.has_ours(address)
    }

    /// Writes down what became of an address that routers are told of.
    pub(super) fn note_told(&mut self, now: Duration, one: &Address) {
        let (address, routers) = (one.address, &self.routers);
        let is_heard = |up: &BTreeSet<String>| {
            let bgp = self.file.bgp.as_ref();
            bgp.is_some_and(|bgp| {
                let mut up = bgp.peers.iter().filter(|peer| up.contains(&peer.name));
                up.any(|peer| is_told(bgp, peer, address))
            })
        };
        let (state, detail) = match self.serves(one) {
            // Withdrawal comes before the end of serving: what waits for that waits for BIRD.
            false if self.is_led_here(address) => (AckState::Held, String::new()),
            false if !one.names(&self.file.node) => (AckState::NotOurs, String::new()),
            false => (AckState::NotReady, self.why_not().to_owned()),
            true if self.has_looked && !self.loopback.has(address) => {
                (AckState::NotReady, self.loopback.why_not(address))
            }
            true if !routers.routes.has(address) => (AckState::NotReady, NOT_YET.to_owned()),
            true if !routers.up.as_ref().is_none_or(is_heard) => {
                (AckState::NotReady, NO_SESSION.to_owned())
            }
            true if self.has_looked && !self.loopback.has_ours(address) => {
                (AckState::Held, FOREIGN.to_owned())
            }
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

const FOREIGN: &str = "something else put it on lo, where it stays when this node gives it up";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;
    use crate::node::{Action, DataPlane, LOOPBACK, Present};

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
        assert_eq!(node.for_routers(), Some(Vec::new()));
        node.set_addresses(at(0), &on_lo(&[a, b]));
        assert_eq!(node.for_routers(), Some(vec![a, b]));
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
            node.set_routers(at(step as u64), &routes, Some(&sessions));
            assert_eq!(all(&node), expected, "step {step}");
        }
        // One is not served any more, the other is not in the file.
        let lines = TEXT.lines().filter(|line| !line.contains("2001:db8"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let text = text.replacen("nodes: [edge1]", "nodes: [edge1], ready: false", 1);
        node.set_file(at(10), parse(&text));
        assert_eq!(all(&node), [Held, NotOurs, Held]);
        routes.attempt(&[]);
        node.set_routers(at(11), &routes, Some(&up(true)));
        assert_eq!(all(&node), [Held, NotOurs, Held]);
        // BIRD has withdrawn both, and they are on lo until routers have heard of it.
        routes.applied(&[]);
        node.set_routers(at(12), &routes, Some(&up(true)));
        assert_eq!(all(&node), [Held, NotOurs, Held]);
        node.tick(at(1_011));
        assert_eq!(all(&node), [Held, NotOurs, Held]);
        let noted = node.noted();
        node.tick(at(1_012));
        assert_eq!(all(&node), [NotReady, NotOurs]);
        assert!(node.noted() > noted);
    }

    /// The states of a node of an earlier process's routes, with the mode of each in the ack.
    fn lines(node: &Node) -> Vec<String> {
        let statuses = node.statuses().into_iter();
        let lines = statuses.map(|one| {
            let mode = one.mode.map(Mode::word).unwrap_or_default();
            format!("{} {mode} {}", one.address, one.state.word())
        });
        lines.collect()
    }

    #[test]
    fn what_an_earlier_process_told_routers_is_held_until_bird_has_withdrawn_it() {
        let [a, other, l2]: [IpAddr; 3] =
            ["192.0.2.1", "192.0.2.7", "192.0.2.8"].map(|one| one.parse().unwrap());
        // The file names one of them, another one is not in it any more, and of the third the mode is another one.
        let text = TEXT.replacen(
            "addresses:\n",
            "addresses:\n- {address: 192.0.2.8, mode: l2, nodes: [edge1]}\n",
            1,
        );
        let file = file::parse(text.as_bytes()).unwrap();
        let mut node = Node::new(at(0), 1_000, file, None);
        let mut routes = Routes::left([a, other, l2].into());
        node.set_routers(at(0), &routes, None);
        let held = [
            "192.0.2.8 bgp held",
            "192.0.2.1 bgp held",
            "2001:db8::1 bgp not-ready",
            "192.0.2.3 bgp not-ours",
            "192.0.2.7 bgp held",
        ];
        assert_eq!(lines(&node), held);
        node.set_addresses(at(10), &on_lo(&[a, other, l2]));
        assert_eq!(lines(&node), held);
        assert_eq!(node.for_routers(), Some(vec![a]));
        assert!(removed(&mut node, at(5_000)).is_empty());
        // BIRD withdraws two of them, and they leave lo a second later.
        routes.applied(&[a]);
        node.set_routers(at(5_000), &routes, Some(&up(true)));
        assert_eq!(lines(&node), held);
        node.tick(at(5_999));
        assert!(removed(&mut node, at(5_999)).is_empty());
        node.tick(at(6_000));
        assert_eq!(removed(&mut node, at(6_000)), [other, l2]);
        assert_eq!(
            lines(&node),
            [
                "192.0.2.8 l2 no-interface",
                "192.0.2.1 bgp held",
                "2001:db8::1 bgp not-ready",
                "192.0.2.3 bgp not-ours"
            ]
        );
    }

    /// The addresses that were to be removed since the last call.
    fn removed(node: &mut Node, now: Duration) -> Vec<IpAddr> {
        let acts = node.take_actions(now).into_iter();
        let removed = acts.filter_map(|act| match act {
            Action::Remove { address, .. } => Some(address),
            _ => None,
        });
        removed.collect()
    }

    #[test]
    fn an_address_whose_mode_changes_to_and_fro_is_held_as_long_as_bird_tells_of_it() {
        let mut node = Node::new(at(0), 1_000, file::parse(TEXT.as_bytes()).unwrap(), None);
        let a: IpAddr = "192.0.2.1".parse().unwrap();
        let mut routes = Routes::default();
        routes.applied(&[a]);
        node.set_addresses(at(0), &on_lo(&[a]));
        node.set_routers(at(1), &routes, Some(&up(true)));
        let first = |node: &Node| (lines(node).swap_remove(0), states(node).swap_remove(0).2);
        let held = ("192.0.2.1 bgp held".to_owned(), 1_001);
        assert_eq!(first(&node), held);
        let l2 = TEXT.replacen("mode: bgp", "mode: l2", 1);
        node.set_file(at(2), file::parse(l2.as_bytes()).unwrap());
        assert_eq!(first(&node), held);
        node.set_file(at(3), file::parse(TEXT.as_bytes()).unwrap());
        assert_eq!(first(&node), held);
        node.set_file(at(4), file::parse(l2.as_bytes()).unwrap());
        routes.applied(&[]);
        node.set_routers(at(5), &routes, Some(&up(true)));
        assert_eq!(first(&node), held);
        node.tick(at(1_005));
        assert_eq!(first(&node).0, "192.0.2.1 l2 no-interface");
    }

    #[test]
    fn without_the_kernels_tables_routers_hear_that_nothing_is_served() {
        let text = TEXT.replace("bgp:\n", "data-plane: {socket: s}\nbgp:\n");
        let mut node = Node::new(at(0), 1_000, file::parse(text.as_bytes()).unwrap(), None);
        let a: IpAddr = "192.0.2.1".parse().unwrap();
        node.set_routers(at(0), &Routes::left([a].into()), None);
        node.set_data_plane(at(1), DataPlane::Ready);
        // Which addresses are on lo is not known, so BIRD keeps what it has.
        assert_eq!(node.for_routers(), None);
        assert_eq!(lines(&node)[0], "192.0.2.1 bgp held");
        let noted = node.noted();
        node.set_data_plane(at(2), DataPlane::Gone);
        assert_eq!(node.for_routers(), Some(Vec::new()));
        assert!(node.noted() > noted, "BIRD hears of it at once");
        assert_eq!(lines(&node)[0], "192.0.2.1 bgp held");
        node.set_routers(at(3), &Routes::default(), Some(&up(true)));
        assert_eq!(lines(&node)[0], "192.0.2.1 bgp not-ready");
    }

    #[test]
    fn an_address_that_something_else_put_on_lo_serves_and_stays_there() {
        let mut node = Node::new(at(0), 1_000, file::parse(TEXT.as_bytes()).unwrap(), None);
        let a: IpAddr = "192.0.2.1".parse().unwrap();
        let present = Present {
            interface: LOOPBACK,
            address: a,
            is_ours: false,
        };
        node.set_addresses(at(0), &[present]);
        assert_eq!(node.for_routers(), Some(vec![a]));
        let mut routes = Routes::default();
        routes.applied(&[a]);
        node.set_routers(at(1), &routes, Some(&up(true)));
        let status = node.statuses().swap_remove(0);
        assert_eq!(status.state, AckState::Held);
        assert!(
            status.detail.contains("something else"),
            "{}",
            status.detail
        );
        node.end(at(2));
        node.set_routers(at(3), &Routes::default(), Some(&up(true)));
        node.tick(at(5_000));
        assert!(removed(&mut node, at(5_000)).is_empty());
        assert_eq!(node.statuses(), []);
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
        node.set_routers(at(1), &routes, Some(&up(true)));
        assert_eq!(node.for_routers(), Some(vec![address]));
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
        node.set_routers(at(500), &routes, Some(&up(true)));
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
