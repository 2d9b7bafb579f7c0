//! What a process that begins to lead waits for: the leader before may have given ports that the watch of this process has not shown
//! yet. Called by [`super::status`].

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use crate::observe::{Key, Observed};
use crate::reconcile::Decisions;
use crate::request::{self, patiently};

/// Returns once the newest decision knows every Service as the API server had it when this was called, or later. Before, this
/// process could give a port that a Service has which it has not seen.
pub(super) async fn caught_up(
    client: Client,
    namespaces: Vec<Option<String>>,
    mut decisions: Decisions,
) {
    let mut newest = loop {
        match newest(&client, &namespaces).await {
            Ok(newest) => break newest,
            Err(error) => tracing::debug!(%error, "cannot list Services, to begin to lead"),
        }
        sleep(AGAIN).await;
    };
    let mut rounds = 0_u32;
    loop {
        let shown = decisions.wait_for(|decision| {
            let observed = decision.as_ref().map(|decision| &*decision.observed);
            observed.is_some_and(|observed| behind(observed, &newest).next().is_none())
        });
        if timeout(AGAIN, shown).await.is_ok() {
            return;
        }
        // Before the first decision it is not known that Services are late: the observer logs which kinds were not listed.
        let Some(decision) = decisions.borrow().clone() else {
            continue;
        };
        let late = behind(&decision.observed, &newest).take(ASKED);
        let late: Vec<Key> = late.cloned().collect();
        rounds = rounds.saturating_add(1);
        if rounds == PATIENCE
            && let Some(first) = late.first()
        {
            tracing::warn!(
                "this process leads and writes no status yet: its watch of Services is late, of {first} among others; it begins once the watch has caught up; if it does not, look at the API server"
            );
        }
        let asked = late.len();
        let mut gone = BTreeSet::new();
        for key in late {
            if is_gone(&client, &key).await {
                gone.insert(key);
            }
        }
        newest.retain(|(key, _)| !gone.contains(key));
        // Many are being deleted: one list says which of the others are still there.
        if asked == ASKED
            && !gone.is_empty()
            && let Ok(there) = self::newest(&client, &namespaces).await
        {
            let there: BTreeSet<Key> = there.into_iter().map(|(key, _)| key).collect();
            newest.retain(|(key, _)| there.contains(key));
        }
    }
}

/// Whether a Service was deleted since it was listed.
async fn is_gone(client: &Client, key: &Key) -> bool {
    let api: Api<core::Service> = Api::namespaced(client.clone(), &key.namespace);
    matches!(patiently(api.get_metadata_opt(&key.name)).await, Ok(None))
}

/// Every Service, with its newest version.
async fn newest(
    client: &Client,
    namespaces: &[Option<String>],
) -> Result<Vec<(Key, u64)>, kube::Error> {
    let mut all = Vec::new();
    for namespace in namespaces {
        let api: Api<PartialObjectMeta<core::Service>> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let listed = request::list(&api, ListParams::default(), |service| {
            let meta = service.metadata;
            let version = meta.resource_version.and_then(|text| text.parse().ok());
            if let (Some(namespace), Some(name)) = (meta.namespace, meta.name) {
                all.push((Key::new(&namespace, &name), version.unwrap_or_default()));
            }
        });
        listed.await?;
    }
    Ok(all)
}

/// The Services that are not known in these versions, or later ones. One that cannot be read is known in the version that could not
/// be read.
fn behind<'a>(observed: &Observed, newest: &'a [(Key, u64)]) -> impl Iterator<Item = &'a Key> {
    let late = newest.iter().filter(|(key, version)| {
        let service = observed.services.get(key);
        let read = service.map(|service| service.publication.version);
        read.max(observed.unreadable.get(key).copied()) < Some(*version)
    });
    late.map(|(key, _)| key)
}

