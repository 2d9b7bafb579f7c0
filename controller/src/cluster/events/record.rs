//! Events as the API server has them: written, counted where they repeat, read back. Called by [`super`].

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch};
use kube::{Api, Client};
use serde_json::json;

use super::NewEvent;
use crate::clock;
use crate::clock::micros;
use crate::request::{self, REPORTER, patiently};

/// Writes events, and counts those that repeat.
pub(super) struct Record {
    client: Client,
    instance: String,
    recent: HashMap<NewEvent, Recent>,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// It is there.
    Written,
    /// There were too many about that object.
    Dropped,
}

/// An event that is there: the same again is counted on it.
#[derive(Debug)]
struct Recent {
    name: String,
    count: i32,
    at: Duration,
}

impl Record {
    pub(super) fn new(client: Client, instance: String) -> Self {
        Self {
            client,
            instance,
            recent: HashMap::new(),
        }
    }

    /// Writes one down.
    pub(super) async fn write(&mut self, said: &NewEvent) -> Result<Recorded, kube::Error> {
        let now = clock::now();
        self.recent.retain(|_, recent| now < recent.at + FORGOTTEN);
        let events = self.events(said);
        if let Some(recent) = self.recent.get_mut(said) {
            let series =
                json!({"series": {"count": recent.count + 1, "lastObservedTime": micros()}});
            let params = request::patch();
            match patiently(events.patch(&recent.name, &params, &Patch::Merge(series))).await {
                Ok(_) => {
                    recent.count += 1;
                    recent.at = now;
                    return Ok(Recorded::Written);
                }
                // It was thrown away meanwhile.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let event = self.event(said);
        let name = event.metadata.name.clone().unwrap_or_default();
        let params = request::post();
        patiently(events.create(&params, &event)).await?;
        let recent = Recent {
            name,
            count: 1,
            at: now,
        };
        self.recent.insert(said.clone(), recent);
        Ok(Recorded::Written)
    }

    /// UID, reason and message of every event of this controller that is there.
    pub(super) async fn all(&self) -> Result<BTreeSet<(String, String, String)>, kube::Error> {
        let events: Api<Event> = Api::all(self.client.clone());
        let ours = format!("reportingController={REPORTER}");
        let ours = ListParams::default().fields(&ours);
        let told = |event: Event| Some((event.regarding?.uid?, event.reason?, event.note?));
        let mut all = BTreeSet::new();
        request::list(&events, ours, |event| all.extend(told(event))).await?;
        Ok(all)
    }

    fn events(&self, said: &NewEvent) -> Api<Event> {
        let namespace = said.about.namespace.as_deref().unwrap_or("default");
        Api::namespaced(self.client.clone(), namespace)
    }

    fn event(&self, said: &NewEvent) -> Event {
        let now = Timestamp::now();
        let about = &said.about;
        Event {
            metadata: ObjectMeta {
                name: Some(name(&about.name, now)),
                namespace: Some(
                    about
                        .namespace
                        .clone()
                        .unwrap_or_else(|| "default".to_owned()),
                ),
                ..ObjectMeta::default()
            },
            action: Some("Balance".to_owned()),
            reason: Some(said.reason.clone()),
            note: Some(said.message.clone()),
            type_: Some(format!("{:?}", said.kind)),
            event_time: Some(MicroTime(now)),
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some(about.kind.to_owned()),
                namespace: about.namespace.clone(),
                name: Some(about.name.clone()),
                uid: Some(about.uid.clone()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(self.instance.chars().take(128).collect()),
            ..Event::default()
        }
    }
}

/// The name of an event: that of the object that it is about, with the time, and no longer than a name may be.
fn name(about: &str, now: Timestamp) -> String {
    let about: String = about.chars().take(LONGEST_ABOUT).collect();
    let about = about.trim_end_matches(['.', '-']);
    format!("{about}.{:x}", now.as_nanosecond())
}

/// Of the 253 characters of a name.
const LONGEST_ABOUT: usize = 220;

/// The same after a longer time is another event.
const FORGOTTEN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_with_the_longest_name_has_events() {
        let now = Timestamp::now();
        for about in [
            "edge-1".to_owned(),
            "a.".repeat(126) + "b",
            "x".repeat(219) + "." + &"y".repeat(33),
        ] {
            let name = name(&about, now);
            assert!(name.len() <= 253, "{name}");
            assert!(!name.contains("..") && !name.contains("-."), "{name}");
            assert!(name.starts_with(about.get(..6).unwrap()), "{name}");
        }
    }
}
