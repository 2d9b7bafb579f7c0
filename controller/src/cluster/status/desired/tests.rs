use super::*;
use crate::decide::{ADDRESS, PortError};
use crate::observe::Observed;
use crate::request::MANAGER;

/// A Service as it is observed.
fn service(manifest: &Value) -> Service {
    let mut observed = Observed::of(&manifest.to_string());
    let (_, service) = observed.services.pop_first().unwrap();
    (*service).clone()
}

fn plain() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "shop", "namespace": "default", "uid": "u-1", "resourceVersion": "7"},
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
        ingress: ingress.iter().map(place).collect(),
        ..Status::new(&service(&plain()), verdict, "")
    }
}

fn last_good() -> BTreeMap<String, String> {
    BTreeMap::from([(LAST_GOOD.to_owned(), "x".to_owned())])
}

fn desired(status: &Status, live: &Value) -> DesiredStatus {
    desired_by(status, live, true)
}

fn desired_by(status: &Status, live: &Value, has_ip_mode: bool) -> DesiredStatus {
    DesiredStatus::of(status, &service(live), "ballast", true, has_ip_mode).unwrap()
}

/// The Service after the API server has taken what is applied: all of it is ours then.
fn applied(live: &Value, desired: &DesiredStatus) -> Value {
    let before = service(live);
    let metadata = &desired.metadata(&before)["metadata"];
    let status = desired.status(&before, 1_767_225_600);
    let list = |finalizers: &Value| finalizers.as_array().cloned().unwrap_or_default();
    let mut live = live.clone();
    let mut finalizers = list(&live["metadata"]["finalizers"]);
    finalizers.retain(|name| name != FINALIZER);
    let ours = list(&metadata["finalizers"]);
    let owned = match ours.is_empty() {
        true => json!({}),
        false => json!({format!("v:\"{FINALIZER}\""): {}}),
    };
    finalizers.extend(ours);
    live["metadata"]["finalizers"] = json!(finalizers);
    let annotations = metadata["annotations"].as_object().unwrap();
    let fields = annotations
        .keys()
        .map(|name| (format!("f:{name}"), json!({})));
    let fields: Map<String, Value> = fields.collect();
    for (name, value) in annotations {
        live["metadata"]["annotations"][name] = value.clone();
    }
    live["status"] = status.get("status").cloned().unwrap_or_default();
    let balancer = match live["status"].get("loadBalancer") {
        Some(_) => json!({"f:ingress": {}}),
        None => json!({}),
    };
    let metadata = json!({"f:metadata": {"f:annotations": fields, "f:finalizers": owned}});
    let status = json!({"f:status": {"f:loadBalancer": balancer}});
    let entries = [metadata, status].map(|fields| entry(MANAGER, "Apply", &fields));
    live["metadata"]["managedFields"] = json!(entries);
    live
}

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields})
}

