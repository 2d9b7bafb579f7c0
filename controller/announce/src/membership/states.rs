//! The states of the members, which spread with foca's own messages, newest first.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foca::{BroadcastHandler, Invalidates};
use serde::{Deserialize, Serialize};

use super::MOST_MEMBERS;
use super::cannot::{Cannot, Map};
use super::identity::{Identity, is_newer, name};
use crate::frames::Mac;

/// The state of a member, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// The generation of its identity, and with it the age of this state.
    pub(super) generation: u64,
    /// Of two states of one generation the higher version is the newer one.
    pub(super) version: u64,
    /// Its standing as an owner: 0 flapping, 1 returning, 2 settled. Absent: it can hold nothing.
    pub standing: Option<u8>,
    /// The digest of the addresses that name it in its file.
    pub file: u64,
    /// The addresses that name it as a node and that it cannot hold now.
    pub cannot: Cannot,
    /// The hardware addresses of its interfaces.
    pub macs: Vec<Mac>,
}

impl State {
    /// The state of a member that can hold nothing, and says no more.
    #[must_use]
    pub fn silent(name: String) -> Self {
        Self::new(name, None, 0, &[], Vec::new())
    }

    /// A state. `addresses`: those that name the member as a node, each with whether it cannot hold it now. If they do not fit into
    /// [`MOST_BYTES`], the member can hold nothing.
    #[must_use]
    pub fn new(
        name: String,
        standing: Option<u8>,
        file: u64,
        addresses: &[(IpAddr, bool)],
        macs: Vec<Mac>,
    ) -> Self {
        let cannot = addresses.iter().filter(|(_, cannot)| *cannot);
        let mut state = Self {
            name,
            generation: 0,
            version: 0,
            standing,
            file,
            cannot: Cannot::Listed(cannot.map(|(address, _)| *address).collect()),
            macs,
        };
        if !state.fits()
            && let Some(map) = Map::of(addresses)
        {
            state.cannot = Cannot::Mapped(map);
        }
        if !state.fits() {
            state.standing = None;
            state.cannot = Cannot::none();
        }
        state
    }

    /// Whether its bytes are no more than [`MOST_BYTES`], whatever its age.
    fn fits(&self) -> bool {
        let bytes = postcard::to_allocvec(self).map_or(usize::MAX, |bytes| bytes.len());
        bytes + AGE_BYTES <= MOST_BYTES
    }

    /// Whether nothing but the version differs.
    pub(super) fn says_the_same_as(&self, other: &Self) -> bool {
        self.standing == other.standing
            && self.file == other.file
            && self.cannot == other.cannot
            && self.macs == other.macs
    }

    fn age(&self) -> Age {
        Age {
            name: self.name.clone(),
            generation: self.generation,
            version: self.version,
        }
    }
}

/// The newest state of each member, also of dead ones.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    states: BTreeMap<String, State>,
    /// The generation of each living member. It may be lower than that of what the member said before: clocks go back.
    living: BTreeMap<String, u64>,
    /// When each of the dead went.
    gone: BTreeMap<String, Duration>,
    /// How often a member said something else than before.
    changes: u64,
    /// The hardware addresses that members had before, the newest first, each with the member's name: a frame of an interface that went
    /// down may be heard after the member's word that it has that interface no more.
    former: VecDeque<(Mac, String)>,
}

impl Said {
    /// Whether there is a place for another member's state. A dead one's makes room.
    fn has_place(&mut self) -> bool {
        if self.states.len() >= MOST_MEMBERS {
            let mut names = self.states.keys();
            let dead = names.find(|name| !self.living.contains_key(*name)).cloned();
            dead.and_then(|name| self.states.remove(&name)).is_some()
        } else {
            true
        }
    }

    /// Keeps the time of death of those alone whose state is kept.
    fn bound_gone(&mut self) {
        let states = &self.states;
        self.gone.retain(|name, _| states.contains_key(name));
    }

    /// Takes a state, which is the newest one of its member.
    fn take(&mut self, state: State) {
        let last = self.states.get(&state.name);
        let gone = last.into_iter().flat_map(|last| &last.macs);
        for mac in gone.filter(|mac| !state.macs.contains(mac)) {
            self.former.push_front((*mac, state.name.clone()));
        }
        self.former.truncate(MOST_FORMER);
        self.states.insert(state.name.clone(), state);
    }
}

impl Known {
    pub(super) fn of(&self, name: &str) -> Option<State> {
        self.lock().states.get(name).cloned()
    }

    /// A member came up under this generation. What an earlier process of it said of itself holds no more.
    pub(super) fn came(&self, name: &str, generation: u64) {
        let mut known = self.lock();
        known.living.insert(name.to_owned(), generation);
        known.gone.remove(name);
        if let Some(state) = known.states.get_mut(name)
            && state.generation != generation
        {
            state.standing = None;
        }
    }

    /// A member goes on under this generation.
    pub(super) fn renamed(&self, name: &str, generation: u64) {
        if let Some(known) = self.lock().living.get_mut(name) {
            *known = generation;
        }
    }

