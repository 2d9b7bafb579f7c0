//! The reconcile loop of both roles: it decides after every change of the observed state or the settings, and sends each decision to
//! the tasks that act on it.
//!
//! The loop is paced: in the long run decisions take at most a quarter of one core.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, sleep_until};

use crate::clock;
use crate::decide::{About, Desired, Kind, Notice, Reason, decide, wanted_by};
use crate::leaving::Leaving;
use crate::metrics::Metrics;
use crate::observe::{Key, Observed, Remembered, Service, Wanted};
use crate::settings::{Role, Settings};
use crate::waiting::{self, Waiting, with_held};

/// A decision with its input.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) observed: Arc<Observed>,
    pub(crate) desired: Arc<Desired>,
    /// This node is no load balancer any more, and serves on for a while.
    pub(crate) is_leaving: bool,
}

/// The newest decision; `None` until everything was listed once.
pub(crate) type Decisions = watch::Receiver<Option<Decision>>;

pub(crate) struct Reconciler {
    pub(crate) observed: watch::Receiver<Option<Arc<Observed>>>,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) want: watch::Sender<Wanted>,
    pub(crate) decided: watch::Sender<Option<Decision>>,
    /// The Services that the table of an earlier process serves. Empty after the first decision.
    pub(crate) earlier: Arc<BTreeSet<Key>>,
    /// Whether notices go to the log, because no publisher writes events.
    pub(crate) logs_notices: bool,
    pub(crate) metrics: Arc<Metrics>,
}

/// What one pass leaves to the next.
#[derive(Debug, Default)]
struct Carried {
    waiting: Waiting,
    leaving: Leaving,
}

/// The result of one pass.
struct Outcome {
    /// `None`: the first decision waits for lookups.
    decision: Option<Decision>,
    want: Wanted,
    carried: Carried,
    /// The time until the first held Service is released, or this node stops serving.
    again: Option<Duration>,
    /// The processor time of the pass.
    took: Duration,
    /// Whether the decision before stands.
    is_of_before: bool,
}

impl Outcome {
    /// The decision before, for a state to which it applies too. The status writer needs that state: its versions say whether an
    /// answer to a write of its own is the newest state of a Service. A node's Lease says the versions.
    fn of_before(observed: Arc<Observed>, before: &Decision, carried: Carried) -> Self {
        let decision = Decision {
            observed,
            ..before.clone()
        };
        Self {
            want: decision.desired.wanted.clone(),
            decision: Some(decision),
            carried,
            again: None,
            took: Duration::ZERO,
            is_of_before: true,
        }
    }
}

