//! The single writer: look -> parse -> compile -> put in force -> answer.
//!
//! Runs on a thread of its own, at a lower priority than the workers. Whatever is wrong with a table, what is served stays as it is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::ack::{Exception, Refused, Served};
use ballast_core::change::{GoneEndpoint, change};
use ballast_core::compile::{Surroundings, compile, revise};
use ballast_core::loops::Here;
use ballast_core::overrides::Overrides;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{self, OnGone, Problem, Problems, RoutingTable};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::admin::{Places, Wish};
use crate::by_hand::{Changes, Unchanged};
use crate::intake::{Found, Intake, Text, Which, named};
use crate::listen;
use crate::panics;
use crate::worker::{Order, Shared};

mod answer;
mod exceptions;
mod sockets;

use answer::Answer;
use sockets::Sockets;

/// What the writer is to do, for as long as the process lives.
#[derive(Debug)]
pub(crate) struct Duty {
    pub(crate) table: PathBuf,
    pub(crate) ack: Option<PathBuf>,
    pub(crate) instance: String,
    pub(crate) rng: Rng,
    /// What the command line says of the admin side.
    pub(crate) places: Places,
    /// Where the admin side hears what the table says of it.
    pub(crate) admin: watch::Sender<Option<Wish>>,
    /// What operators change by hand.
    pub(crate) by_hand: mpsc::UnboundedReceiver<Changes>,
}

/// The writer.
#[derive(Debug)]
pub(crate) struct Apply {
    shared: Arc<Shared>,
    intake: Intake,
    sockets: Sockets,
    answer: Answer,
    retired: Vec<Arc<Plan>>,
    rng: Rng,
    ipv6: bool,
    /// As last looked at.
    here: Here,
    places: Places,
    admin: watch::Sender<Option<Wish>>,
    by_hand: mpsc::UnboundedReceiver<Changes>,
    nothing: Option<String>,
    /// The table does not parse; by then the rest of it may be there.
    doubted_until: Option<Instant>,
}

impl Apply {
    /// Within a runtime only.
    pub(crate) fn new(shared: Arc<Shared>, duty: Duty) -> Self {
        Self {
            intake: Intake::new(duty.table),
            sockets: Sockets::new(Arc::clone(&shared)),
            answer: Answer::new(duty.instance, duty.ack),
            shared,
            retired: Vec::new(),
            rng: duty.rng,
            ipv6: listen::has_ipv6(),
            here: Here::default(),
            places: duty.places,
            admin: duty.admin,
            by_hand: duty.by_hand,
            nothing: None,
            doubted_until: None,
        }
    }

    /// Applies tables until `stop`, then closes all sockets.
    pub(crate) async fn run(mut self, reread: Arc<Notify>, stop: CancellationToken) {
        let mut anyhow = false;
        let mut retry = Instant::now() + RETRY_EVERY;
        loop {
            let again = self.look(anyhow).await;
            if anyhow {
                self.answer.mend();
            }
            anyhow &= again.is_some();
            self.free_retired();
            let tidy = if self.retired.is_empty() {
                RETRY_EVERY
            } else {
                TIDY_EVERY
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.intake.changed() => {}
                () = reread.notified() => anyhow = true,
                Some(changes) = self.by_hand.recv() => self.revise(changes, revise).await,
                () = sleep(again.unwrap_or(tidy)) => {}
                () = sleep_until(retry) => {
                    retry = Instant::now() + RETRY_EVERY;
                    self.retry().await;
                }
            }
        }
        let plan = self.shared.live.plan();
        self.sockets.finish(&plan).await;
    }

    /// Looks whether there is another table, and puts it in force. Says after how long to look again, if what is there is
    /// to be left alone for so long.
    async fn look(&mut self, anyhow: bool) -> Option<Duration> {
        let began = Instant::now();
        let second_look = self
            .doubted_until
            .take_if(|until| *until <= began)
            .is_some();
        let which = match (anyhow, second_look) {
            (true, _) => Which::Any,
            (false, true) => Which::Other,
            (false, false) => Which::Changed,
        };
        let text = match self.intake.read(which) {
            Ok(Found::Text(text)) => text,
            Ok(Found::Unfinished(rest)) => return Some(rest),
            Ok(Found::Nothing) => return self.doubted_until.map(|until| until - began),
            Err(nothing) => {
                if anyhow || self.nothing.as_ref() != Some(&nothing) {
                    tracing::warn!("no table: {nothing}");
                    self.nothing = Some(nothing);
                }
                return None;
            }
        };
        self.nothing = None;
        let parsed = panics::survived(|| table::parse(&text.bytes, text.format))
            .unwrap_or_else(|| Err(fault_of_ours(None)));
        let is_half = parsed.as_ref().is_err_and(Problems::not_whole);
        self.doubted_until = (is_half && !second_look && !anyhow).then(|| began + HALF_WRITTEN);
        match parsed {
            Ok(table) => {
                let digest = self.note(&text, &table);
                self.apply(table, digest, began, anyhow).await;
            }
            Err(_) if self.doubted_until.is_some() => return Some(HALF_WRITTEN),
            Err(problems) => {
                let digest = self.intake.note(&text, Vec::new());
                self.refuse(&problems, digest, anyhow);
            }
        }
        None
    }

