//! Lists, watches, and everything that ends them.

use std::sync::Arc;
use std::time::Duration;

use ballast_controller::observe::{Key, Observed, Wanted};
use ballast_controller::settings::Role;
use serde_json::{Value, json};

use super::Watch;
use super::api::{Api, Habits};

#[tokio::test]
async fn nothing_is_sent_before_everything_was_listed() {
    for late in ["services", "endpointslices", "nodes", "leases"] {
        let api = Api::start().await;
        api.put("services", service("shop", "web", "x"));
        api.refuse(late, 503, 0);
        let mut watch = Watch::of(&api, &[]);
        // The others were listed long ago when it is asked for the third time.
        for resource in ["services", "endpointslices", "nodes", "leases"] {
            let times = if resource == late { 3 } else { 1 };
            api.asked(|path| is_list(path, resource), times).await;
        }
        assert!(watch.is_silent(), "without {late}");
        api.allow(late);
        let seen = watch.until(|_| true).await;
        assert_eq!(classes(&seen), ["shop/web x"], "with {late}");
        assert_eq!(watch.sent().await, 1);
    }
}

#[tokio::test]
async fn every_change_is_seen() {
    let api = Api::start().await;
    let mut watch = Watch::of(&api, &[]);
    assert_eq!(
        *watch.until(|_| true).await,
        Observed {
            leases: Some([].into()),
            looked_up: Arc::new(Wanted {
                nodes: true,
                ..Wanted::default()
            }),
            ..Observed::default()
        }
    );
    api.put("services", service("shop", "web", "x"));
    api.put("endpointslices", slice("web-a", "10.0.0.1"));
    api.put(
        "nodes",
        json!({"metadata": {"name": "lb1", "labels": {"role": "loadbalancer"}}}),
    );
    let seen = watch
        .until(|seen| {
            !seen.services.is_empty() && !seen.slices.is_empty() && !seen.nodes.is_empty()
        })
        .await;
    assert_eq!(classes(&seen), ["shop/web x"]);
    assert_eq!(addresses(&seen), ["10.0.0.1"]);
    assert_eq!(seen.nodes["lb1"].labels["role"], "loadbalancer");
    api.put("services", service("shop", "web", "y"));
    watch.until(|seen| classes(seen) == ["shop/web y"]).await;
    api.put("endpointslices", slice("web-a", "10.0.0.2"));
    watch.until(|seen| addresses(seen) == ["10.0.0.2"]).await;
    api.delete("endpointslices", "shop/web-a");
    watch.until(|seen| seen.slices.is_empty()).await;
    api.delete("nodes", "lb1");
    watch.until(|seen| seen.nodes.is_empty()).await;
    api.delete("services", "shop/web");
    watch.until(|seen| seen.services.is_empty()).await;
}

#[tokio::test]
async fn what_means_nothing_is_not_sent() {
    let api = Api::start().await;
    api.put("endpointslices", slice("web-a", "10.0.0.1"));
    let mut watch = Watch::of(&api, &[]);
    watch.until(|seen| addresses(seen) == ["10.0.0.1"]).await;
    for beat in 0..20 {
        let mut touched = slice("web-a", "10.0.0.1");
        touched["metadata"]["annotations"] = json!({"beat": beat.to_string()});
        api.put("endpointslices", touched);
        support::pause_async(Duration::from_millis(20)).await;
    }
    // There and back before anybody looked.
    api.put("services", service("shop", "web", "x"));
    api.delete("services", "shop/web");
    api.put("endpointslices", slice("web-a", "10.0.0.2"));
    watch.until(|seen| addresses(seen) == ["10.0.0.2"]).await;
    assert_eq!(watch.sent().await, 2);
}

#[tokio::test]
async fn a_node_watches_its_own_node_and_all_of_them_when_a_decision_wants_them() {
    let api = Api::start().await;
    let mut watch = Watch::in_role(&api, &["--node-name=lb1"], Role::Node);
    let seen = watch.until(|_| true).await;
    assert!(!seen.looked_up.nodes && seen.leases.is_none());
    let of_nodes = |path: &str| path.contains("/nodes?");
    let is_own = |path: &str| path.contains("metadata.name%3Dlb1");
    let requests = api.requests();
    let asked: Vec<_> = requests.iter().filter(|path| of_nodes(path)).collect();
    assert!(
        !asked.is_empty() && asked.iter().all(|path| is_own(path)),
        "{asked:?}"
    );
    assert!(!requests.iter().any(|path| path.contains("/leases")));
    watch.wanted.send_modify(|wanted| wanted.nodes = true);
    watch.until(|seen| seen.looked_up.nodes).await;
    let requests = api.requests();
    assert!(requests.iter().any(|path| of_nodes(path) && !is_own(path)));
}

