//! One Service, read and patched: a task of its own. Begun by [`super`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::Value;

use super::rival::{Answer, Rivalry};
use super::wish::{self, Wish};
use super::{Mode, mode};
use crate::clock;
use crate::clock::micros;
use crate::cluster::events::NewEvent;
use crate::cluster::leader::Leading;
use crate::decide::{Kind, Verdict};
use crate::metrics::Metrics;
use crate::observe::Key;
use crate::request::{self, patiently};

/// What has to be done.
pub(super) struct Job {
    pub(super) client: Client,
    pub(super) leading: Leading,
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) wish: Wish,
    /// What this process wrote last.
    pub(super) before: Option<Wish>,
    pub(super) rivalry: Rivalry,
    pub(super) suffix: Option<String>,
    pub(super) keeps_modes: bool,
    /// Who holds the addresses.
    pub(super) nodes: BTreeMap<String, String>,
    pub(super) metrics: Arc<Metrics>,
}

/// What became of it.
pub(super) struct Done {
    pub(super) key: Key,
    pub(super) written: Written,
    pub(super) rivalry: Rivalry,
    pub(super) said: Vec<NewEvent>,
    /// Whether the API server kept the modes of addresses, where that was to be seen.
    pub(super) kept_modes: Option<bool>,
}

/// How it ended.
pub(super) enum Written {
    /// It is as wished.
    Settled(Wish),
    /// It must be looked at again, then.
    Later(std::time::Duration),
    /// This must be tried again.
    Failed(kube::Error, Wish),
    /// There is no such Service any more.
    Gone,
}

impl Job {
    pub(super) async fn run(self) -> Done {
        let mut done = Done {
            key: self.key.clone(),
            written: Written::Gone,
            rivalry: self.rivalry.clone(),
            said: Vec::new(),
            kept_modes: None,
        };
        done.written = match self.attempt(&mut done).await {
            Ok(written) => written,
            Err(kube::Error::Api(status)) if status.code == 404 => Written::Gone,
            Err(error) => Written::Failed(error, self.wish.clone()),
        };
        done
    }

    async fn attempt(&self, done: &mut Done) -> Result<Written, kube::Error> {
        let services: Api<core::Service> =
            Api::namespaced(self.client.clone(), &self.key.namespace);
        let Some(live) = patiently(services.get_opt(&self.key.name)).await? else {
            return Ok(Written::Gone);
        };
        if live.metadata.uid.as_ref() != Some(&self.uid) {
            return Ok(Written::Gone);
        }
        if let Some(until) = self.yields(&live, done) {
            return Ok(Written::Later(until));
        }
        let mode = self.mode();
        let patches = self.wish.patches(&live, mode, &micros());
        if patches.object.is_none() && patches.status.is_none() {
            done.rivalry.written();
            return Ok(Written::Settled(self.wish.clone()));
        }
        self.announce(&live, done);
        let mut refused = None;
        let written = match self.wish.verdict {
            // Unpublished first: who waits for the finalizer waits for that.
            Verdict::Released => {
                let half = self.patch(&services, live.clone(), true, patches.status);
                let half = half.await?;
                let object = self.wish.patches(&half, mode, &micros()).object;
                self.patch(&services, half, false, object).await?
            }
            _ => {
                let half = self.patch(&services, live.clone(), false, patches.object);
                let half = match half.await {
                    // The user's annotations may leave no room for ours. The finalizer and the status are written all the same.
                    Err(error) if request::refusal(&error).is_some() => {
                        let object = self.wish.without_annotations().object_patch(&live);
                        let half = self.patch(&services, live.clone(), false, object).await?;
                        refused = Some(error);
                        half
                    }
                    half => half?,
                };
                let status = self.wish.patches(&half, mode, &micros()).status;
                self.patch(&services, half, true, status).await?
            }
        };
        done.rivalry.written();
        self.tell(&live, &written, done);
        done.kept_modes = self.kept_modes(&written);
        if self.keeps_modes && done.kept_modes == Some(false) && self.suffix.is_some() {
            return Ok(Written::Later(clock::now()));
        }
        Ok(match refused {
            Some(error) => Written::Failed(error, self.wish.clone()),
            None => Written::Settled(self.wish.clone()),
        })
    }

