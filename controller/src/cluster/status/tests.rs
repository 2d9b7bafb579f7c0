use kube::Config;

use super::*;
use crate::cluster::EventWriter;
use crate::cluster::leader::{Campaign, campaign};

/// Of a process that leads nothing, and reaches no cluster.
fn statuses() -> StatusWriter {
    let nowhere = Config::new("http://127.0.0.1:1/".parse().unwrap());
    let client = Client::try_from(nowhere).unwrap();
    let metrics = Arc::new(Metrics::default());
    let (_, decisions) = watch::channel(None);
    let (_, ending) = watch::channel(false);
    let (modes, known_modes) = watch::channel(None);
    let (leading, _) = campaign(Campaign {
        client: client.clone(),
        namespace: "ballast".to_owned(),
        me: "me".to_owned(),
        ending,
        metrics: Arc::clone(&metrics),
    });
    let (recorder, _) = EventWriter::new(
        client.clone(),
        "me".to_owned(),
        decisions.clone(),
        known_modes,
        leading.clone(),
        Arc::clone(&metrics),
    );
    StatusWriter {
        client,
        decisions,
        leading,
        recorder,
        finalizer: true,
        suffix: None,
        modes,
        metrics,
    }
}

/// Decided when there was a Service of this UID.
fn decision(uid: &str) -> Decision {
    let mut observed = Observed::default();
    let manifest = format!("kind: Service\nmetadata: {{name: web, namespace: shop, uid: {uid}}}\n");
    assert_eq!(observed.take_file("a.yaml", &manifest), []);
    let desired = crate::decide::Desired {
        table: None,
        files: BTreeSet::new(),
        statuses: Vec::new(),
        notices: BTreeSet::new(),
        wanted: crate::observe::Wanted::default(),
        remembered: BTreeMap::new(),
        report: Arc::default(),
    };
    Decision {
        observed: Arc::new(observed),
        desired: Arc::new(desired),
    }
}

#[tokio::test]
async fn a_service_that_was_replaced_while_it_was_looked_at_is_looked_at_again() {
    let statuses = statuses();
    let key = Key::new("shop", "web");
    for (observed, is_looked_at) in [("another", true), ("the-same", false)] {
        let known = Known {
            uid: "the-same".to_owned(),
            is_busy: true,
            ..Known::default()
        };
        let mut queue = Queue {
            decision: Some(decision(observed)),
            known: BTreeMap::from([(key.clone(), known)]),
            ..Queue::default()
        };
        let done = Done {
            key: key.clone(),
            written: Written::Gone,
            rivalry: Rivalry::default(),
            said: Vec::new(),
            kept_modes: None,
        };
        statuses.finish(&mut queue, done);
        assert!(queue.known.is_empty());
        assert_eq!(queue.due.members.contains(&key), is_looked_at, "{observed}");
    }
}
