//! The places for connections to the admin addresses, and for answers there that take long. Where none is left, a connection is cut for the new one, so
//! that clients that are silent or slow lock nobody out: one of the client that has the most places.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use crate::os::threads::lock;

#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    /// The most of one client.
    share: usize,
    /// An answer is not cut for the same client while its reader has paused for less; `None`: it is cut for nobody.
    spared: Option<Duration>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    last: u64,
    holders: BTreeMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    from: SocketAddr,
    /// Whether an answer is under way; the client has not sent a whole request otherwise.
    is_answered: bool,
    /// Since when that is so; or since when the client has taken no more of the answer.
    since: Instant,
    /// Cancelled when it loses its place.
    cut: CancellationToken,
}

/// A place of one client, free again once this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    /// Whose connection was cut for it.
    pub(super) instead_of: Option<SocketAddr>,
}

/// An answer to the holder of a place is under way for as long as this lives.
#[derive(Debug)]
pub(super) struct Answering {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    pub(super) fn new(most: usize, share: usize, spared: Option<Duration>) -> Arc<Self> {
        Arc::new(Self {
            most,
            share,
            spared,
            taken: Mutex::default(),
        })
    }

    /// A place for a connection, which is to end when `cut` is cancelled. `None`: no other one gives way to it.
    pub(super) fn take(
        self: &Arc<Self>,
        from: SocketAddr,
        is_answered: bool,
        cut: CancellationToken,
    ) -> Option<Place> {
        self.take_at(Instant::now(), from, is_answered, cut)
    }

    fn take_at(
        self: &Arc<Self>,
        now: Instant,
        from: SocketAddr,
        is_answered: bool,
        cut: CancellationToken,
    ) -> Option<Place> {
        let mut taken = lock(&self.taken);
        let gives_way = self.gives_way(&taken.holders, Client::of(from), now)?;
        let gone = gives_way.and_then(|number| taken.holders.remove(&number));
        if let Some(gone) = &gone {
            gone.cut.cancel();
        }
        taken.last += 1;
        let number = taken.last;
        let holder = Holder {
            from,
            is_answered,
            since: now,
            cut,
        };
        taken.holders.insert(number, holder);
        Some(Place {
            places: Arc::clone(self),
            number,
            instead_of: gone.map(|gone| gone.from),
        })
    }

    /// Which place a new connection of `client` takes over; `Some(None)`: there is a free one. `None`: it has none.
    fn gives_way(
        &self,
        holders: &BTreeMap<u64, Holder>,
        client: Client,
        now: Instant,
    ) -> Option<Option<u64>> {
        let mut counts: BTreeMap<Client, usize> = BTreeMap::new();
        for holder in holders.values() {
            *counts.entry(Client::of(holder.from)).or_default() += 1;
        }
        let count = |client: Client| counts.get(&client).copied().unwrap_or_default();
        let own = count(client);
        if holders.len() < self.most && own < self.share {
            return Some(None);
        }
        let is_idle = |holder: &Holder| !holder.is_answered && now - holder.since >= IDLE;
        let may_be_cut = |holder: &Holder| {
            let other = Client::of(holder.from);
            if other == client {
                !holder.is_answered
                    || self
                        .spared
                        .is_some_and(|spared| now - holder.since >= spared)
            } else {
                let may_be_answered = self.spared.is_some();
                let has_more = count(other) > own && (may_be_answered || !holder.is_answered);
                own < self.share && (has_more || is_idle(holder) && count(other) == own)
            }
        };
        let most = counts.values().max().copied().unwrap_or_default();
        // An answer does not end while somebody is idle, or while its client has silent connections and the most of all.
        let goes_before_answers =
            |holder: &Holder, count: usize| is_idle(holder) || !holder.is_answered && count == most;
        let first_to_go = holders
            .iter()
            .filter(|(_, holder)| may_be_cut(holder))
            .max_by_key(|(number, holder)| {
                let oldest = Reverse((holder.since, **number));
                let count = count(Client::of(holder.from));
                let is_first = goes_before_answers(holder, count);
                (is_first, count, !holder.is_answered, oldest)
            });
        first_to_go.map(|(number, _)| Some(*number))
    }

    fn set_answered(&self, number: u64, is_answered: bool) {
        if let Some(holder) = lock(&self.taken).holders.get_mut(&number) {
            (holder.is_answered, holder.since) = (is_answered, Instant::now());
        }
    }
}

impl Place {
    /// Its holder has sent a whole request.
    pub(super) fn answering(&self) -> Answering {
        self.places.set_answered(self.number, true);
        Answering {
            places: Arc::clone(&self.places),
            number: self.number,
        }
    }
}

impl Answering {
    /// The client has taken what there was.
    pub(super) fn goes_on(&self) {
        self.places.set_answered(self.number, true);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.taken).holders.remove(&self.number);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.places.set_answered(self.number, false);
    }
}

