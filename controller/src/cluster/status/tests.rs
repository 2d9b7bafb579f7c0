use kube::Config;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::allocation::Allocation;
use crate::cluster::EventWriter;
use crate::decide::{Allotment, Status};

/// The writer of a process that leads nothing, and reaches no cluster.
fn statuses() -> StatusWriter {
    let nowhere = Config::new("http://127.0.0.1:1/".parse().unwrap());
    let client = Client::try_from(nowhere).unwrap();
    let metrics = Arc::new(Metrics::default());
    let (_, decisions) = watch::channel(None);
    let (events, _) = EventWriter::new(
        client.clone(),
        "me",
        decisions.clone(),
        Leading::always(),
        Arc::clone(&metrics),
    );
    StatusWriter {
        client,
        decisions,
        leading: Leading::always(),
        events,
        finalizer: true,
        namespaces: vec![None],
        own_namespace: "ballast".to_owned(),
        metrics,
    }
}

/// A state of the Service with this UID and this version, published at these addresses.
fn state(uid: &str, version: u64, addresses: &[&str]) -> Arc<Service> {
    state_in_mode(uid, version, addresses, "Proxy")
}

/// The same, with this mode of the addresses.
fn state_in_mode(uid: &str, version: u64, addresses: &[&str], mode: &str) -> Arc<Service> {
    let ingress = addresses
        .iter()
        .map(|address| json!({"ip": address, "ipMode": mode}));
    let manifest = json!({
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": ingress.collect::<Vec<_>>()}},
    });
    let mut observed = Observed::of(&manifest.to_string());
    observed.services.pop_first().unwrap().1
}

/// A decision about these Services: each observed with this version and what it has, and what it is given.
fn decision_to_give(services: &[(&str, u64, Option<&str>, &str)]) -> Decision {
    let words = |address: &str| format!("addresses={address} pool=edge ports=80/TCP");
    let mut observed = Observed::default();
    let mut desired = crate::decide::Desired::default();
    for (name, version, has, given) in services {
        let condition = |address: &&str| {
            json!({"type": "ballast.dev/Allocated", "status": "True", "reason": "Allocated",
                "message": words(address), "lastTransitionTime": "2026-01-02T03:04:05Z"})
        };
        let manifest = json!({
            "kind": "Service",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            "status": {"conditions": has.iter().map(condition).collect::<Vec<_>>()},
        });
        let (key, service) = Observed::of(&manifest.to_string())
            .services
            .pop_first()
            .unwrap();
        let given = Allocation::read(&words(given)).unwrap();
        desired.statuses.push(Status {
            allotment: Some(Allotment::Given(given)),
            ..Status::new(&service, Verdict::Pending, "")
        });
        observed.services.insert(key, service);
    }
    Decision {
        observed: Arc::new(observed),
        desired: Arc::new(desired),
        is_leaving: false,
    }
}

#[tokio::test]
async fn what_one_service_was_given_is_given_to_no_other_before_the_write_is_observed() {
    let statuses = statuses();
    let (first, last) = (Key::new("shop", "first"), Key::new("shop", "last"));
    let (one, two) = ("192.0.2.1", "192.0.2.2");
    for error in [None, Some(404), Some(500)] {
        let mut work = Work::default();
        let decide = |work: &mut Work, services: &[_]| {
            statuses.take_decision(work, Some(decision_to_give(services)));
            statuses.begin_passes(work);
            work.passing.values().cloned().collect::<BTreeSet<_>>()
        };
        let passing = decide(&mut work, &[("last", 7, None, one)]);
        assert_eq!(passing, BTreeSet::from([last.clone()]));
        // A Service that comes first is there, and the write is not observed.
        let unaware = [("first", 8, None, one), ("last", 7, None, two)];
        let passing = decide(&mut work, &unaware);
        assert_eq!(passing, BTreeSet::from([last.clone()]));
        let mut passed = next_passed(&mut work).await;
        if let Some(code) = error {
            let status = kube::core::Status::failure("", "").with_code(code);
            passed.result = Err(kube::Error::Api(status.boxed()));
        } else {
            let answer = decision_to_give(&[("last", 9, Some(one), one)]);
            passed.service = Arc::clone(&answer.observed.services[&last]);
            passed.result = Ok(None);
        }
        statuses.end_pass(&mut work, &last, passed);
        let passing = decide(&mut work, &unaware);
        // What was refused was not written. Of what has no answer nobody knows.
        let is_free = error == Some(404);
        assert_eq!(passing.contains(&first), is_free, "{error:?}");
        let aware = [("first", 8, None, two), ("last", 9, Some(one), one)];
        assert!(decide(&mut work, &aware).contains(&first), "{error:?}");
    }
}

