//! What may be asked at a runtime socket: as with haproxy's `level`.

use super::command::{Command, Show};
use crate::process::config::Level;

impl Level {
    /// Whether the command may be given at this level.
    pub(super) fn may(self, command: &Command) -> bool {
        self >= needed(command)
    }
}

fn needed(command: &Command) -> Level {
    match command {
        Command::Show(Show::Sess { .. } | Show::Errors) => Level::Operator,
        Command::ClearCounters { all: false } | Command::ClearTable { .. } => Level::Operator,
        Command::Help(_)
        | Command::Quit
        | Command::Prompt(_)
        | Command::Report
        | Command::Show(_)
        | Command::GetWeight(_) => Level::User,
        Command::Change(_)
        | Command::ClearCounters { all: true }
        | Command::Health(..)
        | Command::Shutdown(_)
        | Command::ShutdownSession(_) => Level::Admin,
    }
}

pub(super) const DENIED: &str = "Permission denied";
