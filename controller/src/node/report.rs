//! Keeps this node's Lease, which says that the node serves, and what: the publisher reads it before it publishes an address.

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
use super::pulse::{Act, Content, Heard, Pulse};
use super::readyz::Asker;
use super::recent::Recent;
use super::table::{Acks, Written};
use crate::clock::{self, micros};
use crate::decide::{Desired, Report};
use crate::lease::{self, EXCEPTIONS, Exceptions, NODE, ROLE, SERVED, SETTINGS};
use crate::metrics::Metrics;
use crate::reconcile::Decisions;
use crate::request::{self, patiently};
use crate::settings::Settings;

/// The Lease of one node.
pub(crate) struct LeaseKeeper {
    pub(crate) client: Client,
    /// The namespace of Leases.
    pub(crate) namespace: String,
    /// This node.
    pub(crate) node: String,
    /// How long the Lease holds without renewal.
    pub(crate) duration: Duration,
    /// Where the data plane answers whether it serves.
    pub(crate) dataplane: SocketAddr,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    /// A node without a table has no Lease.
    pub(crate) decisions: Decisions,
    pub(crate) acks: Acks,
    /// Which tables were written.
    pub(crate) written: watch::Receiver<Written>,
    /// Says when to end.
    pub(crate) ending: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What the Lease says, and from what that was made.
#[derive(Default)]
struct Said {
    recent: Recent,
    exceptions: Exceptions,
    of: Option<Sources>,
    settings: String,
    /// The exceptions that were written last.
    written: Option<String>,
}

/// What exceptions were made from.
struct Sources {
    ack: Arc<Ack>,
    desired: Arc<Desired>,
    served: Option<Arc<Report>>,
}

impl LeaseKeeper {
    /// How long it may stay for a data plane that ends. Shorter than the termination grace of rc.yaml's pods.
    pub(crate) const STAYS: Duration = Duration::from_secs(40);

    /// Keeps the Lease until the process ends.
    pub(crate) async fn run(mut self) {
        let mut pulse = Pulse::new(self.duration / 3);
        let mut asker = Asker::new(self.dataplane);
        let mut owner = None;
        let mut ticks = interval(ASK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = None;
        let mut said = Said::default();
        self.settings.mark_changed();
        while !*self.ending.borrow_and_update() {
            tokio::select! {
                _ = ticks.tick() => {
                    let heard = asker.ask().await;
                    if told != Some(heard) {
                        tracing::info!(dataplane = %self.dataplane, "the data plane is {}", word(heard));
                        told = Some(heard);
                        self.metrics.dataplane(heard == Heard::Ready);
                    }
                    pulse.heard(clock::now(), heard);
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
            self.keep(&mut pulse, &mut said, &mut owner).await;
        }
        self.leave(asker).await;
    }

    async fn keep(&mut self, pulse: &mut Pulse, said: &mut Said, owner: &mut Option<Value>) {
        let content = self.content(said);
        let now = clock::now();
        let act = match self.serves() {
            None => Act::Rest,
            Some(true) => pulse.act(now, &content),
            Some(false) => pulse.give_back(),
        };
        let done = match act {
            Act::Rest => return,
            Act::Silent if !said.is_news(&content) => return,
            Act::Silent => self.say(&content).await,
            Act::Renew => {
                if owner.is_none() {
                    *owner = self.owner().await;
                }
                self.renew(&content, owner.as_ref()).await
            }
            Act::Release => self.release().await,
        };
        match (done, act) {
            (Ok(()), Act::Renew) => {
                said.written = Some(content.exceptions.clone());
                pulse.renewed(now, content);
            }
            (Ok(()), Act::Silent) => said.written = Some(content.exceptions),
            (Ok(()), _) => {
                tracing::info!(node = self.node, "gave this node's Lease back");
                pulse.released();
            }
            (Err(error), _) => {
                self.metrics.api_failed(&error);
                tracing::warn!(%error, "cannot write this node's Lease");
                pulse.failed(clock::now());
            }
        }
    }

    /// Whether this node should serve; unknown before the first decision.
    fn serves(&self) -> Option<bool> {
        let decision = self.decisions.borrow();
        Some(decision.as_ref()?.desired.table.is_some())
    }

    fn content(&mut self, said: &mut Said) -> Content {
        if self.settings.has_changed().unwrap_or(false) {
            let claims = self.settings.borrow_and_update().claims();
            said.settings = lease::hash_of_settings(&claims);
        }
        let ack = self.acks.borrow_and_update().clone();
        let decision = self.decisions.borrow().clone();
        let (Some(ack), Some(decision)) = (ack, decision) else {
            return Content::default();
        };
        let written = self.written.borrow_and_update();
        said.update(&ack, &decision.desired, &written, &self.node);
        drop(written);
        let mut served = said.recent.said(clock::now());
        let exceptions = said.exceptions.clone().write(&mut served);
        Content {
            served: served.to_string(),
            exceptions,
            settings: said.settings.clone(),
        }
    }

    /// This process ends: the data plane may, too. A data plane that ends goes on serving clients for a while, and the rest of
    /// this process writes its table as long as this runs.
    async fn leave(&self, mut asker: Asker) {
        for _ in 0..LOOKS {
            if asker.ask().await != Heard::Ready {
                match self.release().await {
                    Ok(()) => tracing::info!(node = self.node, "gave this node's Lease back"),
                    Err(error) => tracing::warn!(%error, "cannot give this node's Lease back"),
                }
                let ended = async {
                    while asker.ask().await == Heard::Leaving {
                        sleep(LOOK_EVERY).await;
                    }
                };
                timeout(Self::STAYS, ended).await.ok();
                return;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn renew(&self, content: &Content, owner: Option<&Value>) -> Result<(), kube::Error> {
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
        match self.patch(&lease).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other,
        }
        let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
        let params = request::post();
        patiently(self.leases().create(&params, &lease))
            .await
            .map(|_| ())
    }

    /// Says what is wrong in a Lease that is not held, or not renewed: a data plane that refuses its first table serves nothing.
    async fn say(&self, content: &Content) -> Result<(), kube::Error> {
        let annotations = json!({"annotations": {EXCEPTIONS: content.exceptions}});
        match self.patch(&json!({"metadata": annotations})).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other,
        }
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": annotations,
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micros()},
        });
        lease["metadata"]["name"] = json!(self.name());
        lease["metadata"]["labels"] = json!({ROLE: NODE});
        let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
        let params = request::post();
        patiently(self.leases().create(&params, &lease))
            .await
            .map(|_| ())
    }

    async fn release(&self) -> Result<(), kube::Error> {
        let released = json!({
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micros()},
        });
        match self.patch(&released).await {
            // There is none to give back.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other,
        }
    }

