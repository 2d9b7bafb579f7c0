//! The addresses on `lo` that routers lead here: without them the kernel would drop what comes for them. They have no lifetime, since
//! BIRD goes on to tell of them where the announcer does not run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::{Action, Connections, DataPlane, Node, Present};
use crate::file::Mode;

/// The addresses on `lo`, as the last look at the kernel found them, and those that are under way.
#[derive(Default)]
pub(super) struct Loopback {
    /// The addresses on it.
    there: BTreeSet<IpAddr>,
    /// Those of them that this program put there.
    ours: BTreeSet<IpAddr>,
    /// Those that were asked for since the last look.
    asked: BTreeSet<IpAddr>,
    /// When the system refused an address, and why.
    refused: BTreeMap<IpAddr, (Duration, String)>,
    /// Until when an address that is not wanted any more stays.
    lingers: BTreeMap<IpAddr, Duration>,
}

impl Loopback {
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.there.contains(&address)
    }

    /// Whether this program put it there, and is to remove it.
    pub(super) fn has_ours(&self, address: IpAddr) -> bool {
        self.ours.contains(&address)
    }

    /// The addresses that this program put there.
    pub(super) fn ours(&self) -> impl Iterator<Item = IpAddr> {
        self.ours.iter().copied()
    }

    /// Why the address is not there.
    pub(super) fn why_not(&self, address: IpAddr) -> String {
        match self.refused.get(&address) {
            Some((_, why)) => format!("the system refused to put it on lo: {why}"),
            None => "it is not on lo yet".to_owned(),
        }
    }

    /// The system did not put the address there.
    pub(super) fn refuse(&mut self, now: Duration, address: IpAddr, why: String) {
        self.asked.remove(&address);
        self.refused.insert(address, (now, why));
    }

    /// Something changed for what was refused.
    pub(super) fn try_again(&mut self) {
        self.refused.clear();
    }

    /// These addresses are on interfaces now, and nothing that was asked for is under way. Returns whether those on `lo` are others.
    pub(super) fn look(&mut self, now: Duration, present: &[Present]) -> bool {
        let on_it = || present.iter().filter(|one| one.interface == LOOPBACK);
        let there: BTreeSet<IpAddr> = on_it().map(|one| one.address).collect();
        // A kernel before 4.18 does not say whose they are.
        self.ours.append(&mut self.asked);
        self.ours.retain(|address| there.contains(address));
        let ours = on_it().filter(|one| one.is_ours);
        self.ours.extend(ours.map(|one| one.address));
        self.refused
            .retain(|_, (since, _)| now < *since + REFUSED_FOR);
        std::mem::replace(&mut self.there, there) != self.there
    }

    /// When [`Node::settle_loopback`] is due at the latest.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.lingers.values().min().copied()
    }

    /// What brings `lo` in line with what is wanted there. `is_served`: what still comes is answered, so that an address stays until
    /// routers have heard of its withdrawal. `is_elsewhere`: it is on another interface, too, so that its connections go on.
    fn follow(
        &mut self,
        now: Duration,
        wanted: &BTreeSet<IpAddr>,
        is_served: bool,
        is_elsewhere: impl Fn(IpAddr) -> bool,
    ) -> Vec<Action> {
        let interface = LOOPBACK;
        let is_due = |address: &&IpAddr| {
            !self.there.contains(address)
                && !self.asked.contains(address)
                && !self.refused.contains_key(address)
        };
        let new: Vec<IpAddr> = wanted.iter().filter(is_due).copied().collect();
        self.asked.extend(&new);
        let add = new
            .into_iter()
            .map(|address| Action::Add { interface, address });
        let unwanted: BTreeSet<IpAddr> = self.ours.difference(wanted).copied().collect();
        self.lingers.retain(|address, _| unwanted.contains(address));
        let lasts = if is_served { LINGER } else { Duration::ZERO };
        let is_over =
            |address: &IpAddr| now >= *self.lingers.entry(*address).or_insert(now + lasts);
        let old: BTreeSet<IpAddr> = unwanted.into_iter().filter(is_over).collect();
        self.lingers.retain(|address, _| !old.contains(address));
        self.ours.retain(|address| !old.contains(address));
        self.there.retain(|address| !old.contains(address));
        let remove = old.into_iter().map(|address| Action::Remove {
            interface,
            address,
            connections: match is_elsewhere(address) {
                true => Connections::Stay,
                false => Connections::EndFirst,
            },
        });
        add.chain(remove).collect()
    }
}

impl Node {
    /// Has the addresses on `lo` that are served, and those of ours of which BIRD may still tell.
    pub(super) fn settle_loopback(&mut self, now: Duration) {
        if self.has_looked {
            self.follow_loopback(now);
        }
        self.note_leaving(now);
        let told = self.for_routers();
        self.noted += u64::from(self.told != told);
        self.told = told;
    }