impl Reconciler {
    /// Starts the loop on a thread of its own: its priority concerns no other task, and each decision is made in the memory that
    /// the one before has freed. The returned future ends with the loop.
    pub(crate) fn start(self) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let (end, ended) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("reconcile".to_owned())
            .spawn(move || {
                runtime.block_on(self.run());
                drop(end);
            })?;
        Ok(async { drop(ended.await) })
    }

    /// Decides until the observer ends.
    async fn run(mut self) {
        let mut remembered = Remembered::new();
        let mut logged = BTreeSet::new();
        let mut carried = Carried::default();
        let mut settings = None;
        loop {
            let observed = self.observed.borrow_and_update().clone();
            let mut again = None;
            let mut not_before = tokio::time::Instant::now() + SHORTEST_PAUSE;
            let outcome = observed.and_then(|seen| {
                self.decide(seen, &remembered, mem::take(&mut carried), &mut settings)
            });
            if let Some(outcome) = outcome {
                carried = outcome.carried;
                again = outcome.again;
                not_before = tokio::time::Instant::now() + pause_after(outcome.took);
                self.want.send_if_modified(|want| {
                    let is_new = *want != outcome.want;
                    *want = outcome.want;
                    is_new
                });
                if let Some(decision) = outcome.decision {
                    self.earlier = Arc::default();
                    self.log_leaving(&decision);
                    self.log_silence(&decision);
                    remembered.clone_from(&decision.desired.remembered);
                    self.log_notices(&decision.desired, &mut logged);
                    self.decided.send_replace(Some(decision));
                }
            }
            let patience = async {
                match again {
                    Some(rest) => sleep(rest).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.observed.changed() => if changed.is_err() {
                    return;
                },
                changed = self.settings.changed() => if changed.is_err() {
                    return;
                },
                () = patience => {}
            }
            sleep_until(not_before).await;
        }
    }

    /// `None`: the pass panicked, which the panic hook logs and counts. The decision before stays in force until something changes.
    fn decide(
        &mut self,
        observed: Arc<Observed>,
        remembered: &Remembered,
        carried: Carried,
        last_settings: &mut Option<Arc<Settings>>,
    ) -> Option<Outcome> {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let last = last_settings.replace(Arc::clone(&settings));
        let has_new_settings = last.is_none_or(|last| !Arc::ptr_eq(&last, &settings));
        let before = self.decided.borrow().clone();
        // The data plane has priority, but for the first table, without which it may serve nothing. Where a lower priority is not
        // permitted, both share the processor.
        if before.is_some() {
            _ = rustix::process::setpriority_process(None, NICE);
        }
        let begun = clock::of_thread();
        let pass = || {
            let observed = match observed.remembered == *remembered {
                true => observed,
                false => Arc::new(Observed {
                    remembered: remembered.clone(),
                    ..(*observed).clone()
                }),
            };
            let may_stand = settings.role != Role::Whole && !has_new_settings;
            let stands = before.as_ref().filter(|before| {
                may_stand
                    && !before.is_leaving
                    && observed.differs_in_versions_alone(&before.observed)
            });
            match stands {
                Some(before) => Outcome::of_before(observed, before, carried),
                None => reconcile(observed, &settings, before.as_ref(), &self.earlier, carried),
            }
        };
        let mut outcome = catch_unwind(AssertUnwindSafe(pass)).ok()?;
        outcome.took = clock::of_thread().saturating_sub(begun);
        if let Some(decision) = &outcome.decision
            && !outcome.is_of_before
        {
            self.metrics.decided(outcome.took, &decision.desired);
        }
        Some(outcome)
    }

    /// Logs that this node is no load balancer any more.
    fn log_leaving(&self, decision: &Decision) {
        let is_leaving = |before: &Decision| before.is_leaving;
        if decision.is_leaving && !self.decided.borrow().as_ref().is_some_and(is_leaving) {
            tracing::info!(
                "this node is no load balancer any more; it serves on for --shutdown-delay"
            );
        }
    }

    /// Counts the nodes whose Leases have lapsed, and logs that no node is heard of, or that one is again.
    fn log_silence(&self, decision: &Decision) {
        let silent = decision.observed.silent.len();
        self.metrics
            .silent_nodes
            .set(i64::try_from(silent).unwrap_or(i64::MAX));
        let is_silence = |decision: &Decision| {
            let live = decision.observed.leases.as_ref();
            !decision.observed.silent.is_empty() && live.is_some_and(BTreeMap::is_empty)
        };
        let before = self.decided.borrow().as_ref().is_some_and(is_silence);
        match (before, is_silence(decision)) {
            (false, true) => tracing::warn!(
                nodes = silent,
                "no load balancer node is heard of; what is published stays"
            ),
            (true, false) => tracing::info!("load balancer nodes are heard of again"),
            _ => {}
        }
    }

    /// Logs new notices; where a publisher writes events, only the notices that concern more than the owner of one Service.
    fn log_notices(&self, desired: &Desired, logged: &mut BTreeSet<Notice>) {
        let is_logged = |notice: &&Notice| {
            let is_no_event = self.logs_notices || matches!(notice.about, About::Flag(_));
            // These concern other Services, too.
            is_no_event
                || matches!(
                    notice.reason,
                    Reason::LeftOut
                        | Reason::RoutesWithdrawn
                        | Reason::SettingsDiffer
                        | Reason::TooLarge
                )
        };
        let all = desired.notices.iter().chain(&desired.report.notices);
        let now: BTreeSet<Notice> = all.filter(is_logged).cloned().collect();
        for notice in lines(&now, logged) {
            match notice.kind {
                _ if notice.reason == Reason::LeftOut => tracing::error!("{notice}"),
                Kind::Warning => tracing::warn!("{notice}"),
                Kind::Normal => tracing::info!("{notice}"),
            }
        }
        *logged = now;
    }
}

/// The notices of `now` that were not `logged`. The routes of a shared port that are withdrawn are one line, whichever Service has the
/// notice: that is always the newest one.
fn lines<'a>(
    now: &'a BTreeSet<Notice>,
    logged: &'a BTreeSet<Notice>,
) -> impl Iterator<Item = &'a Notice> {
    now.difference(logged).filter(|notice| {
        let is_same = |old: &Notice| (old.reason, &old.message) == (notice.reason, &notice.message);
        notice.reason != Reason::RoutesWithdrawn || !logged.iter().any(is_same)
    })
}

