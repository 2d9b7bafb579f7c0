//! The file of a runtime socket: never taken from a running process, only for those who may use it, removed at the end.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio_util::sync::CancellationToken;

use crate::process::instance_lock::{InstanceLock, InstanceLocks, LockName};
use crate::process::start_error::StartError;

/// The mode and the group of a socket's file, which say which users may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub mode: u32,
    /// The number of its group; `None`: that of the process.
    pub group: Option<u32>,
}

impl Access {
    /// Only the user of the process.
    pub const OWNER: Self = Self {
        mode: 0o600,
        group: None,
    };

    fn give(self, path: &Path) -> io::Result<()> {
        if self == Self::OWNER {
            return Ok(());
        }
        self.set(path)
    }

    fn set(self, path: &Path) -> io::Result<()> {
        // The group first: until then the file is for its owner.
        std::os::unix::fs::chown(path, None, self.group)?;
        fs::set_permissions(path, fs::Permissions::from_mode(self.mode))
    }

    /// Sets mode and group of a file that may have other ones. Meanwhile, and where that fails, it is for its owner.
    fn replace(self, path: &Path) -> io::Result<()> {
        Self::OWNER.set(path)?;
        let ours = rustix::process::getegid().as_raw();
        let group = self.group.or(Some(ours));
        Self { group, ..self }.set(path)
    }
}

/// A socket file. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file, to recognize it.
    file: (u64, u64),
    listener: UnixListener,
    /// Keeps other processes from replacing the same stale file at the same time.
    _guard: InstanceLock,
    /// Until this is cancelled, the file is the process's that hands it over.
    taken: Option<CancellationToken>,
    access: Access,
}

/// The socket of a file that the process before hands over, and how this process learns that it is its own.
pub(crate) type InheritedFile = (OwnedFd, CancellationToken);

