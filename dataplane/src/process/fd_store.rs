//! Listening sockets that systemd keeps (`FileDescriptorStoreMax=`), so that they outlive a process that is killed: clients that
//! come meanwhile wait in their queues for the next start, and are not refused.
//!
//! The process sends copies of what it has bound, and takes a copy back when it closes an address in order. What it is started with
//! is what the process before had when it was killed.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ballast_core::plan::{SocketKey, Transport};
use rustix::net::SendFlags;
use socket2::{Socket, Type};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::os::panics::vital;
use crate::os::sys;
use crate::os::threads::lock;
use crate::process::handover::wire::{self, BATCH};

/// The sockets that systemd keeps for this process.
#[derive(Debug)]
pub(crate) struct FdStore {
    /// How many sockets systemd keeps; `None`: there is no store.
    most: Option<usize>,
    /// How many of each address it was given, and how many there are.
    given: BTreeMap<SocketKey, (usize, usize)>,
    /// The sum of those that it was given, and the bytes of their names.
    used: (usize, usize),
    /// Whether it was logged that there is no room for all.
    is_short: bool,
    telling: Telling,
}

/// What systemd is told, in its order. It takes a few messages at a time.
#[derive(Clone, Debug, Default)]
struct Telling {
    untold: Arc<Mutex<VecDeque<Order>>>,
    /// Notified where systemd has no room for the next one.
    is_late: Arc<Notify>,
}

#[derive(Debug)]
struct Order {
    key: SocketKey,
    /// What it shall keep. Nothing: it shall close what it has of this address.
    sockets: Vec<Arc<Socket>>,
}

impl FdStore {
    /// The store, if systemd has one for this service, and what it has kept of a process that was killed. Must be called within a
    /// runtime.
    pub(crate) fn open() -> (Self, BTreeMap<SocketKey, Vec<Socket>>) {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let most = set(MOST).filter(|_| set("NOTIFY_SOCKET").is_some());
        // Another value than a number is a store whose size is not known.
        let most = most.map(|most| most.to_str().and_then(|most| most.parse().ok()));
        let store = Self {
            most: most.map(|most| most.unwrap_or(usize::MAX)),
            given: BTreeMap::new(),
            used: (0, 0),
            is_short: false,
            telling: Telling::default(),
        };
        if store.most.is_some() {
            let telling = store.telling.clone();
            tokio::task::spawn_local(vital("telling systemd", telling.run()));
        }
        let mut kept: BTreeMap<SocketKey, Vec<Socket>> = BTreeMap::new();
        for (descriptor, name) in sys::passed_descriptors() {
            let socket = Socket::from(descriptor);
            // Others are none of ours.
            if name.starts_with(PREFIX)
                && let Some(key) = key_of(&socket)
            {
                kept.entry(key).or_default().push(socket);
            }
        }
        if !kept.is_empty() {
            let count: usize = kept.values().map(Vec::len).sum();
            tracing::info!(
                "systemd has kept {count} sockets of a process that did not end in order: clients have waited there"
            );
        }
        (store, kept)
    }

    /// Has systemd keep these sockets of one address: so many of them at most, or one where there is no room for these. Clients wait
    /// at that one.
    pub(crate) fn keep(&mut self, key: &SocketKey, sockets: &[Arc<Socket>], most_of_them: usize) {
        // The port of one with port 0 is another one after each start.
        let Some(most) = self.most.filter(|_| key.asked_by.is_none()) else {
            return;
        };
        self.release(key);
        let ((count, names), all) = (self.used, sockets.len());
        let with = |more| (count + more, names + more * length(key));
        let fits = |more: &usize| with(*more).0 <= most && with(*more).1 <= LONGEST_NAMES;
        let wanted = [all.min(most_of_them), all.min(1)];
        let given = wanted.into_iter().find(fits).unwrap_or(0);
        self.given.insert(key.clone(), (given, all));
        self.used = with(given);
        for batch in sockets.get(..given).unwrap_or_default().chunks(BATCH) {
            self.telling.push(key, batch.to_vec());
        }
    }