/// Decides. A new or changed Service whose lookups are not done keeps its form of `before` for a while; no other Service waits. But
/// the first decision waits for the lookups of Services that the table of an `earlier` process serves: a restart of this process must
/// not change what clients see.
fn reconcile(
    observed: Arc<Observed>,
    settings: &Settings,
    before: Option<&Decision>,
    earlier: &BTreeSet<Key>,
    mut carried: Carried,
) -> Outcome {
    let known = before.map(|before| &*before.observed);
    let (observed, leaves) = carried
        .leaving
        .hold(observed, known, settings, Instant::now());
    let is_new = |service: &&Arc<Service>| {
        let known = known.and_then(|known| waiting::form(known, &service.key));
        known != Some(service)
    };
    let new = observed
        .services
        .values()
        .filter(is_new)
        .map(|service| &**service);
    let mut wanted = wanted_by(new, &observed, settings);
    let patience = match before {
        Some(_) => SHORT_WAIT,
        None => LONG_WAIT,
    };
    let (held, again) = carried
        .waiting
        .held(&wanted, &observed, patience, Instant::now());
    let mut want = Wanted::default();
    if before.is_none() && !held.is_disjoint(earlier) {
        wanted.into_values().for_each(|wanted| want.extend(wanted));
        return Outcome {
            decision: None,
            want,
            carried,
            again,
            took: Duration::ZERO,
            is_of_before: false,
        };
    }
    let observed = with_held(observed, &held, known);
    let mut desired = decide(&observed, settings);
    let table = before.and_then(|before| before.desired.table.as_ref());
    if desired.table.as_ref() == table {
        desired.table = table.cloned();
    }
    want.clone_from(&desired.wanted);
    let of_held = held.iter().filter_map(|key| wanted.remove(key));
    of_held.for_each(|wanted| want.extend(wanted));
    Outcome {
        decision: Some(Decision {
            observed,
            desired: Arc::new(desired),
            is_leaving: leaves.is_some(),
        }),
        want,
        carried,
        again: again.into_iter().chain(leaves).min(),
        took: Duration::ZERO,
        is_of_before: false,
    }
}

/// The pause after a pass that took so long.
fn pause_after(took: Duration) -> Duration {
    (took * 3).max(SHORTEST_PAUSE)
}