impl SocketFile {
    /// Listens at `path`, or returns why it cannot.
    pub(crate) fn open(
        flag: &'static str,
        path: &Path,
        access: Access,
        names: &InstanceLocks,
        inherited: Option<InheritedFile>,
    ) -> Result<Self, StartError> {
        let failed = |why| StartError::Socket {
            flag,
            path: path.into(),
            why,
        };
        let guard = names.take(LockName::Socket(path.into()));
        let guard =
            guard.map_err(|taken| StartError::lock_failed(taken, || failed(TAKEN.into())))?;
        let (listener, taken) = match inherited {
            Some((socket, taken)) => (UnixListener::from(socket), Some(taken)),
            None => {
                let address = SockAddr::unix(path).map_err(|_| {
                    failed("the path is longer than the 107 bytes that a socket's may have".into())
                })?;
                let make_way = make_way(path, &address).map_err(failed)?;
                let bound = make_way.and_then(|()| bind(&address));
                (bound.map_err(|error| failed(explain(path, &error)))?, None)
            }
        };
        if taken.is_none() {
            let given = access.give(path);
            given.map_err(|error| failed(ungiven(&error)))?;
        }
        let file = fs::symlink_metadata(path).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            path: path.into(),
            file: (file.dev(), file.ino()),
            listener,
            _guard: guard,
            taken,
            access,
        })
    }

    /// The file is this process's now: gives it the mode and the group that this process was told, where the one before may have
    /// given it other ones.
    pub(crate) fn settle(&self) {
        if self.taken.is_none() || !self.is_there() {
            return;
        }
        if let Err(error) = self.access.replace(&self.path) {
            let why = ungiven(&error);
            tracing::error!(
                "{}: {why}; until then it is for its owner",
                self.path.display()
            );
        }
    }

    /// Whether the file at the path is still that of this socket.
    pub(crate) fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.file)
    }

    /// The lock that stands for it.
    pub(crate) fn name(&self) -> LockName {
        LockName::Socket(self.path.clone())
    }

    /// The file stays: the next process has its socket.
    pub(crate) fn leave(&mut self) {
        self.taken = Some(CancellationToken::new());
    }

    /// What accepts.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_taken = self
            .taken
            .as_ref()
            .is_none_or(CancellationToken::is_cancelled);
        // Another process's file may be there by now.
        if is_taken && self.is_there() {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Removes the file of a process that has ended. The outer error names what is in the way.
fn make_way(path: &Path, address: &SockAddr) -> Result<io::Result<()>, String> {
    let Ok(file) = fs::symlink_metadata(path) else {
        return Ok(Ok(()));
    };
    if !file.file_type().is_socket() {
        return Err(
            "there is a file, and it is no socket; move it away, or choose another path".into(),
        );
    }
    match call(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ok(())),
        Ok(()) => Err(TAKEN.into()),
        // A process whose backlog is full is running too.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(TAKEN.into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Fails unless a process listens there.
fn call(address: &SockAddr) -> io::Result<()> {
    socket()?.connect(address)
}

fn bind(address: &SockAddr) -> io::Result<UnixListener> {
    let socket = socket()?;
    // The file gets the mode of the socket that is bound to it, so it never has a wider one.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn ungiven(error: &io::Error) -> String {
    format!("cannot be given its group and mode: {error}; name a group of this process's user")
}

fn explain(path: &Path, error: &io::Error) -> String {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    match (error.kind(), folder) {
        (io::ErrorKind::NotFound, Some(folder)) => {
            format!("there is no folder {}; make it first", folder.display())
        }
        _ => error.to_string(),
    }
}

const TAKEN: &str = "another process answers there; stop it first, or choose another path";
const BACKLOG: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<SocketFile, StartError> {
        let locks = InstanceLocks::default();
        SocketFile::open("--socket", path, Access::OWNER, &locks, None)
    }

    fn refused(path: &Path) -> String {
        open(path).unwrap_err().to_string()
    }

    #[test]
    fn the_file_is_for_its_owner_only_and_goes_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let file = open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_dead_process_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let file = open(&path).unwrap();
        call(&SockAddr::unix(&path).unwrap()).unwrap();
        drop(file);
    }

    #[test]
    fn whoever_lives_keeps_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _other = UnixListener::bind(&path).unwrap();
        let said = refused(&path);
        assert!(said.contains("another process answers there"), "{said}");
        assert!(said.contains(&path.display().to_string()), "{said}");

        let ours = folder.path().join("ours");
        let _door = open(&ours).unwrap();
        let said = refused(&ours);
        assert!(said.contains("another process answers there"), "{said}");
    }

    #[test]
    fn another_ones_file_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let file = open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"another");
    }

    #[test]
    fn a_file_that_is_handed_over_goes_with_the_process_that_has_it_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let locks = InstanceLocks::default();
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        let access = Access {
            mode: 0o660,
            group: None,
        };
        let mut old = SocketFile::open("--socket", &path, access, &locks, None).unwrap();
        let taken = CancellationToken::new();
        let inherit = |old: &SocketFile| {
            let next = InstanceLocks::default();
            next.inherit(
                locks
                    .sockets()
                    .into_iter()
                    .map(|(name, socket)| (name.text(), socket.try_clone().unwrap()))
                    .collect(),
            );
            let socket = (old.listener().unwrap().into(), taken.clone());
            SocketFile::open("--socket", &path, Access::OWNER, &next, Some(socket)).unwrap()
        };
        // The next process fails before the file is its own.
        drop(inherit(&old));
        assert!(old.is_there());
        let next = inherit(&old);
        assert_eq!(mode(), 0o660, "it is still the first one's");
        next.settle();
        assert_eq!(mode(), 0o600);
        taken.cancel();
        old.leave();
        drop(old);
        call(&SockAddr::unix(&path).unwrap()).unwrap();
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_in_the_way_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(refused(&file).contains("it is no socket"));
        let missing = folder.path().join("none/s");
        assert!(refused(&missing).contains("there is no folder"));
        let long = folder.path().join("x".repeat(120));
        assert!(refused(&long).contains("longer than"));
    }
}
