//! The announcer of one node, without any input or output: what comes in as calls, what is to be done as [`Action`]s.
//!
//! The shell calls it for each datagram, frame and change, and whenever [`Node::deadline`] has come, and then does what
//! [`Node::take_actions`] says. The simulation does the same with a network of its own.

mod actions;
mod addresses;
mod entries;
mod files;
mod loopback;
mod members;
mod routers;
mod saying;
#[cfg(test)]
mod simulation;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use actions::{Action, Connections, Counters, DataPlane, Event, Start};
pub use addresses::Present;
use entries::Entries;
use files::Files;
pub use loopback::LOOPBACK;
use loopback::Loopback;
use members::Group;
use routers::Routers;
use saying::standing_of;

use crate::ack::{State as AckState, Status};
use crate::file::{Address, Announce, Mode};
use crate::frames::Mac;
use crate::key::Keys;
use crate::membership::{Identity, Membership, State};
use crate::network::Network;
use crate::owner::Standing;
use crate::sealed::Channel;
use crate::standing::Career;

/// The announcer of one node.
pub struct Node {
    file: Arc<Announce>,
    /// The files of the others.
    files: Files,
    members: Option<Group>,
    routers: Routers,
    loopback: Loopback,
    /// The addresses that routers were to know last, where that was known.
    told: Option<Vec<IpAddr>>,
    career: Career,
    network: Network,
    data_plane: DataPlane,
    is_leaving: bool,
    /// The milliseconds since 1970 at the moment zero, for people.
    epoch: u64,
    entries: Entries,
    last_call: Duration,
    counters: Counters,
    actions: Vec<Action>,
    /// The addresses that name this node, each with whether it cannot hold it.
    cannot: Vec<(IpAddr, bool)>,
    /// There are more addresses in `cannot` than a state can speak of, so this node holds none.
    is_too_much: bool,
    /// When it was told that others declared this node dead.
    told_declared_dead: Option<Duration>,
    /// When another member with the name of this one was told of.
    told_same_name: Option<Duration>,
    /// When the peers were told of whose datagrams no key opens.
    told_other_key: BTreeMap<SocketAddr, Duration>,
    /// The living others, as of this number of changes among the members.
    others: Vec<(String, Option<State>)>,
    changes: u64,
    /// The addresses that this node gives up, by the member that is to have each.
    offers: BTreeMap<String, Vec<IpAddr>>,
    /// When this process ran again after a pause.
    woke: Option<Duration>,
    /// How often a status changed.
    noted: u64,
    /// Whether something changed on which the owners depend.
    is_stale: bool,
    /// Whether the addresses on the interfaces were looked at.
    has_looked: bool,
    /// When the lifetimes of the held addresses are renewed next.
    renewal: Duration,
}

impl Node {
    /// A node that begins. `members`: the keys, where the file has members.
    #[must_use]
    pub fn new(now: Duration, epoch: u64, file: Announce, members: Option<(&Keys, Start)>) -> Self {
        let peers = file.members.as_ref().map(|members| members.peers.clone());
        let group = members.map(|(keys, start)| {
            let identity = Identity {
                name: file.node.clone(),
                at: start.at,
                generation: start.generation,
            };
            let peers = peers.unwrap_or_default();
            Group {
                membership: Membership::new(now, identity, peers, start.seed),
                channel: Channel::new(keys, start.boot),
            }
        });
        let mut node = Self {
            career: Career::begin(now, group.is_none()),
            members: group,
            routers: Routers::default(),
            loopback: Loopback::default(),
            told: None,
            network: Network::default(),
            data_plane: data_plane_of(&file).unwrap_or(DataPlane::Unready),
            is_leaving: false,
            epoch,
            entries: Entries::default(),
            last_call: now,
            counters: Counters::default(),
            actions: Vec::new(),
            cannot: Vec::new(),
            is_too_much: false,
            told_declared_dead: None,
            told_same_name: None,
            told_other_key: BTreeMap::new(),
            others: Vec::new(),
            changes: 0,
            offers: BTreeMap::new(),
            woke: None,
            noted: 0,
            is_stale: true,
            has_looked: false,
            renewal: now + RENEW_EVERY,
            files: Files::of(&file),
            file: Arc::new(file),
        };
        node.settle(now);
        node
    }

    /// The file in force.
    #[must_use]
    pub fn file(&self) -> &Announce {
        &self.file
    }

    /// Takes a new file of the same node and the same members' socket.
    pub fn set_file(&mut self, now: Duration, file: Announce) {
        if let (Some(group), Some(members)) = (&mut self.members, &file.members) {
            group.membership.set_peers(now, members.peers.clone());
        }
        self.data_plane = data_plane_of(&file).unwrap_or(self.data_plane);
        self.files.set_file(now, &self.file, &file);
        self.told_other_key.clear();
        self.file = Arc::new(file);
        self.lift_bars(now, |_| true);
        self.loopback.try_again();
        self.noted += 1;
        self.is_stale = true;
        self.settle(now);
    }

