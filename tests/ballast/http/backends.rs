//! Several services behind one route: which one a request gets, and who hears what of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::http::wire::{Endpoint, Wire, ok, response, routed, service_of};
use support::{Ballast, get, nobody};

/// How often each text is answered to so many requests.
fn answers(client: &mut Wire, path: &str, requests: usize) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..requests {
        let answer = client.get(path);
        let key = match answer.status {
            200 => answer.text(),
            status => status.to_string(),
        };
        *answers.entry(key).or_insert(0) += 1;
    }
    answers
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    let counts = expected.iter();
    counts
        .map(|(text, count)| ((*text).to_owned(), *count))
        .collect()
}

/// The value of a series.
fn metric(ballast: &Ballast, series: &str) -> Option<u64> {
    let metrics = ballast.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    line.and_then(|value| value.trim().parse().ok())
}

#[test]
fn a_hundred_requests_are_shared_out_exactly_and_counted_over_swaps() {
    let [old, new] = ["old", "new"].map(Endpoint::saying);
    let text = |weights: [u32; 2], more: &str| {
        routed(
            &format!(
                ", routes: [{{path: /, name: shop, backends: [{{service: a, weight: {}}}, {{service: b, weight: {}}}]}}, {{path: /one, name: one, service: a}}]{more}",
                weights[0], weights[1]
            ),
            &[
                &service_of("a", "", &[old.address]),
                &service_of("b", "", &[new.address]),
            ],
        )
    };
    let ballast = Ballast::serve(&text([90, 10], ""), 2);
    // Two connections of perhaps two workers share one order.
    let mut clients = [Wire::to(ballast.address()), Wire::to(ballast.address())];
    let mut sum = BTreeMap::new();
    for n in 0..100 {
        let answer = clients[n % 2].get("/").text();
        *sum.entry(answer).or_insert(0) += 1;
    }
    assert_eq!(sum, counts(&[("new", 10), ("old", 90)]));
    clients[0].get("/one");

    let of_a = "ballast_backend_choices_total{frontend=\"f\",route=\"shop\",service=\"a\"}";
    let of_b = "ballast_backend_choices_total{frontend=\"f\",route=\"shop\",service=\"b\"}";
    let requests = "ballast_route_requests_total{frontend=\"f\",route=\"shop\"}";
    assert_eq!(metric(&ballast, of_a), Some(90));
    assert_eq!(metric(&ballast, of_b), Some(10));
    assert_eq!(metric(&ballast, requests), Some(100));
    let one = "ballast_route_requests_total{frontend=\"f\",route=\"one\"}";
    assert_eq!(metric(&ballast, one), Some(1));
    let admin = ballast.running.admin()[0];
    let (_, page) = get(admin, "/");
    assert!(page.contains("<h2>Routes"), "{page}");
    for words in [
        "<td class=\"n\">100</td>",
        ": 90), <a href=\"#b\">b</a> (",
        ": 10)",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let (_, snapshot) = get(admin, "/api/snapshot");
    for words in [
        "\"routes\":{\"one\":1,\"shop\":100}",
        "{\"route\":\"shop\",\"service\":\"a\",\"choices\":90}",
    ] {
        assert!(snapshot.contains(words), "{words}: {snapshot}");
    }

    // Other weights, in force with the next request.
    ballast.swap(&text([0, 100], ""));
    assert_eq!(answers(&mut clients[0], "/", 20), counts(&[("new", 20)]));
    ballast.swap(&text([50, 50], ""));
    let mut sum = answers(&mut clients[0], "/", 30);
    // A table that leaves the weights leaves the hundred.
    ballast.swap(&text([50, 50], ", timeouts: {client: 40s}"));
    for (text, count) in answers(&mut clients[1], "/", 70) {
        *sum.entry(text).or_default() += count;
    }
    assert_eq!(sum, counts(&[("new", 50), ("old", 50)]));
    assert_eq!(metric(&ballast, of_b), Some(80));
    assert_eq!(metric(&ballast, requests), Some(220));
}

#[test]
fn requests_of_routes_without_a_name_are_counted_by_host_and_path() {
    let a = Endpoint::saying("a");
    let text = |more: &str| {
        routed(
            &format!(
                ", routes: [{{path: /x, service: a}}, {{host: b.org, path: /x, status: 204}},
                  {{host: b.org, path: /x, when: {{method: [PUT]}}, status: 202}}, {{path: /n, name: n, service: a}}],
                  default: {{status: 404}}{more}"
            ),
            &[&service_of("a", "", &[a.address])],
        )
    };
    let ballast = Ballast::serve(&text(""), 2);
    for (times, line, host) in [
        (1, "GET /n", "a.org"),
        (2, "GET /x/y", "a.org"),
        (3, "GET /x", "b.org"),
        (4, "PUT /x", "b.org"),
        (5, "GET /", "b.org"),
    ] {
        for _ in 0..times {
            let mut client = Wire::to(ballast.address());
            client.send(format!(
                "{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
            ));
            client.response();
        }
    }
    ballast.swap(&text(", description: another"));
    for (route, count) in [("n", 1), ("*/x", 2), ("b.org/x", 7), ("*", 5)] {
        let series = format!("ballast_route_requests_total{{frontend=\"f\",route=\"{route}\"}}");
        assert_eq!(metric(&ballast, &series), Some(count), "{route}");
    }
    let metrics = ballast.metrics();
    assert_eq!(
        metrics.matches("\nballast_route_requests_total{").count(),
        4
    );
    let admin = ballast.running.admin()[0];
    let (_, snapshot) = get(admin, "/api/snapshot");
    let words = "\"routes\":{\"*\":5,\"*/x\":2,\"b.org/x\":7,\"n\":1}";
    assert!(snapshot.contains(words), "{snapshot}");
    // The page has a line for each.
    let (_, page) = get(admin, "/");
    for count in 1..=5 {
        let words =
            format!("<td class=\"n\">{count}</td><td class=\"fe\"><a href=\"#f/Frontend\">");
        assert!(page.contains(&words), "{words}: {page}");
    }
}

