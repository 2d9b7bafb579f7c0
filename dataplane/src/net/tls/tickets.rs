//! The keys of session tickets, which let a client resume its session at any worker, after any swap and, with keys from a file,
//! at any node. Nothing is stored for a client.
//!
//! A ticket is the name of its key (16 bytes), a salt (16 bytes), and the session encrypted by AES-256-GCM with a key of its own:
//! HMAC-SHA256 of policy and salt. The policy is a digest of the rules for client certificates, so a ticket that was issued under
//! other rules cannot be decrypted.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use ballast_core::handover;
use ballast_core::table::File;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::server::ProducesTickets;
use tokio::time::Instant;

use super::pem;
use crate::os::files::NamedFiles;

/// The rules for client certificates: a digest of the settings of `client-auth`.
pub(crate) type Policy = [u8; 32];

#[derive(Debug)]
pub(super) struct TicketKeys {
    ring: ArcSwap<Ring>,
}

/// At least three keys. All of them decrypt, the last but one encrypts: so all nodes know the next key before any node uses it.
#[derive(Debug)]
struct Ring {
    keys: Vec<Key>,
    /// When the keys are replaced; `None`: they come from a file.
    rotates: Option<Instant>,
    text: Vec<u8>,
}

struct Key {
    name: [u8; NAME],
    secret: hmac::Key,
    /// Both, as they come from a file.
    bytes: Vec<u8>,
}

impl TicketKeys {
    pub(super) fn random(now: Instant) -> Self {
        Self {
            ring: ArcSwap::from_pointee(Ring::random(now)),
        }
    }

    /// Takes the keys from this file from now on, or random ones without a file. With a file that cannot be used, the keys stay
    /// as they are.
    pub(super) fn follow(&self, file: Option<&File>, files: &NamedFiles) {
        let ring = self.ring.load();
        let Some(file) = file else {
            if ring.rotates.is_none() {
                self.ring.store(Arc::new(Ring::random(Instant::now())));
            }
            return;
        };
        let text = match pem::read(files, file) {
            Ok(text) if text == ring.text && ring.rotates.is_none() => return,
            Ok(text) => text,
            Err(why) => return tracing::warn!("ticket-keys: {why}; {KEPT}"),
        };
        match Ring::parse(text) {
            Some(ring) => self.ring.store(Arc::new(ring)),
            None => tracing::warn!(
                "ticket-keys: {}: is not at least three lines of base64, each of 48 or 80 bytes; {KEPT}",
                file.display()
            ),
        }
    }

    /// Replaces random keys that are old, so that stolen keys do not decrypt sessions of other days.
    pub(super) fn rotate(&self, now: Instant) {
        let ring = self.ring.load();
        if ring.rotates.is_some_and(|rotates| rotates <= now) {
            let mut keys = ring.keys.clone();
            keys.remove(0);
            keys.push(Key::random());
            self.ring.store(Arc::new(Ring {
                keys,
                rotates: Some(now + ROTATE_EVERY),
                text: Vec::new(),
            }));
        }
    }

    /// Whether they come from no file.
    pub(super) fn are_random(&self) -> bool {
        self.ring.load().rotates.is_some()
    }

    /// The keys, for the next process: those of a file only if that one cannot use the file.
    pub(super) fn lend(&self, wants_file: bool, now: Instant) -> Option<handover::Tickets> {
        let ring = self.ring.load();
        if ring.rotates.is_none() && !wants_file {
            return None;
        }
        let left = |rotates: Instant| rotates.saturating_duration_since(now).as_millis();
        let keys = ring.keys.iter().map(|key| STANDARD.encode(&key.bytes));
        Some(handover::Tickets {
            keys: keys.collect(),
            rotates_ms: ring
                .rotates
                .map(|rotates| u64::try_from(left(rotates)).unwrap_or(u64::MAX)),
        })
    }

    /// Goes on with the keys of the process before, unless this one has those of its file.
    pub(super) fn resume(&self, tickets: &handover::Tickets, now: Instant) {
        if !self.are_random() {
            return;
        }
        let left = |ms| Duration::from_millis(ms).min(ROTATE_EVERY);
        if let Some(ring) = Ring::parse(tickets.keys.join("\n").as_bytes()) {
            let rotates = tickets.rotates_ms.map(|ms| now + left(ms));
            self.ring.store(Arc::new(Ring { rotates, ..ring }));
        }
    }

    pub(super) fn for_policy(self: &Arc<Self>, policy: Policy) -> Arc<dyn ProducesTickets> {
        Arc::new(Tickets {
            keys: Arc::clone(self),
            policy,
        })
    }
}

