//! The single writer: bytes -> table -> plan -> sockets -> publish -> close -> ack.
//!
//! Runs on a thread of its own, at a lower priority than the workers. Whatever is wrong with a table, what is served stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::ack::{Ack, Refused, Served};
use ballast_core::change::{GoneEndpoint, change};
use ballast_core::compile::{Surroundings, compile, revise};
use ballast_core::plan::{Plan, SocketKey, Transport};
use ballast_core::rng::{Rng, mix};
use ballast_core::table::{self, OnGone, Problems, RoutingTable};
use socket2::Socket;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::admin::{Places, Wanted};
use crate::by_hand::Changes;
use crate::intake::{Found, Intake, Text, Which, named};
use crate::limits::{Budget, cgroup_memory};
use crate::listen;
use crate::worker::{Order, Shared};

mod exceptions;

/// What the writer is to do, for as long as the process lives.
#[derive(Debug)]
pub(crate) struct Duty {
    pub(crate) table: PathBuf,
    pub(crate) ack: Option<PathBuf>,
    pub(crate) instance: String,
    pub(crate) rng: Rng,
    pub(crate) budget: Budget,
    /// The limit of connections, if the command line has one; else it leaves room for what listens.
    pub(crate) told: Option<u32>,
    /// What the command line says of the admin side's addresses.
    pub(crate) places: Places,
    /// Where the admin side hears what the table says of them.
    pub(crate) admin: watch::Sender<Option<Wanted>>,
    /// What operators change by hand.
    pub(crate) by_hand: mpsc::UnboundedReceiver<Changes>,
}

/// The writer.
#[derive(Debug)]
pub(crate) struct Apply {
    shared: Arc<Shared>,
    duty: Duty,
    intake: Intake,
    ack: Ack,
    written: Option<Ack>,
    bound: BTreeMap<SocketKey, Bound>,
    failed: BTreeMap<SocketKey, String>,
    retired: Vec<Arc<Plan>>,
    ipv6: bool,
    nothing: Option<String>,
    /// The table does not parse; by then the rest of it may be there.
    doubted_until: Option<Instant>,
}

/// A socket that is there.
#[derive(Debug)]
struct Bound {
    key: Arc<SocketKey>,
    local: SocketAddr,
    workers: Vec<usize>,
    foreign: bool,
}

impl Apply {
    /// Within a runtime only.
    pub(crate) fn new(shared: Arc<Shared>, duty: Duty) -> Self {
        Self {
            shared,
            intake: Intake::new(duty.table.clone()),
            ack: Ack::new(duty.instance.clone()),
            duty,
            written: None,
            bound: BTreeMap::new(),
            failed: BTreeMap::new(),
            retired: Vec::new(),
            ipv6: listen::has_ipv6(),
            nothing: None,
            doubted_until: None,
        }
    }