#[test]
fn requests_are_told_apart_by_method_header_and_query() {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(Endpoint::saying);
    let text = routed(
        ", routes: [
            {path: /x, service: a},
            {path: /x, when: {headers: [{name: X-Canary, value: '1'}]}, service: b},
            {path: /x, when: {method: [PUT, DELETE]}, service: c},
            {path: /x, when: {query: [{name: v, value: '2'}]}, service: d},
            {path: /x/y, when: {headers: [{name: X-Canary, present: true}]}, service: d}]",
        &[
            &service_of("a", "", &[a.address]),
            &service_of("b", "", &[b.address]),
            &service_of("c", "", &[c.address]),
            &service_of("d", "", &[d.address]),
        ],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    for (line, fields, expected) in [
        ("GET /x", "", "a"),
        ("GET /x", "X-CANARY:  1\r\n", "b"),
        ("GET /x", "X-Canary: 2\r\n", "a"),
        ("GET /x", "X-Canary: 2\r\nx-canary: 1\r\n", "b"),
        ("DELETE /x", "", "c"),
        ("DELETE /x", "X-Canary: 1\r\n", "b"),
        ("GET /x?a=1&v=2", "", "d"),
        ("GET /x?v=1&v=2", "", "a"),
        ("PUT /x?v=2", "Content-Length: 0\r\n", "c"),
        ("GET /x/y/z", "X-Canary: 2\r\n", "d"),
        ("GET /x/y/z", "", "a"),
        ("GET /x/y/z?v=2", "", "d"),
    ] {
        client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(client.response().text(), expected, "{line} {fields}");
    }
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 404);
}

#[test]
fn a_client_stays_with_the_service_that_its_cookie_names() {
    let [a, b] = ["a", "b"].map(Endpoint::saying);
    let cookie = ", affinity: {cookie: SERVERID}";
    let text = |weights: &str, a: &[SocketAddr]| {
        routed(
            &format!(", default: {{backends: [{{service: a{weights}}}, {{service: b}}]}}"),
            &[
                &service_of("a", cookie, a),
                &service_of("b", cookie, &[b.address]),
            ],
        )
    };
    let ballast = Ballast::serve(&text("", &[a.address]), 2);
    let mut client = Wire::to(ballast.address());
    let mut cookies = BTreeMap::new();
    while cookies.len() < 2 {
        let answer = client.get("/");
        let set = answer.field("Set-Cookie").expect("a cookie");
        let pair = set.split(';').next().unwrap_or_default().to_owned();
        cookies.insert(answer.text(), pair);
    }
    let mut ask = |cookie: &str| {
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nCookie: x=1; {cookie}\r\n\r\n"
        ));
        client.response()
    };
    for (service, cookie) in &cookies {
        for _ in 0..20 {
            let answer = ask(cookie);
            assert_eq!(
                (answer.text(), answer.field("Set-Cookie")),
                (service.clone(), None)
            );
        }
    }
    // A weight of 0 gets nobody new, and keeps those that it has.
    ballast.swap(&text(", weight: 0", &[a.address]));
    assert!((0..10).all(|_| ask(&cookies["a"]).text() == "a"));
    assert!((0..10).all(|_| ask("SERVERID=0123456789abcdef").text() == "b"));
    ballast.swap(&text(", weight: 0", &[]));
    let answer = ask(&cookies["a"]);
    assert_eq!(answer.text(), "b");
    assert!(answer.field("Set-Cookie").is_some(), "it has moved");
}

