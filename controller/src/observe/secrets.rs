//! Follows one Secret: reads it, and watches it by its name. Started by `debounce` for each that is wanted.
//!
//! A watch costs a connection, and tenants choose the names of Secrets: so the number of watches is limited, separately for Secrets
//! that exist and for those that do not. A Secret without a watch is read again every minute or so.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::backoff::Backoff;
use ballast_core::rng::Rng;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1 as core;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::lookups::Report;
use super::{Key, Secret, convert};

/// How many Secrets may be watched at once.
#[derive(Clone, Debug)]
pub(super) struct Watches {
    existing: Arc<Semaphore>,
    absent: Arc<Semaphore>,
}

impl Default for Watches {
    fn default() -> Self {
        Self {
            existing: Arc::new(Semaphore::new(MOST_EXISTING)),
            absent: Arc::new(Semaphore::new(MOST_ABSENT)),
        }
    }
}

/// Reports what is known of a Secret; `None`: it does not exist. What cannot be found out changes nothing.
pub(super) async fn follow(
    client: Client,
    key: Key,
    watches: Watches,
    report: Report<Key, Option<Secret>>,
) {
    // Both come from an annotation, and become parts of a path.
    if !is_name(&key.namespace) || !is_name(&key.name) {
        return report.say(None).await;
    }
    let api: Api<core::Secret> = Api::namespaced(client, &key.namespace);
    let mut backoff = Backoff::new(FIRST, LONGEST);
    let mut rng = Rng::new(RandomState::new().hash_one(&key));
    loop {
        match timeout(ANSWER_WITHIN, api.get_opt(&key.name)).await {
            Ok(Ok(secret)) => {
                let version = secret
                    .as_ref()
                    .and_then(|secret| secret.metadata.resource_version.clone());
                let slots = match secret {
                    Some(_) => &watches.existing,
                    None => &watches.absent,
                };
                report.say(secret.map(readable)).await;
                if let Ok(_slot) = slots.try_acquire() {
                    let begun = Instant::now();
                    if let Err(error) = watch(&api, &key.name, version, &report).await {
                        tracing::debug!(secret = %key, %error, "cannot be watched; reading it again");
                    }
                    if begun.elapsed() >= LASTED {
                        backoff.reset();
                    }
                } else {
                    sleep(LONGEST / 2).await;
                }
            }
            Ok(Err(error)) if is_forbidden(&error) => {
                report.say(Some(Secret::Forbidden)).await;
            }
            Ok(Err(error)) => {
                tracing::debug!(secret = %key, %error, "cannot be read; trying again");
            }
            Err(_) => {
                tracing::debug!(secret = %key, "no answer in time; trying again");
            }
        }
        sleep(backoff.next(&mut rng)).await;
    }
}

/// Reports every change of a Secret after `version`. Without a version, a Secret that exists is reported at first. Returns when the
/// watch ends.
async fn watch(
    api: &Api<core::Secret>,
    name: &str,
    version: Option<String>,
    report: &Report<Key, Option<Secret>>,
) -> kube::Result<()> {
    let seconds = u32::try_from(WATCH_FOR.as_secs()).unwrap_or(u32::MAX);
    let only = format!("metadata.name={name}");
    let asked = WatchParams::default().fields(&only).timeout(seconds);
    let version = version.unwrap_or_default();
    let Ok(stream) = timeout(ANSWER_WITHIN, api.watch(&asked, &version)).await else {
        return Ok(());
    };
    let mut stream = pin!(stream?);
    // The API server sends a bookmark every minute or so. Without one, the connection may be dead.
    while let Ok(Some(event)) = timeout(SILENCE, stream.next()).await {
        match event? {
            WatchEvent::Added(secret) | WatchEvent::Modified(secret) => {
                report.say(Some(readable(secret))).await;
            }
            WatchEvent::Deleted(_) => report.say(None).await,
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    Ok(())
}

fn readable(secret: core::Secret) -> Secret {
    Secret::Readable(convert::material(secret))
}

fn is_name(text: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=253).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed)
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

const MOST_EXISTING: usize = 300;
const MOST_ABSENT: usize = 300;
const WATCH_FOR: Duration = Duration::from_secs(3600);
const SILENCE: Duration = Duration::from_secs(240);
/// A watch that ended sooner counts as failed.
const LASTED: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
