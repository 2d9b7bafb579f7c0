//! One address on this node: asked for on the network, taken, announced, given up.
//!
//! An address is taken only after nobody on the network has answered for it. Whoever answers decides what is next: a living member
//! is about to give it up; a member that seems dead still has it; a host that is no member must not be disturbed.
//!
//! Where a living member is to have it in place of this node, this node goes on to serve it, and offers it: nobody else on the network
//! has it then, so that member takes it without a question, and this node gives it up when it hears the announcement.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::frames::Mac;

/// An action on the network, which the shell carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Ask whether any host has the address.
    Probe,
    /// Put it on the interface.
    Take,
    /// Tell all hosts that it is here.
    Announce,
    /// Take it from the interface.
    Release,
    /// Tell the member that is to hold it that no other host has it but this one, which gives it up.
    Offer,
}

/// Whether this node is to have the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is to hold it.
    Hold,
    /// It is to hold it, and a member offers it: no other host has it.
    Take,
    /// It is to serve it until another member, which is to hold it, has it.
    HandOver,
    /// It cannot serve it any more, and another member is to hold it.
    GiveUp,
    /// It is not to have it.
    Release,
}

/// A host that says that it has the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// A member that is alive.
    Living(String),
    /// A member that seems dead.
    Dead(String),
    /// A host that is no member.
    Foreign(Mac),
}

/// Why an address that this node is to hold is not taken yet, or by whom it is disturbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A host said that it has the address.
    Claimed(Claimant),
    /// The system refused to take it.
    Refused(String),
}

/// The address on this node.
#[derive(Debug, Default)]
pub struct L2 {
    phase: Phase,
    obstacle: Option<Obstacle>,
    /// How often in a row it was not taken.
    failures: u32,
    /// When it was defended last, and how often it was within [`DISPUTE`] before.
    defended: Option<Duration>,
    disputes: u32,
    /// A foreign host has said that it has it since then, and hosts may have learned the wrong place.
    is_contested: bool,
    /// When a member announced it last while this node held it.
    rival: Option<Duration>,
    /// When this node took it from the member that offered it.
    given: Option<Duration>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Away,
    /// So many questions were asked; the next step is due.
    Asking { asked: usize, due: Duration },
    /// The address waits for another attempt.
    Waiting { due: Duration },
    /// The address is on the interface since `taken`, and was announced so many times.
    Held { taken: Duration, announced: usize },
    /// The address is on the interface until then at the latest, and offered to the member that is to hold it. `offer`: when that is
    /// done next; `None`: it was heard that a member has it.
    HandedOver {
        offer: Option<Duration>,
        until: Duration,
    },
}

