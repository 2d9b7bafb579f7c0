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
            include_str!("../../../tests/controller/decide/certificate.pem"),
        ),
        (
            "tls.key",
            include_str!("../../../tests/controller/decide/key.pem"),
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
        see.send_replace(Some(seen(&format!("none-{round}"), 82 + round, &["one"])));
        // The decision comes before the wait for the Secret ends: the first Service is still held in the form that it had.
        next(&mut decided).await;
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
