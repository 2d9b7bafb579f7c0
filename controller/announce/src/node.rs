//! The announcer of one node, without any input or output: what comes in as calls, what is to be done as [`Action`]s.
//!
//! The shell calls it for each datagram, frame and change, and whenever [`Node::deadline`] has come, and then does what
//! [`Node::take_actions`] says. The simulation does the same with a network of its own.

mod addresses;
mod files;
#[cfg(test)]
mod simulation;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::ack::Status;
use crate::file::{Address, Announce, Mode};
use crate::frames::{self, Claim, Mac};
use crate::key::Keys;
use crate::l2::Claimant;
use crate::membership::{Identity, Membership, News, Probes, State};
use crate::network::Network;
use crate::owner::{Candidate, Standing, owner};
use crate::sealed::{Boot, Channel, Dropped, Opened};
use crate::standing::Career;
use addresses::Entry;
pub use addresses::Present;
use files::Files;

/// An action that the shell carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a datagram to a member.
    Send(SocketAddr, Vec<u8>),
    /// Find out at which address a member that sends from there reaches this node, and call [`Node::found_at`].
    Locate(SocketAddr),
    /// Ask for an address at once, whatever else is to be done. If that fails, [`Node::not_asked`] is to be called.
    Probe {
        /// The number of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
        /// The whole frame.
        bytes: Vec<u8>,
    },
    /// Send a frame.
    Frame {
        /// The number of the interface.
        interface: u32,
        /// The whole frame.
        bytes: Vec<u8>,
    },
    /// Put an address on an interface.
    Add {
        /// The number of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
    },
    /// Give an address on an interface its whole lifetime again.
    Renew {
        /// The number of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
    },
    /// Take an address from an interface.
    Remove {
        /// The number of the interface.
        interface: u32,
        /// The address.
        address: IpAddr,
    },
    /// Tell people.
    Tell(Event),
}

/// The state of the data plane of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPlane {
    /// The data plane does not run, or hangs.
    Gone,
    /// The data plane runs, and its /readyz says that it is not ready: it ends soon, or has just begun.
    Unready,
    /// The data plane serves.
    Ready,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member is alive.
    MemberUp(String),
    /// A member is dead, or left.
    MemberDown(String),
    /// Others declared this node dead while it lived.
    DeclaredDead,
    /// Two members have the name of this one.
    SameName(SocketAddr),
    /// Datagrams of a peer of the file cannot be opened.
    OtherKey(SocketAddr),
    /// There are more addresses, of which some cannot be held, than a state can speak of: this node holds none.
    TooManyUnable(usize),
    /// An address was on an interface that is not to have it, and is removed.
    Left(IpAddr),
    /// An address that this node held was taken from the interface by something else.
    Lost(IpAddr),
    /// An address changed its state on this node.
    Address(Status),
}

/// The identity of this node at its start, and its random values.
pub struct Start {
    /// Where datagrams of the others reach it. The unspecified address: that is open.
    pub at: SocketAddr,
    /// A number that is higher at each start, if the clock has it so.
    pub generation: u64,
    /// A random id, never used before.
    pub boot: Boot,
    /// Of this number depends whom this node probes when.
    pub seed: u64,
}

/// Counters for the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were dropped, by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Hosts that are no members and said that they have one of our addresses.
    pub conflicts: u64,
    /// Addresses that this node took and gave up, by reason.
    pub moves: BTreeMap<&'static str, u64>,
}

