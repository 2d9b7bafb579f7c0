//! The single writer of the plan: read -> parse -> compile -> put in force -> acknowledge.
//!
//! It runs on a thread of its own, at a lower priority than the workers once there is a table. If anything is wrong with a table, the plan in force
//! stays.

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use ballast_core::ack::{Exception, Refused, Served};
use ballast_core::change::{GoneEndpoint, change, may_be_wanted};
use ballast_core::compile::{CompileContext, compile, revise};
use ballast_core::handover::State;
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
use crate::os::clock::{unix_seconds, utc};
use crate::os::panics;
use crate::os::threads::Pace;
use crate::process::handover::next::{InheritedSockets, Takeover};
use crate::process::handover::{Freeze, LendRequests};
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
    pub(crate) overrides: mpsc::UnboundedReceiver<OverrideRequest>,
    pub(crate) inheritance: Inheritance,
}

/// What the process before hands over to this one, and this one to the next.
#[derive(Debug)]
pub(crate) struct Inheritance {
    /// The sockets that the first table takes.
    pub(crate) sockets: Option<InheritedSockets>,
    /// Cancelled when the first table is in force, so that this process answers in place of the one before.
    pub(crate) taken: CancellationToken,
    /// Notified where the process before goes on, so that this one must end.
    pub(crate) failed: Option<oneshot::Sender<String>>,
    /// Questions for the sockets of this process.
    pub(crate) lend_requests: LendRequests,
    /// Knows whether the sockets are being offered to the next process.
    pub(crate) succession: Succession,
    /// Orders to change nothing while the next process takes over.
    pub(crate) freezes: mpsc::UnboundedReceiver<Freeze>,
}

/// An order to read the table again, or to read it for the first time. It is dropped when that was done.
pub(crate) type Reread = oneshot::Sender<()>;

/// The table is gone, or cannot be read.
#[derive(Debug)]
struct NoTable {
    /// The reason, as last logged.
    why: String,
    since: SystemTime,
    noticed: Instant,
    /// Once that has lasted, the ack calls it a refusal. The refusal that the ack had before.
    before: Option<Option<Refused>>,
}

/// How the writer of the plan is notified of the end, and what it reports.
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
    inheritance: Inheritance,
    /// The sockets that this process may have, and the TLS that was compiled before that was known.
    takeover: Option<(Takeover, tls::Configs)>,
    warned: Warned,
    no_table: Option<NoTable>,
    /// While the table does not parse and may be incomplete: when to read it a second time.
    incomplete_until: Option<Instant>,
}

