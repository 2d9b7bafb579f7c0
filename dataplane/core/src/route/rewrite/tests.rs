//! One row for each path that is rewritten or mapped back, and both ways with random paths.

use proptest::prelude::*;

use super::*;
use crate::table::OrMap;

fn route(path: &str, kind: PathMatch, rewrite: &str) -> Route {
    Route {
        path: Some(path.parse().unwrap()),
        r#match: kind,
        rewrite: Some(OrMap::Value(rewrite.parse().unwrap())),
        ..Route::default()
    }
}

fn rewrite(route: &Route) -> Rewrite {
    Rewrite::new(&route.rewrite().unwrap(), route)
}

/// The length of what this route, which matches, matched.
fn prefix_length(route: &Route) -> usize {
    let path = route.path();
    match route.r#match {
        PathMatch::Exact => path.len(),
        _ => path.strip_suffix('/').unwrap_or(path).len(),
    }
}

fn rewritten(route: &Route, path: &str) -> String {
    let mut out = Vec::new();
    rewrite(route).write_path(&mut out, path, prefix_length(route));
    String::from_utf8(out).unwrap()
}

#[test]
fn rewriting_replaces_what_matched() {
    use PathMatch::{Begins, Exact, Segment};
    for (path, kind, to, asked, expected) in [
        // The prefix is stripped.
        ("/svc", Segment, "/", "/svc", "/"),
        ("/svc", Segment, "/", "/svc/", "/"),
        ("/svc", Segment, "/", "/svc/x", "/x"),
        ("/svc", Segment, "/", "/svc/x/", "/x/"),
        ("/svc", Segment, "/", "/svc/x/y.html", "/x/y.html"),
        ("/svc", Segment, "/", "/svc//", "/"),
        ("/svc", Segment, "/", "/svc//evil.org", "/evil.org"),
        ("/svc", Segment, "/", "/svc////evil.org//x", "/evil.org//x"),
        ("/svc", Segment, "/", "/svc/svc", "/svc"),
        ("/svc", Segment, "/", "/svc/.", "/."),
        ("/svc", Segment, "/", "/svc/./x", "/./x"),
        ("/svc", Segment, "/", "/svc/../x", "/../x"),
        (
            "/svc",
            Segment,
            "/",
            "/svc/%2f%2fevil.org",
            "/%2f%2fevil.org",
        ),
        ("/svc", Segment, "/", "/svc/%2e%2e/x", "/%2e%2e/x"),
        ("/svc", Segment, "/", "/svc/\u{e4}", "/\u{e4}"),
        ("/svc", Segment, "/", "/SVC/x", "/x"),
        ("/svc-1:443", Segment, "/", "/svc-1:443/x", "/x"),
        ("/a/b", Segment, "/", "/a/b/c", "/c"),
        ("/svc/", Segment, "/", "/svc/", "/"),
        ("/svc/", Segment, "/", "/svc/x", "/x"),
        // Another prefix takes its place.
        ("/svc", Segment, "/app", "/svc", "/app"),
        ("/svc", Segment, "/app", "/svc/", "/app/"),
        ("/svc", Segment, "/app", "/svc/x", "/app/x"),
        ("/svc", Segment, "/app", "/svc//x", "/app//x"),
        ("/svc", Segment, "/app/", "/svc", "/app/"),
        ("/svc", Segment, "/app/", "/svc/", "/app/"),
        ("/svc", Segment, "/app/", "/svc/x", "/app/x"),
        ("/svc", Segment, "/app/", "/svc//x", "/app/x"),
        ("/svc/", Segment, "/app", "/svc/x", "/app/x"),
        ("/svc/", Segment, "/app", "/svc/", "/app/"),
        ("/svc", Segment, "//evil.org", "/svc/x", "/evil.org/x"),
        ("/svc", Segment, "//", "/svc/x", "/x"),
        // A route for every path puts a prefix in front.
        ("/", Segment, "/app", "/", "/app/"),
        ("/", Segment, "/app", "/x", "/app/x"),
        ("/", Segment, "/app", "//x", "/app//x"),
        ("/", Segment, "/", "//evil.org", "/evil.org"),
        ("/", Segment, "/", "/", "/"),
        ("/", Begins, "/app", "/x", "/app/x"),
        // One path alone.
        ("/old", Exact, "/new", "/old", "/new"),
        ("/old/", Exact, "/new", "/old/", "/new"),
        ("/", Exact, "/index.html", "/", "/index.html"),
        ("/old", Exact, "/", "/old", "/"),
        // Whatever begins so.
        ("/svc", Begins, "/", "/svc-10/x", "/-10/x"),
        ("/svc", Begins, "/", "/svc/x", "/x"),
        ("/svc", Begins, "/", "/svc", "/"),
        ("/svc", Begins, "/", "/svc//evil.org", "/evil.org"),
        ("/svc", Begins, "/app", "/svc-10/x", "/app-10/x"),
        ("/svc", Begins, "/app/", "/svc-10/x", "/app/-10/x"),
        ("/svc/", Begins, "/app", "/svc/x", "/app/x"),
        // No path.
        ("/", Segment, "/app", "*", "*"),
    ] {
        let route = route(path, kind, to);
        assert_eq!(
            rewritten(&route, asked),
            expected,
            "{path} {kind} {to} {asked}"
        );
    }
}

