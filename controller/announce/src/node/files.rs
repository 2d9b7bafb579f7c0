//! Which addresses the other members have in their files.
//!
//! A member cannot hold an address that is not in its file yet, and says nothing of it. So with its state it tells a digest of the
//! addresses of its file that name it. If those of this node's file that name it have the same digest, the files agree about it, as
//! they nearly always do. If not, it is asked for the addresses of which it would be the owner.

use std::collections::BTreeMap;
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
    /// The living members that have told a digest.
    members: BTreeMap<String, Member>,
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
    /// The addresses of which it is known whether the file has them, each with the digest of that file.
    known: BTreeMap<IpAddr, (u64, bool)>,
    /// The file with this digest has no others than those that are known.
    complete: Option<u64>,
    /// Until then a file that is about to come is waited for.
    grace: Option<Duration>,
    /// When the member is asked next.
    ask: Duration,
    /// How often it was asked since its last answer.
    asked: u32,
    /// Whether there is something to ask.
    has_questions: bool,
}

impl Difference {
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
        for (name, member) in &mut self.members {
            let digest = self.digests.get(name);
            if digest == member.told {
                member.differs = None;
            } else if member.differs.is_none() {
                // The same file usually comes to the member as well, a moment later.
                member.differs = Some(Difference {
                    grace: Some(now + GRACE),
                    ask: now + GRACE,
                    ..of_equal(old, name, before.get(name))
                });
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
                    ..Difference::default()
                };
                let differs = (!is_same).then(difference);
                self.members.insert(name.clone(), Member { told, differs });
                continue;
            };
            member.told = told;
            match &mut member.differs {
                differs if is_same => *differs = None,
                Some(_) => {}
                none => {
                    *none = Some(Difference {
                        ask: now + ASK_AFTER,
                        ..of_equal(file, name, digest)
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
        has || difference.grace.is_some() && !is_held && is_named()
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
        times.min()
    }

    /// Whether the owners are to be chosen again: something is to be asked, or is not waited for any more.
    pub(super) fn tick(&mut self, now: Duration) -> bool {
        let is_due = self.deadline().is_some_and(|due| due <= now);
        for member in self.members.values_mut() {
            if let Some(difference) = &mut member.differs {
                difference.grace = difference.grace.filter(|grace| *grace > now);
            }
        }
        is_due
    }
}

/// The file of a member that had the same addresses as this one.
fn of_equal(file: &Announce, name: &str, digest: u64) -> Difference {
    let addresses = file.addresses.iter();
    let naming = addresses.filter(|one| one.may_be_held_by(name));
    Difference {
        known: naming.map(|one| (one.address, (digest, true))).collect(),
        complete: Some(digest),
        ..Difference::default()
    }
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
/// Files come to all nodes at nearly the same time: a difference that is over sooner is not asked about.
const ASK_AFTER: Duration = Duration::from_millis(200);
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Of a member that does not answer.
const MOST_DOUBLINGS: u32 = 4;
