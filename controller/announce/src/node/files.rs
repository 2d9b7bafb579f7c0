//! Which addresses the other members have in their files.
//!
//! A member cannot hold an address that is not in its file yet, and says nothing of it. So with its state it tells a digest of the
//! addresses of its file that name it. If those of this node's file that name it have the same digest, the files agree about it, as
//! they nearly always do. If not, it is asked for the addresses of which it would be the owner.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::file::{Address, Announce, Mode};
use crate::membership::State;
use crate::owner::hash;

/// The addresses in the files of the other members, as far as this node knows.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Of this node's file: the digest of the addresses that name a member.
    digests: Digests,
    /// The addresses that came into this node's file, or to other nodes in it, less than [`GRACE`] ago: the newest ones last.
    new: VecDeque<New>,
    /// The living members that have told a digest.
    members: BTreeMap<String, Member>,
}

/// What a change of this node's file brought.
#[derive(Debug)]
struct New {
    since: Duration,
    addresses: BTreeSet<IpAddr>,
}

/// For each member the digest of the addresses that name it.
#[derive(Debug, Default)]
struct Digests(BTreeMap<String, u64>);

#[derive(Debug)]
struct Member {
    /// The digest that it told last.
    told: u64,
    /// Its file differs from this node's.
    differs: Option<Difference>,
}

/// The addresses of a member whose file differs from this node's, as far as it has told them.
#[derive(Debug, Default)]
struct Difference {
    /// The addresses of this node's file of which it is known whether the member's has them, each with the digest of that file: so
    /// no more than this node's file has.
    known: BTreeMap<IpAddr, (u64, bool)>,
    /// The file with this digest has no others than those that are known.
    complete: Option<u64>,
    /// Until then it is not known what this member has, as it was first heard of a moment ago.
    grace: Option<Duration>,
    /// When its file was seen to follow this node's for the last time: it was the same, or another one came.
    moved: Duration,
    /// When the member is asked next.
    ask: Duration,
    /// How often it was asked since its last answer.
    asked: u32,
    /// Whether there is something to ask.
    has_questions: bool,
}

impl Difference {
    /// Until now the member and this node had this file. `digest`: that of the addresses in it that name the member.
    fn after_agreement(now: Duration, file: &Announce, name: &str, digest: u64) -> Self {
        let addresses = file.addresses.iter();
        let naming = addresses.filter(|one| one.may_be_held_by(name));
        Self {
            known: naming.map(|one| (one.address, (digest, true))).collect(),
            complete: Some(digest),
            moved: now,
            ..Self::default()
        }
    }

    /// Whether the file of the member is likely to have soon what came into this node's file then.
    fn follows(&self, new: &New) -> bool {
        new.since < self.moved + STAYS_BEHIND
    }

    /// Whether the file of this digest has the address; `None`: it has to be asked.
    fn says_of(&self, digest: u64, address: IpAddr) -> Option<bool> {
        match self.known.get(&address) {
            Some((of, has)) => (*of == digest).then_some(*has),
            None => (self.complete == Some(digest)).then_some(false),
        }
    }
}

impl Files {
    /// The state of a node that begins with this file, and has heard of no other.
    pub(super) fn of(file: &Announce) -> Self {
        Self {
            digests: Digests::of(file),
            new: VecDeque::new(),
            members: BTreeMap::new(),
        }
    }

    /// The digest of the addresses that name the member in the file of this node.
    pub(super) fn digest(&self, name: &str) -> u64 {
        self.digests.get(name)
    }

    /// This node has another file.
    pub(super) fn set_file(&mut self, now: Duration, old: &Announce, new: &Announce) {
        let before = std::mem::replace(&mut self.digests, Digests::of(new));
        let (had, has) = (nodes_of(old), nodes_of(new));
        let is_new = |address: &IpAddr| had.get(address) != has.get(address);
        self.new.retain(|new| now < new.since + GRACE);
        self.new.push_back(New {
            since: now,
            addresses: has.keys().copied().filter(is_new).collect(),
        });
        for (name, member) in &mut self.members {
            let digest = self.digests.get(name);
            if digest == member.told {
                member.differs = None;
            } else {
                let difference = member.differs.get_or_insert_with(|| Difference {
                    // The same file usually comes to the member as well, a moment later.
                    ask: now + GRACE,
                    ..Difference::after_agreement(now, old, name, before.get(name))
                });
                let before = difference.known.len();
                difference
                    .known
                    .retain(|address, _| has.contains_key(address));
                // A dropped address may come back into this node's file, and the member is asked for it then.
                if difference.known.len() < before {
                    difference.complete = None;
                }
            }
        }
    }