#[tokio::test]
async fn a_node_hears_of_no_endpoints_that_it_does_not_serve_and_of_no_publication() {
    let api = Api::start().await;
    let mut web = service("shop", "web", "x");
    web["spec"]["loadBalancerClass"].take();
    api.put("services", web.clone());
    let mut other = service("shop", "other", "x");
    other["spec"] = json!({"ports": [{"port": 80}]});
    api.put("services", other.clone());
    api.put("endpointslices", slice("web-a", "10.0.0.1"));
    let mut unserved = slice("other-a", "10.0.0.7");
    unserved["metadata"]["labels"]["kubernetes.io/service-name"] = json!("other");
    api.put("endpointslices", unserved.clone());
    let mut watch = Watch::in_role(&api, &["--node-name=lb1"], Role::Node);
    watch.until(|seen| addresses(seen) == ["10.0.0.1"]).await;
    // The endpoints of one that is not served change, and the publisher writes.
    unserved["endpoints"] = json!([{"addresses": ["10.0.0.8"]}]);
    api.put("endpointslices", unserved);
    web["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    web["metadata"]["annotations"] =
        json!({"loadbalancer.openstack.org/load-balancer-address": "10.0.0.9"});
    web["metadata"]["managedFields"] =
        json!([{"manager": "ballast", "operation": "Update", "subresource": "status"}]);
    web["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}});
    api.put("services", web);
    support::pause_async(Duration::from_millis(500)).await;
    assert_eq!(watch.sent().await, 1);
    // One that is served from now on has its endpoints at once.
    other["metadata"]["annotations"] = json!({"ballast.dev/path": "/other"});
    api.put("services", other);
    watch
        .until(|seen| addresses(seen).contains(&"10.0.0.8".to_owned()))
        .await;
    assert_eq!(watch.sent().await, 2);
}

#[tokio::test]
async fn endpoints_of_a_service_that_is_served_later_are_there_at_once() {
    let api = Api::start().await;
    let unserved = |name: &str| {
        let mut unserved = service("shop", name, "x");
        unserved["spec"] = json!({"ports": [{"port": 80}]});
        unserved
    };
    let served = |name: &str| {
        let mut served = unserved(name);
        served["metadata"]["annotations"] = json!({"ballast.dev/path": format!("/{name}")});
        served
    };
    let slice_of = |name: &str, address: &str| {
        let mut slice = slice(&format!("{name}-a"), address);
        slice["metadata"]["labels"]["kubernetes.io/service-name"] = json!(name);
        slice
    };
    for (number, name) in ["web", "late", "gone"].into_iter().enumerate() {
        api.put("services", unserved(name));
        api.put(
            "endpointslices",
            slice_of(name, &format!("10.0.0.{number}")),
        );
    }
    let mut watch = Watch::in_role(&api, &["--node-name=lb1"], Role::Node);
    let seen = watch.until(|seen| seen.services.len() == 3).await;
    assert!(seen.slices.is_empty());
    // A slice that is deleted meanwhile does not return.
    api.delete("endpointslices", "shop/gone-a");
    api.put("services", served("web"));
    let seen = watch.until(|seen| !seen.slices.is_empty()).await;
    assert_eq!(addresses(&seen), ["10.0.0.0"]);
    assert_eq!(seen.services[&Key::new("shop", "web")].annotations.len(), 1);
    api.put("endpointslices", slice_of("web", "10.0.1.0"));
    watch.until(|seen| addresses(seen) == ["10.0.1.0"]).await;
    api.put("services", served("gone"));
    let seen = watch
        .until(|seen| {
            !seen.services[&Key::new("shop", "gone")]
                .annotations
                .is_empty()
        })
        .await;
    assert_eq!(addresses(&seen), ["10.0.1.0"]);
    // The API server is asked for nothing more.
    api.refuse("endpointslices", 503, 0);
    api.put("services", served("late"));
    watch
        .until(|seen| addresses(seen) == ["10.0.0.1", "10.0.1.0"])
        .await;
}

#[tokio::test]
async fn a_slice_that_moves_to_a_service_that_is_not_served_is_missed() {
    let api = Api::start().await;
    let mut web = service("shop", "web", "x");
    web["spec"]["loadBalancerClass"].take();
    api.put("services", web);
    let mut other = service("shop", "other", "x");
    other["spec"] = json!({"ports": [{"port": 80}]});
    api.put("services", other);
    let mut moved = slice("web-a", "10.0.0.1");
    api.put("endpointslices", moved.clone());
    let mut watch = Watch::in_role(&api, &["--node-name=lb1"], Role::Node);
    watch.until(|seen| addresses(seen) == ["10.0.0.1"]).await;
    moved["metadata"]["labels"]["kubernetes.io/service-name"] = json!("other");
    api.put("endpointslices", moved.clone());
    watch.until(|seen| addresses(seen).is_empty()).await;
    moved["metadata"]["labels"]["kubernetes.io/service-name"] = json!("web");
    api.put("endpointslices", moved);
    watch.until(|seen| addresses(seen) == ["10.0.0.1"]).await;
}

#[tokio::test]
async fn slices_are_listed_beside_services_and_wait_for_them() {
    let api = Api::start().await;
    let mut unserved = service("shop", "other", "x");
    unserved["spec"] = json!({"ports": [{"port": 80}]});
    let mut web = service("shop", "web", "x");
    web["spec"]["loadBalancerClass"].take();
    api.put("services", web);
    api.put("services", unserved.clone());
    for (name, address) in [
        ("other", "10.0.0.7"),
        ("web", "10.0.0.1"),
        ("none", "10.0.0.9"),
    ] {
        let mut slice = slice(&format!("{name}-a"), address);
        slice["metadata"]["labels"]["kubernetes.io/service-name"] = json!(name);
        api.put("endpointslices", slice);
    }
    api.refuse("services", 503, 0);
    let mut watch = Watch::in_role(&api, &["--node-name=lb1"], Role::Node);
    api.asked(|path| is_list(path, "endpointslices"), 1).await;
    api.asked(|path| is_list(path, "services"), 2).await;
    assert!(watch.is_silent());
    api.allow("services");
    let seen = watch.until(|_| true).await;
    assert_eq!(addresses(&seen), ["10.0.0.1"]);
    unserved["metadata"]["annotations"] = json!({"ballast.dev/path": "/other"});
    api.put("services", unserved);
    watch.until(|seen| addresses(seen).len() == 2).await;
}

#[tokio::test]
async fn the_publisher_watches_no_endpoints() {
    let api = Api::start().await;
    let mut watch = Watch::in_role(&api, &[], Role::Publisher);
    let seen = watch.until(|_| true).await;
    assert!(seen.leases.is_some() && seen.looked_up.nodes);
    let requests = api.requests();
    assert!(!requests.iter().any(|path| path.contains("/endpointslices")));
}

#[tokio::test]
async fn a_bad_object_spoils_nothing_and_keeps_its_last_good_form() {
    let api = Api::start().await;
    let mut bad = service("shop", "bad", "x");
    bad["spec"]["ports"] = json!([{"port": "eighty"}]);
    api.put("services", service("shop", "web", "x"));
    api.put("services", bad.clone());
    api.put(
        "nodes",
        json!({"metadata": {"name": "odd", "labels": ["a list"]}}),
    );
    let mut watch = Watch::of(&api, &[]);
    let seen = watch.until(|_| true).await;
    assert_eq!(classes(&seen), ["shop/web x"]);
    assert!(seen.nodes.is_empty());
    let first = seen.unreadable[&Key::new("shop", "bad")];
    assert!(first > 0);
    api.put("services", service("shop", "bad", "good"));
    watch
        .until(|seen| {
            classes(seen) == ["shop/bad good", "shop/web x"] && seen.unreadable.is_empty()
        })
        .await;
    // Its version is known all the same: a new leader waits for no other one.
    api.put("services", bad);
    watch
        .until(|seen| seen.unreadable.values().any(|version| *version > first))
        .await;
    api.put("services", service("shop", "web", "y"));
    watch
        .until(|seen| classes(seen) == ["shop/bad good", "shop/web y"])
        .await;
    api.delete("services", "shop/bad");
    watch.until(|seen| classes(seen) == ["shop/web y"]).await;
}

#[tokio::test]
async fn a_watch_that_was_cut_goes_on_where_it_was() {
    let api = Api::start().await;
    api.put("services", service("shop", "web", "x"));
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    api.asked(|path| is_watch(path, "services"), 1).await;
    api.go_away(true);
    api.put("services", service("shop", "web", "y"));
    api.go_away(false);
    watch.until(|seen| classes(seen) == ["shop/web y"]).await;
    assert_listed_once(&api);
}

#[tokio::test]
async fn a_bookmark_says_where_to_go_on() {
    let api = Api::start().await;
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    api.asked(|path| is_watch(path, "services"), 1).await;
    let version = api.bookmark("services");
    // What comes after it shows that it was read.
    api.put("services", service("shop", "web", "x"));
    watch.until(|seen| !seen.services.is_empty()).await;
    let later = api.bookmark("nodes");
    assert!(later > version);
    api.put("nodes", json!({"metadata": {"name": "lb1"}}));
    watch.until(|seen| !seen.nodes.is_empty()).await;
    api.delete("nodes", "lb1");
    watch.until(|seen| seen.nodes.is_empty()).await;
    let last = api.bookmark("services");
    let resumed = format!("resourceVersion={last}&");
    // Nothing shows that it arrived but that it is used. A watch that lasted is no failure.
    for _ in 0..20 {
        support::pause_async(Duration::from_millis(1200)).await;
        api.cut();
        api.asked(|path| is_watch(path, "services"), 2).await;
        let requests = api.requests();
        let lists = requests.iter().filter(|path| is_list(path, "services"));
        assert_eq!(lists.count(), 1, "{requests:#?}");
        let mut watches = requests.iter().filter(|path| is_watch(path, "services"));
        if watches.any(|path| format!("{path}&").contains(&resumed)) {
            return;
        }
    }
    panic!("{:#?}", api.requests());
}

#[tokio::test]
async fn a_forgotten_version_is_listed_anew() {
    for with_status in [false, true] {
        let api = Api::start().await;
        api.put("services", service("shop", "old", "x"));
        let mut watch = Watch::of(&api, &[]);
        watch.until(|_| true).await;
        api.go_away(true);
        api.delete("services", "shop/old");
        api.put("services", service("shop", "new", "x"));
        api.forget(with_status);
        api.go_away(false);
        watch.until(|seen| classes(seen) == ["shop/new x"]).await;
        // And is watched.
        api.put("services", service("shop", "new", "y"));
        watch.until(|seen| classes(seen) == ["shop/new y"]).await;
    }
}

#[tokio::test]
async fn a_server_that_was_set_back_is_listed_anew() {
    for refuses in [true, false] {
        let api = Api::start().await;
        api.put("services", service("shop", "new", "x"));
        let mut watch = Watch::of(&api, &[]);
        watch.until(|_| true).await;
        api.asked(|path| is_watch(path, "services"), 1).await;
        let mut old = service("shop", "old", "x");
        old["metadata"]["resourceVersion"] = json!("40");
        api.go_away(true);
        api.go_back(&[("services", old)], refuses);
        support::pause_async(Duration::from_secs(1)).await;
        api.go_away(false);
        watch.until(|seen| classes(seen) == ["shop/old x"]).await;
        api.put("services", service("shop", "old", "y"));
        watch.until(|seen| classes(seen) == ["shop/old y"]).await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_not_listed_anew() {
    let api = Api::start().await;
    api.put("services", service("shop", "web", "x"));
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    api.asked(|path| is_watch(path, "services"), 1).await;
    api.go_away(true);
    // Long enough for many tries.
    support::pause_async(Duration::from_secs(4)).await;
    api.put("services", service("shop", "web", "y"));
    api.go_away(false);
    watch.until(|seen| classes(seen) == ["shop/web y"]).await;
    assert_listed_once(&api);
}

#[tokio::test]
async fn watches_that_are_refused_for_a_while_are_not_listed_anew() {
    for code in [401, 403, 429, 500, 503] {
        println!("refused by {code}");
        let api = Api::start().await;
        api.put("services", service("shop", "web", "x"));
        let mut watch = Watch::of(&api, &[]);
        watch.until(|_| true).await;
        api.asked(|path| is_watch(path, "services"), 1).await;
        // As an API server that has just started.
        api.refuse("services", code, 0);
        api.cut();
        let is_tried = |path: &str| is_watch(path, "services") || is_question(path, "services");
        api.asked(is_tried, 5).await;
        api.put("services", service("shop", "web", "y"));
        api.allow("services");
        watch.until(|seen| classes(seen) == ["shop/web y"]).await;
        assert_listed_once(&api);
    }
}

#[tokio::test]
async fn watches_whose_version_is_refused_are_listed_anew() {
    let api = Api::start().await;
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    api.asked(|path| is_watch(path, "services"), 1).await;
    api.refuse("services", 400, 0);
    api.cut();
    api.asked(|path| is_list(path, "services"), 2).await;
    api.allow("services");
    api.put("services", service("shop", "web", "x"));
    watch.until(|seen| classes(seen) == ["shop/web x"]).await;
}

#[tokio::test]
async fn an_api_server_that_is_away_or_refuses_changes_nothing() {
    let api = Api::start().await;
    api.put("services", service("shop", "web", "x"));
    api.put("leases", lease("lb1", 30, 0));
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    api.go_away(true);
    support::pause_async(Duration::from_millis(500)).await;
    for resource in ["services", "endpointslices", "nodes", "leases"] {
        api.refuse(resource, 403, 0);
    }
    let before = api.requests().len();
    api.go_away(false);
    api.asked(|_| true, before + 12).await;
    for resource in ["services", "endpointslices", "nodes", "leases"] {
        api.allow(resource);
    }
    assert_eq!(watch.sent().await, 1);
    api.put("services", service("shop", "web", "y"));
    let seen = watch.until(|seen| classes(seen) == ["shop/web y"]).await;
    assert_eq!(live(&seen), ["lb1"]);
    assert_eq!(watch.sent().await, 2);
}

#[tokio::test]
async fn pools_that_may_not_be_read_are_not_taken_for_none() {
    let api = Api::start().await;
    api.put("services", service("shop", "web", "x"));
    api.refuse("addresspools", 403, 0);
    let mut watch = Watch::of(&api, &[]);
    let seen = watch.until(|_| true).await;
    assert_eq!(classes(&seen), ["shop/web x"]);
    assert_eq!(
        seen.pools.unread,
        [("AddressPool", 403)].into(),
        "and what is not there is not denied"
    );
}

#[tokio::test]
async fn who_asks_to_be_left_alone_is_left_alone() {
    let api = Api::start().await;
    api.refuse("services", 429, 2);
    let mut watch = Watch::of(&api, &[]);
    api.asked(|path| is_list(path, "services"), 1).await;
    let begun = std::time::Instant::now();
    api.asked(|path| is_list(path, "services"), 2).await;
    assert!(
        begun.elapsed() > Duration::from_millis(1500),
        "{:?}",
        begun.elapsed()
    );
    api.allow("services");
    watch.until(|_| true).await;
}

#[tokio::test]
async fn large_lists_come_in_pages() {
    let api = Api::start().await;
    for number in 0..1201 {
        api.put("services", service("shop", &format!("web-{number}"), "x"));
    }
    let mut watch = Watch::of(&api, &[]);
    let seen = watch.until(|_| true).await;
    assert_eq!(seen.services.len(), 1201);
    assert_eq!(watch.sent().await, 1);
    let requests = api.requests();
    assert_eq!(
        requests
            .iter()
            .filter(|path| is_list(path, "services"))
            .count(),
        3
    );
}

#[tokio::test]
async fn a_list_that_expires_between_its_pages_is_requested_as_one_page() {
    let api = Api::start().await;
    api.behave(Habits {
        forgets_pages: true,
        ..Habits::default()
    });
    for number in 0..1201 {
        api.put("services", service("shop", &format!("web-{number}"), "x"));
    }
    let mut watch = Watch::of(&api, &[]);
    let seen = watch.until(|_| true).await;
    assert_eq!(seen.services.len(), 1201);
    let requests = api.requests();
    let lists = requests.iter().filter(|path| is_list(path, "services"));
    let limits: Vec<bool> = lists.map(|path| path.contains("limit=")).collect();
    assert_eq!(limits, [true, true, false]);
}

#[tokio::test]
async fn a_server_that_ends_every_watch_at_once_is_not_asked_without_a_pause() {
    let api = Api::start().await;
    api.behave(Habits {
        ends_watches: true,
        ..Habits::default()
    });
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    support::pause_async(Duration::from_secs(4)).await;
    let requests = api.requests();
    let watches = requests.iter().filter(|path| is_watch(path, "services"));
    let count = watches.count();
    assert!((2..=6).contains(&count), "{count} watches");
    let lists = requests.iter().filter(|path| is_list(path, "services"));
    assert_eq!(lists.count(), 1);
    api.behave(Habits::default());
    api.put("services", service("shop", "web", "x"));
    watch.until(|seen| classes(seen) == ["shop/web x"]).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_asked_again() {
    let api = Api::start().await;
    api.behave(Habits {
        is_silent: true,
        ..Habits::default()
    });
    let mut watch = Watch::of(&api, &[]);
    api.asked(|path| is_list(path, "services"), 2).await;
    assert!(watch.is_silent());
    api.behave(Habits::default());
    watch.until(|_| true).await;
}

#[tokio::test]
async fn only_the_named_namespaces_are_looked_at() {
    let api = Api::start().await;
    for namespace in ["a", "b", "c"] {
        api.put("services", service(namespace, "web", "x"));
    }
    let arguments = [
        "--namespace=a",
        "--namespace=b",
        "--namespace=a",
        "--own-namespace=lb",
    ];
    let mut watch = Watch::of(&api, &arguments);
    let seen = watch.until(|_| true).await;
    assert_eq!(classes(&seen), ["a/web x", "b/web x"]);
    api.put("services", service("c", "web", "y"));
    api.put("services", service("b", "web", "y"));
    watch
        .until(|seen| classes(seen) == ["a/web x", "b/web y"])
        .await;
    let requests = api.requests();
    let expected = [
        "/api/v1/namespaces/a/services?",
        "/api/v1/namespaces/b/services?",
        "/api/v1/nodes?",
        "/apis/coordination.k8s.io/v1/namespaces/lb/leases?",
    ];
    for path in expected {
        assert!(
            requests.iter().any(|request| request.starts_with(path)),
            "{path}"
        );
    }
    let wide = [
        "/api/v1/services?",
        "/apis/discovery.k8s.io/v1/endpointslices?",
    ];
    for path in wide {
        assert!(
            !requests.iter().any(|request| request.starts_with(path)),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_by_itself() {
    let api = Api::start().await;
    api.put("leases", lease("lb1", 2, 0));
    api.put("leases", lease("lb2", 120, 0));
    let mut watch = Watch::of(&api, &[]);
    let seen = watch.until(|_| true).await;
    assert_eq!(live(&seen), ["lb1", "lb2"]);
    watch.until(|seen| live(seen) == ["lb2"]).await;
    api.put("leases", lease("lb1", 60, 1));
    watch.until(|seen| live(seen) == ["lb1", "lb2"]).await;
    let mut released = lease("lb1", 1, 2);
    released["spec"]["holderIdentity"] = json!("");
    api.put("leases", released);
    watch.until(|seen| live(seen) == ["lb2"]).await;
    // A node whose Lease is deleted has time to make it anew: half of its term.
    api.put("leases", lease("lb2", 4, 1));
    api.delete("leases", "default/ballast-lb2");
    let seen = watch.until(|seen| live(seen).is_empty()).await;
    assert!(seen.leases.is_some());
}

/// Asserts that all Services were listed once so far.
#[track_caller]
fn assert_listed_once(api: &Api) {
    let requests = api.requests();
    let lists = requests.iter().filter(|path| is_list(path, "services"));
    assert_eq!(lists.count(), 1, "{requests:#?}");
}

fn is_list(path: &str, resource: &str) -> bool {
    path.contains(resource) && !path.contains("watch=") && !is_question(path, resource)
}

/// Whether the server's version was asked for, and no object.
fn is_question(path: &str, resource: &str) -> bool {
    path.contains(resource) && path.contains("?limit=1 (metadata)")
}

fn is_watch(path: &str, resource: &str) -> bool {
    path.contains(resource) && path.contains("watch=")
}

fn service(namespace: &str, name: &str, class: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}]},
    })
}

fn slice(name: &str, address: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": [address]}],
    })
}

/// Renewed just now, for the `times`th time.
fn lease(node: &str, seconds: u32, times: i32) -> Value {
    let now = k8s_openapi::jiff::Timestamp::now();
    json!({
        "metadata": {"namespace": "default", "name": format!("ballast-{node}")},
        "spec": {
            "holderIdentity": node, "leaseDurationSeconds": seconds, "leaseTransitions": times,
            "renewTime": format!("{now:.6}"),
        },
    })
}

fn classes(seen: &Observed) -> Vec<String> {
    let class = |key: &Key| seen.services[key].class.clone().unwrap_or_default();
    seen.services
        .keys()
        .map(|key| format!("{key} {}", class(key)))
        .collect()
}

fn addresses(seen: &Observed) -> Vec<String> {
    let endpoints = seen.slices.values().flat_map(|slice| &slice.endpoints);
    endpoints
        .filter_map(|endpoint| Some(endpoint.address?.to_string()))
        .collect()
}

fn live(seen: &Observed) -> Vec<&str> {
    seen.leases
        .iter()
        .flatten()
        .map(|(node, _)| node.as_str())
        .collect()
}
