//! The reconcile loop of both roles: it decides after every change of the observed state or the settings, and sends each decision to
//! the tasks that act on it.
//!
//! The loop is paced: in the long run decisions take at most a quarter of one core.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{sleep, sleep_until};

use crate::clock;
use crate::decide::{About, Desired, Kind, Notice, Reason, decide, wanted_by};
use crate::leaving::Leaving;
use crate::metrics::Metrics;
use crate::observe::{Observed, Remembered, Service, Wanted};
use crate::settings::Settings;
use crate::waiting::{Waiting, with_held};

/// A decision with its input.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    /// The input.
    pub(crate) observed: Arc<Observed>,
    /// The desired state.
    pub(crate) desired: Arc<Desired>,
    /// This node is no load balancer any more, and serves on for a while.
    pub(crate) is_leaving: bool,
}

/// The newest decision; `None` until everything was listed once.
pub(crate) type Decisions = watch::Receiver<Option<Decision>>;

/// The reconcile loop.
pub(crate) struct Reconciler {
    pub(crate) observed: watch::Receiver<Option<Arc<Observed>>>,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) want: watch::Sender<Wanted>,
    pub(crate) decided: watch::Sender<Option<Decision>>,
    /// Whether notices go to the log, because no publisher writes events.
    pub(crate) logs_notices: bool,
    pub(crate) metrics: Arc<Metrics>,
}

/// The result of one pass.
struct Outcome {
    /// `None`: the first decision waits for lookups.
    decision: Option<Decision>,
    /// The wanted lookups.
    want: Wanted,
    waiting: Waiting,
    leaving: Leaving,
    /// The time until the first held Service is released, or this node stops serving.
    again: Option<Duration>,
    /// The processor time of the pass.
    took: Duration,
}

