//! Renews this node's Lease, which says that the node serves, and what it serves: the publisher reads it before it publishes an
//! address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_announce::ack as announcer;
use ballast_core::ack::Ack;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::announcement::{refused, told};
use super::exceptions::exceptions;
use super::readyz::ReadyzClient;
use super::renew::{Action, LeaseContent, Readiness, RenewalSchedule};
use super::table::{Acks, Written, WrittenTable};
use crate::clock::{self, micros};
use crate::decide::{Announced, Desired, Report};
use crate::lease::{
    self, EXCEPTIONS, Exceptions, Message, NODE, NODES, PORTS, PUBLISHER_SETTINGS, ROLE, SERVED,
    SETTINGS,
};
use crate::metrics::Metrics;
use crate::observe::{Key, hash};
use crate::reconcile::Decisions;
use crate::request::{self, patiently};
use crate::settings::Settings;

/// Renews the Lease of one node.
pub(crate) struct LeaseRenewer {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) node: String,
    /// The time for which the Lease holds without renewal.
    pub(crate) duration: Duration,
    /// The address of the data plane's `/readyz`.
    pub(crate) dataplane: SocketAddr,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    /// A node without a table holds no Lease.
    pub(crate) decisions: Decisions,
    pub(crate) acks: Acks,
    /// The newest ack of the announcer, if there is one.
    pub(crate) announcer: watch::Receiver<Option<Arc<announcer::Ack>>>,
    /// The tables that were written last.
    pub(crate) written: watch::Receiver<Written>,
    /// `true` once the process ends.
    pub(crate) ending: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// The state from which the content of the Lease is made.
#[derive(Default)]
struct ContentState {
    /// The table that the data plane serves.
    served: Option<WrittenTable>,
    exceptions: Exceptions,
    sources: Option<Sources>,
    settings: String,
    ports: String,
    /// Whether the publisher says that it has other settings.
    differs: bool,
    /// How many nodes there are about, as the publisher says.
    nodes: u32,
    /// The exceptions that were written last.
    written: Option<String>,
    /// Whether the log says that the Lease cannot be written.
    failure_is_logged: bool,
}

/// The input from which the exceptions were made.
struct Sources {
    ack: Arc<Ack>,
    desired: Arc<Desired>,
    served: Option<Arc<Report>>,
    told: Told,
}

/// The messages in the Lease that come from the announcer's ack: of single Services, and of the node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    services: BTreeMap<Key, BTreeSet<Message>>,
    node: Option<Message>,
}

impl Told {
    fn by(ack: &announcer::Ack, announced: &Announced, now: u64) -> Self {
        Self {
            services: told(ack, announced, now),
            node: refused(ack),
        }
    }
}

impl LeaseRenewer {
    /// How long it may stay for a data plane that ends. Shorter than the termination grace of rc.yaml's pods.
    pub(crate) const STAYS: Duration = Duration::from_secs(40);

    /// Renews the Lease until the process ends.
    pub(crate) async fn run(mut self) {
        let mut schedule = RenewalSchedule::new(self.duration / 3);
        let mut readyz = ReadyzClient::new(self.dataplane);
        let mut owner = None;
        let mut ticks = interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut logged = None;
        let mut state = ContentState::default();
        self.settings.mark_changed();
        while !*self.ending.borrow_and_update() {
            tokio::select! {
                _ = ticks.tick() => {
                    let readiness = readyz.check().await;
                    if logged != Some(readiness) {
                        tracing::info!(dataplane = %self.dataplane, "the data plane is {}", word(readiness));
                        logged = Some(readiness);
                        self.metrics.dataplane.set((readiness == Readiness::Ready).into());
                    }
                    schedule.checked(clock::now(), readiness);
                }
                changed = self.acks.changed() => if changed.is_err() {
                    return;
                },
                Ok(()) = self.announcer.changed() => {}
                changed = self.written.changed() => if changed.is_err() {
                    return;
                },
                changed = self.ending.changed() => if changed.is_err() {
                    return;
                },
            }
            self.act(&mut schedule, &mut state, &mut owner).await;
        }
        self.leave(readyz).await;
    }

