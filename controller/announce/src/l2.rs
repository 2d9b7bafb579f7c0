//! One address on this node: asked for on the network, taken, announced, given up.
//!
//! An address is taken only after nobody on the network has answered for it. Whoever answers decides what is next: a living member
//! is about to give it up; a member that seems dead still has it; a host that is no member must not be disturbed.

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
}

/// What this node is to do with the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is this node's: take it, and hold it.
    Own,
    /// Another member is to take it: it stays here until that one has it, but for [`YIELD`] at most.
    Yield,
    /// Nobody is known that could take it: it stays here, until a member takes it.
    Keep,
    /// It is not to be here.
    Drop,
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
    /// The member that said that it has the address, and that this node may take it.
    yielder: Option<String>,
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
    /// As `Held`, but a member that takes it may have it. `until`: it is removed then, whether it was taken or not.
    Yielding { until: Option<Duration> },
}

impl L2 {
    /// Whether it is on the interface.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. } | Phase::Yielding { .. })
    }

    /// Whether a member that asks for it may take it.
    #[must_use]
    pub fn yields(&self) -> bool {
        matches!(self.phase, Phase::Yielding { .. })
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

    /// When [`L2::tick`] is to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Away => None,
            Phase::Asking { due, .. } | Phase::Waiting { due } => Some(due),
            Phase::Held { taken, announced } => {
                let next = ANNOUNCED.get(announced).map(|after| taken + *after);
                next.into_iter().chain(self.quiet_at()).min()
            }
            Phase::Yielding { until } => until.into_iter().chain(self.quiet_at()).min(),
        }
    }

    /// When nobody has disputed it for long.
    fn quiet_at(&self) -> Option<Duration> {
        let defended = self.defended.filter(|_| self.obstacle.is_some());
        defended.map(|defended| defended + QUIET)
    }

    /// This is wanted of the address now.
    pub fn want(&mut self, now: Duration, wish: Wish) -> Vec<Act> {
        match (&self.phase, wish) {
            (Phase::Away, Wish::Own) => {
                self.phase = Phase::Asking { asked: 0, due: now };
                return self.tick(now);
            }
            // The caller calls this after a change among the members only, so the next question may succeed.
            (Phase::Waiting { .. }, Wish::Own) => self.ask_sooner(now),
            // It was announced before. Whoever was to take it may have said so, too.
            (Phase::Yielding { .. }, Wish::Own) => {
                self.phase = Phase::Held {
                    taken: now,
                    announced: 0,
                };
            }
            (Phase::Yielding { until: None } | Phase::Held { .. }, Wish::Yield) => {
                let until = Some(now + YIELD);
                self.phase = Phase::Yielding { until };
            }
            (Phase::Yielding { .. } | Phase::Held { .. }, Wish::Keep) => {
                self.phase = Phase::Yielding { until: None };
            }
            (Phase::Away, _) | (_, Wish::Own) | (Phase::Yielding { .. }, Wish::Yield) => {}
            (Phase::Asking { .. } | Phase::Waiting { .. }, _) | (_, Wish::Drop) => {
                return self.let_go();
            }
        }
        Vec::new()
    }

    fn let_go(&mut self) -> Vec<Act> {
        let was_held = self.is_held();
        *self = Self::default();
        Vec::from_iter(was_held.then_some(Act::Release))
    }

    /// A member has the address, and says that this node may take it. Its kernel goes on to answer for it.
    pub fn yielded(&mut self, now: Duration, by: String) {
        let is_free = self.obstacle.is_none() || self.is_a_members();
        if is_free && matches!(self.phase, Phase::Asking { .. } | Phase::Waiting { .. }) {
            self.yielder = Some(by);
            self.obstacle = None;
            // What comes next is a question.
            if matches!(self.phase, Phase::Waiting { .. }) {
                self.phase = Phase::Waiting { due: now };
            }
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
        if self.is_held() && !self.yields() {
            self.phase = Phase::Held {
                taken: now,
                announced: 0,
            };
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

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.is_held() && self.quiet_at().is_some_and(|quiet| quiet <= now) {
            self.obstacle = None;
        }
        while self.deadline().is_some_and(|due| due <= now) {
            match &mut self.phase {
                Phase::Away => {}
                // Nobody took it in time.
                Phase::Yielding { .. } => acts.extend(self.let_go()),
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
                    self.yielder = None;
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
        self.obstacle = Some(Obstacle::Claimed(by));
        self.failures = 1;
        self.ask_sooner(now);
    }

    /// A host says that it has the address. `outranks`: it is a member that would be the owner before this one.
    pub fn claimed(&mut self, now: Duration, by: Claimant, outranks: bool) -> Vec<Act> {
        match self.phase {
            Phase::Away | Phase::Waiting { .. } => Vec::new(),
            Phase::Asking { .. } => {
                let is_yielder = |name: &String| Claimant::Living(name.clone()) == by;
                if !self.yielder.as_ref().is_some_and(is_yielder) {
                    self.put_off(now, by);
                }
                Vec::new()
            }
            // It has taken it.
            Phase::Yielding { .. } if matches!(by, Claimant::Living(_)) => self.let_go(),
            // It may be the next owner, which this node does not know yet.
            Phase::Yielding { .. } => Vec::new(),
            Phase::Held { .. } => self.disputed(now, by, outranks),
        }
    }

    /// Hosts may have learned the wrong place. Two hosts that defend themselves at once would go on for ever (RFC 5227, 2.4). A
    /// living member gives it up by itself; of two that do not hear each other's datagrams one has to.
    fn disputed(&mut self, now: Duration, by: Claimant, outranks: bool) -> Vec<Act> {
        let wait = match by {
            Claimant::Foreign(_) => DEFEND_FOREIGN,
            Claimant::Living(_) | Claimant::Dead(_) => DEFEND,
        };
        let since = self.defended.map(|last| now.saturating_sub(last));
        if since.is_some_and(|since| since < wait) {
            return Vec::new();
        }
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
/// So long a node waits for another one to take what it gives up: that one hears of it and asks for it, which takes 0.1 s usually.
const YIELD: Duration = Duration::from_secs(1);
/// A living member that still has it gives it up as soon as it knows what we know.
const HANDOVER: Duration = Duration::from_millis(30);
/// More than the second in which a process that begins keeps what it finds.
const HANDOVERS: u32 = 60;
const MEMBER_AGAIN: Duration = Duration::from_secs(1);
const DEFEND: Duration = Duration::from_secs(1);
/// RFC 5227: DEFEND_INTERVAL.
const DEFEND_FOREIGN: Duration = Duration::from_secs(10);
/// Claims with less time between them belong together.
const DISPUTE: Duration = Duration::from_secs(10);
/// So often a node defends what a member has that does not hear its datagrams.
const DISPUTES: u32 = 2;
/// After so long without a claim nobody is told of it any more.
const QUIET: Duration = Duration::from_secs(60);
