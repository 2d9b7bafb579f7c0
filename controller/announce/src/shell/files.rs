//! The file, the keys and the ack on disk.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ballast_core::table::Problem;
use rustix::fs::inotify;
use tokio::net::unix::pipe;

use crate::file::{Announce, LARGEST, parse};
use crate::key::{self, Keys, digest_of};

/// The content of the file and of the key file.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The file.
    pub file: Announce,
    /// The keys, where the file has members.
    pub keys: Option<Keys>,
    /// The digest of the file.
    pub digest: String,
    /// Why the key is not a secret.
    pub warning: Option<String>,
}

/// Reads the file and the keys that it names: all of it, or every mistake. The file may be a pipe, for which this waits.
///
/// # Errors
/// One of them cannot be read, or has a mistake.
pub fn check(path: &Path) -> Result<Wanted, Vec<Problem>> {
    wanted(path, |path, _| fs::read(path))
}

/// As [`check`], for a process that waits for nothing.
pub(super) fn read(path: &Path) -> Result<Wanted, Vec<Problem>> {
    wanted(path, content)
}

/// The content of a file of at most so many bytes. It never waits: a pipe or a device, which others may put there, is an error.
pub(super) fn content(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::OpenOptionsExt as _;

    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > most {
        true => Err(io::Error::other(format!("it has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

fn wanted(
    path: &Path,
    content: impl Fn(&Path, usize) -> io::Result<Vec<u8>>,
) -> Result<Wanted, Vec<Problem>> {
    let unreadable = |what: String, error: &io::Error| {
        let why = format!("cannot read {what}: {error}");
        vec![Problem::new(
            "",
            why,
            "see that the path is right, and that this process may read it",
        )]
    };
    // One byte more than a file may have: what is too long is said as of any text.
    let bytes = content(path, LARGEST + 1);
    let bytes = bytes.map_err(|error| unreadable(path.display().to_string(), &error))?;
    let file = parse(&bytes)?;
    let mut warning = None;
    let keys = match &file.members {
        None => None,
        Some(members) => {
            let at = beside(path, &members.key_file);
            let read = content(&at, MOST_OF_KEYS).map_err(|error| {
                let mut problems = unreadable(at.display().to_string(), &error);
                problems
                    .iter_mut()
                    .for_each(|one| "members.key-file".clone_into(&mut one.at));
                problems
            })?;
            let keys = key::parse(&read).map_err(|problems| {
                let name = at.display();
                let each = problems.into_iter();
                let each = each.map(|one| Problem {
                    at: format!("members.key-file, {name} {}", one.at)
                        .trim_end()
                        .to_owned(),
                    ..one
                });
                each.collect::<Vec<_>>()
            })?;
            warning = open_to_all(&at);
            Some(keys)
        }
    };
    Ok(Wanted {
        warning,
        digest: digest_of(&bytes),
        file,
        keys,
    })
}

/// What to say of a key file that every user of the host can read.
fn open_to_all(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o004 != 0).then(|| {
        let path = path.display();
        format!("members.key-file: every user of this host can read {path} (mode {mode:04o}), and what is sealed with it; chmod o-r {path}")
    })
}

/// A path of the file, which is relative to the folder of the file.
pub(super) fn beside(file: &Path, path: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) => folder.join(path),
        None => path.to_owned(),
    }
}

/// Writes a file by a rename: who reads it sees the whole old one or the whole new one.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    fs::rename(write_beside(path, bytes, mode)?, path)
}

/// Gives the file the present time.
pub(super) fn touch(path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    // A link is not followed.
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Writes what is to replace the file, beside it. It has the owner of the file, or of the folder if there is no file yet: another
/// program may read it under its own name. The folder may be that program's: nothing that it puts in the way is followed.
pub(super) fn write_beside(path: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};

    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let folder = new.parent().filter(|folder| *folder != Path::new(""));
    let owner = fs::symlink_metadata(path)
        .or_else(|_| fs::metadata(folder.unwrap_or_else(|| Path::new("."))))?;
    let mut options = fs::OpenOptions::new();
    // A file that is there already is an error, and so is a link.
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (owner.uid(), owner.gid()) {
        // Without the right to do so it stays this process's, which says it if the other program cannot read it.
        fchown(&file, Some(owner.uid()), Some(owner.gid())).ok();
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    Ok(new)
}

/// Tells when something in the folder of the file may have changed.
pub(super) struct Watch(Option<pipe::Receiver>);

impl Watch {
    /// Without inotify the caller's own pauses are all there is.
    pub(super) fn of(file: &Path) -> Self {
        let folder = match file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let open = || {
            let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
            let watch = inotify::init(flags)?;
            let events = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::MOVED_TO;
            inotify::add_watch(&watch, folder, events)?;
            // The watch is no pipe, but can be read like one.
            pipe::Receiver::from_owned_fd_unchecked(watch)
        };
        Self(open().ok())
    }

    /// Waits for the next change.
    pub(super) async fn changed(&self) {
        match &self.0 {
            Some(watch) if watch.readable().await.is_ok() => {
                // The events themselves do not matter: the caller reads the file.
                while watch.try_read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
            }
            _ => std::future::pending().await,
        }
    }
}

/// The bytes of a file of keys at most.
pub(super) const MOST_OF_KEYS: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_with_its_keys_and_their_mistakes_have_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("announce.yaml");
        let minimal = include_str!("../../../../templates/announce-minimal.yaml");
        assert!(read(&path).unwrap_err()[0].why.starts_with("cannot read "));
        replace(&path, minimal.as_bytes(), 0o644).unwrap();
        let problems = read(&path).unwrap_err();
        assert_eq!(problems[0].at, "members.key-file");
        let key = folder.path().join("members.key");
        fs::write(&key, "x").unwrap();
        let problems = read(&path).unwrap_err();
        assert!(
            problems[0].at.ends_with("members.key line 1"),
            "{problems:?}"
        );
        fs::write(&key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
        let wanted = read(&path).unwrap();
        assert_eq!(wanted.digest, digest_of(minimal.as_bytes()));
        assert_eq!(wanted.keys.unwrap().iter().count(), 1);
        use std::os::unix::fs::PermissionsExt as _;
        for (mode, expected) in [(0o644, true), (0o640, false), (0o600, false)] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let warning = read(&path).unwrap().warning;
            assert_eq!(warning.is_some(), expected, "{mode:o}: {warning:?}");
        }
    }

    #[test]
    fn nothing_waits_for_a_pipe_or_reads_a_device_or_more_than_a_file_may_have() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        fs::write(at("file"), "1234").unwrap();
        symlink("file", at("link")).unwrap();
        for (name, most, expected) in [
            ("pipe", 4, Err("it is not a regular file")),
            ("zero", 4, Err("it is not a regular file")),
            (".", 4, Err("it is not a regular file")),
            ("file", 3, Err("it has more than 3 bytes")),
            ("file", 4, Ok(b"1234".to_vec())),
            // As Kubernetes has files of a ConfigMap.
            ("link", 4, Ok(b"1234".to_vec())),
        ] {
            let found = content(&at(name), most).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{name}");
        }
    }

    #[test]
    fn nothing_in_the_way_of_a_new_file_is_followed_and_the_owner_stays() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("bird.conf"), folder.path().join("other"));
        fs::write(&other, "other").unwrap();
        symlink(&other, folder.path().join("bird.conf.new")).unwrap();
        replace(&path, b"one", 0o640).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"other");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        // A file that another process left there does not pass its looser mode on.
        let new = folder.path().join("bird.conf.new");
        fs::write(&new, "").unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o666)).unwrap();
        let is_root = chown(&path, Some(1234), Some(1234)).is_ok();
        replace(&path, b"two", 0o640).unwrap();
        let about = fs::metadata(&path).unwrap();
        assert_eq!(about.mode() & 0o777, 0o640);
        if is_root {
            assert_eq!((about.uid(), about.gid()), (1234, 1234));
        } else {
            eprintln!("SKIP: the owner of a file: it takes root to give one away");
        }
    }
}