    /// Does the next step, if one is due.
    async fn act(
        &mut self,
        schedule: &mut RenewalSchedule,
        state: &mut ContentState,
        owner: &mut Option<Value>,
    ) {
        let content = self.content(state);
        let now = clock::now();
        let action = match self.is_member() {
            None => Action::Wait,
            Some(true) => schedule.action(now, &content),
            Some(false) => schedule.release_action(),
        };
        let done = match action {
            Action::Wait => return,
            Action::Expire if !state.has_new_exceptions(&content) => return,
            Action::Expire => self.write_exceptions(&content).await,
            Action::Renew => {
                let renewed = self.renew(&content, owner).await;
                renewed.map(|lease| state.note_publisher(&lease, &content))
            }
            Action::Release => {
                // When the Lease is held again, the Node may be another one of the same name.
                *owner = None;
                self.release().await
            }
        };
        state.log(done.as_ref().err());
        match (done, action) {
            (Ok(()), Action::Renew) => {
                state.written = Some(content.exceptions.clone());
                schedule.renewed(now, content);
                schedule.keep_pace(state.nodes, hash(&self.node));
            }
            (Ok(()), Action::Expire) => state.written = Some(content.exceptions),
            (Ok(()), _) => {
                tracing::info!(node = self.node, "gave this node's Lease back");
                schedule.released();
            }
            (Err(error), _) => {
                self.metrics.api_failed(&error);
                schedule.failed(clock::now());
            }
        }
    }

    /// Whether this node is to be published; `None` before the first decision.
    fn is_member(&self) -> Option<bool> {
        let decision = self.decisions.borrow();
        let decision = decision.as_ref()?;
        Some(decision.desired.table.is_some() && !decision.is_leaving)
    }

    fn content(&mut self, state: &mut ContentState) -> LeaseContent {
        if self.settings.has_changed().unwrap_or(false) {
            let settings = self.settings.borrow_and_update();
            state.settings = lease::hash_of_settings(&settings.in_common());
            state.ports = settings.ports_here().to_string();
        }
        let ack = self.acks.borrow_and_update().clone();
        let decision = self.decisions.borrow().clone();
        let (Some(ack), Some(decision)) = (ack, decision) else {
            return LeaseContent::default();
        };
        let written = self.written.borrow_and_update();
        let announcer = self.announcer.borrow_and_update().clone();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let told = announcer.map(|ack| Told::by(&ack, &decision.desired.announced, now));
        state.update(
            &ack,
            &decision.desired,
            &written,
            told.unwrap_or_default(),
            &self.node,
        );
        drop(written);
        let served = state.served.as_ref();
        LeaseContent {
            listens: served.map_or_else(Arc::default, |table| Arc::clone(&table.report.listens)),
            served: served.map_or_else(String::new, |table| table.versions.to_string()),
            exceptions: state.exceptions.clone().write(),
            settings: state.settings.clone(),
            ports: state.ports.clone(),
        }
    }

    /// Releases the Lease if the data plane ends with this process. A data plane that ends goes on serving clients for a while, and
    /// the rest of this process writes its table as long as this runs.
    async fn leave(&self, mut readyz: ReadyzClient) {
        for _ in 0..LAST_CHECKS {
            if readyz.check().await != Readiness::Ready {
                match self.release().await {
                    Ok(()) => tracing::info!(node = self.node, "gave this node's Lease back"),
                    Err(error) => tracing::warn!(%error, "cannot give this node's Lease back"),
                }
                let ended = async {
                    while readyz.check().await == Readiness::NotReady {
                        sleep(LAST_CHECK_EVERY).await;
                    }
                };
                timeout(Self::STAYS, ended).await.ok();
                return;
            }
            sleep(LAST_CHECK_EVERY).await;
        }
    }