/// The announcer of one node.
pub struct Node {
    file: Arc<Announce>,
    /// The files of the others.
    files: Files,
    members: Option<Group>,
    career: Career,
    network: Network,
    data_plane: DataPlane,
    is_leaving: bool,
    /// The milliseconds since 1970 at the moment zero, for people.
    epoch: u64,
    entries: BTreeMap<IpAddr, Entry>,
    last_call: Duration,
    counters: Counters,
    actions: Vec<Action>,
    /// The addresses that name this node, each with whether it cannot hold it.
    cannot: Vec<(IpAddr, bool)>,
    /// There are more addresses in `cannot` than a state can speak of, so this node holds none.
    is_too_much: bool,
    /// When another member with the name of this one was told of.
    told_same_name: Option<Duration>,
    /// When the peers were told of whose datagrams no key opens.
    told_other_key: BTreeMap<SocketAddr, Duration>,
    /// The living others, as of this number of changes among the members.
    others: Vec<(String, Option<State>)>,
    changes: u64,
    /// How often a status changed.
    noted: u64,
    /// Whether something changed on which the owners depend.
    is_stale: bool,
    /// Whether the addresses on the interfaces were looked at.
    has_looked: bool,
    /// When the lifetimes of the held addresses are renewed next.
    renewal: Duration,
}

/// The members, and what seals what is said among them.
struct Group {
    membership: Membership,
    channel: Channel,
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
            network: Network::default(),
            data_plane: data_plane_of(&file).unwrap_or(DataPlane::Unready),
            is_leaving: false,
            epoch,
            entries: BTreeMap::new(),
            last_call: now,
            counters: Counters::default(),
            actions: Vec::new(),
            cannot: Vec::new(),
            is_too_much: false,
            told_same_name: None,
            told_other_key: BTreeMap::new(),
            others: Vec::new(),
            changes: 0,
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
        self.lift_bars(now);
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
            self.network = network;
            self.lift_bars(now);
            self.is_stale = true;
            self.settle(now);
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

    /// A datagram came from there. After the last one that is there, [`Node::settle`] is to be called.
    pub fn datagram(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) {
        self.look_at_the_clock(now);
        let Some(group) = &mut self.members else {
            return;
        };
        let mut replies = Vec::new();
        let taken = match group.channel.open(now, bytes, &mut replies) {
            Ok(Opened::Content(content)) => match group.membership.take(now, &content) {
                true => Ok(()),
                false => Err(Dropped::Malformed),
            },
            Ok(Opened::Met) => {
                if group.membership.is_nowhere() {
                    self.actions.push(Action::Locate(from));
                }
                group.membership.meet(from);
                Ok(())
            }
            Ok(Opened::Nothing) => Ok(()),
            Err(why) => Err(why),
        };
        let replies = replies.into_iter();
        self.actions
            .extend(replies.map(|bytes| Action::Send(from, bytes)));
        if taken == Err(Dropped::Unsealed) {
            self.tell_other_key(now, from);
        }
        if let Err(why) = taken {
            *self.counters.dropped.entry(why).or_default() += 1;
        }
    }

    /// A peer has another key, which looks as if a firewall dropped its datagrams.
    fn tell_other_key(&mut self, now: Duration, from: SocketAddr) {
        let members = self.file.members.as_ref();
        if !members.is_some_and(|members| members.peers.contains(&from)) {
            return;
        }
        let told = self.told_other_key.get(&from);
        if told.is_none_or(|told| now.saturating_sub(*told) >= OTHER_KEY_EVERY) {
            self.told_other_key.insert(from, now);
            self.actions.push(Action::Tell(Event::OtherKey(from)));
        }
    }

    /// Whether it is open where the others reach this node.
    #[must_use]
    pub fn is_nowhere(&self) -> bool {
        let group = self.members.as_ref();
        group.is_some_and(|group| group.membership.is_nowhere())
    }

    /// The others reach this node there.
    pub fn found_at(&mut self, now: Duration, at: SocketAddr) {
        if let Some(group) = &mut self.members {
            group.membership.found_at(now, at);
            self.settle(now);
        }
    }

