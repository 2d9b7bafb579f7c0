//! The addresses of the file on this node: who owns each, and what is done for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::entries::Entry;
use super::loopback::LOOPBACK;
use super::saying::standing_for;
use super::{Action, Connections, DataPlane, Event, Node};
use crate::ack::{State as AckState, Status};
use crate::file::{Address, Mode};
use crate::frames::{self, Claim, Mac};
use crate::l2::{Act, Claimant, Obstacle, Wanted};
use crate::membership::State;
use crate::owner::{Candidate, Standing, owner};

/// An address that is on an interface of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Present {
    /// The number of the interface.
    pub interface: u32,
    /// The address.
    pub address: IpAddr,
    /// Whether a process of ours put it there, whatever the file says of it. Others are never removed.
    pub is_ours: bool,
}

impl Node {
    /// One entry for each address of the file, on the interface that the network has for it now.
    pub(super) fn match_entries(&mut self, now: Duration) {
        let file = Arc::clone(&self.file);
        let wanted: BTreeSet<IpAddr> = file.addresses.iter().map(|one| one.address).collect();
        let mut gone = self.entries.addresses();
        gone.retain(|one| !wanted.contains(one));
        for address in gone {
            self.release(now, address);
            self.withdraw(address);
            self.entries.remove(address);
        }
        for (place, one) in file.addresses.iter().enumerate() {
            let chosen = match one.mode {
                Mode::L2 => self.network.choose(one.address, &one.interface),
                Mode::Bgp => None,
            };
            let chosen = chosen.map(|interface| interface.index);
            if !self.entries.contains(one.address) {
                self.begin_entry(now, one, place, chosen);
            }
            match one.mode {
                Mode::L2 => self.withdraw(one.address),
                Mode::Bgp => self.come_back(one.address),
            }
            let before = self.entries.change(one.address, |entry| {
                entry.place = place;
                entry.status.mode = Some(one.mode);
                entry.interface
            });
            if before.flatten() != chosen {
                // An interface that goes down keeps its addresses, so the address is removed.
                self.release(now, one.address);
                self.entries
                    .change(one.address, |entry| entry.interface = chosen);
            }
        }
    }

    fn begin_entry(&mut self, now: Duration, one: &Address, place: usize, interface: Option<u32>) {
        let status = Status {
            address: one.address,
            state: AckState::NotReady,
            owner: None,
            since: self.wall(now),
            detail: String::new(),
            mode: Some(one.mode),
        };
        let entry = Entry::new(interface, place, status);
        self.entries.insert(one.address, entry);
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
        let entry = self.entries.get(address);
        if entry.is_none_or(|entry| entry.interface != Some(interface)) {
            return;
        }
        let mut interfaces = self.network.interfaces.iter();
        if interfaces.any(|own| own.mac == mac) {
            return;
        }
        let mut interfaces = self.network.interfaces.iter();
        let own = interfaces.find(|own| own.index == interface);
        // Of two that ask at once one goes on.
        if is_question && own.is_some_and(|own| own.mac > mac) {
            return;
        }
        let is_held = entry.is_some_and(|entry| entry.l2.is_held());
        let by = self.claimant(now, mac, is_held);
        let outranks = match &by {
            Claimant::Living(name) | Claimant::Dead(name) => {
                comes_before(name, &self.file.node, address)
            }
            Claimant::Foreign(_) => false,
        };
        let is_beginning = self.career.is_beginning();
        let acts = self.entries.change(address, |entry| {
            if is_question {
                entry.l2.asked_too(now, by);
                return Vec::new();
            }
            let had_rival = entry.l2.has_rival(now);
            let is_disputed = entry.l2.is_held() || entry.l2.is_asked_for();
            let is_conflict = matches!(by, Claimant::Foreign(_)) && is_disputed;
            self.counters.conflicts += u64::from(is_conflict);
            let acts = entry.l2.claimed(now, by, outranks);
            // What this node only keeps it gives up then.
            self.is_stale |= is_beginning && !had_rival && entry.l2.has_rival(now);
            acts
        });
        self.act(address, &acts.unwrap_or_default());
        self.note(now, address);
        self.settle(now);
    }

