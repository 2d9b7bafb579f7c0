//! The rights that the process gives up before it reads anything and before it has a second thread: each thread inherits what is
//! left. The calls below concern the calling thread alone.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{
    DumpableBehavior, Gid, Uid, getegid, geteuid, getgid, getuid, set_dumpable_behavior,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

mod calls;
mod files;

pub(crate) use files::{FileAccess, Files, Landlock};

/// The user and the groups that a process changes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// The further groups.
    pub(crate) groups: Vec<u32>,
}

/// Changes to this user and these groups. Of all capabilities only that of binding ports below 1024 is kept, if it is there:
/// tables that come later may name such ports. Returns whether it is there.
pub(crate) fn change_to(identity: &Identity) -> io::Result<bool> {
    let ports = CapabilitySet::NET_BIND_SERVICE;
    let kept = capabilities(None)?.permitted & ports;
    let (user, group) = (Uid::from_raw(identity.user), Gid::from_raw(identity.group));
    let is_it = [getuid(), geteuid()] == [user; 2] && [getgid(), getegid()] == [group; 2];
    if !is_it {
        let groups: Vec<Gid> = identity
            .groups
            .iter()
            .map(|id| Gid::from_raw(*id))
            .collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_keep_capabilities(true)?;
        set_thread_res_uid(user, user, user)?;
        set_keep_capabilities(false)?;
    }
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    set_no_new_privs(true)?;
    Ok(kept.contains(ports))
}

/// No core dump is written, and no other process of the same user may look into the memory: there are keys in it.
pub(crate) fn hide_memory() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Only these files may be opened from now on, and only the system calls that a running data plane makes.
pub(crate) fn restrict(files: &Files) -> (io::Result<Landlock>, io::Result<()>) {
    let by_landlock = files.restrict();
    IS_SANDBOXED.store(true, Ordering::Relaxed);
    (by_landlock, calls::restrict())
}

#[cfg(test)]
pub(crate) use calls::restrict as restrict_calls;

/// Whether [`restrict`] was called.
pub(crate) fn is_sandboxed() -> bool {
    IS_SANDBOXED.load(Ordering::Relaxed)
}

/// The first port that an unprivileged process may bind.
pub(crate) fn first_unprivileged_port() -> u16 {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.ok().and_then(|first| first.trim().parse().ok());
    first.unwrap_or(1024)
}

static IS_SANDBOXED: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Runs `work` on a thread whose rights nobody else shares.
    fn apart(work: impl FnOnce() + Send + 'static) {
        thread::spawn(work).join().unwrap();
    }

    #[test]
    fn whoever_changes_keeps_low_ports_and_nothing_else() {
        if !geteuid().is_root() {
            return support::skip::skip("changing the user needs root");
        }
        apart(|| {
            let identity = Identity {
                user: 4711,
                group: 4712,
                groups: vec![4713],
            };
            assert!(change_to(&identity).unwrap());
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            for line in [
                "Uid:\t4711\t4711\t4711\t4711",
                "Gid:\t4712\t4712\t4712\t4712",
                "Groups:\t4713 ",
                "CapInh:\t0000000000000000",
                "CapPrm:\t0000000000000400",
                "CapEff:\t0000000000000400",
                "CapAmb:\t0000000000000000",
                "NoNewPrivs:\t1",
            ] {
                assert!(status.contains(line), "{line} in {status}");
            }
            fs::read("/etc/shadow").unwrap_err();
            set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).unwrap_err();
            // Once more is the same, and needs no right.
            assert!(change_to(&identity).unwrap());
        });
    }
}