    async fn patch(&self, lease: &Value) -> Result<(), kube::Error> {
        let params = request::patch();
        let leases = self.leases();
        let name = self.name();
        let patch = Patch::Merge(lease);
        patiently(leases.patch(&name, &params, &patch))
            .await
            .map(|_| ())
    }

    /// The Node: with it goes its Lease.
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

impl Said {
    /// Whether there is something wrong that was not written yet, or that is no more.
    fn is_news(&self, content: &Content) -> bool {
        match &self.written {
            Some(written) => *written != content.exceptions,
            None => !content.exceptions.is_empty(),
        }
    }

    /// Takes note of what the data plane serves, and what it does not.
    fn update(&mut self, ack: &Arc<Ack>, desired: &Arc<Desired>, written: &Written, node: &str) {
        let label = ack.served.as_ref().and_then(|served| served.generation);
        let mut newest_first = written.iter().rev();
        let known = newest_first.find(|(generation, _)| Some(*generation) == label);
        let served = known.map(|(_, report)| report);
        self.recent.serves(clock::now(), served);
        let is_same = self.of.as_ref().is_some_and(|of| {
            Arc::ptr_eq(&of.ack, ack)
                && Arc::ptr_eq(&of.desired, desired)
                && of.served.as_ref().map(Arc::as_ptr) == served.map(Arc::as_ptr)
        });
        if is_same {
            return;
        }
        // What was closed in the table that is served is closed until a newer one is.
        let nothing = Report::default();
        let closed = &served.map_or(&nothing, |report| &**report).closed;
        self.exceptions = exceptions(ack, desired, closed, node);
        self.of = Some(Sources {
            ack: Arc::clone(ack),
            desired: Arc::clone(desired),
            served: served.cloned(),
        });
    }
}

fn word(heard: Heard) -> &'static str {
    match heard {
        Heard::Ready => "ready",
        Heard::Leaving => "not ready",
        Heard::Nothing => "not there",
    }
}

const ASK_EVERY: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS: usize = 6;
#[cfg(test)]
mod tests {
    use ballast_core::ack::Served as ServedTable;

    use super::*;
    use crate::lease::{Binds, Served};

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
        let report = |number| {
            let binds = Binds::from([("shop.web".to_owned(), number)]);
            Arc::new(Report {
                binds,
                ..Report::default()
            })
        };
        let written = Written::from([(4, report(40)), (5, report(50))]);
        let desired = Arc::new(crate::decide::decide(
            &crate::observe::Observed::default(),
            &settings(),
        ));
        let served = |generation| {
            let mut said = Said::default();
            said.update(&ack(generation), &desired, &written, "edge");
            said.recent.said(Duration::ZERO)
        };
        assert_eq!(served(4), Served::of(&report(40).binds));
        assert_eq!(served(5), Served::of(&report(50).binds));
        assert_eq!(served(3), Served::default(), "nothing is known of it");
    }

    fn settings() -> Settings {
        #[derive(clap::Parser)]
        struct Told {
            #[command(flatten)]
            flags: crate::settings::Flags,
        }
        let told: Told = clap::Parser::parse_from(["x"]);
        Settings::new(told.flags).unwrap()
    }
}