    /// Brings the addresses that are on interfaces in line with those that are held. It is called when everything that was asked for
    /// before is done. What is there at first was left by an earlier process of this node: it stays until the owners are known, so
    /// that a start interrupts nobody.
    pub fn set_addresses(&mut self, now: Duration, present: &[Present]) {
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let removals = self.actions.iter().filter_map(|action| match action {
            Action::Remove {
                interface, address, ..
            } => Some((*interface, *address)),
            _ => None,
        });
        let removals: BTreeSet<(u32, IpAddr)> = removals.collect();
        self.is_stale |= self.loopback.look(now, present);
        let on_networks = present.iter().filter(|one| one.interface != LOOPBACK);
        for one in on_networks.filter(|one| one.is_ours) {
            let (interface, address) = (one.interface, one.address);
            if removals.contains(&(interface, address)) {
                continue;
            }
            let is_held = self.entries.change(address, |entry| {
                let is_its = entry.interface == Some(interface);
                if is_its && is_first && !entry.l2.is_held() {
                    entry.l2.adopt(now);
                }
                is_its && entry.l2.is_held()
            });
            match is_held.unwrap_or_default() {
                // Its lifetime is what the process before left of it.
                true if is_first => self.actions.push(Action::Renew { interface, address }),
                true => {}
                false => {
                    self.actions.push(Action::Remove {
                        interface,
                        address,
                        connections: Connections::Stay,
                    });
                    self.actions.push(Action::Tell(Event::Left(address)));
                }
            }
        }
        let present = present.iter().map(|one| (one.interface, one.address));
        let present: BTreeSet<(u32, IpAddr)> = present.collect();
        for held in self.held() {
            if !present.contains(&held) {
                self.entries.change(held.1, |entry| entry.l2.lost());
                self.actions.push(Action::Tell(Event::Lost(held.1)));
                self.is_stale = true;
            }
        }
        self.is_stale |= is_first;
        self.settle(now);
        self.settle_loopback(now);
    }

    /// Whether this node could hold the address, if its standing allows it.
    pub(super) fn can_hold(&self, address: &Address) -> bool {
        let entry = self.entries.get(address.address);
        let is_free =
            entry.is_some_and(|entry| entry.interface.is_some() && entry.barred.is_none());
        self.serves(address) && is_free && entry.is_some_and(Entry::is_back)
    }

    /// Whether the system refused the address, and nothing else is in the way.
    fn is_last_resort_for(&self, address: &Address) -> bool {
        let entry = self.entries.get(address.address);
        let is_barred =
            entry.is_some_and(|entry| entry.interface.is_some() && entry.barred.is_some());
        self.serves(address) && is_barred && self.own_standing().is_some()
    }

    /// Of the addresses that the system refused, those for which something changed may be tried again.
    pub(super) fn lift_bars(&mut self, now: Duration, has_changed: impl Fn(&Address) -> bool) {
        let file = Arc::clone(&self.file);
        for one in &file.addresses {
            self.entries.change(one.address, |entry| {
                if entry.barred.is_some() && has_changed(one) {
                    entry.may_be_taken(now);
                }
            });
        }
    }

    /// Chooses the owner of each address, and takes and gives up what follows from it.
    pub(super) fn choose_owners(&mut self, now: Duration, others: &[(String, Option<State>)]) {
        let file = Arc::clone(&self.file);
        let mut questions = BTreeMap::<String, Vec<IpAddr>>::new();
        for one in &file.addresses {
            match one.mode {
                Mode::Bgp => self.note_told(now, one),
                Mode::L2 => {
                    for name in self.choose_owner(now, one, others) {
                        questions.entry(name).or_default().push(one.address);
                    }
                }
            }
        }
        let questions = self.files.ask(now, questions);
        if let Some(group) = &mut self.members {
            for (name, addresses) in questions {
                group.membership.ask(&name, &addresses);
            }
        }
    }

