//! One row for each rule of the routes of a frontend.

use super::{frontend, good, hold, https, row};

fn routes(protocol: &str, routes: &str) -> String {
    match protocol {
        "https" => https(&format!("routes: [{routes}]")),
        _ => frontend(protocol, &format!("routes: [{routes}]")),
    }
}

#[test]
fn routes_lead_to_one_thing() {
    hold(vec![
        row(
            routes("http", "{path: /x}"),
            "frontends[0].routes[0]",
            "leads nowhere",
            "exactly one of service, redirect and status",
        ),
        row(
            routes("http", "{service: s, status: 404}"),
            "frontends[0].routes[0]",
            "has service and status at once",
            "exactly one",
        ),
        row(
            frontend("http", "default: {}"),
            "frontends[0].default",
            "leads nowhere",
            "exactly one",
        ),
        row(
            routes("http", "{service: s, body-file: b}"),
            "frontends[0].routes[0].body-file",
            "Ballast's own",
            "add status",
        ),
        row(
            routes("http", "{service: s, content-type: text/plain}"),
            "frontends[0].routes[0].content-type",
            "Ballast's own",
            "add status",
        ),
        row(
            routes(
                "http",
                "{service: s, source-ranges: [10.0.0.0/8], denied: {status: 204, body-file: b}}",
            ),
            "frontends[0].routes[0].denied.body-file",
            "an answer with status 204 has no body",
            "remove it, or use another status",
        ),
        row(
            routes(
                "tls",
                "{service: s, source-ranges: [10.0.0.0/8], denied: {status: 404}}",
            ),
            "frontends[0].routes[0].denied",
            "a connection that is relayed unopened has no denied",
            "let TLS end here",
        ),
        row(
            frontend("http", "errors: {503: {status: 100}}"),
            "frontends[0].errors.503.status",
            "100 is out of range",
            "200 to 599",
        ),
        row(
            frontend(
                "http",
                "errors: {503: {response-headers: {set: {Content-Length: \"1\"}}}}",
            ),
            "frontends[0].errors.503.response-headers.set.Content-Length",
            "is about the connection",
            "remove it",
        ),
        row(
            routes("http", "{status: 204, body-file: b}"),
            "frontends[0].routes[0].body-file",
            "status 204 has no body",
            "another status",
        ),
        row(
            routes("http", "{status: 600}"),
            "frontends[0].routes[0].status",
            "600 is out of range",
            "200 to 599",
        ),
        row(
            routes("http", "{status: 100}"),
            "frontends[0].routes[0].status",
            "100 is out of range",
            "200 to 599",
        ),
        row(
            routes("http", "{status: 404, rewrite: /}"),
            "frontends[0].routes[0].rewrite",
            "what a service gets",
            "add service",
        ),
        row(
            routes("http", "{redirect: {}}"),
            "frontends[0].routes[0].redirect",
            "back to where the client was",
            "scheme, host, port or path",
        ),
        row(
            routes("http", "{redirect: {status: 302}}"),
            "frontends[0].routes[0].redirect",
            "back to where",
            "add",
        ),
        row(
            routes("http", "{redirect: {scheme: https, status: 200}}"),
            "frontends[0].routes[0].redirect.status",
            "200 is not the status of a redirect",
            "301",
        ),
        row(
            routes("http", "{redirect: {location: /x, path: /y}}"),
            "frontends[0].routes[0].redirect.path",
            "location is the whole answer",
            "remove it, or location",
        ),
        row(
            routes("http", "{redirect: {location: ''}}"),
            "frontends[0].routes[0].redirect.location",
            "is empty",
            "a path or a URL",
        ),
        row(
            routes("http", "{redirect: {drop-query: true}}"),
            "frontends[0].routes[0].redirect",
            "leads back to where the client was",
            "or location",
        ),
        row(
            routes(
                "http",
                "{redirect: {relative: true, path: /x, scheme: https}}",
            ),
            "frontends[0].routes[0].redirect.scheme",
            "a relative Location has no scheme",
            "remove it, or relative",
        ),
        row(
            routes("http", "{redirect: {scheme: ftp}}"),
            "frontends[0].routes[0].redirect.scheme",
            "\"ftp\" is not a scheme",
            "http or https",
        ),
        row(
            routes("http", "{redirect: {port: 0}}"),
            "frontends[0].routes[0].redirect.port",
            "0 is out of range",
            "1 to 65535",
        ),
        row(
            routes("http", "{redirect: {host: '*.a.org'}}"),
            "frontends[0].routes[0].redirect.host",
            "is not one host",
            "without *",
        ),
    ]);
}

