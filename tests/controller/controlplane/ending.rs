//! The finalizer: a Service that is served is not gone before it is served no more.

use serde_json::{Value, json};

use crate::backends::service;
use crate::corner::{Corner, in_a_corner};
use crate::node::{LbNode, leader};
use crate::process::{Signal, until};

fn the_finalizer_comes_and_goes_with_the_type() {
    in_a_corner("finalizer", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        // A finalizer of somebody else's is nobody's business.
        corner.apply(&service("web", 80, ""));
        corner.patch(
            "Service",
            "web",
            &json!({"metadata": {"finalizers": ["example.com/theirs"]}}),
        );
        until("the finalizer", || {
            finalizers(corner, "web") == ["example.com/theirs", OURS]
        });
        corner.until_published("web", &[&node.address()]);

        corner.patch("Service", "web", &json!({"spec": {"type": "ClusterIP"}}));
        until("no finalizer", || {
            finalizers(corner, "web") == ["example.com/theirs"]
        });
        assert_eq!(corner.published("web"), [""; 0]);
        until("a closed port", || node.ask(80).is_err());

        corner.patch("Service", "web", &json!({"spec": {"type": "LoadBalancer"}}));
        until("the finalizer", || {
            finalizers(corner, "web") == ["example.com/theirs", OURS]
        });
        corner.until_published("web", &[&node.address()]);

        corner.delete("Service", "web");
        until("our finalizer is gone", || {
            finalizers(corner, "web") == ["example.com/theirs"]
        });
        corner.patch("Service", "web", &json!({"metadata": {"finalizers": null}}));
        until("the end", || corner.read("Service", "web").is_none());
    });
}

fn a_service_that_was_deleted_while_nobody_looked_is_let_go() {
    in_a_corner("unseen", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        corner.take_publisher().process.crash();
        corner.delete("Service", "web");
        assert!(corner.read("Service", "web").is_some(), "it waits for us");
        corner.publish(&[]);
        until("the end", || corner.read("Service", "web").is_none());
    });
}

fn without_the_finalizer_deleting_waits_for_nobody() {
    in_a_corner("unheld", |corner| {
        corner.publish(&["--finalizer=false"]);
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        assert_eq!(finalizers(corner, "web"), [""; 0]);
        corner.delete("Service", "web");
        assert!(corner.read("Service", "web").is_none());
    });
}

fn without_the_finalizer_what_an_earlier_controller_put_there_goes() {
    in_a_corner("unhold", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        let theirs = json!({"metadata": {"finalizers": ["example.com/theirs", OURS]}});
        corner.patch("Service", "web", &theirs);
        assert_eq!(corner.take_publisher().process.stop(), Some(0));
        corner.publish(&["--finalizer=false"]);
        until("our finalizer is gone", || {
            finalizers(corner, "web") == ["example.com/theirs"]
        });
        assert_eq!(corner.published("web"), [node.address()]);
        corner.patch("Service", "web", &json!({"metadata": {"finalizers": null}}));
    });
}

fn an_uninstallation_leaves_nothing_of_ours_behind() {
    in_a_corner("uninstall", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        let dialect = json!({
            "loadbalancer.openstack.org/timeout-client-data": "60000",
            "ballast.dev/algorithm": "nonsense",
        });
        corner.annotate("web", &dialect);
        corner.apply(&service(
            "foreign",
            81,
            "  loadBalancerClass: example.com/other\n",
        ));
        corner.until_published("web", &[&node.address()]);
        // Ours is there: it stays ours.
        corner.patch(
            "Service",
            "web",
            &json!({"metadata": {"finalizers": ["example.com/theirs", OURS]}}),
        );
        until("all that is ours", || {
            let annotations = &corner.service("web")["metadata"]["annotations"];
            let there = |name: &str| annotations[name].is_string();
            there(ADDRESS) && finalizers(corner, "web").len() == 2
        });

        let publisher = corner.take_publisher();
        let (code, said) = publisher.release(&[]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("still writes"), "{said}");
        publisher.process.signal(Signal::TERM);
        until("the leader's Lease is given back", || {
            leader(corner).is_none()
        });
        let before = corner.service("web");
        let foreign = corner.service("foreign");
        let (code, said) = publisher.release(&["--lb-class=example.com/another"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("left alone"), "{said}");
        let (code, said) = publisher.release(&["--dry"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains(&node.address()) && said.contains(OURS),
            "{said}"
        );
        assert_eq!(corner.service("web"), before, "nothing was changed");

        let (code, said) = publisher.release(&[]);
        assert_eq!(code, Some(0), "{said}");
        let left = corner.service("web");
        assert_eq!(finalizers(corner, "web"), ["example.com/theirs"]);
        assert_eq!(left["status"], json!({"loadBalancer": {}}), "{said}");
        let mut own = dialect;
        own["kubectl.kubernetes.io/last-applied-configuration"].take();
        for (name, _) in left["metadata"]["annotations"]
            .as_object()
            .into_iter()
            .flatten()
        {
            assert!(own.get(name).is_some(), "{name} is left: {said}");
        }
        assert_eq!(corner.service("foreign"), foreign);
        let (code, said) = publisher.release(&[]);
        assert_eq!((code, said.as_str()), (Some(0), "0 Services given back\n"));
        corner.patch("Service", "web", &json!({"metadata": {"finalizers": null}}));
        corner.delete("Service", "web");
        assert!(corner.read("Service", "web").is_none(), "nobody holds it");
    });
}

const ADDRESS: &str = "loadbalancer.openstack.org/load-balancer-address";

fn finalizers(corner: &Corner<'_>, name: &str) -> Vec<String> {
    let found = corner.read("Service", name).unwrap_or_default();
    let list = found["metadata"]["finalizers"].as_array();
    let mut list: Vec<_> = list
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    list.sort();
    list
}

const OURS: &str = "service.kubernetes.io/load-balancer-cleanup";

tests![
    the_finalizer_comes_and_goes_with_the_type,
    a_service_that_was_deleted_while_nobody_looked_is_let_go,
    without_the_finalizer_deleting_waits_for_nobody,
    without_the_finalizer_what_an_earlier_controller_put_there_goes,
    an_uninstallation_leaves_nothing_of_ours_behind,
];