impl Ring {
    fn random(now: Instant) -> Self {
        Self {
            keys: (0..3).map(|_| Key::random()).collect(),
            rotates: Some(now + ROTATE_EVERY),
            text: Vec::new(),
        }
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let lines = std::str::from_utf8(text).ok()?.lines().map(str::trim);
        let keys: Option<Vec<Key>> = lines
            .filter(|line| !line.is_empty())
            .map(|line| Key::of(&STANDARD.decode(line).ok()?))
            .collect();
        let keys = keys.filter(|keys| keys.len() >= 3)?;
        Some(Self {
            keys,
            rotates: None,
            text: text.to_vec(),
        })
    }
}

impl Key {
    /// A key from a line of haproxy's format.
    fn of(bytes: &[u8]) -> Option<Self> {
        let (name, secret) = bytes.split_first_chunk()?;
        matches!(bytes.len(), 48 | 80).then(|| Self {
            name: *name,
            secret: hmac::Key::new(hmac::HMAC_SHA256, secret),
            bytes: bytes.to_vec(),
        })
    }

    fn random() -> Self {
        let mut bytes = [0; 80];
        fill(&mut bytes);
        let (name, secret) = bytes.split_at(NAME);
        let mut key = Self {
            name: [0; NAME],
            secret: hmac::Key::new(hmac::HMAC_SHA256, secret),
            bytes: bytes.to_vec(),
        };
        key.name.copy_from_slice(name);
        key
    }

    fn cipher(&self, policy: &Policy, salt: &[u8]) -> Option<LessSafeKey> {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(policy);
        context.update(salt);
        let key = UnboundKey::new(&AES_256_GCM, context.sign().as_ref()).ok()?;
        Some(LessSafeKey::new(key))
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            secret: self.secret.clone(),
            bytes: self.bytes.clone(),
        }
    }
}