    async fn renew(
        &self,
        content: &LeaseContent,
        owner: &mut Option<Value>,
    ) -> Result<Lease, kube::Error> {
        if owner.is_none() {
            *owner = self.owner().await;
        }
        match self.patch(&self.renewed(content, owner.as_ref())).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other,
        }
        // The Lease may have been deleted because its owner was, and the Node be another one of the same name.
        *owner = self.owner().await;
        self.create(self.renewed(content, owner.as_ref())).await
    }

    /// The Lease with this content, renewed now.
    fn renewed(&self, content: &LeaseContent, owner: Option<&Value>) -> Value {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name(),
                "labels": {"app.kubernetes.io/name": "ballast", ROLE: NODE},
                "annotations": {
                    SERVED: content.served,
                    EXCEPTIONS: content.exceptions,
                    SETTINGS: content.settings,
                    PORTS: content.ports,
                },
            },
            "spec": {
                "holderIdentity": self.node,
                "leaseDurationSeconds": self.duration.as_secs(),
                "renewTime": micros(),
            },
        });
        if let Some(owner) = owner {
            lease["metadata"]["ownerReferences"] = json!([owner]);
        }
        lease
    }

    /// Writes the exceptions to a Lease that is not held, or not renewed: a data plane that refuses its first table serves nothing.
    async fn write_exceptions(&self, content: &LeaseContent) -> Result<(), kube::Error> {
        let annotations = json!({"annotations": {EXCEPTIONS: content.exceptions}});
        match self.patch(&json!({"metadata": annotations})).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other.map(|_| ()),
        }
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": annotations,
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micros()},
        });
        lease["metadata"]["name"] = json!(self.name());
        lease["metadata"]["labels"] = json!({ROLE: NODE});
        self.create(lease).await.map(|_| ())
    }

    async fn release(&self) -> Result<(), kube::Error> {
        let released = json!({
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micros()},
        });
        match self.patch(&released).await {
            // There is no Lease to release.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(|_| ()),
        }
    }

    async fn patch(&self, lease: &Value) -> Result<Lease, kube::Error> {
        let params = request::patch();
        let leases = self.leases();
        let name = self.name();
        let patch = Patch::Merge(lease);
        patiently(leases.patch(&name, &params, &patch)).await
    }

    async fn create(&self, lease: Value) -> Result<Lease, kube::Error> {
        let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
        let params = request::post();
        patiently(self.leases().create(&params, &lease)).await
    }

    /// The Node, as the owner of the Lease: Kubernetes deletes the Lease with its Node.
    async fn owner(&self) -> Option<Value> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = patiently(nodes.get_metadata(&self.node)).await.ok()?;
        let uid = node.metadata.uid?;
        Some(json!({"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}))
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn name(&self) -> String {
        lease::of_node(&self.node)
    }
}

impl ContentState {
    /// Logs the first of several failures, and the end of them.
    fn log(&mut self, failure: Option<&kube::Error>) {
        let Some(error) = failure else {
            if std::mem::take(&mut self.failure_is_logged) {
                tracing::info!("this node's Lease is written again");
            }
            return;
        };
        let why = request::words(error);
        if std::mem::replace(&mut self.failure_is_logged, true) {
            tracing::debug!(why, "still cannot write this node's Lease");
            return;
        }
        let remedy = match error {
            kube::Error::Api(status) if status.code == 403 => {
                "apply the rights and policies of rc.yaml, and let no other pod use this account"
            }
            kube::Error::Api(_) => "look at the API server, and at what admits requests to it",
            _ => "see that this node reaches the API server",
        };
        tracing::warn!(
            why,
            "cannot write this node's Lease, without which the node is not published: {remedy}; it is tried again"
        );
    }

    /// Takes in what the publisher says in the Lease, and logs that it has other settings, or no longer has.
    fn note_publisher(&mut self, lease: &Lease, content: &LeaseContent) {
        let annotations = lease.metadata.annotations.as_ref();
        self.nodes = lease::read_crowd(annotations.and_then(|all| all.get(NODES)));
        let theirs = annotations.and_then(|all| all.get(PUBLISHER_SETTINGS));
        let differs = theirs.is_some_and(|theirs| *theirs != content.settings);
        match (std::mem::replace(&mut self.differs, differs), differs) {
            (false, true) => tracing::warn!(
                "SettingsDiffer: this node runs with other settings than the publisher: it may not serve what the publisher gives to Services; start both with the same flags"
            ),
            (true, false) => {
                tracing::info!("this node runs with the settings of the publisher again");
            }
            _ => {}
        }
    }

    /// Whether the exceptions differ from those that were written last.
    fn has_new_exceptions(&self, content: &LeaseContent) -> bool {
        match &self.written {
            Some(written) => *written != content.exceptions,
            None => !content.exceptions.is_empty(),
        }
    }

    /// Updates the state by an answer of the data plane.
    fn update(
        &mut self,
        ack: &Arc<Ack>,
        desired: &Arc<Desired>,
        written: &Written,
        told: Told,
        node: &str,
    ) {
        let label = ack.served.as_ref().and_then(|served| served.generation);
        let mut newest_first = written.iter().rev();
        match newest_first.find(|table| Some(table.generation) == label) {
            // An ack may come before the writer of the table has noted what it wrote. What was served before is served, too.
            None if label > written.back().map(|newest| newest.generation) => {}
            known => self.served = known.cloned(),
        }
        let served = self.served.as_ref().map(|table| &table.report);
        let is_same = self.sources.as_ref().is_some_and(|sources| {
            Arc::ptr_eq(&sources.ack, ack)
                && Arc::ptr_eq(&sources.desired, desired)
                && sources.served.as_ref().map(Arc::as_ptr) == served.map(Arc::as_ptr)
                && sources.told == told
        });
        if is_same {
            return;
        }
        // A Service that is closed in the served table stays closed until a newer table is served.
        let empty = Report::default();
        let closed = &served.map_or(&empty, |report| &**report).closed;
        self.exceptions = exceptions(ack, desired, closed, node);
        self.exceptions.node.extend(told.node.clone());
        for (key, messages) in &told.services {
            let exception = self.exceptions.services.entry(key.to_string());
            exception
                .or_default()
                .messages
                .extend(messages.iter().cloned());
        }
        self.sources = Some(Sources {
            ack: Arc::clone(ack),
            desired: Arc::clone(desired),
            served: served.cloned(),
            told,
        });
    }
}

fn word(readiness: Readiness) -> &'static str {
    match readiness {
        Readiness::Ready => "ready",
        Readiness::NotReady => "not ready",
        Readiness::Unreachable => "not there",
    }
}

const CHECK_EVERY: Duration = Duration::from_millis(250);
const LAST_CHECK_EVERY: Duration = Duration::from_millis(100);
const LAST_CHECKS: usize = 6;

#[cfg(test)]
mod tests {
    use ballast_core::ack::Served as ServedTable;

    use super::*;
    use crate::lease::Versions;

    fn ack(generation: u64) -> Arc<Ack> {
        let mut ack = Ack::new("i".to_owned());
        ack.served = Some(ServedTable {
            generation: Some(generation),
            digest: String::new(),
        });
        Arc::new(ack)
    }

    #[test]
    fn the_lease_says_what_the_table_that_is_served_says_and_not_the_newest() {
        let table = |generation| WrittenTable {
            generation,
            report: Arc::default(),
            versions: Versions::read(&format!("rv={generation}0")),
        };
        let written = Written::from([table(4), table(5)]);
        let desired = Arc::new(crate::decide::decide(
            &crate::observe::Observed::default(),
            &Settings::without_flags(),
        ));
        let mut state = ContentState::default();
        for (generation, said) in [
            (6, None),
            (4, Some("rv=40")),
            (5, Some("rv=50")),
            // Its writer has not noted it yet.
            (6, Some("rv=50")),
            // An unknown table.
            (3, None),
        ] {
            let told = Told::default();
            state.update(&ack(generation), &desired, &written, told, "edge");
            let served = state.served.as_ref();
            let served = served.map(|table| table.versions.to_string());
            assert_eq!(served.as_deref(), said, "{generation}");
        }
    }
}
