//! The division of the process's descriptors.
//!
//! The process itself comes first, so that it can always read a table and report its shortage. Listening sockets may take most
//! of the rest, and connections get what these leave.

use std::fmt;

/// Descriptors by purpose. Their sum never exceeds `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// The most that may be open.
    pub total: usize,
    /// For the idle process, for reading tables, and for the connections of the admin side.
    pub reserve: usize,
    /// Health checks at once.
    pub checks: usize,
    /// Pipes of each worker. Each pipe takes two descriptors.
    pub pipes: usize,
    pub listening: usize,
    /// UDP flows of all workers.
    pub flows: usize,
    /// TCP connections. Each takes two descriptors.
    pub connections: usize,
    workers: usize,
}

impl Descriptors {
    /// The division of `total` before anything listens, with at most `max_pipes` pipes.
    pub(super) fn idle(total: usize, workers: usize, max_pipes: usize) -> Self {
        let (reserve, checks) = (reserve(total, workers), checks(total));
        let left = total.saturating_sub(reserve + checks);
        let wanted = MAX_PIPES.max(MIN_PIPES_PER_WORKER * workers);
        let pipes = wanted.min(left / 20).min(max_pipes) / workers.max(1);
        let idle = Self {
            total,
            reserve,
            checks,
            pipes,
            workers,
            ..Self::default()
        };
        idle.with_listening(0, 0)
    }

    /// The division with `listening` listening sockets and at most `max_flows` flows.
    #[must_use]
    pub fn with_listening(self, listening: usize, max_flows: usize) -> Self {
        let rest = self.for_sockets().saturating_sub(listening);
        // Flows always leave the descriptors of one connection.
        let flows = (rest.saturating_sub(PER_CONNECTION) / 2).min(max_flows);
        Self {
            listening,
            flows,
            connections: (rest - flows) / PER_CONNECTION,
            ..self
        }
    }

    /// The number of sockets for one more address while `there` sockets listen already: one for each worker while they take
    /// less than 40 % of the descriptors for sockets, then a single one, and none above 80 %.
    pub fn sockets(&self, there: usize) -> Option<usize> {
        let left = self.for_sockets();
        let most = (left * 8 / 10).clamp(1, left.saturating_sub(PER_CONNECTION).max(1));
        if there + self.workers <= left * 4 / 10 {
            Some(self.workers)
        } else if there < most {
            Some(1)
        } else {
            None
        }
    }

    /// The descriptors for listening sockets, connections and flows.
    fn for_sockets(&self) -> usize {
        let kept = self.reserve + self.checks + 2 * self.pipes * self.workers;
        self.total.saturating_sub(kept)
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            total,
            reserve,
            checks,
            listening,
            flows,
            ..
        } = self;
        let pipes = 2 * self.pipes * self.workers;
        write!(
            f,
            "{total} descriptors, of them {reserve} for the process itself, {checks} for health checks, {pipes} for pipes, {listening} listening, {flows} for UDP flows, two a connection"
        )
    }
}

/// The fewest descriptors with which one address can listen and one connection can be served.
pub(super) fn least(workers: usize) -> usize {
    let suffices = |total: &usize| {
        let idle = Descriptors::idle(*total, workers, 0);
        idle.for_sockets() > PER_CONNECTION
    };
    (IDLE + PER_WORKER * workers..)
        .find(suffices)
        .unwrap_or(usize::MAX)
}

/// What the idle process needs, and the admin side's connections in addition to those that have descriptors of their own.
fn reserve(total: usize, workers: usize) -> usize {
    IDLE + PER_WORKER * workers + (total / 64).min(MAX_ADMIN)
}

/// The most health checks at once. When a whole rack fails, each check lasts until its timeout.
pub(super) fn checks(total: usize) -> usize {
    (total / 20).clamp(MIN_CHECKS, 2048)
}

