//! Runs the health checks: on a thread of its own, so that no check costs a client anything.
//!
//! [`Checks`] decides which check is due and what its result means; here are the sockets, the clock and the log. Each check is
//! a task (`talk`), which has one absolute deadline. Plans come from apply, verdicts go into the endpoints' state, where
//! `pick` finds them. The end of the process begins here: a process that ends checks nobody.

mod talk;
mod tls;

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::health::{Change, Check, CheckId, Checks, Outcome, Transition};
use ballast_core::rng::Rng;
use ballast_core::table::{AllDown, OnGone};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::worker::Shared;
use talk::Tools;

/// Who runs the checks.
#[derive(Debug)]
pub(crate) struct Probe {
    shared: Arc<Shared>,
    checks: Checks,
    rng: Rng,
    tools: Rc<Tools>,
    running: usize,
    at_once: usize,
    told: mpsc::UnboundedReceiver<Told>,
    tell: mpsc::UnboundedSender<Told>,
    late_since: Option<Instant>,
    warned: Warned,
}

/// What a check says of itself.
#[derive(Debug)]
enum Told {
    /// How it went, and how long that took.
    Verdict(CheckId, Outcome, Duration),
    /// Its socket is closed.
    Over,
}

/// When was last said what would be said too often.
#[derive(Debug, Default)]
struct Warned {
    late: Option<Instant>,
    no_check: Option<Instant>,
}

impl Probe {
    /// At most `rate` checks a second, and `at_once` at the same time. Files are meant from `folder`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        rate: u32,
        at_once: usize,
        folder: PathBuf,
        mut rng: Rng,
    ) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        Self {
            shared,
            checks: Checks::new(rate, &mut rng),
            rng,
            tools: Rc::new(Tools::new(folder)),
            running: 0,
            at_once,
            told,
            tell,
            late_since: None,
            warned: Warned::default(),
        }
    }

    /// Checks what each plan asks for, until `stop`. Within a local runtime, whose end cuts what still runs.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // To wake what a runtime blocks on costs a system call each time; to wake a task costs none.
        if let Err(error) = tokio::task::spawn_local(self.go_on(stop)).await
            && error.is_panic()
        {
            resume_unwind(error.into_panic());
        }
    }

    async fn go_on(mut self, stop: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        loop {
            let look = self.begin_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = shared.new_plan.notified() => self.follow(),
                Some(told) = self.told.recv() => {
                    self.hear(told);
                    while let Ok(told) = self.told.try_recv() {
                        self.hear(told);
                    }
                }
                () = sleep_until(look) => {}
            }
        }
    }

    fn follow(&mut self) {
        let plan = self.shared.live.plan();
        self.tools.forget_files();
        if let Some(asked) = self.checks.follow(&plan, self.shared.clock.now()) {
            tracing::warn!(
                asked,
                "the table asks for more checks a second than --max-checks allows; intervals are stretched"
            );
        }
    }

    /// Begins what is due. Returns when to look again.
    fn begin_due(&mut self) -> Instant {
        let now = self.shared.clock.now();
        while self.running < self.at_once
            && let Some(check) = self.checks.next(now)
        {
            self.running += 1;
            let report = Report {
                id: check.id,
                began: Instant::now(),
                is_told: false,
                tell: self.tell.clone(),
            };
            tokio::task::spawn_local(run(check, Rc::clone(&self.tools), report));
        }
        self.watch_the_time();
        let idle = Instant::now() + IDLE;
        if self.running >= self.at_once {
            return idle;
        }
        self.checks.next_due().map_or(idle, |due| {
            // Those that are due within a few milliseconds are worth one wake-up together.
            self.shared
                .clock
                .instant(due)
                .max(Instant::now() + TOGETHER)
        })
    }

    fn hear(&mut self, told: Told) {
        let (id, outcome, took) = match told {
            Told::Verdict(id, outcome, took) => (id, outcome, took),
            Told::Over => {
                self.running -= 1;
                return;
            }
        };
        let now = self.shared.clock.now();
        if let Outcome::NoCheck(why) = outcome
            && is_time(&mut self.warned.no_check)
        {
            tracing::warn!(
                "a check could not be made, which says nothing about its endpoint: {why}"
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

    /// Says when checks come too late for long.
    fn watch_the_time(&mut self) {
        let late = self.checks.late(self.shared.clock.now());
        if late < LATE {
            self.late_since = None;
            return;
        }
        let since = *self.late_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= LATE_FOR_LONG && is_time(&mut self.warned.late) {
            tracing::warn!(
                late_ms = late.as_millis(),
                running = self.running,
                "checks come late, so that intervals are stretched: more are due than --max-checks and descriptors allow"
            );
        }
    }
}

/// One line for each verdict that has changed.
fn announce(change: &Change) {
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

/// One check, from its first byte to its last.
async fn run(check: Check, tools: Rc<Tools>, mut report: Report) {
    let (outcome, rest) = tools.ask(&check).await;
    report.verdict(outcome);
    if let Some(rest) = rest {
        tools.close_in_order(rest).await;
    }
}

/// Tells what becomes of a check, whatever that is.
struct Report {
    id: CheckId,
    began: Instant,
    is_told: bool,
    tell: mpsc::UnboundedSender<Told>,
}

impl Report {
    fn verdict(&mut self, outcome: Outcome) {
        self.is_told = true;
        let told = Told::Verdict(self.id, outcome, self.began.elapsed());
        self.tell.send(told).ok();
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.is_told {
            self.verdict(Outcome::NoCheck("the check broke off"));
        }
        self.tell.send(Told::Over).ok();
    }
}

/// Whether it is time to say something again.
fn is_time(last: &mut Option<Instant>) -> bool {
    let is_time = last.is_none_or(|last| last.elapsed() >= SAID_EVERY);
    if is_time {
        *last = Some(Instant::now());
    }
    is_time
}

const TOGETHER: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(1);
const LATE_FOR_LONG: Duration = Duration::from_secs(10);
const SAID_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ballast_core::compile::{Surroundings, compile};
    use ballast_core::loops::LOOPBACK_ALONE;
    use ballast_core::table::{Format, parse};

    use super::*;
    use crate::access::AccessLog;
    use crate::limits::{Budget, Room};
    use crate::threads;

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
                            // Asked, it never answers.
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
        let (by_hand, _changes) = mpsc::unbounded_channel();
        let room = Room::new(Budget::in_force(), 1, None, None);
        let (shared, _inboxes) = Shared::new(room, 1, access, by_hand, None);
        let mut around = Surroundings {
            now: shared.clock.now(),
            workers: 1,
            ipv6: false,
            here: &LOOPBACK_ALONE,
            rng: &mut Rng::new(1),
        };
        let table = parse(text.as_bytes(), Format::Yaml).unwrap();
        let plan = compile(table, &shared.live.plan(), &mut around);
        shared.live.publish(Arc::new(plan));
        shared.new_plan.notify_one();

        let stop = CancellationToken::new();
        let probe = Probe::new(Arc::clone(&shared), 1000, 5, PathBuf::new(), Rng::new(2));
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
