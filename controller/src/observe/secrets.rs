//! Reads one Secret again and again: RBAC gives `get` alone, so there is nothing to watch. Started by `debounce` for each
//! that is wanted.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use ballast_core::backoff::Backoff;
use ballast_core::rng::Rng;
use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::lookups::Report;
use super::{Key, Secret, convert};

/// Reports what is known of a Secret; `None`: it does not exist. What cannot be found out changes nothing.
pub(super) async fn follow(client: Client, key: Key, report: Report<Key, Option<Secret>>) {
    // Both come from an annotation, and become parts of a path.
    if !is_name(&key.namespace) || !is_name(&key.name) {
        return report.say(None).await;
    }
    let api: Api<core::Secret> = Api::namespaced(client, &key.namespace);
    let mut backoff = Backoff::new(FIRST, EVERY);
    let mut rng = Rng::new(RandomState::new().hash_one(&key));
    let mut known = None;
    loop {
        let answer = timeout(ANSWER_WITHIN, look(&api, &key.name, &mut known)).await;
        let wait = match answer {
            Ok(Ok(answer)) => {
                if let Some(secret) = answer {
                    report.say(secret).await;
                }
                backoff.reset();
                // Those that were wanted together are not asked for together for ever.
                let spread = u64::try_from(SPREAD.as_millis()).unwrap_or_default();
                EVERY - Duration::from_millis(rng.below(spread))
            }
            Ok(Err(error)) => {
                tracing::debug!(secret = %key, %error, "cannot be read; trying again");
                backoff.next(&mut rng)
            }
            Err(_) => {
                tracing::debug!(secret = %key, "no answer in time; trying again");
                backoff.next(&mut rng)
            }
        };
        sleep(wait).await;
    }
}

/// Reads it, if it is not the version that is `known`. Of one that did not change only the metadata comes over the wire.
async fn look(
    api: &Api<core::Secret>,
    name: &str,
    known: &mut Option<String>,
) -> kube::Result<Option<Option<Secret>>> {
    if known.is_some() {
        match api.get_metadata_opt(name).await {
            Ok(Some(meta)) if meta.metadata.resource_version == *known => return Ok(None),
            Ok(_) => {}
            Err(error) if is_forbidden(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let secret = match api.get_opt(name).await {
        Ok(secret) => secret,
        Err(error) if is_forbidden(&error) => {
            *known = None;
            return Ok(Some(Some(Secret::Forbidden)));
        }
        Err(error) => return Err(error),
    };
    *known = secret
        .as_ref()
        .and_then(|secret| secret.metadata.resource_version.clone());
    let readable = secret.map(|secret| Secret::Readable(convert::material(secret)));
    Ok(Some(readable))
}

fn is_name(text: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=253).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed)
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

const EVERY: Duration = Duration::from_secs(5);
const SPREAD: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
