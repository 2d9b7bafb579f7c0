//! The living members, and the state of each: the crate `foca` (SWIM) with our identities, our timers as data, and messages of
//! our own for joining and for partitions that heal.
//!
//! A member probes another one each 50 ms. One that answers neither itself (25 ms) nor through two others (25 ms) is suspected, and
//! dead for all after 250 ms more. Each member chooses by itself whom it probes next, so a dead one may not be probed for some
//! periods: the period is short because that time comes on top of the rest. foca never takes back a death: a member that was declared
//! dead comes back with a newer [`Identity::generation`]. It learns of its death by a `Hello` that each member sends to those that
//! it knows only as dead, and to the peers of the file. By a third kind of message a member asks another one which addresses are in
//! its file, and offers it addresses.

mod cannot;
mod direct;
mod hello;
mod identity;
mod probes;
mod states;
mod strangers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::{
    AccumulatingRuntime, Config, Foca, Header, Member, Message, OwnedNotification, PeriodicParams,
    PostcardCodec, State as Liveness, Timer,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;

pub use cannot::{Cannot, Map};
use direct::Direct;
use hello::{Answer, Hello, Side};
pub use identity::Identity;
pub use probes::Probes;
use states::{Known, Sayings};
pub use states::{MOST_BYTES, State};
use strangers::Strangers;

/// A change among the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A member is alive.
    Up(String),
    /// A member is dead, or left.
    Down(String),
    /// This member was declared dead by others, and is back under a new identity. `lost`: those others are the larger part.
    BackFromTheDead {
        /// Whether the others were the larger part of the members.
        lost: bool,
    },
    /// Another member has this node's name.
    SameName(SocketAddr),
    /// A member asks which of these addresses are in the file of this one and name it: [`Membership::answer`].
    Asked(String, Vec<IpAddr>),
    /// An answer to [`Membership::ask`].
    Answered {
        /// The member.
        by: String,
        /// The digest of its file, as in [`State::file`].
        file: u64,
        /// Each address, and whether the file has it.
        has: Vec<(IpAddr, bool)>,
    },
    /// A member had these addresses and gives them up for this one: no other host has them.
    Offered(String, Vec<IpAddr>),
}

/// The members as this one sees them.
pub struct Membership {
    foca: Foca<Identity, PostcardCodec, SmallRng, Sayings>,
    runtime: AccumulatingRuntime<Identity>,
    timers: BTreeMap<(Duration, u64), Timer<Identity>>,
    /// A number that no earlier timer has.
    scheduled: u64,
    peers: Vec<SocketAddr>,
    known: Known,
    own: State,
    holds: bool,
    next_hello: Duration,
    next_saying: Duration,
    sends: Vec<(SocketAddr, Vec<u8>)>,
    news: Vec<News>,
    /// How often the set of the living changed.
    changed: u64,
    probes: Probes,
    strangers: Strangers,
}

impl Membership {
    /// A member that knows nobody yet. `seed` decides whom it probes when.
    #[must_use]
    pub fn new(now: Duration, identity: Identity, peers: Vec<SocketAddr>, seed: u64) -> Self {
        let known = Known::default();
        let own = State::silent(identity.name.clone());
        let foca = foca(identity, seed, known.clone());
        Self {
            foca,
            runtime: AccumulatingRuntime::new(),
            timers: BTreeMap::new(),
            scheduled: seed,
            peers,
            known,
            own,
            holds: false,
            next_hello: now,
            next_saying: now,
            sends: Vec::new(),
            news: Vec::new(),
            changed: 0,
            probes: Probes::default(),
            strangers: Strangers::default(),
        }
    }

