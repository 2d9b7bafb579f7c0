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

/// The refusals of the API server in a row, for one object. A server that has just started may refuse for a moment what it allows: an
/// object that is known stays as it is until refusals last.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    is_known: bool,
    count: u32,
    /// The time of the first one.
    since: Option<Instant>,
}

impl Refusals {
    /// Notes that the object was read.
    pub(super) fn answered(&mut self) {
        *self = Self {
            is_known: true,
            ..Self::default()
        };
    }

    /// Notes a failure that is no refusal.
    pub(super) fn interrupted(&mut self) {
        (self.count, self.since) = (0, None);
    }

    /// Notes a refusal. Returns whether the object counts as refused.
    pub(super) fn are_believed(&mut self, now: Instant) -> bool {
        self.count = self.count.saturating_add(1);
        let since = *self.since.get_or_insert(now);
        !self.is_known || (self.count >= REFUSALS && now >= since + REFUSED_FOR)
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

/// The refusals in a row, and their time, after which a known object counts as refused.
const REFUSALS: u32 = 3;
const REFUSED_FOR: Duration = Duration::from_secs(10);
const MOST_EXISTING: usize = 300;
const MOST_ABSENT: usize = 300;
const WATCH_FOR: Duration = Duration::from_secs(3600);
const SILENCE: Duration = Duration::from_secs(240);
/// A watch that ended sooner counts as failed.
const LASTED: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BEGIN.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn an_object_that_is_not_known_is_refused_at_once() {
        let mut refusals = Refusals::default();
        assert!(refusals.are_believed(at(0)));
        refusals.interrupted();
        assert!(refusals.are_believed(at(1)));
    }

    #[test]
    fn a_known_object_is_refused_after_several_refusals_over_some_seconds() {
        let mut refusals = Refusals::default();
        refusals.answered();
        for second in 0..10 {
            assert!(!refusals.are_believed(at(second)), "{second}");
        }
        assert!(refusals.are_believed(at(10)));
        assert!(refusals.are_believed(at(11)));
        // Few refusals prove nothing, however much time lies between them.
        refusals.answered();
        assert!(!refusals.are_believed(at(20)));
        assert!(!refusals.are_believed(at(90)));
        assert!(refusals.are_believed(at(160)));
    }

    #[test]
    fn refusals_in_a_row_begin_anew_after_any_other_answer() {
        let mut refusals = Refusals::default();
        refusals.answered();
        for second in [0, 4, 8] {
            assert!(!refusals.are_believed(at(second)), "{second}");
        }
        refusals.interrupted();
        for second in [12, 16, 20] {
            assert!(!refusals.are_believed(at(second)), "{second}");
        }
        assert!(refusals.are_believed(at(22)));
    }
}