#[test]
fn a_new_service_gets_finalizer_addresses_and_condition() {
    let served = status(Verdict::Served, &["10.0.0.1", "fd00::1"]);
    let desired = desired(&served, &plain());
    let identity = json!({"name": "shop", "namespace": "default", "uid": "u-1"});
    let mut metadata = identity.clone();
    metadata["finalizers"] = json!([FINALIZER]);
    metadata["annotations"] = json!({});
    assert_eq!(
        desired.metadata(&service(&plain())),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    );
    let status = desired.status(&service(&plain()), 1_767_225_600);
    assert_eq!(status["metadata"], identity);
    assert_eq!(
        status["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "10.0.0.1", "ipMode": "Proxy"}, {"ip": "fd00::1", "ipMode": "Proxy"}])
    );
    assert_eq!(
        status["status"]["conditions"],
        json!([{
            "type": PROGRAMMED, "status": "True", "reason": "Published",
            "message": "published at 10.0.0.1, fd00::1", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }])
    );
}

#[test]
fn what_is_as_it_must_be_is_not_written_again() {
    for (verdict, ingress) in [
        (Verdict::Served, &["10.0.0.1"][..]),
        (Verdict::Served, &["edge.example.com"]),
        (Verdict::Pending, &[]),
        (Verdict::Released, &[]),
    ] {
        let status = Status {
            annotations: last_good(),
            ..status(verdict, ingress)
        };
        let live = applied(&plain(), &desired(&status, &plain()));
        let after = service(&live);
        // The decision names the annotations that are not there yet.
        let status = Status {
            annotations: BTreeMap::new(),
            ..status
        };
        let desired = desired(&status, &live);
        match verdict {
            Verdict::Released => assert!(desired.is_in_status(&after)),
            _ => assert!(desired.is_in(&after), "{verdict:?}: {desired:?} {after:?}"),
        }
        let another = DesiredStatus {
            message: "another".to_owned(),
            ..desired
        };
        assert_eq!(another.is_in_status(&after), verdict == Verdict::Released);
    }
}

#[test]
fn a_service_that_is_released_has_nothing_of_ours_left() {
    let served = Status {
        annotations: last_good(),
        ..status(Verdict::Served, &["10.0.0.1"])
    };
    let mut live = plain();
    live["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    live["metadata"]["annotations"] = json!({"a": "theirs"});
    let live = applied(&live, &desired(&served, &live));
    let (uninstalled, before) = (DesiredStatus::released(&service(&live)), service(&live));
    assert_eq!(
        uninstalled.removes(&before),
        [
            "the published 10.0.0.1".to_owned(),
            format!("the condition {PROGRAMMED}"),
            format!("the finalizer {FINALIZER}"),
            "the annotation ballast.dev/last-good".to_owned(),
        ]
    );
    for released in [desired(&status(Verdict::Released, &[]), &live), uninstalled] {
        assert!(!released.is_in_status(&before) && !released.is_in_metadata(&before));
        let metadata = released.metadata(&before);
        assert_eq!(metadata["metadata"]["annotations"], json!({}));
        assert_eq!(metadata["metadata"].get("finalizers"), None);
        assert_eq!(released.status(&before, 0)["status"], json!({}));
    }
}

#[test]
fn what_another_manager_publishes_stays() {
    let mut live = plain();
    live["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    live["metadata"]["finalizers"] = json!([FINALIZER]);
    let ingress = json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
    let ours = json!({"f:metadata": {"f:annotations": {"f:x": {}}}});
    live["metadata"]["managedFields"] = json!([
        entry("rival", "Update", &ingress),
        entry(MANAGER, "Apply", &ours)
    ]);
    let seen = service(&live);
    let pending = desired(&status(Verdict::Pending, &[]), &live);
    assert_eq!(pending.status(&seen, 0)["status"].get("loadBalancer"), None);
    let released = DesiredStatus::released(&seen);
    assert!(released.is_in(&seen));
    assert_eq!(released.removes(&seen), [""; 0]);
}

#[test]
fn a_finalizer_and_annotations_of_ours_go_whichever_manager_owns_them() {
    let served = status(Verdict::Served, &["10.0.0.1"]);
    let mut live = applied(&plain(), &desired(&served, &plain()));
    live["metadata"]["finalizers"] = json!(["example.com/theirs", FINALIZER]);
    live["metadata"]["annotations"] = json!({"a": "theirs", LAST_GOOD: "x"});
    let element = format!("v:\"{FINALIZER}\"");
    let restored = json!({"f:metadata": {"f:finalizers": {element: {}}, "f:annotations": {format!("f:{LAST_GOOD}"): {}}}});
    live["metadata"]["managedFields"][0] = entry("backup", "Update", &restored);
    let seen = service(&live);
    let patch = DesiredStatus::released(&seen).leftovers(&seen).unwrap();
    let finalizers = "$deleteFromPrimitiveList/finalizers";
    assert_eq!(
        patch["metadata"],
        json!({"uid": "u-1", finalizers: [FINALIZER], "annotations": {LAST_GOOD: null}})
    );
    let mut rivals = seen;
    rivals.rival = Some(crate::observe::Rival {
        manager: "rival".to_owned(),
        written: None,
    });
    let patch = DesiredStatus::released(&rivals).leftovers(&rivals).unwrap();
    assert_eq!(
        patch["metadata"].get(finalizers),
        None,
        "it may be the other controller's"
    );
}

#[test]
fn a_service_that_is_deleted_while_another_controller_publishes_it_loses_our_finalizer_alone() {
    let element = format!("v:\"{FINALIZER}\"");
    let finalizer = json!({"f:metadata": {"f:finalizers": {element: {}}}});
    let ingress = json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
    let mut live = plain();
    live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    live["metadata"]["finalizers"] = json!([FINALIZER]);
    live["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    let mut theirs = entry("cloud", "Update", &ingress);
    theirs["subresource"] = json!("status");
    live["metadata"]["managedFields"] = json!([entry(MANAGER, "Apply", &finalizer), theirs]);
    let released = desired(&status(Verdict::Released, &[]), &live);
    let seen = service(&live);
    assert!(released.is_in_status(&seen), "their status stays");
    assert!(!released.is_in_metadata(&seen));
    assert_eq!(released.metadata(&seen)["metadata"].get("finalizers"), None);
    // An apply leaves a finalizer that the other controller has put there too.
    live["metadata"]["managedFields"][0] = entry("cloud", "Update", &finalizer);
    let seen = service(&live);
    let released = desired(&status(Verdict::Released, &[]), &live);
    assert_eq!(released.leftovers(&seen), None);
    assert!(released.is_in(&seen));
}

#[test]
fn a_service_whose_status_is_not_ours_gets_its_annotations_alone() {
    let routed = Status {
        annotations: last_good(),
        ..status(Verdict::Routed, &["10.0.0.1"])
    };
    let desired = desired(&routed, &plain());
    let seen = service(&plain());
    assert!(desired.is_in_status(&seen) && !desired.is_in_metadata(&seen));
    let metadata = &desired.metadata(&seen)["metadata"];
    assert_eq!(
        metadata["annotations"],
        json!({"ballast.dev/last-good": "x"})
    );
    assert_eq!(metadata.get("finalizers"), None);
    for verdict in [Verdict::Routed, Verdict::LeftAlone] {
        let none = DesiredStatus::of(&status(verdict, &[]), &seen, "ballast", true, true);
        assert_eq!(none, None);
    }
}

#[test]
fn where_there_is_no_room_the_annotations_that_are_there_stay() {
    let one = Status {
        annotations: last_good(),
        ..status(Verdict::Served, &["10.0.0.1"])
    };
    let live = applied(&plain(), &desired(&one, &plain()));
    let seen = service(&live);
    let more = Status {
        annotations: BTreeMap::from([(ADDRESS.to_owned(), "10.0.0.1".to_owned())]),
        ..one
    };
    let more = desired(&more, &live);
    assert!(!more.is_in_metadata(&seen));
    assert!(more.without_new_annotations(&seen).is_in_metadata(&seen));
}

#[test]
fn a_take_over_is_refused_if_anything_was_written_meanwhile() {
    let taken = Status {
        taken_from: Some("old-cloud".to_owned()),
        ..status(Verdict::Served, &["10.0.0.1"])
    };
    let desired = desired(&taken, &plain());
    let seen = service(&plain());
    for object in [desired.metadata(&seen), desired.status(&seen, 0)] {
        assert_eq!(object["metadata"]["resourceVersion"], "7");
    }
}

#[test]
fn what_is_left_to_another_controller_is_not_said_to_be_published() {
    let mut theirs = plain();
    theirs["status"]["loadBalancer"]["ingress"] = json!([{"ip": "192.0.2.99"}]);
    let desired = desired(&status(Verdict::Served, &["10.30.0.1"]), &theirs);
    let yielded = desired.yielded("old-cloud");
    let status = yielded.status(&service(&theirs), 0)["status"].clone();
    assert_eq!(status.get("loadBalancer"), None, "theirs stays");
    let condition = &status["conditions"][0];
    assert_eq!(condition["type"], PROGRAMMED);
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("ForeignStatus"))
    );
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("not published: old-cloud writes"),
        "{message}"
    );
    theirs["status"]["conditions"] = status["conditions"].clone();
    assert!(
        yielded.is_in_status(&service(&theirs)),
        "it is written once"
    );
    assert!(!desired.is_in_status(&service(&theirs)));
}

#[test]
fn a_port_with_an_error_is_named_beside_those_without() {
    let mut served = status(Verdict::Served, &["10.0.0.1"]);
    served.port_errors = vec![PortError {
        port: 5060,
        protocol: "SCTP",
        error: "UnsupportedProtocol",
    }];
    let desired = desired(&served, &plain());
    assert_eq!(
        desired.status(&service(&plain()), 0)["status"]["loadBalancer"]["ingress"][0]["ports"],
        json!([
            {"port": 80, "protocol": "TCP"},
            {"port": 5060, "protocol": "SCTP", "error": "UnsupportedProtocol"},
        ])
    );
}

#[test]
fn an_api_server_that_drops_ip_mode_is_not_written_to_for_ever() {
    let served = status(Verdict::Served, &["10.0.0.1"]);
    let ingress = |has_ip_mode| {
        let desired = desired_by(&served, &plain(), has_ip_mode);
        desired.status(&service(&plain()), 0)["status"]["loadBalancer"]["ingress"].clone()
    };
    assert_eq!(
        ingress(true),
        json!([{"ip": "10.0.0.1", "ipMode": "Proxy"}])
    );
    // An apply may not list a field that the API server does not know.
    assert_eq!(ingress(false), json!([{"ip": "10.0.0.1"}]));
    let dropped = desired_by(&served, &plain(), false);
    let after = applied(&plain(), &dropped);
    assert!(dropped.is_in(&service(&after)));
    assert!(!desired(&served, &after).is_in(&service(&after)));
}

#[test]
fn the_condition_keeps_its_time_until_it_turns() {
    let served = status(Verdict::Served, &["10.0.0.1"]);
    let live = applied(&plain(), &desired(&served, &plain()));
    let since = |status: Status| {
        let desired = desired(&status, &live);
        let object = desired.status(&service(&live), 1_770_000_000);
        object["status"]["conditions"][0]["lastTransitionTime"].clone()
    };
    assert_eq!(
        since(status(Verdict::Served, &["10.0.0.2"])),
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(since(status(Verdict::Pending, &[])), "2026-02-02T02:40:00Z");
}

#[test]
fn without_finalizers_those_that_we_put_there_go() {
    let element = format!("v:\"{FINALIZER}\"");
    let fields = json!({"f:metadata": {"f:finalizers": {&element: {}}}});
    for (manager, goes) in [(MANAGER, true), ("other-controller", false)] {
        let mut live = plain();
        live["metadata"]["finalizers"] = json!(["example.com/theirs", FINALIZER]);
        live["metadata"]["managedFields"] = json!([entry(manager, "Apply", &fields)]);
        let served = status(Verdict::Served, &["10.0.0.1"]);
        let seen = service(&live);
        let desired = DesiredStatus::of(&served, &seen, "ballast", false, true).unwrap();
        assert_eq!(!desired.is_in_metadata(&seen), goes, "{manager}");
        assert_eq!(desired.metadata(&seen)["metadata"].get("finalizers"), None);
    }
}

#[test]
fn a_condition_that_another_manager_wrote_to_goes_whole() {
    let served = status(Verdict::Served, &["10.0.0.1"]);
    let mut live = applied(&plain(), &desired(&served, &plain()));
    let released =
        |live: &Value| DesiredStatus::released(&service(live)).shared_conditions(&service(live));
    assert_eq!(released(&live), None, "an apply removes it");
    let element = format!("k:{{\"type\":\"{PROGRAMMED}\"}}");
    let theirs = json!({"f:status": {"f:conditions": {element: {".": {}}}}});
    let entries = live["metadata"]["managedFields"].as_array_mut().unwrap();
    entries.push(entry("backup", "Update", &theirs));
    let patch = released(&live).unwrap();
    assert_eq!(
        patch["status"]["conditions"],
        json!([{"$patch": "delete", "type": PROGRAMMED}])
    );
    let served = desired(&served, &live);
    assert_eq!(served.shared_conditions(&service(&live)), None, "it stays");
}

#[test]
fn what_another_ballast_gave_to_a_service_that_is_no_load_balancer_stays() {
    let given_by = |by: &str| {
        service(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"ports": [{"port": 80}]},
        "status": {"conditions": [{
            "type": ALLOCATED, "status": "True", "reason": "Allocated",
            "message": format!("addresses=node routes=8000/TCP{by}"), "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
        }))
    };
    let left_alone = status(Verdict::LeftAlone, &[]);
    let of = |status: &Status, service: &Service| {
        DesiredStatus::of(status, service, "ballast", true, true)
    };
    // It no longer asks for anything here: another Ballast may have its reasons.
    for other in ["", " by=other"] {
        let service = given_by(other);
        assert_eq!(of(&status(Verdict::Routed, &[]), &service), None);
        assert_eq!(of(&left_alone, &service), None, "{other}");
    }
    // Unless it was this one that gave, whichever process of it.
    let service = given_by(" by=ballast");
    let forgotten = of(&left_alone, &service).unwrap();
    assert!(!forgotten.is_in(&service));
    let object = forgotten.status(&service, 0);
    assert_eq!(object["status"].get("conditions"), None);
    let given = Status {
        allotment: Some(Allotment::Given(service.allocated.unwrap().allocation)),
        ..status(Verdict::Routed, &[])
    };
    let given = desired(&given, &plain()).status(&self::service(&plain()), 0);
    let message = &given["status"]["conditions"][0]["message"];
    assert_eq!(*message, "addresses=node routes=8000/TCP by=ballast");
}