    /// Chooses the owner of an address. Returns the members that are to be asked for it.
    fn choose_owner(
        &mut self,
        now: Duration,
        one: &Address,
        others: &[(String, Option<State>)],
    ) -> Vec<String> {
        let file = Arc::clone(&self.file);
        let own = self.own_standing().filter(|_| self.can_hold(one));
        let own = own.map(|standing| Candidate {
            name: &file.node,
            standing,
        });
        let mut candidates = self.candidates(one, others);
        let is_offered = self.hear_offer(now, one.address, &mut candidates);
        candidates.extend(own);
        let owner = owner(one.address, candidates.iter().copied());
        let best = candidates.into_iter().find(|one| Some(one.name) == owner);
        let to_ask = self.to_ask(one.address, others, best);
        let owner = match owner {
            None if self.is_last_resort_for(one) => Some(&*file.node),
            owner => owner,
        };
        self.introduce(now, one.address);
        let wanted = self.wanted(now, one, others, owner, is_offered);
        let acts = self.entries.change(one.address, |entry| {
            if entry.status.owner.as_deref() != owner {
                entry.status.owner = owner.map(str::to_owned);
                self.noted += 1;
            }
            if let Some(offer) = entry.offer.as_mut().filter(|_| wanted == Wanted::Take) {
                offer.open = None;
            }
            entry.l2.want(now, wanted)
        });
        let acts = acts.unwrap_or_default();
        self.act(one.address, &acts);
        self.note(now, one.address);
        to_ask
    }

    /// A foreign host that has the address may turn out to be a member.
    fn introduce(&mut self, now: Duration, address: IpAddr) {
        let entry = self.entries.get(address);
        if let Some(Obstacle::Claimed(Claimant::Foreign(mac))) =
            entry.and_then(|entry| entry.l2.obstacle())
        {
            let is_held = entry.is_some_and(|entry| entry.l2.is_held());
            let by = self.claimant(now, *mac, is_held);
            if !matches!(by, Claimant::Foreign(_)) {
                self.entries
                    .change(address, |entry| entry.l2.introduced(now, by));
            }
        }
    }

    /// Whether a member offers the address to this node. Such a member is no candidate, though its state may not say so yet.
    fn hear_offer(
        &mut self,
        now: Duration,
        address: IpAddr,
        candidates: &mut Vec<Candidate<'_>>,
    ) -> bool {
        let is_open = self.entries.change(address, |entry| {
            let offer = entry.offer.as_mut()?;
            let is_candidate = candidates.iter().any(|one| one.name == offer.by);
            offer.ahead = offer.ahead.filter(|until| is_candidate && now < *until);
            if offer.ahead.is_some() {
                candidates.retain(|one| one.name != offer.by);
            }
            Some(offer.open.is_some_and(|until| now < until))
        });
        is_open.flatten().unwrap_or_default()
    }

    /// What this node does for an address of this owner.
    fn wanted(
        &self,
        now: Duration,
        one: &Address,
        others: &[(String, Option<State>)],
        owner: Option<&str>,
        is_offered: bool,
    ) -> Wanted {
        let is_served = self.data_plane != DataPlane::Gone;
        let entry = self.entries.get(one.address);
        let is_held = entry.is_some_and(|entry| entry.l2.is_held());
        let has_rival = entry.is_some_and(|entry| entry.l2.has_rival(now));
        match owner {
            Some(name) if name == self.file.node && is_offered => Wanted::Take,
            Some(name) if name == self.file.node => Wanted::Hold,
            // One that begins keeps what it has until it knows the others, unless another one has taken it, and the last one that can
            // hold an address keeps it until it is not served any more: better served late than nowhere.
            _ if is_held && self.career.is_beginning() && has_rival => Wanted::GiveUp,
            _ if is_held && self.career.is_beginning() => Wanted::Hold,
            None if is_held && is_served && one.names(&self.file.node) => Wanted::Hold,
            // One that may not hold it any more leaves the others the time to find that out.
            None if is_served && others.iter().any(|(name, _)| one.names(name)) => Wanted::HandOver,
            None => Wanted::Release,
            // Others that declared this node dead have what it had.
            Some(_) if self.career.is_flapping() || !is_served => Wanted::GiveUp,
            Some(_) => Wanted::HandOver,
        }
    }

