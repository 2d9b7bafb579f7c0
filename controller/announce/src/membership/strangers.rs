//! Those to which this member speaks though they are no living members: it forgets them in time, and does not speak to many at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::Identity;

/// The dead, and whom this member told lately.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Each dead member, and since when it is.
    dead: BTreeMap<Identity, Duration>,
    /// The dead one that was greeted last.
    greeted: Option<SocketAddr>,
    /// The addresses to which this member sent that they are dead, and when.
    told: Vec<(SocketAddr, Duration)>,
}

impl Strangers {
    /// Those of the dead that are to be forgotten. `is_known`: a file names it, or it said something of itself.
    pub(super) fn forget(
        &mut self,
        now: Duration,
        dead: impl Iterator<Item = Identity>,
        is_known: impl Fn(&Identity) -> bool,
    ) -> Vec<Identity> {
        let before = std::mem::take(&mut self.dead);
        let since = |one: &Identity| before.get(one).copied().unwrap_or(now);
        self.dead = dead
            .map(|one| (since(&one), one))
            .map(|(at, one)| (one, at))
            .collect();
        let is_over = |one: &Identity, since: Duration| {
            let kept = if is_known(one) { KEPT } else { KEPT_UNKNOWN };
            now.saturating_sub(since) >= kept
        };
        let over = self
            .dead
            .iter()
            .filter(|(one, since)| is_over(one, **since));
        over.map(|(one, _)| one.clone()).collect()
    }

    /// Those of the dead that are greeted now. All have their turn.
    pub(super) fn turn(&mut self, mut dead: Vec<SocketAddr>) -> Vec<SocketAddr> {
        dead.sort_unstable();
        dead.dedup();
        let next = dead.partition_point(|at| Some(*at) <= self.greeted);
        dead.rotate_left(next);
        dead.truncate(AT_ONCE);
        self.greeted = dead.last().copied();
        dead
    }

    /// Whether this one may be told now that it is dead. Else two that do not agree would tell each other without end.
    pub(super) fn may_tell(&mut self, now: Duration, at: SocketAddr) -> bool {
        self.told
            .retain(|(_, told)| now.saturating_sub(*told) < TOLD_EVERY);
        let may = self.told.len() < AT_ONCE && self.told.iter().all(|(other, _)| *other != at);
        if may {
            self.told.push((at, now));
        }
        may
    }
}

/// How long a dead member is remembered.
const KEPT: Duration = Duration::from_secs(3600);
/// A member could name any number of others, at any address, and each of them would be greeted for so long.
const KEPT_UNKNOWN: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 64;
const TOLD_EVERY: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn at(number: u16) -> SocketAddr {
        ([10, 0, 0, 1], number).into()
    }

    #[test]
    fn the_dead_are_forgotten_and_those_that_nobody_knows_soon() {
        let mut strangers = Strangers::default();
        let of = |name: &str| Identity {
            name: name.to_owned(),
            at: at(1),
            generation: 1,
        };
        let mut forgotten = |second, dead: &[&str]| {
            let dead = dead.iter().map(|name| of(name));
            let forgotten = strangers.forget(S(second), dead, |one| one.name == "known");
            let names = forgotten.into_iter().map(|one| one.name);
            names.collect::<Vec<_>>()
        };
        assert!(forgotten(0, &["known", "unknown"]).is_empty());
        assert!(forgotten(59, &["known", "unknown", "later"]).is_empty());
        assert_eq!(forgotten(60, &["known", "unknown", "later"]), ["unknown"]);
        // One that lived meanwhile died again.
        assert!(forgotten(70, &["known"]).is_empty());
        assert!(forgotten(120, &["known", "later"]).is_empty());
        assert_eq!(forgotten(3600, &["known"]), ["known"]);
    }

    #[test]
    fn of_many_dead_all_are_greeted_in_turn() {
        let mut strangers = Strangers::default();
        let dead: Vec<SocketAddr> = (1..=200).map(at).collect();
        let mut greeted = Vec::new();
        for _ in 0..4 {
            let turn = strangers.turn(dead.clone());
            assert_eq!(turn.len(), 64);
            greeted.extend(turn);
        }
        greeted.sort_unstable();
        greeted.dedup();
        assert_eq!(greeted, dead);
        assert_eq!(strangers.turn(vec![at(3), at(3)]), [at(3)]);
        assert!(strangers.turn(Vec::new()).is_empty());
    }

    #[test]
    fn one_is_told_of_its_death_five_times_a_second_at_most() {
        let mut strangers = Strangers::default();
        let told =
            (0..1000).filter(|millis| strangers.may_tell(Duration::from_millis(*millis), at(1)));
        assert_eq!(told.count(), 5);
        let told = (1..=1000).filter(|one| strangers.may_tell(S(9), at(*one)));
        assert_eq!(told.count(), 64);
    }
}