    /// Notes what was read, with the files that it names, and looks whether they are there.
    fn note(&mut self, text: &Text, table: &RoutingTable) -> String {
        let folder = self.intake.folder();
        let files = table::files(table);
        let named = files.iter().map(|(_, file)| folder.join(file)).collect();
        let digest = self.intake.note(text, named);
        for (at, file) in files {
            if let Err(fault) = named::look(&folder.join(&file)) {
                tracing::warn!("{}", fault.problem(at, &file));
            }
        }
        digest
    }

    fn refuse(&mut self, problems: &Problems, digest: String, anyhow: bool) {
        let is_known = self.answer.refuses(&digest);
        if is_known && !anyhow {
            return;
        }
        for problem in problems.iter() {
            tracing::error!("table refused: {problem}");
        }
        if is_known {
            return;
        }
        self.shared.status.refused.fetch_add(1, Ordering::Relaxed);
        self.answer.refuse(Refused {
            generation: problems.generation(),
            digest,
            problems: problems.iter().cloned().collect(),
        });
        self.answer.write();
        self.answer.tell(&self.shared.status);
    }

    async fn apply(&mut self, table: RoutingTable, digest: String, began: Instant, anyhow: bool) {
        let (log, generation) = (table.log.clone(), table.generation);
        let previous = self.shared.live.plan();
        self.look_where_this_is();
        let Some(plan) = self.make_plan(|around| compile(table, &previous, around)) else {
            return self.refuse(&fault_of_ours(generation), digest, anyhow);
        };
        self.shared.access.follow(&log, &self.intake.folder());
        let (opened, closed) = self.put_in_force(&previous, &plan).await;
        self.move_admin(&plan);
        let took = began.elapsed();
        tracing::info!(
            generation = plan.generation(),
            frontends = plan.frontends().len(),
            services = plan.services().len(),
            opened,
            closed,
            took_ms = took.as_millis(),
            "table applied"
        );
        say_what_loops(&previous, &plan);
        drop(previous);
        let exceptions = self.exceptions(&plan);
        self.answer.serve(Served { generation, digest }, exceptions);
        // Who finds this process ready finds the answer, too.
        self.answer.write();
        self.shared.status.applied(took);
        self.answer.tell(&self.shared.status);
    }

