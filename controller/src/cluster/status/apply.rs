//! Makes one Service what it must be, by server-side apply: one task for each pass over a Service. Begun by [`super`].
//!
//! The addresses are applied without force, so that the API server names the controller that owns them, if another one does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::desired::DesiredStatus;
use super::rewrites::Rewrites;
use crate::clock;
use crate::cluster::events::NewEvent;
use crate::cluster::leader::Leading;
use crate::decide::{About, Kind, Verdict};
use crate::metrics::Metrics;
use crate::observe::{self, Service};
use crate::request::{self, patiently};

/// One pass over one Service.
pub(super) struct Pass {
    pub(super) client: Client,
    pub(super) leading: Leading,
    /// The newest known state of the Service.
    pub(super) service: Arc<Service>,
    pub(super) desired: DesiredStatus,
    pub(super) rewrites: Rewrites,
    /// The nodes that hold the published addresses, by address.
    pub(super) nodes: BTreeMap<String, String>,
    pub(super) metrics: Arc<Metrics>,
}

/// The result of a pass.
pub(super) struct Passed {
    /// The state of the Service in the API server's last answer.
    pub(super) service: Arc<Service>,
    pub(super) desired: DesiredStatus,
    /// Until when the addresses are left to another controller, which writes them again and again; `None`: everything was
    /// written.
    pub(super) result: Result<Option<Duration>, kube::Error>,
    pub(super) rewrites: Rewrites,
    pub(super) events: Vec<NewEvent>,
    /// Whether the API server drops `ipMode`, if the pass has shown that.
    pub(super) drops_ip_mode: Option<bool>,
}

/// Removes everything of ours from a Service that no publisher writes to any more.
pub(in crate::cluster) async fn release(
    client: &Client,
    service: Service,
    desired: DesiredStatus,
) -> Result<(), kube::Error> {
    let pass = Pass {
        client: client.clone(),
        leading: Leading::always(),
        service: Arc::new(service),
        desired,
        rewrites: Rewrites::default(),
        nodes: BTreeMap::new(),
        metrics: Arc::default(),
    };
    pass.run().await.result.map(drop)
}

impl Pass {
    pub(super) async fn run(self) -> Passed {
        let mut passed = Passed {
            service: Arc::clone(&self.service),
            desired: self.desired.clone(),
            result: Ok(None),
            rewrites: self.rewrites.clone(),
            events: Vec::new(),
            drops_ip_mode: None,
        };
        passed.result = self.write(&mut passed).await;
        if passed.result.as_ref().is_err_and(request::knows_no_ip_mode) {
            passed.drops_ip_mode = Some(true);
        }
        passed
    }

    async fn write(&self, passed: &mut Passed) -> Result<Option<Duration>, kube::Error> {
        // Kubernetes does not record which controller has removed all addresses.
        let is_cleared = self.service.ingress.is_empty() && !self.desired.places().is_empty();
        if is_cleared && let Some(until) = self.yields(passed, "another controller") {
            self.tell_yielded(passed, "another controller").await;
            return Ok(Some(until));
        }
        let has_rival = is_cleared || self.service.rival.is_some();
        if !has_rival
            && passed.rewrites.is_another(&self.service.publication)
            && let Some(until) = self.yields(passed, "another Ballast, or somebody in its name,")
        {
            return Ok(Some(until));
        }
        if self.desired.verdict == Verdict::Released {
            if self.service.finalizer && !self.desired.reserves.is_empty() {
                self.reserve().await?;
            }
            // The finalizer is removed last, because a deletion must not end before the addresses are withdrawn.
            self.write_status(passed).await?;
            self.write_metadata(passed).await?;
            Ok(None)
        } else {
            let metadata = self.write_metadata(passed).await;
            if let Err(error) = &metadata
                && request::refusal(error).is_none()
            {
                return metadata.map(|()| None);
            }
            let until = self.write_status(passed).await?;
            if until.is_none() {
                metadata?;
            }
            Ok(until)
        }
    }

