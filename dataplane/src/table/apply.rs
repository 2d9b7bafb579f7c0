//! The single writer of the plan: read -> parse -> compile -> put in force -> acknowledge.
//!
//! It runs on a thread of its own, at a lower priority than the workers. If anything is wrong with a table, the plan in force
//! stays.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::ack::{Exception, Refused, Served};
use ballast_core::change::{GoneEndpoint, change};
use ballast_core::compile::{CompileContext, compile, revise};
use ballast_core::loops::HostAddresses;
use ballast_core::overrides::Overrides;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{self, OnGone, Problem, Problems, RoutingTable};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::net::{listen, tls};
use crate::operator::admin::{CommandLine, Wanted};
use crate::os::clock::unix_seconds;
use crate::os::panics;
use crate::process::succession::Succession;
use crate::table::intake::{Found, Intake, ParsedTable, Text, Which};
use crate::worker::live::Serving;
use crate::worker::override_request::{OverrideError, OverrideRequest};
use crate::worker::{Order, Shared};

mod ack_file;
mod certificates;
mod exceptions;
mod sharing;
mod sockets;

use ack_file::AckFile;
use certificates::Warned;
use sockets::Sockets;

/// The settings of the writer.
#[derive(Debug)]
pub(crate) struct ApplyConfig {
    pub(crate) table: PathBuf,
    /// The table that was read before the start.
    pub(crate) first: Option<ParsedTable>,
    pub(crate) ack: Option<PathBuf>,
    pub(crate) instance: String,
    pub(crate) rng: Rng,
    /// The admin addresses of the command line.
    pub(crate) command_line: CommandLine,
    /// The channel by which the admin side learns the table's admin addresses.
    pub(crate) admin: watch::Sender<Option<Wanted>>,
    /// Operator overrides.
    pub(crate) overrides: mpsc::UnboundedReceiver<OverrideRequest>,
}

/// An order to read the table again, or to read it for the first time. It is dropped when that was done.
pub(crate) type Reread = oneshot::Sender<()>;

/// How the writer of the plan is told of the end, and what it tells of it.
#[derive(Debug)]
pub(crate) struct End {
    /// No table is read any more, and no client is accepted.
    pub(crate) stop: CancellationToken,
    /// No connection or flow is left.
    pub(crate) over: CancellationToken,
    pub(crate) succession: Succession,
    /// Notified when the listening sockets are closed.
    pub(crate) closed: oneshot::Sender<()>,
}

/// The writer of the plan.
#[derive(Debug)]
pub(crate) struct Apply {
    shared: Arc<Shared>,
    intake: Intake,
    first: Option<ParsedTable>,
    sockets: Sockets,
    ack: AckFile,
    retired: Vec<Arc<Serving>>,
    tls: tls::Compiler,
    rng: Rng,
    ipv6: bool,
    /// The host's addresses as last read.
    host: HostAddresses,
    command_line: CommandLine,
    admin: watch::Sender<Option<Wanted>>,
    overrides: mpsc::UnboundedReceiver<OverrideRequest>,
    warned: Warned,
    /// Why there is no table, as last logged.
    no_table: Option<String>,
    /// While the table does not parse and may be incomplete: when to read it a second time.
    incomplete_until: Option<Instant>,
}

impl Apply {
    /// Must be called within a runtime.
    pub(crate) fn new(shared: Arc<Shared>, config: ApplyConfig) -> Self {
        Self {
            intake: Intake::new(config.table),
            first: config.first,
            sockets: Sockets::new(Arc::clone(&shared)),
            ack: AckFile::new(config.instance, config.ack),
            shared,
            retired: Vec::new(),
            tls: tls::Compiler::new(Instant::now()),
            rng: config.rng,
            ipv6: listen::has_ipv6(),
            host: HostAddresses::default(),
            command_line: config.command_line,
            admin: config.admin,
            overrides: config.overrides,
            warned: Warned::default(),
            no_table: None,
            incomplete_until: None,
        }
    }

