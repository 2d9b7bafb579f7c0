//! Leader election: the publisher that holds the Lease `ballast-leader` writes to Services and writes events.
//!
//! [`Election`] decides, with time as an argument; [`campaign`] reads and writes the Lease. A leader that cannot renew stops
//! acting well before another candidate may begin.
//!
//! This is our own code because kube has no leader election, and the crate `kube-leader-election` compares `renewTime`, a time of
//! day of another machine, with its own: where the clocks differ by more than the Lease lasts, two publishers would write at
//! once. Here a candidate counts how long it has seen one resourceVersion of the Lease, as client-go does, and the leader counts
//! from its own last renewal, both by a clock that nobody sets and that goes on while the machine sleeps. Each write of the Lease
//! carries the resourceVersion, so that one of two candidates wins.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock;
use crate::lease;
use crate::metrics::Metrics;
use crate::request::{self, patiently};

/// The time until which this process leads. Every renewal moves it.
#[derive(Clone, Debug)]
pub(crate) struct Leading(watch::Receiver<Option<Duration>>);

impl Leading {
    /// For a process that takes part in no election, because no publisher runs.
    pub(crate) fn always() -> Self {
        Self(watch::channel(Some(Duration::MAX)).1)
    }

    /// Whether this process may act now.
    pub(crate) fn is_now(&self) -> bool {
        self.0.borrow().is_some_and(|until| clock::now() < until)
    }

    /// Returns when it may have changed.
    pub(crate) async fn changed(&mut self) {
        let until = *self.0.borrow_and_update();
        let rest = until.map(|until| until.saturating_sub(clock::now()));
        let ends = async {
            match rest {
                Some(rest) if !rest.is_zero() => sleep(rest).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.0.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
            () = ends => {}
        }
    }
}

/// One state of the Lease, as a candidate sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseState {
    /// Empty: it was given back.
    pub(super) holder: String,
    pub(super) version: String,
}

/// The next step of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    /// Another process leads.
    Wait,
    /// Write the Lease, if it is still as it was seen, or if there is still none.
    Take,
}

/// The state of one candidate.
#[derive(Debug)]
struct Election {
    me: String,
    /// The state that was seen last, and the time when it was seen first.
    seen: Option<(LeaseState, Duration)>,
    /// The begin of the last renewal that succeeded.
    renewed: Option<Duration>,
}

impl Election {
    fn new(me: String) -> Self {
        Self {
            me,
            seen: None,
            renewed: None,
        }
    }

    /// Decides what to do about a state of the Lease that was read at this time.
    fn look(&mut self, now: Duration, lease: Option<LeaseState>) -> NextStep {
        let Some(lease) = lease else {
            return NextStep::Take;
        };
        if lease.holder == self.me || lease.holder.is_empty() {
            return NextStep::Take;
        }
        self.renewed = None;
        match &self.seen {
            Some((seen, since)) if *seen == lease => match now >= *since + LEASE {
                true => NextStep::Take,
                false => NextStep::Wait,
            },
            _ => {
                self.seen = Some((lease, now));
                NextStep::Wait
            }
        }
    }

    /// Records that a request which left at `begun` has written the Lease.
    fn won(&mut self, begun: Duration) {
        self.renewed = Some(begun);
        self.seen = None;
    }

    /// The time until which this process may act.
    fn until(&self) -> Option<Duration> {
        Some(self.renewed? + ACTS)
    }

    /// When a process that does not lead looks again: as soon as it may take the Lease, if that comes first.
    fn next_look(&self, now: Duration) -> Duration {
        let free = self.seen.as_ref().map(|(_, since)| *since + LEASE);
        let free = free.filter(|free| *free > now);
        free.map_or(LOOK_EVERY, |free| LOOK_EVERY.min(free - now))
    }

    fn leads(&self, now: Duration) -> bool {
        self.until().is_some_and(|until| now < until)
    }
}

/// A candidate's part in the election.
pub(crate) struct Campaign {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// Unique among all processes that take part, now and before.
    pub(crate) me: String,
    pub(crate) ending: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Whether this process leads, and the task that takes part in the election. The task ends when the process does, and gives the
/// Lease back then.
pub(crate) fn campaign(campaign: Campaign) -> (Leading, impl Future<Output = ()>) {
    let (tell, leading) = watch::channel(None);
    (Leading(leading), campaign.run(tell))
}

impl Campaign {
    async fn run(mut self, tell: watch::Sender<Option<Duration>>) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut election = Election::new(self.me.clone());
        let mut held: Option<Lease> = None;
        while !*self.ending.borrow_and_update() {
            let was_leading = election.leads(clock::now());
            let result = self.round(&leases, &mut election, &mut held).await;
            if let Err(error) = &result {
                // The state of the Lease is not known any more.
                held = None;
                if !request::is_outdated(error) {
                    self.metrics.api_failed(error);
                    tracing::debug!(%error, "cannot read or write the leader's Lease");
                }
            }
            let leads = election.leads(clock::now());
            tell.send_if_modified(|until| {
                let now = election.until();
                std::mem::replace(until, now) != now
            });
            self.metrics.leader.set(leads.into());
            match (was_leading, leads) {
                (false, true) => tracing::info!(
                    identity = self.me,
                    "this process leads: it writes statuses and events"
                ),
                (true, false) => tracing::warn!(
                    identity = self.me,
                    "this process leads no more: another one writes statuses and events"
                ),
                _ => {}
            }
            let pause = match (&result, leads) {
                (Ok(()), true) => RENEW_EVERY,
                _ => election.next_look(clock::now()),
            };
            tokio::select! {
                () = sleep(pause) => {}
                changed = self.ending.changed() => if changed.is_err() {
                    return;
                },
            }
        }
        let leads = election.leads(clock::now());
        tell.send_replace(None);
        if leads {
            self.leave(&leases).await;
        }
    }