    /// The other members that have the address in their files and can hold it.
    pub(super) fn candidates<'m>(
        &self,
        address: &Address,
        others: &'m [(String, Option<State>)],
    ) -> Vec<Candidate<'m>> {
        let entry = self.entries.get(address.address);
        let is_held = entry.is_some_and(|entry| entry.l2.is_held());
        let candidates = others.iter().filter_map(|(name, state)| {
            let standing = standing_for(state.as_ref()?, address.address)?;
            let has = self.files.has(name, address, is_held);
            has.then_some(Candidate { name, standing })
        });
        candidates.collect()
    }

    /// The members that would be the owner of the address beside `best`, which may be one of them, and of which it is not known
    /// whether their files have it, or still have it.
    fn to_ask(
        &self,
        address: IpAddr,
        others: &[(String, Option<State>)],
        best: Option<Candidate<'_>>,
    ) -> Vec<String> {
        let best = best.map(|best| best.rank(address));
        let unsure = self.files.unsure(address, others);
        let better = unsure.filter(|(name, state)| {
            standing_for(state, address).is_some_and(|standing| {
                let rank = Candidate { name, standing }.rank(address);
                best.is_none_or(|best| rank >= best)
            })
        });
        better.map(|(name, _)| name.to_owned()).collect()
    }

    /// What the file says of the address.
    pub(super) fn in_file(&self, address: IpAddr) -> Option<&Address> {
        let place = self.entries.get(address)?.place;
        let one = self.file.addresses.get(place);
        one.filter(|one| one.address == address)
    }

    /// Does what an address asks for.
    pub(super) fn act(&mut self, address: IpAddr, acts: &[Act]) {
        let Some(entry) = self.entries.get(address) else {
            return;
        };
        let owner = entry.status.owner.clone();
        let Some(interface) = entry.interface else {
            return;
        };
        let mut interfaces = self.network.interfaces.iter();
        let mac = interfaces
            .find(|one| one.index == interface)
            .map(|one| one.mac);
        for act in acts {
            let frames = match (act, mac) {
                (Act::Probe, Some(mac)) => {
                    let bytes = frames::probe(mac, address);
                    self.actions.push(Action::Probe {
                        interface,
                        address,
                        bytes,
                    });
                    Vec::new()
                }
                (Act::Announce, Some(mac)) => frames::announcement(mac, address),
                (Act::Probe | Act::Announce, None) => Vec::new(),
                (Act::Take, _) => {
                    self.actions.push(Action::Add { interface, address });
                    *self.counters.moves.entry("taken").or_default() += 1;
                    Vec::new()
                }
                (Act::Offer, _) => {
                    if let Some(owner) = owner.clone() {
                        self.offers.entry(owner).or_default().push(address);
                    }
                    Vec::new()
                }
                (Act::Release, _) => {
                    self.actions.push(Action::Remove {
                        interface,
                        address,
                        connections: self.connections(interface, address),
                    });
                    *self.counters.moves.entry("given-up").or_default() += 1;
                    Vec::new()
                }
            };
            let frames = frames.into_iter();
            self.actions
                .extend(frames.map(|bytes| Action::Frame { interface, bytes }));
        }
    }

    /// What becomes of the connections of an address that leaves the interface.
    fn connections(&self, interface: u32, address: IpAddr) -> Connections {
        match self.data_plane {
            _ if !self.is_chosen(interface, address) => Connections::Stay,
            // Another node takes it at this moment, or has it already.
            DataPlane::Gone => Connections::End,
            _ if self.career.is_flapping() => Connections::End,
            DataPlane::Unready | DataPlane::Ready => Connections::EndFirst,
        }
    }

    /// Whether the interface is still the one for the address. Else the address may come back on another one, as `lo`, and its connections
    /// with it.
    fn is_chosen(&self, interface: u32, address: IpAddr) -> bool {
        self.in_file(address).is_none_or(|one| {
            let chosen = self.network.choose(address, &one.interface);
            one.mode == Mode::L2 && chosen.is_some_and(|chosen| chosen.index == interface)
        })
    }

    fn release(&mut self, now: Duration, address: IpAddr) {
        let acts = self
            .entries
            .change(address, |entry| entry.l2.want(now, Wanted::Release));
        self.act(address, &acts.unwrap_or_default());
    }

    /// Writes down what became of an address that one node holds.
    pub(super) fn note(&mut self, now: Duration, address: IpAddr) {
        let Some(entry) = self.entries.get(address) else {
            return;
        };
        let Some(one) = self.in_file(address) else {
            return;
        };
        let (state, detail) = match entry.l2.obstacle() {
            Some(Obstacle::Claimed(Claimant::Foreign(mac))) if entry.l2.is_held() => {
                let text = format!("the host {} says that it has it, too", text_of(*mac));
                (AckState::Held, text)
            }
            _ if entry.l2.is_held() => (AckState::Held, String::new()),
            Some(Obstacle::Claimed(Claimant::Living(name))) if entry.l2.is_stuck() => {
                let text = format!(
                    "{name} has it and does not give it up: something else than its announcer put it there, such as keepalived; end that, or: ip address del {address} dev INTERFACE"
                );
                (AckState::NotOurs, text)
            }
            Some(obstacle) => told(obstacle),
            None if !one.names(&self.file.node) => (AckState::NotOurs, String::new()),
            None if !self.serves(one) => (AckState::NotReady, self.why_not().to_owned()),
            None if entry.interface.is_none() => (AckState::NoInterface, NO_INTERFACE.to_owned()),
            None => match &entry.barred {
                Some(bar) => refused(&bar.why),
                None => (AckState::NotOurs, String::new()),
            },
        };
        self.set_status(now, address, state, detail);
    }

    /// Why this node serves no address, or not one that names it.
    pub(super) fn why_not(&self) -> &'static str {
        match self.data_plane {
            DataPlane::Gone | DataPlane::Unready => "the data plane is not ready",
            DataPlane::Ready if self.is_leaving => "this node leaves",
            DataPlane::Ready => "the file says ready: false",
        }
    }

    pub(super) fn set_status(
        &mut self,
        now: Duration,
        address: IpAddr,
        state: AckState,
        detail: String,
    ) {
        let since = self.wall(now);
        let changed = self.entries.change(address, |entry| {
            let last = &entry.status;
            if last.state == state && last.detail == detail {
                return None;
            }
            entry.status = Status {
                address,
                state,
                owner: last.owner.clone(),
                since: match last.state == state {
                    true => last.since,
                    false => since,
                },
                detail,
                mode: last.mode,
            };
            Some(entry.status.clone())
        });
        if let Some(status) = changed.flatten() {
            self.noted += 1;
            self.actions.push(Action::Tell(Event::Address(status)));
        }
    }

    /// The clock was set: moment zero was this many milliseconds after 1970. What is older stays as old as it is.
    pub fn set_epoch(&mut self, epoch: u64) {
        let moved = |since: u64| since.saturating_add(epoch).saturating_sub(self.epoch);
        let addresses = self.entries.addresses().into_iter();
        for address in addresses {
            self.entries.change(address, |entry| {
                entry.status.since = moved(entry.status.since);
            });
        }
        self.routers.move_since(moved);
        self.epoch = epoch;
        self.noted += 1;
    }

    /// The milliseconds after 1970 at moment zero, as the times of the statuses have it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Milliseconds since 1970.
    pub(super) fn wall(&self, now: Duration) -> u64 {
        let passed = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.epoch.saturating_add(passed)
    }
}

