//! The order in which secrets are checked. Checking a hash is costly on purpose, so few checks run at once. Each client address
//! has one check at a time, so that a client that guesses many secrets delays no other client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::operator::admin::client::Client;
use crate::os::threads::lock;

/// The queues of all clients. Requests of one client are served in order, and so are the first requests of different clients.
#[derive(Debug)]
pub(super) struct CheckQueue {
    permits: Arc<Semaphore>,
    /// The one permit of each client. Its requests keep it alive.
    clients: Mutex<HashMap<Client, Weak<Semaphore>>>,
}

/// The permit to check one secret. It belongs to the check, not to the request: a request that is cancelled makes no room for
/// another check.
#[derive(Debug)]
pub(super) struct CheckPermit {
    shared: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl CheckQueue {
    pub(super) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_CHECKS)),
            clients: Mutex::default(),
        }
    }

    /// Waits for a permit. `None`: it took too long, or too many clients have requests.
    pub(super) async fn take(&self, client: Client) -> Option<CheckPermit> {
        let queue = self.queue(client)?;
        let permits = async {
            let own = queue.acquire_owned().await.ok()?;
            let permits = Arc::clone(&self.permits);
            Some((own, permits.acquire_owned().await.ok()?))
        };
        let (own, shared) = timeout(PATIENCE, permits).await.ok()??;
        Some(CheckPermit { shared, _own: own })
    }

    fn queue(&self, client: Client) -> Option<Arc<Semaphore>> {
        let mut clients = self.clients();
        if let Some(queue) = clients.get(&client).and_then(Weak::upgrade) {
            return Some(queue);
        }
        if clients.len() >= MAX_CLIENTS {
            return None;
        }
        let queue = Arc::new(Semaphore::new(1));
        clients.insert(client, Arc::downgrade(&queue));
        Some(queue)
    }

    pub(super) fn clients(&self) -> MutexGuard<'_, HashMap<Client, Weak<Semaphore>>> {
        let mut clients = lock(&self.clients);
        clients.retain(|_, queue| queue.strong_count() > 0);
        clients
    }
}

impl CheckPermit {
    /// Ends the check. After a wrong secret, the same client's next check is delayed.
    pub(super) async fn end(self, was_right: bool) {
        drop(self.shared);
        if !was_right {
            sleep(WRONG_SECRET_DELAY).await;
        }
    }
}

/// Concurrent checks of all clients together.
const MAX_CHECKS: usize = 2;
/// The longest wait for a permit.
const PATIENCE: Duration = Duration::from_secs(5);
const WRONG_SECRET_DELAY: Duration = Duration::from_millis(200);
/// The most clients with a request that is waiting or being checked, or delayed after a wrong secret.
const MAX_CLIENTS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Instant;

    use super::*;

    fn client(number: u32) -> Client {
        Client::of(SocketAddr::from((Ipv4Addr::from(number), 7)))
    }

    /// Takes a permit, if one is available now.
    async fn may_begin(checks: &CheckQueue, client: Client) -> Option<CheckPermit> {
        timeout(Duration::from_millis(20), checks.take(client))
            .await
            .ok()?
    }

    #[tokio::test]
    async fn one_client_has_one_turn_and_leaves_the_other_to_others() {
        let checks = CheckQueue::new();
        let one = checks.take(client(1)).await.unwrap();
        assert!(may_begin(&checks, client(1)).await.is_none());
        let other = may_begin(&checks, client(2)).await.unwrap();
        assert!(may_begin(&checks, client(3)).await.is_none(), "two at once");
        other.end(true).await;
        assert!(may_begin(&checks, client(3)).await.is_some());
        one.end(true).await;
        assert!(may_begin(&checks, client(1)).await.is_some());
        assert!(checks.clients().is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn after_a_wrong_secret_the_same_client_waits_and_others_do_not() {
        let checks = CheckQueue::new();
        let one = checks.take(client(1)).await.unwrap();
        let began = Instant::now();
        let ended = tokio::spawn(one.end(false));
        for other in 2..10 {
            drop(checks.take(client(other)).await.unwrap());
        }
        assert!(checks.take(client(1)).await.is_some());
        assert!(began.elapsed() >= WRONG_SECRET_DELAY);
        ended.await.unwrap();
        assert!(checks.clients().is_empty());
    }

    #[tokio::test]
    async fn there_is_a_most_of_clients() {
        let checks = CheckQueue::new();
        let waiting: Vec<_> = (0..MAX_CLIENTS)
            .map(|number| {
                let number = u32::try_from(number).unwrap();
                checks.queue(client(number)).unwrap()
            })
            .collect();
        assert!(
            checks.take(client(u32::MAX)).await.is_none(),
            "no room for another"
        );
        let known = checks.take(client(7)).await;
        assert!(known.is_some(), "one that is there may ask again");
        drop((waiting, known));
        assert!(checks.clients().is_empty());
    }
}
