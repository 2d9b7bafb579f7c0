//! Properties that hold for any datagrams of members. The tests of this crate and the fuzz target `datagrams` include this file.
//!
//! Bytes are datagrams, each behind its length in two bytes and the tenths of a second that pass before it in one.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Identity, Membership, State};

/// Panics where a promise of the members is broken.
pub(super) fn check(bytes: &[u8]) {
    let own = Identity {
        name: "edge1".to_owned(),
        at: at(1),
        generation: 1,
    };
    let mut now = Duration::from_secs(1);
    let mut member = Membership::new(now, own, vec![at(1), at(2)], 1);
    member.say(
        now,
        State::new("edge1".to_owned(), Some(1), 0, &[], Vec::new()),
    );
    member.tick(now);
    member.take_sends();
    let mut rest = bytes;
    while let Some(([high, low, tenths], behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (datagram, next) = behind.split_at(length.min(behind.len()));
        rest = next;
        now += Duration::from_millis(u64::from(*tenths) * 100);
        member.tick(now);
        member.take_sends();
        member.take(now, datagram);
        let sends = member.take_sends();
        // Whoever sends one datagram does not make this member flood others.
        assert!(
            sends.len() <= MOST_SENDS,
            "{} datagrams for one",
            sends.len()
        );
        assert!(
            sends.iter().all(|(_, sent)| sent.len() <= LONGEST),
            "a datagram that is too long"
        );
        member.take_news();
        let others = member.others();
        assert!(others.len() >= member.counts().0, "a member without a name");
        assert!(others.iter().all(|(name, _)| name != "edge1"));
    }
}

fn at(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 7956).into()
}

const MOST_SENDS: usize = 64;
/// What fits into a frame of Ethernet.
const LONGEST: usize = 1_472;
