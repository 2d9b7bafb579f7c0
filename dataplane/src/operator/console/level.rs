//! What may be asked at a runtime socket: as with haproxy's `level`.

use super::command::{Command, Show};

/// The rights of a runtime socket's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Level {
    /// May see everything but single clients (show sess, show errors), and change nothing
    User,
    /// May see everything, clear maxima and the affinity of clients, and change nothing else
    Operator,
    /// Does everything
    #[value(skip)]
    Admin,
}

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
