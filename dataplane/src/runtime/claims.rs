//! What a process claims before it starts: its locks, its admin addresses, its runtime sockets. Where the process before hands
//! them over, they are taken from it.

use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use ballast_core::handover::Handed;
use ballast_core::table::Stats;
use tokio_util::sync::CancellationToken;

use crate::operator::admin::auth::Auth;
use crate::operator::admin::{
    AnnouncerAck, CommandLine, EarlyAdmin, Listeners, Purpose, Viewers, Wanted, admin_addresses,
};
use crate::os::threads::lock;
use crate::process::config::{Access, Config, Level};
use crate::process::handover::next::InheritedSockets;
use crate::process::handover::{Inherited, Lent};
use crate::process::instance_lock::{self, InstanceLock, InstanceLocks, LockName};
use crate::process::socket_file::SocketFile;
use crate::process::start_error::StartError;
use crate::process::succession::Succession;

/// What this process holds, so that no other has it at the same time. It is free when the next process takes over, at the
/// latest when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) holdings: Arc<Mutex<Holdings>>,
    pub(super) succession: Succession,
}

#[derive(Debug, Default)]
pub(super) struct Holdings {
    _lock: Option<InstanceLock>,
    files: Vec<SocketFile>,
}

impl Held {
    pub(super) fn new(holdings: Holdings, succession: &Succession) -> Self {
        Self {
            holdings: Arc::new(Mutex::new(holdings)),
            succession: succession.clone(),
        }
    }

    /// Gives everything up. The files whose sockets the next process has stay.
    pub(super) fn free(&self) {
        let mut holdings = std::mem::take(&mut *lock(&self.holdings));
        let left = self.succession.left();
        for file in &mut holdings.files {
            if left
                .as_ref()
                .is_some_and(|left| left.names.contains(&file.name().text()))
            {
                file.leave();
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.free();
    }
}

/// The files that the process before handed over are this process's now.
pub(super) fn settle(holdings: &Mutex<Holdings>) {
    lock(holdings).files.iter().for_each(SocketFile::settle);
}

/// The sockets of files, for the next process. A file that is gone, or is another one's by now, is left out.
pub(super) fn lend_files(holdings: &Mutex<Holdings>) -> Vec<Lent> {
    let holdings = lock(holdings);
    let files = holdings.files.iter().filter(|file| file.is_there());
    let lent = files.filter_map(|file| {
        Some(Lent {
            handed: Handed::File(file.name().text()),
            descriptor: Arc::new(file.listener().ok()?),
        })
    });
    lent.collect()
}

pub(super) fn lend_locks(locks: &InstanceLocks) -> Vec<Lent> {
    let locks = locks.sockets().into_iter().map(|(name, socket)| Lent {
        handed: Handed::Lock(name.text()),
        descriptor: socket,
    });
    locks.collect()
}

/// What no other process may have at the same time, and what must be valid before anything starts.
pub(super) struct Claims {
    pub(super) command_line: CommandLine,
    pub(super) admin: AdminSide,
    pub(super) held: Holdings,
    /// The sockets of clients that the process before hands over.
    pub(super) sockets: Option<InheritedSockets>,
}

/// What the admin side answers at, and to whom.
pub(super) struct AdminSide {
    pub(super) auth: Option<Auth>,
    pub(super) locks: InstanceLocks,
    pub(super) listeners: Listeners,
    pub(super) viewers: Viewers,
    pub(super) announced: Option<AnnouncerAck>,
    pub(super) commands: Vec<(UnixListener, Level)>,
    /// Where the next process asks for the sockets.
    pub(super) handover: Option<UnixListener>,
    /// Until this is cancelled, the process before answers.
    pub(super) taken: CancellationToken,
}

impl Claims {
    /// `stats`: what the first table says of the admin side. `early`: what was claimed of it already.
    pub(super) fn of(
        config: &Config,
        stats: Option<&Stats>,
        early: Option<EarlyAdmin>,
        inherited: Option<Inherited>,
    ) -> Result<Self, StartError> {
        let auth = config.stats_auth_file.as_deref().map(Auth::read);
        let auth = auth.transpose().map_err(StartError::Auth)?;
        let command_line = CommandLine::of(config);
        let Wanted { addresses, viewers } = command_line.wanted(stats);
        let (locks, mut listeners) = early.map_or_else(Default::default, EarlyAdmin::into_parts);
        let (mut files, mut sockets) = (None, None);
        if let Some(inherited) = inherited {
            locks.inherit(inherited.locks);
            listeners.inherit(Purpose::Everything, inherited.admin);
            listeners.inherit(Purpose::Health, inherited.healthz);
            files = Some((inherited.files, inherited.taken));
            sockets = Some(inherited.sockets);
        }
        let lock = match instance_lock::lock_port(&admin_addresses(&addresses)) {
            // The admin side locks each of its ports itself.
            Some(_) => None,
            None => {
                let lock = locks.take(LockName::Table(config.table.clone()));
                Some(lock.map_err(|error| {
                    StartError::lock_failed(error, || StartError::SameTable(config.table.clone()))
                })?)
            }
        };
        listeners.take(&addresses, &locks)?;
        if !listeners.bound().is_empty() {
            viewers.log();
        }
        let (mut held, mut commands, mut handover) = (Vec::new(), Vec::new(), None);
        for (flag, path, access, level) in files_of(config) {
            let inherited = files.as_mut().and_then(|(files, taken)| {
                let (_, socket) = files.remove(&LockName::Socket(path.clone()).text())?;
                Some((socket, taken.clone()))
            });
            let file = SocketFile::open(flag, path, access, &locks, inherited)?;
            match level {
                Some(level) => commands.push((file.listener()?, level)),
                None => handover = Some(file.listener()?),
            }
            held.push(file);
        }
        locks.leave_rest();
        let mut unwanted = listeners.leave_rest();
        let taken = files.map(|(files, taken)| {
            unwanted.extend(files.into_values().map(|(place, _)| place));
            taken
        });
        if let Some(sockets) = &mut sockets {
            sockets.leave(unwanted);
        }
        Ok(Self {
            command_line,
            admin: AdminSide {
                auth,
                locks,
                listeners,
                viewers,
                announced: config.announce_ack.clone().map(AnnouncerAck::at),
                commands,
                handover,
                taken: taken.unwrap_or_else(cancelled),
            },
            held: Holdings {
                _lock: lock,
                files: held,
            },
            sockets,
        })
    }
}

fn cancelled() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

/// The socket files that the command line asks for. `None` as the level: no command is taken there, but the next process asks.
fn files_of(
    config: &Config,
) -> impl Iterator<Item = (&'static str, &std::path::PathBuf, Access, Option<Level>)> {
    let admin = config.socket.as_ref();
    let admin = admin.map(|path| ("--socket", path, config.socket_access, Some(Level::Admin)));
    let monitor = config.monitor_socket.as_ref();
    let monitor =
        monitor.map(|(path, access, level)| ("--monitor-socket", path, *access, Some(*level)));
    let handover = config.handover.as_ref();
    let handover = handover.map(|path| ("--handover", path, Access::OWNER, None));
    admin.into_iter().chain(monitor).chain(handover)
}
