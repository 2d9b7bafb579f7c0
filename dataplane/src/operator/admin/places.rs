//! The places for connections to the admin addresses, and for answers there that take long. Where none is left, a connection is cut for the new
//! one, so that clients that are silent or slow lock nobody out: one of the client that has the most places.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use crate::os::threads::lock;

#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
    /// Notified where a place is free again.
    freed: Notify,
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

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// A place for an answer, as soon as there is one. `None`: there is none for so long.
    pub(super) async fn wait(
        self: &Arc<Self>,
        patience: Duration,
        from: SocketAddr,
        cut: &CancellationToken,
    ) -> Option<Place> {
        let taking = async {
            loop {
                if let Some(place) = self.take(from, true, cut.clone()) {
                    return place;
                }
                // A reader that becomes slow tells nobody.
                timeout(LOOK_AGAIN, self.freed.notified()).await.ok();
            }
        };
        timeout(patience, taking).await.ok()
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
        if holders.len() < self.most {
            return Some(None);
        }
        let mut counts: BTreeMap<Client, usize> = BTreeMap::new();
        for holder in holders.values() {
            *counts.entry(Client::of(holder.from)).or_default() += 1;
        }
        let count = |client: Client| counts.get(&client).copied().unwrap_or_default();
        let own = count(client);
        let is_idle = |holder: &Holder| !holder.is_answered && now - holder.since >= IDLE;
        let may_be_cut = |holder: &Holder| {
            let other = Client::of(holder.from);
            if other == client {
                !holder.is_answered || now - holder.since >= SPARED
            } else {
                count(other) > own || is_idle(holder) && count(other) == own
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

    /// How many answers are under way.
    #[cfg(test)]
    pub(super) fn answered(&self) -> usize {
        let taken = lock(&self.taken);
        let answered = taken.holders.values().filter(|holder| holder.is_answered);
        answered.count()
    }
}

impl Place {
    /// An answer to its holder is under way from now on, or is not any more.
    pub(super) fn set_answered(&self, is_answered: bool) {
        if let Some(holder) = lock(&self.places.taken).holders.get_mut(&self.number) {
            (holder.is_answered, holder.since) = (is_answered, Instant::now());
        }
    }

    /// Its holder has taken some of the answer, if one is under way.
    pub(super) fn go_on(&self) {
        if let Some(holder) = lock(&self.places.taken).holders.get_mut(&self.number)
            && holder.is_answered
        {
            holder.since = Instant::now();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.taken).holders.remove(&self.number);
        self.places.freed.notify_one();
    }
}

/// A client that has sent no whole request for so long is idle, and goes before any other one.
const IDLE: Duration = Duration::from_millis(250);
/// A reader that pauses for so long is slow: longer than the second between two events.
const SPARED: Duration = Duration::from_millis(1_250);
/// How often is looked whether a reader has become slow, where somebody waits.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

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
        fn new(most: usize) -> Self {
            Self {
                places: Places::new(most),
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
            ("AAAA", 'a', 1_200, "AAAA"),
            ("AAAA", 'a', 1_300, "AAAa"),
            // Others need not wait for that.
            ("AAAA", 'b', 0, "AAAb"),
            ("AAbb", 'c', 0, "AAbc"),
            ("AbAc", 'b', 0, "bAcb"),
            ("abcd", 'e', 0, "bcde"),
            ("AbCd", 'e', 0, "ACde"),
            // A client takes no place of one that has fewer than itself.
            ("AAbc", 'a', 0, "AAbc"),
            ("AAAb", 'A', 1_200, "AAAb"),
            // A client without a place gets the oldest one, and the client that lost its place gets another one when it connects again.
            ("ABCD", 'E', 0, "BCDE"),
            ("BCDE", 'A', 0, "CDEA"),
            ("aAAb", 'A', 0, "AAbA"),
            // A client takes the place of an idle connection even if the other client has no more places; it ends no answer for that.
            ("AbCd", 'a', 300, "ACda"),
            ("ABCD", 'a', 300, "ABCD"),
            ("AAbc", 'd', 300, "AAcd"),
            ("AAbc", 'a', 300, "AAbc"),
            // One that has just come, and has not asked yet, goes only where its client has the most.
            ("AAAb", 'c', 0, "AAbc"),
        ] {
            let mut held = Held::new(4);
            for (at, client) in (0..).zip(there.chars()) {
                held.comes(at, client);
            }
            assert_eq!(held.comes(10 + at, comes), after, "{there} {comes} {at}");
            held.all.clear();
            assert!(lock(&held.places.taken).holders.is_empty());
        }
    }

    #[tokio::test]
    async fn who_waits_gets_the_next_place_or_that_of_a_reader_that_becomes_slow() {
        let places = Places::new(1);
        let from = SocketAddr::from(([192, 0, 2, 1], 7));
        let cut = CancellationToken::new();
        let wait = |patience| places.wait(Duration::from_millis(patience), from, &cut);
        let first = wait(0).await.unwrap();
        assert!(wait(100).await.is_none(), "it has just begun");
        let (second, ()) = tokio::join!(wait(10_000), async { drop(first) });
        let second = second.unwrap();
        assert_eq!(second.instead_of, None);
        let third = wait(10_000).await.unwrap();
        assert!(third.instead_of == Some(from) && cut.is_cancelled());
        drop(second);
        assert_eq!(places.answered(), 1);
    }

    #[test]
    fn who_is_answered_outlives_who_is_silent() {
        let places = Places::new(2);
        let from = SocketAddr::from(([127, 0, 0, 1], 7));
        let come = || {
            let cut = CancellationToken::new();
            (places.take(from, false, cut.clone()).unwrap(), cut)
        };
        let ((first, first_cut), (_second, second_cut)) = (come(), come());
        first.set_answered(true);
        let (third, third_cut) = come();
        assert!(second_cut.is_cancelled() && third.instead_of == Some(from));
        first.set_answered(false);
        let (_fourth, fourth_cut) = come();
        // The third one has been silent for longer than the first, which was answered meanwhile.
        assert!(third_cut.is_cancelled() && !first_cut.is_cancelled());
        first.set_answered(true);
        drop(come());
        assert!(fourth_cut.is_cancelled() && !first_cut.is_cancelled());
    }
}
