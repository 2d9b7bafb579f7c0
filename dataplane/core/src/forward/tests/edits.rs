//! Edits of several owners, and the host that a route asks endpoints for.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// The fields that a request with these ones, a host and these edits has at the endpoint. Nothing else is written.
fn edited(steps: [Option<&HeaderEdits>; 3], raw: &str, rewrite: Option<&Rewrite>) -> String {
    with_fields(&format!("GET /shop/x HTTP/1.1\n{raw}"), |_, fields| {
        let asked = fields.iter().find(|field| field.name == "Host");
        let request = Request {
            method: "GET",
            path: "/shop/x",
            query: None,
            host: asked.map(|asked| host(str::from_utf8(asked.value).unwrap())),
            version: Version::Http11,
            fields,
        };
        let client = Client {
            address: "192.0.2.7:4711".parse().unwrap(),
            peer_is_trusted: false,
            scheme: Scheme::Http,
            port: 80,
            subject: None,
        };
        let to = ToEndpoint {
            request: &request,
            framing: Framing::Empty,
            upgrades: false,
            keeps_connection: true,
            version: HttpVersion::H1,
            endpoint: "10.1.0.7:8080".parse().unwrap(),
            client: &client,
            options: &options(r#"{"x-forwarded": "off"}"#),
            edits: steps.into(),
            rewrite,
            prefix: "/shop",
            cookie: None,
        };
        let mut out = Vec::new();
        super::request(&mut out, &to);
        let lines = shown(&out);
        let (_, fields) = lines.split_once('\n').unwrap();
        fields.replace('\n', " | ")
    })
}

#[test]
fn later_edits_see_what_earlier_ones_have_made() {
    let [route, backend, service] = [
        r#"{"set": {"X-A": "route", "X-B": "route"}, "add": {"X-C": "route", "X-D": "route"}, "remove": ["X-E"]}"#,
        r#"{"set": {"x-a": "backend"}, "add": {"x-c": "backend"}, "remove": ["x-d"]}"#,
        r#"{"add": {"X-A": "service", "X-D": "service"}, "remove": ["X-B"]}"#,
    ]
    .map(edits);
    let raw = "Host: a\nX-A: client\nX-C: client\nX-D: client\nX-E: client\nX-F: client";
    assert_eq!(
        edited([Some(&route), Some(&backend), Some(&service)], raw, None),
        "Host: a | X-C: client | X-F: client | X-C: route | x-a: backend | x-c: backend | X-A: service | X-D: service"
    );
    assert_eq!(
        edited([None, None, Some(&route)], raw, None),
        "Host: a | X-C: client | X-D: client | X-F: client | X-A: route | X-B: route | X-C: route | X-D: route"
    );
    assert_eq!(edited([None; 3], raw, None), raw.replace('\n', " | "));
}

#[test]
fn one_edit_removes_then_sets_then_adds() {
    let both =
        edits(r#"{"set": {"X-A": "1"}, "add": {"X-A": "2", "X-B": "3"}, "remove": ["X-B"]}"#);
    assert_eq!(
        edited([Some(&both), None, None], "Host: a\nX-A: c\nX-B: c", None),
        "Host: a | X-A: 1 | X-A: 2 | X-B: 3"
    );
}

#[test]
fn the_last_host_that_is_set_counts_before_that_of_the_rewriting() {
    let set = |host: &str| edits(&format!(r#"{{"set": {{"Host": "{host}"}}}}"#));
    let (route, service) = (set("route.internal"), set("service.internal:81"));
    let to = crate::table::Rewrite {
        host: Some("rewritten.internal".parse().unwrap()),
        ..Default::default()
    };
    let rewrite = Rewrite::new(&to, &Route::default());
    for (steps, rewrite, expected) in [
        ([None, None, None], None, "Host: a.org"),
        (
            [None, None, None],
            Some(&rewrite),
            "Host: rewritten.internal",
        ),
        (
            [Some(&route), None, None],
            Some(&rewrite),
            "Host: route.internal",
        ),
        (
            [Some(&route), None, Some(&service)],
            Some(&rewrite),
            "Host: service.internal:81",
        ),
    ] {
        assert_eq!(edited(steps, "Host: a.org", rewrite), expected);
        let without = edited(steps, "X: y", rewrite);
        let expected = match expected {
            "Host: a.org" => "Host: 10.1.0.7:8080",
            other => other,
        };
        assert_eq!(without, format!("{expected} | X: y"));
    }
}

#[test]
fn the_host_of_a_rewriting_counts_as_the_endpoints() {
    let rewriting = |json: &str| {
        let to: crate::table::Rewrite = serde_json::from_str(json).unwrap();
        let route = Route {
            path: Some("/shop".parse().unwrap()),
            ..Route::default()
        };
        Rewrite::new(&to, &route)
    };
    let host_alone = rewriting(r#"{"host": "app.internal"}"#);
    let both = rewriting(r#"{"host": "app.internal", "prefix": "/app"}"#);
    for (rewrite, value, expected) in [
        (&host_alone, "http://app.internal/x", "http://a.org:8080/x"),
        (&host_alone, "http://APP.internal", "http://a.org:8080/"),
        (
            &host_alone,
            "https://app.internal:443/x?y",
            "https://a.org:8080/x?y",
        ),
        (
            &host_alone,
            "http://app.internal:3000/x",
            "http://a.org:8080/x",
        ),
        (
            &host_alone,
            "http://app.internal:81/x",
            "http://app.internal:81/x",
        ),
        (
            &host_alone,
            "http://xapp.internal/x",
            "http://xapp.internal/x",
        ),
        (&host_alone, "http://10.1.0.7:3000/x", "http://a.org:8080/x"),
        (&host_alone, "/x", "/x"),
        (&host_alone, "x", "x"),
        (&host_alone, "", ""),
        (
            &both,
            "http://app.internal/app/x",
            "http://a.org:8080/shop/x",
        ),
        (&both, "http://app.internal/x", "http://app.internal/x"),
        (&both, "/app/x", "/shop/x"),
    ] {
        let map_back = MapBack {
            rewrite,
            prefix: "/shop",
            host: Some(host("a.org:8080")),
            port: 8080,
            endpoint: "10.1.0.7:3000".parse().unwrap(),
        };
        let mut out = Vec::new();
        map_back.location(&mut out, value.as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{value}");
    }
}

/// The edits of one owner, on some of few names.
fn some_edits() -> impl Strategy<Value = Option<(Vec<usize>, Vec<usize>, Vec<usize>)>> {
    let names = || prop::sample::subsequence((0..4).collect::<Vec<usize>>(), 0..3);
    prop::option::of((names(), names(), names()))
}

proptest! {
    /// The same as applying each edit to a list of fields, one after the other.
    #[test]
    fn edits_are_those_of_a_list(
        sent in prop::collection::vec(0..4_usize, 0..6),
        steps in prop::array::uniform3(some_edits()),
    ) {
        let mut list: VecDeque<(usize, String)> = sent
            .iter()
            .enumerate()
            .map(|(n, name)| (*name, format!("c{n}")))
            .collect();
        let mut written = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            let Some((remove, set, add)) = step else {
                written.push(None);
                continue;
            };
            list.retain(|(name, _)| !remove.contains(name) && !set.contains(name));
            let map = |names: &[usize], word: &str| -> serde_json::Value {
                names.iter().map(|name| (format!("X-{name}"), format!("{word}{n}").into())).collect::<serde_json::Map<_, _>>().into()
            };
            list.extend(set.iter().map(|name| (*name, format!("s{n}"))));
            list.extend(add.iter().map(|name| (*name, format!("a{n}"))));
            let mut json = serde_json::json!({"set": map(set, "s"), "add": map(add, "a")});
            if !remove.is_empty() {
                let names: Vec<String> = remove.iter().map(|name| format!("x-{name}")).collect();
                json["remove"] = names.into();
            }
            written.push(Some(edits(&json.to_string())));
        }
        let raw: Vec<String> = sent.iter().enumerate().map(|(n, name)| format!("\nX-{name}: c{n}")).collect();
        let [route, backend, service] = &written[..] else { panic!() };
        let out = edited(
            [route.as_ref(), backend.as_ref(), service.as_ref()],
            &format!("Host: a{}", raw.concat()),
            None,
        );
        let expected: Vec<String> = list.iter().map(|(name, value)| format!(" | X-{name}: {value}")).collect();
        prop_assert_eq!(out, format!("Host: a{}", expected.concat()));
    }
}