    /// Applies tables until the process ends or the next one takes over, and closes all sockets as `end` says. `first` is
    /// dropped once the table was read for the first time, and each order of `rereads` once it was carried out.
    pub(crate) async fn run(
        mut self,
        first: Reread,
        mut rereads: mpsc::UnboundedReceiver<Reread>,
        end: End,
    ) {
        let mut forced = false;
        let mut orders = vec![first];
        let mut retry = Instant::now() + RETRY_EVERY;
        loop {
            let again = self.read_table(forced).await;
            if forced {
                self.ack.restore();
            }
            forced &= again.is_some();
            if again.is_none() {
                orders.clear();
            }
            self.free_retired();
            let idle = if self.retired.is_empty() {
                RETRY_EVERY
            } else {
                FREE_EVERY
            };
            tokio::select! {
                () = end.stop.cancelled() => break,
                () = end.succession.wanted() => break,
                () = self.intake.changed() => {}
                Some(order) = rereads.recv() => {
                    forced = true;
                    orders.push(order);
                }
                Some(changes) = self.overrides.recv() => self.revise(changes, revise).await,
                () = sleep(again.unwrap_or(idle)) => {}
                () = sleep_until(retry) => {
                    let now = Instant::now();
                    retry = now + RETRY_EVERY;
                    self.tls.rotate_tickets(now);
                    self.retry().await;
                }
            }
        }
        let Self {
            shared,
            mut sockets,
            overrides,
            ..
        } = self;
        // Changes by hand that come from now on are answered with "the process is ending".
        drop(overrides);
        end.succession.set_quiet();
        end.stop.cancelled().await;
        let last = shared.live.serving();
        sockets.finish(&last).await;
        end.closed.send(()).ok();
        tokio::select! {
            () = end.succession.replaced() => sockets.close_flows(&last).await,
            () = end.over.cancelled() => {}
        }
    }

    /// Reads the table and, if it has changed, puts it in force. Returns the delay after which to read again, if the file may
    /// be incomplete.
    async fn read_table(&mut self, forced: bool) -> Option<Duration> {
        let began = Instant::now();
        let is_second_read = self
            .incomplete_until
            .take_if(|until| *until <= began)
            .is_some();
        let which = match (forced, is_second_read) {
            (true, _) => Which::Any,
            (false, true) => Which::Other,
            (false, false) => Which::Changed,
        };
        let text = match self.intake.read(which) {
            Ok(Found::Text(text)) => text,
            Ok(Found::Unfinished(rest)) => return Some(rest),
            Ok(Found::Nothing) => return self.incomplete_until.map(|until| until - began),
            Err(why) => {
                if forced || self.no_table.as_ref() != Some(&why) {
                    let still = match self.ack.has_served() {
                        true => "; the table that was read last is still served",
                        false => "",
                    };
                    tracing::warn!("no table: {why}{still}");
                    self.no_table = Some(why);
                }
                return None;
            }
        };
        self.no_table = None;
        let first = self.first.take();
        let known = first.and_then(|first| first.of(&text.bytes, text.format));
        let parse = || known.map_or_else(|| table::parse(&text.bytes, text.format), Ok);
        let parsed = panics::catch(parse).unwrap_or_else(|| Err(internal_error(None)));
        let is_incomplete = parsed.as_ref().is_err_and(Problems::not_whole);
        self.incomplete_until =
            (is_incomplete && !is_second_read && !forced).then(|| began + INCOMPLETE_DELAY);
        match parsed {
            Ok(table) => {
                let digest = self.note(text, &table);
                self.apply(table, digest, began, forced).await;
            }
            Err(_) if self.incomplete_until.is_some() => return Some(INCOMPLETE_DELAY),
            Err(problems) => {
                let digest = self.intake.note(text, Vec::new());
                self.refuse(&problems, digest, forced);
            }
        }
        None
    }

    /// Notes what was read, with the files that it names, and warns of files that cannot be used.
    fn note(&mut self, text: Text, table: &RoutingTable) -> String {
        let files = table::files(table);
        let names = files.iter().map(|(_, name)| name.clone()).collect();
        let digest = self.intake.note(text, names);
        for (at, name) in files {
            if let Err(fault) = self.intake.files().get(&name) {
                tracing::warn!("{}", fault.problem(at, &name));
            }
        }
        digest
    }

