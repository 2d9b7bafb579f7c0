//! What a node hears from the other members.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::entries::Offer;
use super::{Action, Event, Node, lifetime};
use crate::frames::Mac;
use crate::l2::Claimant;
use crate::membership::{Membership, News, Probes};
use crate::sealed::{Channel, Dropped, Opened};

/// The members, and what seals what is said among them.
pub(super) struct Group {
    pub(super) membership: Membership,
    pub(super) channel: Channel,
}

impl Node {
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

    /// The members that are alive, with this one, and those that are dead.
    #[must_use]
    pub fn members(&self) -> (usize, usize) {
        let counts = self.members.as_ref().map(|group| group.membership.counts());
        let (alive, dead) = counts.unwrap_or_default();
        (alive + 1, dead)
    }

    /// How long the members took to answer; `None`: this node is alone.
    #[must_use]
    pub fn probes(&self) -> Option<&Probes> {
        self.members.as_ref().map(|group| group.membership.probes())
    }

    /// A process that was paused may have been declared dead, and asks at once.
    pub(super) fn look_at_the_clock(&mut self, now: Duration) {
        let pause = now.saturating_sub(self.last_call);
        self.last_call = now;
        if pause >= SHORT_PAUSE {
            self.woke = Some(now);
        }
        if let Some(group) = &mut self.members
            && pause >= PAUSE
        {
            group.membership.woke(now);
        }
    }

    pub(super) fn hear_news(&mut self, now: Duration) {
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
                    has.retain(|(address, _)| self.entries.contains(*address));
                    self.is_stale |= self.files.answered(&by, file, &has);
                    continue;
                }
                News::Offered(by, addresses) => {
                    self.offered(now, &by, &addresses);
                    continue;
                }
                News::SameName(at) => {
                    if !is_due(&mut self.told_same_name, now, SAME_NAME_EVERY) {
                        continue;
                    }
                    Event::SameName(at)
                }
                News::BackFromTheDead { lost } => {
                    if lost {
                        self.career.was_declared_dead(now);
                    }
                    if !is_due(&mut self.told_declared_dead, now, DECLARED_DEAD_EVERY) {
                        continue;
                    }
                    Event::DeclaredDead
                }
            };
            self.actions.push(Action::Tell(event));
        }
    }

    /// A member gives up addresses for this node. What it sent while this process did not run may be out of date.
    fn offered(&mut self, now: Duration, by: &str, addresses: &[IpAddr]) {
        let is_late = self.woke.is_some_and(|woke| now < woke + OFFER);
        if is_late || !self.others.iter().any(|(name, _)| name == by) {
            return;
        }
        for address in addresses {
            let is_news = self.entries.change(*address, |entry| {
                if entry.l2.is_held() {
                    entry.l2.had_rival(now);
                    return false;
                }
                entry.offer = Some(Offer {
                    by: by.to_owned(),
                    open: Some(now + OFFER),
                    ahead: Some(now + AHEAD),
                });
                true
            });
            self.is_stale |= is_news.unwrap_or_default();
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

    /// The host with this hardware address, which says that it has an address. `is_held`: this node has it. Any host can send frames as
    /// those of a dead member, so that one counts no longer than its kernel keeps addresses.
    pub(super) fn claimant(&self, now: Duration, mac: Mac, is_held: bool) -> Claimant {
        let group = self.members.as_ref();
        let members = group.map(|group| &group.membership);
        let may_run = |name: &str| {
            let died = members.and_then(|members| members.died(name));
            died.is_some_and(|died| now.saturating_sub(died) < lifetime())
        };
        match members.and_then(|members| members.with_mac(mac)) {
            Some((name, true)) => Claimant::Living(name),
            Some((name, false)) if !is_held || may_run(&name) => Claimant::Dead(name),
            _ => Claimant::Foreign(mac),
        }
    }

    /// A member that was not seen may have held what this node holds, and the hosts beside it may have learned that. Or it has what
    /// this node is to hold, and gives it up.
    fn member_is_back(&mut self, now: Duration, name: &str) {
        let addresses = self.file.addresses.iter();
        for one in addresses.filter(|one| one.names(name)) {
            self.entries.change(one.address, |entry| {
                entry.l2.announce_again(now);
                entry.l2.ask_sooner(now);
            });
        }
    }
}

/// A node is called at least every 50 ms, when it probes. To one that was not called for so long the others may have declared it dead:
/// that takes them 300 ms at least.
const PAUSE: Duration = Duration::from_millis(350);
/// In less than this no member is declared dead, and none takes what this node was offered.
const SHORT_PAUSE: Duration = Duration::from_millis(200);
/// An offer is taken at once, or when what the others say of themselves has arrived.
const OFFER: Duration = Duration::from_millis(250);
/// Longer than it takes to ask a member whether its file still has an address.
const AHEAD: Duration = Duration::from_secs(1);
/// Whether an event may be told again. Then it counts as told now.
fn is_due(told: &mut Option<Duration>, now: Duration, every: Duration) -> bool {
    let is_due = told.is_none_or(|told| now.saturating_sub(told) >= every);
    if is_due {
        *told = Some(now);
    }
    is_due
}

const DECLARED_DEAD_EVERY: Duration = Duration::from_secs(5);
const SAME_NAME_EVERY: Duration = Duration::from_secs(60);
const OTHER_KEY_EVERY: Duration = Duration::from_secs(60);
