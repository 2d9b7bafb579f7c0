//! What a node says of itself to the other members.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Action, Event, Node};
use crate::frames::Mac;
use crate::membership::State;
use crate::owner::Standing;

impl Node {
    /// Finds out what this node cannot hold, and whether the members can be told.
    pub(super) fn weigh(&mut self, now: Duration) {
        self.weigh_entries(now);
        let addresses = self.file.addresses.iter();
        let addresses = addresses.filter(|one| one.may_be_held_by(&self.file.node));
        let cannot = addresses.map(|one| (one.address, !self.can_hold(one)));
        self.cannot = cannot.collect();
        // A node that can hold nothing need not say what it cannot hold.
        let state = self.state(Some(Standing::Settled));
        let is_known = self.members.is_some() && self.has_looked && self.is_serving();
        let is_too_much = is_known && state.standing.is_none();
        if is_too_much && !self.is_too_much {
            let event = Event::TooManyUnable(self.cannot.iter().filter(|one| one.1).count());
            self.actions.push(Action::Tell(event));
        }
        self.is_too_much = is_too_much;
    }

    /// Finds out which addresses come back to this node, and are not its own again yet.
    fn weigh_entries(&mut self, now: Duration) {
        let file = Arc::clone(&self.file);
        for one in &file.addresses {
            let is_able = one.ready && one.may_be_held_by(&file.node);
            let entry = self.entries.get(one.address);
            if entry.is_none_or(|entry| entry.is_weighed(is_able)) {
                continue;
            }
            let others = self.candidates(one, &self.others);
            // One that is itself back for a short time may have it, as no other could.
            let has_other = others.iter().any(|one| one.standing > Standing::Flapping);
            self.entries.change(one.address, |entry| {
                entry.weigh(now, file.r#return, is_able, has_other);
            });
        }
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
            .iter()
            .filter_map(|(_, entry)| entry.interface)
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
    pub(super) fn say(&mut self, now: Duration) {
        let state = self.state(self.own_standing());
        if let Some(group) = &mut self.members {
            group.membership.say(now, state);
        }
    }

    /// The standing of this node as an owner; `None`: it can hold nothing.
    pub(super) fn own_standing(&self) -> Option<Standing> {
        let is_able = self.is_serving() && !self.is_too_much;
        self.career.standing().filter(|_| is_able)
    }
}

/// The standing of a member as an owner of the address, if it can hold it and its file has it.
pub(super) fn standing_for(state: &State, address: IpAddr) -> Option<Standing> {
    let standing = standing_of(state.standing?)?;
    (!state.cannot.has(address)).then_some(standing)
}

const fn number_of(standing: Standing) -> u8 {
    match standing {
        Standing::Flapping => 0,
        Standing::Returning => 1,
        Standing::Settled => 2,
    }
}

pub(super) const fn standing_of(number: u8) -> Option<Standing> {
    match number {
        0 => Some(Standing::Flapping),
        1 => Some(Standing::Returning),
        2 => Some(Standing::Settled),
        // Of a later version: it is no candidate for this one.
        _ => None,
    }
}

/// Hardware addresses that a state has at most.
const MACS: usize = 16;