    /// These are the living others now, and this is what they told.
    pub(super) fn hear(
        &mut self,
        now: Duration,
        file: &Announce,
        others: &[(String, Option<State>)],
    ) {
        let told = |name: &str| {
            others
                .iter()
                .any(|(other, state)| other == name && state.is_some())
        };
        self.members.retain(|name, _| told(name));
        for (name, state) in others {
            let Some(told) = state.as_ref().map(|state| state.file) else {
                continue;
            };
            let digest = self.digest(name);
            let is_same = told == digest;
            let Some(member) = self.members.get_mut(name) else {
                let difference = || Difference {
                    grace: Some(now + GRACE),
                    ask: now + ASK_AFTER,
                    moved: now,
                    ..Difference::default()
                };
                let differs = (!is_same).then(difference);
                self.members.insert(name.clone(), Member { told, differs });
                continue;
            };
            let has_moved = member.told != told;
            member.told = told;
            match &mut member.differs {
                differs if is_same => *differs = None,
                Some(difference) if has_moved => difference.moved = now,
                Some(_) => {}
                none => {
                    *none = Some(Difference {
                        ask: now + ASK_AFTER,
                        ..Difference::after_agreement(now, file, name, digest)
                    });
                }
            }
        }
    }

    /// Whether the member counts as one that has the address in its file. `is_held`: this node holds it, and gives it to nobody who
    /// has not said that it has it.
    pub(super) fn has(&self, name: &str, address: &Address, is_held: bool) -> bool {
        let is_named = || address.names(name);
        let differs = self.members.get(name).and_then(|it| it.differs.as_ref());
        let Some(difference) = differs else {
            return is_named();
        };
        let known = difference.known.get(&address.address);
        let has = known.is_some_and(|(_, has)| *has);
        let is_about_to_come = || {
            let mut new = self.new.iter();
            difference.grace.is_some()
                || new
                    .any(|new| difference.follows(new) && new.addresses.contains(&address.address))
        };
        has || !is_held && is_named() && is_about_to_come()
    }

    /// Those of the living others whose answer of the address is missing.
    pub(super) fn unsure<'m>(
        &self,
        address: IpAddr,
        others: &'m [(String, Option<State>)],
    ) -> impl Iterator<Item = (&'m str, &'m State)> {
        let is_unsure = move |name: &str| {
            let member = self.members.get(name)?;
            let difference = member.differs.as_ref()?;
            Some(difference.says_of(member.told, address).is_none())
        };
        others.iter().filter_map(move |(name, state)| {
            let state = state.as_ref()?;
            is_unsure(name)?.then_some((&**name, state))
        })
    }

    /// These are all the questions that are open, by member. Those that are due are returned.
    pub(super) fn ask(
        &mut self,
        now: Duration,
        mut open: BTreeMap<String, Vec<IpAddr>>,
    ) -> Vec<(String, Vec<IpAddr>)> {
        let mut due = Vec::new();
        for (name, member) in &mut self.members {
            let Some(difference) = &mut member.differs else {
                continue;
            };
            let questions = open.remove(name).unwrap_or_default();
            difference.has_questions = !questions.is_empty();
            if difference.has_questions && difference.ask <= now {
                let pause = ASK_EVERY * (1 << difference.asked.min(MOST_DOUBLINGS));
                difference.ask = now + pause;
                difference.asked += 1;
                due.push((name.clone(), questions));
            }
        }
        due
    }

    /// A member answered: the file of this digest has these addresses, or has them not. False: that changes nothing.
    pub(super) fn answered(&mut self, name: &str, digest: u64, has: &[(IpAddr, bool)]) -> bool {
        let member = self.members.get_mut(name);
        let Some(difference) = member.and_then(|member| member.differs.as_mut()) else {
            return false;
        };
        difference.asked = 0;
        let mut is_new = false;
        for (address, has) in has {
            let before = difference.known.insert(*address, (digest, *has));
            is_new |= before != Some((digest, *has));
        }
        is_new
    }

    /// When [`Files::tick`] is to be called.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let differing = self.members.values().filter_map(|it| it.differs.as_ref());
        let times = differing.flat_map(|difference| {
            let ask = difference.has_questions.then_some(difference.ask);
            ask.into_iter().chain(difference.grace)
        });
        let mut members = self.members.values();
        let differs = members.any(|member| member.differs.is_some());
        let new = self.new.front().filter(|_| differs);
        times.chain(new.map(|new| new.since + GRACE)).min()
    }

    /// Whether the owners are to be chosen again: something is to be asked, or is not waited for any more.
    pub(super) fn tick(&mut self, now: Duration) -> bool {
        let is_due = self.deadline().is_some_and(|due| due <= now);
        self.new.retain(|new| now < new.since + GRACE);
        for member in self.members.values_mut() {
            if let Some(difference) = &mut member.differs {
                difference.grace = difference.grace.filter(|grace| *grace > now);
            }
        }
        is_due
    }
}