    /// Puts changes by hand in force: a new plan of the same table, made by `make`.
    async fn revise(
        &mut self,
        Changes { changes, done }: Changes,
        make: impl FnOnce(&Plan, Overrides, &mut Surroundings<'_>) -> Plan,
    ) {
        let previous = self.shared.live.plan();
        let revised = self.make_plan(|around| {
            let mut overrides = previous.overrides().clone();
            for change in &changes {
                overrides.change(change);
            }
            make(&previous, overrides, around)
        });
        let answer = match revised {
            Some(plan) => {
                self.put_in_force(&previous, &plan).await;
                Ok(())
            }
            None => Err(Unchanged::Fault),
        };
        done.send(answer).ok();
    }

    /// Makes a plan by `make`. `None`: that panicked, and nothing has changed.
    fn make_plan(&mut self, make: impl FnOnce(&mut Surroundings<'_>) -> Plan) -> Option<Arc<Plan>> {
        let mut around = Surroundings {
            now: self.shared.clock.now(),
            workers: self.shared.loads.len(),
            ipv6: self.ipv6,
            here: &self.here,
            rng: &mut self.rng,
        };
        panics::survived(|| make(&mut around)).map(Arc::new)
    }

    /// Opens what is new, publishes, closes what is gone. Says how many sockets were opened and closed.
    async fn put_in_force(&mut self, previous: &Arc<Plan>, plan: &Arc<Plan>) -> (usize, usize) {
        let change = change(&self.sockets.there(), previous, plan);
        let opened = self.sockets.open_wanted(&change.open);
        self.retired
            .push(self.shared.live.publish(Arc::clone(plan)));
        self.shared.new_plan.notify_one();
        for inbox in &self.shared.inboxes {
            // A worker that has ended holds no plan.
            inbox.send(Order::NewPlan).ok();
        }
        // Connections that wait, for a limit that may be gone or an endpoint that may have come, look again. Those who
        // wait at something that has left the table, or has another name now, are woken by nobody else.
        for plan in [previous, plan] {
            for frontend in plan.frontends() {
                frontend.state().admit().wake();
            }
            for service in plan.services() {
                service.state().queue().wake_head();
            }
        }
        self.sockets.hand_out(opened).await;
        self.sockets.close(&change.close, previous).await;
        if !change.close.is_empty() && self.sockets.failed() > 0 {
            // What has just been closed may have been in the way.
            self.sockets.retry().await;
        }
        self.end_connections(change.gone_endpoints);
        if change.idle_times {
            self.shared.follow_idle_times();
        }
        (
            change.open.len() - self.sockets.failed(),
            change.close.len(),
        )
    }

    /// Where the table said so, connections do not outlive their endpoint.
    fn end_connections(&self, gone: Vec<GoneEndpoint>) {
        let cut: Vec<_> = gone
            .into_iter()
            .filter(|gone| gone.connections == OnGone::Close)
            .map(|gone| gone.endpoint)
            .inspect(|endpoint| endpoint.end())
            .collect();
        self.shared.cut(cut);
    }

    /// The admin side follows the table.
    fn move_admin(&self, plan: &Plan) {
        let wish = Some(self.places.wish(plan.stats()));
        self.admin.send_if_modified(|known| {
            let changed = *known != wish;
            if changed {
                *known = wish;
            }
            changed
        });
    }

    /// Reads the addresses of this host. Says whether they have changed.
    fn look_where_this_is(&mut self) -> bool {
        match listen::here() {
            Ok(here) if here != self.here => {
                self.here = here;
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(%error, "cannot read the addresses of this host");
                false
            }
        }
    }

    /// An address that this host got or lost may make or end a loop.
    async fn follow_addresses(&mut self) {
        if !self.look_where_this_is() {
            return;
        }
        let previous = self.shared.live.plan();
        let overrides = previous.overrides().clone();
        let moved = self.make_plan(|around| revise(&previous, overrides, around));
        if let Some(plan) = moved.filter(|plan| plan.loops() != previous.loops()) {
            self.put_in_force(&previous, &plan).await;
            say_what_loops(&previous, &plan);
        }
    }

    /// Tries again what could not be bound, and looks again at addresses that were not here.
    async fn retry(&mut self) {
        self.sockets.retry().await;
        self.follow_addresses().await;
        if self.answer.serves() {
            let exceptions = self.exceptions(&self.shared.live.plan());
            self.answer.except(exceptions);
            self.answer.write();
            self.answer.tell(&self.shared.status);
        }
    }

    /// What does not listen as it was asked for. Says what is new of that.
    fn exceptions(&self, plan: &Plan) -> Vec<Exception> {
        let now = exceptions::of(plan, &self.sockets);
        exceptions::say_what_is_new(self.answer.exceptions(), &now);
        now
    }

    /// Frees plans that nobody uses any more: here, so that no worker ever does.
    fn free_retired(&mut self) {
        let free = self
            .retired
            .extract_if(.., |plan| Arc::strong_count(plan) == 1);
        free.filter_map(Arc::into_inner).for_each(drop);
        self.shared
            .status
            .retired
            .store(self.retired.len() as u64, Ordering::Relaxed);
    }
}

/// Logs which endpoints are frontends of the same table, unless that was so before.
fn say_what_loops(previous: &Plan, plan: &Plan) {
    if previous.loops() != plan.loops() {
        for line in plan.loops().warnings() {
            tracing::warn!("{line}");
        }
    }
}

/// What is said of a table that nothing is wrong with, and that cannot be served.
fn fault_of_ours(generation: Option<u64>) -> Problems {
    let problem = Problem::new(
        "the table",
        "meets a fault of Ballast's own, which the log tells",
        "report it, with the table; until then, undo what was changed last",
    );
    Problems::of_whole_file(vec![problem], generation)
}

/// How soon what may be half a file is looked at again.
const HALF_WRITTEN: Duration = Duration::from_millis(200);
const RETRY_EVERY: Duration = Duration::from_secs(5);
const TIDY_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
