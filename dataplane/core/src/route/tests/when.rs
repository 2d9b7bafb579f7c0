//! Routes that ask for more than a host and a path.

use super::*;

/// A request for `/x` of a.org with these fields.
fn asked<'r>(method: &'r str, query: Option<&'r str>, fields: &'r [Field<'r>]) -> Request<'r> {
    Request {
        method,
        query,
        fields,
        ..get("a.org", "/x")
    }
}

fn fields<'f>(list: &[(&'f str, &'f str)]) -> Vec<Field<'f>> {
    let field = |(name, value): &(&'f str, &'f str)| Field {
        name,
        value: value.as_bytes(),
    };
    list.iter().map(field).collect()
}

#[test]
fn what_is_asked_for_must_hold_all_of_it() {
    type Sent = (
        &'static str,
        Option<&'static str>,
        &'static [(&'static str, &'static str)],
    );
    let cases: [(&str, &[Sent], &[Sent]); 11] = [
        (
            "method: [GET, HEAD]",
            &[("GET", None, &[]), ("HEAD", None, &[])],
            &[("get", None, &[]), ("POST", None, &[])],
        ),
        (
            "headers: [{name: X-Canary, value: '1'}]",
            &[
                ("GET", None, &[("x-canary", "1")]),
                ("GET", None, &[("X-CANARY", " 1\t")]),
                ("GET", None, &[("X-Canary", "0"), ("X-Canary", "1")]),
            ],
            &[
                ("GET", None, &[]),
                ("GET", None, &[("X-Canary", "")]),
                ("GET", None, &[("X-Canary", "10")]),
                ("GET", None, &[("X-Canar", "1"), ("X-Canary-", "1")]),
            ],
        ),
        (
            "headers: [{name: X-Canary, value: ' Yes '}]",
            &[("GET", None, &[("X-Canary", "Yes")])],
            &[("GET", None, &[("X-Canary", "yes")])],
        ),
        (
            "headers: [{name: User-Agent, prefix: 'App/2.'}]",
            &[("GET", None, &[("user-agent", "App/2.1 (x)")])],
            &[
                ("GET", None, &[("user-agent", "App/2")]),
                ("GET", None, &[("user-agent", "x App/2.1")]),
            ],
        ),
        (
            "headers: [{name: X-A, present: true}]",
            &[("GET", None, &[("x-a", "")])],
            &[("GET", None, &[("x-b", "1")])],
        ),
        (
            "headers: [{name: X-A, absent: true}]",
            &[("GET", None, &[("x-b", "1")])],
            &[("GET", None, &[("x-A", "")])],
        ),
        (
            "headers: [{name: X-A, value: '1'}, {name: x-a, value: '2'}]",
            &[("GET", None, &[("X-A", "2"), ("X-A", "1")])],
            &[
                ("GET", None, &[("X-A", "1")]),
                ("GET", None, &[("X-A", "1, 2")]),
            ],
        ),
        (
            "query: [{name: v, value: '2'}]",
            &[("GET", Some("v=2"), &[]), ("GET", Some("a=1&v=2&v=3"), &[])],
            &[
                ("GET", None, &[]),
                ("GET", Some(""), &[]),
                ("GET", Some("v"), &[]),
                ("GET", Some("v=3&v=2"), &[]),
                ("GET", Some("V=2"), &[]),
                ("GET", Some("%76=2"), &[]),
                ("GET", Some("v=%32"), &[]),
                ("GET", Some("v=2=3"), &[]),
                ("GET", Some("w=1;v=2"), &[]),
            ],
        ),
        (
            "query: [{name: v, value: ''}]",
            &[("GET", Some("v"), &[]), ("GET", Some("a&v=&v=1"), &[])],
            &[("GET", Some("v=1"), &[]), ("GET", Some("vv="), &[])],
        ),
        (
            "query: [{name: v, value: 'a=b'}]",
            &[("GET", Some("v=a=b"), &[])],
            &[("GET", Some("v=a"), &[])],
        ),
        (
            "method: [PUT], headers: [{name: a, present: true}], query: [{name: v, value: '1'}]",
            &[("PUT", Some("v=1"), &[("a", "")])],
            &[
                ("GET", Some("v=1"), &[("a", "")]),
                ("PUT", Some("v=2"), &[("a", "")]),
                ("PUT", Some("v=1"), &[]),
            ],
        ),
    ];
    for (when, good, bad) in cases {
        let routes = routes(&[&format!("path: /x, when: {{{when}}}")]);
        let is_found = |(method, query, list): &Sent| {
            let fields = fields(list);
            let matched = routes.find(&asked(method, *query, &fields));
            matched.prefix_length == 2
        };
        assert!(good.iter().all(is_found), "{when}");
        assert!(!bad.iter().any(is_found), "{when}");
    }
}

#[test]
fn of_several_that_hold_the_one_that_asks_for_most_is_taken() {
    // In the order in which they are looked at.
    let whens = [
        "headers: [{name: a, value: '1'}, {name: b, present: true}]",
        "headers: [{name: a, prefix: '1'}], method: [GET], query: [{name: v, value: '1'}]",
        "headers: [{name: a, value: '1'}], method: [GET]",
        "headers: [{name: a, value: '1'}], query: [{name: v, value: '1'}, {name: w, value: '1'}]",
        "headers: [{name: a, value: '1'}]",
        "headers: [{name: a, present: true}]",
        "method: [GET, PUT], query: [{name: v, value: '1'}]",
        "method: [GET]",
        "query: [{name: v, value: '1'}, {name: w, value: '1'}]",
        "query: [{name: v, value: '1'}]",
    ];
    let all = [("a", "1"), ("b", "1")];
    let all = fields(&all);
    let request = asked("GET", Some("v=1&w=1"), &all);
    for first in 0..whens.len() {
        let rest: Vec<String> = whens[first..]
            .iter()
            .map(|when| format!("path: /x, when: {{{when}}}"))
            .collect();
        let mut list: Vec<&str> = rest.iter().map(String::as_str).collect();
        let best = list[0];
        list.push("path: /x");
        for _ in 0..list.len() {
            list.rotate_left(1);
            // Of equal ones the first in the table is taken: these two stay in their order.
            let (one, other) = (whens[4], whens[5]);
            let place = |when: &str| list.iter().position(|route| route.contains(when));
            if first <= 4 && place(one) > place(other) {
                continue;
            }
            let routes = routes(&list);
            let Target::Answer(answer) = &routes.find(&request).route.target else {
                panic!();
            };
            assert_eq!(answer.content_type.as_deref(), Some(best));
        }
    }
}

#[test]
fn of_routes_that_ask_for_equally_much_the_first_in_the_table_is_taken() {
    let (one, other) = (
        "path: /x, when: {headers: [{name: a, value: '1'}]}",
        "path: /x, when: {headers: [{name: a, present: true}]}",
    );
    let sent = fields(&[("a", "1")]);
    for list in [[one, other], [other, one]] {
        let routes = routes(&list);
        let matched = routes.find(&asked("GET", None, &sent));
        let Target::Answer(answer) = &matched.route.target else {
            panic!();
        };
        assert_eq!(answer.content_type.as_deref(), Some(list[0]));
    }
}

#[test]
fn where_nothing_holds_the_next_wider_route_is_taken() {
    let when = "when: {headers: [{name: a, present: true}]}";
    let routes = routes(&[
        &format!("host: a.org, path: /x/y, match: exact, {when}"),
        &format!("host: a.org, path: /x/y, {when}, ignore-case: true"),
        &format!("host: a.org, path: /x, {when}"),
        "host: '*.org', path: /x/y/z",
        &format!("host: '*.org', {when}"),
        "path: /x",
        &format!("path: /x/y/z, {when}"),
    ]);
    let found = |path: &'static str, sent: &[Field<'_>]| {
        let request = Request {
            fields: sent,
            ..get("a.org", path)
        };
        let matched = routes.find(&request);
        let Target::Answer(answer) = &matched.route.target else {
            panic!();
        };
        let fields = answer.content_type.as_deref().unwrap_or("404");
        (fields.to_owned(), matched.prefix(path))
    };
    let with = fields(&[("A", "")]);
    let exact = format!("host: a.org, path: /x/y, match: exact, {when}");
    assert_eq!(found("/x/y", &with), (exact, "/x/y"));
    let below = format!("host: a.org, path: /x/y, {when}, ignore-case: true");
    assert_eq!(found("/x/y/z", &with), (below, "/x/y"));
    let shorter = format!("host: a.org, path: /x, {when}");
    assert_eq!(found("/x/z", &with), (shorter, "/x"));
    let wider = format!("host: '*.org', {when}");
    assert_eq!(found("/z", &with), (wider, ""));
    for (path, expected) in [
        ("/x/y", ("path: /x", "/x")),
        ("/x/y/z", ("host: '*.org', path: /x/y/z", "/x/y/z")),
        ("/x", ("path: /x", "/x")),
        ("/z", ("404", "")),
    ] {
        let (fields, prefix) = found(path, &[]);
        assert_eq!((fields.as_str(), prefix), expected, "{path}");
    }
}

#[test]
fn the_star_of_options_meets_the_conditions_of_the_whole_host() {
    let routes = routes(
        &[
            "when: {method: [OPTIONS]}, content-type: o",
            "when: {method: [GET]}, content-type: g",
        ]
        .map(|it| it.split(", content").next().unwrap()),
    );
    let request = |method| Request {
        method,
        ..get("a.org", "*")
    };
    let status = |method| match &routes.find(&request(method)).route.target {
        Target::Answer(answer) => answer.status,
        _ => 0,
    };
    assert_eq!((status("OPTIONS"), status("PUT")), (200, 404));
}