    fn refuse(&mut self, problems: &Problems, digest: String, forced: bool) {
        let is_known = self.ack.has_refused(&digest);
        if is_known && !forced {
            return;
        }
        for problem in problems.iter() {
            tracing::error!("table refused: {problem}");
        }
        if is_known {
            return;
        }
        self.shared.status.refused.fetch_add(1, Ordering::Relaxed);
        self.ack.set_refused(Refused {
            generation: problems.generation(),
            digest,
            problems: problems.iter().cloned().collect(),
        });
        self.ack.write();
        self.ack.publish(&self.shared.status);
    }

    async fn apply(&mut self, table: RoutingTable, digest: String, began: Instant, forced: bool) {
        let (log, generation) = (table.log.clone(), table.generation);
        let previous = self.shared.live.plan();
        self.read_host_addresses();
        let Some(plan) = self.make_plan(|context| compile(table, &previous, context)) else {
            return self.refuse(&internal_error(generation), digest, forced);
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
        log_loops(&previous, &plan);
        drop(previous);
        self.follow_certificates();
        let exceptions = self.exceptions(&plan);
        self.ack
            .set_served(Served { generation, digest }, exceptions);
        // A client that finds the process ready must also find the ack.
        self.ack.write();
        self.shared.status.applied(took);
        self.ack.publish(&self.shared.status);
    }

    /// Puts overrides in force, by a new plan of the same table, which `make` makes.
    async fn revise(
        &mut self,
        OverrideRequest { changes, done }: OverrideRequest,
        make: impl FnOnce(&Plan, Overrides, &mut CompileContext<'_>) -> Plan,
    ) {
        let previous = self.shared.live.plan();
        let mut overrides = previous.overrides().clone();
        for change in &changes {
            if let Some(why) = overrides.refuses(change, &previous) {
                done.send(Err(OverrideError::Refused(why))).ok();
                return;
            }
            overrides.change(change);
        }
        let Some(plan) = self.make_plan(|context| make(&previous, overrides, context)) else {
            done.send(Err(OverrideError::Panicked)).ok();
            return;
        };
        let answer = match changes.iter().find_map(|change| change.loop_in(&plan)) {
            Some(why) => Err(OverrideError::Refused(why)),
            None => {
                self.put_in_force(&previous, &plan).await;
                log_loops(&previous, &plan);
                Ok(())
            }
        };
        done.send(answer).ok();
    }

    /// Compiles a plan by `make`. `None`: that panicked, and nothing has changed.
    fn make_plan(
        &mut self,
        make: impl FnOnce(&mut CompileContext<'_>) -> Plan,
    ) -> Option<Arc<Plan>> {
        let mut context = CompileContext {
            now: self.shared.clock.now(),
            workers: self.shared.loads.len(),
            ipv6: self.ipv6,
            host: &self.host,
            rng: &mut self.rng,
        };
        panics::catch(|| make(&mut context)).map(Arc::new)
    }

    /// Opens new sockets, publishes the plan, and closes old sockets. Returns the numbers of sockets opened and closed.
    async fn put_in_force(&mut self, previous: &Arc<Plan>, plan: &Arc<Plan>) -> (usize, usize) {
        let change = change(&self.sockets.bound_keys(), previous, plan);
        let opened = self.sockets.open_wanted(&change.open);
        let files = Arc::clone(self.intake.files());
        let known = self.shared.live.serving();
        let last = self.shared.live.publish(Serving {
            plan: Arc::clone(plan),
            tls: Arc::new(self.tls.compile(plan, &files, &known.tls)),
            files,
        });
        drop(known);
        self.retired.push(Arc::clone(&last));
        self.shared.new_plan.notify_one();
        for inbox in &self.shared.inboxes {
            // A worker that has ended holds no plan.
            inbox.send(Order::NewPlan).ok();
        }
        // Waiting connections check again: a limit may have been raised, or an endpoint may have been added. Connections that
        // wait at a frontend or service that left the table, or was renamed, are woken only here.
        for plan in [previous, plan] {
            for frontend in plan.frontends() {
                frontend.state().admit().wake();
            }
            for service in plan.services() {
                service.state().queue().wake_head();
            }
        }
        self.sockets.hand_out(opened).await;
        self.sockets.close(&change.close, &last).await;
        drop(last);
        if !change.close.is_empty() && self.sockets.failed() > 0 {
            // A socket that has just been closed may have caused the failure.
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

    /// Ends the connections of removed endpoints, where the table asks for that.
    fn end_connections(&self, gone: Vec<GoneEndpoint>) {
        let cut: Vec<_> = gone
            .into_iter()
            .filter(|gone| gone.connections == OnGone::Close)
            .map(|gone| gone.endpoint)
            .inspect(|endpoint| endpoint.end())
            .collect();
        self.shared.cut(cut);
    }

    /// Passes the table's admin addresses to the admin side.
    fn move_admin(&self, plan: &Plan) {
        let wanted = Some(self.command_line.wanted(plan.stats()));
        self.admin.send_if_modified(|known| {
            let changed = *known != wanted;
            if changed {
                *known = wanted;
            }
            changed
        });
    }

    /// Reads the addresses of this host. Returns whether they have changed.
    fn read_host_addresses(&mut self) -> bool {
        match listen::host_addresses() {
            Ok(host) if host != self.host => {
                self.host = host;
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(%error, "cannot read the addresses of this host");
                false
            }
        }
    }

    /// Compiles the plan anew if the host's addresses have changed: an address may make or end a loop.
    async fn follow_addresses(&mut self) {
        if !self.read_host_addresses() {
            return;
        }
        let previous = self.shared.live.plan();
        let overrides = previous.overrides().clone();
        let moved = self.make_plan(|context| revise(&previous, overrides, context));
        if let Some(plan) = moved.filter(|plan| plan.loops() != previous.loops()) {
            self.put_in_force(&previous, &plan).await;
            log_loops(&previous, &plan);
        }
    }

    /// Retries binds that failed, and checks again which addresses are local.
    async fn retry(&mut self) {
        self.sockets.retry().await;
        self.follow_addresses().await;
        self.follow_certificates();
        if self.ack.has_served() {
            let exceptions = self.exceptions(&self.shared.live.plan());
            self.ack.set_exceptions(exceptions);
            self.ack.write();
            self.ack.publish(&self.shared.status);
        }
    }

    /// Warns of certificates that have expired, or soon will.
    fn follow_certificates(&mut self) {
        let serving = self.shared.live.serving();
        self.warned
            .follow(&serving.plan, &serving.tls, unix_seconds());
    }

    /// The binds that do not listen as the table asks. Logs the new ones.
    fn exceptions(&self, plan: &Plan) -> Vec<Exception> {
        let tls = &self.shared.live.serving().tls;
        let now = exceptions::collect(plan, tls, &self.sockets);
        exceptions::log_new(self.ack.exceptions(), &now, &self.sockets);
        now
    }

    /// Frees plans that nobody uses any more. Doing this here keeps workers from ever freeing a plan.
    fn free_retired(&mut self) {
        let free = self.retired.extract_if(.., |serving| {
            Arc::strong_count(serving) == 1 && Arc::strong_count(&serving.plan) == 1
        });
        free.for_each(drop);
        self.shared
            .status
            .retired
            .store(self.retired.len() as u64, Ordering::Relaxed);
    }
}

/// Logs which endpoints are frontends of the same table, unless that has not changed.
fn log_loops(previous: &Plan, plan: &Plan) {
    if previous.loops() != plan.loops() {
        for line in &plan.loops().warnings {
            tracing::warn!("{line}");
        }
    }
}

/// The problem reported for a valid table that cannot be compiled because of a bug.
fn internal_error(generation: Option<u64>) -> Problems {
    let problem = Problem::new(
        "the table",
        "cannot be compiled because of a bug in Ballast; the log has the details",
        "report the bug together with the table, and undo the last change until it is fixed",
    );
    Problems::of_whole_file(vec![problem], generation)
}

/// The delay before an incomplete table is read again.
const INCOMPLETE_DELAY: Duration = Duration::from_millis(200);
const RETRY_EVERY: Duration = Duration::from_secs(5);
const FREE_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