    async fn round(
        &self,
        leases: &Api<Lease>,
        election: &mut Election,
        held: &mut Option<Lease>,
    ) -> Result<(), kube::Error> {
        let found = match held.take() {
            Some(lease) => Some(lease),
            None => patiently(leases.get_opt(lease::LEADER)).await?,
        };
        let begun = clock::now();
        if election.look(begun, found.as_ref().map(state)) == NextStep::Wait {
            return Ok(());
        }
        let params = request::post();
        let lease = self.lease(found.as_ref());
        let written = match found {
            None => patiently(leases.create(&params, &lease)).await?,
            Some(_) => patiently(leases.replace(lease::LEADER, &params, &lease)).await?,
        };
        election.won(begun);
        *held = Some(written);
        Ok(())
    }

    /// The Lease as this process holds it, in the place of `found`.
    fn lease(&self, found: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let spec = found.and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.as_ref());
        let is_mine = holder == Some(&self.me);
        let acquired = spec.and_then(|spec| spec.acquire_time.clone());
        let turns = spec.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let metadata = match found {
            Some(lease) => lease.metadata.clone(),
            None => ObjectMeta {
                name: Some(lease::LEADER.to_owned()),
                ..ObjectMeta::default()
            },
        };
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.me.clone()),
                lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
                acquire_time: acquired.filter(|_| is_mine).or_else(|| Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(turns.saturating_add(i32::from(!is_mine))),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Gives the Lease back, so that another one leads at once.
    async fn leave(&self, leases: &Api<Lease>) {
        let left = async {
            let Some(mut lease) = patiently(leases.get_opt(lease::LEADER)).await? else {
                return Ok(());
            };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_ref() != Some(&self.me) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            let params = request::post();
            patiently(leases.replace(lease::LEADER, &params, &lease)).await?;
            Ok::<_, kube::Error>(())
        };
        match left.await {
            Ok(()) => tracing::info!(identity = self.me, "gave the leader's Lease back"),
            Err(error) => tracing::warn!(%error, "cannot give the leader's Lease back"),
        }
    }
}

pub(super) fn state(lease: &Lease) -> LeaseState {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.clone());
    LeaseState {
        holder: holder.unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// A Lease that was not renewed for so long may be taken by any candidate.
pub(crate) const LEASE: Duration = Duration::from_secs(11);
/// For so long after a renewal a leader acts: less than a candidate waits, by as long as a request may take.
const ACTS: Duration = Duration::from_secs(8);
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// How long a candidate waits at most before it reads the Lease again.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn held_by(holder: &str, version: &str) -> Option<LeaseState> {
        Some(LeaseState {
            holder: holder.to_owned(),
            version: version.to_owned(),
        })
    }

    #[test]
    fn a_lease_that_nobody_holds_is_taken_at_once() {
        let mut election = Election::new("a".to_owned());
        assert_eq!(election.look(at(0), None), NextStep::Take);
        assert_eq!(election.look(at(0), held_by("", "7")), NextStep::Take);
        assert!(!election.leads(at(0)), "not before it is written");
        election.won(at(0));
        assert!(election.leads(at(0)));
    }

    #[test]
    fn a_lease_of_another_is_taken_when_it_was_seen_unchanged_for_its_whole_length() {
        let mut election = Election::new("a".to_owned());
        for (millis, version, step) in [
            (0, "1", NextStep::Wait),
            (2_000, "2", NextStep::Wait),
            (9_000, "2", NextStep::Wait),
            (12_999, "2", NextStep::Wait),
            (13_000, "2", NextStep::Take),
            (13_500, "3", NextStep::Wait),
            (24_499, "3", NextStep::Wait),
        ] {
            let next = election.look(at(millis), held_by("b", version));
            assert_eq!(next, step, "{millis}");
        }
    }

    #[test]
    fn a_candidate_looks_when_it_may_take_the_lease() {
        let mut election = Election::new("a".to_owned());
        assert_eq!(election.next_look(at(0)), LOOK_EVERY);
        election.look(at(0), held_by("b", "1"));
        for (millis, wait) in [(0, 1_000), (10_300, 700), (10_990, 10), (11_000, 1_000)] {
            assert_eq!(election.next_look(at(millis)), at(wait), "{millis}");
        }
    }

    #[test]
    fn a_leader_stops_acting_before_another_may_begin() {
        let mut leader = Election::new("a".to_owned());
        leader.won(at(0));
        // Another candidate saw the renewal after its request left.
        let mut other = Election::new("b".to_owned());
        assert_eq!(other.look(at(0), held_by("a", "1")), NextStep::Wait);
        let mut begins = 0;
        while other.look(at(begins), held_by("a", "1")) == NextStep::Wait {
            begins += 100;
        }
        assert!(
            !leader.leads(at(begins - 3_000)),
            "with time for a request that is under way"
        );
        assert!(begins < 15_000);
    }

    #[test]
    fn a_leader_that_sees_another_ones_name_stops_at_once() {
        let mut election = Election::new("a".to_owned());
        election.won(at(0));
        assert!(election.leads(at(1_000)));
        assert_eq!(election.look(at(1_000), held_by("b", "9")), NextStep::Wait);
        assert!(!election.leads(at(1_000)));
    }

    #[test]
    fn the_time_counts_from_when_a_renewal_left() {
        let mut election = Election::new("a".to_owned());
        election.won(at(1_000));
        assert!(election.leads(at(8_999)));
        assert!(!election.leads(at(9_000)));
    }
}
