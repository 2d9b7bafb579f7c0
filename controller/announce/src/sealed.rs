//! Datagrams of the members, sealed: nobody without the key can read one, make one or change one, and what is older than 2 s is
//! dropped, whoever sends it again.
//!
//! A sealed datagram is [`FORM`], the nonce, and the content with its tag (AES-256-GCM-SIV: a machine that was set back to a snapshot
//! uses nonces again). The nonce is the boot id, random for each start of the process, and a counter. The content begins with the
//! time of the sender's clock, which begins with its process.
//!
//! A process that is not known is not heard before it has answered a question of this one: so it runs now, and its clock is known.
//! Its datagrams that are older than 2 s are dropped from then on, even if it was silent or has ended.

use std::collections::HashMap;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::key::Keys;

/// A random id of the process.
pub type Boot = [u8; 7];

/// Seals what this process sends, and opens what arrives.
pub struct Channel {
    /// The first one seals.
    keys: Vec<LessSafeKey>,
    boot: Boot,
    sent: u64,
    /// The processes that answered a question.
    windows: HashMap<Boot, Window>,
    /// Questions that were asked in the part of a second that began then.
    asked: (Duration, u32),
}

/// The outcome of opening a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The content, from a member.
    Content(Vec<u8>),
    /// A process answered the question of this one, and is heard from now on. What it said before was dropped.
    Met,
    /// A question or an answer of this layer alone.
    Nothing,
}

impl Channel {
    /// Seals with the first of the keys, and opens with each. `boot` is never used again.
    #[must_use]
    pub fn new(keys: &Keys, boot: Boot) -> Self {
        Self {
            keys: keys.iter().filter_map(key).collect(),
            boot,
            sent: 0,
            windows: HashMap::new(),
            asked: (Duration::ZERO, 0),
        }
    }

    /// Takes other keys. What has arrived is remembered.
    pub fn set_keys(&mut self, keys: &Keys) {
        self.keys = keys.iter().filter_map(key).collect();
    }

    /// The datagram with this content. `None` after as many datagrams as the counter counts, which takes decades.
    pub fn seal(&mut self, now: Duration, content: &[u8]) -> Option<Vec<u8>> {
        self.seal_as(now, SAYS, content)
    }

