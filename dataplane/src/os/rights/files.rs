//! Which files may be opened, by landlock.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};

/// What may be done with a file, or with everything below a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileAccess {
    Read,
    /// Reading, and replacing plain files.
    Write,
    /// Making and removing sockets.
    Sockets,
}

/// The files and folders that stay open to the process, beside those of the system that it needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files(pub(crate) Vec<(PathBuf, FileAccess)>);

/// What the kernel does about files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landlock {
    Restricts,
    /// An older kernel, which cannot restrict truncating files, devices or signals.
    RestrictsPartly,
    /// It has no landlock, or it is turned off.
    Missing,
}

impl Files {
    /// Restricts the calling thread, and those that it starts.
    pub(super) fn restrict(&self) -> io::Result<Landlock> {
        let failed = |error: RulesetError| io::Error::other(error.to_string());
        let restricted = self.restricted().map_err(failed)?;
        Ok(match (restricted.0, restricted.1) {
            (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented)
            | (RulesetStatus::NotEnforced, _) => Landlock::Missing,
            (RulesetStatus::PartiallyEnforced, _) => Landlock::RestrictsPartly,
            (RulesetStatus::FullyEnforced, _) => Landlock::Restricts,
        })
    }

    fn restricted(&self) -> Result<(RulesetStatus, LandlockStatus), RulesetError> {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))?
            // The abstract sockets of the process before must be reached: they say that it gives way.
            .scope(Scope::Signal)?;
        let mut ruleset = ruleset.create()?;
        for (path, access) in self.rules() {
            // A path that does not exist gets no rule, so it stays denied.
            let Ok(descriptor) = PathFd::new(path) else {
                continue;
            };
            let rights = if path.is_dir() {
                access
            } else {
                access & AccessFs::from_file(KNOWN)
            };
            ruleset = ruleset.add_rule(PathBeneath::new(descriptor, rights))?;
        }
        let status = ruleset.restrict_self()?;
        Ok((status.ruleset, status.landlock))
    }

    fn rules(&self) -> impl Iterator<Item = (&Path, BitFlags<AccessFs>)> {
        let own = self.0.iter().map(|(path, access)| {
            let access = match access {
                FileAccess::Read => READ,
                FileAccess::Write => WRITE,
                FileAccess::Sockets => SOCKETS,
            };
            (&**path, access)
        });
        let system = OF_SYSTEM.iter().map(|path| (Path::new(path), READ));
        own.chain(system)
    }
}

/// The rights that landlock restricts: those that Linux 6.10 knows. An older kernel restricts fewer.
const KNOWN: ABI = ABI::V5;
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const WRITE: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | MakeReg | RemoveFile | Truncate});
const SOCKETS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{MakeSock | RemoveFile});
/// What every process reads: the state of this process and of its network, the kernel's settings, the limits of its control
/// group, and the authorities that the system trusts, wherever the distributions keep them.
const OF_SYSTEM: [&str; 18] = [
    "/proc/self",
    "/proc/self/exe",
    "/proc/net",
    "/proc/stat",
    "/proc/sys",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/etc/localtime",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ca-certificates",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/var/lib/ca-certificates",
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use rustix::process::{Pid, test_kill_process};

    use super::*;

    #[test]
    fn only_what_is_named_is_opened_written_and_made() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["read", "write", "sockets", "other"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "text").unwrap();
        }
        let files = Files(vec![
            (at("read"), FileAccess::Read),
            (at("write"), FileAccess::Write),
            (at("sockets"), FileAccess::Sockets),
            (at("none"), FileAccess::Read),
        ]);
        let at = |name: &str| folder.path().join(name);
        thread::scope(|scope| {
            let restricted = scope.spawn(|| {
                match files.restrict().unwrap() {
                    Landlock::Restricts => {}
                    found => {
                        return support::skip::skip(&format!("this kernel's landlock: {found:?}"));
                    }
                }
                assert_eq!(fs::read_to_string(at("read/file")).unwrap(), "text");
                fs::read_dir(at("read")).unwrap();
                fs::read_to_string("/proc/self/limits").unwrap();
                fs::read_to_string("/proc/net/tcp").unwrap();
                fs::write(at("write/draft"), "new").unwrap();
                fs::rename(at("write/draft"), at("write/file")).unwrap();
                drop(UnixListener::bind(at("sockets/s")).unwrap());
                fs::remove_file(at("sockets/s")).unwrap();
                for refused in [
                    fs::read("/etc/shadow").map(drop),
                    fs::read(at("other/file")).map(drop),
                    fs::read(at("sockets/file")).map(drop),
                    fs::write(at("read/file"), "new"),
                    fs::write(at("read/new"), "new"),
                    fs::write(at("sockets/new"), "new"),
                    fs::remove_file(at("read/file")),
                    fs::create_dir(at("write/folder")),
                    UnixListener::bind(at("write/s")).map(drop),
                    fs::rename(at("write/file"), at("other/file")),
                    fs::read(format!("/proc/{}/environ", parent())).map(drop),
                ] {
                    refused.unwrap_err();
                }
                // No process but this one.
                test_kill_process(Pid::from_raw(parent()).unwrap()).unwrap_err();
            });
            restricted.join().unwrap();
        });
        // Other threads are free.
        fs::read(at("other/file")).unwrap();
    }

    fn parent() -> i32 {
        rustix::process::getppid().unwrap().as_raw_nonzero().get()
    }
}