    /// A frame came to an interface.
    pub fn frame(&mut self, now: Duration, interface: u32, bytes: &[u8]) {
        let Some(Claim {
            address,
            mac,
            is_question,
        }) = frames::claim(bytes)
        else {
            return;
        };
        let mut interfaces = self.network.interfaces.iter();
        if interfaces.any(|own| own.mac == mac) {
            return;
        }
        let mut interfaces = self.network.interfaces.iter();
        let own = interfaces.find(|own| own.index == interface);
        let is_first = own.is_some_and(|own| own.mac > mac);
        let by = claimant(self.members.as_ref(), mac).unwrap_or(Claimant::Foreign(mac));
        let entry = self.entries.get_mut(&address);
        let Some(entry) = entry.filter(|entry| entry.interface == Some(interface)) else {
            return;
        };
        let outranks = match &by {
            Claimant::Living(name) | Claimant::Dead(name) => {
                comes_before(name, &self.file.node, address)
            }
            Claimant::Foreign(_) => false,
        };
        let acts = match is_question {
            // Of two that ask at once one goes on.
            true if is_first => return,
            true => {
                entry.l2.asked_too(now, by);
                Vec::new()
            }
            false => {
                let is_disputed = entry.l2.is_held() || entry.l2.is_asked_for();
                let is_conflict = matches!(by, Claimant::Foreign(_)) && is_disputed;
                self.counters.conflicts += u64::from(is_conflict);
                entry.l2.claimed(now, by, outranks)
            }
        };
        self.act(address, &acts);
        self.note(now, address);
        self.settle(now);
    }

