//! What outlives a swap: whose turn it is, and what was counted.

use super::*;
use crate::route::Route;

const TWO: &str = "backends: [{service: a, weight: 60}, {service: b, weight: 40}]";

/// An http frontend of these routes, which all lead to `/` of some host.
fn http(routes: &str) -> String {
    format!("protocol: http, routes: [{routes}]")
}

#[test]
fn a_hundred_goes_on_over_swaps_that_leave_its_weights() {
    let mut process = Process::new(TWO, &abc(""));
    let mut shares = process.shares(["a", "b"], 30);
    let swaps = [
        (TWO.to_owned(), abc("retries: 1")),
        (format!("{TWO}, max-connections: 5"), abc("")),
        (format!("{TWO}, description: x"), abc("retries: 2")),
    ];
    for (frontend, services) in swaps {
        process.swap(&frontend, &services);
        let more = process.shares(["a", "b"], 10);
        shares = [shares[0] + more[0], shares[1] + more[1]];
    }
    let rest = process.shares(["a", "b"], 40);
    assert_eq!([shares[0] + rest[0], shares[1] + rest[1]], [60, 40]);
}

#[test]
fn a_hundred_begins_anew_with_other_weights() {
    let mut process = Process::new(TWO, &abc(""));
    let first: Vec<String> = (0..20).map(|_| process.choose()).collect();
    for other in [
        "backends: [{service: a, weight: 61}, {service: b, weight: 40}]",
        "service: a",
    ] {
        process.shares(["a", "b"], 13);
        process.swap(other, &abc(""));
        process.shares(["a", "b"], 7);
        process.swap(TWO, &abc(""));
        let again: Vec<String> = (0..20).map(|_| process.choose()).collect();
        assert_eq!(again, first, "{other}");
    }
    let third = "backends: [{service: a, weight: 60}, {service: c, weight: 40}]";
    process.swap(third, &abc(""));
    assert_eq!(process.shares(["a", "c"], 100), [60, 40]);
}

#[test]
fn a_route_is_known_by_its_name_or_by_what_it_is_for() {
    let list = TWO.replace("backends", "path: /, backends");
    let same = [
        http(&format!("{{{list}}}")),
        http(&format!("{{path: /x, service: a}}, {{{list}}}")),
        http(&format!(
            "{{{list}, rewrite: /y}}, {{path: /x, service: a}}"
        )),
        http(&format!("{{{list}, match: begins}}")),
    ];
    let mut process = Process::new(&same[0], &abc(""));
    let mut shares = process.shares(["a", "b"], 40);
    for frontend in &same[1..] {
        process.swap(frontend, &abc(""));
        let more = process.shares(["a", "b"], 20);
        shares = [shares[0] + more[0], shares[1] + more[1]];
    }
    assert_eq!(shares, [60, 40]);

    let named = |host: &str| http(&format!("{{name: n, {list}, host: '{host}'}}, {{{list}}}"));
    process.swap(&named("a.org"), &abc(""));
    let routes = |process: &Process, host: &'static str| -> String {
        let found = route(process, host, "/");
        let backends = &found.forward().unwrap().backends;
        let chosen = backends.choose(&key(1), &[], NOW);
        chosen.service.state().name().to_owned()
    };
    let mut names: Vec<String> = (0..50).map(|_| routes(&process, "a.org")).collect();
    process.swap(&named("b.org"), &abc(""));
    names.extend((0..50).map(|_| routes(&process, "b.org")));
    assert_eq!(names.iter().filter(|name| **name == "a").count(), 60);
}

/// The route of requests for this host and path.
fn route(process: &Process, host: &'static str, path: &str) -> Arc<Route> {
    let Serves::Http(http) = process.plan.frontends()[0].serves() else {
        panic!();
    };
    let found = http.routes().find(&crate::http::Request {
        method: "GET",
        path,
        query: None,
        host: crate::http::Host::parse(host),
        version: crate::http::Version::Http11,
        fields: &[],
    });
    Arc::clone(found.route)
}

