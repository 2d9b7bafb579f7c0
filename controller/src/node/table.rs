//! Writes the table and the files that it names, each only when it changes. The data plane reads them. Begun by `run`.
//!
//! A file is there before the table that names it, and goes after the data plane said that it serves a table without it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::Ack;
use ballast_core::table::{Log, RoutingTable, Stats};
use tokio::sync::watch;
use tokio::time::sleep;

use super::fetch::Pages;
use super::folder::{Folder, Wrote};
use crate::decide::Report;
use crate::metrics::Metrics;
use crate::reconcile::{Decision, Decisions};

/// The last tables that were written, the newest last: the label, and what the node's Lease says when it is served.
pub(crate) type Written = VecDeque<(u64, Arc<Report>)>;

/// The newest word of the data plane, if there is any.
pub(crate) type Acks = watch::Receiver<Option<Arc<Ack>>>;

/// Writes what is decided, for as long as the process lives.
#[derive(Debug)]
pub(crate) struct TableWriter {
    /// Where to.
    pub(crate) folder: Folder,
    /// Where a node that serves nothing answers for itself.
    pub(crate) stats: Stats,
    /// What is decided.
    pub(crate) decisions: Decisions,
    /// What the data plane says.
    pub(crate) acks: Acks,
    /// The pages that came.
    pub(crate) pages: watch::Receiver<Pages>,
    /// What was written, for the report.
    pub(crate) written: watch::Sender<Written>,
    /// What happens is counted here.
    pub(crate) metrics: Arc<Metrics>,
}

impl TableWriter {
    /// Runs for as long as there are decisions.
    pub(crate) async fn run(mut self) {
        loop {
            let decision = self.decisions.borrow_and_update().clone();
            let is_written = decision
                .as_ref()
                .is_none_or(|decision| self.write(decision));
            // What a flag's file holds may change, and a file that failed is tried again.
            let again = if is_written { LOOK_EVERY } else { RETRY_EVERY };
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
                () = sleep(again), if decision.is_some() => {}
            }
            let ack = self.acks.borrow_and_update().clone();
            let served = ack.and_then(|ack| ack.served.as_ref()?.generation);
            self.folder.acknowledged(served);
        }
    }

    /// Whether the table is as decided.
    fn write(&mut self, decision: &Decision) -> bool {
        let desired = &decision.desired;
        let table = match &desired.table {
            Some(table) => table,
            None => &Arc::new(nothing(&self.stats)),
        };
        let (folder, pages) = (&mut self.folder, self.pages.borrow_and_update());
        // Files are small and tables are few: the other tasks have a thread of their own.
        let wrote = tokio::task::block_in_place(|| {
            folder.write(table, &desired.files, &decision.observed.secrets, &pages)
        });
        drop(pages);
        for _ in 0..self.folder.failing() {
            self.metrics.write_failed();
        }
        match wrote {
            Ok(Wrote::Nothing) => {
                self.remember(&desired.report);
                true
            }
            Ok(Wrote::Files) => {
                self.metrics.files_written();
                self.remember(&desired.report);
                true
            }
            Ok(Wrote::Table { bytes }) => {
                self.metrics.table_written(bytes);
                tracing::info!(
                    generation = self.folder.generation(),
                    frontends = table.frontends.len(),
                    services = table.services.len(),
                    bytes,
                    "wrote the table"
                );
                self.remember(&desired.report);
                true
            }
            Err(error) => {
                self.metrics.write_failed();
                tracing::error!(%error, "cannot write the table");
                false
            }
        }
    }

    /// Says which table is there now, and what it means.
    fn remember(&self, report: &Arc<Report>) {
        let generation = self.folder.generation();
        self.written.send_if_modified(|written| {
            match written.back_mut() {
                Some((newest, known)) if *newest == generation => {
                    if known == report {
                        return false;
                    }
                    *known = Arc::clone(report);
                }
                _ => {
                    if written.len() == REMEMBERED {
                        written.pop_front();
                    }
                    written.push_back((generation, Arc::clone(report)));
                }
            }
            true
        });
    }
}

/// The table of a node that is no load balancer: everything that it served is closed, and it says that it is well.
fn nothing(stats: &Stats) -> RoutingTable {
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
