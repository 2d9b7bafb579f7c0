use super::*;
use crate::decide::PortError;
use crate::observe::Key;
use crate::observe::Observed;
use crate::request::MANAGER;

/// A Service as the API server has it, and as it is observed.
fn service(manifest: &Value) -> (core::Service, Service) {
    let mut observed = Observed::default();
    assert_eq!(observed.take_file("a.json", &manifest.to_string()), []);
    let live = serde_json::from_value(manifest.clone()).unwrap();
    let seen = observed.services.pop_first().unwrap().1;
    (live, (*seen).clone())
}

fn plain() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "shop", "namespace": "default", "resourceVersion": "7"},
        "spec": {"type": "LoadBalancer", "ports": [
            {"name": "web", "port": 80}, {"name": "sip", "port": 5060, "protocol": "SCTP"},
        ]},
    })
}

fn status(verdict: Verdict, ingress: &[&str]) -> Status {
    let place = |text: &&str| match text.parse() {
        Ok(address) => Ingress::Ip(address),
        Err(_) => Ingress::Hostname((*text).to_owned()),
    };
    Status {
        service: Key::new("default", "shop"),
        verdict,
        why: String::new(),
        ingress: ingress.iter().map(place).collect(),
        port_errors: Vec::new(),
        annotations: BTreeMap::new(),
        stale_annotations: BTreeSet::new(),
        taken_from: None,
    }
}

/// The patches of the object and of its status.
fn patches(status: &Status, live: &Value, mode: Mode<'_>) -> (Value, Value) {
    let (live, seen) = service(live);
    let wish = Wish::of(status, &seen, None, true, mode).unwrap();
    let patches = wish.patches(&live, mode, "2026-01-01T00:00:00Z");
    (
        patches.object.unwrap_or_default(),
        patches.status.unwrap_or_default(),
    )
}

/// What a merge patch makes of it, if there is one.
fn merge_if_any(into: &mut Value, patch: &Value) {
    if !patch.is_null() {
        merge(into, patch);
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => {
                into.as_object_mut().unwrap().remove(key);
            }
            value => merge(&mut into[key], value),
        }
    }
}

#[test]
fn a_new_service_gets_finalizer_addresses_and_condition() {
    let (object, status) = patches(
        &status(Verdict::Served, &["10.0.0.1", "fd00::1"]),
        &plain(),
        Mode::Kept,
    );
    assert_eq!(
        object,
        json!({"metadata": {"resourceVersion": "7", "finalizers": [FINALIZER]}})
    );
    assert_eq!(status["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(
        status["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "10.0.0.1", "ipMode": "Proxy"}, {"ip": "fd00::1", "ipMode": "Proxy"}])
    );
    let condition = &status["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!(PROGRAMMED), &json!("True"))
    );
    assert_eq!(condition["message"], "published at 10.0.0.1, fd00::1");
}

#[test]
fn what_is_as_wished_is_not_written_again() {
    for (verdict, ingress) in [
        (Verdict::Served, &["10.0.0.1"][..]),
        (Verdict::Served, &["edge.example.com"]),
        (Verdict::Pending, &[]),
        (Verdict::Released, &[]),
    ] {
        let mut live = plain();
        let wish = status(verdict, ingress);
        let (object, status) = patches(&wish, &live, Mode::Kept);
        merge_if_any(&mut live, &object);
        merge_if_any(&mut live, &status);
        let (object, status) = patches(&wish, &live, Mode::Kept);
        assert_eq!((object, status), (Value::Null, Value::Null), "{verdict:?}");
        let (_, seen) = service(&live);
        let wish = Wish::of(&wish, &seen, None, true, Mode::Kept).unwrap();
        assert!(wish.is_seen(&seen), "{verdict:?}");
    }
}

#[test]
fn what_others_say_stays() {
    let mut live = plain();
    live["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    live["status"] = json!({"conditions": [{
        "type": "example.com/Theirs", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }]});
    let (object, status) = patches(&status(Verdict::Pending, &[]), &live, Mode::Kept);
    assert_eq!(
        object["metadata"]["finalizers"],
        json!(["example.com/theirs", FINALIZER])
    );
    let conditions = status["status"]["conditions"].as_array().unwrap();
    let kinds: Vec<&Value> = conditions.iter().map(|one| &one["type"]).collect();
    assert_eq!(kinds, ["example.com/Theirs", PROGRAMMED]);
}

