//! Writes the table and the files that it names, each only when it changes. The data plane reads them. Started by `run`.
//!
//! A file is written before the table that names it, and removed after the data plane has acknowledged a table without it. The
//! announcer's file is written before the table, which waits until the addresses that this node gives away are on other nodes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballast_announce::ack as announcer;
use ballast_core::ack::Ack;
use ballast_core::table::{Log, RoutingTable, Stats};
use tokio::sync::watch;
use tokio::time::sleep;

use super::announcer::Announcer;
use super::fetch::Pages;
use super::folder::{Folder, Wrote};
use crate::decide::Report;
use crate::lease::Versions;
use crate::metrics::Metrics;
use crate::reconcile::{Decision, Decisions};

/// The last tables that were written, the newest last.
pub(crate) type Written = VecDeque<WrittenTable>;

/// A table that was written, and what the node's Lease says once it is served.
#[derive(Clone, Debug)]
pub(crate) struct WrittenTable {
    pub(crate) generation: u64,
    pub(crate) report: Arc<Report>,
    /// The newest versions of Services that are in the table.
    pub(crate) versions: Versions,
}

/// The newest ack of the data plane, if there is one.
pub(crate) type Acks = watch::Receiver<Option<Arc<Ack>>>;

/// Writes the table of every decision.
#[derive(Debug)]
pub(crate) struct TableWriter {
    pub(crate) folder: Folder,
    /// The stats address of a node that serves nothing.
    pub(crate) stats: Stats,
    pub(crate) decisions: Decisions,
    pub(crate) acks: Acks,
    pub(crate) pages: watch::Receiver<Pages>,
    /// The tables that were written, for the node's Lease.
    pub(crate) written: watch::Sender<Written>,
    /// What writes the announcer's file, where there is an announcer.
    pub(crate) announcer: Option<Announcer>,
    /// The newest ack of the announcer.
    pub(crate) announced: watch::Receiver<Option<Arc<announcer::Ack>>>,
    pub(crate) metrics: Arc<Metrics>,
}

impl TableWriter {
    /// Runs until the reconcile loop ends.
    pub(crate) async fn run(mut self) {
        loop {
            let decision = self.decisions.borrow_and_update().clone();
            let again = decision.as_ref().map_or(LOOK_EVERY, |one| self.write(one));
            tokio::select! {
                changed = self.decisions.changed() => if changed.is_err() {
                    return;
                },
                changed = self.pages.changed() => if changed.is_err() {
                    return;
                },
                changed = self.acks.changed() => if changed.is_err() {
                    return;
                },
                Ok(()) = self.announced.changed() => {}
                () = sleep(again), if decision.is_some() => {}
            }
            let ack = self.acks.borrow().clone();
            let served = ack.and_then(|ack| ack.served.as_ref()?.generation);
            self.folder.acknowledged(served);
        }
    }

    /// Writes what a decision asks for. Returns the time after which that is done again at the latest: a file that a flag names may change,
    /// and a write that failed is tried again.
    fn write(&mut self, decision: &Decision) -> Duration {
        // An address is announced once the data plane has acknowledged its port.
        let ack = self.acks.borrow_and_update().clone();
        let announced = self.announced.borrow_and_update().clone();
        let mut is_announced = true;
        if let Some(announcer) = &mut self.announcer {
            is_announced = announcer.write(decision, ack.as_ref());
            // A port is closed once clients find its address on another node.
            let wait = announcer.wait(announced.as_deref(), Instant::now());
            if !wait.is_zero() {
                return wait;
            }
        }
        match self.write_table(decision) && is_announced {
            true => LOOK_EVERY,
            false => RETRY_EVERY,
        }
    }

    /// Writes the table of a decision. Returns whether that succeeded.
    fn write_table(&mut self, decision: &Decision) -> bool {
        let desired = &decision.desired;
        let table = match &desired.table {
            Some(table) => table,
            None => &Arc::new(empty_table(&self.stats)),
        };
        let (folder, pages) = (&mut self.folder, self.pages.borrow_and_update());
        // Files are small, tables are few, and other tasks run on the other thread.
        let wrote = tokio::task::block_in_place(|| {
            folder.write(table, &desired.files, &decision.observed.secrets, &pages)
        });
        drop(pages);
        let failing = u64::try_from(self.folder.failing()).unwrap_or(u64::MAX);
        self.metrics.failed_writes.inc_by(failing);
        match wrote {
            Ok(Wrote::Nothing) => {}
            Ok(Wrote::Files) => self.metrics.files.inc(),
            Ok(Wrote::Table { bytes }) => {
                self.metrics.table_written(bytes);
                tracing::info!(
                    generation = self.folder.generation(),
                    frontends = table.frontends.len(),
                    services = table.services.len(),
                    bytes,
                    "wrote the table"
                );
            }
            Err(error) => {
                self.metrics.failed_writes.inc();
                tracing::error!(%error, "cannot write the table");
                return false;
            }
        }
        if let Some(announcer) = &mut self.announcer {
            announcer.wrote(self.folder.generation(), table);
        }
        self.remember(&desired.report, &decision.observed.versions);
        true
    }

    /// Adds the newest table to the written ones.
    fn remember(&self, report: &Arc<Report>, versions: &Versions) {
        let table = WrittenTable {
            generation: self.folder.generation(),
            report: Arc::clone(report),
            versions: versions.clone(),
        };
        self.written.send_if_modified(|written| {
            match written.back_mut() {
                Some(newest) if newest.generation == table.generation => {
                    if newest.report == table.report && newest.versions == table.versions {
                        return false;
                    }
                    *newest = table;
                }
                _ => {
                    if written.len() == REMEMBERED {
                        written.pop_front();
                    }
                    written.push_back(table);
                }
            }
            true
        });
    }
}

/// The table of a node that is no load balancer: every frontend is closed, and the stats address still answers.
fn empty_table(stats: &Stats) -> RoutingTable {
    RoutingTable {
        version: 1,
        generation: None,
        stats: stats.clone(),
        log: Log::default(),
        ticket_keys: None,
        frontends: Vec::new(),
        services: Vec::new(),
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(5);
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// The data plane is rarely more than one table behind.
const REMEMBERED: usize = 32;