#[test]
fn a_service_without_an_endpoint_gives_its_share_to_the_others() {
    let [a, b] = ["a", "b"].map(Endpoint::saying);
    let list = ", default: {backends: [{service: a, weight: 80}, {service: b, weight: 20}, {service: c, weight: 100}]}";
    let text = |a: &[SocketAddr], b: &[SocketAddr]| {
        routed(
            list,
            &[
                &service_of("a", "", a),
                &service_of("b", "", b),
                &service_of("c", "", &[]),
            ],
        )
    };
    let ballast = Ballast::serve(&text(&[a.address], &[b.address]), 1);
    let mut client = Wire::to(ballast.address());
    let shares = |client: &mut Wire| answers(client, "/", 100);
    assert_eq!(shares(&mut client), counts(&[("a", 80), ("b", 20)]));
    ballast.swap(&text(&[], &[b.address]));
    assert_eq!(shares(&mut client), counts(&[("b", 100)]));
    ballast.swap(&text(&[], &[]));
    assert_eq!(answers(&mut client, "/", 5), counts(&[("503", 5)]));
    let refused = "ballast_connections_refused_total{frontend=\"f\",reason=\"no-endpoint\"}";
    assert_eq!(metric(&ballast, refused), Some(5));
    // An endpoint that cannot be reached is one all the same: nobody knows yet that its checks would fail.
    ballast.swap(&text(&[nobody()], &[]));
    assert_eq!(answers(&mut client, "/", 1), counts(&[("502", 1)]));
}

