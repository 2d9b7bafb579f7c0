//! With which rights `ballast run` goes on: as which user, with which files and which system calls.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::os::files::{folder_of, parent_of};
use crate::os::rights::{
    self, FileAccess, Files, Identity, Landlock, first_unprivileged_port, hide_memory,
};
use crate::process::account::User;
use crate::process::config::Config;
use crate::process::start_error::StartError;

/// What the command line says of the rights.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    pub user: Option<User>,
    /// `None`: the user's own.
    pub group: Option<u32>,
    pub sandbox: bool,
    /// Folders and files that are read, too, where there is a sandbox.
    pub sandbox_read: Vec<PathBuf>,
}

/// What was given up, to be logged once there is a log.
#[derive(Debug, Default)]
pub struct GivenUp {
    lines: Vec<(tracing::Level, String)>,
}

impl Rights {
    /// Gives up all others. Must be called before the process has a second thread: only this one changes, and those that it starts
    /// later.
    pub fn give_up_others(&self, config: &Config) -> Result<GivenUp, StartError> {
        let mut given_up = GivenUp::default();
        if let Some(identity) = self.identity() {
            given_up.change_to(&identity)?;
        }
        if let Err(error) = hide_memory() {
            given_up.warn(format!(
                "core dumps cannot be turned off: {error}; a dump has the keys of certificates in it: turn them off by ulimit -c 0"
            ));
        }
        let is_restricted = self.sandbox || self.user.is_some() || self.group.is_some();
        if is_restricted {
            let wrong = places(config).filter_map(|place| place.problem(self.sandbox));
            let wrong: Vec<String> = wrong.chain(self.unreadable()).collect();
            if !wrong.is_empty() {
                return Err(StartError::Rights(wrong.join("\n")));
            }
        }
        if self.sandbox {
            let (files, calls) = rights::restrict(&self.files(config));
            given_up.note_sandbox(files, calls);
        }
        Ok(given_up)
    }

    /// The user and the groups to change to; `None`: those of the start stay.
    fn identity(&self) -> Option<Identity> {
        if self.user.is_none() && self.group.is_none() {
            return None;
        }
        let user = self.user.as_ref();
        let own_group = user.and_then(|user| user.group);
        Some(Identity {
            user: user.map_or_else(|| geteuid().as_raw(), |user| user.number),
            group: self
                .group
                .or(own_group)
                .unwrap_or_else(|| getegid().as_raw()),
            groups: user.map(|user| user.groups.clone()).unwrap_or_default(),
        })
    }

    /// Why folders of `--sandbox-read` cannot be read.
    fn unreadable(&self) -> impl Iterator<Item = String> {
        self.sandbox_read.iter().filter_map(|path| {
            let error = accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).err()?;
            Some(format!(
                "--sandbox-read {}: user {} cannot read it: {error}; name a folder that is there and that this user may read",
                path.display(),
                geteuid().as_raw()
            ))
        })
    }

    fn files(&self, config: &Config) -> Files {
        let mut files = Files::default();
        for place in places(config) {
            let (at, access) = match place.purpose {
                // A file that is replaced is another one to the kernel; its folder stays.
                Purpose::Table | Purpose::Secrets => (place.at, FileAccess::Read),
                Purpose::Ack => (place.at, FileAccess::Write),
                Purpose::Socket => (place.at, FileAccess::Sockets),
            };
            files.0.push((at, access));
        }
        if let Ok(table) = config.table.canonicalize() {
            // The table may be a link to another folder.
            files.0.push((folder_of(&table), FileAccess::Read));
        }
        if let Some(ack) = &config.announce_ack {
            // An ack that cannot be read does not keep the process from serving: the page says why.
            files.0.push((parent_of(ack), FileAccess::Read));
        }
        if config.ack.is_none() && config.table.is_dir() {
            files.0.push((config.table.clone(), FileAccess::Write));
        }
        // These variables name the authorities that are trusted in place of the system's.
        let variables = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(env::var_os);
        let trusted = variables.iter().flatten().flat_map(env::split_paths);
        // A file that is renewed is another one to the kernel; its folder stays.
        let named = self.sandbox_read.iter().flat_map(|path| {
            let at = path.canonicalize().unwrap_or_else(|_| path.clone());
            [path, &at].map(|path| folder_of(path))
        });
        files
            .0
            .extend(named.chain(trusted).map(|path| (path, FileAccess::Read)));
        files
    }
}

