//! Watches, in the process that begins, over the one that runs until it is decided which of the two serves.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballast_core::handover::{self, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::life::{BROKE_OFF, Life};
use super::{Decision, GOES_ON, READY_WITHIN};
use crate::os::threads::{self, Pace};

/// Ends this process where the one that runs refuses, or where this one has not begun to serve in time: a thread of its own watches,
/// since all others may hang. A process that hangs would keep sockets and locks that are no longer its.
pub(super) fn watch(
    connection: StdUnixStream,
    decision: Decision,
    life: Arc<Life>,
) -> io::Result<()> {
    let until = Instant::now() + READY_WITHIN;
    threads::spawn("handover".into(), Pace::Quiet, move || {
        if let Some(why) = must_end(&connection, &decision, &life, until)
            && decision.give_up()
        {
            tracing::error!("--handover: {why}");
            ballast_log::flush(LAST_LINES);
            std::process::exit(i32::from(GOES_ON));
        }
    })?;
    Ok(())
}

/// Waits until this process has taken over or given up (`None`), or must end. Returns why it must.
fn must_end(
    connection: &StdUnixStream,
    decision: &Decision,
    life: &Life,
    until: Instant,
) -> Option<String> {
    while decision.is_open() {
        if Instant::now() >= until {
            return Some(format!(
                "this process could not serve within {READY_WITHIN:?}, and the one that runs goes on; look for a table, a file or a disk that takes so long"
            ));
        }
        let mut watched = [PollFd::new(connection, PollFlags::RDHUP)];
        // A signal to this thread only shortens the pause.
        let has_changed = poll(&mut watched, Some(&LOOK_EVERY)).is_ok_and(|ready| ready > 0);
        if !has_changed {
            continue;
        }
        match refused(connection) {
            Some(Said::Refused(why)) => {
                return Some(format!("the process that runs goes on: {why}"));
            }
            // Where it has ended, this one shall serve, however late.
            Some(Said::Nothing) if life.has_ended() => return None,
            Some(Said::Nothing) => return Some(format!("the process that runs {BROKE_OFF}")),
            // The message is for the task that reads the connection.
            None => std::thread::sleep(LOOK_SOON),
        }
    }
    None
}

/// The last message of the process that runs, once that has closed the connection.
enum Said {
    Nothing,
    Refused(String),
}

fn refused(connection: &StdUnixStream) -> Option<Said> {
    let mut bytes = [0; LONGEST_REFUSAL];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let read = match recv(connection, &mut bytes, flags) {
        Ok((_, 0)) => return Some(Said::Nothing),
        Ok((_, read)) => read,
        // It was reset with a message of this process unread.
        Err(Errno::CONNRESET) => return Some(Said::Nothing),
        Err(_) => return None,
    };
    let (head, text) = bytes.get(..read)?.split_first_chunk()?;
    let text = text.get(..handover::length(*head).ok()?)?;
    match Message::decode(text) {
        Ok(Message::Refused(why)) => Some(Said::Refused(why)),
        _ => None,
    }
}

/// How long the last lines of the log may take.
const LAST_LINES: Duration = Duration::from_millis(500);
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
const LOOK_SOON: Duration = Duration::from_millis(20);
const LONGEST_REFUSAL: usize = 4096;
