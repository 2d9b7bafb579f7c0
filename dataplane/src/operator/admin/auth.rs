//! The users who may see the admin side and change things there: the file of `--stats-auth-file`.
//!
//! [`crate::operator::admin`] asks for each request. Checking a hash is costly on purpose. Therefore correct headers are remembered, and
//! other headers are checked one after the other, outside of the thread that answers. The time of a failed check does not
//! reveal whether the file has the user name.

mod check_queue;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use argon2::{Argon2, PasswordHash, PasswordVerifier};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::client::Client;
use crate::os::threads::lock;
use check_queue::{CheckPermit, CheckQueue};

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// See the admin side.
    Viewer,
    /// See the admin side and change things.
    Admin,
}

/// An authenticated user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub name: Arc<str>,
    /// What the user may do.
    pub role: Role,
}

/// Why a request is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// The name is unknown, or the secret is wrong.
    Wrong,
    /// Too many checks were waiting: this secret was not checked.
    NotChecked,
}

/// The auth file, and the headers found correct.
#[derive(Debug)]
pub(crate) struct Auth {
    path: PathBuf,
    known: Mutex<Known>,
    checks: CheckQueue,
    salt: RandomState,
}

#[derive(Debug)]
struct Known {
    modified: Option<SystemTime>,
    users: Arc<Users>,
    /// The users of correct headers, by the salted hash of the header.
    right: HashMap<[u8; 32], Person>,
}

impl Auth {
    /// Reads the file. An error lists all of its mistakes.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let modified = modified(path);
        let users = Users::read(path)?;
        Ok(Self {
            path: path.into(),
            known: Mutex::new(Known {
                modified,
                users: Arc::new(users),
                right: HashMap::new(),
            }),
            checks: CheckQueue::new(),
            salt: RandomState::new(),
        })
    }

    /// The user who sent this `Authorization` header from this address, if the header is correct.
    pub(crate) async fn identify(
        &self,
        header: &str,
        from: SocketAddr,
    ) -> Result<Person, Unproven> {
        let digest = self.digest(header);
        if let Some(person) = self.remembered(&digest) {
            return Ok(person);
        }
        let (name, secret) = basic(header).ok_or(Unproven::Wrong)?;
        let permit = self.checks.take(Client::of(from)).await;
        let permit = permit.ok_or(Unproven::NotChecked)?;
        // Another request may have checked the same header meanwhile.
        if let Some(person) = self.remembered(&digest) {
            return Ok(person);
        }
        let users = self.users();
        let checked = check(Arc::clone(&users), name, secret, permit);
        let person = checked.await.ok().flatten().ok_or(Unproven::Wrong)?;
        let mut known = lock(&self.known);
        // The file may have changed while the hash was computed.
        if Arc::ptr_eq(&known.users, &users) && known.right.len() < REMEMBERED {
            known.right.insert(digest, person.clone());
        }
        Ok(person)
    }

    /// The user of this header, if it was found correct under the present file.
    fn remembered(&self, digest: &[u8; 32]) -> Option<Person> {
        self.users();
        lock(&self.known).right.get(digest).cloned()
    }

    /// The users in the present file. If the file has become invalid, the previous users stay.
    fn users(&self) -> Arc<Users> {
        let modified = modified(&self.path);
        let mut known = lock(&self.known);
        if modified != known.modified {
            known.modified = modified;
            match Users::read(&self.path) {
                Ok(users) => {
                    known.users = Arc::new(users);
                    known.right.clear();
                    tracing::info!("{}: read again", self.path.display());
                }
                Err(error) => tracing::error!("{error}; the previous users stay valid"),
            }
        }
        Arc::clone(&known.users)
    }

    fn digest(&self, header: &str) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.salt.hash_one(0).to_ne_bytes());
        digest.update(self.salt.hash_one(1).to_ne_bytes());
        digest.update(header);
        digest.finalize().into()
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// The name and secret of HTTP's basic scheme.
fn basic(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (name, secret) = text.split_once(':')?;
    Some((name.into(), secret.into()))
}

/// Checks a secret. The check runs to its end and keeps its permit, even if the request is gone.
fn check(
    users: Arc<Users>,
    name: String,
    secret: String,
    permit: CheckPermit,
) -> oneshot::Receiver<Option<Person>> {
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let find = move || users.find(&name, &secret, Hash::is_of);
        let person = tokio::task::spawn_blocking(find).await.ok().flatten();
        let was_right = person.is_some();
        tell.send(person).ok();
        permit.end(was_right).await;
    });
    told
}

/// The lines of the file.
#[derive(Debug, Default)]
struct Users {
    users: Vec<User>,
    /// The index of one user for each cost of a hash.
    of_each_cost: Vec<usize>,
}

#[derive(Debug)]
struct User {
    person: Person,
    secret: Secret,
}

#[derive(Debug)]
enum Secret {
    /// The digest of a plain text secret.
    Plain([u8; 32]),
    Hashed(Hash),
}

/// A hash as `htpasswd` and similar programs make it.
#[derive(Debug)]
struct Hash {
    cost: Cost,
    text: String,
}

/// How costly a check of the hash is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cost {
    Bcrypt(u32),
    /// The algorithm, its version and its parameters.
    Argon2(String),
}