impl L2 {
    /// Whether it is on the interface.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. } | Phase::HandedOver { .. })
    }

    /// Whether it is on the interface until another member has it.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        matches!(self.phase, Phase::HandedOver { .. })
    }

    /// Whether it is about to be taken, if nobody has it.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        matches!(self.phase, Phase::Asking { .. })
    }

    /// Whether it stays on the interface: it was taken a while ago, and announced for the last time.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Held { announced, .. } if announced >= ANNOUNCED.len())
    }

    /// The reason for which this node does not hold the address, or holds it with another host.
    #[must_use]
    pub fn obstacle(&self) -> Option<&Obstacle> {
        self.obstacle.as_ref()
    }

    /// Whether a living member has it for so long that it will not give it up by itself.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.failures > HANDOVERS
    }

    /// Whether a member has it as well, as far as this node heard a moment ago.
    #[must_use]
    pub fn has_rival(&self, now: Duration) -> bool {
        let rival = self.rival.filter(|_| self.is_held());
        rival.is_some_and(|at| now.saturating_sub(at) < HANDED_OVER)
    }

    /// When [`L2::tick`] is to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Away => None,
            Phase::Asking { due, .. } | Phase::Waiting { due } => Some(due),
            Phase::Held { taken, announced } => {
                let next = ANNOUNCED.get(announced).map(|after| taken + *after);
                let more = self.quiet_at().into_iter().chain(self.defends_at());
                next.into_iter().chain(more).min()
            }
            Phase::HandedOver { offer, until } => offer.into_iter().chain([until]).min(),
        }
    }

    /// When it may be defended again, if it has to be.
    fn defends_at(&self) -> Option<Duration> {
        let defended = self.defended.filter(|_| self.is_contested);
        defended.map(|defended| defended + DEFEND_FOREIGN)
    }

    /// When nobody has disputed it for long.
    fn quiet_at(&self) -> Option<Duration> {
        let defended = self.defended.filter(|_| self.obstacle.is_some());
        defended.map(|defended| defended + QUIET)
    }

    /// This node is to have the address, or is not.
    pub fn want(&mut self, now: Duration, wanted: Wanted) -> Vec<Act> {
        match wanted {
            Wanted::Hold => self.hold(now),
            Wanted::Take if self.may_take() => self.take(now),
            Wanted::Take => self.hold(now),
            Wanted::HandOver => self.hand_over(now),
            Wanted::GiveUp => self.give_up(),
            Wanted::Release => self.release(),
        }
    }

    fn hold(&mut self, now: Duration) -> Vec<Act> {
        match self.phase {
            Phase::Away => {
                self.phase = Phase::Asking { asked: 0, due: now };
                self.tick(now)
            }
            Phase::Waiting { .. } => {
                // The caller calls this after a change among the members only, so the next question may succeed.
                self.ask_sooner(now);
                Vec::new()
            }
            Phase::Asking { .. } | Phase::Held { .. } => Vec::new(),
            // The other one may have announced it.
            Phase::HandedOver { .. } => self.held_from(now),
        }
    }

    /// Whether the offer of a member is all that it takes. Of a foreign host, and of a system that refuses it, a member knows nothing.
    fn may_take(&self) -> bool {
        match self.phase {
            Phase::Away | Phase::Asking { .. } => true,
            Phase::Waiting { .. } => self.is_a_members(),
            Phase::Held { .. } | Phase::HandedOver { .. } => false,
        }
    }

    fn take(&mut self, now: Duration) -> Vec<Act> {
        self.obstacle = None;
        self.given = Some(now);
        let mut acts = vec![Act::Take];
        acts.extend(self.held_from(now));
        acts
    }

    /// The address is on the interface, and is announced from now on.
    fn held_from(&mut self, now: Duration) -> Vec<Act> {
        self.rival = None;
        self.phase = Phase::Held {
            taken: now,
            announced: 0,
        };
        self.tick(now)
    }

    fn hand_over(&mut self, now: Duration) -> Vec<Act> {
        match self.phase {
            Phase::Held { .. } if self.has_rival(now) || self.obstacle.is_some() => self.give_up(),
            Phase::Held { .. } => {
                self.phase = Phase::HandedOver {
                    offer: Some(now),
                    until: now + HANDED_OVER,
                };
                self.tick(now)
            }
            Phase::HandedOver { .. } => Vec::new(),
            Phase::Away | Phase::Asking { .. } | Phase::Waiting { .. } => self.release(),
        }
    }

    /// Gives it up at once. Where a foreign host has it as well, the member that is to hold it has to find that.
    fn give_up(&mut self) -> Vec<Act> {
        let is_disputed = self.obstacle.is_some();
        let mut acts = self.release();
        if !acts.is_empty() && !is_disputed {
            acts.push(Act::Offer);
        }
        acts
    }

    fn release(&mut self) -> Vec<Act> {
        let was_held = self.is_held();
        *self = Self::default();
        if was_held {
            vec![Act::Release]
        } else {
            Vec::new()
        }
    }

    /// The address is on the interface already, and was announced.
    pub fn adopt(&mut self, now: Duration) {
        self.phase = Phase::Held {
            taken: now,
            announced: ANNOUNCED.len(),
        };
    }

    /// Another program removed the address from the interface.
    pub fn lost(&mut self) {
        *self = Self::default();
    }

    /// Other hosts may have another hardware address for it: this node announces it as if it had just taken it.
    pub fn announce_again(&mut self, now: Duration) {
        if self.is_held() && !self.is_handed_over() {
            self.phase = Phase::Held {
                taken: now,
                announced: 0,
            };
        }
    }

    /// A member that had the address as well gives it up for this node, and other hosts may have learned its place.
    pub fn had_rival(&mut self, now: Duration) {
        if let Phase::Held { taken, announced } = &mut self.phase
            && now.saturating_sub(*taken) >= AGAIN
        {
            (*taken, *announced) = (now, 0);
        }
    }

    /// A member that has the address may give it up now.
    pub fn ask_sooner(&mut self, now: Duration) {
        if let Phase::Waiting { due } = self.phase
            && self.is_a_members()
        {
            let due = due.min(now + HANDOVER);
            self.phase = Phase::Waiting { due };
        }
    }

    /// The system may not refuse it any more.
    pub fn try_again(&mut self, now: Duration) {
        if let (Phase::Waiting { .. }, Some(Obstacle::Refused(_))) = (&self.phase, &self.obstacle) {
            self.failures = 0;
            self.phase = Phase::Waiting { due: now };
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.is_held() && self.quiet_at().is_some_and(|quiet| quiet <= now) {
            self.obstacle = None;
        }
        while self.deadline().is_some_and(|due| due <= now) {
            let is_here = matches!(self.phase, Phase::Held { .. });
            if is_here && self.defends_at().is_some_and(|at| at <= now) {
                self.is_contested = false;
                self.defended = Some(now);
                acts.push(Act::Announce);
                continue;
            }
            match &mut self.phase {
                Phase::Away => {}
                Phase::Waiting { .. } => self.phase = Phase::Asking { asked: 0, due: now },
                Phase::Asking { asked, due } if *asked < PROBES => {
                    *asked += 1;
                    // From now on, not from when it was due: an answer takes its time after the question.
                    *due = now + PROBE_EVERY;
                    acts.push(Act::Probe);
                }
                Phase::Asking { .. } => {
                    self.phase = Phase::Held {
                        taken: now,
                        announced: 0,
                    };
                    self.obstacle = None;
                    acts.push(Act::Take);
                }
                Phase::Held { announced, .. } => {
                    *announced += 1;
                    if *announced == ANNOUNCED.len() {
                        self.failures = 0;
                    }
                    // Several that are due at once, after a pause, are one.
                    if acts.last() != Some(&Act::Announce) {
                        acts.push(Act::Announce);
                    }
                }
                Phase::HandedOver { until, .. } if *until <= now => acts.extend(self.release()),
                Phase::HandedOver { offer, .. } => {
                    *offer = Some(now + OFFER_EVERY);
                    acts.push(Act::Offer);
                }
            }
        }
        acts
    }

    /// Whether a member had it when it was asked for last.
    fn is_a_members(&self) -> bool {
        match &self.obstacle {
            Some(Obstacle::Claimed(by)) => !matches!(by, Claimant::Foreign(_)),
            Some(Obstacle::Refused(_)) | None => false,
        }
    }

    /// The system could not take it. It may have been given up since.
    pub fn refused(&mut self, now: Duration, why: String) {
        if !self.is_held() {
            return;
        }
        self.failures += 1;
        self.obstacle = Some(Obstacle::Refused(why));
        self.phase = Phase::Waiting {
            due: now + backed_off(self.failures),
        };
    }

    /// A question did not leave this host: it is asked again.
    pub fn not_asked(&mut self, now: Duration) {
        if let Phase::Asking { asked, due } = &mut self.phase {
            *asked = asked.saturating_sub(1);
            *due = now + PROBE_EVERY;
        }
    }

    /// A host asks for the address while this one does. Both would hear that nobody has it, so this one, which is the one that
    /// waits, takes it as a claim (RFC 5227, 2.1.1; RFC 4862, 5.4.3).
    pub fn asked_too(&mut self, now: Duration, by: Claimant) {
        if self.is_asked_for() {
            // The other host does not have the address yet. If it takes it, it does so within the time of its questions.
            self.put_off(now, by);
            self.phase = Phase::Waiting {
                due: now + HANDOVER,
            };
        }
    }

    fn put_off(&mut self, now: Duration, by: Claimant) {
        let is_foreign = matches!(by, Claimant::Foreign(_));
        // Each kind of host is asked again after times of its own.
        if self.obstacle.is_some() && is_foreign == self.is_a_members() {
            self.failures = 0;
        }
        self.failures += 1;
        let wait = match by {
            Claimant::Living(_) if !self.is_stuck() => HANDOVER,
            Claimant::Living(_) | Claimant::Dead(_) => MEMBER_AGAIN,
            Claimant::Foreign(_) => backed_off(self.failures),
        };
        self.obstacle = Some(Obstacle::Claimed(by));
        self.phase = Phase::Waiting { due: now + wait };
    }

    /// The host that is in the way and was foreign is known now.
    pub fn introduced(&mut self, now: Duration, by: Claimant) {
        self.rival = Some(now);
        self.obstacle = Some(Obstacle::Claimed(by));
        self.failures = 1;
        self.ask_sooner(now);
    }

    /// A host says that it has the address. `outranks`: it is a member that would be the owner before this one.
    pub fn claimed(&mut self, now: Duration, by: Claimant, outranks: bool) -> Vec<Act> {
        match self.phase {
            Phase::Away | Phase::Waiting { .. } => Vec::new(),
            Phase::Asking { .. } => {
                self.put_off(now, by);
                Vec::new()
            }
            Phase::Held { .. } => self.disputed(now, by, outranks),
            Phase::HandedOver { until, .. } if !matches!(by, Claimant::Foreign(_)) => {
                self.phase = Phase::HandedOver {
                    offer: None,
                    until: until.min(now + ANSWERS),
                };
                Vec::new()
            }
            Phase::HandedOver { .. } => Vec::new(),
        }
    }

    /// Hosts may have learned the wrong place. Two hosts that defend themselves at once would go on for ever (RFC 5227, 2.4). A
    /// living member gives it up by itself; of two that do not hear each other's datagrams one has to.
    fn disputed(&mut self, now: Duration, by: Claimant, outranks: bool) -> Vec<Act> {
        // The member that offered it still answers for a moment, and may have answered a question of this node.
        let is_given = self.given.is_some_and(|given| now < given + ANSWERS);
        if !matches!(by, Claimant::Foreign(_)) && !is_given {
            self.rival = Some(now);
        }
        let wait = match by {
            Claimant::Foreign(_) => DEFEND_FOREIGN,
            Claimant::Living(_) | Claimant::Dead(_) => DEFEND,
        };
        let since = self.defended.map(|last| now.saturating_sub(last));
        if since.is_some_and(|since| since < wait) {
            self.is_contested |= matches!(by, Claimant::Foreign(_));
            return Vec::new();
        }
        self.is_contested = false;
        let goes_on = since.is_some_and(|since| since < DISPUTE);
        self.disputes = if goes_on { self.disputes + 1 } else { 0 };
        self.defended = Some(now);
        if matches!(by, Claimant::Dead(_)) && outranks && self.disputes >= DISPUTES {
            self.defended = None;
            self.disputes = 0;
            self.put_off(now, by);
            return vec![Act::Release];
        }
        if matches!(by, Claimant::Foreign(_)) {
            self.obstacle = Some(Obstacle::Claimed(by));
        }
        vec![Act::Announce]
    }
}

