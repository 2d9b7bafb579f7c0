//! What `status.loadBalancer` of a Service says: who serves it, and nobody else.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::backends::{Backends, service, slice};
use crate::corner::{Corner, PUBLISHERS, in_a_corner};
use crate::figures::in_time;
use crate::node::LbNode;
use crate::process::{Signal, comes_within, until};

fn the_nodes_that_serve_a_service_are_published() {
    in_a_corner("published", |corner| {
        let pods = Backends::start(corner, 1);
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        let addresses = nodes.each_ref().map(LbNode::address);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
        let found = corner.service("web");
        let ingress = found["status"]["loadBalancer"]["ingress"].as_array();
        for entry in ingress.into_iter().flatten() {
            assert_eq!(entry["ipMode"], "Proxy", "{found}");
        }
        let managers = found["metadata"]["managedFields"].as_array();
        assert!(
            managers.into_iter().flatten().any(|manager| {
                manager["manager"] == "ballast" && manager["subresource"] == "status"
            }),
            "{found}"
        );
        // Published means served: there is nothing to wait for.
        for node in &nodes {
            let heard = node.ask(80).expect("an answer");
            assert!(heard.starts_with(&pods.addresses[0].to_string()), "{heard}");
        }
    });
}

fn a_service_without_endpoints_is_published_and_stays_so() {
    in_a_corner("idle", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        corner.apply(&slice("web", &[("10.88.200.1".to_owned(), true)]));
        node.until_serves("idle.web:80");
        until("a listener", || {
            node.ask(80)
                .is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionRefused)
        });
        corner.delete("EndpointSlice", "web");
        until("a closed port", || {
            node.ask(80)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        });
        // Longer than a Lease is renewed and read by the leader.
        assert!(!comes_within(Duration::from_secs(5), || corner
            .published("web")
            .is_empty()));
    });
}

fn a_service_without_room_for_our_annotations_is_published_all_the_same() {
    in_a_corner("full", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        corner.apply(&service("full", 81, ""));
        corner.annotate("full", &json!({"filler": "x".repeat((256 << 10) - 137)}));
        // By this annotation the published address is one too, and that does not fit in.
        let rest = "x".repeat(93);
        corner.annotate("full", &json!({"loadbalancer.openstack.org/x": rest}));
        corner.until_published("full", &[&node.address()]);
        corner.until_told("full", "SyncLoadBalancerFailed");
        corner.delete("Service", "full");
        until("its end", || corner.read("Service", "full").is_none());
    });
}

fn the_later_of_two_services_with_one_port_is_pending_until_it_is_free() {
    in_a_corner("taken", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("first", 80, ""));
        corner.until_published("first", &[&node.address()]);
        // Who was first is told by whole seconds.
        support::pause(Duration::from_millis(1100));
        corner.apply(&service("second", 80, ""));
        let told = corner.until_told("second", "AllocationFailed");
        assert_eq!(told.kind, "Warning");
        assert!(told.message.contains("taken/first"), "{told:?}");
        assert_eq!(corner.published("second"), [""; 0]);
        corner.delete("Service", "first");
        corner.until_published("second", &[&node.address()]);
    });
}

fn a_node_that_is_cut_off_is_unpublished_within_fifteen_seconds() {
    in_a_corner("cut", |corner| {
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        corner.apply(&service("web", 80, ""));
        let addresses = nodes.each_ref().map(LbNode::address);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
        let begun = Instant::now();
        corner.yard.cut(&nodes[0].host);
        corner.until_published("web", &[&addresses[1]]);
        let lasted = begun.elapsed();
        in_time(
            "a node that died is unpublished",
            lasted,
            Duration::from_secs(15),
        );
        corner.yard.mend(&nodes[0].host);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
    });
}

