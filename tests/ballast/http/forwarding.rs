//! Routes and heads through real sockets: one row for each rule, whose tables are in the core.

use std::io::Write;
use std::net::SocketAddr;

use crate::http::wire::{Endpoint, Request, Wire, ok, response, routed, service_of, table};
use support::crowd::Client;
use support::peers::End;
use support::{Ballast, nobody};

/// Answers with its name and the target that it was asked for.
fn named(name: &'static str) -> Endpoint {
    Endpoint::answering(move |request| ok(&format!("{name} {}", request.target())))
}

#[test]
fn hosts_and_paths_choose_the_service_and_the_target() {
    let [a, b, c] = [named("a"), named("b"), named("c")];
    let text = routed(
        ", routes: [
            {path: /a, service: a},
            {path: /a/deep, service: b},
            {path: /strip, service: a, rewrite: /},
            {path: /move, service: a, rewrite: /to/here},
            {path: /exact, match: exact, service: c},
            {path: /Case, ignore-case: true, service: c},
            {path: /begins, match: begins, service: c},
            {path: \"/a:443\", service: c},
            {host: shop.example.com, service: b},
            {host: shop.example.com, path: /a, service: c},
            {host: \"*.example.com\", service: c}],
          default: {service: a}",
        &[
            &service_of("a", "", &[a.address]),
            &service_of("b", "", &[b.address]),
            &service_of("c", "", &[c.address]),
        ],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    for (host, target, expected) in [
        ("x", "/", "a /"),
        ("x", "/a", "a /a"),
        ("x", "/a/", "a /a/"),
        ("x", "/a/deep/er", "b /a/deep/er"),
        ("x", "/ax", "a /ax"),
        ("x", "/a:443/x", "c /a:443/x"),
        ("x", "/a%2fdeep", "a /a%2fdeep"),
        ("x", "//a/deep", "a //a/deep"),
        ("x", "/a/../exact", "a /a/../exact"),
        ("x", "/exact", "c /exact"),
        ("x", "/exact/", "a /exact/"),
        ("x", "/cASE/x", "c /cASE/x"),
        ("x", "/beginsx", "c /beginsx"),
        ("x", "/strip", "a /"),
        ("x", "/strip/", "a /"),
        ("x", "/strip?q=/strip", "a /?q=/strip"),
        ("x", "/strip/x/y?q", "a /x/y?q"),
        ("x", "/strip//evil", "a /evil"),
        ("x", "/stripx", "a /stripx"),
        ("x", "/move/x", "a /to/here/x"),
        ("SHOP.example.com", "/", "b /"),
        ("shop.example.com:8080", "/a/deep", "c /a/deep"),
        ("www.example.com", "/a", "c /a"),
        ("a.b.example.com", "/", "c /"),
        ("example.com", "/", "a /"),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().text(), expected, "{host} {target}");
    }
    // An absolute target is forwarded as a path.
    client.send("GET http://shop.example.com/x?y HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
    assert_eq!(client.response().text(), "b /x?y");
    assert_eq!(b.last().field("Host"), Some("shop.example.com"));
}

#[test]
fn redirects() {
    let text = routed(
        ", routes: [
            {path: /tls, redirect: {scheme: https}},
            {path: /tls8443, redirect: {scheme: https, port: 8443}},
            {path: /old, redirect: {path: /new}},
            {path: /moved, redirect: {location: /new, status: 302}},
            {path: /r, redirect: {prefix: /p, relative: true}},
            {path: /q, redirect: {scheme: https, drop-query: true}},
            {path: /away, redirect: {host: other.example.com, status: 302}}]",
        &[],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    for (method, host, target, status, location) in [
        (
            "GET",
            "a.example.com",
            "/tls/x?y",
            301,
            "https://a.example.com/tls/x?y",
        ),
        (
            "POST",
            "a.example.com:8080",
            "/tls",
            308,
            "https://a.example.com/tls",
        ),
        ("GET", "[::1]:80", "/tls", 301, "https://[::1]/tls"),
        ("HEAD", "a", "/tls8443", 301, "https://a:8443/tls8443"),
        ("GET", "a:8080", "/old/x?y", 301, "http://a:8080/new?y"),
        ("GET", "a", "/away", 302, "http://other.example.com/away"),
        ("GET", "a", "/moved/x?y", 302, "/new"),
        ("GET", "a", "/r/x?y", 301, "/p/x?y"),
        ("GET", "a", "/q/x?y", 301, "https://a/q/x"),
        (
            "GET",
            "a",
            "/tls/%0d%0aX:%20y",
            301,
            "https://a/tls/%0d%0aX:%20y",
        ),
    ] {
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"
        ));
        let answer = client.response_to(method);
        assert_eq!(answer.status, status, "{method} {host} {target}");
        assert_eq!(
            answer.field("Location"),
            Some(location),
            "{method} {host} {target}"
        );
        assert_eq!(answer.field("X"), None);
        assert!(!answer.closes());
    }
    // Without a host there is nowhere to go.
    client.send("GET /tls HTTP/1.1\r\nHost:\r\n\r\n");
    assert_eq!(client.response().status, 400);
}

/// What the endpoint is told of a client which sends these fields.
fn told(frontend: &str, service: &str, before: &str, fields: &str) -> (Request, SocketAddr) {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table(frontend, service, &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send(format!(
        "{before}GET /x HTTP/1.1\r\nHost: A.example:81\r\n{fields}\r\n"
    ));
    assert_eq!(client.response().text(), "served");
    (endpoint.last(), ballast.address())
}

const CLAIMS: &str = "X-Forwarded-For: 192.0.2.1, 192.0.2.2\r\nX-Forwarded-For: 192.0.2.3\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Prefix: /evil\r\nForwarded: for=192.0.2.9\r\nConnection: X-Forwarded-For, X-Forwarded-Proto, X-Mine\r\nX-Mine: gone\r\n";

#[test]
fn endpoints_are_told_who_the_client_is() {
    let list = "192.0.2.1, 192.0.2.2, 192.0.2.3, 127.0.0.1";
    let proxied = "PROXY TCP4 198.51.100.7 203.0.113.9 5000 8080\r\n";
    for (frontend, before, expected) in [
        ("", "", list),
        (", http: {x-forwarded: append}", "", list),
        (", http: {x-forwarded: replace}", "", "127.0.0.1"),
        (", http: {x-forwarded-trust: [\"127.0.0.0/8\"]}", "", list),
        (
            ", http: {x-forwarded-trust: [\"192.0.2.0/24\"]}",
            "",
            "127.0.0.1",
        ),
        (
            ", accept-proxy: {from: [\"127.0.0.0/8\"]}, http: {x-forwarded: replace}",
            proxied,
            "198.51.100.7",
        ),
        (
            ", accept-proxy: {from: [\"127.0.0.0/8\"]}, http: {x-forwarded-trust: [\"127.0.0.0/8\"]}",
            proxied,
            "198.51.100.7",
        ),
        (
            ", accept-proxy: {from: [\"127.0.0.0/8\"]}, http: {x-forwarded-trust: [\"198.51.100.0/24\"]}",
            proxied,
            "192.0.2.1, 192.0.2.2, 192.0.2.3, 198.51.100.7",
        ),
    ] {
        let (request, address) = told(frontend, "", before, CLAIMS);
        let port = if before.is_empty() {
            address.port().to_string()
        } else {
            "8080".into()
        };
        let context = format!("{frontend}: {}", request.head);
        assert_eq!(request.fields("X-Forwarded-For"), [expected], "{context}");
        assert_eq!(request.fields("X-Forwarded-Proto"), ["http"], "{context}");
        assert_eq!(request.fields("X-Forwarded-Port"), [port], "{context}");
        assert_eq!(
            request.fields("X-Forwarded-Host"),
            ["A.example:81"],
            "{context}"
        );
        assert_eq!(request.field("X-Forwarded-Prefix"), None, "{context}");
        assert_eq!(request.field("X-Mine"), None, "{context}");
        assert_eq!(request.field("Host"), Some("A.example:81"), "{context}");
    }
    let (request, _) = told(
        ", http: {x-forwarded: off}",
        "",
        "",
        "X-Forwarded-For: 192.0.2.1\r\n",
    );
    assert_eq!(request.fields("X-Forwarded-For"), ["192.0.2.1"]);
    assert_eq!(request.field("X-Forwarded-Proto"), None);
    for (word, address) in [("append-for", list), ("replace-for", "127.0.0.1")] {
        let (request, _) = told(&format!(", http: {{x-forwarded: {word}}}"), "", "", CLAIMS);
        for (name, value) in [
            ("For", address),
            ("Proto", "https"),
            ("Port", "1"),
            ("Host", "evil"),
            ("Prefix", "/evil"),
        ] {
            let name = format!("X-Forwarded-{name}");
            assert_eq!(request.fields(&name), [value], "{word}: {}", request.head);
        }
        assert_eq!(request.fields("Forwarded"), ["for=192.0.2.9"], "{word}");
    }
    let (request, _) = told(", http: {forwarded: true}", "", "", "");
    assert_eq!(
        request.fields("Forwarded"),
        ["for=127.0.0.1;proto=http;host=\"A.example:81\""]
    );
}

#[test]
fn hop_by_hop_fields_stay_on_their_hop() {
    let (request, _) = told(
        "",
        "",
        "",
        "Connection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nX-Hop: x\r\nX-End: y\r\n",
    );
    for gone in [
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "TE",
        "X-Hop",
    ] {
        assert_eq!(request.field(gone), None, "{}", request.head);
    }
    assert_eq!(request.field("X-End"), Some("y"));

    let endpoint = Endpoint::answering(|_| {
        response(
            "200 OK",
            "Connection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: x\r\nX-End: y\r\n",
            "served",
        )
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let answer = Wire::to(ballast.address()).get("/");
    for gone in [
        "Connection",
        "Keep-Alive",
        "X-Hop",
        "Strict-Transport-Security",
    ] {
        assert_eq!(answer.field(gone), None, "{}", answer.head);
    }
    assert_eq!(answer.field("X-End"), Some("y"));
}

#[test]
fn a_route_that_rewrites_maps_paths_back() {
    let endpoint = Endpoint::answering(|request| {
        let host = request.field("Host").unwrap_or_default();
        let location = request
            .target()
            .split_once('?')
            .map_or("", |(_, query)| query);
        let location = location.replace("HOST", host);
        response(
            "302 Found",
            &format!(
                "Location: {location}\r\nSet-Cookie: a=b; Path=/; HttpOnly\r\nSet-Cookie: c=d; path=/x\r\n"
            ),
            "",
        )
    });
    let text = |map_back: &str| {
        routed(
            &format!(", routes: [{{path: /svc, service: s, rewrite: /{map_back}}}]"),
            &[&service_of("s", "", &[endpoint.address])],
        )
    };
    let ballast = Ballast::serve(&text(""), 1);
    let mut client = Wire::to(ballast.address());
    let own = endpoint.address;
    let own_url = format!("http://{own}/login");
    let own_back = format!("http://{own}/svc/login");
    for (location, expected) in [
        ("/login", "/svc/login"),
        ("/", "/svc/"),
        ("http://HOST/login", "http://a/svc/login"),
        ("https://HOST/login", "https://a/svc/login"),
        (
            "http://elsewhere.example/login",
            "http://elsewhere.example/login",
        ),
        ("login", "login"),
        (own_url.as_str(), own_back.as_str()),
    ] {
        let answer = client.get(&format!("/svc/x?{location}"));
        let found = answer.field("Location").unwrap_or_default();
        if location == own_url {
            // The scheme stays; the host may become the one that the client knows.
            assert!(found.ends_with("/svc/login"), "{found}");
        } else {
            assert_eq!(found, expected, "{location}");
        }
        let cookies: Vec<_> = answer
            .head
            .lines()
            .filter(|line| line.starts_with("Set-Cookie"))
            .collect();
        assert_eq!(
            cookies,
            [
                "Set-Cookie: a=b; Path=/svc; HttpOnly",
                "Set-Cookie: c=d; Path=/svc/x"
            ]
        );
    }
    assert_eq!(endpoint.last().field("X-Forwarded-Prefix"), Some("/svc"));
    ballast.swap(&text(", map-back: false"));
    let answer = client.get("/svc/x?/login");
    assert_eq!(answer.field("Location"), Some("/login"));
    assert_eq!(answer.field("Set-Cookie"), Some("a=b; Path=/; HttpOnly"));
}

#[test]
fn fields_are_set_and_removed_as_the_service_says() {
    let endpoint = Endpoint::answering(|_| {
        response(
            "200 OK",
            "Server: x/1.0\r\nX-Frame-Options: ALLOW\r\nServer: again\r\nStrict-Transport-Security: max-age=1\r\n",
            "served",
        )
    });
    let service = ", http: {request-headers: {set: {X-Env: prod, Host: inner.example}, remove: [X-Debug]}, response-headers: {set: {X-Frame-Options: DENY}, remove: [Server]}}";
    let ballast = Ballast::serve(&table("", service, &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Env: dev\r\nX-DEBUG: 1\r\nX-Env: test\r\n\r\n");
    let answer = client.response();
    let request = endpoint.last();
    assert_eq!(request.fields("X-Env"), ["prod"]);
    assert_eq!(request.fields("Host"), ["inner.example"]);
    assert_eq!(request.field("X-Debug"), None);
    assert_eq!(request.field("X-Forwarded-Host"), Some("a"));
    assert_eq!(answer.field("Server"), None);
    assert_eq!(answer.field("X-Frame-Options"), Some("DENY"));
    // Over http, an endpoint's own word stays.
    assert_eq!(answer.field("Strict-Transport-Security"), Some("max-age=1"));
}

#[test]
fn what_the_table_sets_goes_before_what_ballast_writes() {
    let edits = "request-headers: {set: {X-Forwarded-Proto: https, X-Forwarded-Port: '443', X-Forwarded-For: 192.0.2.1, X-Forwarded-Host: b}}";
    let of_service = format!(", http: {{{edits}}}");
    let of_route = format!(", default: {{service: s0, {edits}}}");
    for (frontend, service) in [("", &*of_service), (&*of_route, "")] {
        let endpoint = Endpoint::saying("served");
        let text = match frontend {
            "" => table("", service, &[&endpoint]),
            _ => routed(frontend, &[&service_of("s0", "", &[endpoint.address])]),
        };
        let ballast = Ballast::serve(&text, 1);
        let mut client = Wire::to(ballast.address());
        client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{CLAIMS}\r\n"));
        assert_eq!(client.response().text(), "served");
        let request = endpoint.last();
        for (name, value) in [
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Port", "443"),
            ("X-Forwarded-For", "192.0.2.1"),
            ("X-Forwarded-Host", "b"),
        ] {
            assert_eq!(request.fields(name), [value], "{}", request.head);
        }
    }
}

#[test]
fn the_edits_of_a_frontend_are_the_last_ones_of_every_answer() {
    let endpoint = Endpoint::answering(|_| response("200 OK", "X-A: endpoint\r\n", "served"));
    let text = routed(
        ", http: {unreachable-status: 503, response-headers: {set: {X-A: frontend}, add: {X-B: '1'}}}, routes: [
            {path: /route, response-headers: {set: {X-A: route, X-C: route}}, service: good},
            {path: /away, response-headers: {set: {X-A: route, X-C: route}}, redirect: {location: /new}},
            {path: /teapot, response-headers: {set: {X-C: route, Cache-Control: max-age=1}}, status: 418},
            {path: /denied, source-ranges: ['192.0.2.0/24'], service: good},
            {path: /gone, service: gone}], default: {service: good}",
        &[
            &service_of("good", ", http: {response-headers: {set: {X-A: service, X-B: service}}}", &[endpoint.address]),
            &service_of("gone", ", retries: 0", &[nobody()]),
        ],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    for (target, status, of_route) in [
        ("/", 200, None),
        ("/route", 200, Some("route")),
        ("/away", 301, Some("route")),
        ("/teapot", 418, Some("route")),
        ("/denied", 403, None),
        ("/gone", 503, None),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.response();
        assert_eq!(answer.status, status, "{target}");
        let lines = |name: &str| answer.head.matches(name).count();
        assert_eq!(answer.field("X-A"), Some("frontend"), "{target}");
        assert!(answer.head.contains("X-B: 1\r\n"), "{}", answer.head);
        assert_eq!(answer.field("X-C"), of_route, "{target}");
        assert_eq!(lines("X-A"), 1, "{}", answer.head);
        if target == "/teapot" {
            assert_eq!(answer.field("Cache-Control"), Some("max-age=1"));
            assert_eq!(lines("Cache-Control"), 1, "{}", answer.head);
        }
    }
    client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    let answer = client.response();
    assert_eq!(
        (answer.status, answer.field("X-A")),
        (400, Some("frontend"))
    );
}

#[test]
fn methods_and_fields_reach_the_endpoint_as_they_were_sent() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send(b"PROPFIND /%7e?a=%2F&&b HTTP/1.1\r\nhOST: a\r\nx-ODD-Case: \t1,  2\t\r\nX-Bytes: \xff\xc3\xbc\r\nCookie: a=b\r\ncookie: c=d\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n");
    assert_eq!(client.response().text(), "served");
    let request = endpoint.last();
    assert_eq!(request.line(), "PROPFIND /%7e?a=%2F&&b HTTP/1.1");
    assert!(
        request.head.contains("\r\nx-ODD-Case: 1,  2\r\n"),
        "{}",
        request.head
    );
    assert_eq!(request.fields("Cookie"), ["a=b; c=d"]);
    assert_eq!(
        request.field("traceparent"),
        Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    );
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "served");
    assert_eq!(endpoint.last().line(), "OPTIONS * HTTP/1.1");
    // HTTP/1.0 without a host.
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().text(), "served");
    assert_eq!(endpoint.last().line(), "GET / HTTP/1.1");
    assert_eq!(endpoint.last().fields("Host").len(), 1);
}

#[test]
fn limits_of_a_frontend_apply_to_http_clients() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(
        &table(
            ", source-ranges: [\"127.0.3.0/24\"], max-connections-per-client: 1, on-limit: reject",
            "",
            &[&endpoint],
        ),
        1,
    );
    let from = |source: [u8; 4]| Client::from(source, ballast.address());
    let mut first = Wire::over(from([127, 0, 3, 1]).unwrap().stream);
    assert_eq!(first.get("/").text(), "served");
    for refused in [[127, 0, 3, 1], [127, 0, 4, 1]] {
        // The reset may come while it still connects.
        let response = from(refused).and_then(|client| {
            let mut client = Wire::over(client.stream);
            client
                .stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
            client.try_response("GET")
        });
        assert!(response.is_err(), "{refused:?}");
    }
    let mut other = Wire::over(from([127, 0, 3, 2]).unwrap().stream);
    assert_eq!(other.get("/").text(), "served");
    assert_eq!(first.get("/").text(), "served");
}

#[test]
fn clients_above_the_limit_of_all_are_told_so() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(
        &table(", max-connections: 1, on-limit: reject", "", &[&endpoint]),
        1,
    );
    let mut first = Wire::to(ballast.address());
    assert_eq!(first.get("/").text(), "served");
    // More than are answered at a time, one after the other; some of them send a request that is longer than the socket's buffer.
    for index in 0..40 {
        let mut other = Wire::to(ballast.address());
        if index % 4 == 0 {
            let body = vec![b'x'; 1 << 20];
            let head = format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            other.send(head);
            other.stream.write_all(&body).unwrap();
        } else {
            other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let told = other.response();
        assert_eq!((told.status, told.closes()), (503, true));
        other.assert_ends(End::Clean, "above the limit");
    }
    assert_eq!(endpoint.connections(), 1);
    ballast.until(|ballast| {
        ballast.metrics().contains(
            "ballast_connections_refused_total{frontend=\"f\",reason=\"max-connections\"} 40\n",
        )
    });
    // Clients that stay do not take all descriptors: those above 32 are reset.
    // A reset may come while the client still connects.
    let connect = |_| Client::from([127, 0, 0, 1], ballast.address()).ok();
    let clients: Vec<_> = (0..60).filter_map(connect).collect();
    let mut silent: Vec<_> = clients
        .into_iter()
        .map(|client| Wire::over(client.stream))
        .collect();
    let told = |client: &mut Wire| {
        client
            .try_response("GET")
            .is_ok_and(|told| told.status == 503)
    };
    let told = silent.iter_mut().map(told).filter(|&told| told).count();
    assert!((1..=32).contains(&told), "{told}");
    assert_eq!(first.get("/").text(), "served");
}

#[test]
fn a_cookie_keeps_a_client_at_its_endpoint() {
    let endpoints = [named("a"), named("b"), named("c")];
    let all: Vec<_> = endpoints.iter().collect();
    let ballast = Ballast::serve(&table("", ", affinity: {cookie: SERVERID}", &all), 1);
    for _ in 0..4 {
        let mut client = Wire::to(ballast.address());
        let first = client.get("/");
        let cookie = first.field("Set-Cookie").expect("a cookie").to_owned();
        let (pair, attributes) = cookie.split_once("; ").expect("attributes");
        assert!(pair.starts_with("SERVERID="), "{cookie}");
        assert_eq!(attributes, "Path=/; HttpOnly");
        assert_eq!(first.field("Cache-Control"), Some("private"));
        for _ in 0..4 {
            client.send(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nCookie: x=y; {pair}; z=1\r\n\r\n"
            ));
            let next = client.response();
            assert_eq!(next.text(), first.text());
            assert_eq!(next.field("Set-Cookie"), None);
            assert_eq!(next.field("Cache-Control"), None);
        }
        let name = first.text();
        let served = endpoints.iter().zip(["a /", "b /", "c /"]);
        let served = served
            .filter(|(_, text)| *text == name)
            .map(|(one, _)| one.last());
        let cookies: Vec<_> = served
            .map(|one| one.field("Cookie").map(str::to_owned))
            .collect();
        assert_eq!(cookies, [Some("x=y; z=1".to_owned())]);
    }
    // Nobody's cookie.
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nCookie: SERVERID=0\r\n\r\n");
    assert!(client.response().field("Set-Cookie").is_some());
}