#[test]
fn requests_of_every_route_are_counted_and_outlive_swaps() {
    let [x, y, named, default] = [
        "{path: /x, service: a}",
        "{host: a.org, path: /x, status: 200}",
        "{path: /n, name: n, service: b}",
        "default: {service: c}",
    ];
    let counted = |process: &Process| -> Vec<u64> {
        let records = process.plan.frontends()[0].records().unwrap();
        records.requests().iter().map(|tally| tally.sum()).collect()
    };
    let ask = |process: &Process| {
        for (times, host, path) in [
            (1, "b.org", "/x"),
            (2, "a.org", "/x"),
            (3, "b.org", "/n"),
            (4, "b.org", "/"),
        ] {
            for worker in 0..times {
                route(process, host, path).count_request(WorkerId(worker % 2));
            }
        }
    };
    let mut process = Process::new(
        &format!("{}, {default}", http(&[x, y, named].join(","))),
        &abc(""),
    );
    assert_eq!(counted(&process), [0; 4]);
    ask(&process);
    assert_eq!(counted(&process), [1, 2, 3, 4]);

    // In another order, beside another one, and with a name and a default that go elsewhere.
    let others = [
        "{path: /n/m, name: n, service: a}",
        y,
        "{path: /new, service: a}",
        "{path: /x, service: b}",
    ];
    let table = format!("{}, default: {{status: 404}}", http(&others.join(",")));
    process.swap(&table, &abc(""));
    assert_eq!(counted(&process), [3, 2, 0, 1, 4]);
    route(&process, "b.org", "/x").count_request(WorkerId(0));
    assert_eq!(counted(&process), [3, 2, 0, 2, 4]);

    // An equal frontend before other services.
    process.swap(&table, &abc("retries: 1"));
    assert_eq!(counted(&process), [3, 2, 0, 2, 4]);
    // What had left begins anew.
    process.swap(&http(x), &abc(""));
    assert_eq!(counted(&process), [2]);
    process.swap(&table, &abc(""));
    assert_eq!(counted(&process), [0, 0, 0, 2, 0]);
}

#[test]
fn counts_of_backends_outlive_swaps_by_name() {
    let frontend = |more: &str| {
        let list = TWO.replace("backends", "path: /, name: shop, backends");
        http(&format!(
            "{{{list}}}, {more}, {{host: x.org, name: x, service: c}}"
        ))
    };
    let counted = |process: &Process| -> Vec<(String, String, u64)> {
        let records = process.plan.frontends()[0].records().unwrap();
        let choices = records.choices();
        choices
            .map(|(route, service, tally)| {
                let route = route.map(|name| name.to_string()).unwrap_or_default();
                (route, service.to_string(), tally.sum())
            })
            .collect()
    };
    let unnamed = "{path: /y, backends: [{service: a}, {service: b}]}, {path: /z, backends: [{service: a}, {service: c}]}";
    let mut process = Process::new(&frontend(unnamed), &abc(""));
    process.shares(["a", "b"], 100);
    let expected = |a: u64, b: u64| {
        [
            ("", "a", 0),
            ("", "b", 0),
            ("", "c", 0),
            ("shop", "a", a),
            ("shop", "b", b),
        ]
        .map(|(route, service, count)| (route.to_owned(), service.to_owned(), count))
    };
    assert_eq!(counted(&process), expected(60, 40));

    // Another order of the routes, another weight, another service.
    let other = format!("{unnamed}, {{path: /n, service: a}}");
    process.swap(
        &frontend(&other).replace("weight: 60", "weight: 10"),
        &abc("retries: 1"),
    );
    process.shares(["a", "b"], 50);
    assert_eq!(counted(&process), expected(70, 80));

    process.swap("service: a", &abc(""));
    assert!(process.plan.frontends()[0].records().is_none());
    process.swap(&frontend(unnamed), &abc(""));
    assert_eq!(
        counted(&process),
        expected(0, 0),
        "what had left begins anew"
    );
}

#[test]
fn only_what_has_routes_or_backends_is_recorded() {
    for (frontend, is_recorded) in [
        ("service: a".to_owned(), false),
        (TWO.to_owned(), true),
        ("backends: [{service: a}]".to_owned(), true),
        (http("{service: a}"), true),
        (http("{name: n, service: a}"), true),
        (http("{name: n, status: 200}"), true),
        ("protocol: http, default: {status: 200}".to_owned(), true),
    ] {
        let process = Process::new(&frontend, &abc(""));
        let records = process.plan.frontends()[0].records();
        assert_eq!(records.is_some(), is_recorded, "{frontend}");
    }
}
