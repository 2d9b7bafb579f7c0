//! Lookups of single objects, such as Secrets and DNS names. Each one is repeated while a decision wants it. Used by `debounce`.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

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
        follow: impl Fn(K, AnswerSender<K, V>) -> F,
    ) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let before = self.running.len();
        self.running.retain(|key, _| wanted.contains(key));
        let forgot = self.running.len() != before;
        for key in wanted {
            self.running.entry(key.clone()).or_insert_with(|| {
                let answers = AnswerSender {
                    key: key.clone(),
                    sender: self.sender.clone(),
                };
                Running {
                    answer: None,
                    _task: Task(tokio::spawn(follow(key.clone(), answers))),
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
pub(super) struct Task(pub(super) JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