    /// A question for the address did not leave this host.
    pub fn not_asked(&mut self, now: Duration, address: IpAddr) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.l2.not_asked(now);
        }
    }

    /// The system did not put the address on the interface.
    pub fn refused(&mut self, now: Duration, address: IpAddr, why: String) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.barred = Some(why.clone());
            entry.l2.refused(now, why);
            self.is_stale = true;
            self.note(now, address);
            self.settle(now);
        }
    }

    /// When [`Node::tick`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let members = self.members.iter().map(|group| group.membership.deadline());
        let entries = self
            .entries
            .values()
            .filter_map(|entry| entry.l2.deadline());
        let career = self.career.deadline(self.file.r#return);
        members
            .chain(entries)
            .chain(career)
            .chain([self.renewal])
            .chain(self.files.deadline())
            .min()
    }

    /// Does what is due. What came before is to be taken first: after a pause of the process the answers of the others are there.
    pub fn tick(&mut self, now: Duration) {
        self.look_at_the_clock(now);
        if let Some(group) = &mut self.members
            && group.membership.deadline() <= now
        {
            group.membership.tick(now);
        }
        self.is_stale |= self.files.tick(now);
        self.renew(now);
        let due: Vec<IpAddr> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.l2.deadline().is_some_and(|due| due <= now))
            .map(|(address, _)| *address)
            .collect();
        for address in due {
            if let Some(entry) = self.entries.get_mut(&address) {
                let acts = entry.l2.tick(now);
                if entry.l2.is_settled() && entry.barred.take().is_some() {
                    self.is_stale = true;
                }
                self.act(address, &acts);
                self.note(now, address);
            }
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
        if let Some(group) = &mut self.members {
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

    /// The state of each address, in the order of the file.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        let addresses = self.file.addresses.iter();
        let entries = addresses.filter_map(|one| self.entries.get(&one.address));
        entries.map(|entry| entry.status.clone()).collect()
    }

    /// The addresses that routers are to know.
    #[must_use]
    pub fn for_routers(&self) -> Vec<IpAddr> {
        let addresses = self.file.addresses.iter();
        let served = addresses.filter(|one| one.mode == Mode::Bgp && self.can_hold(one));
        served.map(|one| one.address).collect()
    }

    /// The addresses that this node holds on an interface.
    #[must_use]
    pub fn held(&self) -> Vec<(u32, IpAddr)> {
        let held = self.entries.iter().filter(|(_, entry)| entry.l2.is_held());
        held.filter_map(|(address, entry)| Some((entry.interface?, *address)))
            .collect()
    }

    /// The members that are alive, with this one, and those that are dead.
    #[must_use]
    pub fn members(&self) -> (usize, usize) {
        let counts = self.members.as_ref().map(|group| group.membership.counts());
        let (alive, dead) = counts.unwrap_or_default();
        (alive + 1, dead)
    }

    /// The counters of this process.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How long the members took to answer; `None`: this node is alone.
    #[must_use]
    pub fn probes(&self) -> Option<&Probes> {
        self.members.as_ref().map(|group| group.membership.probes())
    }

    /// A process that was paused may have been declared dead, and asks at once.
    fn look_at_the_clock(&mut self, now: Duration) {
        let pause = now.saturating_sub(self.last_call);
        self.last_call = now;
        if let Some(group) = &mut self.members
            && pause >= PAUSE
        {
            group.membership.woke(now);
        }
    }

    /// Whether this node could hold the address now.
    fn can_hold(&self, address: &Address) -> bool {
        address.names(&self.file.node) && address.ready && self.can_serve()
    }

    /// Whether this node serves, and goes on to.
    fn can_serve(&self) -> bool {
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
            self.weigh();
        }
        let settled = |(_, state): &(String, Option<State>)| {
            let standing = state.as_ref().and_then(|state| state.standing);
            standing.and_then(standing_of) == Some(Standing::Settled)
        };
        let has_settled = self.others.iter().any(settled);
        let is_able = self.can_serve() && !self.is_too_much;
        self.career
            .tick(now, self.file.r#return, is_able, has_settled);
        if self.is_stale || before != self.own_standing() {
            self.is_stale = false;
            let others = std::mem::take(&mut self.others);
            self.choose_owners(now, &others);
            self.others = others;
            self.say(now);
        }
        self.hear_news(now);
    }

    fn hear_news(&mut self, now: Duration) {
        let Some(group) = &mut self.members else {
            return;
        };
        for news in group.membership.take_news() {
            let event = match news {
                News::Up(name) => {
                    self.member_is_back(now, &name);
                    Event::MemberUp(name)
                }
                News::Down(name) => Event::MemberDown(name),
                News::Asked(by, addresses) => {
                    self.answer(&by, addresses);
                    continue;
                }
                News::Answered { by, file, mut has } => {
                    has.retain(|(address, _)| self.entries.contains_key(address));
                    self.is_stale |= self.files.answered(&by, file, &has);
                    continue;
                }
                News::SameName(at) => {
                    let told = self.told_same_name;
                    if told.is_some_and(|told| now.saturating_sub(told) < SAME_NAME_EVERY) {
                        continue;
                    }
                    self.told_same_name = Some(now);
                    Event::SameName(at)
                }
                News::BackFromTheDead { lost } => {
                    if lost {
                        self.career.was_declared_dead(now);
                    }
                    Event::DeclaredDead
                }
            };
            self.actions.push(Action::Tell(event));
        }
    }

    /// Tells a member which of the addresses are in the file of this node and name it.
    fn answer(&mut self, by: &str, addresses: Vec<IpAddr>) {
        let has = addresses.into_iter().map(|address| {
            let one = self.in_file(address);
            let has = one.is_some_and(|one| one.may_be_held_by(&self.file.node));
            (address, has)
        });
        let has = has.collect();
        let file = self.files.digest(&self.file.node);
        if let Some(group) = &mut self.members {
            group.membership.answer(by, file, has);
        }
    }

    /// A member that was not seen may have held what this node holds, and the hosts beside it may have learned that. Or it has what
    /// this node is to hold, and gives it up.
    fn member_is_back(&mut self, now: Duration, name: &str) {
        let addresses = self.file.addresses.iter();
        for one in addresses.filter(|one| one.names(name)) {
            if let Some(entry) = self.entries.get_mut(&one.address) {
                entry.l2.announce_again(now);
                entry.l2.ask_sooner(now);
            }
        }
    }

    /// Finds out what this node cannot hold, and whether the members can be told.
    fn weigh(&mut self) {
        let addresses = self.file.addresses.iter();
        let addresses = addresses.filter(|one| one.may_be_held_by(&self.file.node));
        let cannot = addresses.map(|one| (one.address, !self.could_hold(one)));
        self.cannot = cannot.collect();
        // A node that can hold nothing need not say what it cannot hold.
        let state = self.state(Some(Standing::Settled));
        let is_known = self.members.is_some() && self.has_looked && self.can_serve();
        let is_too_much = is_known && state.standing.is_none();
        if is_too_much && !self.is_too_much {
            let event = Event::TooManyUnable(self.cannot.iter().filter(|one| one.1).count());
            self.actions.push(Action::Tell(event));
        }
        self.is_too_much = is_too_much;
    }

    /// The state that this node reports with this standing.
    fn state(&self, standing: Option<Standing>) -> State {
        let addresses = match standing {
            Some(_) => &self.cannot[..],
            None => &[],
        };
        let name = self.file.node.clone();
        let file = self.files.digest(&name);
        let standing = standing.map(number_of);
        State::new(name, standing, file, addresses, self.macs())
    }

    /// The hardware addresses by which the others know this node: those of the interfaces with addresses first.
    fn macs(&self) -> Vec<Mac> {
        let used: BTreeSet<u32> = self
            .entries
            .values()
            .filter_map(|entry| entry.interface)
            .collect();
        let mut usable: Vec<_> = self.network.usable().collect();
        usable.sort_by_key(|one| !used.contains(&one.index));
        let mut macs = Vec::new();
        for one in usable {
            if !macs.contains(&one.mac) && macs.len() < MACS {
                macs.push(one.mac);
            }
        }
        macs
    }

    /// Tells the members what this node can hold.
    fn say(&mut self, now: Duration) {
        let state = self.state(self.own_standing());
        if let Some(group) = &mut self.members {
            group.membership.say(now, state);
        }
    }

    /// The standing of this node as an owner; `None`: it can hold nothing.
    fn own_standing(&self) -> Option<Standing> {
        let is_able = self.can_serve() && !self.is_too_much;
        self.career.standing().filter(|_| is_able)
    }
}

