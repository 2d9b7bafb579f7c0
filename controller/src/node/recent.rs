//! The hashes of what this node serves, for its Lease: buckets, and the owners that changed recently. Pure: the time is an argument.
//!
//! A bucket hides which of its owners changed. The owners that changed are named until the bucket has not changed for a while. Then
//! the publisher compares the bucket itself. The owners of a bucket that never stops to change stay named.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::decide::Report;
use crate::lease::{BUCKETS, Buckets, MOST_RECENT, Served, bucket_of};

/// The state that the data plane serves, and its recent changes.
#[derive(Debug, Default)]
pub(super) struct RecentChanges {
    served: Option<(Arc<Report>, Buckets)>,
    changed: BTreeMap<usize, Changed>,
}

/// The changes of one bucket.
#[derive(Debug, Default)]
struct Changed {
    last: Duration,
    /// The owners that changed, the latest one at the end.
    owners: Vec<String>,
}

impl RecentChanges {
    /// Notes what the data plane serves now; `None`: that is not known.
    pub(super) fn update(&mut self, now: Duration, report: Option<&Arc<Report>>) {
        let Some(report) = report else {
            self.served = None;
            return;
        };
        if let Some((before, _)) = &self.served {
            if Arc::ptr_eq(before, report) {
                return;
            }
            let (old, new) = (&before.binds, &report.binds);
            let owners = old.keys().chain(new.keys());
            for owner in owners.filter(|owner| old.get(*owner) != new.get(*owner)) {
                let bucket = self.changed.entry(bucket_of(owner)).or_default();
                bucket.last = now;
                bucket.owners.retain(|known| known != owner);
                bucket.owners.push(owner.clone());
                if bucket.owners.len() > MOST_OF_BUCKET {
                    bucket.owners.remove(0);
                }
            }
        }
        self.served = Some((Arc::clone(report), Buckets::of(&report.binds)));
    }

    /// The hashes for the Lease.
    pub(super) fn served(&mut self, now: Duration) -> Served {
        self.changed.retain(|_, changed| now < changed.last + QUIET);
        let Some((report, buckets)) = &self.served else {
            return Served::default();
        };
        let owners = self.changed.values().flat_map(|changed| &changed.owners);
        let recent = owners.filter_map(|owner| report.binds.get(owner));
        Served {
            buckets: Some(*buckets),
            recent: recent.copied().collect(),
        }
    }
}

/// The publisher has seen every bucket that did not change for so long.
const QUIET: Duration = Duration::from_secs(5);
const MOST_OF_BUCKET: usize = MOST_RECENT / BUCKETS;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::lease::Binds;

    fn report(owners: &[(&str, u64)]) -> Arc<Report> {
        let owners = owners.iter();
        let binds = owners.map(|(owner, number)| ((*owner).to_owned(), *number));
        Arc::new(Report {
            binds: binds.collect(),
            ..Report::default()
        })
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_new_service_is_named_until_its_bucket_stops_to_change() {
        let mut recent = RecentChanges::default();
        recent.update(at(0), Some(&report(&[("a.old", 1)])));
        assert_eq!(
            recent.served(at(0)).recent,
            BTreeSet::new(),
            "at the start buckets say all"
        );
        let now = report(&[("a.old", 1), ("a.new", 2)]);
        recent.update(at(10), Some(&now));
        recent.update(at(14), Some(&now));
        assert_eq!(recent.served(at(14)).recent, BTreeSet::from([2]));
        assert_eq!(recent.served(at(15)), Served::of(&now.binds));
    }

    #[test]
    fn in_a_bucket_that_never_stops_to_change_a_service_stays_named() {
        let mut recent = RecentChanges::default();
        let near = (0..).map(|number| format!("a.n{number}"));
        let mut near = near.filter(|name| bucket_of(name) == bucket_of("a.new"));
        let (flips, more) = (near.next().unwrap(), near.next().unwrap());
        recent.update(at(0), Some(&report(&[(&flips, 0)])));
        for second in 1..100 {
            recent.update(
                at(second),
                Some(&report(&[("a.new", 7), (&flips, second + 100), (&more, 9)])),
            );
            let named = recent.served(at(second)).recent;
            assert!(
                named.contains(&7) && named.contains(&9),
                "{second}: {named:?}"
            );
        }
    }

    #[test]
    fn a_deleted_owner_is_not_named() {
        let mut recent = RecentChanges::default();
        recent.update(at(0), Some(&report(&[("a.b", 1)])));
        recent.update(at(1), Some(&report(&[])));
        assert_eq!(recent.served(at(1)), Served::of(&Binds::new()));
        recent.update(at(2), None);
        assert_eq!(recent.served(at(2)), Served::default());
    }
}
