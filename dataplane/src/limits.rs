//! What the process may use: descriptors, memory, cores; and how much of it is for what.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

mod descriptors;
mod memory;

pub use descriptors::Descriptors;
pub use memory::{Buffers, Memory, cgroup_memory};

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
        let needed = descriptors::least(workers);
        if self.descriptors >= needed {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} descriptors are too few for {workers} workers, which need {needed}; raise the limit (ulimit -n), or lower --threads",
            self.descriptors
        )))
    }

    /// How many health checks may be under way at once: when a rack is gone, each of them lasts as long as it may.
    #[must_use]
    pub fn checks(&self) -> usize {
        descriptors::checks(self.descriptors)
    }

    /// How many UDP flows each of `workers` may have; each takes a descriptor, and together they get half of all.
    #[must_use]
    pub fn flows(&self, workers: usize) -> usize {
        (self.descriptors / 2 / workers.max(1)).max(1)
    }
}

/// What the process may use as long as it lives, and what follows from that.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Its descriptors.
    pub budget: Budget,
    /// Its workers.
    pub workers: usize,
    /// Its memory, if that is limited.
    pub memory: Option<Memory>,
    /// How many connections the command line allows, if it says so.
    pub told: Option<u32>,
}

impl Room {
    /// With so many workers, so many bytes of memory if there is a limit, and a limit of connections if one was told.
    #[must_use]
    pub fn new(budget: Budget, workers: usize, memory: Option<u64>, told: Option<u32>) -> Self {
        Self {
            budget,
            workers,
            memory: memory.map(|limit| Memory::divide(limit, told)),
            told,
        }
    }

    /// The division of the descriptors before anything listens.
    #[must_use]
    pub fn at_rest(&self) -> Descriptors {
        let most_pipes = self.memory.map_or(usize::MAX, |memory| memory.pipes);
        Descriptors::at_rest(self.budget.descriptors, self.workers, most_pipes)
    }

    /// The division beside so many listening sockets, some of them for UDP or not.
    #[must_use]
    pub fn beside(&self, listening: usize, has_udp: bool) -> Descriptors {
        let most_flows = self.memory.map_or(usize::MAX, |memory| memory.flows);
        let most_flows = match has_udp {
            true => most_flows.min(self.budget.flows(self.workers) * self.workers),
            false => 0,
        };
        self.at_rest().beside(listening, most_flows)
    }

    /// How many connections may be served at once: as many as was told, else as many as fit.
    #[must_use]
    pub fn connections(&self, descriptors: &Descriptors) -> u32 {
        self.told.unwrap_or_else(|| self.fit(descriptors))
    }

    /// How many connections fit into this division, and into memory. Never none: with nobody to serve there is no use in
    /// anything else.
    fn fit(&self, descriptors: &Descriptors) -> u32 {
        let by_descriptors = u32::try_from(descriptors.connections).unwrap_or(u32::MAX);
        let by_memory = self.memory.map_or(u32::MAX, |memory| memory.connections);
        by_descriptors.min(by_memory).max(1)
    }

    /// Logs how many connections there may be, and why.
    pub fn say(&self, descriptors: &Descriptors) {
        let (fit, why) = (self.fit(descriptors), self.why(descriptors));
        match self.told {
            None => tracing::info!("at most {fit} connections: {why}"),
            Some(told) if told <= fit => {
                tracing::info!("at most {told} connections, as told; {fit} fit: {why}");
            }
            Some(told) => tracing::warn!(
                "at most {told} connections, as told, but only {fit} fit: {why}; raise these limits, or lower --max-connections"
            ),
        }
    }

    fn why(&self, descriptors: &Descriptors) -> String {
        let Some(memory) = self.memory else {
            return format!("{descriptors}; no limit of memory");
        };
        let Buffers { socket, .. } = memory.buffers;
        format!(
            "{descriptors}; {} MiB of memory, five sixteenths of it for tables and UDP flows, {} KiB a connection when neither side reads, with socket buffers set to {} KiB",
            memory.limit >> 20,
            memory.a_connection >> 10,
            socket >> 10,
        )
    }
}

/// Cores that this process may use: by its affinity, and by the quota of its cgroup and of those above it, of either
/// version, which the standard library looks up.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

const MOST_DESCRIPTORS: u64 = 1_048_576;

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
            let division = room.beside(listening, false);
            let found = room.connections(&division);
            assert_eq!(found, fit, "{}", room.why(&division));
        }
    }

    #[test]
    fn what_was_told_is_what_holds() {
        let budget = Budget { descriptors: 64 };
        for told in [1, 4, 1_000] {
            let room = Room::new(budget, 2, None, Some(told));
            assert_eq!(room.connections(&room.beside(1, false)), told);
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
            assert_eq!(room.beside(0, has_udp).flows, flows, "{memory:?}");
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