    fn follow_loopback(&mut self, now: Duration) {
        let told = self.file.addresses.iter();
        let served = told.filter(|one| one.mode == Mode::Bgp && self.serves(one));
        // BIRD may tell of one that left the file while no announcer ran, or that is announced otherwise now.
        let ours = self.loopback.ours();
        let still = ours.filter(|address| self.routers.may_have(*address));
        let wanted = served.map(|one| one.address).chain(still).collect();
        let is_served = self.data_plane != DataPlane::Gone;
        let is_elsewhere = |address| {
            let entry = self.entries.get(address);
            entry.is_some_and(|entry| entry.l2.is_held())
        };
        let acts = self.loopback.follow(now, &wanted, is_served, is_elsewhere);
        let is_left = acts.iter().any(|act| matches!(act, Action::Remove { .. }));
        self.actions.extend(acts);
        if is_left {
            self.note_all_told(now);
        }
    }

    /// Until when an address stays on `lo` that BIRD has withdrawn.
    #[must_use]
    pub fn lingers(&self) -> Option<Duration> {
        self.loopback.deadline()
    }
}

/// The number of `lo` in every network namespace.
pub const LOOPBACK: u32 = 1;
/// Routers hear of a withdrawal, and change their tables, within this time.
const LINGER: Duration = Duration::from_secs(1);
/// For so long an address that the system refused is not tried again.
const REFUSED_FOR: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn present(address: &str, is_ours: bool) -> Present {
        Present {
            interface: LOOPBACK,
            address: address.parse().unwrap(),
            is_ours,
        }
    }

    fn add(address: &str) -> Action {
        Action::Add {
            interface: LOOPBACK,
            address: address.parse().unwrap(),
        }
    }

    /// The actions where none of the addresses is on another interface.
    fn follow(
        lo: &mut Loopback,
        now: Duration,
        wanted: &BTreeSet<IpAddr>,
        is_served: bool,
    ) -> Vec<Action> {
        lo.follow(now, wanted, is_served, |_| false)
    }

    #[test]
    fn what_is_wanted_is_asked_for_once_and_what_is_not_goes_if_it_is_ours() {
        let wanted: BTreeSet<IpAddr> = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
            .map(|text| text.parse().unwrap())
            .into();
        let mut lo = Loopback::default();
        let seen = [
            present("192.0.2.1", false),
            present("192.0.2.8", true),
            present("192.0.2.9", false),
        ];
        assert!(lo.look(Duration::ZERO, &seen));
        let old = Action::Remove {
            interface: LOOPBACK,
            address: "192.0.2.8".parse().unwrap(),
            connections: Connections::EndFirst,
        };
        let first = follow(&mut lo, Duration::ZERO, &wanted, false);
        assert_eq!(first, [add("192.0.2.2"), add("192.0.2.3"), old]);
        assert_eq!(follow(&mut lo, Duration::ZERO, &wanted, false), []);

        // One is refused, and tried again later, or when something changes for it. The other one was removed by something else.
        let third = "192.0.2.3".parse().unwrap();
        lo.refuse(Duration::from_secs(1), third, "no".into());
        assert!(!lo.has(third) && lo.why_not(third).ends_with(": no"));
        let seen = [present("192.0.2.1", false)];
        lo.look(Duration::from_secs(2), &seen);
        assert_eq!(
            follow(&mut lo, Duration::ZERO, &wanted, false),
            [add("192.0.2.2")]
        );
        lo.look(Duration::from_secs(12), &seen);
        assert_eq!(
            follow(&mut lo, Duration::ZERO, &wanted, false),
            [add("192.0.2.2"), add("192.0.2.3")]
        );
    }

    #[test]
    fn an_address_stays_until_routers_have_heard_of_its_withdrawal_unless_nothing_is_served() {
        let wanted: BTreeSet<IpAddr> = ["192.0.2.1".parse().unwrap()].into();
        let none = BTreeSet::new();
        let second = Duration::from_secs;
        let mut lo = Loopback::default();
        lo.look(second(0), &[present("192.0.2.1", true)]);
        assert_eq!(follow(&mut lo, second(1), &none, true), []);
        assert_eq!(lo.deadline(), Some(second(2)));
        // It is served again.
        assert_eq!(follow(&mut lo, second(1), &wanted, true), []);
        assert_eq!(lo.deadline(), None);
        follow(&mut lo, second(3), &none, true);
        assert_eq!(follow(&mut lo, second(4), &none, true).len(), 1);
        assert_eq!(lo.deadline(), None);
        lo.look(second(5), &[present("192.0.2.1", true)]);
        assert_eq!(follow(&mut lo, second(5), &none, false).len(), 1);
        // One that is on another interface by now keeps its connections.
        lo.look(second(6), &[present("192.0.2.1", true)]);
        let address = "192.0.2.1".parse().unwrap();
        let remove = Action::Remove {
            interface: LOOPBACK,
            address,
            connections: Connections::Stay,
        };
        let acts = lo.follow(second(6), &none, false, |one| wanted.contains(&one));
        assert_eq!(acts, [remove]);
    }
}
