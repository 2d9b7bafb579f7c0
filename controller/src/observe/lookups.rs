//! Lookups of single objects, such as Secrets and DNS names. Each one is repeated while a decision wants it. Used by `debounce`.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use ballast_core::backoff::Backoff;
use ballast_core::rng::Rng;
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The running lookups with their last answers.
pub(super) struct Lookups<K, V> {
    running: BTreeMap<K, Running<V>>,
    sender: mpsc::Sender<(K, V)>,
    answers: mpsc::Receiver<(K, V)>,
}

struct Running<V> {
    answer: Option<V>,
    _task: Task,
}

/// The channel by which a lookup sends its answers.
pub(super) struct AnswerSender<K, V> {
    key: K,
    sender: mpsc::Sender<(K, V)>,
}

impl<K: Clone, V> AnswerSender<K, V> {
    /// Sends an answer. An equal answer changes nothing.
    pub(super) async fn send(&self, value: V) {
        // After an error, this task is about to be aborted.
        drop(self.sender.send((self.key.clone(), value)).await);
    }
}

impl<K, V> Lookups<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: PartialEq + Send + 'static,
{
    pub(super) fn new() -> Self {
        let (sender, answers) = mpsc::channel(64);
        Self {
            running: BTreeMap::new(),
            sender,
            answers,
        }
    }

    /// Starts the lookups that are wanted newly, and ends those that are not wanted any more. Returns whether an answer was dropped.
    pub(super) fn want<F>(
        &mut self,
        wanted: &BTreeSet<K>,
        follow: impl Fn(K, AnswerSender<K, V>) -> F + Clone + Send + 'static,
    ) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let before = self.running.len();
        self.running.retain(|key, _| wanted.contains(key));
        let forgot = self.running.len() != before;
        for key in wanted {
            self.running.entry(key.clone()).or_insert_with(|| {
                let (key, sender, follow) = (key.clone(), self.sender.clone(), follow.clone());
                let task = Task::start(move || {
                    let (key, sender) = (key.clone(), sender.clone());
                    follow(key.clone(), AnswerSender { key, sender })
                });
                Running {
                    answer: None,
                    _task: task,
                }
            });
        }
        forgot
    }

    /// Returns when an answer is new or changed. May be dropped and called again.
    pub(super) async fn changed(&mut self) {
        // The channel stays open: `self.sender` is a sender of it.
        while let Some((key, value)) = self.answers.recv().await {
            if let Some(running) = self.running.get_mut(&key)
                && running.answer.as_ref() != Some(&value)
            {
                running.answer = Some(value);
                return;
            }
        }
    }

    /// The answers so far.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&K, &V)> {
        let running = self.running.iter();
        running.filter_map(|(key, running)| Some((key, running.answer.as_ref()?)))
    }
}

/// A task that is aborted when this handle is dropped.
#[derive(Debug)]
pub(super) struct Task(JoinHandle<()>);

impl Task {
    /// Starts a task. One that panics is started again after a pause: a bug over one object leaves everything else observed, and the
    /// process does not end over and over.
    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        work: impl Fn() -> F + Send + 'static,
    ) -> Self {
        Self(tokio::spawn(async move {
            let mut backoff = Backoff::new(FIRST, LONGEST);
            let mut rng = Rng::new(RandomState::new().hash_one(FIRST));
            while AssertUnwindSafe(work()).catch_unwind().await.is_err() {
                tracing::error!("a part of the observer failed, which is a bug; it begins again");
                sleep(backoff.next(&mut rng)).await;
            }
        }))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The pauses after panics.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_lookup_that_panics_begins_again_and_disturbs_no_other() {
        let mut lookups = Lookups::new();
        let begun = Arc::new(AtomicU32::new(0));
        let wanted = BTreeSet::from(["bad", "good"]);
        lookups.want(&wanted, move |key, answers: AnswerSender<_, u32>| {
            let begun = Arc::clone(&begun);
            async move {
                let times = match key {
                    "bad" => begun.fetch_add(1, Ordering::Relaxed),
                    _ => 0,
                };
                assert!(key == "good" || times > 0, "as the test wants it");
                answers.send(times).await;
            }
        });
        for expected in [vec![("good", 0)], vec![("bad", 1), ("good", 0)]] {
            let changed = timeout(FIRST * 5, lookups.changed()).await;
            changed.expect("an answer");
            let answers: Vec<_> = lookups.answers().map(|(key, at)| (*key, *at)).collect();
            assert_eq!(answers, expected);
        }
    }
}
