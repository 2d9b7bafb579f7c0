//! The only unsafe code: system calls, socket options and ioctls that neither std, socket2 nor rustix offer.
//!
//! It owns nothing and decides nothing.
#![expect(
    unsafe_code,
    reason = "each block names why it is sound, and has a test"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub mod addresses;
pub mod datagrams;

/// The number of bytes in the kernel's send queue: sent but not acknowledged, or not sent yet.
pub fn unacknowledged(socket: &impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and SIOCOUTQ (the same number as
    // TIOCOUTQ) writes one c_int through the pointer, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Lets `connect` choose the local port, so that connections to different peers may share one.
pub fn bind_address_without_port(socket: &impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(0);
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the kernel reads `length` bytes of
    // `on`, which is exactly its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            length,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets the length of this thread's time slices. A thread that wakes does not wait for the end of a longer slice of another
/// thread. Kernels before 6.12 ignore it.
pub fn set_time_slice(length: Duration) -> io::Result<()> {
    schedule_this_thread(libc::SCHED_OTHER, length)
}

/// Makes this thread a batch job for the scheduler: when it wakes, it never interrupts another thread.
pub fn run_as_batch() -> io::Result<()> {
    schedule_this_thread(libc::SCHED_BATCH, Duration::ZERO)
}

/// Sets the policy of this thread and the length of its time slices, of which zero is the kernel's default. The nice value stays.
fn schedule_this_thread(policy: libc::c_int, slice: Duration) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0),
        sched_policy: policy.cast_unsigned(),
        sched_flags: 0,
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of `attributes`, which is exactly its size, and keeps no pointer to it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Registers a descriptor with the runtime, for reading. Must be called within a runtime.
pub fn watched<T: AsRawFd + Into<OwnedFd>>(descriptor: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: a value that converts into an OwnedFd owns its descriptor, so the descriptor stays open and the same for as long
    // as the AsyncFd owns `descriptor`; nothing else can close it meanwhile.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    Ok(registered?)
}

/// The same for a descriptor that the process shares.
pub fn watched_shared<T: AsRawFd + Into<OwnedFd>>(
    descriptor: Arc<T>,
) -> io::Result<AsyncFd<Arc<T>>> {
    // SAFETY: as above; and nothing can take the value out of the Arc, or change it, while the AsyncFd owns a reference to it.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    Ok(registered?)
}

/// The descriptors that systemd has started this process with, and their names. Later calls return none.
pub fn passed_descriptors() -> Vec<(OwnedFd, String)> {
    static ARE_TAKEN: AtomicBool = AtomicBool::new(false);
    if ARE_TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }
    let Ok(passed) = sd_notify::listen_fds_with_names() else {
        return Vec::new();
    };
    let owned = passed.map(|(descriptor, name)| {
        // SAFETY: `LISTEN_PID` names this process, so that the descriptor was opened for it by whoever started it, and
        // `listen_fds_with_names` found it open. Nothing else here uses descriptors by their numbers, and this runs once.
        (unsafe { OwnedFd::from_raw_fd(descriptor) }, name)
    });
    owned.collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn unread_bytes_of_a_stopped_reader_are_unacknowledged_until_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        writer.write_all(b"twelve bytes").unwrap();
        let mut read = [0; 12];
        reader.read_exact(&mut read).unwrap();
        while unacknowledged(&writer).unwrap() > 0 {
            std::thread::yield_now();
        }

        writer.set_nonblocking(true).unwrap();
        while writer.write(&[0; 65536]).is_ok() {}
        assert!(unacknowledged(&writer).unwrap() > 0);
    }

    #[test]
    fn where_calls_are_restricted_nothing_is_traced_and_no_memory_can_be_executed() {
        let map = |protection| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping at an address of the kernel's choice changes no memory that is in use.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
            (at, io::Error::last_os_error().raw_os_error())
        };
        let restricted = std::thread::spawn(move || {
            crate::os::rights::restrict_calls().unwrap();
            let executable = libc::PROT_READ | libc::PROT_EXEC;
            assert_eq!(map(executable), (libc::MAP_FAILED, Some(libc::ENOSYS)));
            let (at, _) = map(libc::PROT_READ | libc::PROT_WRITE);
            assert_ne!(at, libc::MAP_FAILED);
            // SAFETY: these bytes were mapped above, and nothing else uses them.
            let changed = unsafe { libc::mprotect(at, 4096, executable) };
            assert_eq!(changed, -1);
            // SAFETY: it takes no pointer.
            let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            assert_eq!(traced, -1);
            assert_eq!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::ENOSYS)
            );
        });
        restricted.join().unwrap();
    }

    #[tokio::test]
    async fn a_watched_listener_becomes_readable_when_a_client_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let watched = watched(Socket::from(listener)).unwrap();
        let client = std::thread::spawn(move || TcpStream::connect(address).unwrap());
        drop(watched.readable().await.unwrap());
        client.join().unwrap();
    }

    #[test]
    fn a_thread_may_have_short_turns_and_keeps_its_priority() {
        std::thread::spawn(|| {
            let priority = rustix::process::nice(3).unwrap();
            set_time_slice(Duration::from_micros(100)).unwrap();
            assert_eq!(
                rustix::process::getpriority_process(None).unwrap(),
                priority
            );
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_may_be_a_batch_job_and_keeps_its_priority() {
        std::thread::spawn(|| {
            let priority = rustix::process::nice(3).unwrap();
            run_as_batch().unwrap();
            assert_eq!(
                rustix::process::getpriority_process(None).unwrap(),
                priority
            );
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // Of the fields after the name, which ends with the last parenthesis, the policy is the 39th.
            let (_, fields) = stat.rsplit_once(')').unwrap();
            let policy = fields.split_whitespace().nth(38).unwrap();
            assert_eq!(policy, libc::SCHED_BATCH.to_string());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_bound_address_gets_its_port_when_it_connects() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        bind_address_without_port(&socket).unwrap();
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 7], 0)).into())
            .unwrap();
        let port = |socket: &Socket| socket.local_addr().unwrap().as_socket().unwrap().port();
        assert_eq!(port(&socket), 0);
        socket
            .connect(&listener.local_addr().unwrap().into())
            .unwrap();
        assert_ne!(port(&socket), 0);
    }
}