fn a_node_that_says_goodbye_is_unpublished_within_two_seconds() {
    in_a_corner("goodbye", |corner| {
        let mut nodes = ["a", "b", "c"].map(|name| LbNode::prepare(corner, name, &[]));
        for node in &mut nodes {
            node.start_dataplane_with(&["--shutdown-delay", "20s"]);
            node.start_controller();
        }
        corner.apply(&service("web", 80, ""));
        let addresses = nodes.each_ref().map(LbNode::address);
        corner.until_published("web", &[&addresses[0], &addresses[1], &addresses[2]]);

        // The data plane alone: it says 503 for more than a second.
        let begun = Instant::now();
        nodes[0]
            .dataplane
            .as_ref()
            .expect("it runs")
            .signal(Signal::TERM);
        corner.until_published("web", &[&addresses[1], &addresses[2]]);
        let alone = begun.elapsed();

        // Both at once, as a pod ends.
        let begun = Instant::now();
        nodes[1]
            .dataplane
            .as_ref()
            .expect("it runs")
            .signal(Signal::TERM);
        nodes[1]
            .controller
            .as_ref()
            .expect("it runs")
            .signal(Signal::TERM);
        corner.until_published("web", &[&addresses[2]]);
        let both = begun.elapsed();
        let promise = Duration::from_secs(2);
        in_time("a goodbye of the data plane alone", alone, promise);
        in_time("a goodbye of both programs", both, promise);
    });
}

fn a_data_plane_that_restarts_makes_no_flap() {
    in_a_corner("flap", |corner| {
        let mut node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        let before = corner.service("web")["metadata"]["resourceVersion"].clone();
        node.dataplane.take().expect("it runs").crash();
        node.start_dataplane();
        node.until_in_force();
        // Longer than a Lease lives that is not renewed.
        assert!(!comes_within(Duration::from_secs(12), || {
            corner.service("web")["metadata"]["resourceVersion"] != before
        }));
    });
}

fn a_node_without_the_label_is_unpublished_until_it_has_it_again() {
    in_a_corner("label", |corner| {
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        corner.apply(&service("web", 80, ""));
        let addresses = nodes.each_ref().map(LbNode::address);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
        corner.patch(
            "Node",
            &nodes[1].name,
            &json!({"metadata": {"labels": {"role": null}}}),
        );
        corner.until_published("web", &[&addresses[0]]);
        corner.patch(
            "Node",
            &nodes[1].name,
            &json!({"metadata": {"labels": {"role": "loadbalancer"}}}),
        );
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
    });
}

fn a_rival_writer_is_named_and_left_alone() {
    in_a_corner("rival", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        let path =
            "/api/v1/namespaces/rival/services/web/status?fieldManager=rival-controller&force=true";
        let theirs = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        });
        for _ in 0..3 {
            corner.until_published("web", &[&node.address()]);
            corner.must(
                corner
                    .plane
                    .admin
                    .ask(hyper::Method::PATCH, path, Some(&theirs)),
            );
        }
        let told = corner.until_told("web", "ForeignStatus");
        assert!(told.message.contains("rival-controller"), "{told:?}");
        // Left alone for half a minute; a part of it is enough to see.
        let theirs = || corner.published("web").contains(&"192.0.2.1".to_owned());
        until("the condition says so", || {
            let web = corner.service("web");
            let conditions = web["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| {
                one["type"] == "ballast.dev/Programmed" && one["reason"] == "ForeignStatus"
            })
        });
        assert!(!comes_within(Duration::from_secs(10), || !theirs()));
        until("the next try", || !theirs());
    });
}

fn a_rival_that_writes_by_update_is_named_too() {
    in_a_corner("updating", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        let theirs = r#"{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}"#;
        for _ in 0..3 {
            corner.until_published("web", &[&node.address()]);
            as_manager(
                corner,
                "old-cloud",
                &["--subresource=status", "--patch", theirs],
            );
        }
        let told = corner.until_told("web", "ForeignStatus");
        assert!(told.message.starts_with("old-cloud writes "), "{told:?}");
    });
}

