//! How the descriptors of the process are divided.
//!
//! The process itself comes first, so that it can always read a table and say what it lacks. Listening sockets may take most
//! of the rest, and the connections get what these leave.

use std::fmt;

/// Descriptors by what they are for. All of them together are never more than `total`, whatever listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// As many as may be open.
    pub total: usize,
    /// For the process at rest, for reading tables, and for the admin side's connections.
    pub reserve: usize,
    /// Health checks that may be under way at once.
    pub checks: usize,
    /// Pipes that each worker may have; each takes two descriptors.
    pub pipes: usize,
    /// Sockets that listen.
    pub listening: usize,
    /// UDP flows of all workers.
    pub flows: usize,
    /// TCP connections; each takes two descriptors.
    pub connections: usize,
    workers: usize,
}

impl Descriptors {
    /// The division of `total` before anything listens. At most so many pipes.
    pub(super) fn at_rest(total: usize, workers: usize, most_pipes: usize) -> Self {
        let (reserve, checks) = (reserve(total, workers), checks(total));
        let left = total.saturating_sub(reserve + checks);
        let wanted = MOST_PIPES.max(LEAST_PIPES * workers);
        let pipes = wanted.min(left / 20).min(most_pipes) / workers.max(1);
        let at_rest = Self {
            total,
            reserve,
            checks,
            pipes,
            workers,
            ..Self::default()
        };
        at_rest.beside(0, 0)
    }

    /// The same beside so many listening sockets, with at most so many flows.
    #[must_use]
    pub fn beside(self, listening: usize, most_flows: usize) -> Self {
        let rest = self.for_sockets().saturating_sub(listening);
        // Flows leave the descriptors of one connection, however few there are.
        let flows = (rest.saturating_sub(A_CONNECTION) / 2).min(most_flows);
        Self {
            listening,
            flows,
            connections: (rest - flows) / A_CONNECTION,
            ..self
        }
    }

    /// How many sockets one more address gets while `there` are listening already: one a worker as long as they take less than
    /// 40 % of what is left for sockets, then a single one, and above 80 % none.
    #[must_use]
    pub fn sockets(&self, there: usize) -> Option<usize> {
        let left = self.for_sockets();
        let most = (left * 8 / 10).clamp(1, left.saturating_sub(A_CONNECTION).max(1));
        if there + self.workers <= left * 4 / 10 {
            Some(self.workers)
        } else if there < most {
            Some(1)
        } else {
            None
        }
    }

    /// What is left for listening sockets, connections and flows.
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

/// The fewest descriptors with which one address can be listened at and one connection served.
pub(super) fn least(workers: usize) -> usize {
    let suffices = |total: &usize| {
        let at_rest = Descriptors::at_rest(*total, workers, 0);
        at_rest.for_sockets() > A_CONNECTION
    };
    (AT_REST + EACH_WORKER * workers..)
        .find(suffices)
        .unwrap_or(usize::MAX)
}

/// What the process needs when it serves nobody, and the admin side's connections beside those that have a reserve there.
fn reserve(total: usize, workers: usize) -> usize {
    AT_REST + EACH_WORKER * workers + (total / 64).min(MOST_ADMIN)
}

/// How many health checks may be under way at once: when a rack is gone, each of them lasts as long as it may.
pub(super) fn checks(total: usize) -> usize {
    (total / 20).clamp(LEAST_CHECKS, 2048)
}

/// As counted: three standard streams; the runtimes of the main, the apply, the probe and the admin thread; the watch of the
/// table's folder and two kept for reading tables; the guards, listening sockets and eight kept descriptors of the admin side;
/// the runtime socket; a log destination or two.
const AT_REST: usize = 40;
/// A worker's runtime has four, and one that watches its UDP flows.
const EACH_WORKER: usize = 5;
/// Of the 160 connections that the admin side may have, those that do not fit into [`AT_REST`].
const MOST_ADMIN: usize = 152;
const LEAST_CHECKS: usize = 4;
/// Of all workers.
const MOST_PIPES: usize = 128;
/// Of each worker, where there are many: a user without privileges gets no more memory for pipes than 16 workers with as many
/// need.
const LEAST_PIPES: usize = 12;
/// Descriptors of a connection: its client's, its endpoint's.
const A_CONNECTION: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMIT: usize = usize::MAX;

    #[test]
    fn every_descriptor_is_for_one_thing_and_the_process_comes_first() {
        // Descriptors, workers, listening, most flows; reserve, checks, pipes a worker, flows, connections.
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
            let (total, workers, listening, most_flows) = given;
            let division =
                Descriptors::at_rest(total, workers, NO_LIMIT).beside(listening, most_flows);
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
                for most_flows in [0, total / 2] {
                    let at_rest = Descriptors::at_rest(total, workers, NO_LIMIT);
                    let mut listening = 0;
                    while let Some(more) = at_rest.sockets(listening) {
                        listening += more;
                    }
                    assert!(listening > 0, "{at_rest:?}");
                    let all = at_rest.beside(listening, most_flows);
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
        let at_rest = Descriptors::at_rest(20_000, 2, NO_LIMIT);
        for (there, sockets) in [
            (0, Some(2)),
            (7_414, Some(2)),
            (7_415, Some(1)),
            (14_832, Some(1)),
            (14_833, None),
            (30_000, None),
        ] {
            assert_eq!(at_rest.sockets(there), sockets, "{there} are there");
        }
        let few = Descriptors::at_rest(least(8), 8, NO_LIMIT);
        assert_eq!((few.sockets(0), few.sockets(1)), (Some(1), None));
    }

    #[test]
    fn few_descriptors_or_little_memory_leave_no_pipes() {
        assert_eq!(Descriptors::at_rest(64, 1, NO_LIMIT).pipes, 0);
        assert_eq!(Descriptors::at_rest(20_000, 2, 8).pipes, 4);
        assert_eq!(Descriptors::at_rest(20_000, 2, 0).pipes, 0);
    }
}
