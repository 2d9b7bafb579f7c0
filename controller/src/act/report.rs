//! Says of this node that it serves, and what: keeps its Lease, which the leader reads before it publishes an address.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::{Ack, ExceptionState};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::events::Said;
use super::publish::{Acks, Written};
use super::pulse::{Act, Content, Heard, Pulse};
use super::readyz::Asker;
use super::{Decisions, Teller, exceptions};
use crate::clock::{self, micros};
use crate::decide::Desired;
use crate::lease::{self, EXCEPTIONS, SERVED};
use crate::metrics::Metrics;
use crate::request::{self, patiently};

/// The Lease of one node.
pub(crate) struct Report {
    /// The cluster.
    pub(crate) client: Client,
    /// The namespace of Leases.
    pub(crate) namespace: String,
    /// This node.
    pub(crate) node: String,
    /// Who says whether it serves.
    pub(crate) dataplane: SocketAddr,
    /// What is decided: a node without a table has no Lease.
    pub(crate) decisions: Decisions,
    /// What the data plane says.
    pub(crate) acks: Acks,
    /// Which tables were written.
    pub(crate) written: watch::Receiver<Written>,
    /// Says when to end.
    pub(crate) ending: watch::Receiver<bool>,
    /// Who is told what does not listen here.
    pub(crate) teller: Teller,
    /// What happens is counted here.
    pub(crate) metrics: Arc<Metrics>,
}

/// What the data plane does not do as asked, and by which words it is known.
#[derive(Default)]
struct Failing {
    of: Option<(Arc<Ack>, Arc<Desired>)>,
    said: BTreeSet<Said>,
}

impl Report {
    /// Keeps the Lease until the process ends.
    pub(crate) async fn run(mut self) {
        let mut pulse = Pulse::new();
        let mut asker = Asker::new(self.dataplane);
        let mut owner = None;
        let mut ticks = interval(ASK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = None;
        let mut failing = Failing::default();
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
            self.tell(&mut failing);
            self.keep(&mut pulse, &mut owner).await;
        }
        self.leave(asker).await;
    }

    /// Tells what is refused, or does not listen as asked, since the last look.
    fn tell(&self, failing: &mut Failing) {
        let ack = self.acks.borrow().clone();
        let decision = self.decisions.borrow().clone();
        let (Some(ack), Some(decision)) = (ack, decision) else {
            return;
        };
        let is_same = failing.of.as_ref().is_some_and(|(known, desired)| {
            Arc::ptr_eq(known, &ack) && Arc::ptr_eq(desired, &decision.desired)
        });
        if is_same {
            return;
        }
        let now = exceptions::said(&ack, &decision, &self.node);
        for said in now.difference(&failing.said) {
            self.teller.tell_of_node(said.clone());
        }
        *failing = Failing {
            of: Some((ack, decision.desired)),
            said: now,
        };
    }

    async fn keep(&mut self, pulse: &mut Pulse, owner: &mut Option<Value>) {
        let content = self.content();
        let now = clock::now();
        let act = match self.serves() {
            None => Act::Rest,
            Some(true) => pulse.act(now, &content),
            Some(false) => pulse.give_back(),
        };
        let done = match act {
            Act::Rest => return,
            Act::Renew => {
                if owner.is_none() {
                    *owner = self.owner().await;
                }
                self.renew(&content, owner.as_ref()).await
            }
            Act::Release => self.release().await,
        };
        match (done, act) {
            (Ok(()), Act::Renew) => pulse.renewed(now, content),
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

    fn content(&mut self) -> Content {
        let ack = self.acks.borrow_and_update().clone();
        let written = self.written.borrow_and_update();
        ack.map_or_else(Content::default, |ack| content(&ack, &written))
    }

    /// This process ends: the data plane may, too.
    async fn leave(&self, mut asker: Asker) {
        for _ in 0..LOOKS {
            if asker.ask().await != Heard::Ready {
                match self.release().await {
                    Ok(()) => tracing::info!(node = self.node, "gave this node's Lease back"),
                    Err(error) => tracing::warn!(%error, "cannot give this node's Lease back"),
                }
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
                "labels": {"app.kubernetes.io/name": "ballast"},
                "annotations": {SERVED: content.served, EXCEPTIONS: content.exceptions},
            },
            "spec": {
                "holderIdentity": self.node,
                "leaseDurationSeconds": SECONDS,
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

/// What the Lease says of what the data plane says.
fn content(ack: &Ack, written: &Written) -> Content {
    let label = ack.served.as_ref().and_then(|served| served.generation);
    let known = written
        .iter()
        .rev()
        .find(|(generation, _)| Some(*generation) == label);
    let mut content = Content {
        served: known.map_or_else(String::new, |(_, served)| served.clone()),
        exceptions: String::new(),
    };
    let told = ack
        .exceptions
        .iter()
        .filter(|exception| exception.state != ExceptionState::Idle);
    for exception in told {
        // A String takes everything.
        _ = writeln!(
            content.exceptions,
            "{} {} {}",
            exception.frontend, exception.bind, exception.state
        );
        if content.exceptions.len() > LARGEST {
            // Nothing new is published at a node that is in such a state.
            return Content::default();
        }
    }
    content
}

fn word(heard: Heard) -> &'static str {
    match heard {
        Heard::Ready => "ready",
        Heard::Leaving => "not ready",
        Heard::Nothing => "not there",
    }
}

const SECONDS: u32 = 10;
const ASK_EVERY: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS: usize = 6;
/// Kubernetes takes 256 KiB of annotations.
const LARGEST: usize = 200 << 10;

#[cfg(test)]
mod tests {
    use ballast_core::ack::{Exception, Served};

    use super::*;

    fn ack(generation: u64, states: &[ExceptionState]) -> Ack {
        let mut ack = Ack::new("i".to_owned());
        ack.served = Some(Served {
            generation: Some(generation),
            digest: String::new(),
        });
        let exceptions = states.iter().map(|state| Exception {
            frontend: "default.shop:80".parse().unwrap(),
            bind: "*:80".parse().unwrap(),
            state: *state,
            why: "w".to_owned(),
        });
        ack.exceptions = exceptions.collect();
        ack
    }

    #[test]
    fn the_lease_says_the_hash_of_the_table_that_is_served_and_not_of_the_newest() {
        let written = Written::from([(4, "old".to_owned()), (5, "new".to_owned())]);
        assert_eq!(content(&ack(4, &[]), &written).served, "old");
        assert_eq!(content(&ack(5, &[]), &written).served, "new");
        assert_eq!(content(&ack(3, &[]), &written).served, "", "nobody knows");
    }

    #[test]
    fn the_lease_says_what_does_not_listen_but_not_what_is_idle() {
        let states = [
            ExceptionState::Idle,
            ExceptionState::Failed,
            ExceptionState::NotLocal,
        ];
        let said = content(&ack(4, &states), &Written::new()).exceptions;
        assert_eq!(
            said,
            "default.shop:80 *:80 failed\ndefault.shop:80 *:80 not-local\n"
        );
    }
}