fn conditions_of_other_managers_survive_and_ours_is_restored() {
    in_a_corner("conditions", |corner| {
        let path = |manager: &str| {
            format!(
                "/api/v1/namespaces/conditions/services/web/status?fieldManager={manager}&force=true"
            )
        };
        let condition = |kind: &str, status: &str| {
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "status": {"conditions": [{
                    "type": kind, "status": status, "reason": "Theirs", "message": "theirs",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]},
            })
        };
        let write = |manager: &str, condition: &serde_json::Value| {
            let patch = hyper::Method::PATCH;
            let admin = &corner.plane.admin;
            corner.must(admin.ask(patch, &path(manager), Some(condition)));
        };
        let found = || {
            let service = corner.service("web");
            let list = service["status"]["conditions"].as_array().cloned();
            let list = list.into_iter().flatten();
            let mut list: Vec<String> = list
                .map(|one| {
                    format!("{} {} {}", one["type"], one["status"], one["reason"]).replace('"', "")
                })
                .collect();
            list.sort();
            list
        };
        let theirs = "example.com/Probed Unknown Theirs";
        corner.apply(&service("web", 80, ""));
        write("prober", &condition("example.com/Probed", "Unknown"));
        let node = LbNode::start(corner, "a", &[]);
        corner.until_published("web", &[&node.address()]);
        until("all conditions", || {
            found()
                == [
                    "ballast.dev/Allocated True Allocated",
                    "ballast.dev/Programmed True Published",
                    theirs,
                ]
        });
        // A condition with our name is ours, whoever writes it.
        write("somebody", &condition("ballast.dev/Programmed", "False"));
        until("ours", || {
            found()
                == [
                    "ballast.dev/Allocated True Allocated",
                    "ballast.dev/Programmed True Published",
                    theirs,
                ]
        });
        corner.patch("Service", "web", &json!({"spec": {"type": "ClusterIP"}}));
        until("only theirs", || found() == [theirs]);
    });
}

fn what_was_restored_from_a_backup_goes_with_the_rest() {
    in_a_corner("restored", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        let metadata = r#"{"metadata": {"finalizers": ["example.com/theirs", "service.kubernetes.io/load-balancer-cleanup"],
            "annotations": {"ballast.dev/last-good": "{}", "theirs": "x"}}}"#;
        corner.apply(&service("web", 80, ""));
        as_manager(corner, "backup", &["--patch", metadata]);
        corner.until_published("web", &[&node.address()]);
        corner.patch("Service", "web", &json!({"spec": {"type": "ClusterIP"}}));
        until("nothing of ours", || {
            let metadata = corner.service("web")["metadata"].take();
            metadata["finalizers"] == json!(["example.com/theirs"])
                && metadata["annotations"]["ballast.dev/last-good"].is_null()
                && metadata["annotations"]["theirs"] == "x"
        });
        corner.patch("Service", "web", &json!({"metadata": {"finalizers": null}}));
    });
}

fn a_service_that_takes_the_name_of_a_deleted_one_is_not_written_for_it() {
    in_a_corner("renamed", |corner| {
        corner.publish(&["--finalizer=false"]);
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("first", 81, ""));
        corner.until_published("first", &[&node.address()]);
        let class = "  loadBalancerClass: example.com/other\n";
        for round in 0..30 {
            corner.apply(&service("web", 80, ""));
            // The publisher decides and writes at some time of this.
            support::pause(Duration::from_millis(20 * round % 400));
            corner.delete("Service", "web");
            corner.apply(&service("web", 80, class));
            support::pause(Duration::from_millis(200));
            let fields = corner.service("web")["metadata"]["managedFields"].clone();
            assert!(
                !fields.to_string().contains("ballast"),
                "round {round}: {fields}"
            );
            corner.delete("Service", "web");
        }
        let refused = corner.asked_by(PUBLISHERS);
        let refused = refused.iter().filter(|entry| {
            let code = &entry["responseStatus"]["code"];
            entry["objectRef"]["name"] == "web" && (*code == 409 || *code == 422)
        });
        println!(
            "{} writes met another Service of that name, or none",
            refused.count()
        );
        let events = corner.events("web");
        // The API server's own check of ClusterIPs may meet a Service that is just being made.
        let warnings = events
            .iter()
            .filter(|event| event.kind != "Normal" && event.reason != "ClusterIPNotAllocated");
        assert_eq!(warnings.count(), 0, "{events:?}");
    });
}