#[test]
fn a_service_that_is_given_back_has_nothing_of_ours_left() {
    let mut live = plain();
    live["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    live["metadata"]["annotations"] = json!({"a": "theirs", "ballast.dev/last-good": "ours"});
    let before = live.clone();
    let served = status(Verdict::Served, &["10.0.0.1"]);
    let (object, written) = patches(&served, &live, Mode::Kept);
    merge_if_any(&mut live, &object);
    merge_if_any(&mut live, &written);
    let released = Status {
        stale_annotations: BTreeSet::from(["ballast.dev/last-good".to_owned()]),
        ..status(Verdict::Released, &[])
    };
    let (object, written) = patches(&released, &live, Mode::Kept);
    assert_eq!(written["status"]["loadBalancer"]["ingress"], Value::Null);
    merge_if_any(&mut live, &object);
    merge_if_any(&mut live, &written);
    assert_eq!(
        live["metadata"]["finalizers"],
        before["metadata"]["finalizers"]
    );
    assert_eq!(live["metadata"]["annotations"], json!({"a": "theirs"}));
    assert_eq!(
        live["status"],
        json!({"loadBalancer": {}, "conditions": []})
    );
}

#[test]
fn a_service_whose_status_is_not_ours_gets_its_annotations_alone() {
    let routed = Status {
        annotations: BTreeMap::from([("ballast.dev/last-good".to_owned(), "x".to_owned())]),
        ..status(Verdict::Routed, &["10.0.0.1"])
    };
    let (object, status_) = patches(&routed, &plain(), Mode::Kept);
    assert_eq!(
        object["metadata"],
        json!({"resourceVersion": "7", "annotations": {"ballast.dev/last-good": "x"}})
    );
    assert_eq!(status_, Value::Null);
    let (_, seen) = service(&plain());
    for verdict in [Verdict::Routed, Verdict::LeftAlone] {
        assert_eq!(
            Wish::of(&status(verdict, &[]), &seen, None, true, Mode::Kept),
            None
        );
    }
}

#[test]
fn a_port_with_an_error_is_named_beside_those_without() {
    let mut wish = status(Verdict::Served, &["10.0.0.1"]);
    wish.port_errors = vec![PortError {
        port: 5060,
        protocol: "SCTP",
        error: "UnsupportedProtocol",
    }];
    let (_, written) = patches(&wish, &plain(), Mode::Kept);
    assert_eq!(
        written["status"]["loadBalancer"]["ingress"][0]["ports"],
        json!([
            {"port": 80, "protocol": "TCP"},
            {"port": 5060, "protocol": "SCTP", "error": "UnsupportedProtocol"},
        ])
    );
}

#[test]
fn an_api_server_that_drops_modes_is_not_written_to_for_ever() {
    let mut live = plain();
    live["metadata"]["finalizers"] = json!([FINALIZER]);
    live["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
    let wish = status(Verdict::Served, &["10.0.0.1"]);
    let ingress = |mode| patches(&wish, &live, mode).1["status"]["loadBalancer"]["ingress"].clone();
    assert_eq!(
        ingress(Mode::Kept),
        json!([{"ip": "10.0.0.1", "ipMode": "Proxy"}])
    );
    assert_eq!(
        ingress(Mode::Dropped(None)),
        Value::Null,
        "no difference that can be made"
    );
    assert_eq!(
        ingress(Mode::Dropped(Some("nip.io"))),
        json!([{"hostname": "10.0.0.1.nip.io"}])
    );
}

#[test]
fn an_address_becomes_a_name_that_is_one() {
    for (address, name) in [
        ("10.0.0.1", "10.0.0.1.nip.io"),
        ("fd00::1", "fd00--1.nip.io"),
        ("::1", "0--1.nip.io"),
        ("fd00::", "fd00--0.nip.io"),
    ] {
        assert_eq!(named(address.parse().unwrap(), "nip.io"), name);
    }
}

#[test]
fn the_condition_keeps_its_time_until_it_turns() {
    let mut live = plain();
    let (object, written) = patches(&status(Verdict::Served, &["10.0.0.1"]), &live, Mode::Kept);
    merge_if_any(&mut live, &object);
    merge_if_any(&mut live, &written);
    let (live_, seen) = service(&live);
    let condition = |verdict, ingress: &[&str]| {
        let wish = Wish::of(&status(verdict, ingress), &seen, None, true, Mode::Kept).unwrap();
        let status = wish
            .patches(&live_, Mode::Kept, "2026-02-02T00:00:00Z")
            .status
            .unwrap();
        status["status"]["conditions"][0]["lastTransitionTime"].clone()
    };
    assert_eq!(
        condition(Verdict::Served, &["10.0.0.2"]),
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(condition(Verdict::Pending, &[]), "2026-02-02T00:00:00Z");
}

#[test]
fn the_rival_is_the_last_other_writer_of_the_ingress() {
    let mut manifest = plain();
    let entry = |manager: &str, time: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
            "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let ingress = json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
    let conditions = json!({"f:status": {"f:conditions": {}}});
    manifest["metadata"]["managedFields"] = json!([
        entry(MANAGER, "2026-01-03T00:00:00Z", ingress.clone()),
        entry("old", "2026-01-01T00:00:00Z", ingress.clone()),
        entry("new", "2026-01-02T00:00:00Z", ingress),
        entry("other", "2026-01-04T00:00:00Z", conditions),
    ]);
    let (live, _) = service(&manifest);
    assert_eq!(rival(&live).as_deref(), Some("new"));
}

#[test]
fn whoever_takes_the_addresses_away_is_a_rival_too() {
    let (cleared, _) = service(&plain());
    assert_eq!(rival(&cleared).as_deref(), Some("another controller"));
    let mut ours = plain();
    ours["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
    let (ours, _) = service(&ours);
    assert_eq!(rival(&ours), None, "nobody else wrote that");
}

#[test]
fn without_finalizers_those_that_we_put_there_go() {
    let element = format!("v:\"{FINALIZER}\"");
    for (manager, goes) in [(MANAGER, true), ("other-controller", false)] {
        let mut live = plain();
        live["metadata"]["finalizers"] = json!(["example.com/theirs", FINALIZER]);
        live["metadata"]["managedFields"] = json!([{
            "manager": manager, "operation": "Update", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:finalizers": {&element: {}}}},
        }]);
        let (live, seen) = service(&live);
        let served = status(Verdict::Served, &["10.0.0.1"]);
        let wish = Wish::of(&served, &seen, None, false, Mode::Kept).unwrap();
        let object = wish.patches(&live, Mode::Kept, "").object;
        let left = object.map(|object| object["metadata"]["finalizers"].clone());
        let expected = goes.then(|| json!(["example.com/theirs"]));
        assert_eq!(left, expected, "{manager}");
    }
}