    /// Keeps the addresses of the Service, which goes, for a later one of its name.
    async fn reserve(&self) -> Result<(), kube::Error> {
        let key = &self.service.key;
        let kind = request::own_kind("AddressReservation");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &kind);
        let object = json!({
            "apiVersion": "ballast.dev/v1",
            "kind": "AddressReservation",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "spec": {"addresses": self.desired.reserves},
        });
        if !self.leading.is_now() {
            return Err(kube::Error::Service("leads no more".into()));
        }
        let (params, patch) = (request::apply(true), Patch::Apply(&object));
        match patiently(api.patch(&key.name, &params, &patch)).await {
            Err(kube::Error::Api(status)) if (400..429).contains(&status.code) => {
                // The deletion must not wait for ever, for example for a kind that is not installed.
                tracing::warn!(service = %key, why = status.message, "its addresses are not kept: no AddressReservation can be made");
                Ok(())
            }
            result => result.map(drop),
        }
    }

    /// Writes the finalizer and the annotations.
    async fn write_metadata(&self, passed: &mut Passed) -> Result<(), kube::Error> {
        if self.desired.is_in_metadata(&passed.service) {
            return Ok(());
        }
        let params = request::apply(true);
        let object = self.desired.metadata(&passed.service);
        let applied = self.patch(passed, false, &params, Patch::Apply(object));
        let applied = applied.await;
        if let Err(error) = &applied
            && request::refusal(error).is_some()
        {
            // The user's annotations may leave no room for ours. The finalizer and the status are written all the same.
            let fewer = self.desired.without_new_annotations(&passed.service);
            if !fewer.is_in_metadata(&passed.service) {
                let object = fewer.metadata(&passed.service);
                self.patch(passed, false, &params, Patch::Apply(object))
                    .await?;
            }
        }
        applied?;
        if let Some(patch) = self.desired.leftovers(&passed.service) {
            let patch = Patch::Strategic(patch);
            self.patch(passed, false, &request::patch(), patch).await?;
        }
        Ok(())
    }

    /// Writes the addresses and the condition. Returns until when they are left to another controller.
    async fn write_status(&self, passed: &mut Passed) -> Result<Option<Duration>, kube::Error> {
        if let Some(patch) = self.desired.shared_conditions(&passed.service) {
            let patch = Patch::Strategic(patch);
            self.patch(passed, true, &request::patch(), patch).await?;
        }
        if self.desired.is_in_status(&passed.service) {
            return Ok(None);
        }
        let now = Timestamp::now().as_second();
        let object = self.desired.status(&passed.service, now);
        let is_taken_over = self.desired.taken_from.is_some();
        let params = request::apply(is_taken_over);
        let applied = self.patch(passed, true, &params, Patch::Apply(&object));
        let mut applied = applied.await;
        if let Err(error) = &applied
            && request::is_conflict(error)
        {
            // A conflict without another publisher is about our condition, which is ours by its name.
            if let Some(publisher) = request::conflicting_publisher(error) {
                if self.service.rival.is_none() && !passed.rewrites.is_ours() {
                    // The decision does not know of that controller yet.
                    return applied.map(|_| None);
                }
                if let Some(until) = self.yields(passed, &publisher) {
                    self.tell_yielded(passed, &publisher).await;
                    return Ok(Some(until));
                }
            }
            let params = request::apply(true);
            let forced = self.patch(passed, true, &params, Patch::Apply(&object));
            applied = forced.await;
        }
        let live = applied?;
        passed.drops_ip_mode = drops_ip_mode(&live);
        passed.rewrites.left(&passed.service.publication);
        // In the place of another controller's, our addresses are no news.
        if passed.rewrites.written(&self.desired.places()) {
            self.tell(passed);
        }
        Ok(None)
    }

    /// Until when the addresses are left to another controller, because it has rewritten ours again and again. A user who deletes
    /// a Service does not wait for two controllers to agree.
    fn yields(&self, passed: &mut Passed, publisher: &str) -> Option<Duration> {
        if self.desired.verdict == Verdict::Released {
            return None;
        }
        let until = passed.rewrites.rewritten(clock::now())?;
        let message = format!(
            "{publisher} writes the status of this Service again and again; it is left alone for a while; stop one of the two controllers, or have one of them ignore this Service (ballast.dev/ignore: \"true\")"
        );
        self.event(passed, Kind::Warning, "ForeignStatus", message);
        Some(until)
    }

    /// Says in the condition that the addresses are left to another controller. Another Ballast has the condition itself.
    async fn tell_yielded(&self, passed: &mut Passed, publisher: &str) {
        let yielded = self.desired.yielded(publisher);
        if yielded.is_in_status(&passed.service) {
            return;
        }
        let object = yielded.status(&passed.service, Timestamp::now().as_second());
        let params = request::apply(true);
        let told = self.patch(passed, true, &params, Patch::Apply(&object));
        if let Err(error) = told.await {
            tracing::debug!(%error, service = %self.service.key, "cannot write that a status is left alone");
        }
    }

    fn services(&self) -> Api<core::Service> {
        Api::namespaced(self.client.clone(), &self.service.key.namespace)
    }

    /// Sends a patch, and takes in the state of the Service that the API server answers with.
    async fn patch<T: serde::Serialize + std::fmt::Debug>(
        &self,
        passed: &mut Passed,
        is_status: bool,
        params: &PatchParams,
        patch: Patch<T>,
    ) -> Result<core::Service, kube::Error> {
        if !self.leading.is_now() {
            return Err(kube::Error::Service("leads no more".into()));
        }
        let (services, name) = (self.services(), &self.service.key.name);
        let live = match is_status {
            true => patiently(services.patch_status(name, params, &patch)).await?,
            false => patiently(services.patch(name, params, &patch)).await?,
        };
        self.metrics.statuses.inc();
        if Arc::ptr_eq(&passed.service, &self.service) {
            self.announce(passed);
        }
        let service = observe::service(live.clone());
        passed.service = Arc::new(service.map_err(|why| kube::Error::Service(why.into()))?);
        Ok(live)
    }

    /// The events of the first write of a pass.
    fn announce(&self, passed: &mut Passed) {
        match (self.desired.verdict, was_served(&self.service)) {
            (Verdict::Released, Some(_)) => {
                self.normal(passed, "DeletingLoadBalancer", "Deleting load balancer");
            }
            (Verdict::Served | Verdict::Pending, None) => {
                if let Some(other) = &self.desired.taken_from {
                    let message = format!(
                        "{other} has not written the status for a minute: Ballast publishes this Service from now on"
                    );
                    self.event(passed, Kind::Normal, "TakenOver", message);
                }
                self.normal(passed, "EnsuringLoadBalancer", "Ensuring load balancer");
            }
            _ => {}
        }
    }

    /// The events of a written status.
    fn tell(&self, passed: &mut Passed) {
        let after = Arc::clone(&passed.service);
        let (was_served, is_served) = (was_served(&self.service), was_served(&after));
        if self.desired.verdict == Verdict::Released {
            if was_served.is_some() {
                self.normal(passed, "DeletedLoadBalancer", "Deleted load balancer");
            }
            return;
        }
        let before = &self.service.ingress;
        let is_new = |place: &&String| !before.contains(place);
        let new: Vec<&String> = after.ingress.iter().filter(is_new).collect();
        let is_address = |place: &&String| place.parse::<std::net::IpAddr>().is_ok();
        if new.iter().any(is_address) {
            let addresses = after.ingress.iter().filter(is_address);
            let quoted: Vec<String> = addresses.map(|ip| format!("\"{ip}\"")).collect();
            let message = format!("Assigned IP [{}]", quoted.join(" "));
            self.normal(passed, "IPAllocated", &message);
        }
        for address in &new {
            if let Some(node) = self.nodes.get(*address) {
                let message = format!("announcing from node \"{node}\" with protocol \"proxy\"");
                self.normal(passed, "nodeAssigned", &message);
            }
        }
        let is_same = before.len() == after.ingress.len() && new.is_empty();
        match (is_served, was_served) {
            (Some(true), Some(true)) if !is_same => {
                let message = "Updated load balancer with new hosts";
                self.normal(passed, "UpdatedLoadBalancer", message);
            }
            (Some(true), None | Some(false)) => {
                self.normal(passed, "EnsuredLoadBalancer", "Ensured load balancer");
            }
            _ => {}
        }
    }

    fn normal(&self, passed: &mut Passed, reason: &'static str, message: &str) {
        self.event(passed, Kind::Normal, reason, message.to_owned());
    }

    fn event(&self, passed: &mut Passed, kind: Kind, reason: &'static str, message: String) {
        let Service { key, uid, .. } = &*self.service;
        let about = About::Service(key.clone());
        let event = NewEvent::new(about, uid, kind, reason, message);
        passed.events.push(event);
    }
}