    /// Takes new keys.
    pub fn set_keys(&mut self, keys: &Keys) {
        if let Some(group) = &mut self.members {
            group.channel.set_keys(keys);
        }
    }

    /// The interfaces and routes are these now.
    pub fn set_network(&mut self, now: Duration, network: Network) {
        if self.network != network {
            let before = std::mem::replace(&mut self.network, network.clone());
            // Other interfaces come and go with the pods of a node.
            self.lift_bars(now, |one| {
                let choose =
                    |network: &Network| network.choose(one.address, &one.interface).cloned();
                choose(&before) != choose(&network)
            });
            self.announce_from(now, &before);
            self.is_stale = true;
            self.settle(now);
        }
    }

    /// Announces again what is on an interface that had another hardware address before.
    fn announce_from(&mut self, now: Duration, before: &Network) {
        let macs = before.interfaces.iter().map(|one| (one.index, one.mac));
        let macs: BTreeMap<u32, Mac> = macs.collect();
        let changed = self.network.interfaces.iter();
        let changed = changed.filter(|one| macs.get(&one.index).is_some_and(|mac| *mac != one.mac));
        let changed: BTreeSet<u32> = changed.map(|one| one.index).collect();
        for (interface, address) in self.held() {
            if changed.contains(&interface) {
                self.entries
                    .change(address, |entry| entry.l2.announce_again(now));
            }
        }
    }

    /// This is known of the data plane now.
    pub fn set_data_plane(&mut self, now: Duration, data_plane: DataPlane) {
        if self.data_plane != data_plane {
            self.data_plane = data_plane;
            self.is_stale = true;
            self.settle(now);
        }
    }

    /// A question for the address did not leave this host.
    pub fn not_asked(&mut self, now: Duration, address: IpAddr) {
        self.entries
            .change(address, |entry| entry.l2.not_asked(now));
    }

    /// The system did not put the address on the interface. After the last one that is known, [`Node::settle`] is to be called.
    pub fn refused(&mut self, now: Duration, interface: u32, address: IpAddr, why: String) {
        if interface == LOOPBACK {
            self.loopback.refuse(now, address, why);
            self.is_stale = true;
            return;
        }
        let entry = self.entries.get(address);
        // Of another interface than it is meant for by now, nothing is known by that.
        if entry.is_none_or(|entry| entry.interface != Some(interface)) {
            return;
        }
        let known = self.entries.change(address, |entry| entry.bar(now, why));
        if known.is_some() {
            self.is_stale = true;
            self.note(now, address);
        }
    }

    /// When [`Node::tick`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let members = self.members.iter().map(|group| group.membership.deadline());
        let career = self.career.deadline(self.file.r#return);
        members
            .chain(self.entries.deadline())
            .chain(career)
            .chain([self.renewal])
            .chain(self.files.deadline())
            .chain(self.loopback.deadline())
            .min()
    }

    /// Does what is due. What came before is to be taken first: after a pause of the process the answers of the others are there.
    pub fn tick(&mut self, now: Duration) {
        self.look_at_the_clock(now);
        if let Some(group) = &mut self.members
            && group.membership.deadline() <= now
        {
            let mut entries = self.entries.iter();
            let holds = entries.any(|(_, entry)| entry.l2.is_held());
            group.membership.set_holds(holds);
            group.membership.tick(now);
        }
        self.is_stale |= self.files.tick(now);
        self.renew(now);
        for address in self.entries.due(now) {
            let acts = self.entries.change(address, |entry| {
                let acts = entry.l2.tick(now);
                self.is_stale |= entry.lift_bar(now) || entry.returns(now);
                acts
            });
            self.act(address, &acts.unwrap_or_default());
            self.note(now, address);
        }
        if self.loopback.deadline().is_some_and(|due| due <= now) {
            self.settle_loopback(now);
        }
        self.settle(now);
    }

    /// Renews the lifetimes of the addresses that this node holds, if that is due. Where this process was paused for so long that they
    /// may have ended, the next look at the interfaces finds what is left.
    fn renew(&mut self, now: Duration) {
        if now < self.renewal {
            return;
        }
        let is_late = now >= self.renewal + lifetime() - RENEW_EVERY;
        self.renewal = now + RENEW_EVERY;
        if !is_late {
            let held = self.held().into_iter();
            let renewals = held.map(|(interface, address)| Action::Renew { interface, address });
            self.actions.extend(renewals);
        }
    }

    /// Gives up all addresses that another node can take, and tells the others that this one goes.
    pub fn leave(&mut self, now: Duration) {
        self.is_leaving = true;
        self.is_stale = true;
        self.settle(now);
    }