/// A merge patch of the Service `web` in the name of this field manager.
fn as_manager(corner: &Corner<'_>, manager: &str, more: &[&str]) {
    let manager = format!("--field-manager={manager}");
    let mut words = vec![
        "--namespace",
        corner.name,
        "patch",
        "service",
        "web",
        "--type=merge",
        &manager,
    ];
    words.extend(more);
    let patched = corner.yard.kubectl(corner.plane, &words);
    patched.expect("a patch that the API server takes");
}

fn deleting_waits_for_no_rival() {
    in_a_corner("rival-end", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        let theirs = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        });
        let path = "/api/v1/namespaces/rival-end/services/web/status?fieldManager=rival-controller&force=true";
        for ends in [true, false] {
            corner.apply(&service("web", 80, ""));
            for _ in 0..3 {
                corner.until_published("web", &[&node.address()]);
                let written = corner
                    .plane
                    .admin
                    .ask(hyper::Method::PATCH, path, Some(&theirs));
                corner.must(written);
            }
            corner.until_told("web", "ForeignStatus");
            let begun = Instant::now();
            if ends {
                corner.delete("Service", "web");
                until("the end", || corner.read("Service", "web").is_none());
            } else {
                corner.patch("Service", "web", &json!({"spec": {"type": "ClusterIP"}}));
                until("no finalizer", || {
                    corner.service("web")["metadata"]["finalizers"].is_null()
                });
            }
            let what = "a Service is let go behind a rival";
            in_time(what, begun.elapsed(), Duration::from_secs(2));
        }
    });
}

fn a_finalizer_of_ours_goes_with_a_service_that_another_controller_published_first() {
    in_a_corner("overtaken", |corner| {
        corner.apply(&service("web", 80, ""));
        let path = "/api/v1/namespaces/overtaken/services/web";
        let write = |path: &str, object: &serde_json::Value| {
            let patch = hyper::Method::PATCH;
            corner.must(corner.plane.admin.ask(patch, path, Some(object)));
        };
        // All that a publisher got written whose status write failed.
        write(
            &format!("{path}?fieldManager=ballast&force=true"),
            &json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {
                    "name": "web", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                },
            }),
        );
        // With a finalizer of its own, so that the Service can be seen until the end.
        write(
            &format!("{path}?fieldManager=controller&force=true"),
            &json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "web", "finalizers": ["example.com/theirs"]},
            }),
        );
        write(
            &format!("{path}/status?fieldManager=controller&force=true"),
            &json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
            }),
        );
        corner.publish(&[]);
        corner.until_told("web", "ForeignStatus");
        corner.delete("Service", "web");
        until("their finalizer alone", || {
            corner.service("web")["metadata"]["finalizers"] == json!(["example.com/theirs"])
        });
        assert_eq!(corner.published("web"), ["192.0.2.1"]);
        corner.patch("Service", "web", &json!({"metadata": {"finalizers": null}}));
        until("the end", || corner.read("Service", "web").is_none());
    });
}

fn a_status_that_was_left_behind_is_taken_over_once_its_writer_is_silent() {
    in_a_corner("silent", |corner| {
        let path = |name: &str| {
            format!(
                "/api/v1/namespaces/silent/services/{name}/status?fieldManager=old-cloud&force=true"
            )
        };
        for (name, port) in [("web", 80), ("left", 81)] {
            corner.apply(&service(name, port, ""));
            let theirs = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
            });
            let patch = hyper::Method::PATCH;
            corner.must(corner.plane.admin.ask(patch, &path(name), Some(&theirs)));
        }
        let begun = Instant::now();
        let node = LbNode::start(corner, "a", &[]);
        let told = corner.until_told("web", "ForeignStatus");
        assert!(told.message.contains("old-cloud"), "{told:?}");
        assert!(told.message.contains("--take-over"), "{told:?}");
        assert!(told.message.contains("ballast.dev/take-over"), "{told:?}");
        corner.annotate("web", &json!({"ballast.dev/take-over": "true"}));
        // The old address stays until ours takes its place.
        let ours = comes_within(Duration::from_secs(100), || {
            let published = corner.published("web");
            assert!(!published.is_empty());
            published == [node.address()]
        });
        assert!(ours, "{:?}", corner.published("web"));
        assert!(
            begun.elapsed() >= Duration::from_secs(59),
            "{:?}",
            begun.elapsed()
        );
        let told = corner.until_told("web", "TakenOver");
        assert!(told.message.contains("old-cloud"), "{told:?}");
        // The Service without the annotation keeps the other controller's address.
        assert_eq!(corner.published("left"), ["192.0.2.1"]);
        corner.take_publisher().process.stop();
        corner.publish(&["--take-over"]);
        corner.until_published("left", &[&node.address()]);
    });
}