/// The status of our condition; `None`: the Service never was ours.
fn was_served(service: &Service) -> Option<bool> {
    let condition = service.publication.programmed?;
    Some(condition.is_true)
}

/// Whether the API server has taken an address without its mode. One that knows the mode adds it where it is not written. `None`:
/// there is no address.
fn drops_ip_mode(live: &core::Service) -> Option<bool> {
    let balancer = live
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let entries = balancer
        .and_then(|balancer| balancer.ingress.as_ref())
        .into_iter()
        .flatten();
    let mut addresses = entries.filter(|entry| entry.ip.is_some()).peekable();
    addresses.peek()?;
    Some(addresses.any(|entry| entry.ip_mode.is_none()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_shows_whether_the_api_server_keeps_ip_mode() {
        for (ingress, expected) in [
            (json!([]), None),
            (json!([{"hostname": "web.example.com"}]), None),
            (json!([{"ip": "10.0.0.1"}]), Some(true)),
            (json!([{"ip": "10.0.0.1", "ipMode": "Proxy"}]), Some(false)),
            // The server adds it.
            (json!([{"ip": "10.0.0.1", "ipMode": "VIP"}]), Some(false)),
        ] {
            let live = json!({"status": {"loadBalancer": {"ingress": ingress}}});
            let live = serde_json::from_value(live).unwrap();
            assert_eq!(drops_ip_mode(&live), expected, "{ingress}");
        }
    }
}
