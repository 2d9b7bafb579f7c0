//! The division of limited memory: how much is for connections, and how large the buffers of each connection may be.

use std::fs;
use std::io;
use std::path::{Component, Path};

use socket2::Socket;

/// The division of a limited process's memory. A cgroup's limit also counts the kernel's socket buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The limit in bytes.
    pub limit: u64,
    /// The buffer sizes of a connection.
    pub buffers: Buffers,
    /// The most bytes that one connection can hold, when neither its client nor its endpoint reads.
    pub per_connection: u64,
    /// The connections that fit if each of them holds the most.
    pub connections: u32,
    /// The UDP flows that fit.
    pub flows: usize,
    /// The pipes that fit.
    pub pipes: usize,
}

/// The buffer sizes of a connection. The kernel counts a socket's buffer as twice its set size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// `SO_SNDBUF` and `SO_RCVBUF` of both sockets.
    pub socket: usize,
    /// The most bytes read at once, and so the most bytes kept in the process for a side that does not read.
    pub read: usize,
}

impl Buffers {
    /// Sets both buffers of a socket. Accepted connections inherit them from a listening socket; other sockets need them before
    /// they connect.
    pub(crate) fn limit(&self, socket: &Socket) -> io::Result<()> {
        socket.set_recv_buffer_size(self.socket)?;
        socket.set_send_buffer_size(self.socket)
    }
}

impl Memory {
    /// Divides `limit`. The lower the `configured` limit of connections, the larger the buffers of each.
    pub fn divide(limit: u64, configured: Option<u32>) -> Self {
        let share = limit - limit / TABLE_SHARE - limit / FLOW_SHARE;
        let wanted = u64::from(configured.unwrap_or(DEFAULT_CONNECTIONS).max(1));
        let socket = (share / wanted).saturating_sub(BESIDE_SOCKET_BUFFERS) / SOCKET_BUFFERS;
        let socket = socket.clamp(MIN_BUFFER, MAX_BUFFER);
        let per_connection = socket * SOCKET_BUFFERS + BESIDE_SOCKET_BUFFERS;
        let small = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            limit,
            buffers: Buffers {
                socket: small(socket),
                read: small(READ),
            },
            per_connection,
            connections: u32::try_from(share / per_connection).unwrap_or(u32::MAX),
            flows: small(limit / FLOW_SHARE / PER_FLOW),
            pipes: small(limit / PIPE_SHARE / PER_PIPE),
        }
    }
}

/// The memory limit of the process's cgroup; `None`: unlimited.
pub fn cgroup_memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_of(Path::new("/sys/fs/cgroup"), &groups)
}

/// The limit according to the lines of `/proc/self/cgroup`, of version 1 or 2.
fn memory_of(mount: &Path, groups: &str) -> Option<u64> {
    groups
        .lines()
        .filter_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            if controllers.is_empty() {
                return smallest(mount, group, "memory.max");
            }
            let of_memory = controllers.split(',').any(|one| one == "memory");
            let mount = of_memory.then(|| mount.join("memory"))?;
            smallest(&mount, group, "memory.limit_in_bytes")
        })
        .min()
}

/// The smallest limit of a group and its ancestors. All of them apply.
fn smallest(mount: &Path, group: &str, file: &str) -> Option<u64> {
    let group = Path::new(group);
    // A group outside of this cgroup namespace is not visible here. The topmost visible group applies nevertheless.
    let group = if group.components().any(|part| part == Component::ParentDir) {
        Path::new("")
    } else {
        group.strip_prefix("/").unwrap_or(group)
    };
    group
        .ancestors()
        .filter_map(|group| {
            let limit = fs::read_to_string(mount.join(group).join(file)).ok()?;
            limit.trim().parse().ok()
        })
        .filter(|limit| *limit < UNLIMITED)
        .min()
}