    fn seal_as(&mut self, now: Duration, kind: u8, content: &[u8]) -> Option<Vec<u8>> {
        self.sent += 1;
        if self.sent >> COUNTER_BITS != 0 {
            return None;
        }
        let mut nonce = [0; NONCE_LEN];
        let (boot, counter) = nonce.split_at_mut(self.boot.len());
        boot.copy_from_slice(&self.boot);
        counter.copy_from_slice(self.sent.to_be_bytes().get(8 - counter.len()..)?);
        let mut sealed = [&millis(now).to_be_bytes()[..], &[kind], content].concat();
        let key = self.keys.first()?;
        let nonce_of_it = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce_of_it, Aad::from(FORM), &mut sealed);
        let tag = tag.ok()?;
        let parts: [&[u8]; 4] = [&FORM, &nonce, &sealed, tag.as_ref()];
        Some(parts.concat())
    }

    /// Opens a datagram, or says why it is dropped. The caller sends `replies` to its sender.
    pub fn open(
        &mut self,
        now: Duration,
        datagram: &[u8],
        replies: &mut Vec<Vec<u8>>,
    ) -> Result<Opened, Dropped> {
        let (boot, stamp, content) = self.unseal(now, datagram)?;
        let (kind, content) = content.split_first().ok_or(Dropped::Malformed)?;
        if boot == self.boot {
            return Err(Dropped::Replayed);
        }
        let is_answer = *kind == ANSWERS && self.has_asked(now, content);
        let window = self.windows.get_mut(&boot);
        let window = window.filter(|window| window.is_fresh(now, stamp.lead));
        let is_known = window.is_some();
        match window {
            Some(window) => {
                if !window.takes(now, stamp) {
                    return Err(Dropped::Replayed);
                }
            }
            None if is_answer => self.remember(boot, Window::of(now, stamp)),
            // An unknown process is asked for a proof that it runs now. The question helps nobody who replays old datagrams.
            None => replies.extend(self.ask(now)),
        }
        match *kind {
            ANSWERS if is_answer && !is_known => Ok(Opened::Met),
            ANSWERS => Ok(Opened::Nothing),
            ASKS if content.len() == QUESTION => {
                replies.extend(self.seal_as(now, ANSWERS, content));
                Ok(Opened::Nothing)
            }
            SAYS if is_known => Ok(Opened::Content(content.to_vec())),
            SAYS => Err(Dropped::Unproven),
            _ => Err(Dropped::Malformed),
        }
    }

    /// The sending process of a datagram, its number and time, and its content.
    fn unseal(&self, now: Duration, datagram: &[u8]) -> Result<(Boot, Stamp, Vec<u8>), Dropped> {
        let rest = datagram.strip_prefix(&FORM).ok_or(Dropped::Malformed)?;
        let (nonce, sealed) = rest
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(Dropped::Malformed)?;
        let content = self.keys.iter().find_map(|key| {
            let mut content = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let length = key
                .open_in_place(nonce, Aad::from(FORM), &mut content)
                .ok()?
                .len();
            content.truncate(length);
            Some(content)
        });
        let content = content.ok_or(Dropped::Unsealed)?;
        let (boot, counter) = nonce.split_first_chunk().ok_or(Dropped::Malformed)?;
        let counter = counter
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (time, content) = content.split_first_chunk().ok_or(Dropped::Malformed)?;
        let lead = i64::from_be_bytes(*time).saturating_sub(millis(now));
        Ok((*boot, Stamp { counter, lead }, content.to_vec()))
    }

    /// A question, unless so many were asked in this moment that somebody sends old datagrams without end.
    fn ask(&mut self, now: Duration) -> Option<Vec<u8>> {
        if now.saturating_sub(self.asked.0) >= MOMENT {
            self.asked = (now, 0);
        }
        self.asked.1 = self.asked.1.saturating_add(1);
        let question = self.question(now.as_secs());
        (self.asked.1 <= MOST_QUESTIONS).then(|| self.seal_as(now, ASKS, &question))?
    }

    /// The question of a second. No process ever asked it before, and who answers it has heard it.
    fn question(&self, second: u64) -> [u8; QUESTION] {
        let mut question = [0; QUESTION];
        let (boot, number) = question.split_at_mut(self.boot.len());
        boot.copy_from_slice(&self.boot);
        number.copy_from_slice(&second.to_be_bytes());
        question
    }

    /// Whether this process asked so less than two seconds ago.
    fn has_asked(&self, now: Duration, question: &[u8]) -> bool {
        let second = now.as_secs();
        let seconds = [Some(second), second.checked_sub(1)];
        let mut seconds = seconds.into_iter().flatten();
        seconds.any(|second| question == self.question(second))
    }

    fn remember(&mut self, boot: Boot, window: Window) {
        if self.windows.len() >= BOOTS && !self.windows.contains_key(&boot) {
            let silent = self.windows.iter().min_by_key(|(_, window)| window.last);
            if let Some(silent) = silent.map(|(boot, _)| *boot) {
                self.windows.remove(&silent);
            }
        }
        self.windows.insert(boot, window);
    }
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dropped {
    /// The datagram does not have the form of ours.
    Malformed,
    /// No key opens the datagram.
    Unsealed,
    /// The datagram came before.
    Replayed,
    /// The datagram is old, or of a process that has not answered a question yet.
    Unproven,
}

impl Dropped {
    /// The label of the metric.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unsealed => "unsealed",
            Self::Replayed => "replayed",
            Self::Unproven => "unproven",
        }
    }
}

/// Which datagram of a process it is.
#[derive(Clone, Copy)]
struct Stamp {
    counter: u64,
    /// The clock of its process when it was sent, less the clock of this one when it came, in milliseconds.
    lead: i64,
}

/// The datagrams of one process that have come.
struct Window {
    highest: u64,
    /// Bit N: the counter `highest - N` has come.
    seen: u128,
    /// The lead of the datagram that was on its way for the shortest time.
    lead: i64,
    last: Duration,
}

impl Window {
    /// The window of a process that has just answered a question. Its earlier datagrams are not accepted any more.
    fn of(now: Duration, stamp: Stamp) -> Self {
        Self {
            highest: stamp.counter,
            seen: u128::MAX,
            lead: stamp.lead,
            last: now,
        }
    }

    /// The lead that a datagram without any delay has now at least: two clocks do not run equally fast.
    fn least_lead(&self, now: Duration) -> i64 {
        let since = now.saturating_sub(self.last);
        self.lead.saturating_sub(millis(since) / DRIFT)
    }

    /// Whether it was sent a moment ago. One that comes from the future is of a machine that was set back.
    fn is_fresh(&self, now: Duration, lead: i64) -> bool {
        let (least, most) = (self.least_lead(now), self.lead);
        (least.saturating_sub(OLD)..=most.saturating_add(OLD)).contains(&lead)
    }