/// A decision to publish the observed Service at 10.0.0.1.
fn decision(service: Arc<Service>) -> Decision {
    let status = Status {
        ingress: vec![crate::decide::Ingress::Ip([10, 0, 0, 1].into())],
        ..Status::new(&service, Verdict::Served, "")
    };
    let desired = crate::decide::Desired {
        statuses: vec![status],
        ..crate::decide::Desired::default()
    };
    let observed = Observed {
        services: BTreeMap::from([(service.key.clone(), service)]),
        ..Observed::default()
    };
    Decision {
        observed: Arc::new(observed),
        desired: Arc::new(desired),
        is_leaving: false,
    }
}

/// The work of a process that has just taken in a decision about this state of the Service.
fn work(statuses: &StatusWriter, service: Arc<Service>) -> Work {
    let mut work = Work::default();
    statuses.take_decision(&mut work, Some(decision(service)));
    work
}

/// The result of the pass that ends next.
async fn next_passed(work: &mut Work) -> Passed {
    let (_, passed) = work.next_pass().await.unwrap();
    passed.unwrap()
}

#[tokio::test]
async fn a_service_gets_another_pass_after_one_that_panicked() {
    let statuses = statuses();
    let key = Key::new("shop", "web");
    let mut work = work(&statuses, state("u-1", 7, &[]));
    work.leave_queue(&key);
    work.tracked.get_mut(&key).unwrap().has_pass = true;
    work.begin_pass(key.clone(), async { panic!("a fault") });
    let (lost, passed) = work.next_pass().await.unwrap();
    statuses.lose_pass(&mut work, &lost, &passed.map(drop).unwrap_err());
    let (at, queued) = work.queue.first().unwrap();
    assert_eq!(*queued, key);
    assert!(*at > clock::now(), "not at once: it may panic again");
}

#[tokio::test]
async fn a_service_that_was_replaced_while_it_was_written_is_compared_again_at_once() {
    let statuses = statuses();
    let key = Key::new("shop", "web");
    for (observed, is_at_once) in [("another", true), ("the-same", false)] {
        let mut work = work(&statuses, state("the-same", 7, &[]));
        statuses.begin_passes(&mut work);
        assert!(work.queue.is_empty());
        statuses.take_decision(&mut work, Some(decision(state(observed, 8, &[]))));
        assert!(work.queue.is_empty(), "one pass at a time");
        let mut passed = next_passed(&mut work).await;
        let status = kube::core::Status::failure("it was replaced", "Conflict").with_code(409);
        passed.result = Err(kube::Error::Api(status.boxed()));
        statuses.end_pass(&mut work, &key, passed);
        let (at, _) = work.queue.first().unwrap();
        assert_eq!(*at <= clock::now(), is_at_once, "{observed}");
    }
}

#[tokio::test]
async fn an_answer_counts_until_a_newer_state_is_observed() {
    let statuses = statuses();
    let key = Key::new("shop", "web");
    let mut work = work(&statuses, state("u-1", 7, &[]));
    statuses.begin_passes(&mut work);
    let mut passed = next_passed(&mut work).await;
    passed.service = state("u-1", 9, &["10.0.0.1"]);
    statuses.end_pass(&mut work, &key, passed);
    for (version, counts) in [(7, 9), (8, 9), (9, 9), (10, 10), (9, 9)] {
        let observed = state("u-1", version, &[]);
        statuses.take_decision(&mut work, Some(decision(observed)));
        let (_, newest) = statuses.desired(&mut work, &key).unwrap();
        assert_eq!(newest.publication.version, counts, "{version}");
    }
}

