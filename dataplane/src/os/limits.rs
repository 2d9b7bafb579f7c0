//! The limits of the process (descriptors, memory, cores), and how they are divided.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

mod descriptors;
mod memory;

pub use descriptors::Descriptors;
pub use memory::{Buffers, Memory, cgroup_memory};

/// The descriptors of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The most that may be open.
    pub descriptors: usize,
}

impl Budget {
    /// Raises the soft limit to the hard limit. At most a million descriptors are counted, because some hosts have no limit.
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

    /// The limit in force, without raising it.
    pub fn in_force() -> Self {
        let descriptors = getrlimit(Resource::Nofile)
            .current
            .unwrap_or(MAX_DESCRIPTORS);
        Self {
            descriptors: usize::try_from(descriptors.min(MAX_DESCRIPTORS)).unwrap_or(usize::MAX),
        }
    }

    /// Returns an error if not even one connection could be served with these descriptors.
    pub fn suffices(&self, workers: usize) -> io::Result<()> {
        let needed = descriptors::least(workers);
        if self.descriptors >= needed {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} descriptors are too few for {workers} workers, which need {needed}; raise the limit (ulimit -n), or lower --threads",
            self.descriptors
        )))
    }

    /// The most health checks at once. When a whole rack fails, each check lasts until its timeout.
    pub fn checks(&self) -> usize {
        descriptors::checks(self.descriptors)
    }

    /// The most UDP flows of each of `workers`. Each flow takes a descriptor; together they may take half of all descriptors.
    pub fn flows(&self, workers: usize) -> usize {
        (self.descriptors / 2 / workers.max(1)).max(1)
    }
}

/// The limits of the process for its whole life, and what follows from them.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub budget: Budget,
    pub workers: usize,
    /// Its memory, if it is limited.
    pub memory: Option<Memory>,
    /// The limit of connections on the command line, if there is one.
    pub configured: Option<u32>,
}

impl Room {
    /// `memory`: the limit in bytes, if there is one. `configured`: the limit of connections on the command line, if there is one.
    pub fn new(
        budget: Budget,
        workers: usize,
        memory: Option<u64>,
        configured: Option<u32>,
    ) -> Self {
        Self {
            budget,
            workers,
            memory: memory.map(|limit| Memory::divide(limit, configured)),
            configured,
        }
    }

    /// The division of the descriptors before anything listens.
    #[must_use]
    pub fn at_rest(&self) -> Descriptors {
        let max_pipes = self.memory.map_or(usize::MAX, |memory| memory.pipes);
        Descriptors::idle(self.budget.descriptors, self.workers, max_pipes)
    }

    /// The division with `listening` listening sockets. `has_udp`: some of these sockets are UDP sockets.
    #[must_use]
    pub fn with_listening(&self, listening: usize, has_udp: bool) -> Descriptors {
        let max_flows = self.memory.map_or(usize::MAX, |memory| memory.flows);
        let max_flows = if has_udp {
            max_flows.min(self.budget.flows(self.workers) * self.workers)
        } else {
            0
        };
        self.at_rest().with_listening(listening, max_flows)
    }

    /// The most connections at once: the limit on the command line, else as many as fit.
    pub fn connections(&self, descriptors: &Descriptors) -> u32 {
        self.configured.unwrap_or_else(|| self.fit(descriptors))
    }

    /// The number of connections that fit into this division and into memory. At least one: a process that serves no client has no
    /// use.
    fn fit(&self, descriptors: &Descriptors) -> u32 {
        let by_descriptors = u32::try_from(descriptors.connections).unwrap_or(u32::MAX);
        let by_memory = self.memory.map_or(u32::MAX, |memory| memory.connections);
        by_descriptors.min(by_memory).max(1)
    }

    /// Logs the limit of connections, and its reason.
    pub fn log(&self, descriptors: &Descriptors) {
        let (fit, why) = (self.fit(descriptors), self.explain(descriptors));
        match self.configured {
            None => tracing::info!("at most {fit} connections: {why}"),
            Some(configured) if configured <= fit => {
                tracing::info!("at most {configured} connections, as told; {fit} fit: {why}");
            }
            Some(configured) => tracing::warn!(
                "at most {configured} connections, as told, but only {fit} fit: {why}; raise these limits, or lower --max-connections"
            ),
        }
    }

    fn explain(&self, descriptors: &Descriptors) -> String {
        let Some(memory) = self.memory else {
            return format!("{descriptors}; no limit of memory");
        };
        let Buffers { socket, .. } = memory.buffers;
        format!(
            "{descriptors}; {} MiB of memory, five sixteenths of it for tables and UDP flows, {} KiB a connection when neither side reads, with socket buffers set to {} KiB",
            memory.limit >> 20,
            memory.per_connection >> 10,
            socket >> 10,
        )
    }
}

/// The number of cores that this process may use: by its affinity, and by the quotas of its cgroup and of the cgroups above it.
/// The standard library reads both versions of cgroups.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

const MAX_DESCRIPTORS: u64 = 1_048_576;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_descriptors_and_memory() {
        for (descriptors, workers, memory, listening, fit) in [
            (20_000, 2, None, 0, 9_271),
            (20_000, 2, None, 14_000, 2_271),
            (20_000, 2, Some(64 << 20), 0, 256),
            (20_000, 2, Some(1 << 40), 0, 9_271),
            (256, 2, None, 1, 86),
            (64, 2, None, 1, 4),
            (64, 2, Some(0), 1, 1),
        ] {
            let room = Room::new(Budget { descriptors }, workers, memory, None);
            let division = room.with_listening(listening, false);
            let found = room.connections(&division);
            assert_eq!(found, fit, "{}", room.explain(&division));
        }
    }

    #[test]
    fn the_configured_limit_holds() {
        let budget = Budget { descriptors: 64 };
        for configured in [1, 4, 1_000] {
            let room = Room::new(budget, 2, None, Some(configured));
            assert_eq!(room.connections(&room.with_listening(1, false)), configured);
        }
    }

    #[test]
    fn flows_fit_into_descriptors_and_memory() {
        let budget = Budget {
            descriptors: 20_000,
        };
        for (memory, has_udp, flows) in [
            (None, true, 9_270),
            (None, false, 0),
            (Some(64 << 20), true, 1_024),
        ] {
            let room = Room::new(budget, 2, memory, None);
            assert_eq!(room.with_listening(0, has_udp).flows, flows, "{memory:?}");
        }
    }

    #[test]
    fn too_few_descriptors_are_said_with_a_remedy() {
        let few = Budget { descriptors: 56 };
        let words = few.suffices(2).unwrap_err().to_string();
        assert!(words.contains("need 57; raise the limit"), "{words}");
        few.suffices(1).unwrap();
        Budget { descriptors: 57 }.suffices(2).unwrap();
    }
}