#[test]
fn edits_are_applied_from_the_route_to_the_service_and_back() {
    let endpoint = Endpoint::answering(|_| {
        response(
            "200 OK",
            "X-One: endpoint\r\nX-Two: endpoint\r\nX-Three: endpoint\r\nX-Gone: endpoint\r\n",
            "",
        )
    });
    let edits = |who: &str, gone: &str| {
        format!(
            "{{set: {{X-One: {who}}}, add: {{X-Two: {who}, X-Three: {who}}}, remove: [{gone}]}}"
        )
    };
    let text = routed(
        &format!(
            ", routes: [{{path: /, request-headers: {}, response-headers: {}, backends: [{{service: a, request-headers: {}, response-headers: {}}}]}}]",
            edits("route", "X-Client"),
            edits("route", "X-Gone"),
            edits("backend", "X-Three"),
            edits("backend", "X-Three"),
        ),
        &[&service_of(
            "a",
            &format!(
                ", http: {{request-headers: {}, response-headers: {}}}",
                edits("service", "X-Nothing"),
                edits("service", "X-Nothing")
            ),
            &[endpoint.address],
        )],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-One: client\r\nX-Two: client\r\nX-Three: client\r\nX-Client: client\r\n\r\n");
    let answer = client.response();
    let request = endpoint.last();
    assert_eq!(request.fields("X-One"), ["service"]);
    assert_eq!(
        request.fields("X-Two"),
        ["client", "route", "backend", "service"]
    );
    assert_eq!(request.fields("X-Three"), ["backend", "service"]);
    assert_eq!(request.fields("X-Client"), [""; 0]);
    let fields = |name: &str| -> Vec<String> {
        let lines = answer.head.lines();
        let values = lines.filter_map(|line| line.strip_prefix(&format!("{name}: ")));
        values.map(str::to_owned).collect()
    };
    assert_eq!(fields("X-One"), ["route"]);
    assert_eq!(fields("X-Two"), ["endpoint", "service", "backend", "route"]);
    assert_eq!(fields("X-Three"), ["backend", "route"]);
    assert_eq!(fields("X-Gone"), [""; 0]);
}

#[test]
fn paths_and_hosts_are_rewritten_and_come_back() {
    let endpoint = Endpoint::answering(|request| {
        let location = match request.target() {
            "/whole?q" => "/whole".to_owned(),
            target => format!("http://shop.internal{target}"),
        };
        let fields = format!("Location: {location}\r\nSet-Cookie: a=b; Path=/\r\n");
        let host = request.field("Host").unwrap_or_default().to_owned();
        let forwarded = request.field("X-Forwarded-Host").unwrap_or_default();
        let prefix = request.field("X-Forwarded-Prefix").unwrap_or("-");
        let text = format!("{host} {} {forwarded} {prefix}", request.target());
        response("200 OK", &fields, &text)
    });
    let text = routed(
        ", routes: [
            {path: /host, service: a, rewrite: {host: shop.internal}},
            {path: /both, service: a, rewrite: {prefix: /, host: shop.internal}},
            {path: /path, service: a, rewrite: {path: /whole}},
            {path: /kept, service: a, rewrite: {host: shop.internal}, map-back: false},
            {path: /set, service: b, rewrite: {host: shop.internal}}]",
        &[
            &service_of("a", "", &[endpoint.address]),
            &service_of(
                "b",
                ", http: {request-headers: {set: {Host: set.internal}}}",
                &[endpoint.address],
            ),
        ],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    for (target, heard, location, cookie) in [
        (
            "/host/x?q",
            "shop.internal /host/x?q a.org -",
            "http://a.org/host/x?q",
            "/",
        ),
        (
            "/both/x",
            "shop.internal /x a.org /both",
            "http://a.org/both/x",
            "/both",
        ),
        ("/path/x/y?q", "a.org /whole?q a.org /path", "/path", "/"),
        (
            "/kept/x",
            "shop.internal /kept/x a.org -",
            "http://shop.internal/kept/x",
            "/",
        ),
        ("/set", "set.internal /set a.org -", "http://a.org/set", "/"),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a.org\r\n\r\n"));
        let answer = client.response();
        assert_eq!(answer.text(), heard, "{target}");
        assert_eq!(answer.field("Location"), Some(location), "{target}");
        let cookie = format!("a=b; Path={cookie}");
        assert_eq!(answer.field("Set-Cookie"), Some(&*cookie), "{target}");
    }
}

#[test]
fn a_redirect_replaces_what_matched() {
    let text = routed(
        ", routes: [
            {path: /old, redirect: {prefix: /new}},
            {path: /root, redirect: {prefix: /}},
            {path: /cAse, ignore-case: true, redirect: {scheme: https, prefix: /to/}}]",
        &[],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    for (target, location) in [
        ("/old", "http://a/new"),
        ("/old/x/y?q=/old", "http://a/new/x/y?q=/old"),
        ("/old//x", "http://a/new//x"),
        ("/root", "http://a/"),
        ("/root//evil.org", "http://a/evil.org"),
        ("/CASE/x", "https://a/to/x"),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.response();
        assert_eq!(
            (answer.status, answer.field("Location")),
            (301, Some(location)),
            "{target}"
        );
    }
}

#[test]
fn no_spelling_of_a_path_gets_around_source_ranges() {
    let endpoint = Endpoint::answering(|request| ok(request.target()));
    let text = routed(
        ", routes: [
            {path: /admin, source-ranges: [127.0.0.2/32], service: a},
            {service: a}]",
        &[&service_of("a", "", &[endpoint.address])],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut stranger = Wire::to(ballast.address());
    let denied = [
        "/admin",
        "/admin/x",
        "//admin",
        "/%61dmin",
        "/x/../admin",
        "/x/%2e%2E/admin",
        "/./admin?q",
    ];
    for target in denied {
        let answer = stranger.get(target);
        assert_eq!(answer.status, 403, "{target}");
        assert!(!answer.closes(), "{target}");
    }
    for target in [
        "/",
        "/x",
        "/admin%2fx",
        "/administrator",
        "/ADMIN",
        "/x/../y",
    ] {
        assert_eq!(stranger.get(target).text(), target);
    }
    let heard = endpoint.heard();
    assert!(
        heard
            .iter()
            .all(|request| !denied.contains(&request.target()))
    );
    let plan = ballast.running.shared().live.plan();
    let counts = plan.frontends()[0].state().counts();
    assert_eq!(counts.denied_requests, denied.len() as u64);

    // Who may use the route may spell it as they like, and the endpoint hears it so.
    let friend =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    friend
        .bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into())
        .expect("an address");
    friend
        .connect(&ballast.address().into())
        .expect("a connection");
    let mut friend = Wire::over(friend.into());
    for target in denied {
        assert_eq!(friend.get(target).text(), target);
    }
}
