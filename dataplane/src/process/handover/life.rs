//! Whether the process that runs has ended, by the kernel's word. The end of its connection does not say so: it may have given up on
//! this process, and serve.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process::succession::is_answered;

/// A handle by which this process finds out whether another process has ended.
#[derive(Debug)]
pub(super) struct Life {
    /// `None`: it is not known which one it is, and it counts as living.
    process: Option<OwnedFd>,
    /// The texts of its locks.
    locks: Vec<String>,
}

impl Life {
    /// The handle of a process that lives and has this number in this pid namespace.
    pub(super) fn of(pid: Option<u32>, locks: Vec<String>) -> Self {
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self { process, locks }
    }

    /// Whether it has ended, and no other process has taken over from it meanwhile. Waits a moment: an ending process closes its
    /// connections first.
    pub(super) fn has_ended(&self) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        let mut watched = [PollFd::new(process, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut watched, Some(&ENDS_WITHIN)));
        if !ready.is_ok_and(|ready| ready > 0) {
            return false;
        }
        // One that has just taken over from it begins to answer.
        (0..LOOKS).all(|_| {
            thread::sleep(LOOK_EVERY);
            !self.locks.iter().any(|lock| is_answered(lock))
        })
    }
}

/// What the process that runs has done, where it has closed the connection without a word and lives.
pub(super) const BROKE_OFF: &str = "has broken off the hand-over and may live, or another process has taken over from it: this one must not serve; its log may say why, start the next one again";
/// Time for the kernel to end a process that has closed its connections.
const ENDS_WITHIN: Timespec = Timespec {
    tv_sec: 3,
    tv_nsec: 0,
};
const LOOKS: u32 = 5;
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_has_ended_when_the_kernel_says_so_and_nobody_answers_in_its_place() {
        let lock = format!("ballast/test/{}", std::process::id());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let life = Life::of(Some(child.id()), vec![lock.clone()]);
        assert!(!life.has_ended());
        child.kill().unwrap();
        // Until its parent has asked for its exit code, too.
        assert!(life.has_ended());
        child.wait().unwrap();
        assert!(life.has_ended());

        // Another one has taken over from it.
        let name = SocketAddr::from_abstract_name(format!("{lock}/successor")).unwrap();
        let _other = UnixListener::bind_addr(&name).unwrap();
        assert!(!life.has_ended());
    }

    #[test]
    fn a_process_that_is_not_known_lives() {
        assert!(!Life::of(None, Vec::new()).has_ended());
    }
}