    /// Applies tables until `stop`, then closes all sockets.
    pub(crate) async fn run(mut self, reread: Arc<tokio::sync::Notify>, stop: CancellationToken) {
        let mut anyhow = false;
        let mut retry = Instant::now() + RETRY_EVERY;
        loop {
            let again = self.look(anyhow).await;
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
                Some(changes) = self.duty.by_hand.recv() => self.revise(changes).await,
                () = sleep(again.unwrap_or(tidy)) => {}
                () = sleep_until(retry) => {
                    retry = Instant::now() + RETRY_EVERY;
                    self.retry().await;
                }
            }
        }
        let plan = self.shared.live.plan();
        self.finish().await;
        // Flows that go on need the socket that they came by.
        let connections: Vec<SocketKey> = self
            .bound
            .keys()
            .filter(|key| key.transport == Transport::Tcp)
            .cloned()
            .collect();
        self.close(&connections, &plan).await;
    }

    /// Begins no more flows.
    async fn finish(&self) {
        let mut waiting = Vec::new();
        for worker in 0..self.shared.inboxes.len() {
            let (done, told) = oneshot::channel();
            if self.order(worker, Order::Finish { done }) {
                waiting.push(told);
            }
        }
        for told in waiting {
            told.await.ok();
        }
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
                if self.nothing.as_ref() != Some(&nothing) {
                    tracing::warn!("no table: {nothing}");
                    self.nothing = Some(nothing);
                }
                return None;
            }
        };
        self.nothing = None;
        let parsed = table::parse(&text.bytes, text.format);
        let is_half = parsed.as_ref().is_err_and(Problems::not_whole);
        self.doubted_until = (is_half && !second_look && !anyhow).then(|| began + HALF_WRITTEN);
        match parsed {
            Ok(table) => {
                let digest = self.note(&text, &table);
                self.apply(table, digest, began).await;
            }
            Err(_) if self.doubted_until.is_some() => return Some(HALF_WRITTEN),
            Err(problems) => {
                let digest = self.intake.note(&text, Vec::new());
                self.refuse(&problems, digest);
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

    fn refuse(&mut self, problems: &Problems, digest: String) {
        if self
            .ack
            .refused
            .as_ref()
            .is_some_and(|refused| refused.digest == digest)
        {
            return;
        }
        self.shared.status.refused.fetch_add(1, Ordering::Relaxed);
        for problem in problems.iter() {
            tracing::error!("table refused: {problem}");
        }
        self.ack.refused = Some(Refused {
            generation: problems.generation(),
            digest,
            problems: problems.iter().cloned().collect(),
        });
        self.answer();
    }

    async fn apply(&mut self, table: RoutingTable, digest: String, began: Instant) {
        self.shared.access.follow(&table.log, &self.intake.folder());
        let previous = self.shared.live.plan();
        let plan = Arc::new(compile(
            table,
            &previous,
            &mut Surroundings {
                now: self.shared.clock.now(),
                workers: self.shared.loads.len(),
                ipv6: self.ipv6,
                rng: &mut self.duty.rng,
            },
        ));
        let (opened, closed) = self.put_in_force(&previous, &plan).await;
        drop(previous);
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
        self.ack.served = Some(Served {
            generation: plan.generation(),
            digest,
        });
        self.ack.refused = None;
        self.note_exceptions(&plan);
        // Who finds this process ready finds the answer, too.
        self.write_answer();
        self.shared.status.applied(took);
        self.shared.status.set_ack(&self.ack);
    }

    /// What an operator changed is a new plan of the same table.
    async fn revise(&mut self, changes: Changes) {
        let previous = self.shared.live.plan();
        let mut overrides = previous.overrides().clone();
        for change in &changes.changes {
            overrides.change(change);
        }
        let plan = Arc::new(revise(
            &previous,
            overrides,
            &mut Surroundings {
                now: self.shared.clock.now(),
                workers: self.shared.loads.len(),
                ipv6: self.ipv6,
                rng: &mut self.duty.rng,
            },
        ));
        self.put_in_force(&previous, &plan).await;
        changes.done.send(()).ok();
    }

    /// Opens what is new, publishes, closes what is gone. Says how many sockets were opened and closed.
    async fn put_in_force(&mut self, previous: &Arc<Plan>, plan: &Arc<Plan>) -> (usize, usize) {
        let there: BTreeSet<SocketKey> = self.bound.keys().cloned().collect();
        let change = change(&there, previous, plan);
        self.failed.retain(|key, _| change.open.contains(key));
        let opened = self.open(&change.open);
        self.retired
            .push(self.shared.live.publish(Arc::clone(plan)));
        self.shared.new_plan.notify_one();
        // Connections that wait, for a limit that may be gone or an endpoint that may have come, look again. Those who
        // wait at something that has left the table, or has another name now, are woken by nobody else.
        for plan in [previous, plan] {
            plan.frontends()
                .iter()
                .for_each(|frontend| frontend.state().admit().wake());
            plan.services()
                .iter()
                .for_each(|service| service.state().queue().wake_head());
        }
        self.hand_out(opened).await;
        self.close(&change.close, previous).await;
        self.end_connections(change.gone_endpoints);
        (change.open.len() - self.failed.len(), change.close.len())
    }

    /// Binds what is wanted; what cannot be bound is that one bind's failure.
    fn open(&mut self, keys: &[SocketKey]) -> Vec<(SocketKey, Vec<Socket>)> {
        let mut opened = Vec::new();
        let workers = self.shared.loads.len();
        let mut there: usize = self.bound.values().map(|bound| bound.workers.len()).sum();
        for key in keys {
            let Some(count) = self.duty.budget.sockets(there, workers) else {
                let why = format!(
                    "bind {}: {there} listening sockets are as many as {} descriptors allow; raise the limit (ulimit -n)",
                    key.address, self.duty.budget.descriptors
                );
                self.fail(key, why);
                continue;
            };
            match listen::open(key, count) {
                Ok(sockets) => {
                    there += sockets.len();
                    self.failed.remove(key);
                    opened.push((key.clone(), sockets));
                }
                Err(error) => self.fail(key, listen::explain(key.address, &error)),
            }
        }
        opened
    }

    fn fail(&mut self, key: &SocketKey, why: String) {
        if self.failed.get(key) != Some(&why) {
            tracing::error!("{why}");
            self.failed.insert(key.clone(), why);
        }
    }

    async fn hand_out(&mut self, opened: Vec<(SocketKey, Vec<Socket>)>) {
        let workers = self.shared.loads.len();
        let mut waiting = Vec::new();
        for (key, sockets) in opened {
            let local = sockets
                .first()
                .and_then(|socket| socket.local_addr().ok()?.as_socket());
            let local = local.unwrap_or(key.address);
            // A single socket belongs to one worker for its life, always the same one.
            let first = if sockets.len() == workers {
                0
            } else {
                home(key.address, workers)
            };
            let mut bound = Bound {
                key: Arc::new(key.clone()),
                local,
                workers: Vec::new(),
                foreign: !listen::is_local(key.address.ip()),
            };
            for (worker, socket) in (first..).zip(sockets) {
                let (done, told) = oneshot::channel();
                let order = Order::Listen {
                    key: Arc::clone(&bound.key),
                    socket,
                    done,
                };
                if self.order(worker, order) {
                    bound.workers.push(worker);
                    waiting.push((key.clone(), told));
                }
            }
            self.bound.insert(key, bound);
        }
        for (key, told) in waiting {
            if let Ok(Err(error)) = told.await {
                // An address is served by all its sockets, or by none.
                let plan = self.shared.live.plan();
                self.close(std::slice::from_ref(&key), &plan).await;
                self.fail(&key, format!("bind {key}: cannot be watched: {error}"));
            }
        }
        self.say_what_listens();
    }

    fn say_what_listens(&self) {
        let listening = self
            .bound
            .iter()
            .map(|(key, bound)| (key.clone(), bound.local));
        self.shared.status.set_listening(listening.collect());
        if self.duty.told.is_none() {
            let mut sockets = self.bound.values().map(|bound| bound.workers.len()).sum();
            let workers = self.shared.loads.len();
            if self.bound.keys().any(|key| key.transport == Transport::Udp) {
                sockets += self.duty.budget.flows(workers) * workers;
            }
            let most = self.duty.budget.beside(sockets, workers, cgroup_memory());
            self.shared.most.store(most, Ordering::Relaxed);
            self.shared.admit.wake();
        }
    }

    /// Closes whole addresses, each after what its queue holds was accepted.
    async fn close(&mut self, keys: &[SocketKey], last: &Arc<Plan>) {
        if keys.is_empty() {
            return;
        }
        let mut waiting = Vec::new();
        let gone: Vec<Bound> = keys
            .iter()
            .filter_map(|key| self.bound.remove(key))
            .collect();
        for bound in gone {
            for worker in bound.workers {
                let (done, told) = oneshot::channel();
                let order = Order::Close {
                    key: Arc::clone(&bound.key),
                    plan: Arc::clone(last),
                    done,
                };
                if self.order(worker, order) {
                    waiting.push(told);
                }
            }
        }
        for told in waiting {
            told.await.ok();
        }
        self.say_what_listens();
    }

    fn order(&self, worker: usize, order: Order) -> bool {
        let inbox = self.shared.inboxes.get(worker);
        inbox.is_some_and(|inbox| inbox.send(order).is_ok())
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
        let wanted = Some(self.duty.places.wanted(plan.stats()));
        self.duty.admin.send_if_modified(|known| {
            let changed = *known != wanted;
            if changed {
                *known = wanted;
            }
            changed
        });
    }

    /// Tries again what could not be bound, and looks again at addresses that were not here.
    async fn retry(&mut self) {
        let plan = self.shared.live.plan();
        let keys: Vec<SocketKey> = self.failed.keys().cloned().collect();
        let opened = self.open(&keys);
        for (key, _) in &opened {
            tracing::info!(address = %key, "listening at last");
        }
        self.hand_out(opened).await;
        for bound in self.bound.values_mut() {
            bound.foreign = !listen::is_local(bound.key.address.ip());
        }
        if self.ack.served.is_some() {
            self.note_exceptions(&plan);
            self.answer();
        }
    }

    /// Looks at what does not listen as it was asked for, and says what is new of that.
    fn note_exceptions(&mut self, plan: &Plan) {
        let now = exceptions::of(plan, &self.failed, &self.bound);
        exceptions::say_what_is_new(&self.ack.exceptions, &now);
        self.ack.exceptions = now;
    }

    fn answer(&mut self) {
        self.write_answer();
        self.shared.status.set_ack(&self.ack);
    }

    /// Writes the answer, if it is another one.
    fn write_answer(&mut self) {
        let Some(path) = &self.duty.ack else {
            return;
        };
        if self.written.as_ref() == Some(&self.ack) {
            return;
        }
        let draft = path.with_extension("json.tmp");
        let written = serde_json::to_vec(&self.ack)
            .map_err(std::io::Error::other)
            .and_then(|text| fs::write(&draft, text))
            .and_then(|()| fs::rename(&draft, path));
        match written {
            Ok(()) => self.written = Some(self.ack.clone()),
            Err(error) => tracing::error!(
                "{}: cannot write the ack: {error}; make its folder one to write to, or choose another --ack",
                path.display()
            ),
        }
    }

    /// Frees plans that nobody uses any more: here, so that no worker ever does.
    fn free_retired(&mut self) {
        self.retired.retain(|plan| Arc::strong_count(plan) > 1);
        self.shared
            .status
            .retired
            .store(self.retired.len() as u64, Ordering::Relaxed);
    }
}

/// The worker that owns a single socket.
fn home(address: SocketAddr, workers: usize) -> usize {
    let ip = match address.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => u64::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => {
            mix(u64::try_from(ip.to_bits() >> 64).unwrap_or(0))
                ^ u64::try_from(ip.to_bits() & u128::from(u64::MAX)).unwrap_or(0)
        }
    };
    let spread = mix(ip.rotate_left(16) ^ u64::from(address.port()));
    usize::try_from(spread % workers as u64).unwrap_or(0)
}

/// How soon what may be half a file is looked at again.
const HALF_WRITTEN: Duration = Duration::from_millis(200);
const RETRY_EVERY: Duration = Duration::from_secs(5);
const TIDY_EVERY: Duration = Duration::from_secs(1);