impl GivenUp {
    /// Writes what was given up to the log.
    pub fn log(self) {
        for (level, line) in self.lines {
            match level {
                tracing::Level::WARN => tracing::warn!("{line}"),
                _ => tracing::info!("{line}"),
            }
        }
    }

    fn info(&mut self, line: String) {
        self.lines.push((tracing::Level::INFO, line));
    }

    fn warn(&mut self, line: String) {
        self.lines.push((tracing::Level::WARN, line));
    }

    fn change_to(&mut self, identity: &Identity) -> Result<(), StartError> {
        let Identity { user, group, .. } = identity;
        let has_ports = rights::change_to(identity).map_err(|error| {
            StartError::Rights(format!(
                "--user {user}, --group {group}: cannot change to them: {error}; start as root, or leave both out"
            ))
        })?;
        let first = first_unprivileged_port();
        let ports = if has_ports || first <= 1 {
            "and may bind every port".to_owned()
        } else {
            format!(
                "and may bind no port below {first}: it was started without CAP_NET_BIND_SERVICE"
            )
        };
        self.info(format!("goes on as user {user} of group {group}, {ports}"));
        Ok(())
    }

    fn note_sandbox(&mut self, files: std::io::Result<Landlock>, calls: std::io::Result<()>) {
        match files {
            Ok(Landlock::Restricts) => self.info("sandbox: files are restricted".into()),
            Ok(Landlock::RestrictsPartly) => self.info(
                "sandbox: files are restricted as far as this kernel can; Linux 6.12 can do all of it".into(),
            ),
            Ok(Landlock::Missing) => self.warn(
                "sandbox: files are not restricted: this kernel has no landlock, or it is turned off; enable it (lsm=landlock,…), or leave --sandbox out".into(),
            ),
            Err(error) => self.warn(format!(
                "sandbox: files are not restricted: {error}; permit landlock where this process runs, or leave --sandbox out"
            )),
        }
        match calls {
            Ok(()) => self.info("sandbox: system calls are restricted".into()),
            Err(error) => self.warn(format!(
                "sandbox: system calls are not restricted: {error}; permit seccomp where this process runs, or leave --sandbox out"
            )),
        }
    }
}

/// A file that the command line names.
struct Place<'a> {
    flag: &'static str,
    path: &'a Path,
    purpose: Purpose,
    /// Its folder.
    at: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Table,
    Secrets,
    Ack,
    Socket,
}

fn places(config: &Config) -> impl Iterator<Item = Place<'_>> {
    let table = Some(("--table", &config.table, Purpose::Table));
    let auth = config.stats_auth_file.as_ref();
    let monitor = config.monitor_socket.as_ref().map(|(path, ..)| path);
    let all = [
        table,
        auth.map(|path| ("--stats-auth-file", path, Purpose::Secrets)),
        config
            .ack
            .as_ref()
            .map(|path| ("--ack", path, Purpose::Ack)),
        config
            .socket
            .as_ref()
            .map(|path| ("--socket", path, Purpose::Socket)),
        monitor.map(|path| ("--monitor-socket", path, Purpose::Socket)),
        config
            .handover
            .as_ref()
            .map(|path| ("--handover", path, Purpose::Socket)),
    ];
    all.into_iter()
        .flatten()
        .map(|(flag, path, purpose)| Place {
            flag,
            path,
            purpose,
            at: match purpose {
                Purpose::Table => folder_of(path),
                _ => parent_of(path),
            },
        })
}

impl Place<'_> {
    /// Why this process's user cannot use it. What is not there is said by whoever needs it; but a folder that is made later is
    /// outside of a sandbox.
    fn problem(&self, is_sandboxed: bool) -> Option<String> {
        let (place, what, wanted) = match self.purpose {
            Purpose::Table | Purpose::Secrets => (self.path, "read it", Access::READ_OK),
            Purpose::Ack | Purpose::Socket => (
                &*self.at,
                "write to its folder",
                Access::WRITE_OK | Access::EXEC_OK,
            ),
        };
        match accessat(CWD, place, wanted, AtFlags::EACCESS) {
            Err(Errno::NOENT) if is_sandboxed && place == self.at => Some(format!(
                "{} {}: there is no folder {}; with --sandbox, make it first",
                self.flag,
                self.path.display(),
                self.at.display()
            )),
            Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Some(format!(
                "{} {}: user {} cannot {what}: {error}; permit it there (chown, chgrp, chmod), or choose another path",
                self.flag,
                self.path.display(),
                geteuid().as_raw()
            )),
            _ => None,
        }
    }
}
