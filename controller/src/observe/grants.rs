//! Follows the ReferenceGrants of one namespace, which let Services of other namespaces use its Secrets. `debounce` starts one task for
//! each wanted namespace.
//!
//! The kind may not exist (it belongs to the Gateway API), or may not be readable. Then nothing is granted, and the list is
//! tried again with pauses.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::time::Duration;

use ballast_core::backoff::Backoff;
use ballast_core::rng::Rng;
use futures_util::StreamExt;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::lookups::AnswerSender;
use super::refusals::Refusals;
use super::{Grant, convert};

/// Sends the grants at first and after every change. A failed request changes nothing, nor does a refusal that may pass.
pub(super) async fn follow(
    client: Client,
    namespace: String,
    answers: AnswerSender<String, Vec<Grant>>,
) {
    let apis = VERSIONS.map(|version| {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: version.to_owned(),
            api_version: format!("{GROUP}/{version}"),
            kind: "ReferenceGrant".to_owned(),
            plural: "referencegrants".to_owned(),
        };
        Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource)
    });
    let mut backoff = Backoff::new(FIRST, LONGEST);
    let mut rng = Rng::new(RandomState::new().hash_one(&namespace));
    let mut refusals = Refusals::default();
    loop {
        match timeout(ANSWER_WITHIN, list(&apis)).await {
            Ok(Ok((api, grants, version))) => {
                refusals.answered();
                answers.send(grants).await;
                let begun = Instant::now();
                // After a change, or the end of the watch, the grants are listed again.
                timeout(WATCH_FOR, changed(api, &version)).await.ok();
                if begun.elapsed() >= LASTED {
                    backoff.reset();
                }
            }
            Ok(Err(error)) if is_denied(&error) => {
                if refusals.are_believed(Instant::now()) {
                    answers.send(Vec::new()).await;
                }
                tracing::debug!(namespace, %error, "there are no ReferenceGrants, or they may not be read");
            }
            Ok(Err(error)) => {
                refusals.interrupted();
                tracing::debug!(namespace, %error, "cannot list ReferenceGrants");
            }
            Err(_) => {
                refusals.interrupted();
                tracing::debug!(namespace, "cannot list ReferenceGrants: no answer in time");
            }
        }
        sleep(backoff.next(&mut rng)).await;
    }
}

type Listed<'a> = (&'a Api<DynamicObject>, Vec<Grant>, String);

/// All grants, by the newest version of the API that the server has.
async fn list(apis: &[Api<DynamicObject>; 2]) -> kube::Result<Listed<'_>> {
    let [new, old] = apis;
    let params = ListParams::default();
    let (api, list) = match new.list(&params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => (old, old.list(&params).await?),
        listed => (new, listed?),
    };
    let grants = list
        .items
        .iter()
        .filter_map(|grant| convert::grant(&json!(grant)));
    let grants = grants.collect();
    Ok((
        api,
        grants,
        list.metadata.resource_version.unwrap_or_default(),
    ))
}

/// Returns after the first change after `version`, or the end of the watch.
async fn changed(api: &Api<DynamicObject>, version: &str) {
    let seconds = u32::try_from(WATCH_FOR.as_secs()).unwrap_or(u32::MAX);
    let params = WatchParams::default().disable_bookmarks().timeout(seconds);
    if let Ok(stream) = api.watch(&params, version).await {
        pin!(stream).next().await;
    }
}

fn is_denied(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [403, 404].contains(&status.code))
}

const GROUP: &str = "gateway.networking.k8s.io";
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const WATCH_FOR: Duration = Duration::from_secs(290);
/// A watch that ended sooner counts as failed.
const LASTED: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
