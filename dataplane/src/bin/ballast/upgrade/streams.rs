//! Where the next process writes its log: where the process that runs does, if it can be given that.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::out::{say, streams};

/// Standard output and standard error of the next process.
pub(super) fn of_next(pid: u32) -> [Stdio; 2] {
    let (out, err) = streams();
    let (out, err) = (stream(pid, 1, out), stream(pid, 2, err));
    if let Some(why) = err.as_ref().err().or_else(|| out.as_ref().err()) {
        say(&format!(
            "ballast: where the process with pid {pid} writes its log cannot be opened here ({why}), and what this command writes to is no file and no terminal, so that it may end with it: the next process writes its log to /dev/null; run this command as root, send what it writes to a file, or have systemd run it (templates/systemd/upgrade.conf)"
        ));
    }
    [out, err].map(|stream| stream.unwrap_or_else(|_| Stdio::null()))
}

/// A stream of the process that runs; else that of this command, unless who reads it waits for its end. An error: why it is neither.
fn stream(pid: u32, number: u8, own: impl AsFd) -> Result<Stdio, io::Error> {
    let why = match theirs(pid, number) {
        Ok(stream) => return Ok(stream.into()),
        Err(why) => why,
    };
    if lasts(&own, std::env::var_os("JOURNAL_STREAM").as_deref()) {
        return Ok(Stdio::inherit());
    }
    Err(why)
}

fn theirs(pid: u32, number: u8) -> io::Result<OwnedFd> {
    // A file that is opened anew has an offset and flags of its own.
    let path = format!("/proc/{pid}/fd/{number}");
    if let Ok(file) = File::options().append(true).open(path) {
        return Ok(file.into());
    }
    // A socket, such as that of systemd's journal, cannot be opened.
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    let number = number.into();
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// Whether a stream of this command may be that of a process that lives longer: a pipe or a socket is read until all have closed
/// it, but for the socket that systemd says is the journal's, by its device and its number.
fn lasts(stream: impl AsFd, journal: Option<&OsStr>) -> bool {
    let Ok(file) = fstat(stream) else {
        return false;
    };
    match FileType::from_raw_mode(file.st_mode) {
        FileType::Fifo => false,
        FileType::Socket => {
            let name = format!("{}:{}", file.st_dev, file.st_ino);
            journal == Some(OsStr::new(&name))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pipe_or_a_socket_of_the_caller_is_not_kept_open() {
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let file = fstat(&socket).unwrap();
        let journal = format!("{}:{}", file.st_dev, file.st_ino);
        assert!(!lasts(&pipe, None) && !lasts(&pipe, Some(OsStr::new(&journal))));
        assert!(!lasts(&socket, None) && !lasts(&socket, Some(OsStr::new("1:2"))));
        assert!(lasts(&socket, Some(OsStr::new(&journal))));
        assert!(lasts(tempfile::tempfile().unwrap(), None));
        assert!(lasts(File::open("/dev/null").unwrap(), None));
    }

    #[test]
    fn a_socket_of_another_process_is_had_where_that_is_permitted() {
        let (ours, theirs_end) = UnixStream::pair().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdout(OwnedFd::from(theirs_end))
            .spawn()
            .unwrap();
        let had = theirs(child.id(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        match had {
            Ok(had) => {
                rustix::io::write(&had, b"x").unwrap();
                drop(had);
                let text = io::read_to_string(ours).unwrap();
                assert_eq!(text, "x");
            }
            // A container may forbid it to all.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