/// The state of a data plane that the file does not name: it counts as ready.
fn data_plane_of(file: &Announce) -> Option<DataPlane> {
    file.data_plane.is_none().then_some(DataPlane::Ready)
}

/// Whether of two nodes, both settled, `one` would be the owner.
fn comes_before(one: &str, other: &str, address: IpAddr) -> bool {
    let candidates = [one, other].map(|name| Candidate {
        name,
        standing: Standing::Settled,
    });
    owner(address, candidates) == Some(one)
}

/// The standing of a member as an owner of the address, if its file has it.
fn could(state: &State, address: IpAddr) -> Option<Standing> {
    let standing = standing_of(state.standing?)?;
    (!state.cannot.has(address)).then_some(standing)
}

/// The member with this hardware address.
fn claimant(members: Option<&Group>, mac: Mac) -> Option<Claimant> {
    let (name, is_alive) = members?.membership.with_mac(mac)?;
    Some(if is_alive {
        Claimant::Living(name)
    } else {
        Claimant::Dead(name)
    })
}

fn lifetime() -> Duration {
    Duration::from_secs(LIFETIME.into())
}

const fn number_of(standing: Standing) -> u8 {
    match standing {
        Standing::Flapping => 0,
        Standing::Returning => 1,
        Standing::Settled => 2,
    }
}

const fn standing_of(number: u8) -> Option<Standing> {
    match number {
        0 => Some(Standing::Flapping),
        1 => Some(Standing::Returning),
        2 => Some(Standing::Settled),
        // Of a later version: it is no candidate for this one.
        _ => None,
    }
}

/// Members probe every 100 ms, so a process that was not called for so long did not run.
const PAUSE: Duration = Duration::from_millis(350);
/// Hardware addresses that a state has at most.
const MACS: usize = 16;
/// The seconds for which the kernel keeps an address of ours without a word from the announcer: longer than a start of the announcer
/// takes, for which addresses are not to move.
pub const LIFETIME: u32 = 60;
const RENEW_EVERY: Duration = Duration::from_secs(20);
const SAME_NAME_EVERY: Duration = Duration::from_secs(60);
const OTHER_KEY_EVERY: Duration = Duration::from_secs(60);