    /// Takes a fresh datagram; false: it came before.
    fn takes(&mut self, now: Duration, Stamp { counter, lead }: Stamp) -> bool {
        if counter > self.highest {
            let step = u32::try_from(counter - self.highest).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(step).unwrap_or(0) | 1;
            self.highest = counter;
        } else {
            let bit = u32::try_from(self.highest - counter).ok();
            match bit.and_then(|bit| 1_u128.checked_shl(bit)) {
                Some(bit) if self.seen & bit == 0 => self.seen |= bit,
                _ => return false,
            }
        }
        self.lead = lead.max(self.least_lead(now));
        self.last = now;
        true
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn key(bytes: &[u8; Keys::LENGTH]) -> Option<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM_SIV, bytes).ok()?;
    Some(LessSafeKey::new(key))
}

/// The first bytes of a datagram of this form.
pub const FORM: [u8; 3] = *b"BA\x01";

/// The bytes that sealing adds to the content.
pub const OVERHEAD: usize = FORM.len() + NONCE_LEN + 8 + 1 + 16;

const COUNTER_BITS: u32 = 40;
/// A datagram that was sent so many milliseconds ago is dropped.
const OLD: i64 = 2000;
/// Of two clocks one is faster by less than a part in so many.
const DRIFT: i64 = 1000;
/// The kinds of content.
const SAYS: u8 = 0;
const ASKS: u8 = 1;
const ANSWERS: u8 = 2;
/// The bytes of a question.
const QUESTION: usize = 15;
const MOMENT: Duration = Duration::from_millis(100);
/// Questions in a moment.
const MOST_QUESTIONS: u32 = 64;
/// Processes whose counters are remembered.
const BOOTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;

    const OLD_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const NEW_KEY: &str = "Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

    fn keys(lines: &[&str]) -> Keys {
        key::parse(lines.join("\n").as_bytes()).unwrap()
    }

    fn channel(boot: u8) -> Channel {
        Channel::new(&keys(&[OLD_KEY]), [boot; 7])
    }

    /// The outcome of a datagram, and the replies to it.
    fn open(
        to: &mut Channel,
        now: Duration,
        datagram: &[u8],
    ) -> (Result<Opened, Dropped>, Vec<Vec<u8>>) {
        let mut replies = Vec::new();
        let opened = to.open(now, datagram, &mut replies);
        (opened, replies)
    }

    fn result(to: &mut Channel, now: Duration, datagram: &[u8]) -> Result<Opened, Dropped> {
        open(to, now, datagram).0
    }

    /// Lets `to` hear `from`, whose clock shows `its` now. Its first word is lost.
    fn meet(from: &mut Channel, its: Duration, to: &mut Channel, now: Duration) {
        let first = from.seal(its, b"hello").unwrap();
        let (opened, questions) = open(to, now, &first);
        assert_eq!(opened, Err(Dropped::Unproven));
        assert_eq!(questions.len(), 1);
        // The receiver asks in turn, as it does not know the sender either.
        let (opened, replies) = open(from, its, &questions[0]);
        assert_eq!(opened, Ok(Opened::Nothing));
        let answer = replies.last().unwrap();
        assert_eq!(open(to, now, answer), (Ok(Opened::Met), Vec::new()));
        assert_eq!(result(to, now, answer), Err(Dropped::Replayed));
    }

    fn pair() -> (Channel, Channel) {
        let (mut one, mut other) = (channel(7), channel(8));
        meet(&mut one, SOON, &mut other, SOON);
        (one, other)
    }

    fn content(text: &[u8]) -> Result<Opened, Dropped> {
        Ok(Opened::Content(text.to_vec()))
    }

    const SOON: Duration = Duration::from_millis(10);
    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn what_is_sealed_is_opened_once() {
        let (mut one, mut other) = pair();
        let sealed = one.seal(SOON, b"state").unwrap();
        assert_eq!(sealed.len(), 5 + OVERHEAD);
        assert_eq!(result(&mut other, SOON, &sealed), content(b"state"));
        assert_eq!(result(&mut other, SOON, &sealed), Err(Dropped::Replayed));
        assert_eq!(result(&mut one, SOON, &sealed), Err(Dropped::Replayed));
    }

    #[test]
    fn any_changed_bit_and_any_cut_is_dropped() {
        let (mut one, mut other) = pair();
        let sealed = one.seal(SOON, b"state").unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let (opened, replies) = open(&mut other, SOON, &changed);
            assert!(opened.is_err() && replies.is_empty(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            let (opened, replies) = open(&mut other, SOON, &sealed[..length]);
            assert!(opened.is_err() && replies.is_empty(), "{length} bytes");
        }
        assert_eq!(result(&mut other, SOON, &sealed), content(b"state"));
    }

    #[test]
    fn reordered_datagrams_are_taken_for_up_to_two_seconds() {
        let (mut one, mut other) = pair();
        let sealed: Vec<_> = (0..100).map(|_| one.seal(SOON, b"x").unwrap()).collect();
        assert_eq!(result(&mut other, SOON, &sealed[50]), content(b"x"));
        assert_eq!(result(&mut other, SOON, &sealed[10]), content(b"x"));
        assert_eq!(
            result(&mut other, SOON, &sealed[10]),
            Err(Dropped::Replayed)
        );
        assert_eq!(result(&mut other, SOON + S(2), &sealed[11]), content(b"x"));
        let late = SOON + S(2) + Duration::from_millis(5);
        assert_eq!(
            result(&mut other, late, &sealed[12]),
            Err(Dropped::Unproven)
        );
    }

    #[test]
    fn what_was_recorded_is_of_no_use_two_seconds_later() {
        // To whoever it was sent, and whether it arrived there or not: its process has ended since.
        let (mut one, mut other) = pair();
        let recorded: Vec<_> = (0..50).map(|_| one.seal(SOON, b"x").unwrap()).collect();
        assert_eq!(result(&mut other, SOON, &recorded[0]), content(b"x"));
        for (now, datagram) in [(S(3), 1), (S(3), 0), (S(3600), 2)] {
            let opened = result(&mut other, now, &recorded[datagram]);
            assert_eq!(opened, Err(Dropped::Unproven));
        }
        // To a process that began later, from one that still runs.
        let mut third = channel(9);
        meet(&mut one, S(100), &mut third, S(5));
        let opened = result(&mut third, S(5), &recorded[3]);
        assert_eq!(opened, Err(Dropped::Unproven));
        // An answer is one to the question that was asked then.
        let (_, question) = open(&mut third, S(6), &recorded[4]);
        let (_, answer) = open(&mut other, S(6), &question[0]);
        let answer = answer.last().unwrap();
        assert_eq!(result(&mut third, S(8), answer), Ok(Opened::Nothing));
        let said = other.seal(S(8), b"x").unwrap();
        assert_eq!(result(&mut third, S(8), &said), Err(Dropped::Unproven));
    }

    #[test]
    fn clocks_may_drift_and_stand_still() {
        let (mut one, mut other) = pair();
        // Hours without a word, with clocks of which one is slower by 100 parts in a million.
        let (now, its) = (S(36_000), S(36_000) - Duration::from_millis(3_600));
        let sealed = one.seal(its, b"x").unwrap();
        assert_eq!(result(&mut other, now, &sealed), content(b"x"));
        // A machine that slept, or was set back to a snapshot, is met anew.
        meet(&mut one, S(20), &mut other, S(36_010));
        let sealed = one.seal(S(20), b"y").unwrap();
        assert_eq!(result(&mut other, S(36_010), &sealed), content(b"y"));
    }

    #[test]
    fn who_sends_old_datagrams_without_end_is_not_asked_without_end() {
        let (mut one, mut other) = (channel(7), channel(8));
        let mut asked = 0;
        for millis in 0..1000_u64 {
            let sealed = one.seal(SOON, b"x").unwrap();
            asked += open(&mut other, Duration::from_millis(millis), &sealed)
                .1
                .len();
        }
        assert_eq!(asked, 640);
    }

    #[test]
    fn a_key_is_changed_without_a_gap() {
        let (mut one, mut other) = pair();
        // First every node learns the new key, then every node seals with it, then the old one goes.
        let sealed = one.seal(SOON, b"1").unwrap();
        other.set_keys(&keys(&[OLD_KEY, NEW_KEY]));
        assert_eq!(result(&mut other, SOON, &sealed), content(b"1"));
        one.set_keys(&keys(&[NEW_KEY, OLD_KEY]));
        let sealed = one.seal(SOON, b"2").unwrap();
        assert_eq!(result(&mut other, SOON, &sealed), content(b"2"));
        other.set_keys(&keys(&[NEW_KEY]));
        let sealed = one.seal(SOON, b"3").unwrap();
        assert_eq!(result(&mut other, SOON, &sealed), content(b"3"));
        let stranger = channel(9).seal(SOON, b"4").unwrap();
        assert_eq!(result(&mut other, SOON, &stranger), Err(Dropped::Unsealed));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut other = channel(8);
        for boot in 0..2 * BOOTS {
            let mut id = [0; 7];
            id[..4].copy_from_slice(&u32::try_from(boot).unwrap().to_be_bytes());
            let mut one = Channel::new(&keys(&[OLD_KEY]), id);
            meet(&mut one, SOON, &mut other, S(boot as u64));
        }
        assert_eq!(other.windows.len(), BOOTS);
    }
}