    /// The addresses of which it keeps fewer sockets than there are, and fewer than so many.
    pub(crate) fn short_of(&self, most_of_them: usize) -> Vec<SocketKey> {
        let short = self.given.iter();
        let short = short.filter(|(_, (given, all))| *given < (*all).min(most_of_them));
        short.map(|(key, _)| key.clone()).collect()
    }

    /// Warns where systemd has no room for all sockets.
    pub(crate) fn check(&mut self) {
        let all: usize = self.given.values().map(|(_, all)| all).sum();
        let (given, _) = self.used;
        let was_short = std::mem::replace(&mut self.is_short, given < all);
        if !self.is_short || was_short {
            return;
        }
        let without = self.given.values().filter(|(given, _)| *given == 0).count();
        tracing::warn!(
            "systemd keeps {given} of {all} sockets, and none of {without} addresses: after a crash clients of those are refused until the next start; raise FileDescriptorStoreMax= of the unit (and FDSTORE, where it sets that) to {all}, up to 128 KiB of names; above that lower --threads, or serve fewer addresses"
        );
    }

    /// Has systemd close its copies of the sockets of one address.
    pub(crate) fn forget(&mut self, key: &SocketKey) {
        self.release(key);
        if self.most.is_some() && key.asked_by.is_none() {
            lock(&self.telling.untold).retain(|order| order.key != *key);
            self.telling.push(key, Vec::new());
        }
    }

    fn release(&mut self, key: &SocketKey) {
        if let Some((given, _)) = self.given.remove(key) {
            let (count, names) = self.used;
            self.used = (count - given, names - given * length(key));
        }
    }

    /// Waits until systemd was told everything, but not for long.
    pub(crate) async fn settle(&self) {
        let told = async {
            while !lock(&self.telling.untold).is_empty() {
                sleep(RETRY_EVERY).await;
            }
        };
        if timeout(SETTLES_WITHIN, told).await.is_err() {
            tracing::warn!(
                "systemd does not read what it is told: it may keep sockets that are closed, and clients of these addresses wait in vain until the service ends"
            );
        }
    }
}

impl Telling {
    fn push(&self, key: &SocketKey, sockets: Vec<Arc<Socket>>) {
        let key = key.clone();
        lock(&self.untold).push_back(Order { key, sockets });
        if !self.tell() {
            self.is_late.notify_one();
        }
    }

    /// Tells what it can now. `false`: not all.
    fn tell(&self) -> bool {
        let mut untold = lock(&self.untold);
        while let Some(order) = untold.front() {
            match order.send() {
                // A manager that does not read must not hold up a table.
                Err(error) if wire::has_no_room(&error) => return false,
                Ok(()) => {}
                Err(error) => order.warn(&error),
            }
            untold.pop_front();
        }
        true
    }

    /// Tells what could not be told at once.
    async fn run(self) {
        loop {
            self.is_late.notified().await;
            while !self.tell() {
                sleep(RETRY_EVERY).await;
            }
        }
    }
}

impl Order {
    fn send(&self) -> io::Result<()> {
        let name = name(&self.key);
        let descriptors: Vec<_> = self.sockets.iter().map(|socket| socket.as_fd()).collect();
        if descriptors.is_empty() {
            return send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[]);
        }
        // Without polling: an error of a datagram is no reason to close a socket.
        let words = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}\n");
        send(&words, &descriptors)
    }

    fn warn(&self, error: &io::Error) {
        let key = &self.key;
        if self.sockets.is_empty() {
            tracing::warn!(address = %key, %error, "systemd still keeps a socket that is closed: clients of this address wait in vain until the service ends");
        } else {
            tracing::warn!(address = %key, %error, "systemd cannot keep a socket: after a crash clients are refused until the next start");
        }
    }
}

fn key_of(socket: &Socket) -> Option<SocketKey> {
    let transport = match socket.r#type().ok()? {
        Type::STREAM => Transport::Tcp,
        Type::DGRAM => Transport::Udp,
        _ => return None,
    };
    Some(SocketKey {
        transport,
        address: socket.local_addr().ok()?.as_socket()?,
        asked_by: None,
    })
}