#[tokio::test]
async fn addresses_that_were_cleared_before_our_own_write_was_observed_are_missed_all_the_same() {
    let statuses = statuses();
    let key = Key::new("shop", "web");
    let mut work = work(&statuses, state("u-1", 7, &[]));
    statuses.begin_passes(&mut work);
    let mut passed = next_passed(&mut work).await;
    let answer = state("u-1", 9, &["10.0.0.1"]);
    passed.service = Arc::clone(&answer);
    passed.result = Ok(None);
    statuses.end_pass(&mut work, &key, passed);
    let newest = |work: &mut Work| statuses.desired(work, &key).unwrap().1;
    assert!(Arc::ptr_eq(&newest(&mut work), &answer));
    // The Service is again as it was before the write, but for its version: the same decision, with another input.
    let cleared = Decision {
        desired: Arc::clone(&work.decision.as_ref().unwrap().desired),
        ..decision(state("u-1", 10, &[]))
    };
    work.leave_queue(&key);
    statuses.take_decision(&mut work, Some(cleared));
    assert_eq!(newest(&mut work).publication.version, 10);
    assert!(!work.queue.is_empty(), "ours are written again");
}

#[tokio::test]
async fn an_api_server_that_learns_of_ip_mode_is_written_to_once_more() {
    let statuses = statuses();
    let key = Key::new("shop", "web");
    let mut work = work(&statuses, state("u-1", 7, &[]));
    for (drops, expected) in [
        (None, false),
        (Some(true), true),
        (None, true),
        (Some(false), false),
    ] {
        work.leave_queue(&key);
        work.enter_queue(&key, Duration::ZERO);
        statuses.begin_passes(&mut work);
        let mut passed = next_passed(&mut work).await;
        passed.drops_ip_mode = drops;
        statuses.end_pass(&mut work, &key, passed);
        assert_eq!(work.drops_ip_mode, expected, "{drops:?}");
    }
    // The answer to the write without a mode: the server has added one.
    let found = state_in_mode("u-1", 9, &["10.0.0.1"], "VIP");
    let mode_of = |work: &mut Work| {
        let (desired, service) = statuses.desired(work, &key).unwrap();
        let object = desired.status(&service, 0);
        object["status"]["loadBalancer"]["ingress"][0]["ipMode"].clone()
    };
    statuses.take_decision(&mut work, Some(decision(found)));
    assert_eq!(mode_of(&mut work), json!("Proxy"));
    work.drops_ip_mode = true;
    assert_eq!(mode_of(&mut work), json!(null));
}

#[test]
fn a_new_service_waits_for_one_of_those_that_came_before_it_at_most() {
    let mut work = Work::default();
    let at = Duration::from_secs;
    for (name, second) in [("a", 1), ("b", 1), ("c", 1), ("d", 2), ("later", 9)] {
        let key = Key::new("shop", name);
        work.tracked.entry(key.clone()).or_default();
        work.enter_queue(&key, at(second));
    }
    let taken = |work: &mut Work| Some(work.take_from_queue(at(2))?.name);
    assert_eq!(taken(&mut work).as_deref(), Some("a"));
    assert_eq!(taken(&mut work).as_deref(), Some("d"));
    assert_eq!(taken(&mut work).as_deref(), Some("b"));
    // One that comes now is the next.
    let new = Key::new("shop", "new");
    work.tracked.entry(new.clone()).or_default();
    work.enter_queue(&new, at(2));
    assert_eq!(taken(&mut work).as_deref(), Some("new"));
    assert_eq!(taken(&mut work).as_deref(), Some("c"));
    assert_eq!(taken(&mut work), None);
    assert_eq!(work.queue.len(), 1);
}
