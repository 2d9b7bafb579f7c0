//! One address on this node: asked for on the network, taken, announced, given up.
//!
//! An address is taken only after nobody on the network has answered for it. Whoever answers decides what is next: a living member
//! is about to give it up; a member that seems dead still has it; a host that is no member must not be disturbed.

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
}

impl L2 {
    /// Whether it is on the interface.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
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
        }
    }

    /// When nobody has disputed it for long.
    fn quiet_at(&self) -> Option<Duration> {
        let defended = self.defended.filter(|_| self.obstacle.is_some());
        defended.map(|defended| defended + QUIET)
    }

    /// This node is to hold the address, or is not.
    pub fn want(&mut self, now: Duration, is_wanted: bool) -> Vec<Act> {
        match (&self.phase, is_wanted) {
            (Phase::Away, true) => {
                self.phase = Phase::Asking { asked: 0, due: now };
                self.tick(now)
            }
            (Phase::Waiting { .. }, true) => {
                // The caller calls this after a change among the members only, so the next question may succeed.
                self.ask_sooner(now);
                Vec::new()
            }
            (Phase::Away, false) | (_, true) => Vec::new(),
            (phase, false) => {
                let was_held = matches!(phase, Phase::Held { .. });
                *self = Self::default();
                if was_held {
                    vec![Act::Release]
                } else {
                    Vec::new()
                }
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
        if self.is_held() {
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
                self.put_off(now, by);
                Vec::new()
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use Act::{Announce, Probe, Release, Take};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// The actions between `from` and `end`, each with its time.
    fn run(l2: &mut L2, from: u64, end: u64) -> Vec<(u64, Act)> {
        let acts = |at| l2.tick(MS(at)).into_iter().map(move |act| (at, act));
        (from..=end).flat_map(acts).collect()
    }

    fn held() -> L2 {
        let mut l2 = L2::default();
        assert_eq!(l2.want(MS(0), true), [Probe]);
        run(&mut l2, 1, 7_000);
        assert!(l2.is_held());
        l2
    }

    #[test]
    fn it_is_asked_for_taken_and_announced_at_the_times_of_the_contract() {
        let mut l2 = L2::default();
        assert_eq!(l2.want(MS(0), true), [Probe]);
        let mut expected = vec![(20, Probe), (40, Probe), (60, Take)];
        expected.extend([60, 160, 560, 1_060, 2_060, 5_060].map(|at| (at, Announce)));
        assert_eq!(run(&mut l2, 1, 10_000), expected);
        assert_eq!(l2.deadline(), None);
        assert_eq!(l2.want(MS(11_000), true), []);
        assert_eq!(l2.want(MS(12_000), false), [Release]);
        assert_eq!(l2.want(MS(13_000), false), []);
    }

    #[test]
    fn it_is_not_taken_from_a_member_and_soon_tried_again() {
        for (by, again) in [
            (Claimant::Living("b".to_owned()), 55),
            (Claimant::Dead("b".to_owned()), 1_025),
            (Claimant::Foreign([9; 6]), 1_025),
        ] {
            let mut l2 = L2::default();
            l2.want(MS(0), true);
            run(&mut l2, 1, 24);
            assert_eq!(l2.claimed(MS(25), by.clone(), true), []);
            assert_eq!(l2.obstacle(), Some(&Obstacle::Claimed(by)));
            assert_eq!(run(&mut l2, 26, 2_000)[0], (again, Probe));
            assert!(l2.is_held());
            assert_eq!(l2.obstacle(), None);
        }
    }

    #[test]
    fn news_of_the_members_are_a_reason_to_ask_again_soon() {
        for (by, again) in [
            (Claimant::Dead("b".to_owned()), 130),
            (Claimant::Foreign([9; 6]), 1_025),
        ] {
            let mut l2 = L2::default();
            l2.want(MS(0), true);
            l2.claimed(MS(25), by, false);
            assert_eq!(l2.want(MS(100), true), []);
            assert_eq!(run(&mut l2, 101, 2_000)[0], (again, Probe));
        }
    }

    #[test]
    fn a_foreign_host_is_asked_less_and_less_often() {
        let mut l2 = L2::default();
        l2.want(MS(0), true);
        let (mut now, mut asked) = (0, Vec::new());
        while asked.len() < 9 {
            now += 1;
            if l2.tick(MS(now)).contains(&Probe) {
                asked.push(now / 1000);
                l2.claimed(MS(now), Claimant::Foreign([9; 6]), false);
            }
        }
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
    }

    fn foreign() -> Claimant {
        Claimant::Foreign([9; 6])
    }

    #[test]
    fn it_is_defended_but_not_for_ever_at_once() {
        let mut l2 = held();
        let member = || Claimant::Living("b".to_owned());
        assert_eq!(l2.claimed(MS(8_000), member(), true), [Announce]);
        assert_eq!(l2.claimed(MS(8_999), member(), true), []);
        assert_eq!(l2.claimed(MS(9_000), member(), true), [Announce]);
        assert_eq!(l2.claimed(MS(18_000), foreign(), false), []);
        // A frame that gets no answer is not reported: any host can send any number of them.
        assert_eq!(l2.obstacle(), None);
        assert_eq!(l2.claimed(MS(19_000), foreign(), false), [Announce]);
        assert!(l2.is_held());
        assert_eq!(l2.obstacle(), Some(&Obstacle::Claimed(foreign())));
        let other = Claimant::Foreign([8; 6]);
        assert_eq!(l2.claimed(MS(19_001), other, false), []);
        assert_eq!(l2.obstacle(), Some(&Obstacle::Claimed(foreign())));
        // A minute later it is forgotten.
        assert_eq!(l2.deadline(), Some(MS(79_000)));
        assert_eq!(l2.tick(MS(79_000)), []);
        assert_eq!((l2.obstacle(), l2.deadline()), (None, None));
    }

    #[test]
    fn of_two_that_do_not_hear_each_other_the_lower_one_gives_it_up() {
        for (outranks, expected) in [(true, Release), (false, Announce)] {
            let mut l2 = held();
            let dead = || Claimant::Dead("b".to_owned());
            for at in [8_000, 9_000] {
                assert_eq!(l2.claimed(MS(at), dead(), outranks), [Announce]);
            }
            assert_eq!(l2.claimed(MS(10_000), dead(), outranks), [expected]);
            assert_eq!(l2.is_held(), !outranks);
            // This node asks again, and finds the other one.
            let next = run(&mut l2, 10_001, 12_000);
            assert_eq!(next.first().copied(), outranks.then_some((11_000, Probe)));
        }
        // Claims that have nothing to do with each other are no dispute.
        let mut l2 = held();
        for at in [8_000, 28_000, 48_000, 68_000] {
            let dead = Claimant::Dead("b".to_owned());
            assert_eq!(l2.claimed(MS(at), dead, true), [Announce]);
        }
    }

    #[test]
    fn who_asks_at_the_same_time_has_it_first() {
        let mut l2 = L2::default();
        l2.want(MS(0), true);
        run(&mut l2, 1, 24);
        l2.asked_too(MS(25), Claimant::Living("b".to_owned()));
        assert_eq!(run(&mut l2, 26, 2_000)[0], (55, Probe));
        assert!(l2.is_held());
        // A question for what is held is answered by the kernel.
        l2.asked_too(MS(2_001), foreign());
        assert!(l2.is_held());
    }

    #[test]
    fn what_could_not_be_asked_is_asked_again() {
        let mut l2 = L2::default();
        assert_eq!(l2.want(MS(0), true), [Probe]);
        l2.not_asked(MS(0));
        for at in (20..400).step_by(20) {
            assert_eq!(l2.tick(MS(at)), [Probe]);
            l2.not_asked(MS(at));
        }
        assert_eq!(l2.tick(MS(400)), [Probe]);
        let next = run(&mut l2, 401, 500);
        assert_eq!(next[..3], [(420, Probe), (440, Probe), (460, Take)]);
        l2.not_asked(MS(501));
        assert!(l2.is_held());
    }

    #[test]
    fn it_is_announced_again_when_others_may_have_learned_another_place() {
        let mut l2 = held();
        l2.announce_again(MS(8_000));
        let expected = [8_000, 8_100, 8_500, 9_000, 10_000, 13_000].map(|at| (at, Announce));
        assert_eq!(run(&mut l2, 8_000, 20_000), expected);
        let mut away = L2::default();
        away.announce_again(MS(1));
        assert_eq!(away.deadline(), None);
    }

    #[test]
    fn after_a_pause_it_is_asked_for_again_before_it_is_taken() {
        let mut l2 = L2::default();
        l2.want(MS(0), true);
        assert_eq!(l2.tick(MS(60_000)), [Probe]);
        assert_eq!(
            run(&mut l2, 60_001, 60_040),
            [(60_020, Probe), (60_040, Take), (60_040, Announce)]
        );
        assert_eq!(l2.tick(MS(90_000)), [Announce]);
    }

    #[test]
    fn what_the_system_refuses_is_tried_again() {
        let mut l2 = L2::default();
        l2.want(MS(0), true);
        run(&mut l2, 1, 60);
        l2.refused(MS(61), "no such device".to_owned());
        assert!(!l2.is_held());
        assert_eq!(run(&mut l2, 62, 1_200)[0], (1_061, Probe));
        assert!(l2.is_held() && !l2.is_settled());
        // After a second refusal the next attempt comes later.
        l2.refused(MS(1_201), "no such device".to_owned());
        assert_eq!(run(&mut l2, 1_202, 8_300)[0], (3_201, Probe));
        assert!(l2.is_settled());
        // Something changed for which it may be taken now.
        l2.refused(MS(8_301), "no such device".to_owned());
        l2.try_again(MS(8_400));
        assert_eq!(run(&mut l2, 8_400, 9_000)[0], (8_400, Probe));
    }

    #[test]
    fn what_is_not_wanted_any_more_is_not_taken() {
        let mut l2 = L2::default();
        l2.want(MS(0), true);
        assert_eq!(l2.want(MS(30), false), []);
        assert_eq!(run(&mut l2, 31, 1_000), []);
        assert_eq!(l2.claimed(MS(1_001), foreign(), false), []);
        // The system may refuse it late.
        l2.refused(MS(1_002), "no such device".to_owned());
        assert_eq!((l2.obstacle(), l2.deadline()), (None, None));
    }
}