/// A quarter of the limit is for tables and for the process itself.
const TABLE_SHARE: u64 = 4;
/// A sixteenth of the limit is for UDP flows, each of which has a socket.
const FLOW_SHARE: u64 = 16;
const PER_FLOW: u64 = 4 << 10;
/// A cgroup does not count the bytes in pipes, but they take the machine's memory.
const PIPE_SHARE: u64 = 16;
const PER_PIPE: u64 = 512 << 10;
/// The number of connections to leave room for, if the command line names none.
const DEFAULT_CONNECTIONS: u32 = 8_192;
/// Two sockets with two buffers each, and twice their set size.
const SOCKET_BUFFERS: u64 = 8;
/// A smaller size does not reduce the kernel's memory: a packet of loopback, or one that the device has coalesced, has 64 KiB.
const MIN_BUFFER: u64 = 16 << 10;
/// A larger size helps only on long paths with high bandwidth.
const MAX_BUFFER: u64 = 1 << 20;
const READ: u64 = 16 << 10;
/// The bytes kept of a read in each direction, the kernel's socket structures, and the task.
const BESIDE_SOCKET_BUFFERS: u64 = 2 * READ + (16 << 10);
/// Version 1 represents "unlimited" by a number that no machine has.
const UNLIMITED: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_hold_the_most_fit_into_their_share() {
        // The limit in MiB, the connections asked for; expected: the buffer size in KiB, the connections that fit.
        for (limit, configured, buffer, fit) in [
            (0, None, 16, 0),
            (64, None, 16, 256),
            (64, Some(1_500), 16, 256),
            (64, Some(100), 50, 100),
            (64, Some(1), 1_024, 5),
            (256, None, 16, 1_024),
            (1_024, None, 16, 4_096),
            (4_096, None, 38, 8_192),
            (16_384, None, 170, 8_192),
            (1 << 20, None, 1_024, 89_587),
        ] {
            let memory = Memory::divide(limit << 20, configured);
            let found = (memory.buffers.socket >> 10, memory.connections);
            assert_eq!(found, (buffer, fit), "{limit} MiB, {configured:?}");
            let held = u64::from(memory.connections) * memory.per_connection;
            assert!(held <= memory.limit * 11 / 16, "{memory:?}");
        }
    }

    #[test]
    fn the_smallest_limit_of_a_cgroup_and_of_all_above_it_holds() {
        let mount = tempfile::tempdir().unwrap();
        let limit = |group: &str, file: &str, limit: &str| {
            let group = mount.path().join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join(file), limit).unwrap();
        };
        limit("a", "memory.max", "1000\n");
        limit("a/b", "memory.max", "max\n");
        limit("a/b/c", "memory.max", "3000\n");
        limit("d", "memory.max", "max\n");
        limit("memory", "memory.limit_in_bytes", "9223372036854771712\n");
        limit("memory/e", "memory.limit_in_bytes", "4000\n");
        limit("memory/e/f", "memory.limit_in_bytes", "9223372036854771712");
        for (groups, memory) in [
            ("0::/a/b/c\n", Some(1000)),
            ("0::/a/b\n", Some(1000)),
            ("0::/d\n", None),
            ("0::/\n", None),
            ("0::/../../a\n", None),
            ("0::/not/there\n", None),
            ("4:memory:/e/f\n3:cpuset:/\n0::/\n", Some(4000)),
            ("4:hugetlb,memory:/e\n", Some(4000)),
            ("4:memory:/\n1:cpu:/a/b\n", None),
            ("nonsense\n\n::\n", None),
        ] {
            assert_eq!(memory_of(mount.path(), groups), memory, "{groups}");
        }
        // In a container, the topmost visible group is the container's own.
        limit("", "memory.max", "500\n");
        for group in ["/", "/not/there", "/../elsewhere", "/a/b/c"] {
            let groups = format!("0::{group}\n");
            assert_eq!(memory_of(mount.path(), &groups), Some(500), "{groups}");
        }
    }
}
