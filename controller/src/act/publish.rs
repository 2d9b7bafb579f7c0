//! Writes the table and the files that it names, each only when it changes. The data plane reads them.
//!
//! A file is there before the table that names it, and goes after the data plane said that it serves a table without it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::Ack;
use ballast_core::table::{Bind, List, OrOff, RoutingTable, Stats};
use tokio::sync::watch;
use tokio::time::sleep;

use super::fetch::Pages;
use super::folder::{Folder, Wrote};
use super::{Decision, Decisions};
use crate::decide::served;
use crate::metrics::Metrics;

/// The last tables that were written, the newest last: the label, and the hash of what such a table listens at.
pub(crate) type Written = VecDeque<(u64, String)>;

/// The newest word of the data plane, if there is any.
pub(crate) type Acks = watch::Receiver<Option<Arc<Ack>>>;

/// Writes what is decided, for as long as the process lives.
#[derive(Debug)]
pub(crate) struct Publish {
    /// Where to.
    pub(crate) folder: Folder,
    /// The admin port of a node that serves nothing.
    pub(crate) stats_port: u16,
    /// What is decided.
    pub(crate) decisions: Decisions,
    /// What the data plane says.
    pub(crate) acks: Acks,
    /// What was written, for the report.
    pub(crate) written: watch::Sender<Written>,
    /// What happens is counted here.
    pub(crate) metrics: Arc<Metrics>,
}

impl Publish {
    /// Never returns while anybody decides.
    pub(crate) async fn run(mut self) {
        let mut pages = Pages::default();
        self.tell();
        loop {
            let decision = self.decisions.borrow_and_update().clone();
            let mut is_whole = true;
            if let Some(decision) = &decision {
                is_whole = pages.fetch(&decision.desired.files).await;
                is_whole &= self.write(decision, &pages).await;
            }
            // What a flag's file holds may change, and what failed is tried again.
            let again = if is_whole { LOOK_EVERY } else { RETRY_EVERY };
            tokio::select! {
                changed = self.decisions.changed() => if changed.is_err() {
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

    async fn write(&mut self, decision: &Decision, pages: &Pages) -> bool {
        let desired = Arc::clone(&decision.desired);
        let table = match &desired.table {
            Some(table) => table,
            None => &Arc::new(nothing(self.stats_port)),
        };
        let folder = &mut self.folder;
        // Files are small and tables are few: the other tasks have a thread of their own.
        let wrote = tokio::task::block_in_place(|| {
            folder.write(table, &desired.files, &decision.observed.secrets, pages)
        });
        match wrote {
            Ok(Wrote::Nothing) => true,
            Ok(Wrote::Files) => {
                self.metrics.files_written();
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
                self.tell();
                true
            }
            Err(error) => {
                self.metrics.write_failed();
                tracing::error!(%error, "cannot write the table");
                false
            }
        }
    }

    /// Says which table is there now.
    fn tell(&self) {
        let Some((generation, table)) = self.folder.table() else {
            return;
        };
        let hash = served(table);
        self.written.send_modify(|written| {
            if written.len() == REMEMBERED {
                written.pop_front();
            }
            written.push_back((generation, hash));
        });
    }
}

/// The table of a node that is no load balancer: everything that it served is closed, and it says that it is well.
fn nothing(stats_port: u16) -> RoutingTable {
    RoutingTable {
        version: 1,
        generation: None,
        stats: Stats {
            bind: Some(List::new(vec![Bind::Any { port: stats_port }])),
            healthz: OrOff::Off,
        },
        log: ballast_core::table::Log::absent(),
        ticket_keys: None,
        frontends: Vec::new(),
        services: Vec::new(),
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(5);
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// The data plane is rarely more than one table behind.
const REMEMBERED: usize = 32;