/// 1, 2, 4, … 64 s.
fn backed_off(failures: u32) -> Duration {
    let doubled = 1_u64 << failures.saturating_sub(1).min(6);
    Duration::from_secs(doubled)
}

const PROBES: usize = 3;
const PROBE_EVERY: Duration = Duration::from_millis(20);
/// When it is announced, after it was taken.
const ANNOUNCED: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// A living member that still has it gives it up as soon as it knows what we know.
const HANDOVER: Duration = Duration::from_millis(30);
/// More than the second in which a process that begins keeps what it finds.
const HANDOVERS: u32 = 60;
const MEMBER_AGAIN: Duration = Duration::from_secs(1);
/// How long an address is served for a member that is to take it, and does not. Of a thousand that move at once the last one takes
/// its time.
const HANDED_OVER: Duration = Duration::from_secs(2);
/// When a member gives an address up for this node, this node announces the address again if it took it longer ago than this.
const AGAIN: Duration = Duration::from_millis(500);
/// An offer may be lost.
const OFFER_EVERY: Duration = Duration::from_millis(100);
/// After another member announced it, so long what clients have asked for is answered. It is less than the time to its second
/// announcement, which corrects what hosts learned between.
const ANSWERS: Duration = Duration::from_millis(50);
const DEFEND: Duration = Duration::from_secs(1);
/// RFC 5227: DEFEND_INTERVAL.
const DEFEND_FOREIGN: Duration = Duration::from_secs(10);
/// Claims with less time between them belong together.
const DISPUTE: Duration = Duration::from_secs(10);
/// So often a node defends what a member has that does not hear its datagrams.
const DISPUTES: u32 = 2;
/// After so long without a claim nobody is told of it any more.
const QUIET: Duration = Duration::from_secs(60);
