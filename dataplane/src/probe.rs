//! Runs the health checks, on a thread of its own, so that no check delays a client.
//!
//! [`Checks`] decides which check is due and what its result means; this module has the sockets, the clock and the log. Each
//! check is a task (`prober`) with one absolute deadline. Plans come from `apply`; verdicts are written to the endpoints'
//! state, where `pick` reads them. When the process begins to end, the checks are stopped first.

mod prober;
mod tls;

use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::health::{Check, CheckId, Checks, Outcome, Transition, VerdictChange};
use ballast_core::rng::Rng;
use ballast_core::table::{AllDown, OnGone};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::worker::Shared;
use prober::Prober;

/// Runs the checks.
#[derive(Debug)]
pub(crate) struct Probe {
    shared: Arc<Shared>,
    checks: Checks,
    rng: Rng,
    prober: Rc<Prober>,
    running: usize,
    max_running: usize,
    events: mpsc::UnboundedReceiver<CheckEvent>,
    event_sender: mpsc::UnboundedSender<CheckEvent>,
    late_since: Option<Instant>,
    warned: Warned,
}

/// What a check's task reports.
#[derive(Debug)]
enum CheckEvent {
    Result(CheckId, Outcome, Duration),
    /// Its socket is closed.
    Closed,
}

/// When each repeated warning was last logged.
#[derive(Debug, Default)]
struct Warned {
    late: Option<Instant>,
    no_check: Option<Instant>,
}

impl Probe {
    /// At most `rate` checks a second, and `max_running` at the same time.
    pub(crate) fn new(shared: Arc<Shared>, rate: u32, max_running: usize, mut rng: Rng) -> Self {
        let (event_sender, events) = mpsc::unbounded_channel();
        Self {
            shared,
            checks: Checks::new(rate, &mut rng),
            rng,
            prober: Rc::new(Prober::new()),
            running: 0,
            max_running,
            events,
            event_sender,
            late_since: None,
            warned: Warned::default(),
        }
    }

    /// Checks what each plan asks for, until `stop`. Must be called within a local runtime, whose end cancels running checks.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // Waking the future that a runtime blocks on costs a system call each time; waking a task costs none.
        if let Err(error) = tokio::task::spawn_local(self.run_loop(stop)).await
            && error.is_panic()
        {
            resume_unwind(error.into_panic());
        }
    }

    async fn run_loop(mut self, stop: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        loop {
            let wake_at = self.begin_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = shared.new_plan.notified() => self.follow_plan(),
                Some(event) = self.events.recv() => {
                    self.handle(event);
                    while let Ok(event) = self.events.try_recv() {
                        self.handle(event);
                    }
                }
                () = sleep_until(wake_at) => {}
            }
        }
    }

    fn follow_plan(&mut self) {
        let serving = self.shared.live.serving();
        let plan = &serving.plan;
        self.prober.follow_files(Arc::clone(&serving.files));
        if let Some(asked) = self.checks.follow(plan, self.shared.clock.now()) {
            tracing::warn!(
                asked,
                "the table asks for more checks a second than --max-checks allows; intervals are stretched"
            );
        }
    }

    /// Starts the checks that are due. Returns when to wake up again.
    fn begin_due(&mut self) -> Instant {
        let now = self.shared.clock.now();
        while self.running < self.max_running
            && let Some(check) = self.checks.next(now)
        {
            self.running += 1;
            let report = Report {
                id: check.id,
                began: Instant::now(),
                has_reported: false,
                event_sender: self.event_sender.clone(),
            };
            tokio::task::spawn_local(run(check, Rc::clone(&self.prober), report));
        }
        self.warn_if_late();
        let idle = Instant::now() + IDLE;
        if self.running >= self.max_running {
            return idle;
        }
        self.checks.next_due().map_or(idle, |due| {
            // Checks that are due within a few milliseconds share one wake-up.
            self.shared
                .clock
                .instant(due)
                .max(Instant::now() + COALESCE)
        })
    }

    fn handle(&mut self, event: CheckEvent) {
        let (id, outcome, took) = match event {
            CheckEvent::Result(id, outcome, took) => (id, outcome, took),
            CheckEvent::Closed => {
                self.running -= 1;
                return;
            }
        };
        let now = self.shared.clock.now();
        if let Outcome::NoCheck(why) = outcome
            && may_warn(&mut self.warned.no_check)
        {
            tracing::warn!(
                "a check could not be run, which says nothing about its endpoint: {why}"
            );
        }
        if let Some(change) = self.checks.ended(id, outcome, took, now, &mut self.rng) {
            announce(&change);
            if change.transition == Transition::Down
                && change.service().spec().on_down == OnGone::Close
            {
                self.shared
                    .cut(change.endpoint().cloned().into_iter().collect());
            }
        }
    }

    /// Warns when checks have been late for long.
    fn warn_if_late(&mut self) {
        let late = self.checks.late(self.shared.clock.now());
        if late < LATE {
            self.late_since = None;
            return;
        }
        let since = *self.late_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= LATE_FOR_LONG && may_warn(&mut self.warned.late) {
            tracing::warn!(
                late_ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX),
                running = self.running,
                "checks come late, so that intervals are stretched: more are due than --max-checks and descriptors allow"
            );
        }
    }
}