    /// How long members took to answer.
    #[must_use]
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Where datagrams go now, each with its content.
    pub fn take_sends(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.sends)
    }

    /// The changes since the last call.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// When [`Membership::tick`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        let timer = self.timers.keys().next().map(|(at, _)| *at);
        let own = self.next_hello.min(self.next_saying);
        timer.map_or(own, |timer| timer.min(own))
    }

    /// A number that grows whenever [`Membership::others`] changes.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changed + self.known.changes()
    }

    /// The living others, each with what it said last. `None`: nothing yet.
    pub fn others(&self) -> Vec<(String, Option<State>)> {
        let mut members: Vec<_> = self
            .foca
            .iter_members()
            .map(|member| {
                let name = member.id().name.clone();
                let state = self.known.of(&name);
                (name, state)
            })
            .collect();
        members.sort_by(|one, other| one.0.cmp(&other.0));
        members
    }

    /// The member with this hardware address, dead or alive.
    #[must_use]
    pub fn with_mac(&self, mac: [u8; 6]) -> Option<(String, bool)> {
        self.known.with_mac(mac)
    }

    /// When a member died that did not leave in order, and may have had addresses.
    #[must_use]
    pub fn died(&self, name: &str) -> Option<Duration> {
        self.known.died(name)
    }

    /// The members that are alive and those that are dead.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let all = self.foca.iter_membership_state().len();
        let alive = self.foca.num_members();
        (alive, all.saturating_sub(alive))
    }

    /// Peers of a new file.
    pub fn set_peers(&mut self, now: Duration, peers: Vec<SocketAddr>) {
        self.peers = peers;
        self.next_hello = now;
    }

    /// Whether this member holds an address.
    pub fn set_holds(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// Tells the others what this member says of itself, at once if it is new.
    pub fn say(&mut self, now: Duration, state: State) {
        let is_same = self.own.says_the_same_as(&state);
        let version = self.own.version;
        self.own = State {
            version,
            generation: self.own.generation,
            ..state
        };
        if !is_same {
            self.next_saying = now;
            self.tick(now);
        }
    }

    /// Takes a datagram. The content is authentic, but its sender may be wrong in any way. False: it has no meaning.
    pub fn take(&mut self, now: Duration, content: &[u8]) -> bool {
        let Some((kind, content)) = content.split_first() else {
            return false;
        };
        let is_good = match *kind {
            OF_FOCA => {
                self.probes.received(now, content);
                !self.is_one_too_many(content)
                    && self.foca.handle_data(content, &mut self.runtime).is_ok()
            }
            OF_HELLO => match postcard::from_bytes(content) {
                Ok(hello) => {
                    self.hear(now, hello);
                    true
                }
                Err(_) => false,
            },
            DIRECT => match postcard::from_bytes(content) {
                Ok(message) => {
                    self.news.push(match message {
                        Direct::Question { by, addresses } => News::Asked(by, addresses),
                        Direct::Answer { by, file, has } => News::Answered { by, file, has },
                        Direct::Offer { by, addresses } => News::Offered(by, addresses),
                    });
                    true
                }
                Err(_) => false,
            },
            _ => false,
        };
        self.drain(now);
        is_good
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let timer = entry.remove();
            let is_probe = matches!(timer, Timer::ProbeRandomMember(_));
            let probe = is_probe.then(|| timer.clone());
            // An error says that a timer came too late to mean something, or that a message could not be written.
            let result = self.foca.handle_timer(timer, &mut self.runtime);
            self.drain(now);
            // After such a message foca probes nobody any more.
            if let (Err(_), Some(probe)) = (result, probe)
                && !self.timers.values().any(|timer| *timer == probe)
            {
                self.schedule(now + PROBE, probe);
            }
        }
        if self.next_hello <= now {
            self.greet(now);
            let alone = self.foca.num_members() == 0;
            self.next_hello = now + if alone { HELLO_ALONE } else { HELLO };
        }
        if self.next_saying <= now {
            self.next_saying = now + SAYING;
            self.own.version += 1;
            self.own.generation = self.foca.identity().generation;
            if let Ok(bytes) = postcard::to_allocvec(&self.own) {
                // `State::new` cuts a state that is too large, and foca refuses nothing else.
                self.foca.add_broadcast(&bytes).ok();
                self.foca.gossip(&mut self.runtime).ok();
            }
        }
        self.drain(now);
    }

    /// After a pause of the process: what the others think of this member is asked for at once.
    pub fn woke(&mut self, now: Duration) {
        let everyone: Vec<SocketAddr> = self
            .foca
            .iter_membership_state()
            .map(|member| member.id().at)
            .chain(self.peers.iter().copied())
            .collect();
        for at in everyone {
            self.send_hello(at, None, Answer::Ask);
        }
        self.next_hello = now + HELLO_ALONE;
    }

    /// Tells the others that this member goes.
    pub fn leave(&mut self, now: Duration) {
        self.foca.leave_cluster(&mut self.runtime).ok();
        self.drain(now);
    }

    /// Asks a living member which of these addresses are in its file: as many as it takes at once.
    pub fn ask(&mut self, name: &str, addresses: &[IpAddr]) {
        for addresses in direct::parts(addresses).take(direct::MOST_AT_ONCE) {
            let by = self.own.name.clone();
            self.send_direct(name, &Direct::Question { by, addresses });
        }
    }

    /// Answers a member that asked.
    pub fn answer(&mut self, name: &str, file: u64, mut has: Vec<(IpAddr, bool)>) {
        has.truncate(direct::MOST_ANSWERS);
        let by = self.own.name.clone();
        self.send_direct(name, &Direct::Answer { by, file, has });
    }

    /// Tells a living member that this one gives up these addresses for it, and that no other host has them.
    pub fn offer(&mut self, name: &str, addresses: &[IpAddr]) {
        for addresses in direct::parts(addresses) {
            let by = self.own.name.clone();
            self.send_direct(name, &Direct::Offer { by, addresses });
        }
    }

    fn send_direct(&mut self, name: &str, message: &Direct) {
        let to = self.foca.iter_members().find(|one| one.id().name == name);
        if let (Some(to), Ok(bytes)) = (to, postcard::to_allocvec(message)) {
            let content = [&[DIRECT][..], &bytes].concat();
            self.sends.push((to.id().at, content));
        }
    }

    fn schedule(&mut self, at: Duration, timer: Timer<Identity>) {
        self.scheduled = self.scheduled.wrapping_add(1);
        self.timers.insert((at, self.scheduled), timer);
    }

    /// Moves what foca asks for to where it is done.
    fn drain(&mut self, now: Duration) {
        while let Some((to, bytes)) = self.runtime.to_send() {
            self.probes.sent(now, &bytes);
            let content = [&[OF_FOCA][..], &bytes].concat();
            self.sends.push((to.at, content));
        }
        while let Some((wait, timer)) = self.runtime.to_schedule() {
            self.schedule(now + wait, timer);
        }
        while let Some(notification) = self.runtime.to_notify() {
            match notification {
                OwnedNotification::MemberUp(member) => {
                    self.changed += 1;
                    self.next_saying = now;
                    self.known.came(&member.name, member.generation);
                    self.news.push(News::Up(member.name));
                }
                OwnedNotification::MemberDown(member) => {
                    self.changed += 1;
                    // If it lives, it hears at once that it was declared dead.
                    self.next_hello = now;
                    self.known.went(now, &member.name);
                    self.news.push(News::Down(member.name));
                }
                // It may be another process, which has not heard yet what the others say.
                OwnedNotification::Rename(_, member) => {
                    self.next_saying = now;
                    self.known.renamed(&member.name, member.generation);
                }
                OwnedNotification::Rejoin(_) => {
                    self.next_saying = now;
                    self.next_hello = now;
                    self.news.push(News::BackFromTheDead { lost: true });
                }
                _ => {}
            }
        }
    }

    /// Hellos to the peers of the file that are no living member, and to the dead.
    fn greet(&mut self, now: Duration) {
        let dead = self.foca.iter_membership_state();
        let dead = dead.filter(|one| one.state() == Liveness::Down);
        let dead = dead.map(|member| member.id().clone());
        let is_known =
            |one: &Identity| self.peers.contains(&one.at) || self.known.has_heard(&one.name);
        for one in self.strangers.forget(now, dead, is_known) {
            let forgotten = Timer::RemoveDown(one);
            // foca has nothing to send for it.
            self.foca.handle_timer(forgotten, &mut self.runtime).ok();
        }
        let living: Vec<SocketAddr> = self.foca.iter_members().map(|one| one.id().at).collect();
        let own = self.foca.identity().at;
        let is_stranger = |at: &SocketAddr| !living.contains(at) && *at != own;
        let dead = self.foca.iter_membership_state();
        let dead = dead.map(|member| member.id().at).filter(is_stranger);
        let mut strangers = self.strangers.turn(dead.collect());
        strangers.extend(self.peers.iter().copied().filter(is_stranger));
        strangers.sort_unstable();
        strangers.dedup();
        for at in strangers {
            self.send_hello(at, None, Answer::Ask);
        }
    }

    /// Whether a message of foca would make this member know more others than it can have.
    fn is_one_too_many(&self, message: &[u8]) -> bool {
        if self.foca.iter_membership_state().len() < MOST_MEMBERS {
            return false;
        }
        let named = named_in(message).unwrap_or_default();
        named.iter().any(|one| !self.has_heard_of(&one.name))
    }

    fn has_heard_of(&self, name: &str) -> bool {
        let mut all = self.foca.iter_membership_state();
        all.any(|member| member.id().name == name)
    }

    /// Whether nobody can be told where datagrams for this member go.
    #[must_use]
    pub fn is_nowhere(&self) -> bool {
        self.foca.identity().at.ip().is_unspecified()
    }

    /// Datagrams for this member go there.
    pub fn found_at(&mut self, now: Duration, at: SocketAddr) {
        let own = self.foca.identity().clone();
        if self.is_nowhere() && !at.ip().is_unspecified() {
            let new = Identity {
                at,
                ..own.next(own.generation)
            };
            self.foca.change_identity(new, &mut self.runtime).ok();
            self.next_hello = now;
            self.next_saying = now;
            self.tick(now);
        }
    }

    /// A process there is heard from now on, and what it said before was not.
    pub fn meet(&mut self, at: SocketAddr) {
        if !self.foca.iter_members().any(|one| one.id().at == at) {
            self.send_hello(at, None, Answer::Ask);
        }
    }

    fn send_hello(&mut self, at: SocketAddr, to: Option<&str>, answer: Answer) {
        // A greeting without an address could not be answered.
        if self.is_nowhere() {
            return;
        }
        let hello = Hello {
            from: self.foca.identity().clone(),
            to: to.map(str::to_owned),
            side: self.side(),
            answer,
        };
        if let Ok(bytes) = postcard::to_allocvec(&hello) {
            self.sends.push((at, [&[OF_HELLO][..], &bytes].concat()));
        }
    }

    fn side(&self) -> Side {
        let own = &self.foca.identity().name;
        Side::of(
            self.foca
                .iter_members()
                .map(|one| &*one.id().name)
                .chain([&**own]),
            self.holds,
        )
    }

    fn hear(&mut self, now: Duration, hello: Hello) {
        let own = self.foca.identity().clone();
        let from = hello.from;
        if from.name == own.name {
            if from.at != own.at {
                self.news.push(News::SameName(from.at));
            }
            return;
        }
        let is_for_another = hello.to.is_some_and(|name| name != own.name);
        let is_full = self.foca.iter_membership_state().len() >= MOST_MEMBERS;
        let is_one_too_many = is_full && !self.has_heard_of(&from.name);
        if is_for_another || is_one_too_many || from.at.ip().is_unspecified() {
            return;
        }
        let mine = self.side();
        let update = [Member::alive(from.clone())];
        self.foca
            .apply_many(update.into_iter(), true, &mut self.runtime)
            .ok();
        let state = self.foca.iter_membership_state();
        let known = state
            .into_iter()
            .find(|member| member.id().name == from.name);
        let known = known.map(|member| (member.id().generation, member.state() != Liveness::Down));
        let is_accepted = known == Some((from.generation, true));
        let is_dead = known == Some((from.generation, false));
        match hello.answer {
            Answer::Dead { of, known } if of == own.generation => {
                let new = own.next(known);
                match hello.side.beats(&mine) {
                    true => self.start_over(now, new),
                    false => {
                        // foca refuses only the identity that it has, and this one is newer.
                        self.foca.change_identity(new, &mut self.runtime).ok();
                        self.next_saying = now;
                        self.news.push(News::BackFromTheDead { lost: false });
                    }
                }
                self.send_hello(from.at, Some(&from.name), Answer::Ask);
            }
            // An answer that was overtaken. To answer it would go on for ever.
            Answer::Dead { .. } => {}
            _ if is_accepted => {
                if hello.answer == Answer::Ask {
                    self.send_hello(from.at, Some(&from.name), Answer::Welcome);
                }
            }
            // Two parts that see each other again, and this one is the smaller.
            _ if is_dead && !hello.side.has(&own.name) && hello.side.beats(&mine) => {
                self.start_over(now, own.next(own.generation));
                self.send_hello(from.at, Some(&from.name), Answer::Ask);
            }
            _ if !self.strangers.may_tell(now, from.at) => {}
            _ => {
                let of = from.generation;
                let known = known.map_or(of, |(generation, _)| generation);
                let answer = Answer::Dead { of, known };
                self.send_hello(from.at, Some(&from.name), answer);
            }
        }
    }

    /// Forgets who is dead to this member: those are the larger part, to which it is dead. Else it would spread their deaths among
    /// them.
    fn start_over(&mut self, now: Duration, identity: Identity) {
        self.scheduled = self.scheduled.wrapping_add(1);
        self.foca = foca(identity, self.scheduled, self.known.clone());
        self.known.all_went(now);
        self.runtime = AccumulatingRuntime::new();
        self.timers.clear();
        self.changed += 1;
        self.next_saying = now;
        self.news.push(News::BackFromTheDead { lost: true });
    }
}