/// A watch shows within this time what was written before, or some of the Services that are late are asked for: they may be gone.
const AGAIN: Duration = Duration::from_secs(1);
/// How many of them.
const ASKED: usize = 16;
/// After so many times the log says why this process does not begin.
const PATIENCE: u32 = 10;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::{Request, Response, StatusCode};
    use kube::client::Body;
    use tokio::sync::watch;
    use tower::service_fn;

    use super::*;
    use crate::reconcile::Decision;

    fn decision(version: u64) -> Decision {
        Decision {
            observed: Arc::new(Observed::of(&format!(
                "kind: Service\nmetadata: {{name: web, namespace: shop, resourceVersion: '{version}'}}\n"
            ))),
            desired: Arc::default(),
            is_leaving: false,
        }
    }

    /// A client of an API server that has these Services in version 8, and nothing else. It counts the lists. Of a Service alone, and
    /// in later lists, it says that it was deleted, or not.
    fn client(names: &[&str], is_gone: bool, lists: &Arc<AtomicUsize>) -> Client {
        let lists = Arc::clone(lists);
        let object = |name: &&str| {
            format!(
                r#"{{"metadata": {{"name": "{name}", "namespace": "shop", "resourceVersion": "8"}}}}"#
            )
        };
        let objects: Vec<String> = names.iter().map(object).collect();
        let server = service_fn(move |request: Request<Body>| {
            let is_list = request.uri().path().ends_with("/services");
            let listed = lists.fetch_add(usize::from(is_list), Ordering::Relaxed);
            let objects = match is_gone && listed > 0 {
                true => String::new(),
                false => objects.join(", "),
            };
            let (code, text) = match (is_list, is_gone) {
                (true, _) => (
                    200,
                    format!(
                        r#"{{"apiVersion": "v1", "kind": "ServiceList", "metadata": {{"resourceVersion": "9"}}, "items": [{objects}]}}"#
                    ),
                ),
                (false, false) => (200, objects),
                (false, true) => (
                    404,
                    r#"{"kind": "Status", "status": "Failure", "message": "", "reason": "NotFound", "code": 404}"#
                        .to_owned(),
                ),
            };
            let mut answer = Response::new(Body::from(text.into_bytes()));
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            async { Ok::<_, Infallible>(answer) }
        });
        Client::new(server, "shop")
    }

    #[tokio::test]
    async fn a_leader_waits_until_it_has_seen_what_was_written_before() {
        let (decide, decisions) = watch::channel(Some(decision(7)));
        let lists = Arc::default();
        let client = client(&["web"], false, &lists);
        let caught_up = caught_up(client, vec![None], decisions);
        tokio::pin!(caught_up);
        let early = timeout(AGAIN * 3 / 2, &mut caught_up).await;
        assert!(early.is_err(), "version 8 is not seen yet");
        decide.send_replace(Some(decision(8)));
        let then = timeout(AGAIN, &mut caught_up).await;
        assert!(then.is_ok(), "it is seen");
        assert_eq!(lists.load(Ordering::Relaxed), 1, "thousands may be listed");
    }

    #[tokio::test]
    async fn a_leader_gives_nothing_while_it_has_not_seen_a_service_that_the_api_server_has() {
        for is_gone in [false, true] {
            let (_decide, decisions) = watch::channel(Some(decision(8)));
            let client = client(&["new"], is_gone, &Arc::default());
            let caught_up = caught_up(client, vec![None], decisions);
            let early = timeout(AGAIN * 7 / 2, caught_up).await;
            assert_eq!(
                early.is_ok(),
                is_gone,
                "the watch has not shown the Service"
            );
        }
    }

    #[tokio::test]
    async fn hundreds_of_services_that_were_deleted_meanwhile_are_waited_for_once() {
        let (_decide, decisions) = watch::channel(Some(decision(8)));
        let names: Vec<String> = (0..300).map(|number| format!("s{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let lists = Arc::default();
        let client = client(&names, true, &lists);
        let caught_up = caught_up(client, vec![None], decisions);
        assert!(timeout(AGAIN * 3, caught_up).await.is_ok());
        assert_eq!(lists.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_service_that_cannot_be_read_is_not_waited_for() {
        let newest = [(Key::new("shop", "web"), 8), (Key::new("shop", "odd"), 3)];
        for (version, unreadable, expected) in [
            (8, None, vec!["shop/odd"]),
            (8, Some(("odd", 2)), vec!["shop/odd"]),
            (8, Some(("odd", 3)), vec![]),
            (7, Some(("odd", 3)), vec!["shop/web"]),
            // Its last good form stays.
            (7, Some(("web", 8)), vec!["shop/odd"]),
        ] {
            let mut observed = Observed::clone(&decision(version).observed);
            let unreadable = unreadable.map(|(name, at)| (Key::new("shop", name), at));
            observed.unreadable.extend(unreadable);
            let late: Vec<String> = behind(&observed, &newest).map(Key::to_string).collect();
            assert_eq!(late, expected, "{version} {:?}", observed.unreadable);
        }
    }
}
