//! What udp frontends count beside what all frontends do: datagrams, and how flows end.
//!
//! Read by the observer from the workers' cells.

use ballast_core::flow::{Dropped, FlowEnd};
use ballast_core::plan::{FrontendState, Plan};

/// Flows of datagrams now.
pub(crate) fn flows(plan: &Plan) -> u32 {
    let frontends = plan.frontends().iter();
    let of_datagrams = frontends.filter(|frontend| frontend.spec().protocol.is_udp());
    of_datagrams
        .map(|frontend| frontend.state().admit().current())
        .fold(0, u32::saturating_add)
}

/// Of one frontend. Live flows are its sessions, and flows created all its sessions; its bytes are of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Of clients, passed on.
    pub from_clients: u64,
    /// Of endpoints, passed on.
    pub to_clients: u64,
    /// Of clients, not passed on, by [`Dropped::index`].
    pub dropped: [u64; Dropped::ALL.len()],
    /// Of clients, dropped by the kernel because they came faster than they were read.
    pub kernel_drops: u64,
    /// In either direction, not taken by the kernel.
    pub unsent: u64,
    /// Flows that are over, by [`FlowEnd::index`].
    pub ended: [u64; FlowEnd::ALL.len()],
}

impl Datagrams {
    /// What all workers have counted.
    pub(super) fn of(state: &FrontendState) -> Self {
        let mut sum = Self::default();
        for cells in state
            .all_udp_counters()
            .into_iter()
            .flat_map(|all| all.each())
        {
            sum.from_clients += cells.datagrams_in.value();
            sum.to_clients += cells.datagrams_out.value();
            sum.kernel_drops += cells.kernel_drops.value();
            sum.unsent += cells.unsent.value();
            for (sum, cell) in sum.dropped.iter_mut().zip(&cells.dropped) {
                *sum += cell.value();
            }
            for (sum, cell) in sum.ended.iter_mut().zip(&cells.ended) {
                *sum += cell.value();
            }
        }
        sum
    }

    /// What came since `cleared`.
    pub(super) fn since(&self, cleared: &Self) -> Self {
        let mut since = Self {
            from_clients: self.from_clients.saturating_sub(cleared.from_clients),
            to_clients: self.to_clients.saturating_sub(cleared.to_clients),
            kernel_drops: self.kernel_drops.saturating_sub(cleared.kernel_drops),
            unsent: self.unsent.saturating_sub(cleared.unsent),
            ..*self
        };
        for (count, cleared) in since.dropped.iter_mut().zip(cleared.dropped) {
            *count = count.saturating_sub(cleared);
        }
        for (count, cleared) in since.ended.iter_mut().zip(cleared.ended) {
            *count = count.saturating_sub(cleared);
        }
        since
    }

    /// How many were dropped for this reason.
    #[must_use]
    pub fn dropped(&self, why: Dropped) -> u64 {
        self.dropped.get(why.index()).copied().unwrap_or(0)
    }

    /// How many flows ended for this reason.
    #[must_use]
    pub fn ended(&self, why: FlowEnd) -> u64 {
        self.ended.get(why.index()).copied().unwrap_or(0)
    }

    /// Those of clients that were not let in.
    #[must_use]
    pub fn denied(&self) -> u64 {
        self.dropped(Dropped::SourceRange) + self.dropped(Dropped::MaxConnections)
    }

    /// All that did not arrive where they should.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.dropped.iter().sum::<u64>() + self.kernel_drops + self.unsent
    }

    /// Each reason for which any were lost, and how many.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let dropped = Dropped::ALL.map(|why| (why.word(), self.dropped(why)));
        let others = [("kernel", self.kernel_drops), ("unsent", self.unsent)];
        let all = dropped.into_iter().chain(others);
        all.filter(|(_, count)| *count > 0)
    }

    /// Each reason for which flows have ended, and how many.
    pub(crate) fn endings(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let ended = FlowEnd::ALL.map(|why| (why.word(), self.ended(why)));
        ended.into_iter().filter(|(_, count)| *count > 0)
    }
}