fn a_service_that_was_given_back_is_another_controllers_until_it_is_taken_over_again() {
    in_a_corner("given-back", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        corner.annotate("web", &json!({"ballast.dev/ignore": "true"}));
        corner.until_published("web", &[]);
        let path =
            "/api/v1/namespaces/given-back/services/web/status?fieldManager=controller&force=true";
        let theirs = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        });
        let patch = hyper::Method::PATCH;
        corner.must(corner.plane.admin.ask(patch, path, Some(&theirs)));
        corner.annotate("web", &json!({"ballast.dev/ignore": null}));
        corner.until_told("web", "ForeignStatus");
        assert_eq!(corner.published("web"), ["192.0.2.1"]);
        // Its time begins with the other controller's last write.
        corner.annotate("web", &json!({"ballast.dev/take-over": "true"}));
        assert!(!comes_within(Duration::from_secs(5), || {
            corner.published("web") != ["192.0.2.1"]
        }));
    });
}

fn a_rival_who_takes_the_addresses_away_is_left_alone_too() {
    in_a_corner("clearing", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        let path = "/api/v1/namespaces/clearing/services/web/status";
        let none = json!({"status": {"loadBalancer": {"ingress": null}}});
        for _ in 0..3 {
            corner.until_published("web", &[&node.address()]);
            let cleared = corner
                .plane
                .admin
                .ask(hyper::Method::PATCH, path, Some(&none));
            corner.must(cleared);
        }
        let told = corner.until_told("web", "ForeignStatus");
        assert!(told.message.starts_with("another controller "), "{told:?}");
        assert!(!comes_within(Duration::from_secs(5), || !corner
            .published("web")
            .is_empty()));
    });
}

fn a_hostname_is_published_in_place_of_addresses() {
    in_a_corner("hostname", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        corner.annotate("web", &json!({"ballast.dev/hostname": "edge.example.com"}));
        corner.until_published("web", &["edge.example.com"]);
        corner.annotate("web", &json!({"ballast.dev/hostname": null}));
        corner.until_published("web", &[&node.address()]);
    });
}

tests![
    the_nodes_that_serve_a_service_are_published,
    a_service_without_endpoints_is_published_and_stays_so,
    a_service_without_room_for_our_annotations_is_published_all_the_same,
    the_later_of_two_services_with_one_port_is_pending_until_it_is_free,
    a_node_that_is_cut_off_is_unpublished_within_fifteen_seconds,
    a_node_that_says_goodbye_is_unpublished_within_two_seconds,
    a_data_plane_that_restarts_makes_no_flap,
    a_node_without_the_label_is_unpublished_until_it_has_it_again,
    a_rival_writer_is_named_and_left_alone,
    a_rival_that_writes_by_update_is_named_too,
    conditions_of_other_managers_survive_and_ours_is_restored,
    what_was_restored_from_a_backup_goes_with_the_rest,
    a_service_that_takes_the_name_of_a_deleted_one_is_not_written_for_it,
    deleting_waits_for_no_rival,
    a_finalizer_of_ours_goes_with_a_service_that_another_controller_published_first,
    a_status_that_was_left_behind_is_taken_over_once_its_writer_is_silent,
    a_service_that_was_given_back_is_another_controllers_until_it_is_taken_over_again,
    a_rival_who_takes_the_addresses_away_is_left_alone_too,
    a_hostname_is_published_in_place_of_addresses,
];