/// Logs a changed verdict.
fn announce(change: &VerdictChange) {
    match change.transition {
        Transition::Up => tracing::info!("{change}"),
        Transition::Down => tracing::warn!("{change}"),
    }
    if change.nobody_left {
        let service = change.service();
        let so = match service.spec().all_down {
            AllDown::TryAll => "checks are ignored until one passes",
            AllDown::Refuse => "clients are refused",
        };
        tracing::error!(
            "backend {} has no server available: {so}",
            service.state().name()
        );
    }
}

/// Runs one check and reports its result.
async fn run(check: Check, prober: Rc<Prober>, mut report: Report) {
    let (outcome, connection) = prober.check(&check).await;
    report.result(outcome);
    if let Some(connection) = connection {
        prober.close_in_order(connection).await;
    }
}

/// Reports the end of a check, also if its task panics or is cancelled.
struct Report {
    id: CheckId,
    began: Instant,
    has_reported: bool,
    event_sender: mpsc::UnboundedSender<CheckEvent>,
}

impl Report {
    fn result(&mut self, outcome: Outcome) {
        self.has_reported = true;
        let event = CheckEvent::Result(self.id, outcome, self.began.elapsed());
        self.event_sender.send(event).ok();
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.has_reported {
            self.result(Outcome::NoCheck("the check was aborted"));
        }
        self.event_sender.send(CheckEvent::Closed).ok();
    }
}

/// Whether a repeated warning may be logged again.
fn may_warn(last: &mut Option<Instant>) -> bool {
    let may_warn = last.is_none_or(|last| last.elapsed() >= WARN_INTERVAL);
    if may_warn {
        *last = Some(Instant::now());
    }
    may_warn
}

const COALESCE: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(1);
const LATE_FOR_LONG: Duration = Duration::from_secs(10);
const WARN_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ballast_core::compile::{CompileContext, compile};
    use ballast_core::loops::LOOPBACK_ONLY;
    use ballast_core::table::{Format, parse};

    use super::*;
    use crate::access::AccessLog;
    use crate::os::limits::{Budget, Room};
    use crate::os::threads;
    use crate::worker::live::Serving;

    #[test]
    fn no_more_checks_run_at_once_than_allowed() {
        let (open, most, all) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let endpoints: Vec<String> = (0..20)
            .map(|_| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let (open, most, all) = (Arc::clone(&open), Arc::clone(&most), Arc::clone(&all));
                std::thread::spawn(move || {
                    for mut client in listener.incoming().flatten() {
                        let open = Arc::clone(&open);
                        most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        all.fetch_add(1, Ordering::SeqCst);
                        std::thread::spawn(move || {
                            // This endpoint never answers.
                            while client.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {}
                            open.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                });
                format!("{{address: \"{address}\"}}")
            })
            .collect();
        let text = format!(
            "version: 1\nservices: [{{name: s, health: {{mode: http, interval: 100ms}}, endpoints: [{}]}}]",
            endpoints.join(", ")
        );
        let (access, _records) = AccessLog::new();
        let (sender, _overrides) = mpsc::unbounded_channel();
        let room = Room::new(Budget::in_force(), 1, None, None);
        let (shared, _inboxes) = Shared::new(room, 1, access, sender, None);
        let mut context = CompileContext {
            now: shared.clock.now(),
            workers: 1,
            ipv6: false,
            host: &LOOPBACK_ONLY,
            rng: &mut Rng::new(1),
        };
        let table = parse(text.as_bytes(), Format::Yaml).unwrap();
        let plan = compile(table, &shared.live.plan(), &mut context);
        drop(shared.live.publish(Serving {
            plan: Arc::new(plan),
            ..Serving::default()
        }));
        shared.new_plan.notify_one();

        let stop = CancellationToken::new();
        let probe = Probe::new(Arc::clone(&shared), 1000, 5, Rng::new(2));
        let runtime = threads::local_runtime().unwrap();
        runtime.block_on(async {
            let running = tokio::task::spawn_local(probe.run(stop.clone()));
            let deadline = Instant::now() + Duration::from_secs(20);
            while all.load(Ordering::SeqCst) < 20 {
                assert!(Instant::now() < deadline, "{all:?} checks");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stop.cancel();
            running.await.unwrap();
        });
        assert_eq!(most.load(Ordering::SeqCst), 5);
    }
}
