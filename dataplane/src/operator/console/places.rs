//! The places for connections to a runtime socket. Where none is left, the connection that has been idle for the longest time
//! gives its place to a new one, so that forgotten ones lock no operator out.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

#[derive(Clone, Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    waiting: Rc<Waiting>,
}

/// The connections that wait for a line, by the time since when and a number.
#[derive(Debug, Default)]
struct Waiting {
    connections: RefCell<BTreeMap<(Instant, u64), Rc<Notify>>>,
    last: Cell<u64>,
}

#[derive(Debug)]
pub(super) struct Place {
    waiting: Rc<Waiting>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(count: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(count)),
            waiting: Rc::default(),
        }
    }

    /// A place for a new connection: a free one, or that of the connection that has been idle for the longest time. `None`: the
    /// process is ending.
    pub(super) async fn take(&self) -> Option<Place> {
        loop {
            let longest = self.waiting.longest();
            let until = longest.as_ref().map(|(since, _)| *since + SPARED);
            let taken = tokio::select! {
                biased;
                permit = Arc::clone(&self.free).acquire_owned() => Some(permit.ok()?),
                () = sleep_until(until.unwrap_or_else(|| Instant::now() + SPARED)) => None,
            };
            if let Some(permit) = taken {
                return Some(self.place(permit));
            }
            let is_idle = |since: Instant| since.elapsed() >= SPARED;
            if let Some((_, give_way)) = self.waiting.longest().filter(|(since, _)| is_idle(*since))
            {
                give_way.notify_one();
                let free = Arc::clone(&self.free).acquire_owned();
                if let Ok(permit) = timeout(SPARED, free).await {
                    return Some(self.place(permit.ok()?));
                }
            }
        }
    }

    fn place(&self, permit: OwnedSemaphorePermit) -> Place {
        Place {
            waiting: Rc::clone(&self.waiting),
            _permit: permit,
        }
    }
}

impl Place {
    /// What `line` reads within `patience`. `None`: that took too long, or another connection needs the place.
    pub(super) async fn wait<T>(
        &self,
        patience: Duration,
        line: impl Future<Output = T>,
    ) -> Option<T> {
        let entry = self.waiting.enter();
        tokio::select! {
            read = timeout(patience, line) => read.ok(),
            () = entry.give_way.notified() => None,
        }
    }
}

impl Waiting {
    fn longest(&self) -> Option<(Instant, Rc<Notify>)> {
        let connections = self.connections.borrow();
        let ((since, _), give_way) = connections.first_key_value()?;
        Some((*since, Rc::clone(give_way)))
    }

    fn enter(&self) -> Entry<'_> {
        self.last.set(self.last.get() + 1);
        let entry = Entry {
            waiting: self,
            key: (Instant::now(), self.last.get()),
            give_way: Rc::default(),
        };
        let give_way = Rc::clone(&entry.give_way);
        self.connections.borrow_mut().insert(entry.key, give_way);
        entry
    }
}

/// A connection that waits, for as long as this lives.
struct Entry<'a> {
    waiting: &'a Waiting,
    key: (Instant, u64),
    give_way: Rc<Notify>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.waiting.connections.borrow_mut().remove(&self.key);
    }
}

/// A connection that has not been idle for so long keeps its place: its line may be on its way.
const SPARED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_idle_connection_gives_way() {
        let places = Places::new(2);
        let (first, second) = (places.take().await.unwrap(), places.take().await.unwrap());
        let hour = Duration::from_secs(3600);
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let idle = |place: Place| async move {
                    let read = place.wait(hour, std::future::pending::<()>()).await;
                    assert_eq!(read, None);
                    Instant::now()
                };
                let began = Instant::now();
                let first = tokio::task::spawn_local(idle(first));
                tokio::time::sleep(Duration::from_millis(10)).await;
                let second = tokio::task::spawn_local(idle(second));
                let third = places.take().await.unwrap();
                assert!(first.await.unwrap() - began <= 2 * SPARED);
                assert!(!second.is_finished());
                // One that is busy is not disturbed.
                let fourth = timeout(10 * SPARED, places.take()).await;
                assert!(fourth.is_ok() && second.is_finished());
                let fifth = timeout(10 * SPARED, places.take()).await;
                assert!(fifth.is_err(), "{fifth:?}");
                drop(third);
            })
            .await;
    }
}