impl Users {
    fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
        Self::parse(&text).map_err(|wrong| {
            let wrong: Vec<String> = wrong
                .into_iter()
                .map(|(line, what)| format!("{}:{line}: {what}", path.display()))
                .collect();
            wrong.join("\n")
        })
    }

    fn parse(text: &str) -> Result<Self, Vec<(usize, String)>> {
        let (mut users, mut wrong, mut names) = (Vec::new(), Vec::new(), HashSet::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match User::parse(line) {
                Ok(user) if names.insert(Arc::clone(&user.person.name)) => users.push(user),
                Ok(user) => wrong.push((
                    number,
                    format!("{:?} is there already; remove one", user.person.name),
                )),
                Err(what) => wrong.push((number, what)),
            }
        }
        if users.is_empty() && wrong.is_empty() {
            wrong.push((1, format!("names no user; expected {LINE}")));
        }
        if wrong.is_empty() {
            Ok(Self::new(users))
        } else {
            Err(wrong)
        }
    }

    fn new(users: Vec<User>) -> Self {
        let mut of_each_cost: Vec<usize> = Vec::new();
        for (index, user) in users.iter().enumerate() {
            let cost = user.secret.cost();
            let is_known =
                |known: &usize| users.get(*known).and_then(|user| user.secret.cost()) == cost;
            if cost.is_some() && !of_each_cost.iter().any(is_known) {
                of_each_cost.push(index);
            }
        }
        Self {
            users,
            of_each_cost,
        }
    }

    /// The user with this name and this secret. `is_of` checks a hash. A wrong guess checks one hash of each cost in the file,
    /// whether or not the name exists, so all wrong guesses take the same time.
    fn find(
        &self,
        name: &str,
        secret: &str,
        is_of: impl Fn(&Hash, &str) -> bool,
    ) -> Option<Person> {
        let digest = Sha256::digest(secret).into();
        let user = self.users.iter().find(|user| &*user.person.name == name);
        let is_right = match user.map(|user| &user.secret) {
            Some(Secret::Plain(own)) => is_same(own, &digest),
            Some(Secret::Hashed(own)) => is_of(own, secret),
            None => false,
        };
        if is_right {
            return user.map(|user| user.person.clone());
        }
        let checked = user.and_then(|user| user.secret.cost());
        let others = self.of_each_cost.iter();
        for other in others.filter_map(|index| self.users.get(*index)) {
            match &other.secret {
                Secret::Hashed(hash) if Some(&hash.cost) != checked => {
                    black_box(is_of(hash, secret));
                }
                _ => {}
            }
        }
        None
    }
}

impl User {
    fn parse(line: &str) -> Result<Self, String> {
        let mut parts = line.split(':');
        let (Some(name), Some(secret)) = (parts.next(), parts.next()) else {
            return Err(format!("no secret; expected {LINE}"));
        };
        let role = match parts.next() {
            None | Some("admin") => Role::Admin,
            Some("viewer") => Role::Viewer,
            Some(other) => {
                return Err(format!(
                    "{other:?} is no role; expected viewer or admin (a secret with a colon in it must be hashed)"
                ));
            }
        };
        if parts.next().is_some() {
            return Err(format!("too many colons; expected {LINE}"));
        }
        if name.is_empty() || secret.is_empty() {
            return Err(format!("an empty name or secret; expected {LINE}"));
        }
        Ok(Self {
            person: Person {
                name: name.into(),
                role,
            },
            secret: Secret::parse(secret)?,
        })
    }
}

impl Secret {
    fn parse(text: &str) -> Result<Self, String> {
        let hashed = |cost| {
            let text = text.into();
            Ok(Self::Hashed(Hash { cost, text }))
        };
        if ["$2a$", "$2b$", "$2x$", "$2y$"]
            .iter()
            .any(|kind| text.starts_with(kind))
        {
            return match text.parse::<bcrypt::HashParts>() {
                Ok(parts) => hashed(Cost::Bcrypt(parts.get_cost())),
                Err(error) => Err(format!(
                    "a broken bcrypt hash ({error}); `htpasswd -nB NAME` makes a good one"
                )),
            };
        }
        if text.starts_with("$argon2") {
            return match PasswordHash::new(text) {
                Ok(hash) => {
                    let (algorithm, version) = (&hash.algorithm, &hash.version);
                    let cost = format!("{algorithm} {version:?} {}", hash.params);
                    hashed(Cost::Argon2(cost))
                }
                Err(error) => Err(format!(
                    "a broken argon2 hash ({error}); `argon2 SALT -id -e` makes a good one"
                )),
            };
        }
        Ok(Self::Plain(Sha256::digest(text).into()))
    }

    /// `None` for a plain text secret, whose check costs next to nothing.
    fn cost(&self) -> Option<&Cost> {
        match self {
            Self::Plain(_) => None,
            Self::Hashed(hash) => Some(&hash.cost),
        }
    }
}

impl Hash {
    fn is_of(&self, secret: &str) -> bool {
        match &self.cost {
            Cost::Bcrypt(_) => bcrypt::verify(secret, &self.text).unwrap_or(false),
            Cost::Argon2(_) => PasswordHash::new(&self.text).is_ok_and(|hash| {
                Argon2::default()
                    .verify_password(secret.as_bytes(), &hash)
                    .is_ok()
            }),
        }
    }
}

/// Whether both are equal, computed in constant time.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let pairs = one.iter().zip(other);
    black_box(pairs.fold(0, |differs, (one, other)| differs | (one ^ other))) == 0
}

const LINE: &str = "user:secret or user:secret:role";
/// The most correct headers to remember; there are not more users than that.
const REMEMBERED: usize = 1024;
