//! What the process may use: descriptors, memory, cores; and how much of it is for what.

use std::fs;
use std::io;
use std::path::{Component, Path};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The process's share of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// As many as may be open.
    pub descriptors: usize,
}

impl Budget {
    /// Raises the soft limit to the hard one, and counts at most a million: some hosts say "unlimited".
    #[must_use]
    pub fn claim() -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(
                %error,
                "cannot raise the limit of open files to its hard limit; set both to the same (ulimit -n)"
            );
        }
        Self::in_force()
    }

    /// What there is now, without asking for more.
    #[must_use]
    pub fn in_force() -> Self {
        let descriptors = getrlimit(Resource::Nofile)
            .current
            .unwrap_or(MOST_DESCRIPTORS);
        Self {
            descriptors: usize::try_from(descriptors.min(MOST_DESCRIPTORS)).unwrap_or(usize::MAX),
        }
    }

    /// Refuses to begin with so few descriptors that not even one connection could be served.
    pub fn suffices(&self, workers: usize) -> io::Result<()> {
        let needed = at_rest(workers) + A_CONNECTION;
        if self.descriptors >= needed {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} descriptors are too few for {workers} workers, which need {needed}; raise the limit (ulimit -n), or lower --threads",
            self.descriptors
        )))
    }

    /// How many sockets one more address gets while `there` are listening already: one a worker below 40 % of all
    /// descriptors, then a single one, and above 80 % none.
    #[must_use]
    pub fn sockets(&self, there: usize, workers: usize) -> Option<usize> {
        if there + workers <= self.descriptors / 10 * 4 {
            Some(workers)
        } else if there < self.descriptors / 10 * 8 {
            Some(1)
        } else {
            None
        }
    }

    /// How many health checks may be under way at once: when a rack is gone, each of them lasts as long as it may.
    #[must_use]
    pub fn checks(&self) -> usize {
        (self.descriptors / 20).clamp(4, 2048)
    }

    /// How many UDP flows each of `workers` may have; each takes a descriptor, and together they get half of all.
    #[must_use]
    pub fn flows(&self, workers: usize) -> usize {
        (self.descriptors / 2 / workers.max(1)).max(1)
    }

    /// How many pipes each of `workers` may have; each takes two descriptors.
    #[must_use]
    pub fn pipes(&self, workers: usize) -> usize {
        self.spare() / 4 / workers.max(1)
    }

    /// How many connections there may be at once: as many as was `told`, or as many as fit. Logs why.
    #[must_use]
    pub fn connections(&self, workers: usize, told: Option<u32>, memory: Option<u64>) -> u32 {
        let (fit, why) = self.fit(workers, memory, 0);
        let Some(told) = told else {
            tracing::info!("at most {fit} connections: {why}");
            return fit;
        };
        if told <= fit {
            tracing::info!("at most {told} connections, as told");
        } else {
            tracing::warn!(
                "at most {told} connections, as told, but only {fit} fit: {why}; raise these limits, or lower --max-connections"
            );
        }
        told
    }

    /// How many connections fit beside so many listening sockets: these may take most of all descriptors.
    #[must_use]
    pub fn beside(&self, listening: usize, workers: usize, memory: Option<u64>) -> u32 {
        self.fit(workers, memory, listening).0
    }

    /// How many connections fit, with the reckoning.
    fn fit(&self, workers: usize, memory: Option<u64>, listening: usize) -> (u32, String) {
        // Pipes take half of what is spare.
        let kept = at_rest(workers)
            + self.spare()
            + self.checks()
            + listening.saturating_sub(self.spare() / 2);
        let by_descriptors = self.descriptors.saturating_sub(kept) / A_CONNECTION;
        let (by_memory, memory) = match memory {
            None => (usize::MAX, "no limit of memory".to_owned()),
            Some(memory) => (
                usize::try_from((memory - memory / 4) / CONNECTION_MEMORY).unwrap_or(usize::MAX),
                format!(
                    "{} MiB of memory, a quarter kept for tables, {} KiB a connection",
                    memory >> 20,
                    CONNECTION_MEMORY >> 10
                ),
            ),
        };
        let fit = u32::try_from(by_descriptors.min(by_memory)).unwrap_or(u32::MAX);
        let why = format!(
            "{} descriptors, {kept} of them kept for listening, checks and admin, two a connection; {memory}",
            self.descriptors
        );
        (fit.max(1), why)
    }

    /// Descriptors for more listening sockets, pipes, and the admin side's connections.
    fn spare(&self) -> usize {
        (self.descriptors / 8).min(512)
    }
}

