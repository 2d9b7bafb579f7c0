//! Who may see the admin side, and who may change things there: the file of `--stats-auth-file`.
//!
//! Asked by [`crate::admin`] for each request. A hash is costly on purpose, so what was found right is remembered, and
//! only one guess at a time is tried, off the thread that answers.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use argon2::{Argon2, PasswordHash, PasswordVerifier};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Look.
    Viewer,
    /// Look, and change.
    Admin,
}

/// Somebody who proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    /// As the file calls them.
    pub name: Arc<str>,
    /// What they may do.
    pub role: Role,
}

/// The file, and what was learned from it.
#[derive(Debug)]
pub(crate) struct Auth {
    path: PathBuf,
    known: Mutex<Known>,
    guesses: Semaphore,
    salt: RandomState,
}

#[derive(Debug)]
struct Known {
    modified: Option<SystemTime>,
    users: Arc<Users>,
    /// Who sent this header, by its salted hash.
    right: HashMap<[u8; 32], Person>,
}

impl Auth {
    /// Reads the file; all that is wrong with it at once.
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
            guesses: Semaphore::new(1),
            salt: RandomState::new(),
        })
    }

    /// Who sent this `Authorization` header, if it is right.
    pub(crate) async fn identify(&self, header: &str) -> Option<Person> {
        let users = self.users();
        let digest = self.digest(header);
        if let Some(person) = self.lock().right.get(&digest) {
            return Some(person.clone());
        }
        let (name, secret) = basic(header)?;
        let _one_at_a_time = self.guesses.acquire().await.ok()?;
        let asked = Arc::clone(&users);
        let person = tokio::task::spawn_blocking(move || asked.find(&name, &secret))
            .await
            .ok()??;
        let mut known = self.lock();
        // The file may have changed while the hash was computed.
        if Arc::ptr_eq(&known.users, &users) && known.right.len() < REMEMBERED {
            known.right.insert(digest, person.clone());
        }
        Some(person)
    }

    /// The users as the file has them now. A file that has become wrong changes nothing.
    fn users(&self) -> Arc<Users> {
        let modified = modified(&self.path);
        let mut known = self.lock();
        if modified != known.modified {
            known.modified = modified;
            match Users::read(&self.path) {
                Ok(users) => {
                    known.users = Arc::new(users);
                    known.right.clear();
                    tracing::info!("{}: read again", self.path.display());
                }
                Err(error) => tracing::error!("{error}; those known before still count"),
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// Name and secret of HTTP's basic scheme.
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

/// The lines of the file.
#[derive(Debug, Default)]
struct Users(Vec<User>);

#[derive(Debug)]
struct User {
    person: Person,
    secret: Secret,
}

#[derive(Debug)]
enum Secret {
    /// The digest of a plain one: comparing digests tells nothing of what they are of.
    Plain([u8; 32]),
    Bcrypt(String),
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
            wrong.push((1, format!("names nobody; expected {LINE}")));
        }
        if wrong.is_empty() {
            Ok(Self(users))
        } else {
            Err(wrong)
        }
    }

    fn find(&self, name: &str, secret: &str) -> Option<Person> {
        self.0
            .iter()
            .find(|user| &*user.person.name == name && user.secret.is(secret))
            .map(|user| user.person.clone())
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
        if ["$2a$", "$2b$", "$2x$", "$2y$"]
            .iter()
            .any(|kind| text.starts_with(kind))
        {
            return match text.parse::<bcrypt::HashParts>() {
                Ok(_) => Ok(Self::Bcrypt(text.into())),
                Err(error) => Err(format!(
                    "a broken bcrypt hash ({error}); `htpasswd -nB NAME` makes a good one"
                )),
            };
        }
        if text.starts_with("$argon2") {
            return match PasswordHash::new(text) {
                Ok(_) => Ok(Self::Argon2(text.into())),
                Err(error) => Err(format!(
                    "a broken argon2 hash ({error}); `argon2 SALT -id -e` makes a good one"
                )),
            };
        }
        Ok(Self::Plain(Sha256::digest(text).into()))
    }

    fn is(&self, secret: &str) -> bool {
        match self {
            Self::Plain(digest) => *digest == <[u8; 32]>::from(Sha256::digest(secret)),
            Self::Bcrypt(hash) => bcrypt::verify(secret, hash).unwrap_or(false),
            Self::Argon2(hash) => PasswordHash::new(hash).is_ok_and(|hash| {
                Argon2::default()
                    .verify_password(secret.as_bytes(), &hash)
                    .is_ok()
            }),
        }
    }
}

const LINE: &str = "user:secret or user:secret:role";
/// Right headers that are kept; there are not more users than that.
const REMEMBERED: usize = 1024;

#[cfg(test)]
mod tests {
    use argon2::PasswordHasher;

    use super::*;

    fn header(name: &str, secret: &str) -> String {
        format!(
            "Basic {}",
            BASE64_STANDARD.encode(format!("{name}:{secret}"))
        )
    }

    #[test]
    fn lines_name_people_their_secrets_and_their_roles() {
        let bert = bcrypt::hash("hashed", 4).unwrap();
        let params = argon2::Params::new(8, 1, 1, None).unwrap();
        let cora = Argon2::from(params)
            .hash_password_with_salt(b"dear", b"some salt")
            .unwrap();
        let text = format!("# a comment\n\nanna:plain\nbert:{bert}:viewer\ncora:{cora}\n");
        let users = Users::parse(&text).unwrap();
        let role = |name, secret| users.find(name, secret).map(|person| person.role);
        assert_eq!(role("anna", "plain"), Some(Role::Admin));
        assert_eq!(role("bert", "hashed"), Some(Role::Viewer));
        assert_eq!(role("cora", "dear"), Some(Role::Admin));
        assert_eq!(role("cora", "plain"), None);
        assert_eq!(role("anna", "hashed"), None);
        assert_eq!(role("bert", "plain"), None);
        assert_eq!(role("", ""), None);
    }

    #[test]
    fn every_wrong_line_is_named_with_its_remedy() {
        let wrong = Users::parse(
            "a\nb:\nc:x:owner\nd:x:viewer:y\ne:$2b$04$short\nf:$argon2id$x\na:1\na:2\n",
        )
        .unwrap_err();
        let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6, 8], "{wrong:?}");
        assert_eq!(Users::parse("# nobody\n").unwrap_err().len(), 1);
    }

    #[tokio::test]
    async fn a_right_header_is_remembered_until_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, "anna:one\n").unwrap();
        let auth = Auth::read(&path).unwrap();
        for _ in 0..2 {
            let anna = auth.identify(&header("anna", "one")).await.unwrap();
            assert_eq!((&*anna.name, anna.role), ("anna", Role::Admin));
        }
        assert_eq!(auth.identify(&header("anna", "two")).await, None);
        assert_eq!(auth.identify("Bearer x").await, None);

        fs::write(&path, "anna:two\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(2);
        fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(later))
            .unwrap();
        assert_eq!(auth.identify(&header("anna", "one")).await, None);
        assert!(auth.identify(&header("anna", "two")).await.is_some());
    }
}
