//! Whose secret is checked next. A hash is costly on purpose, so few are computed at once; and each client address has one
//! checked at a time, so that whoever guesses many secrets keeps nobody but themselves waiting.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// The queues of all clients. Each is served in the order in which its requests came, and so are their heads.
#[derive(Debug)]
pub(super) struct Turns {
    everybody: Arc<Semaphore>,
    clients: Mutex<HashMap<IpAddr, Queue>>,
}

/// What has come from one client address and is not over.
#[derive(Debug)]
pub(super) struct Queue {
    requests: usize,
    turn: Arc<Semaphore>,
}

/// The right to check one secret. It belongs to the check, not to the request: whoever leaves meanwhile makes no room for
/// another check.
#[derive(Debug)]
pub(super) struct Turn {
    everybodys: OwnedSemaphorePermit,
    // Given back before the queue is left, which may remove it.
    _own: OwnedSemaphorePermit,
    _place: Place,
}

/// A place in the queue of a client, which is removed with the last of them.
#[derive(Debug)]
struct Place(Arc<Turns>, IpAddr);

impl Turns {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            everybody: Arc::new(Semaphore::new(AT_ONCE)),
            clients: Mutex::default(),
        })
    }

    /// Waits for a turn. `None`: it took too long, or too many clients have one already.
    pub(super) async fn take(self: &Arc<Self>, client: IpAddr) -> Option<Turn> {
        let (place, turn) = self.enter(network(client))?;
        let permits = async {
            let own = turn.acquire_owned().await.ok()?;
            let everybody = Arc::clone(&self.everybody);
            Some((own, everybody.acquire_owned().await.ok()?))
        };
        let (own, everybodys) = timeout(PATIENCE, permits).await.ok()??;
        Some(Turn {
            everybodys,
            _own: own,
            _place: place,
        })
    }

    fn enter(self: &Arc<Self>, client: IpAddr) -> Option<(Place, Arc<Semaphore>)> {
        let mut clients = self.clients();
        if clients.len() >= MOST_CLIENTS && !clients.contains_key(&client) {
            return None;
        }
        let queue = clients.entry(client).or_insert_with(|| Queue {
            requests: 0,
            turn: Arc::new(Semaphore::new(1)),
        });
        queue.requests += 1;
        Some((Place(Arc::clone(self), client), Arc::clone(&queue.turn)))
    }

    pub(super) fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, Queue>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// The check is over. After a wrong secret the same client's next one has to wait.
    pub(super) async fn end(self, was_right: bool) {
        drop(self.everybodys);
        if !was_right {
            sleep(AFTER_A_WRONG_ONE).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.0.clients();
        if let Some(queue) = clients.get_mut(&self.1) {
            queue.requests -= 1;
            if queue.requests == 0 {
                clients.remove(&self.1);
            }
        }
    }
}

/// Who counts as one client: an IPv4 address, and a /64 of IPv6, in which a host has as many addresses as it likes.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Checks of all clients together.
const AT_ONCE: usize = 2;
/// For a turn to come.
const PATIENCE: Duration = Duration::from_secs(5);
const AFTER_A_WRONG_ONE: Duration = Duration::from_millis(200);
/// Those with a request that waits or is checked, or whose last secret was wrong just now.
const MOST_CLIENTS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    /// Whether a turn can be had now.
    async fn may_begin(turns: &Arc<Turns>, client: IpAddr) -> Option<Turn> {
        timeout(Duration::from_millis(20), turns.take(client))
            .await
            .ok()?
    }

    #[tokio::test]
    async fn one_client_has_one_turn_and_leaves_the_other_to_others() {
        let turns = Turns::new();
        let one = turns.take(client(1)).await.unwrap();
        assert!(may_begin(&turns, client(1)).await.is_none());
        let other = may_begin(&turns, client(2)).await.unwrap();
        assert!(may_begin(&turns, client(3)).await.is_none(), "two at once");
        other.end(true).await;
        assert!(may_begin(&turns, client(3)).await.is_some());
        one.end(true).await;
        assert!(may_begin(&turns, client(1)).await.is_some());
        assert!(turns.clients().is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn after_a_wrong_secret_the_same_client_waits_and_others_do_not() {
        let turns = Turns::new();
        let one = turns.take(client(1)).await.unwrap();
        let began = Instant::now();
        let ended = tokio::spawn(one.end(false));
        for other in 2..10 {
            drop(turns.take(client(other)).await.unwrap());
        }
        assert!(turns.take(client(1)).await.is_some());
        assert!(began.elapsed() >= AFTER_A_WRONG_ONE);
        ended.await.unwrap();
        assert!(turns.clients().is_empty());
    }

    #[tokio::test]
    async fn clients_are_counted_by_network_and_there_is_a_most() {
        let turns = Turns::new();
        let [one, same, other]: [IpAddr; 3] =
            ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"]
                .map(|text| text.parse().unwrap());
        let turn = turns.take(one).await.unwrap();
        assert!(may_begin(&turns, same).await.is_none());
        assert!(may_begin(&turns, other).await.is_some());
        drop(turn);
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), client(1));

        let waiting: Vec<_> = (0..MOST_CLIENTS)
            .map(|number| {
                let number = u32::try_from(number).unwrap();
                turns.enter(IpAddr::V4(number.into())).unwrap()
            })
            .collect();
        assert!(turns.take(client(1)).await.is_none(), "no room for another");
        let known = turns.take(IpAddr::V4(7.into())).await;
        assert!(known.is_some(), "one that is there may ask again");
        drop((waiting, known));
        assert!(turns.clients().is_empty());
    }
}