/// Whether of two nodes, both settled, `one` would be the owner.
fn comes_before(one: &str, other: &str, address: IpAddr) -> bool {
    let candidates = [one, other].map(|name| Candidate {
        name,
        standing: Standing::Settled,
    });
    owner(address, candidates) == Some(one)
}

/// An obstacle, for the ack.
fn told(obstacle: &Obstacle) -> (AckState, String) {
    match obstacle {
        Obstacle::Refused(why) => refused(why),
        Obstacle::Claimed(Claimant::Living(name)) => (
            AckState::NotOurs,
            format!("{name} still has it, and is about to give it up"),
        ),
        Obstacle::Claimed(Claimant::Dead(name)) => (
            AckState::NotOurs,
            format!(
                "{name} answers for it, but not to datagrams; see that nothing blocks the members' port, and that its announcer runs"
            ),
        ),
        Obstacle::Claimed(Claimant::Foreign(mac)) => (
            AckState::Conflict,
            format!(
                "the host {} has it and is no member; take it from that host",
                text_of(*mac)
            ),
        ),
    }
}

fn refused(why: &str) -> (AckState, String) {
    let remedy =
        "see that the announcer has CAP_NET_ADMIN, and that nothing else put the address there";
    let detail = format!("the system refused it: {why}; {remedy}");
    (AckState::NoInterface, detail)
}

fn text_of(mac: Mac) -> String {
    let bytes: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

const NO_INTERFACE: &str =
    "no interface can carry it; see interface in the file, and the routes of this host";
