//! Which system calls may be made, by seccomp: those of a data plane that has started. It starts no program, and maps no memory
//! that it could execute. Whatever is not listed fails with ENOSYS, as it does on a kernel that does not have it, so that
//! libraries fall back to what is listed.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// Restricts the calling thread, and those that it starts.
pub(crate) fn restrict() -> io::Result<()> {
    let program = program().map_err(|error| io::Error::other(error.to_string()))?;
    apply_filter(&program).map_err(|error| io::Error::other(error.to_string()))
}

fn program() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in ALWAYS.iter().chain(OLD) {
        rules.insert(*call, Vec::new());
    }
    for (call, any) in sometimes() {
        let any = any.into_iter().map(|all| {
            let all = all.into_iter().collect::<Result<_, _>>()?;
            SeccompRule::new(all)
        });
        rules.insert(call, any.collect::<Result<_, _>>()?);
    }
    let otherwise = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let machine = TargetArch::try_from(ARCH)?;
    SeccompFilter::new(rules, otherwise, SeccompAction::Allow, machine)?.try_into()
}

type Condition = Result<SeccompCondition, BackendError>;

/// The calls that may be made with certain arguments: any of these lists of conditions must hold.
fn sometimes() -> Vec<(c_long, Vec<Vec<Condition>>)> {
    let is = |argument, value| SeccompCondition::new(argument, Dword, Eq, u64::from(value));
    let is_any = |argument, values: &[u32]| -> Vec<Vec<Condition>> {
        values
            .iter()
            .map(|value| vec![is(argument, *value)])
            .collect()
    };
    let without = |argument, bits: i32| {
        let mask = MaskedEq(u64::from(bits.unsigned_abs()));
        vec![vec![SeccompCondition::new(argument, Dword, mask, 0)]]
    };
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let own = u64::from(std::process::id());
    vec![
        (libc::SYS_socket, is_any(0, &FAMILIES)),
        (libc::SYS_socketpair, is_any(0, &FAMILIES[..1])),
        (
            libc::SYS_clone,
            vec![vec![SeccompCondition::new(
                0,
                Qword,
                MaskedEq(thread),
                thread,
            )]],
        ),
        (libc::SYS_mmap, without(2, libc::PROT_EXEC)),
        (libc::SYS_mprotect, without(2, libc::PROT_EXEC)),
        (libc::SYS_ioctl, is_any(1, &REQUESTS)),
        (libc::SYS_prctl, is_any(0, &OPTIONS)),
        // Its own limits, and an end by its own signal.
        (libc::SYS_prlimit64, is_any(0, &[0])),
        (
            libc::SYS_tgkill,
            vec![vec![SeccompCondition::new(0, Dword, Eq, own)]],
        ),
    ]
}

/// Unix, first; clients and endpoints; the addresses of this host.
const FAMILIES: [u32; 4] = [
    libc::AF_UNIX.unsigned_abs(),
    libc::AF_INET.unsigned_abs(),
    libc::AF_INET6.unsigned_abs(),
    libc::AF_NETLINK.unsigned_abs(),
];
/// Whether a call waits, how much is unread or unsent, whether it is a terminal.
const REQUESTS: [u32; 6] = [0x5421, 0x541b, 0x5411, 0x5401, 0x5413, 0x5451];
/// Names of threads and of memory; what the kernel told the process at its start, and whether there are core dumps: that is asked
/// only.
const OPTIONS: [u32; 5] = [
    libc::PR_SET_NAME.unsigned_abs(),
    libc::PR_GET_NAME.unsigned_abs(),
    0x5356_4d41,
    0x4155_5856,
    libc::PR_GET_DUMPABLE.unsigned_abs(),
];

const ALWAYS: &[c_long] = &[
    // Descriptors.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_lseek,
    libc::SYS_pipe2,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    // Files: which ones is landlock's and the file system's to say.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_umask,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // Sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pidfd_open,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads and signals.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_get_robust_list,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_yield,
    // What it is.
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
];

/// Older forms of the same, which younger machines do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_lchown,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    use rustix::process::{Pid, Signal, chroot, getppid, kill_process};

    use super::*;

    #[test]
    fn no_program_is_started_and_no_other_socket_opened_while_what_a_data_plane_does_works() {
        let parent = getppid().unwrap();
        let restricted = thread::spawn(move || {
            restrict().unwrap();
            works();
            does_not_work(parent);
        });
        restricted.join().unwrap();
        // Other threads are free.
        assert!(Command::new("true").status().unwrap().success());
    }

    fn works() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        UdpSocket::bind("[::1]:0").ok();
        UnixStream::pair().unwrap();
        crate::os::sys::addresses::of_host().unwrap();
        fs::read("/proc/self/status").unwrap();
        thread::Builder::new()
            .name("named".into())
            .spawn(|| vec![0_u8; 16 << 20].len())
            .unwrap()
            .join()
            .unwrap();
        let runtime = crate::os::threads::local_runtime().unwrap();
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        let asked = rustix::process::dumpable_behavior();
        asked.unwrap();
    }

    fn does_not_work(parent: Pid) {
        let started = Command::new("true").status().unwrap_err();
        assert_eq!(started.raw_os_error(), Some(libc::ENOSYS), "{started}");
        let of_crypto = AddressFamily::from_raw(38);
        for family in [AddressFamily::PACKET, AddressFamily::VSOCK, of_crypto] {
            let opened = socket(family, SocketType::RAW, None);
            assert_eq!(opened.unwrap_err(), Errno::NOSYS, "{family:?}");
        }
        assert_eq!(chroot("/"), Err(Errno::NOSYS));
        let killed = kill_process(parent, Signal::CONT);
        assert_eq!(killed, Err(Errno::NOSYS));
    }
}
