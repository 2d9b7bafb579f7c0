//! What the process may use: descriptors, memory, cores; and how much of it is for what.

use std::fs;

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
        if setrlimit(Resource::Nofile, raised).is_err() {
            tracing::warn!("cannot raise the limit of open files");
        }
        let descriptors = getrlimit(Resource::Nofile)
            .current
            .unwrap_or(MOST_DESCRIPTORS);
        Self {
            descriptors: usize::try_from(descriptors.min(MOST_DESCRIPTORS)).unwrap_or(usize::MAX),
        }
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

    /// Descriptors that connections do not get: listening sockets, pipes, the admin side, files.
    fn kept(&self) -> usize {
        (self.descriptors / 4).min(512)
    }

    /// How many health checks may be under way at once: when a rack is gone, each of them lasts as long as it may.
    #[must_use]
    pub fn checks(&self) -> usize {
        (self.descriptors / 20).clamp(4, 2048)
    }

    /// How many pipes each of `workers` may have; each takes two descriptors.
    #[must_use]
    pub fn pipes(&self, workers: usize) -> usize {
        self.kept() / 4 / workers.max(1)
    }

    /// How many connections fit, with the sentence that says why.
    #[must_use]
    pub fn connections(&self, memory: Option<u64>) -> (u32, String) {
        let kept = self.kept() + self.checks();
        let by_descriptors = self.descriptors.saturating_sub(kept) / 2;
        let by_memory = memory.map(|memory| memory / CONNECTION_MEMORY);
        let most = by_memory.map_or(by_descriptors, |by_memory| {
            by_descriptors.min(usize::try_from(by_memory).unwrap_or(usize::MAX))
        });
        let memory = memory.map_or_else(
            || "no limit of memory".into(),
            |memory| {
                format!(
                    "{} MiB of memory at {} KiB a connection",
                    memory >> 20,
                    CONNECTION_MEMORY >> 10
                )
            },
        );
        let why = format!(
            "{} descriptors, {kept} of them kept for listening, checks and admin, two a connection; {memory}",
            self.descriptors,
        );
        (u32::try_from(most).unwrap_or(u32::MAX).max(1), why)
    }
}

/// The memory that the process's cgroup may use; `None`: as much as there is.
#[must_use]
pub fn cgroup_memory() -> Option<u64> {
    let own = own_cgroup()?;
    let max = fs::read_to_string(format!("/sys/fs/cgroup{own}/memory.max")).ok()?;
    max.trim().parse().ok()
}

/// Cores that this process may use: by its affinity, and by its cgroup's quota.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn own_cgroup() -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(if own == "/" {
        String::new()
    } else {
        own.to_owned()
    })
}

const MOST_DESCRIPTORS: u64 = 1_048_576;
/// Two sockets with modest buffers.
const CONNECTION_MEMORY: u64 = 32 * 1024;

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
        let budget = Budget {
            descriptors: 20_000,
        };
        assert_eq!(budget.connections(None).0, 9_244);
        assert_eq!(budget.connections(Some(64 << 20)).0, 2_048);
        assert!(Budget { descriptors: 64 }.connections(None).0 >= 16);
    }
}
