//! Lookups of single objects, such as Secrets and DNS names. Each one is repeated as long as a decision wants it. Used by
//! `debounce`.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The answers, and the tasks that find them.
pub(super) struct Lookups<K, V> {
    running: BTreeMap<K, Running<V>>,
    reports: mpsc::Sender<(K, V)>,
    reported: mpsc::Receiver<(K, V)>,
}

struct Running<V> {
    answer: Option<V>,
    _task: Task,
}

/// Where a task says what it found.
pub(super) struct Report<K, V> {
    key: K,
    reports: mpsc::Sender<(K, V)>,
}

impl<K: Clone, V> Report<K, V> {
    /// Says it. The same answer again changes nothing.
    pub(super) async fn say(&self, value: V) {
        // An error: nobody listens, and this task ends soon, too.
        drop(self.reports.send((self.key.clone(), value)).await);
    }
}

impl<K, V> Lookups<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: PartialEq + Send + 'static,
{
    pub(super) fn new() -> Self {
        let (reports, reported) = mpsc::channel(64);
        Self {
            running: BTreeMap::new(),
            reports,
            reported,
        }
    }

    /// Begins with what is wanted newly, and forgets what is not wanted any more. Says whether an answer was forgotten.
    pub(super) fn want<F>(
        &mut self,
        wanted: &BTreeSet<K>,
        follow: impl Fn(K, Report<K, V>) -> F,
    ) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let before = self.running.len();
        self.running.retain(|key, _| wanted.contains(key));
        let forgot = self.running.len() != before;
        for key in wanted {
            self.running.entry(key.clone()).or_insert_with(|| {
                let report = Report {
                    key: key.clone(),
                    reports: self.reports.clone(),
                };
                Running {
                    answer: None,
                    _task: Task(tokio::spawn(follow(key.clone(), report))),
                }
            });
        }
        forgot
    }

    /// Returns when an answer is new or another than before. May be dropped and called again.
    pub(super) async fn changed(&mut self) {
        // Never closed: this holds a sender itself.
        while let Some((key, value)) = self.reported.recv().await {
            if let Some(running) = self.running.get_mut(&key)
                && running.answer.as_ref() != Some(&value)
            {
                running.answer = Some(value);
                return;
            }
        }
    }

    /// What is wanted and was found out.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&K, &V)> {
        let running = self.running.iter();
        running.filter_map(|(key, running)| Some((key, running.answer.as_ref()?)))
    }
}

/// Ends with its handle.
#[derive(Debug)]
pub(super) struct Task(pub(super) JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