fn foca(
    identity: Identity,
    seed: u64,
    known: Known,
) -> Foca<Identity, PostcardCodec, SmallRng, Sayings> {
    let sayings = Sayings::new(&identity.name, known);
    let random = SmallRng::seed_from_u64(seed);
    Foca::with_custom_broadcast(identity, config(), random, PostcardCodec, sayings)
}

/// The members that a message of foca names, if it has its form: the sender, and those of which it has news.
fn named_in(message: &[u8]) -> Option<Vec<Identity>> {
    let (header, rest) = postcard::take_from_bytes::<Header<Identity>>(message).ok()?;
    let mut named = vec![header.src];
    if header.message != Message::Broadcast
        && let Some((count, mut rest)) = rest.split_first_chunk()
    {
        for _ in 0..u16::from_be_bytes(*count) {
            let (member, more) = postcard::take_from_bytes::<Member<Identity>>(rest).ok()?;
            named.push(member.id().clone());
            rest = more;
        }
    }
    Some(named)
}

fn config() -> Config {
    Config {
        probe_period: PROBE,
        probe_rtt: ANSWER,
        num_indirect_probes: TWO,
        max_transmissions: NonZeroU8::MIN.saturating_add(9),
        suspect_to_down_after: Duration::from_millis(250),
        // `Strangers` says when.
        remove_down_after: None,
        max_packet_size: NonZeroUsize::MIN.saturating_add(LARGEST - 1),
        // foca 2.0.0 tells members that refuted a suspicion that they are dead. Hellos tell those that are.
        notify_down_members: false,
        periodic_announce: None,
        periodic_announce_to_down_members: None,
        periodic_gossip: Some(PeriodicParams {
            frequency: Duration::from_millis(50),
            num_members: TWO.saturating_add(1),
        }),
    }
}

const PROBE: Duration = Duration::from_millis(50);
const ANSWER: Duration = Duration::from_millis(25);
const TWO: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);
/// The largest message of foca: with what is around it, it fits into an Ethernet frame over IPv6.
const LARGEST: usize = 1380;
const OF_FOCA: u8 = 0;
const OF_HELLO: u8 = 1;
const DIRECT: u8 = 2;
/// How often strangers are greeted.
const HELLO: Duration = Duration::from_secs(1);
const HELLO_ALONE: Duration = Duration::from_millis(200);
/// How often a member says the same again.
const SAYING: Duration = Duration::from_secs(1);
/// The members that one knows at most, dead or alive.
const MOST_MEMBERS: usize = 1024;
