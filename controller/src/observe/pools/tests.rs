use std::convert::Infallible;
use std::future::pending;

use clap::Parser;
use hyper::{Request, Response};
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

use super::super::Key;
use super::there::missing;
use super::*;
use crate::settings::Flags;

/// The watch of a publisher whose API server says nothing: the test says it.
fn watch() -> PoolWatch {
    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }
    let server = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
    let flags = Cli::parse_from([""; 0]).flags;
    let settings = Settings::new(flags).unwrap().in_role(Role::Publisher);
    let mut watch = PoolWatch::new(&Client::new(server, "default"), &settings);
    for change in [
        missing::<PoolOf<1>>(Lack::Absent),
        missing::<PoolOf<2>>(Lack::Absent),
        missing::<Reservation>(Lack::Absent),
    ] {
        watch.apply(change);
    }
    assert_eq!(watch.late(), BTreeSet::from(["AddressPool"]));
    watch
}

/// All pools that there are: one, with this field beside its addresses.
fn list_one_with(watch: &mut PoolWatch, field: &str, value: Value) {
    let mut object = json!({
        "metadata": {"name": "edge"},
        "spec": {"addresses": ["192.0.2.0/28"]},
    });
    object["spec"][field] = value;
    let pool = serde_json::from_value(object).unwrap();
    let names = BTreeSet::from([Key::new("", "edge")]);
    watch.apply(Change::Ballast(Event::Changed(Box::new(pool))));
    watch.apply(Change::Ballast(Event::Listed(None, names, 1)));
}

#[tokio::test]
async fn what_was_seen_of_a_kind_stays_until_the_kind_is_absent() {
    let mut watch = watch();
    list_one_with(&mut watch, "priority", json!(1));
    assert!(watch.is_complete());
    for (lack, unread, pools) in [
        (Lack::Failing(503), Some(503), 1),
        (Lack::Denied, Some(403), 1),
        (Lack::Absent, None, 0),
    ] {
        assert!(watch.apply(missing::<PoolOf<0>>(lack)), "{lack:?}");
        assert!(watch.is_complete(), "{lack:?}");
        let objects = watch.objects();
        assert_eq!(objects.pools.len(), pools, "{lack:?}");
        let expected = unread.map(|code| ("AddressPool", code));
        assert_eq!(objects.unread_pools().next(), expected, "{lack:?}");
    }
}

#[tokio::test]
async fn a_kind_that_was_never_read_is_no_empty_one() {
    let mut watch = watch();
    assert!(!watch.is_complete());
    watch.apply(missing::<PoolOf<0>>(Lack::Failing(500)));
    assert!(watch.is_complete());
    let unread: Vec<_> = watch.objects().unread_pools().collect();
    assert_eq!(unread, [("AddressPool", 500)]);
    list_one_with(&mut watch, "priority", json!(1));
    assert_eq!(watch.objects().unread_pools().next(), None);
}

#[tokio::test]
async fn labels_of_namespaces_are_awaited_and_missed_where_a_pool_selects_by_them() {
    let mut watch = watch();
    list_one_with(
        &mut watch,
        "namespaceSelector",
        json!({"matchLabels": {"team": "a"}}),
    );
    assert_eq!(watch.late(), BTreeSet::from(["Namespace"]));
    watch.apply(missing::<Namespace>(Lack::Denied));
    assert!(watch.is_complete());
    assert_eq!(watch.objects().unread_namespaces(), Some(403));
    let none = Event::<Namespace>::Listed(None, BTreeSet::new(), 1);
    assert!(watch.apply(Change::Namespace(none)));
    assert_eq!(watch.objects().unread_namespaces(), None);
}