/// Descriptors of a process that serves nobody yet, as counted: a worker's runtime has four, and a listening socket; the
/// rest are of the other runtimes, and of the admin side with its reserve.
fn at_rest(workers: usize) -> usize {
    30 + 5 * workers
}

/// The memory that the process's cgroup may use; `None`: as much as there is.
#[must_use]
pub fn cgroup_memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_of(Path::new("/sys/fs/cgroup"), &groups)
}

/// By the lines of `/proc/self/cgroup`, of version 2 as of version 1.
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

/// The smallest limit of a group and of all above it: each of them holds.
fn smallest(mount: &Path, group: &str, file: &str) -> Option<u64> {
    let group = Path::new(group);
    // A group outside of this namespace is not to be seen here; the topmost one that is holds nevertheless.
    let group = match group.components().any(|part| part == Component::ParentDir) {
        true => Path::new(""),
        false => group.strip_prefix("/").unwrap_or(group),
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

/// Cores that this process may use: by its affinity, and by the quota of its cgroup and of those above it, of either
/// version, which the standard library looks up.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

const MOST_DESCRIPTORS: u64 = 1_048_576;
/// Descriptors of a connection: its client's, its endpoint's.
const A_CONNECTION: usize = 2;
/// Two sockets with modest buffers.
const CONNECTION_MEMORY: u64 = 32 * 1024;
/// Version 1 says "unlimited" by a number that no machine has.
const UNLIMITED: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_get_fewer_as_descriptors_run_out() {
        let budget = Budget {
            descriptors: 20_000,
        };
        assert_eq!(budget.sockets(0, 2), Some(2));
        assert_eq!(budget.sockets(7_998, 2), Some(2));
        assert_eq!(budget.sockets(7_999, 2), Some(1));
        assert_eq!(budget.sockets(15_999, 2), Some(1));
        assert_eq!(budget.sockets(16_000, 2), None);
    }

    #[test]
    fn connections_fit_into_descriptors_and_memory() {
        for (descriptors, workers, memory, fit) in [
            (20_000, 2, None, 9_224),
            (20_000, 2, Some(64 << 20), 1_536),
            (20_000, 2, Some(1 << 40), 9_224),
            (1_048_576, 64, None, 522_833),
            (256, 2, None, 86),
            (64, 2, None, 6),
        ] {
            let (found, why) = Budget { descriptors }.fit(workers, memory, 0);
            assert_eq!(found, fit, "{why}");
        }
    }

    #[test]
    fn no_limit_is_ever_zero() {
        for descriptors in [0, 1, 16, 64, 1_024] {
            for workers in [1, 2, 64, 1_024] {
                for memory in [None, Some(0), Some(1), Some(1 << 20)] {
                    let budget = Budget { descriptors };
                    assert!(budget.fit(workers, memory, 0).0 >= 1);
                    assert!(budget.sockets(0, workers) != Some(0));
                }
            }
        }
    }

    #[test]
    fn what_was_told_is_what_holds() {
        let budget = Budget { descriptors: 64 };
        assert_eq!(budget.connections(2, Some(1_000), None), 1_000);
        assert_eq!(budget.connections(2, None, None), 6);
    }

    #[test]
    fn too_few_descriptors_are_said_with_a_remedy() {
        let few = Budget { descriptors: 41 };
        let words = few.suffices(2).unwrap_err().to_string();
        assert!(words.contains("need 42; raise the limit"), "{words}");
        few.suffices(1).unwrap();
        Budget { descriptors: 42 }.suffices(2).unwrap();
    }

    #[test]
    fn listening_sockets_leave_room_for_fewer_connections() {
        let budget = Budget {
            descriptors: 20_000,
        };
        let most = |listening| budget.beside(listening, 2, None);
        assert_eq!(most(0), most(100), "some are reckoned with from the start");
        assert_eq!(most(0) - most(8_256), 4_000);
        assert_eq!(most(30_000), 1);
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
        // In a container the topmost group that is to be seen is the container's own.
        limit("", "memory.max", "500\n");
        for group in ["/", "/not/there", "/../elsewhere", "/a/b/c"] {
            let groups = format!("0::{group}\n");
            assert_eq!(memory_of(mount.path(), &groups), Some(500), "{groups}");
        }
    }
}
