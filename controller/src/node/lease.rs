//! Renews this node's Lease, which says that the node serves, and what it serves: the publisher reads it before it publishes an
//! address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::Ack;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::exceptions::exceptions;
use super::readyz::ReadyzClient;
use super::renew::{Action, LeaseContent, Readiness, RenewalSchedule};
use super::table::{Acks, Written};
use crate::clock::{self, micros};
use crate::decide::{Desired, Report};
use crate::lease::{self, EXCEPTIONS, Exceptions, NODE, PORTS, ROLE, SERVED, SETTINGS, Versions};
use crate::metrics::Metrics;
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
    /// The tables that were written last.
    pub(crate) written: watch::Receiver<Written>,
    /// `true` once the process ends.
    pub(crate) ending: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// The state from which the content of the Lease is made.
#[derive(Default)]
struct ContentState {
    /// The newest versions of Services that the data plane serves.
    served: Versions,
    /// A hash of where it listens.
    listens: u64,
    exceptions: Exceptions,
    sources: Option<Sources>,
    settings: String,
    ports: String,
    /// The exceptions that were written last.
    written: Option<String>,
}

/// The input from which the exceptions were made.
struct Sources {
    ack: Arc<Ack>,
    desired: Arc<Desired>,
    served: Option<Arc<Report>>,
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
            Action::Renew => self.renew(&content, owner).await.map(drop),
            Action::Release => {
                // When the Lease is held again, the Node may be another one of the same name.
                *owner = None;
                self.release().await
            }
        };
        match (done, action) {
            (Ok(()), Action::Renew) => {
                state.written = Some(content.exceptions.clone());
                schedule.renewed(now, content);
            }
            (Ok(()), Action::Expire) => state.written = Some(content.exceptions),
            (Ok(()), _) => {
                tracing::info!(node = self.node, "gave this node's Lease back");
                schedule.released();
            }
            (Err(error), _) => {
                self.metrics.api_failed(&error);
                tracing::warn!(%error, "cannot write this node's Lease");
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
            state.settings = lease::hash_of_settings(&settings.claims());
            state.ports = settings.ports_here().to_string();
        }
        let ack = self.acks.borrow_and_update().clone();
        let decision = self.decisions.borrow().clone();
        let (Some(ack), Some(decision)) = (ack, decision) else {
            return LeaseContent::default();
        };
        let written = self.written.borrow_and_update();
        state.update(&ack, &decision.desired, &written, &self.node);
        drop(written);
        LeaseContent {
            listens: state.listens,
            served: state.served.to_string(),
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
    /// Whether the exceptions differ from those that were written last.
    fn has_new_exceptions(&self, content: &LeaseContent) -> bool {
        match &self.written {
            Some(written) => *written != content.exceptions,
            None => !content.exceptions.is_empty(),
        }
    }

    /// Updates the state by an answer of the data plane.
    fn update(&mut self, ack: &Arc<Ack>, desired: &Arc<Desired>, written: &Written, node: &str) {
        let label = ack.served.as_ref().and_then(|served| served.generation);
        let mut newest_first = written.iter().rev();
        let known = newest_first.find(|table| Some(table.generation) == label);
        self.served = known.map_or_else(Versions::default, |table| table.versions.clone());
        let served = known.map(|table| &table.report);
        self.listens = served.map_or(0, |report| report.listens);
        let is_same = self.sources.as_ref().is_some_and(|sources| {
            Arc::ptr_eq(&sources.ack, ack)
                && Arc::ptr_eq(&sources.desired, desired)
                && sources.served.as_ref().map(Arc::as_ptr) == served.map(Arc::as_ptr)
        });
        if is_same {
            return;
        }
        // A Service that is closed in the served table stays closed until a newer table is served.
        let empty = Report::default();
        let closed = &served.map_or(&empty, |report| &**report).closed;
        self.exceptions = exceptions(ack, desired, closed, node);
        self.sources = Some(Sources {
            ack: Arc::clone(ack),
            desired: Arc::clone(desired),
            served: served.cloned(),
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
    use crate::node::table::WrittenTable;

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
        let served = |generation| {
            let mut state = ContentState::default();
            state.update(&ack(generation), &desired, &written, "edge");
            state.served.to_string()
        };
        assert_eq!(served(4), "rv=40");
        assert_eq!(served(5), "rv=50");
        assert_eq!(served(3), "", "an unknown table");
    }
}