#[test]
fn a_path_of_the_endpoint_gets_the_prefix_back() {
    use PathMatch::{Begins, Exact, Segment};
    // The route's path and `rewrite`, the endpoint's path, and the client's path for it: in Location and in Set-Cookie.
    for (path, kind, to, theirs, location, cookie) in [
        ("/svc", Segment, "/", "/", Some("/svc/"), Some("/svc")),
        ("/svc", Segment, "/", "/x", Some("/svc/x"), Some("/svc/x")),
        (
            "/svc",
            Segment,
            "/",
            "/x/",
            Some("/svc/x/"),
            Some("/svc/x/"),
        ),
        (
            "/svc",
            Segment,
            "/",
            "//x",
            Some("/svc//x"),
            Some("/svc//x"),
        ),
        (
            "/svc",
            Segment,
            "/",
            "/svc",
            Some("/svc/svc"),
            Some("/svc/svc"),
        ),
        ("/svc", Segment, "/", "", None, None),
        ("/svc", Segment, "/", "x", None, None),
        ("/svc", Segment, "/", "?q", None, None),
        ("/svc/", Segment, "/", "/x", Some("/svc/x"), Some("/svc/x")),
        ("/svc", Segment, "/app", "/app", Some("/svc"), Some("/svc")),
        (
            "/svc",
            Segment,
            "/app",
            "/app/",
            Some("/svc/"),
            Some("/svc/"),
        ),
        (
            "/svc",
            Segment,
            "/app",
            "/app/x",
            Some("/svc/x"),
            Some("/svc/x"),
        ),
        ("/svc", Segment, "/app", "/apple", None, None),
        ("/svc", Segment, "/app", "/", None, None),
        ("/svc", Segment, "/app", "/APP", None, None),
        (
            "/svc",
            Segment,
            "/app/",
            "/app/",
            Some("/svc/"),
            Some("/svc"),
        ),
        ("/svc", Segment, "/app/", "/app", Some("/svc"), Some("/svc")),
        (
            "/svc",
            Segment,
            "/app/",
            "/app/x",
            Some("/svc/x"),
            Some("/svc/x"),
        ),
        ("/", Segment, "/app", "/app", Some("/"), Some("/")),
        ("/", Segment, "/app", "/app/", Some("/"), Some("/")),
        ("/", Segment, "/app", "/app/x", Some("/x"), Some("/x")),
        (
            "/",
            Segment,
            "/app",
            "/app//evil.org",
            Some("/evil.org"),
            Some("/evil.org"),
        ),
        (
            "/",
            Segment,
            "/",
            "//evil.org",
            Some("/evil.org"),
            Some("/evil.org"),
        ),
        ("/old", Exact, "/new", "/new", Some("/old"), Some("/old")),
        ("/old", Exact, "/new", "/new/x", None, None),
        ("/old", Exact, "/", "/", Some("/old"), Some("/old")),
        ("/old", Exact, "/", "/x", None, None),
        (
            "/svc",
            Begins,
            "/",
            "/-10/x",
            Some("/svc/-10/x"),
            Some("/svc/-10/x"),
        ),
        (
            "/svc",
            Begins,
            "/app",
            "/app-10/x",
            Some("/svc-10/x"),
            Some("/svc-10/x"),
        ),
        ("/svc", Begins, "/app/", "/apple", None, None),
    ] {
        let route = route(path, kind, to);
        let rewrite = rewrite(&route);
        let prefix = path.get(..prefix_length(&route)).unwrap();
        let of = |it: fn(&Rewrite, &mut Vec<u8>, &str, &[u8]) -> bool| {
            let mut out = Vec::new();
            let is_mapped = it(&rewrite, &mut out, prefix, theirs.as_bytes());
            let out = String::from_utf8(out).unwrap();
            assert_eq!(is_mapped, !out.is_empty());
            is_mapped.then_some(out)
        };
        let case = format!("{path} {kind} {to} {theirs}");
        assert_eq!(of(Rewrite::map_back_path).as_deref(), location, "{case}");
        assert_eq!(
            of(Rewrite::map_back_cookie_path).as_deref(),
            cookie,
            "{case}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn paths_keep_one_slash_and_come_back(
        path in "/[a/]{0,4}",
        to in "/[ab/]{0,4}",
        begins in any::<bool>(),
        rest in "[a/.%-]{0,6}",
        theirs in "/?[ab/]{0,6}",
    ) {
        let kind = if begins { PathMatch::Begins } else { PathMatch::Segment };
        let route = route(&path, kind, &to);
        let glue = if begins || path.ends_with('/') || rest.is_empty() { "" } else { "/" };
        let forward = rewritten(&route, &format!("{path}{glue}{rest}"));
        prop_assert!(forward.starts_with('/') && !forward.starts_with("//"), "{}", forward);

        let mut back = Vec::new();
        let prefix = path.get(..prefix_length(&route)).unwrap();
        let is_mapped = rewrite(&route).map_back_path(&mut back, prefix, theirs.as_bytes());
        prop_assert_eq!(is_mapped, !back.is_empty());
        if is_mapped {
            let back = String::from_utf8(back).unwrap();
            prop_assert!(back.starts_with('/') && !back.starts_with("//"), "{}", back);
            // Where slashes were collapsed, or the endpoint named the folder of `rewrite` without its slash, it is another path.
            let is_plain = !format!("{path}{to}{theirs}").contains("//") && !theirs.ends_with('/');
            if is_plain && !to.ends_with('/') && !path.ends_with('/') {
                prop_assert_eq!(rewritten(&route, &back), theirs);
            }
        }
    }
}

/// A route for everything below `/svc` with this rewriting.
fn of_map(json: &str) -> Route {
    Route {
        path: Some("/svc".parse().unwrap()),
        rewrite: Some(OrMap::Map(serde_json::from_str(json).unwrap())),
        ..Route::default()
    }
}

#[test]
fn a_whole_path_is_replaced_and_comes_back_where_it_was() {
    let route = of_map(r#"{"path": "/to/here"}"#);
    for asked in ["/svc", "/svc/", "/svc/x/y", "/svc//x"] {
        assert_eq!(rewritten(&route, asked), "/to/here");
    }
    assert_eq!(rewritten(&route, "*"), "*");
    let rewrite = rewrite(&route);
    assert!(rewrite.changes_path());
    let back = |path: &str| {
        let mut out = Vec::new();
        let is_mapped = rewrite.map_back_path(&mut out, "/svc", path.as_bytes());
        is_mapped.then(|| String::from_utf8(out).unwrap())
    };
    assert_eq!(back("/to/here").as_deref(), Some("/svc"));
    for other in ["/to/here/", "/to/here/x", "/to", "/"] {
        assert_eq!(back(other), None);
    }
}

#[test]
fn a_host_alone_leaves_every_path() {
    let route = of_map(r#"{"host": "Shop.Internal."}"#);
    let rewrite = rewrite(&route);
    assert_eq!(
        (rewrite.host(), rewrite.changes_path()),
        (Some("shop.internal"), false)
    );
    for path in ["/svc", "/svc//x/", "/svc/../x", "*"] {
        assert_eq!(rewritten(&route, path), path);
        let mut out = Vec::new();
        let is_mapped = rewrite.map_back_path(&mut out, "/svc", path.as_bytes());
        assert_eq!((is_mapped, &*out), (path != "*", path.as_bytes()));
        out.clear();
        rewrite.map_back_cookie_path(&mut out, "/svc", path.as_bytes());
        assert_eq!(out, path.as_bytes());
    }
}