    fn mode(&self) -> Mode<'_> {
        mode(self.keeps_modes, self.suffix.as_deref())
    }

    /// Until when the status is left alone, because another controller rewrites it again and again.
    fn yields(&self, live: &core::Service, done: &mut Done) -> Option<std::time::Duration> {
        if self.wish.verdict == Verdict::Released {
            // A user who deletes a Service must not wait for two controllers to agree.
            return None;
        }
        let before = self.before.as_ref()?;
        if before.is_published(live, self.mode()) || self.wish.is_published(live, self.mode()) {
            return None;
        }
        let rival = wish::rival(live)?;
        match done.rivalry.rewritten(clock::now()) {
            Answer::Rewrite => None,
            Answer::LeaveAlone(until) => {
                let message = format!(
                    "{rival} writes status.loadBalancer.ingress again and again; it is left alone for a while; stop one of the two controllers, or have one of them ignore this Service (ballast.dev/ignore: \"true\")"
                );
                self.say(done, Kind::Warning, "ForeignStatus", message);
                Some(until)
            }
        }
    }

    async fn patch(
        &self,
        services: &Api<core::Service>,
        live: core::Service,
        is_status: bool,
        patch: Option<Value>,
    ) -> Result<core::Service, kube::Error> {
        let Some(patch) = patch else {
            return Ok(live);
        };
        if !self.leading.is_now() {
            return Err(kube::Error::Service("leads no more".into()));
        }
        let params = request::patch();
        let (name, patch) = (&self.key.name, Patch::Merge(patch));
        let written = match is_status {
            true => patiently(services.patch_status(name, &params, &patch)).await?,
            false => patiently(services.patch(name, &params, &patch)).await?,
        };
        self.metrics.status_written();
        Ok(written)
    }

    /// Whether the API server kept the modes of the addresses that it took.
    fn kept_modes(&self, written: &core::Service) -> Option<bool> {
        let published = wish::ingress(written);
        let is_there = |entry: &core::LoadBalancerIngress| entry.ip.is_some();
        let is_to_be_seen = self.wish.has_modes() && published.iter().any(is_there);
        is_to_be_seen.then(|| published.iter().any(|entry| entry.ip_mode.is_some()))
    }

    /// What is told before anything is written.
    fn announce(&self, live: &core::Service, done: &mut Done) {
        match (self.wish.verdict, wish::was_served(live)) {
            (Verdict::Released, Some(_)) => {
                self.normal(done, "DeletingLoadBalancer", "Deleting load balancer");
            }
            (Verdict::Served | Verdict::Pending, None) => {
                if let Some(other) = &self.wish.taken_from {
                    let message = format!(
                        "{other} has not written the status for a minute: Ballast publishes this Service from now on"
                    );
                    self.say(done, Kind::Normal, "TakenOver", message);
                }
                self.normal(done, "EnsuringLoadBalancer", "Ensuring load balancer");
            }
            _ => {}
        }
    }

    /// What is told when it is written.
    fn tell(&self, live: &core::Service, written: &core::Service, done: &mut Done) {
        let was_served = wish::was_served(live);
        let is_no_news = matches!(self.wish.verdict, Verdict::Routed | Verdict::LeftAlone)
            // Ours again, in the place of another controller's.
            || self.before.as_ref() == Some(&self.wish);
        if is_no_news {
            return;
        }
        if self.wish.verdict == Verdict::Released {
            if was_served.is_some() {
                self.normal(done, "DeletedLoadBalancer", "Deleted load balancer");
            }
            return;
        }
        let before: Vec<&str> = wish::ingress(live).iter().filter_map(wish::place).collect();
        let after = wish::ingress(written);
        let new: Vec<&str> = after
            .iter()
            .filter_map(wish::place)
            .filter(|place| !before.contains(place))
            .collect();
        let is_new = |address: &&str| new.contains(address);
        let addresses: Vec<&str> = after
            .iter()
            .filter_map(|entry| entry.ip.as_deref())
            .collect();
        if addresses.iter().any(is_new) {
            let quoted: Vec<String> = addresses.iter().map(|ip| format!("\"{ip}\"")).collect();
            self.normal(
                done,
                "IPAllocated",
                &format!("Assigned IP [{}]", quoted.join(" ")),
            );
        }
        for address in &new {
            if let Some(node) = self.nodes.get(*address) {
                let message = format!("announcing from node \"{node}\" with protocol \"proxy\"");
                self.normal(done, "nodeAssigned", &message);
            }
        }
        let is_same = before.len() == after.len() && new.is_empty();
        match (wish::was_served(written), was_served) {
            (Some(true), Some(true)) if !is_same => {
                self.normal(
                    done,
                    "UpdatedLoadBalancer",
                    "Updated load balancer with new hosts",
                );
            }
            (Some(true), None | Some(false)) => {
                self.normal(done, "EnsuredLoadBalancer", "Ensured load balancer");
            }
            _ => {}
        }
    }

    fn normal(&self, done: &mut Done, reason: &'static str, message: &str) {
        self.say(done, Kind::Normal, reason, message.to_owned());
    }

    fn say(&self, done: &mut Done, kind: Kind, reason: &'static str, message: String) {
        done.said.push(NewEvent::of_service(
            &self.key, &self.uid, kind, reason, message,
        ));
    }
}