    /// No member is known to live any more.
    pub(super) fn all_went(&self, now: Duration) {
        let mut known = self.lock();
        let living = std::mem::take(&mut known.living);
        known
            .gone
            .extend(living.into_keys().map(|name| (name, now)));
        known.bound_gone();
    }

    /// A member is dead, or left. What it said is kept: its system may still answer for it.
    pub(super) fn went(&self, now: Duration, name: &str) {
        let mut known = self.lock();
        known.living.remove(name);
        known.gone.insert(name.to_owned(), now);
        known.bound_gone();
    }

    /// Whether the member said something of itself.
    pub(super) fn has_heard(&self, name: &str) -> bool {
        self.lock().states.contains_key(name)
    }

    /// When a member died that could hold addresses, as far as it said. One that leaves says before that it cannot.
    pub(super) fn died(&self, name: &str) -> Option<Duration> {
        let known = self.lock();
        known.states.get(name)?.standing?;
        known.gone.get(name).copied()
    }

    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// The member with this hardware address, and whether it lives. A living one comes first: the others may be earlier names of it.
    pub(super) fn with_mac(&self, mac: Mac) -> Option<(String, bool)> {
        let known = self.lock();
        let states = known.states.values();
        let having = states.filter(|state| state.macs.contains(&mac));
        let having = having.map(|state| (known.living.contains_key(&state.name), &state.name));
        let (is_alive, name) = having.max().or_else(|| {
            let mut former = known.former.iter();
            let (_, name) = former.find(|(former, _)| *former == mac)?;
            Some((known.living.contains_key(name), name))
        })?;
        Some((name.clone(), is_alive))
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes states from foca's messages, and says which of them are new and to be passed on.
pub(super) struct Sayings {
    own_name: String,
    known: Known,
}

impl Sayings {
    pub(super) fn new(own_name: &str, known: Known) -> Self {
        Self {
            own_name: own_name.to_owned(),
            known,
        }
    }
}

impl BroadcastHandler<Identity> for Sayings {
    type Key = Age;
    type Error = Infallible;

    fn receive_item(
        &mut self,
        data: &[u8],
        sender: Option<&Identity>,
    ) -> Result<Option<Age>, Infallible> {
        let Ok(state) = postcard::from_bytes::<State>(data) else {
            return Ok(None);
        };
        let age = state.age();
        if sender.is_none() {
            return Ok(Some(age));
        }
        let mut known = self.known.lock();
        let last = known.states.get(&state.name);
        let living = known.living.get(&state.name);
        let is_of_living = |state: &State| living == Some(&state.generation);
        let is_new = match last {
            Some(last) if is_of_living(last) != is_of_living(&state) => is_of_living(&state),
            Some(last) => age.is_newer(&last.age()),
            None => true,
        };
        let is_stranger = last.is_none();
        let is_change = last.is_none_or(|last| !last.says_the_same_as(&state));
        if !is_new || state.name == self.own_name || is_stranger && !known.has_place() {
            return Ok(None);
        }
        known.changes += u64::from(is_change);
        known.take(state);
        Ok(Some(age))
    }
}

/// The member of a state, and the version of the state.
pub(super) struct Age {
    name: String,
    generation: u64,
    version: u64,
}

impl Age {
    fn is_newer(&self, other: &Self) -> bool {
        is_newer(self.generation, other.generation)
            || self.generation == other.generation && self.version > other.version
    }
}

impl Invalidates for Age {
    fn invalidates(&self, other: &Self) -> bool {
        self.name == other.name && !other.is_newer(self)
    }
}

/// The bytes of a state at most, so that it fits into a datagram beside the rest.
pub const MOST_BYTES: usize = 1024;

/// The age of a state has so many bytes more at most than that of a new one: two numbers of ten in place of one byte.
const AGE_BYTES: usize = 18;

const MOST_FORMER: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn state(generation: u64, version: u64) -> Vec<u8> {
        let state = State {
            generation,
            version,
            ..State::silent("b".to_owned())
        };
        postcard::to_allocvec(&state).unwrap()
    }

    #[test]
    fn only_what_is_newer_is_kept_and_passed_on() {
        let known = Known::default();
        let mut sayings = Sayings::new("a", known.clone());
        let from = Identity {
            name: "c".to_owned(),
            at: ([10, 0, 0, 1], 1).into(),
            generation: 1,
        };
        for (generation, version, expected) in [
            (2, 2, true),
            (2, 2, false),
            (2, 1, false),
            (1, 9, false),
            (3, 0, true),
        ] {
            let passed = sayings
                .receive_item(&state(generation, version), Some(&from))
                .unwrap();
            assert_eq!(passed.is_some(), expected, "{generation} {version}");
        }
        let b = known.of("b").unwrap();
        assert_eq!((b.generation, b.version), (3, 0));
        // Its next process has an older clock.
        known.came("b", 1);
        for (generation, version, expected) in
            [(4, 0, true), (1, 1, true), (4, 1, false), (1, 2, true)]
        {
            let passed = sayings
                .receive_item(&state(generation, version), Some(&from))
                .unwrap();
            assert_eq!(passed.is_some(), expected, "{generation} {version}");
        }
        let own = postcard::to_allocvec(&State::silent("a".to_owned())).unwrap();
        assert!(sayings.receive_item(&own, Some(&from)).unwrap().is_none());
        assert!(sayings.receive_item(&own, None).unwrap().is_some());
        assert!(
            sayings
                .receive_item(b"\xff", Some(&from))
                .unwrap()
                .is_none()
        );
    }

    fn said(known: &Known, state: &State) -> bool {
        let mut sayings = Sayings::new("own", known.clone());
        let from = Identity {
            name: "c".to_owned(),
            at: ([10, 0, 0, 1], 1).into(),
            generation: 1,
        };
        let bytes = postcard::to_allocvec(state).unwrap();
        sayings.receive_item(&bytes, Some(&from)).unwrap().is_some()
    }

    fn of(name: &str, generation: u64, mac: u8) -> State {
        let mut state = State::new(name.to_owned(), Some(2), 0, &[], vec![[mac; 6]]);
        state.generation = generation;
        state
    }

    #[test]
    fn what_an_earlier_process_said_of_itself_does_not_hold_for_the_next() {
        let known = Known::default();
        known.came("b", 5);
        assert!(said(&known, &of("b", 5, 2)));
        let standing = || known.of("b").unwrap().standing;
        // The same process under another generation, or seen again.
        known.renamed("b", 6);
        assert_eq!(standing(), Some(2));
        known.went(Duration::ZERO, "b");
        known.renamed("b", 6);
        assert_eq!(known.with_mac([2; 6]), Some(("b".to_owned(), false)));
        known.came("b", 5);
        assert_eq!(standing(), Some(2));
        known.went(Duration::ZERO, "b");
        known.came("b", 7);
        assert_eq!(standing(), None);
        assert_eq!(known.with_mac([2; 6]), Some(("b".to_owned(), true)));
        assert!(said(&known, &of("b", 7, 2)));
        assert_eq!(standing(), Some(2));
    }

    #[test]
    fn a_host_with_a_new_name_is_found_by_that() {
        let known = Known::default();
        for name in ["edge1", "edge9"] {
            known.came(name, 1);
            assert!(said(&known, &of(name, 1, 2)));
        }
        for (dead, found) in [("edge1", ("edge9", true)), ("edge9", ("edge9", false))] {
            known.went(Duration::ZERO, dead);
            let expected = (found.0.to_owned(), found.1);
            assert_eq!(known.with_mac([2; 6]), Some(expected));
        }
        assert_eq!(known.with_mac([3; 6]), None);
    }

    #[test]
    fn a_frame_of_an_interface_that_a_member_has_no_more_is_that_members() {
        let known = Known::default();
        known.came("b", 1);
        let mut state = of("b", 1, 2);
        assert!(said(&known, &state));
        for version in 1..=200 {
            state.version = version;
            state.macs = match version {
                1 => Vec::new(),
                _ => vec![[u8::try_from(version + 50).unwrap(); 6]],
            };
            assert!(said(&known, &state));
            assert_eq!(known.with_mac([2; 6]).is_some(), version < 66);
        }
        known.went(Duration::ZERO, "b");
        assert_eq!(known.with_mac([249; 6]), Some(("b".to_owned(), false)));
        assert_eq!(known.lock().former.len(), MOST_FORMER);
    }

    #[test]
    fn the_dead_make_room_for_the_living() {
        let known = Known::default();
        for number in 0..MOST_MEMBERS {
            let name = format!("edge{number}");
            known.came(&name, 1);
            assert!(said(&known, &of(&name, 1, 2)));
        }
        assert!(!said(&known, &of("new", 1, 2)));
        known.went(Duration::ZERO, "edge7");
        assert!(said(&known, &of("new", 1, 2)));
        assert_eq!(known.of("edge7"), None);
        assert_eq!(known.lock().states.len(), MOST_MEMBERS);
    }

    #[test]
    fn a_member_says_exactly_what_it_cannot_hold_or_holds_nothing() {
        let address = |last: u32| IpAddr::from(Ipv4Addr::from(0xc000_0200 + last));
        let state = |count: u32, cannot: u32| {
            let all: Vec<_> = (0..count).map(|one| (address(one), one < cannot)).collect();
            State::new("edge1".to_owned(), Some(2), u64::MAX, &all, vec![[2; 6]])
        };
        for (count, cannot) in [(190, 190), (1_000, 190), (1_000, 500), (6_000, 3_000)] {
            let state = state(count, cannot);
            assert_eq!(state.standing, Some(2));
            let is_right = |one: &u32| state.cannot.has(address(*one)) == (*one < cannot);
            assert!((0..count).all(|one| is_right(&one)), "{cannot} of {count}");
            let mut oldest = state.clone();
            (oldest.generation, oldest.version) = (u64::MAX, u64::MAX);
            assert!(postcard::to_allocvec(&oldest).unwrap().len() <= MOST_BYTES);
        }
        // Of many addresses some are said by a list.
        assert_eq!(state(20_000, 100).standing, Some(2));
        let too_much = state(7_000, 3_500);
        assert_eq!((too_much.standing, too_much.cannot), (None, Cannot::none()));
    }
}