/// A client that has sent no whole request for so long is idle, and goes before any other one.
const IDLE: Duration = Duration::from_millis(250);
/// A reader that pauses for so long is slow.
pub(super) const SPARED: Option<Duration> = Some(Duration::from_secs(1));

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients by a letter: small ones are silent, and large ones are being answered.
    struct Held {
        places: Arc<Places>,
        began: Instant,
        all: Vec<(char, Place, CancellationToken)>,
    }

    impl Held {
        fn new(most: usize, share: usize) -> Self {
            Self {
                places: Places::new(most, share, SPARED),
                began: Instant::now(),
                all: Vec::new(),
            }
        }

        /// Connects a client at this millisecond. Returns the clients that have places then.
        fn comes(&mut self, at: u64, client: char) -> String {
            let number = u8::try_from(client.to_ascii_lowercase()).unwrap();
            let from = SocketAddr::from(([192, 0, 2, number], 7));
            let cut = CancellationToken::new();
            let now = self.began + Duration::from_millis(at);
            let is_answered = client.is_ascii_uppercase();
            let place = self.places.take_at(now, from, is_answered, cut.clone());
            self.all.extend(place.map(|place| (client, place, cut)));
            self.all.retain(|(_, _, cut)| !cut.is_cancelled());
            self.all.iter().map(|(client, ..)| *client).collect()
        }
    }

    #[test]
    fn the_client_with_the_most_places_gives_one_up() {
        for (there, comes, at, after) in [
            // There is room.
            ("aa", 'a', 0, "aaa"),
            // Silent ones of the same client make room, the oldest first.
            ("aaaa", 'a', 0, "aaaa"),
            ("aaaA", 'A', 0, "aaAA"),
            ("AAaA", 'a', 0, "AAAa"),
            // Answers do so when nothing of them was taken for a while.
            ("AAAA", 'a', 900, "AAAA"),
            ("AAAA", 'a', 1_100, "AAAa"),
            // Others need not wait for that.
            ("AAAA", 'b', 0, "AAAb"),
            ("AAbb", 'c', 0, "AAbc"),
            ("AbAc", 'b', 0, "bAcb"),
            ("abcd", 'e', 0, "bcde"),
            ("AbCd", 'e', 0, "ACde"),
            // A client takes no place of one that has fewer than itself.
            ("AAbc", 'a', 0, "AAbc"),
            ("AAAb", 'A', 900, "AAAb"),
            ("aAAb", 'A', 0, "AAbA"),
            // Of an idle one a client takes the place that has no more than it, and no answer ends for it.
            ("AbCd", 'a', 300, "ACda"),
            ("ABCD", 'a', 300, "ABCD"),
            ("AAbc", 'd', 300, "AAcd"),
            ("AAbc", 'a', 300, "AAbc"),
            // One that has just come, and has not asked yet, goes only where its client has the most.
            ("AAAb", 'c', 0, "AAbc"),
        ] {
            let mut held = Held::new(4, 4);
            for (at, client) in (0..).zip(there.chars()) {
                held.comes(at, client);
            }
            assert_eq!(held.comes(10 + at, comes), after, "{there} {comes} {at}");
            held.all.clear();
            assert!(lock(&held.places.taken).holders.is_empty());
        }
    }

    #[test]
    fn a_client_with_its_share_makes_room_for_itself_only() {
        let mut held = Held::new(5, 2);
        for (at, client, after) in [
            (0, 'A', "A"),
            (1, 'A', "AA"),
            (2, 'A', "AA"),
            (3, 'B', "AAB"),
            (4, 'B', "AABB"),
            (1_002, 'A', "ABBA"),
            (1_003, 'C', "ABBAC"),
            (1_004, 'C', "BBACC"),
        ] {
            assert_eq!(held.comes(at, client), after, "{client} at {at}");
        }
    }

    #[test]
    fn who_is_answered_outlives_who_is_silent() {
        let places = Places::new(2, 2, SPARED);
        let from = SocketAddr::from(([127, 0, 0, 1], 7));
        let come = || {
            let cut = CancellationToken::new();
            (places.take(from, false, cut.clone()).unwrap(), cut)
        };
        let ((first, first_cut), (_second, second_cut)) = (come(), come());
        let answering = first.answering();
        let (third, third_cut) = come();
        assert!(second_cut.is_cancelled() && third.instead_of == Some(from));
        drop(answering);
        let (_fourth, fourth_cut) = come();
        // The third one has been silent for longer than the first, which was answered meanwhile.
        assert!(third_cut.is_cancelled() && !first_cut.is_cancelled());
        let _answering = first.answering();
        drop(come());
        assert!(fourth_cut.is_cancelled() && !first_cut.is_cancelled());
    }
}