#[test]
fn routes_that_stay_closed() {
    hold(vec![
        row(
            routes("http", "{service: s, passthrough: true}"),
            "frontends[0].routes[0].passthrough",
            "nothing to leave unopened",
            "https or tls",
        ),
        row(
            routes("http", "{service: s, alpn: [h2]}"),
            "frontends[0].routes[0].alpn",
            "relayed unopened",
            "passthrough",
        ),
        row(
            routes("https", "{host: a.org, service: s, alpn: [h2]}"),
            "frontends[0].routes[0].alpn",
            "relayed unopened",
            "passthrough",
        ),
        row(
            routes(
                "https",
                "{host: a.org, path: /x, service: s, passthrough: true}",
            ),
            "frontends[0].routes[0].path",
            "unopened has no path",
            "protocol: https",
        ),
        row(
            routes("tls", "{host: a.org, rewrite: /, service: s}"),
            "frontends[0].routes[0].rewrite",
            "unopened has no rewrite",
            "protocol: https",
        ),
        row(
            routes("tls", "{match: exact, service: s}"),
            "frontends[0].routes[0].match",
            "unopened has no match",
            "protocol: https",
        ),
        row(
            routes("tls", "{ignore-case: true, service: s}"),
            "frontends[0].routes[0].ignore-case",
            "unopened has no ignore-case",
            "protocol: https",
        ),
        row(
            routes("tls", "{map-back: true, service: s}"),
            "frontends[0].routes[0].map-back",
            "unopened has no map-back",
            "protocol: https",
        ),
        row(
            routes("tls", "{host: a.org, status: 404}"),
            "frontends[0].routes[0].status",
            "unopened has no status",
            "protocol: https",
        ),
        row(
            frontend("tls", "default: {redirect: {scheme: https}}"),
            "frontends[0].default.redirect",
            "unopened has no redirect",
            "protocol: https",
        ),
        row(
            routes(
                "https",
                "{host: a.org, path: /x, service: s}, {host: A.org., service: s, passthrough: true}",
            ),
            "frontends[0].routes[0]",
            "frontends[0].routes[1] relays the connections of the same host unopened",
            "passthrough",
        ),
    ]);
    good(&routes(
        "https",
        "{host: a.org, service: s}, {host: a.org, alpn: [h2], service: s, passthrough: true}",
    ));
    good(&routes(
        "tls",
        "{host: a.org, service: s, passthrough: true}",
    ));
}

#[test]
fn no_two_routes_are_for_the_same_requests() {
    let equal = |first: &str, second: &str| {
        let rows = vec![row(
            routes(
                "http",
                &format!("{{{first}, service: s}}, {{{second}, service: other}}"),
            ),
            "frontends[0].routes[1]",
            "is for the same requests as frontends[0].routes[0]",
            "keep one of them",
        )];
        hold(rows);
    };
    equal(
        "when: {method: [GET, PUT], headers: [{name: A, value: '1'}, {name: b, present: true}], query: [{name: v, value: '1'}, {name: w, value: ''}]}",
        "when: {query: [{name: w, value: ''}, {name: v, value: '1'}], headers: [{name: B, present: true}, {name: a, value: ' 1'}], method: [PUT, GET]}",
    );
    equal("host: a.org", "host: A.ORG.");
    equal("host: '*.a.org', path: /", "host: '*.a.org'");
    equal("match: begins", "path: /");
    equal("path: /A, ignore-case: true", "path: /a, ignore-case: true");
    equal("match: exact", "match: exact, ignore-case: true");
    hold(vec![
        row(
            frontend("http", "routes: [{service: s}], default: {status: 404}"),
            "frontends[0].default",
            "as frontends[0].routes[0]",
            "keep one",
        ),
        row(
            routes(
                "tls",
                "{alpn: [a, b], service: s}, {alpn: [b, a], service: other}",
            ),
            "frontends[0].routes[1]",
            "same requests",
            "keep one",
        ),
        row(
            frontend("http", "default: {host: a.org, service: s}"),
            "frontends[0].default.host",
            "for any host",
            "routes",
        ),
        row(
            frontend("http", "default: {path: /, service: s}"),
            "frontends[0].default.path",
            "for any path",
            "routes",
        ),
    ]);
    good(&routes(
        "http",
        "{service: s}, {when: {method: [GET]}, service: s}, {when: {method: [get]}, service: s}, {when: {headers: [{name: a, value: x}]}, service: s}, {when: {headers: [{name: a, value: X}]}, service: s}, {when: {headers: [{name: a, prefix: x}]}, service: s}, {when: {query: [{name: a, value: x}]}, service: s}, {when: {query: [{name: A, value: x}]}, service: s}",
    ));
    good(&routes(
        "http",
        "{host: a.org, service: s}, {host: '*.a.org', service: s}, {service: s}",
    ));
    good(&routes(
        "http",
        "{path: /a, service: s}, {path: /a, match: exact, service: s}, {path: /a, match: begins, service: s}",
    ));
    good(&routes(
        "http",
        "{path: /a, service: s}, {path: /a, ignore-case: true, service: s}, {path: /A, service: s}",
    ));
}
