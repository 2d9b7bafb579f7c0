//! The addresses of the file on this node, and which of them is due when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::ack::Status;
use crate::file::Return;
use crate::l2::L2;
use crate::owner::Standing;
use crate::standing::Career;

/// An address on this node.
pub(super) struct Entry {
    pub(super) l2: L2,
    /// The interface that is to carry it.
    pub(super) interface: Option<u32>,
    /// Its place in the file.
    pub(super) place: usize,
    /// The system refused to put it on the interface. Another node takes it, and this one only tries again where there is no other.
    /// It ends when it succeeds, or a while after something changed for it.
    pub(super) barred: Option<Bar>,
    /// How often in a row it was barred.
    bars: u32,
    /// A member gives it up for this node.
    pub(super) offer: Option<Offer>,
    /// Whether this node may hold it, over time, as its file has it. `None`: never yet, or no other node could when this one could not.
    career: Option<Career>,
    /// When the career goes on.
    returns: Option<Duration>,
    pub(super) status: Status,
}

/// The offer of an address.
pub(super) struct Offer {
    /// The member that had it.
    pub(super) by: String,
    /// Until then it may be taken; `None`: it was.
    pub(super) open: Option<Duration>,
    /// Until then that member is no candidate, as what it says of itself, and its file, may be heard later than the offer.
    pub(super) ahead: Option<Duration>,
}

/// Why the system does not put an address on the interface.
pub(super) struct Bar {
    pub(super) why: String,
    since: Duration,
    /// When the bar is lifted, as something changed: the address comes back from the node that has it now, and may be refused again.
    lifted: Option<Duration>,
}

impl Entry {
    pub(super) fn new(interface: Option<u32>, place: usize, status: Status) -> Self {
        Self {
            l2: L2::default(),
            interface,
            place,
            barred: None,
            bars: 0,
            offer: None,
            career: None,
            returns: None,
            status,
        }
    }

    fn deadline(&self) -> Option<Duration> {
        let lifted = self.barred.as_ref().and_then(|bar| bar.lifted);
        let more = lifted.into_iter().chain(self.returns);
        self.l2.deadline().into_iter().chain(more).min()
    }

    /// Whether this node may hold it, if its file has it so: it was not away, or is back for long enough.
    pub(super) fn is_back(&self) -> bool {
        let standing = self.career.as_ref().map(Career::standing);
        standing.is_none_or(|standing| standing == Some(Standing::Settled))
    }

    /// Whether [`Entry::weigh`] changes nothing.
    pub(super) fn is_weighed(&self, is_able: bool) -> bool {
        match &self.career {
            Some(_) => is_able && self.is_back(),
            None => !is_able,
        }
    }

    /// `is_able`: the file says that this node may hold it and can serve it. `has_other`: another living member can hold it. An address
    /// that this node could not hold comes back as a node that was away does.
    pub(super) fn weigh(&mut self, now: Duration, how: Return, is_able: bool, has_other: bool) {
        if is_able || has_other {
            let career = self.career.get_or_insert_with(|| Career::begin(now, true));
            career.tick(now, how, is_able, has_other);
            self.returns = career.deadline(how);
        } else {
            (self.career, self.returns) = (None, None);
        }
    }

    /// Whether it is time to weigh it again.
    pub(super) fn returns(&self, now: Duration) -> bool {
        self.returns.is_some_and(|returns| returns <= now)
    }

    /// The system refused it.
    pub(super) fn bar(&mut self, now: Duration, why: String) {
        self.l2.refused(now, why.clone());
        let (since, lifted) = match &self.barred {
            Some(bar) => (bar.since, bar.lifted),
            // What was wrong may have passed without a change that this node sees.
            None => {
                let longest = Duration::from_secs(BARRED << MOST_DOUBLINGS);
                (now, Some(now + longest))
            }
        };
        self.bars += u32::from(self.barred.is_none());
        self.barred = Some(Bar { why, since, lifted });
    }

    /// Something changed, and the system may take it now.
    pub(super) fn may_be_taken(&mut self, now: Duration) {
        self.l2.try_again(now);
        if let Some(bar) = &mut self.barred {
            let pause = BARRED << self.bars.saturating_sub(1).min(MOST_DOUBLINGS);
            let lifted = now.max(bar.since + Duration::from_secs(pause));
            bar.lifted = Some(bar.lifted.map_or(lifted, |one| one.min(lifted)));
        }
    }

    /// Lifts the bar, if that is due, or the address was taken in spite of it. Returns whether it did.
    pub(super) fn lift_bar(&mut self, now: Duration) -> bool {
        let is_taken = self.l2.is_settled();
        if is_taken {
            self.bars = 0;
        }
        let is_due = |bar: &mut Bar| is_taken || bar.lifted.is_some_and(|lifted| lifted <= now);
        self.barred.take_if(is_due).is_some()
    }
}

/// The seconds for which an address is barred at least; twice as long each further time, up to about an hour and a half.
const BARRED: u64 = 10;
const MOST_DOUBLINGS: u32 = 9;

/// The addresses of the file. The times at which they are due are sorted: a node asks after each datagram when the next one is due.
#[derive(Default)]
pub(super) struct Entries {
    all: BTreeMap<IpAddr, Entry>,
    due: BTreeSet<(Duration, IpAddr)>,
}

impl Entries {
    pub(super) fn get(&self, address: IpAddr) -> Option<&Entry> {
        self.all.get(&address)
    }

    /// Changes an entry, if it is there, and notes when it is due then.
    pub(super) fn change<R>(
        &mut self,
        address: IpAddr,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let entry = self.all.get_mut(&address)?;
        let before = entry.deadline();
        let result = change(entry);
        let after = entry.deadline();
        if after != before {
            if let Some(before) = before {
                self.due.remove(&(before, address));
            }
            self.due.extend(after.map(|due| (due, address)));
        }
        Some(result)
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.all.contains_key(&address)
    }

    /// The entry is a new one, or takes the place of an older one.
    pub(super) fn insert(&mut self, address: IpAddr, entry: Entry) {
        self.remove(address);
        self.due.extend(entry.deadline().map(|due| (due, address)));
        self.all.insert(address, entry);
    }

    pub(super) fn remove(&mut self, address: IpAddr) {
        let due = self.all.remove(&address).and_then(|one| one.deadline());
        if let Some(due) = due {
            self.due.remove(&(due, address));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, &Entry)> {
        self.all.iter().map(|(address, entry)| (*address, entry))
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.all.keys().copied().collect()
    }

    /// When the next one is due.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Those that are due.
    pub(super) fn due(&self, now: Duration) -> Vec<IpAddr> {
        let due = self.due.iter().take_while(|(due, _)| *due <= now);
        due.map(|(_, address)| *address).collect()
    }
}
