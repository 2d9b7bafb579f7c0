//! Allocations that were written, and that the decisions may not know of yet.
//!
//! A decision that was made from a state before such a write may give the same address or port to another Service. Such a decision
//! gives the Service of the write something else than what was written. Until the write is observed, nothing is given by it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::allocation::Allocation;
use crate::decide::{Allotment, Status};
use crate::observe::{Key, Service};
use crate::request;

/// The allocations that were written, or are being written, and were not observed since.
#[derive(Debug, Default)]
pub(super) struct Unseen(BTreeMap<Key, Write>);

#[derive(Debug)]
struct Write {
    allocation: Allocation,
    /// The version of the Service with the allocation. `None`: the API server has not answered.
    version: Option<u64>,
    /// When the write counts as observed, whatever was observed.
    until: Duration,
}

impl Unseen {
    /// A pass that writes this allocation begins.
    pub(super) fn begin(&mut self, key: Key, allocation: Allocation, now: Duration) {
        let write = Write {
            allocation,
            version: None,
            until: now + LONGEST,
        };
        self.0.insert(key, write);
    }

    /// The pass has ended with this result. `service` is the API server's last answer.
    pub(super) fn end<T>(&mut self, key: &Key, service: &Service, result: &Result<T, kube::Error>) {
        let Some(write) = self.0.get_mut(key) else {
            return;
        };
        match result {
            Err(error) if !has(service, &write.allocation) => {
                if request::is_outdated(error) || request::refusal(error).is_some() {
                    self.0.remove(key);
                }
                // Otherwise it may have been written.
            }
            _ => write.version = Some(service.publication.version),
        }
    }

    /// Forgets the writes that these observed Services show, and those of Services that are gone.
    pub(super) fn observe(&mut self, services: &BTreeMap<Key, Arc<Service>>, now: Duration) {
        self.0.retain(|key, write| {
            let is_older = |service: &Arc<Service>| {
                let version = service.publication.version;
                !has(service, &write.allocation)
                    && write.version.is_none_or(|written| version < written)
            };
            now < write.until && services.get(key).is_some_and(is_older)
        });
    }

    /// When the first of the writes counts as observed, whatever was observed.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.0.values().map(|write| write.until).min()
    }

    /// Forgets the writes that have waited long enough. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let before = self.0.len();
        self.0.retain(|_, write| now < write.until);
        self.0.len() < before
    }

    /// Whether a decision with these statuses, which are in the order of their Services, gives what was written to the others than
    /// `key`.
    pub(super) fn agree_with(&self, statuses: &[Status], key: &Key) -> bool {
        let mut others = self.0.iter().filter(|(of, _)| *of != key);
        others.all(|(of, write)| {
            let found = statuses.binary_search_by(|status| status.service.cmp(of));
            let status = found.ok().and_then(|at| statuses.get(at));
            let allotment = status.and_then(|status| status.allotment.as_ref());
            matches!(allotment, Some(Allotment::Given(given)) if *given == write.allocation)
        })
    }
}

fn has(service: &Service, allocation: &Allocation) -> bool {
    let allocated = service.allocated.as_ref();
    allocated.is_some_and(|allocated| allocated.allocation == *allocation)
}

/// Longer than a watch may be behind. A cluster that was restored from a backup may never show a write.
const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::allocation::At;

    #[test]
    fn a_write_that_is_never_observed_is_forgotten_at_its_time() {
        let (now, mut unseen) = (Duration::from_secs(5), Unseen::default());
        assert_eq!(unseen.deadline(), None);
        let key = Key::new("shop", "web");
        let allocation = Allocation {
            at: At::Node,
            pool: None,
            ports: BTreeSet::new(),
            routes: BTreeSet::new(),
        };
        unseen.begin(key, allocation, now);
        let other = Key::new("shop", "other");
        assert!(!unseen.agree_with(&[], &other));
        assert_eq!(unseen.deadline(), Some(now + LONGEST));
        assert!(!unseen.expire(now + LONGEST - Duration::from_millis(1)));
        assert!(unseen.expire(now + LONGEST));
        assert!(unseen.agree_with(&[], &other));
        assert_eq!(unseen.deadline(), None);
    }
}