impl Apply {
    /// Must be called within a runtime.
    pub(crate) fn new(shared: Arc<Shared>, config: ApplyConfig) -> Self {
        Self {
            intake: Intake::new(config.table),
            first: config.first,
            sockets: Sockets::new(Arc::clone(&shared), config.inheritance.succession.clone()),
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
            inheritance: config.inheritance,
            takeover: None,
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
        // Until there is a table nobody is served, unless the process before is handing its clients over.
        let mut pace = Some(Pace::Quiet);
        if self.inheritance.sockets.is_some() {
            pace.take().into_iter().for_each(Pace::take);
        }
        let mut retry = Instant::now() + RETRY_EVERY;
        loop {
            let again = self.read_table(forced).await;
            if forced {
                self.ack.restore();
            }
            forced &= again.is_some();
            if again.is_none() {
                // A process that cannot serve ends in here: it must not count as one that has read its table.
                self.has_taken_over().await;
                orders.clear();
            }
            if self.ack.has_served() {
                pace.take().into_iter().for_each(Pace::take);
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
                // A process that has asked and gone needs no answer.
                Some(request) = self.inheritance.lend_requests.recv() => {
                    request.send(self.sockets.lend()).ok();
                }
                Some(freeze) = self.inheritance.freezes.recv() => if self.freeze(freeze, &end).await {
                    break;
                },
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
            inheritance,
            ..
        } = self;
        // Changes by hand that come from now on are answered with "the process is ending", and nobody is lent a socket.
        drop((overrides, inheritance));
        end.succession.set_quiet();
        end.stop.cancelled().await;
        let last = shared.live.serving();
        let is_handed_over = end.succession.handed().is_some();
        let left = end.succession.left();
        sockets.finish(&last, left.as_deref(), is_handed_over).await;
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
            Ok(Found::Nothing) => {
                self.has_table();
                return self.incomplete_until.map(|until| until - began);
            }
            Err(why) => {
                self.has_no_table(why, forced);
                return None;
            }
        };
        self.has_table();
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

    /// Logs that there is no table. Where one is served, and this is no short moment in which an editor replaces the file, it is
    /// a refusal: the ack, the page and the metrics have it.
    fn has_no_table(&mut self, why: String, forced: bool) {
        let is_logged = self.no_table.as_ref().is_some_and(|last| last.why == why);
        if forced || !is_logged {
            let still = if self.ack.has_served() {
                "; the table that was read last is still served"
            } else {
                ""
            };
            tracing::warn!("no table: {why}{still}");
        }
        let last = self.no_table.get_or_insert_with(|| NoTable {
            why: String::new(),
            since: SystemTime::now(),
            noticed: Instant::now(),
            before: None,
        });
        let is_new = last.before.is_none() || !is_logged;
        if self.ack.has_served() && last.noticed.elapsed() >= REPLACED_WITHIN && is_new {
            if last.before.is_none() {
                last.before = Some(self.ack.refused().cloned());
                self.shared.status.refused.fetch_add(1, Ordering::Relaxed);
            }
            let remedy = "put it back, or make it readable; until then the table that was read last is served";
            self.ack.set_refused(Some(Refused {
                generation: None,
                digest: String::new(),
                problems: vec![Problem::new("the table", &*why, remedy)],
            }));
            self.ack.write();
            self.ack.publish(&self.shared.status);
        }
        last.why = why;
    }

    /// Logs that there is a table again, if there was none.
    fn has_table(&mut self) {
        let Some(NoTable { since, before, .. }) = self.no_table.take() else {
            return;
        };
        let since = utc(since, SINCE);
        tracing::info!("the table is there again, which could not be read since {since}");
        if let Some(before) = before {
            self.ack.set_refused(before);
            self.ack.write();
            self.ack.publish(&self.shared.status);
        }
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
        self.ack.set_refused(Some(Refused {
            generation: problems.generation(),
            digest,
            problems: problems.iter().cloned().collect(),
        }));
        // Until it was taken over from, the process before writes the ack.
        if self.inheritance.sockets.is_none() {
            self.ack.write();
        }
        self.ack.publish(&self.shared.status);
    }

    async fn apply(&mut self, table: RoutingTable, digest: String, began: Instant, forced: bool) {
        let (log, generation) = (table.log.clone(), table.generation);
        let previous = self.shared.live.plan();
        self.read_host_addresses();
        let Some(plan) = self.make_plan(|context| compile(table, &previous, context)) else {
            return self.refuse(&internal_error(generation), digest, forced);
        };
        let plan = match self.inheritance.sockets.take() {
            Some(inherited) => self.follow_on(inherited, plan).await,
            None => plan,
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
            took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
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
        self.inheritance.taken.cancel();
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
            if let Some(why) = previous.refuses(&overrides, change) {
                done.send(Err(OverrideError::Refused(why))).ok();
                return;
            }
            overrides.change(change);
        }
        let Some(plan) = self.make_plan(|context| make(&previous, overrides, context)) else {
            done.send(Err(OverrideError::Panicked)).ok();
            return;
        };
        let answer = match changes.iter().find_map(|change| plan.loop_by(change)) {
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
        let (takeover, compiled) = self.takeover.take().unzip();
        let mut opened = Vec::new();
        if takeover.is_none() {
            opened = self.sockets.open_wanted(&change.open);
        }
        let files = Arc::clone(self.intake.files());
        let known = self.shared.live.serving();
        let before = compiled.as_ref().unwrap_or(&known.tls);
        let last = self.shared.live.publish(Serving {
            plan: Arc::clone(plan),
            tls: Arc::new(self.tls.compile(plan, &files, before)),
            files,
        });
        drop((known, compiled));
        self.retired.push(Arc::clone(&last));
        self.shared.new_plan.notify_one();
        self.shared.tell_workers(|| Order::NewPlan);
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
        if let Some(mut takeover) = takeover {
            takeover.leave_but(&change.open);
            self.shared.status.inherit(takeover.summary());
            // Nothing before this concerns a client.
            match takeover.take().await {
                Ok(taken) => self.sockets.take_over(taken, &change.open).await,
                Err(why) => self.give_up(why).await,
            }
        }
        self.sockets.hand_out(opened).await;
        self.sockets.forget_kept();
        self.sockets.close(&change.close, &last).await;
        drop(last);
        if !change.close.is_empty() && self.sockets.failed() > 0 {
            // A socket that has just been closed may have caused the failure.
            self.sockets.retry().await;
        }
        self.sockets.keep_rest();
        self.end_connections(change.gone_endpoints);
        if change.revises_flows {
            self.shared.tell_workers(|| Order::ReviseFlows);
        }
        if change.shuts_out {
            self.shared.tell_workers(|| Order::LookAtClients);
        }
        (
            change.open.len() - self.sockets.failed(),
            change.close.len(),
        )
    }

    /// Tells the process before that this one can serve this plan. Returns the plan with what that one knows. Where that one goes
    /// on, this process ends.
    async fn follow_on(&mut self, inherited: InheritedSockets, plan: Arc<Plan>) -> Arc<Plan> {
        // Changes by hand come later, and may open what the table alone leaves closed.
        let wanted = may_be_wanted(&plan);
        // Certificates take their time, during which the process before need not hold still.
        let files = Arc::clone(self.intake.files());
        let known = self.shared.live.serving();
        let compiled = self.tls.compile(&plan, &files, &known.tls);
        let unusable = compiled.unusable_certificates(&self.intake.folder());
        let lacks_tickets = self.tls.lacks_tickets(&plan);
        let (takeover, state) = match inherited.ready(&wanted, unusable, lacks_tickets).await {
            Ok(ready) => ready,
            Err(why) => return self.give_up(why).await,
        };
        let kept = (&*state.certificates, &*self.intake.folder());
        let compiled = self.tls.resume_certificates(kept, &plan, &files, compiled);
        self.takeover = Some((takeover, compiled));
        if let Some(tickets) = &state.tickets {
            self.tls.resume_tickets(tickets, Instant::now());
        }
        let mut overrides = plan.overrides().clone();
        for change in &state.overrides {
            if plan.refuses(&overrides, change).is_none() {
                overrides.change(change);
            }
        }
        let revised = self.make_plan(|context| revise(&plan, overrides, context));
        let plan = revised.unwrap_or(plan);
        let now = self.shared.clock.now();
        let rng = &mut self.rng;
        panics::catch(|| state.resume(&plan, now, rng));
        plan
    }

    /// Says what is known, and changes nothing until it is known whether the next process takes over. `true`: it does, or this
    /// process is told to end.
    async fn freeze(&self, freeze: Freeze, end: &End) -> bool {
        let Freeze {
            certificates,
            tickets,
            known,
            until,
        } = freeze;
        let serving = self.shared.live.serving();
        let tickets = self.tls.lend_tickets(tickets, Instant::now());
        let now = self.shared.clock.now();
        let parts = panics::catch(|| {
            let certificates = serving
                .tls
                .lend_certificates(&certificates, &self.intake.folder());
            State::parts(&serving.plan, tickets, &certificates, now)
        });
        if known.send(parts.unwrap_or_default()).is_err() {
            return false;
        }
        tokio::select! {
            biased;
            () = end.succession.wanted() => true,
            () = end.stop.cancelled() => true,
            _ = until => false,
        }
    }

    /// Has the process end if its first table cannot take over: the process before goes on.
    async fn has_taken_over(&mut self) {
        if self.inheritance.sockets.take().is_some() {
            self.give_up::<()>(NO_TABLE.into()).await;
        }
    }

    /// Has the process end, and does nothing any more.
    async fn give_up<T>(&mut self, why: String) -> T {
        if let Some(failed) = self.inheritance.failed.take() {
            failed.send(why).ok();
        }
        pending().await
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

    /// Compiles the plan again if the host's addresses have changed: an address may make or end a loop.
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

    /// Frees plans that nothing uses any more. Doing this here keeps workers from ever freeing a plan.
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

const NO_TABLE: &str = "the table of this process cannot be served (the lines before say why), and the process that runs goes on; correct the table, then start again";
const SINCE: &str = "%Y-%m-%d %H:%M:%S UTC";
/// A table that is gone for so short a time is being replaced.
const REPLACED_WITHIN: Duration = Duration::from_secs(1);
/// The delay before an incomplete table is read again.
const INCOMPLETE_DELAY: Duration = Duration::from_millis(200);
const RETRY_EVERY: Duration = Duration::from_secs(5);
const FREE_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