/// The shortest pause between two decisions.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const NICE: i32 = 10;
const SHORT_WAIT: Duration = Duration::from_secs(1);
const LONG_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use tokio::time::timeout;

    use super::*;
    use crate::observe::{Material, Secret};

    #[test]
    fn routes_that_are_withdrawn_are_one_line_whichever_service_is_the_newest() {
        let notice = |name: &str, reason| Notice {
            about: About::Service(Key::new("shop", name)),
            kind: Kind::Warning,
            reason,
            message: "port 80/TCP is taken".to_owned(),
        };
        let of = |names: &[&str], reason| -> BTreeSet<Notice> {
            names.iter().map(|name| notice(name, reason)).collect()
        };
        for (reason, expected) in [(Reason::RoutesWithdrawn, 0), (Reason::LeftOut, 1)] {
            let (before, now) = (of(&["old"], reason), of(&["new"], reason));
            assert_eq!(lines(&before, &BTreeSet::new()).count(), 1);
            assert_eq!(lines(&now, &before).count(), expected, "{reason:?}");
        }
    }

    #[test]
    fn deciding_takes_at_most_a_quarter_of_a_core() {
        let at = Duration::from_millis;
        for (took, pause) in [(0, 50), (10, 50), (20, 60), (400, 1200)] {
            assert_eq!(pause_after(at(took)), at(pause), "{took} ms");
        }
    }
    /// Two Services of which the first wants this Secret and the second has this port; these Secrets were looked up.
    fn seen(secret: &str, port: u16, looked_up: &[&str]) -> Arc<Observed> {
        static MATERIAL: OnceLock<Material> = OnceLock::new();
        let manifests = format!(
            "kind: Service\nmetadata: {{name: a, namespace: shop, annotations: {{ballast.dev/tls-secret: {secret}}}}}\nspec: {{type: LoadBalancer, ports: [{{port: 443}}]}}\n---\nkind: Service\nmetadata: {{name: b, namespace: shop}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}\n"
        );
        let mut observed = Observed::of(&manifests);
        observed.leases = Some([].into());
        let secrets = looked_up.iter().map(|name| Key::new("shop", name));
        observed.looked_up = Arc::new(Wanted {
            secrets: secrets.clone().collect(),
            ..Wanted::default()
        });
        let entries = [
            (
                "tls.crt",
                include_str!("../../tests/controller/decide/certificate.pem"),
            ),
            (
                "tls.key",
                include_str!("../../tests/controller/decide/key.pem"),
            ),
        ];
        // Parsed once, as in a cluster: in a debug build, parsing a key again takes long enough for the pacing to show.
        let material = MATERIAL.get_or_init(|| {
            let entries = entries.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
            Material::new(entries.into())
        });
        let readable = secrets.map(|key| (key, Secret::Readable(material.clone())));
        observed.secrets = readable.collect();
        Arc::new(observed)
    }

    /// The frontends, and the certificate of the first one.
    fn served(decided: &watch::Receiver<Option<Decision>>) -> (Vec<String>, String) {
        let decided = decided.borrow();
        let table = decided.as_ref().and_then(|one| one.desired.table.clone());
        let table = table.expect("a table");
        let names = table.frontends.iter().map(|one| one.name.to_string());
        let text = serde_json::to_string(&*table).unwrap();
        let certificate = text
            .split("tls/shop.")
            .nth(1)
            .map(|rest| rest.split(".crt").next());
        (
            names.collect(),
            certificate.flatten().unwrap_or_default().to_owned(),
        )
    }

    /// A reconcile loop that runs, and the ends of its channels.
    struct Loop {
        see: watch::Sender<Option<Arc<Observed>>>,
        wanted: watch::Receiver<Wanted>,
        decided: watch::Receiver<Option<Decision>>,
        _settings: watch::Sender<Arc<Settings>>,
    }

    impl Loop {
        /// The table of an earlier process serves these Services.
        fn start(seen: Arc<Observed>, earlier: &[&str]) -> Self {
            let (see, observed) = watch::channel(Some(seen));
            let (told, settings) = watch::channel(Arc::new(Settings::without_flags()));
            let (want, wanted) = watch::channel(Wanted::default());
            let (decide, decided) = watch::channel(None);
            let earlier = earlier.iter().map(|name| Key::new("shop", name));
            let reconciler = Reconciler {
                observed,
                settings,
                want,
                decided: decide,
                earlier: Arc::new(earlier.collect()),
                logs_notices: true,
                metrics: Arc::default(),
            };
            tokio::spawn(reconciler.run());
            Self {
                see,
                wanted,
                decided,
                _settings: told,
            }
        }
    }

    #[tokio::test]
    async fn the_first_decision_waits_for_no_service_that_was_not_served_before() {
        for earlier in [&[][..], &["b"]] {
            let mut one = Loop::start(seen("late", 81, &[]), earlier);
            next(&mut one.decided).await;
            assert_eq!(served(&one.decided), (vec!["shop.b:81".into()], "".into()));
            let decision = one.decided.borrow().clone().unwrap();
            let notices = &decision.desired.report.notices;
            assert_eq!(*notices, BTreeSet::new(), "it is being looked up");
            let secret = Key::new("shop", "late");
            assert_eq!(one.wanted.borrow().secrets, [secret].into());
            // The Service of the Secret still waits when another one changes.
            one.see.send_replace(Some(seen("late", 82, &[])));
            next(&mut one.decided).await;
            assert_eq!(served(&one.decided), (vec!["shop.b:82".into()], "".into()));
            one.see.send_replace(Some(seen("late", 82, &["late"])));
            next(&mut one.decided).await;
            let all = vec!["shop.a:443".into(), "shop.b:82".into()];
            assert_eq!(served(&one.decided), (all, "late".into()));
        }
    }

    #[tokio::test]
    async fn the_first_decision_closes_nothing_that_an_earlier_process_serves() {
        let mut one = Loop::start(seen("late", 81, &[]), &["a", "b"]);
        next(&mut one.wanted).await;
        let decided = timeout(SHORT_WAIT * 3 / 2, one.decided.changed()).await;
        assert!(decided.is_err(), "{:?}", served(&one.decided));
        one.see.send_replace(Some(seen("late", 81, &["late"])));
        next(&mut one.decided).await;
        let all = vec!["shop.a:443".into(), "shop.b:81".into()];
        assert_eq!(served(&one.decided), (all, "late".into()));
    }

    #[tokio::test]
    async fn a_publisher_decides_nothing_anew_for_other_versions_of_services_and_passes_them_on() {
        let seen = |version: u64, port: u16| {
            let mut observed = Observed::default();
            let manifest = format!(
                "kind: Service\nmetadata: {{name: a, namespace: shop, resourceVersion: '{version}'}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}\n"
            );
            assert_eq!(observed.take_file("a.yaml", &manifest), []);
            for service in observed.services.values_mut() {
                // As the store of a watch keeps it.
                Arc::make_mut(service).publication.allocated_at = 1;
            }
            Some(Arc::new(observed))
        };
        let settings = Settings::without_flags().in_role(Role::Publisher);
        let (see, observed) = watch::channel(seen(1, 80));
        let (told, settings) = watch::channel(Arc::new(settings));
        let (want, _) = watch::channel(Wanted::default());
        let (decide, mut decided) = watch::channel(None);
        let metrics = Arc::new(Metrics::default());
        let reconciler = Reconciler {
            observed,
            settings,
            want,
            decided: decide,
            earlier: Arc::default(),
            logs_notices: false,
            metrics: Arc::clone(&metrics),
        };
        let _reconciling = tokio::spawn(reconciler.run());
        let mut next_one = async || {
            next(&mut decided).await;
            let decision: Option<Decision> = decided.borrow().clone();
            let decision = decision.expect("a decision");
            let version = decision.observed.services[&Key::new("shop", "a")]
                .publication
                .version;
            (decision, version)
        };
        let (first, _) = next_one().await;
        for version in 2..5 {
            see.send_replace(seen(version, 80));
            let (now, its_version) = next_one().await;
            assert!(Arc::ptr_eq(&now.desired, &first.desired), "{version}");
            assert_eq!(its_version, version);
        }
        let decisions = |metrics: &Metrics| {
            let text = metrics.render();
            let name = "ballast_controller_decisions_total ";
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::to_owned)
        };
        assert_eq!(decisions(&metrics).as_deref(), Some("1"));
        see.send_replace(seen(5, 81));
        let (now, _) = next_one().await;
        assert!(!Arc::ptr_eq(&now.desired, &first.desired));
        // New settings count, too.
        let settings = Settings::clone(&told.borrow());
        told.send_replace(Arc::new(settings));
        let (again, _) = next_one().await;
        assert!(!Arc::ptr_eq(&again.desired, &now.desired));
        assert_eq!(decisions(&metrics).as_deref(), Some("3"));
    }

    #[tokio::test]
    async fn one_service_that_waits_for_its_secret_holds_up_no_other() {
        let Loop {
            see,
            mut wanted,
            mut decided,
            _settings,
        } = Loop::start(seen("one", 81, &["one"]), &[]);
        let begun = Instant::now();
        next(&mut decided).await;
        assert_eq!(
            served(&decided),
            (vec!["shop.a:443".into(), "shop.b:81".into()], "one".into())
        );

        // The first Service wants another missing Secret in every round; the second Service changes meanwhile.
        for round in 0..20_u16 {
            wanted.mark_unchanged();
            let begun = Instant::now();
            see.send_replace(Some(seen(&format!("none-{round}"), 82 + round, &["one"])));
            next(&mut decided).await;
            assert!(
                begun.elapsed() < Duration::from_millis(300),
                "{:?}",
                begun.elapsed()
            );
            let port = format!("shop.b:{}", 82 + round);
            assert_eq!(
                served(&decided),
                (vec!["shop.a:443".into(), port], "one".into())
            );
            next(&mut wanted).await;
            let names = wanted.borrow().secrets.clone();
            let expected = ["one".to_owned(), format!("none-{round}")];
            let expected = expected.map(|name| Key::new("shop", &name));
            assert_eq!(names, expected.into(), "the Secret of its last form stays");
        }
        // After a while it is not held any more, and its port is closed.
        timeout(4 * SHORT_WAIT, decided.changed())
            .await
            .unwrap()
            .unwrap();
        assert!(begun.elapsed() >= SHORT_WAIT);
        assert_eq!(served(&decided).0, ["shop.b:101"]);
        see.send_replace(Some(seen("none-19", 101, &["none-19"])));
        next(&mut decided).await;
        assert_eq!(
            served(&decided),
            (
                vec!["shop.a:443".into(), "shop.b:101".into()],
                "none-19".into()
            )
        );
    }

    /// Waits for the next value.
    async fn next<T>(receiver: &mut watch::Receiver<T>) {
        let changed = timeout(SHORT_WAIT, receiver.changed()).await;
        changed.expect("a value in time").expect("a sender");
    }
}