/// Counted: three standard streams; the runtimes of the main, apply, probe and admin threads; the watch of the table's folder
/// and two descriptors reserved for reading tables; the instance locks, listening sockets and eight reserved descriptors of the
/// admin side; the runtime socket; one or two log destinations.
const IDLE: usize = 40;
/// Four for a worker's runtime, and one for the epoll of its UDP flows.
const PER_WORKER: usize = 5;
/// Of the 160 connections of the admin side, those that do not fit into [`IDLE`].
const MAX_ADMIN: usize = 152;
const MIN_CHECKS: usize = 4;
/// For all workers together.
const MAX_PIPES: usize = 128;
/// For each worker, if there are many. A user without privileges gets no more pipe memory than 16 workers with this many pipes
/// need.
const MIN_PIPES_PER_WORKER: usize = 12;
/// Descriptors of a connection: one for the client's socket, one for the endpoint's.
const PER_CONNECTION: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMIT: usize = usize::MAX;

    #[test]
    fn every_descriptor_is_for_one_thing_and_the_process_comes_first() {
        // Descriptors, workers, listening, most flows; expected: reserve, checks, pipes of a worker, flows, connections.
        for (given, expected) in [
            ((64, 1, 0, 0), (46, 4, 0, 0, 7)),
            ((64, 1, 11, 0), (46, 4, 0, 0, 1)),
            ((64, 2, 1, 0), (51, 4, 0, 0, 4)),
            ((256, 2, 1, 0), (54, 12, 4, 0, 86)),
            ((1_024, 2, 100, 0), (66, 51, 22, 0, 359)),
            ((20_000, 2, 2, 0), (202, 1_000, 64, 0, 9_270)),
            ((20_000, 2, 14_000, 0), (202, 1_000, 64, 0, 2_271)),
            ((20_000, 2, 14_000, 10_000), (202, 1_000, 64, 2_270, 1_136)),
            ((20_000, 2, 2, 10_000), (202, 1_000, 64, 9_269, 4_635)),
            ((20_000, 16, 2, 0), (272, 1_000, 12, 0, 9_171)),
            ((1_048_576, 64, 2, 0), (512, 2_048, 12, 0, 522_239)),
        ] {
            let (total, workers, listening, max_flows) = given;
            let division =
                Descriptors::idle(total, workers, NO_LIMIT).with_listening(listening, max_flows);
            let Descriptors {
                reserve,
                checks,
                pipes,
                flows,
                connections,
                ..
            } = division;
            let found = (reserve, checks, pipes, flows, connections);
            assert_eq!(found, expected, "{given:?}");
        }
    }

    #[test]
    fn what_is_promised_fits_and_there_is_a_connection_however_many_listen() {
        for workers in [1, 2, 16, 64, 1_024] {
            for total in [least(workers), 64, 100, 1_000, 20_000, 1_048_576] {
                if total < least(workers) {
                    continue;
                }
                for max_flows in [0, total / 2] {
                    let idle = Descriptors::idle(total, workers, NO_LIMIT);
                    let mut listening = 0;
                    while let Some(more) = idle.sockets(listening) {
                        listening += more;
                    }
                    assert!(listening > 0, "{idle:?}");
                    let all = idle.with_listening(listening, max_flows);
                    let promised = all.reserve
                        + all.checks
                        + 2 * all.pipes * workers
                        + all.listening
                        + all.flows
                        + 2 * all.connections;
                    assert!(promised <= total, "{all:?}");
                    assert!(all.connections > 0, "{all:?}");
                }
            }
        }
    }

    #[test]
    fn addresses_get_fewer_sockets_as_descriptors_run_out() {
        let idle = Descriptors::idle(20_000, 2, NO_LIMIT);
        for (there, sockets) in [
            (0, Some(2)),
            (7_414, Some(2)),
            (7_415, Some(1)),
            (14_832, Some(1)),
            (14_833, None),
            (30_000, None),
        ] {
            assert_eq!(idle.sockets(there), sockets, "{there} are there");
        }
        let few = Descriptors::idle(least(8), 8, NO_LIMIT);
        assert_eq!((few.sockets(0), few.sockets(1)), (Some(1), None));
    }

    #[test]
    fn few_descriptors_or_little_memory_leave_no_pipes() {
        assert_eq!(Descriptors::idle(64, 1, NO_LIMIT).pipes, 0);
        assert_eq!(Descriptors::idle(20_000, 2, 8).pipes, 4);
        assert_eq!(Descriptors::idle(20_000, 2, 0).pipes, 0);
    }
}
