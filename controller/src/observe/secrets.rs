//! Follows one Secret: reads it, and watches it by its name. `debounce` starts one task for each wanted Secret.
//!
//! A watch costs a connection, and tenants choose the names of Secrets: the number of watches is limited, separately for Secrets that
//! exist and for those that do not. A Secret without a watch is read again after up to a minute and a half.

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

use super::lookups::AnswerSender;
use super::refusals::Refusals;
use super::{Key, Secret, convert};

/// The limits of Secrets that are watched at once.
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

/// Sends the content of a Secret, at first and after every change; `None`: the Secret does not exist. A failed request sends nothing,
/// nor does a refusal that may pass.
pub(super) async fn follow(
    client: Client,
    key: Key,
    watches: Watches,
    answers: AnswerSender<Key, Option<Secret>>,
) {
    // Both come from an annotation, and become parts of the path of a request.
    if !is_name(&key.namespace) || !is_name(&key.name) {
        return answers.send(None).await;
    }
    let api: Api<core::Secret> = Api::namespaced(client, &key.namespace);
    let mut backoff = Backoff::new(FIRST, LONGEST);
    let mut rng = Rng::new(RandomState::new().hash_one(&key));
    let mut refusals = Refusals::default();
    loop {
        match timeout(ANSWER_WITHIN, api.get_opt(&key.name)).await {
            Ok(Ok(secret)) => {
                refusals.answered();
                let version = secret
                    .as_ref()
                    .and_then(|secret| secret.metadata.resource_version.clone());
                let slots = match secret {
                    Some(_) => &watches.existing,
                    None => &watches.absent,
                };
                answers.send(secret.map(readable)).await;
                if let Ok(_slot) = slots.try_acquire() {
                    let begun = Instant::now();
                    if let Err(error) = watch(&api, &key.name, version, &answers).await {
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
                if refusals.are_believed(Instant::now()) {
                    answers.send(Some(Secret::Forbidden)).await;
                }
                tracing::debug!(secret = %key, %error, "may not be read; trying again");
            }
            Ok(Err(error)) => {
                refusals.interrupted();
                tracing::debug!(secret = %key, %error, "cannot be read; trying again");
            }
            Err(_) => {
                refusals.interrupted();
                tracing::debug!(secret = %key, "no answer in time; trying again");
            }
        }
        sleep(backoff.next(&mut rng)).await;
    }
}

/// Sends every change of a Secret after `version`; without a version, also the Secret itself if it exists. Returns when the watch
/// ends.
async fn watch(
    api: &Api<core::Secret>,
    name: &str,
    version: Option<String>,
    answers: &AnswerSender<Key, Option<Secret>>,
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
                answers.send(Some(readable(secret))).await;
            }
            WatchEvent::Deleted(_) => answers.send(None).await,
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