/// Shows no secret.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// Tickets for one policy.
#[derive(Debug)]
struct Tickets {
    keys: Arc<TicketKeys>,
    policy: Policy,
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let ring = self.keys.ring.load();
        let key = ring.keys.iter().nth_back(1)?;
        let mut salt = [0; SALT];
        fill(&mut salt);
        let mut sealed = Vec::with_capacity(plain.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(plain);
        // The salt makes this key the key of this ticket alone, so its one nonce may be fixed.
        let cipher = key.cipher(&self.policy, &salt)?;
        cipher
            .seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed)
            .ok()?;
        Some([&key.name[..], &salt, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME)?;
        let (salt, sealed) = rest.split_at_checked(SALT)?;
        let ring = self.keys.ring.load();
        let key = ring.keys.iter().find(|key| key.name == name)?;
        let mut sealed = sealed.to_vec();
        let cipher = key.cipher(&self.policy, salt)?;
        let plain = cipher.open_in_place(nonce(), Aad::empty(), &mut sealed);
        let length = plain.ok()?.len();
        sealed.truncate(length);
        Some(sealed)
    }
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn fill(bytes: &mut [u8]) {
    // The system's random source does not fail once the system is up; TLS itself could not work without it.
    let filled = rand::fill(bytes);
    assert!(filled.is_ok(), "the system has no random numbers");
}

const NAME: usize = 16;
const SALT: usize = 16;
/// Seconds for which a client keeps a ticket.
const LIFETIME: u32 = 12 * 60 * 60;
/// A ticket is decrypted for one to two such intervals.
const ROTATE_EVERY: Duration = Duration::from_secs(12 * 60 * 60);
const KEPT: &str = "the keys in use stay";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_by_who_has_the_keys_and_by_no_other_policy() {
        let (file, other) = (keys(&[1, 2, 3]), keys(&[4, 5, 6]));
        for text in [&file, &file.replace('\n', "\r\n\r\n")] {
            let one = ring(text).for_policy([1; 32]);
            let two = ring(&file).for_policy([1; 32]);
            let ticket = one.encrypt(b"session").unwrap();
            assert_ne!(Some(&ticket), one.encrypt(b"session").as_ref());
            assert_eq!(two.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
            assert_eq!(ring(&file).for_policy([2; 32]).decrypt(&ticket), None);
            assert_eq!(ring(&other).for_policy([1; 32]).decrypt(&ticket), None);
            for at in 0..ticket.len() {
                let mut bad = ticket.clone();
                bad[at] ^= 1;
                assert_eq!(two.decrypt(&bad), None, "{at}");
                assert_eq!(two.decrypt(&ticket[..at]), None, "{at}");
            }
        }
    }

    #[test]
    fn the_last_key_but_one_encrypts_and_all_decrypt() {
        let old = ring(&keys(&[1, 2, 3])).for_policy([0; 32]);
        let new = ring(&keys(&[2, 3, 4])).for_policy([0; 32]);
        let next = ring(&keys(&[3, 4, 5])).for_policy([0; 32]);
        let ticket = old.encrypt(b"x").unwrap();
        assert_eq!(ticket[0], 2);
        assert!(new.decrypt(&ticket).is_some());
        assert!(next.decrypt(&ticket).is_none());
        // A node that has the new file already, and one that does not have it yet.
        assert!(old.decrypt(&new.encrypt(b"x").unwrap()).is_some());
    }

    #[test]
    fn files_that_are_not_keys_are_refused() {
        let good = keys(&[1, 2, 3]);
        assert!(Ring::parse(good.as_bytes()).is_some());
        for text in [
            "",
            "garbage",
            &keys(&[1, 2]),
            &format!("{good}x\n"),
            &good.replacen('A', "", 1),
        ] {
            assert!(Ring::parse(text.as_bytes()).is_none(), "{text}");
        }
        let long: String = (0..3).map(|n| STANDARD.encode([n; 80]) + "\n").collect();
        assert!(Ring::parse(long.as_bytes()).is_some());
        let other: String = (0..3).map(|n| STANDARD.encode([n; 64]) + "\n").collect();
        assert!(Ring::parse(other.as_bytes()).is_none());
    }

    #[test]
    fn random_keys_are_replaced_one_by_one() {
        let now = Instant::now();
        let keys = Arc::new(TicketKeys::random(now));
        let tickets = keys.for_policy([0; 32]);
        let ticket = tickets.encrypt(b"x").unwrap();
        keys.rotate(now);
        keys.rotate(now + ROTATE_EVERY);
        assert!(tickets.decrypt(&ticket).is_some());
        keys.rotate(now + ROTATE_EVERY);
        assert!(tickets.decrypt(&ticket).is_some(), "not twice at once");
        keys.rotate(now + 2 * ROTATE_EVERY);
        assert!(tickets.decrypt(&ticket).is_none());
    }

    #[test]
    fn the_next_process_goes_on_with_random_keys_until_they_are_due() {
        let now = Instant::now();
        let [old, next] = [(); 2].map(|()| Arc::new(TicketKeys::random(now)));
        let ticket = old.for_policy([0; 32]).encrypt(b"x").unwrap();
        let tickets = next.for_policy([0; 32]);
        assert!(tickets.decrypt(&ticket).is_none());
        let lent = old.lend(false, now + ROTATE_EVERY / 2).unwrap();
        next.resume(&lent, now);
        assert!(tickets.decrypt(&ticket).is_some());
        next.rotate(now + ROTATE_EVERY / 2);
        next.rotate(now + 3 * ROTATE_EVERY / 2);
        assert!(tickets.decrypt(&ticket).is_none());
        // An empty message changes no key.
        next.resume(&handover::Tickets::default(), now);
        assert!(next.lend(false, now).is_some());
    }

    #[test]
    fn keys_of_a_file_go_to_a_process_that_cannot_use_the_file() {
        let now = Instant::now();
        let old = ring(&keys(&[1, 2, 3]));
        let ticket = old.for_policy([0; 32]).encrypt(b"x").unwrap();
        assert!(old.lend(false, now).is_none());
        let lent = old.lend(true, now).unwrap();
        let [next, after] = [(); 2].map(|()| Arc::new(TicketKeys::random(now)));
        next.resume(&lent, now);
        // They are no random ones: other nodes have them.
        next.rotate(now + 2 * ROTATE_EVERY);
        assert!(next.for_policy([0; 32]).decrypt(&ticket).is_some());
        after.resume(&next.lend(true, now).unwrap(), now);
        assert!(after.for_policy([0; 32]).decrypt(&ticket).is_some());
        // One that could read its file keeps what that says, whatever comes.
        let other = ring(&keys(&[4, 5, 6]));
        let random = TicketKeys::random(now);
        for lent in [lent, random.lend(true, now).unwrap()] {
            other.resume(&lent, now);
            assert!(!other.are_random());
            assert!(other.for_policy([0; 32]).decrypt(&ticket).is_none());
        }
        let ticket = other.for_policy([0; 32]).encrypt(b"x").unwrap();
        assert_eq!(ticket[0], 5);
    }

    fn keys(first: &[u8]) -> String {
        first
            .iter()
            .map(|n| STANDARD.encode([*n; 48]) + "\n")
            .collect()
    }

    fn ring(text: &str) -> Arc<TicketKeys> {
        let ring = Ring::parse(text.as_bytes()).unwrap();
        Arc::new(TicketKeys {
            ring: ArcSwap::from_pointee(ring),
        })
    }
}