impl Reconciler {
    /// Decides until the observer ends.
    pub(crate) async fn run(mut self) {
        let mut remembered = Remembered::new();
        let mut logged = BTreeSet::new();
        let mut waiting = Waiting::default();
        let mut leaving = Leaving::default();
        loop {
            let observed = self.observed.borrow_and_update().clone();
            let mut again = None;
            let mut not_before = tokio::time::Instant::now() + SHORTEST_PAUSE;
            if let Some(observed) = observed {
                match self
                    .decide(
                        observed,
                        &remembered,
                        std::mem::take(&mut waiting),
                        std::mem::take(&mut leaving),
                    )
                    .await
                {
                    Ok(outcome) => {
                        waiting = outcome.waiting;
                        leaving = outcome.leaving;
                        again = outcome.again;
                        not_before = tokio::time::Instant::now() + pause_after(outcome.took);
                        self.want.send_if_modified(|want| {
                            let is_new = *want != outcome.want;
                            *want = outcome.want;
                            is_new
                        });
                        if let Some(decision) = outcome.decision {
                            self.log_leaving(&decision);
                            remembered.clone_from(&decision.desired.remembered);
                            self.log_notices(&decision.desired, &mut logged);
                            self.decided.send_replace(Some(decision));
                        }
                    }
                    // The panic hook logs and counts it. The previous decision stays in force until something changes.
                    Err(error) if error.is_panic() => {}
                    Err(_) => return,
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

    async fn decide(
        &mut self,
        observed: Arc<Observed>,
        remembered: &Remembered,
        waiting: Waiting,
        leaving: Leaving,
    ) -> Result<Outcome, JoinError> {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let remembered = remembered.clone();
        let before = self.decided.borrow().clone();
        let outcome = spawn_blocking(move || {
            // The data plane has priority. Where a lower priority is not permitted, both share the processor.
            _ = rustix::process::setpriority_process(None, NICE);
            let begun = clock::of_thread();
            let observed = match observed.remembered == remembered {
                true => observed,
                false => Arc::new(Observed {
                    remembered,
                    ..(*observed).clone()
                }),
            };
            let mut outcome = reconcile(observed, &settings, before.as_ref(), waiting, leaving);
            outcome.took = clock::of_thread().saturating_sub(begun);
            outcome
        });
        let outcome = outcome.await?;
        if let Some(decision) = &outcome.decision {
            self.metrics.decided(outcome.took, &decision.desired);
        }
        Ok(outcome)
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

    /// Logs new notices; where a publisher writes events, only the notices that concern more than the owner of one Service.
    fn log_notices(&self, desired: &Desired, logged: &mut BTreeSet<Notice>) {
        let is_logged = |notice: &&Notice| {
            let is_no_event = self.logs_notices || matches!(notice.about, About::Flag(_));
            // These concern other Services, too.
            is_no_event || matches!(notice.reason, Reason::LeftOut | Reason::RoutesWithdrawn)
        };
        let all = desired.notices.iter().chain(&desired.report.notices);
        let now: BTreeSet<Notice> = all.filter(is_logged).cloned().collect();
        for notice in now.difference(logged) {
            match notice.kind {
                _ if notice.reason == Reason::LeftOut => tracing::error!("{notice}"),
                Kind::Warning => tracing::warn!("{notice}"),
                Kind::Normal => tracing::info!("{notice}"),
            }
        }
        *logged = now;
    }
}

/// Decides. A new or changed Service whose lookups are not done keeps its form of `before` for a while; no other Service waits. The
/// first decision waits for the lookups of all Services: a restart of this process must not change what clients see.
fn reconcile(
    observed: Arc<Observed>,
    settings: &Settings,
    before: Option<&Decision>,
    mut waiting: Waiting,
    mut leaving: Leaving,
) -> Outcome {
    let known = before.map(|before| &*before.observed);
    let (observed, leaves) = leaving.hold(observed, known, settings, Instant::now());
    let is_new = |service: &&Arc<Service>| {
        let known = known.and_then(|known| known.services.get(&service.key));
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
    let (held, again) = waiting.held(&wanted, &observed, patience, Instant::now());
    let mut want = Wanted::default();
    if before.is_none() && !held.is_empty() {
        wanted.into_values().for_each(|wanted| want.extend(wanted));
        return Outcome {
            decision: None,
            want,
            waiting,
            leaving,
            again,
            took: Duration::ZERO,
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
        waiting,
        leaving,
        again: again.into_iter().chain(leaves).min(),
        took: Duration::ZERO,
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

    #[test]
    fn deciding_takes_at_most_a_quarter_of_a_core() {
        let at = Duration::from_millis;
        for (took, pause) in [(0, 50), (10, 50), (20, 60), (400, 1200)] {
            assert_eq!(pause_after(at(took)), at(pause), "{took} ms");
        }
    }
    use crate::observe::{Key, Material, Secret};

    /// Two Services of which the first wants this Secret and the second has this port; these Secrets were looked up.
    fn seen(secret: &str, port: u16, looked_up: &[&str]) -> Arc<Observed> {
        static MATERIAL: OnceLock<Material> = OnceLock::new();
        let mut observed = Observed {
            leases: Some([].into()),
            ..Observed::default()
        };
        let manifests = format!(
            "kind: Service\nmetadata: {{name: a, namespace: shop, annotations: {{ballast.dev/tls-secret: {secret}}}}}\nspec: {{type: LoadBalancer, ports: [{{port: 443}}]}}\n---\nkind: Service\nmetadata: {{name: b, namespace: shop}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}\n"
        );
        assert_eq!(observed.take_file("a.yaml", &manifests), []);
        let secrets = looked_up.iter().map(|name| Key::new("shop", name));
        let looked_up = Wanted {
            secrets: secrets.clone().collect(),
            ..Wanted::default()
        };
        observed.looked_up = Arc::new(looked_up);
        let entries = [
            (
                "tls.crt",
                include_str!("../../tests/decide/certificate.pem"),
            ),
            ("tls.key", include_str!("../../tests/decide/key.pem")),
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

    #[tokio::test]
    async fn one_service_that_waits_for_its_secret_holds_up_no_other() {
        let settings = Arc::new(Settings::without_flags());
        let (see, observed) = watch::channel(Some(seen("one", 81, &["one"])));
        let (_told, settings) = watch::channel(settings);
        let (want, mut wanted) = watch::channel(Wanted::default());
        let (decide, mut decided) = watch::channel(None);
        let reconciler = Reconciler {
            observed,
            settings,
            want,
            decided: decide,
            logs_notices: true,
            metrics: Arc::default(),
        };
        let _reconciling = tokio::spawn(reconciler.run());
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