/// A name without colons, which separate names in what systemd says.
fn name(key: &SocketKey) -> String {
    let transport = match key.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    let address = key.address.to_string().replace(':', "_");
    format!("{PREFIX}{transport}-{address}")
}

/// The bytes that the name of one socket takes in the list of all.
fn length(key: &SocketKey) -> usize {
    name(key).len() + 1
}

fn send(words: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let to = UnixDatagram::unbound()?;
    match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            to.connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?;
        }
        None => to.connect(&path)?,
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    wire::send_with(&to, words.as_bytes(), descriptors, flags)
}

/// Set by systemd 254 or later, and by the unit for older ones: how many descriptors are kept.
const MOST: &str = "FDSTORE";
const PREFIX: &str = "ballast-";
/// A started process hears the names of its sockets by one variable, and the kernel takes no longer one than 128 KiB: with more the
/// service could not be started again.
const LONGEST_NAMES: usize = (128 << 10) - 64;
const RETRY_EVERY: Duration = Duration::from_millis(10);
/// Time for systemd to hear, at the end, what it shall close.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use socket2::Domain;

    use super::*;

    fn key(port: u16) -> SocketKey {
        SocketKey {
            transport: Transport::Udp,
            address: ([127, 100, 100, 100], port).into(),
            asked_by: None,
        }
    }

    /// A store of this size, after `count` addresses with so many sockets each.
    fn store(most: usize, count: u16, each: usize) -> FdStore {
        let mut store = FdStore {
            most: Some(most),
            given: BTreeMap::new(),
            used: (0, 0),
            is_short: false,
            telling: Telling::default(),
        };
        let socket = Arc::new(Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap());
        let sockets = vec![socket; each];
        (1..=count).for_each(|port| store.keep(&key(port), &sockets, 1));
        keep_rest(&mut store, &sockets);
        store
    }

    fn keep_rest(store: &mut FdStore, sockets: &[Arc<Socket>]) {
        for most in [1, usize::MAX] {
            for key in store.short_of(most) {
                store.keep(&key, sockets, most);
            }
        }
        store.check();
    }

    #[test]
    fn each_address_has_one_before_another_has_all_and_room_is_used_when_it_comes() {
        let mut store = store(8, 5, 2);
        let given = |store: &FdStore| {
            store
                .given
                .values()
                .map(|(given, _)| *given)
                .collect::<Vec<_>>()
        };
        assert_eq!(given(&store), [2, 2, 2, 1, 1]);
        [1, 2].iter().for_each(|port| store.forget(&key(*port)));
        let socket = Arc::new(Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap());
        let sockets = vec![socket; 2];
        keep_rest(&mut store, &sockets);
        assert_eq!(given(&store), [2, 2, 2]);
        assert!(!store.is_short);
    }

    #[test]
    fn the_names_of_all_sockets_are_no_longer_than_a_process_can_be_started_with() {
        let mut store = store(usize::MAX, 8_000, 1);
        let (count, names) = store.used;
        assert!(
            names <= LONGEST_NAMES && names > LONGEST_NAMES - 64,
            "{names}"
        );
        assert!((3_000..8_000).contains(&count), "{count}");
        assert!(store.is_short);
        (1..=8_000).for_each(|port| store.forget(&key(port)));
        assert_eq!((store.used, store.given.len()), ((0, 0), 0));
    }

    #[test]
    fn one_socket_of_an_address_is_kept_where_there_is_no_room_for_all() {
        for (most, count, is_short) in [(12, 12, false), (11, 11, true), (8, 8, true), (7, 7, true)]
        {
            let store = store(most, 6, 2);
            assert_eq!((store.used.0, store.is_short), (count, is_short), "{most}");
        }
        // Again, as by a process that has taken over.
        let mut store = store(12, 6, 2);
        store.keep(&key(1), &[], usize::MAX);
        assert_eq!(store.used.0, 10);
    }
}