/// The nodes that may hold each address.
fn nodes_of(file: &Announce) -> BTreeMap<IpAddr, &[String]> {
    let addresses = file.addresses.iter().filter(|one| one.mode == Mode::L2);
    addresses.map(|one| (one.address, &one.nodes[..])).collect()
}

impl Digests {
    /// The order of the addresses does not count.
    fn of(file: &Announce) -> Self {
        let mut digests = BTreeMap::<String, u64>::new();
        for one in file.addresses.iter().filter(|one| one.mode == Mode::L2) {
            let hash = hash(*b"file", one.address);
            for name in &one.nodes {
                match digests.get_mut(name) {
                    Some(digest) => *digest = digest.wrapping_add(hash),
                    None => drop(digests.insert(name.clone(), hash)),
                }
            }
        }
        Self(digests)
    }

    /// 0 of a member that no address names.
    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// How long a new address of this node's file is left to a member that is to hold it, though its file does not have it yet.
const GRACE: Duration = Duration::from_secs(1);
/// The file of a member that has differed for so long without a change does not follow this node's: nothing is left to it.
const STAYS_BEHIND: Duration = Duration::from_secs(2);
/// Files come to all nodes at nearly the same time: a difference that is over sooner is not asked about.
const ASK_AFTER: Duration = Duration::from_millis(200);
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Of a member that does not answer.
const MOST_DOUBLINGS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::parse;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// A file with the addresses of these numbers.
    fn file(numbers: std::ops::Range<u32>) -> Announce {
        let each = numbers.map(|number| {
            let [.., high, low] = number.to_be_bytes();
            format!("  - {{address: 10.1.{high}.{low}, mode: l2, nodes: [edge1, edge2]}}\n")
        });
        let each: String = each.collect();
        parse(format!("version: 1\nnode: edge1\naddresses:\n{each}").as_bytes()).unwrap()
    }

    fn told(file: u64) -> Vec<(String, Option<State>)> {
        let state = State::new("edge2".to_owned(), Some(2), file, &[], Vec::new());
        vec![("edge2".to_owned(), Some(state))]
    }

    #[test]
    fn each_new_address_is_left_to_a_member_for_a_time_of_its_own() {
        let (one, two, three) = (file(0..1), file(0..2), file(0..3));
        let mut files = Files::of(&one);
        files.hear(MS(0), &one, &told(files.digest("edge2")));
        let has =
            |files: &Files, number: usize| files.has("edge2", &three.addresses[number], false);
        files.set_file(MS(5_000), &one, &two);
        files.set_file(MS(5_900), &two, &three);
        assert_eq!(files.deadline(), Some(MS(6_000)));
        assert!(files.tick(MS(6_000)));
        assert_eq!(
            [has(&files, 0), has(&files, 1), has(&files, 2)],
            [true, false, true]
        );
        assert!(files.tick(MS(6_900)));
        assert!(!has(&files, 2));
        // Its file does not follow any more: it is not waited for.
        let four = file(0..4);
        files.set_file(MS(9_000), &three, &four);
        assert!(!files.has("edge2", &four.addresses[3], false));
        // It does again.
        files.hear(MS(9_100), &four, &told(7));
        files.set_file(MS(9_200), &four, &file(0..5));
        assert!(files.has("edge2", &file(0..5).addresses[4], false));
    }

    #[test]
    fn what_is_known_of_a_member_is_no_more_than_this_nodes_file_has() {
        let mut before = file(0..10);
        let mut files = Files::of(&before);
        files.hear(MS(0), &before, &told(7));
        for step in 1..50 {
            let now = MS(u64::from(step) * 10_000);
            let next = file(step * 100..step * 100 + 300);
            files.set_file(now, &before, &next);
            files.tick(now);
            let has: Vec<_> = next
                .addresses
                .iter()
                .map(|one| (one.address, true))
                .collect();
            files.answered("edge2", u64::from(step), &has);
            let difference = files.members["edge2"].differs.as_ref().unwrap();
            assert!(difference.known.len() <= next.addresses.len());
            assert!(files.new.len() <= 2);
            before = next;
        }
        files.hear(MS(1_000_000), &before, &[]);
        assert!(files.members.is_empty());
    }
}
