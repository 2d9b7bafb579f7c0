//! The file of a runtime socket: never taken from a running process, only for those who may use it, removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::process::instance_lock::{InstanceLock, InstanceLocks, LockName};
use crate::process::start_error::StartError;

/// The mode and the group of a socket's file, which say which users may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The mode of its file.
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
        // The group first: until then the file is for its owner.
        std::os::unix::fs::chown(path, None, self.group)?;
        fs::set_permissions(path, fs::Permissions::from_mode(self.mode))
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
}

impl SocketFile {
    /// Listens at `path`, or returns why it cannot.
    pub(crate) fn open(
        flag: &'static str,
        path: &Path,
        access: Access,
        names: &InstanceLocks,
    ) -> Result<Self, StartError> {
        let failed = |why| StartError::Socket {
            flag,
            path: path.into(),
            why,
        };
        let guard = names.take(LockName::Socket(path.into()));
        let guard =
            guard.map_err(|taken| StartError::lock_failed(taken, || failed(TAKEN.into())))?;
        let address = SockAddr::unix(path).map_err(|_| {
            failed("the path is longer than the 107 bytes that a socket's may have".into())
        })?;
        let make_way = make_way(path, &address).map_err(failed)?;
        let bound = make_way.and_then(|()| bind(&address));
        let listener = bound.map_err(|error| failed(explain(path, &error)))?;
        access.give(path).map_err(|error| {
            failed(format!(
                "cannot be given its group and mode: {error}; name a group of this process's user"
            ))
        })?;
        let file = fs::symlink_metadata(path).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            path: path.into(),
            file: (file.dev(), file.ino()),
            listener,
            _guard: guard,
        })
    }

    /// What accepts.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process's file may be there by now.
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.file);
        if is_ours {
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

    fn refused(path: &Path) -> String {
        SocketFile::open("--socket", path, Access::OWNER, &InstanceLocks::default())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_file_is_for_its_owner_only_and_goes_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let file =
            SocketFile::open("--socket", &path, Access::OWNER, &InstanceLocks::default()).unwrap();
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
        let file =
            SocketFile::open("--socket", &path, Access::OWNER, &InstanceLocks::default()).unwrap();
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
        let _door =
            SocketFile::open("--socket", &ours, Access::OWNER, &InstanceLocks::default()).unwrap();
        let said = refused(&ours);
        assert!(said.contains("another process answers there"), "{said}");
    }

    #[test]
    fn another_ones_file_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let file =
            SocketFile::open("--socket", &path, Access::OWNER, &InstanceLocks::default()).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"another");
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