    /// The last words: what is still held is removed.
    pub fn end(&mut self, now: Duration) {
        if let Some(group) = &mut self.members {
            group.membership.leave(now);
        }
        self.file = Arc::new(Announce {
            addresses: Vec::new(),
            ..(*self.file).clone()
        });
        self.is_stale = true;
        self.settle(now);
    }

    /// The actions since the last call, in their order.
    pub fn take_actions(&mut self, now: Duration) -> Vec<Action> {
        let offers = std::mem::take(&mut self.offers);
        if let Some(group) = &mut self.members {
            for (to, addresses) in offers {
                group.membership.offer(&to, &addresses);
            }
            for (to, content) in group.membership.take_sends() {
                if let Some(sealed) = group.channel.seal(now, &content) {
                    self.actions.push(Action::Send(to, sealed));
                }
            }
        }
        std::mem::take(&mut self.actions)
    }

    /// A number that grows whenever [`Node::statuses`] or [`Node::for_routers`] changes.
    #[must_use]
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// The state of each address, in the order of the file, and of those that BIRD has still to withdraw.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        let leaving = self.routers.leaving();
        let addresses = self.file.addresses.iter();
        let statuses = addresses.filter_map(|one| {
            let status = &self.entries.get(one.address)?.status;
            // BIRD may still tell of one that is announced otherwise now.
            let told = leaving.get(&one.address);
            let told = told.filter(|_| status.state != AckState::Held);
            Some(told.unwrap_or(status))
        });
        let more = leaving.values();
        let more = more.filter(|status| !self.entries.contains(status.address));
        statuses.chain(more).cloned().collect()
    }

    /// The addresses that routers are to know. `None`: that depends on the addresses on `lo`, which are not known yet.
    #[must_use]
    pub fn for_routers(&self) -> Option<Vec<IpAddr>> {
        let addresses = self.file.addresses.iter();
        let served = addresses.filter(|one| one.mode == Mode::Bgp && self.serves(one));
        let mut served: Vec<IpAddr> = served.map(|one| one.address).collect();
        if !self.has_looked && !served.is_empty() {
            return None;
        }
        // Routers lead nobody to a host that would drop what comes.
        served.retain(|address| self.loopback.has(*address));
        Some(served)
    }

    /// The addresses that this node holds on an interface.
    #[must_use]
    pub fn held(&self) -> Vec<(u32, IpAddr)> {
        let held = self.entries.iter().filter(|(_, entry)| entry.l2.is_held());
        held.filter_map(|(address, entry)| Some((entry.interface?, address)))
            .collect()
    }

    /// Whether an address is still served here until another member has it.
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|(_, entry)| entry.l2.is_handed_over())
    }

    /// The counters of this process.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether this node serves the address now.
    fn serves(&self, address: &Address) -> bool {
        address.names(&self.file.node) && address.ready && self.is_serving()
    }

    /// Whether this node serves, and goes on to.
    fn is_serving(&self) -> bool {
        self.data_plane == DataPlane::Ready && !self.is_leaving
    }

    /// Brings everything in line with what is known now.
    pub fn settle(&mut self, now: Duration) {
        let before = self.own_standing();
        self.hear_news(now);
        if let Some(group) = &self.members
            && group.membership.changes() != self.changes
        {
            self.changes = group.membership.changes();
            self.others = group.membership.others();
            self.files.hear(now, &self.file, &self.others);
            self.is_stale = true;
        }
        if self.is_stale {
            self.match_entries(now);
            self.weigh(now);
        }
        let settled = |(_, state): &(String, Option<State>)| {
            let standing = state.as_ref().and_then(|state| state.standing);
            standing.and_then(standing_of) == Some(Standing::Settled)
        };
        // What a process that begins still has, no other member has taken: it goes on as the one before it.
        let goes_on = self.career.is_beginning() && !self.held().is_empty();
        let has_settled = !goes_on && self.others.iter().any(settled);
        let is_able = self.is_serving() && !self.is_too_much;
        self.career
            .tick(now, self.file.r#return, is_able, has_settled);
        if self.is_stale || before != self.own_standing() {
            self.is_stale = false;
            let others = std::mem::take(&mut self.others);
            self.choose_owners(now, &others);
            self.others = others;
            self.settle_loopback(now);
            self.say(now);
        }
        self.hear_news(now);
    }
}

/// The state of a data plane that the file does not name: it counts as ready.
fn data_plane_of(file: &Announce) -> Option<DataPlane> {
    file.data_plane.is_none().then_some(DataPlane::Ready)
}

fn lifetime() -> Duration {
    Duration::from_secs(LIFETIME.into())
}

/// The seconds for which the kernel keeps an address of ours without a word from the announcer: longer than a start of the announcer
/// takes, for which addresses are not to move.
pub const LIFETIME: u32 = 60;
const RENEW_EVERY: Duration = Duration::from_secs(20);
