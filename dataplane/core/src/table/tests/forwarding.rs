//! One row for each rule of what routes ask for, of backends, and of what is changed on the way.

use super::super::{Http2, OrMap, Size};
use super::{frontend, good, hold, https, row, service};

/// An http frontend with one route that has these fields, beside its path.
fn route(fields: &str) -> String {
    frontend("http", &format!("routes: [{{path: /x, {fields}}}]"))
}

/// A route to the service `s`.
fn to_s(fields: &str) -> String {
    route(&format!("service: s, {fields}"))
}

#[test]
fn rules_of_what_a_route_asks_for() {
    let when = |fields: &str| to_s(&format!("when: {{{fields}}}"));
    let header = |fields: &str| when(&format!("headers: [{{name: X-A, {fields}}}]"));
    hold(vec![
        row(
            when(""),
            "frontends[0].routes[0].when",
            "asks for nothing",
            "add method",
        ),
        row(
            when("method: [GET, PUT, GET]"),
            "frontends[0].routes[0].when.method[2]",
            "GET stands here twice",
            "keep one",
        ),
        row(
            when("method: ['G T']"),
            "frontends[0].routes[0].when.method[0]",
            "is not an HTTP token",
            "letters",
        ),
        row(
            when("headers: [{name: X-A}]"),
            "frontends[0].routes[0].when.headers[0]",
            "asks for nothing",
            "exactly one of value, prefix, present: true and absent: true",
        ),
        row(
            header("present: false"),
            "frontends[0].routes[0].when.headers[0]",
            "asks for nothing",
            "absent: true",
        ),
        row(
            header("value: x, absent: true"),
            "frontends[0].routes[0].when.headers[0]",
            "has value and absent at once",
            "exactly one",
        ),
        row(
            header("present: 'yes'"),
            "frontends[0].routes[0].when.headers[0].present",
            "\"yes\" is a text, not true or false",
            "without quotes",
        ),
        row(
            header("prefix: ' '"),
            "frontends[0].routes[0].when.headers[0].prefix",
            "begins with nothing",
            "present: true",
        ),
        row(
            header("regex: x.*, value: x"),
            "frontends[0].routes[0].when.headers[0].regex",
            "is not a known key",
            "known keys are",
        ),
        row(
            when("headers: [{name: Host, value: a.org}]"),
            "frontends[0].routes[0].when.headers[0].name",
            "not matched as a field",
            "use host",
        ),
        row(
            when(
                "headers: [{name: a, value: x}, {name: b, present: true}, {name: A, value: ' x'}]",
            ),
            "frontends[0].routes[0].when.headers[2]",
            "the same as headers[0]",
            "keep one",
        ),
        row(
            when("query: [{name: v}]"),
            "frontends[0].routes[0].when.query[0]",
            "value is missing",
            "add value",
        ),
        row(
            when("query: [{name: v, value: '1'}, {name: v, value: '2'}]"),
            "frontends[0].routes[0].when.query[1].name",
            "the name of query[0] already",
            "the first one counts",
        ),
        row(
            when("query: [{name: 'a=b', value: '1'}]"),
            "frontends[0].routes[0].when.query[0].name",
            "is not the name of a parameter",
            "as they are sent",
        ),
        row(
            when("query: [{name: v, value: 'a b'}]"),
            "frontends[0].routes[0].when.query[0].value",
            "is not the value of a parameter",
            "%20",
        ),
        row(
            frontend("http", "default: {service: s, when: {method: [GET]}}"),
            "frontends[0].default.when",
            "for any request",
            "one of routes",
        ),
        row(
            frontend(
                "tls",
                "routes: [{host: a.org, service: s, when: {method: [GET]}}]",
            ),
            "frontends[0].routes[0].when",
            "unopened has no when",
            "protocol: https",
        ),
    ]);
    good(&when(
        "method: [get], headers: [{name: a, value: ''}, {name: a, prefix: x}, {name: A, absent: true}], query: [{name: v, value: ''}, {name: V, value: 'a=b'}]",
    ));
}

#[test]
fn rules_of_backends() {
    let list = |list: &str| route(&format!("backends: [{list}]"));
    hold(vec![
        row(
            list("{service: s}, {service: other}, {service: s}"),
            "frontends[0].routes[0].backends[2].service",
            "s stands here twice",
            "larger share",
        ),
        row(
            list("{service: s, weight: 0}, {service: other, weight: 0}"),
            "frontends[0].routes[0].backends",
            "every weight is 0",
            "1 or more",
        ),
        row(
            list("{service: s, weight: 0}"),
            "frontends[0].routes[0].backends",
            "every weight is 0",
            "1 or more",
        ),
        row(
            list("{service: s, weight: 1000001}"),
            "frontends[0].routes[0].backends[0].weight",
            "1000001 is out of range",
            "0 to 1000000",
        ),
        row(
            list("{weight: 1}"),
            "frontends[0].routes[0].backends[0]",
            "service is missing",
            "add service",
        ),
        row(
            list("{service: s}, {service: nobody}"),
            "frontends[0].routes[0].backends[1].service",
            "there is no service \"nobody\"",
            "add a service",
        ),
        row(
            list(""),
            "frontends[0].routes[0].backends",
            "this list is empty",
            "leave the key out",
        ),
        row(
            to_s("backends: [{service: other}]"),
            "frontends[0].routes[0]",
            "has service and backends at once",
            "exactly one",
        ),
        row(
            route("status: 200, backends: [{service: s}]"),
            "frontends[0].routes[0]",
            "has backends and status at once",
            "exactly one",
        ),
        row(
            list("{service: s, request-headers: {remove: [Connection]}}"),
            "frontends[0].routes[0].backends[0].request-headers.remove[0]",
            "Ballast's own",
            "remove it",
        ),
        row(
            frontend("tcp", "service: s, backends: [{service: other}]"),
            "frontends[0]",
            "has service and backends at once",
            "keep one",
        ),
        row(
            frontend("udp", "backends: [{service: s, weight: 0}]"),
            "frontends[0].backends",
            "every weight is 0",
            "1 or more",
        ),
        row(
            frontend("tcp", "backends: [{service: nobody}]"),
            "frontends[0].backends[0].service",
            "there is no service \"nobody\"",
            "add a service",
        ),
        row(
            frontend(
                "udp",
                "backends: [{service: s, request-headers: {set: {A: b}}}]",
            ),
            "frontends[0].backends[0].request-headers",
            "protocol udp has no request-headers",
            "remove it",
        ),
        row(
            frontend(
                "tls",
                "default: {backends: [{service: s, response-headers: {set: {A: b}}}]}",
            ),
            "frontends[0].default.backends[0].response-headers",
            "unopened has no response-headers",
            "remove it",
        ),
        row(
            frontend("http", "backends: [{service: s}]"),
            "frontends[0].backends",
            "protocol http has no backends",
            "default: {backends",
        ),
        row(
            frontend("tcp", "backends: [{service: s}]")
                .replace("{name: s}", "{name: s, affinity: {cookie: A}}"),
            "services[0].affinity.cookie",
            "without reading HTTP",
            "client-ip",
        ),
        row(
            frontend("udp", "backends: [{service: other}, {service: s}]")
                .replace("{name: s}", "{name: s, send-proxy: v1}"),
            "services[0].send-proxy",
            "v1 knows no datagrams",
            "v2",
        ),
    ]);
    good(&list(
        "{service: s, weight: 1000000}, {service: other, weight: 0}",
    ));
    good(&frontend(
        "tcp",
        "backends: [{service: s, weight: 3}, {service: other}]",
    ));
    good(&frontend("udp", "backends: [{service: s}]"));
    good(&frontend(
        "tls",
        "routes: [{host: a.org, backends: [{service: s}, {service: other}]}], default: {backends: [{service: s}]}",
    ));
    good(&https(
        "routes: [{host: a.org, passthrough: true, backends: [{service: s}]}]",
    ));
}

#[test]
fn rules_of_edits() {
    let edits = |fields: &str| to_s(&format!("request-headers: {{{fields}}}"));
    hold(vec![
        row(
            edits("add: {Content-Length: '1'}"),
            "frontends[0].routes[0].request-headers.add.Content-Length",
            "Ballast's own",
            "remove it",
        ),
        row(
            edits("set: {transfer-encoding: x}"),
            "frontends[0].routes[0].request-headers.set.transfer-encoding",
            "Ballast's own",
            "remove it",
        ),
        row(
            to_s("response-headers: {remove: [Connection]}"),
            "frontends[0].routes[0].response-headers.remove[0]",
            "Ballast's own",
            "remove it",
        ),
        row(
            edits("add: {X: a, x: b}"),
            "frontends[0].routes[0].request-headers.add.x",
            "x stands at frontends[0].routes[0].request-headers.add.X already",
            "keep one",
        ),
        row(
            edits("add: {host: a.org}"),
            "frontends[0].routes[0].request-headers.add.host",
            "one host",
            "use set",
        ),
        row(
            service("http: {response-headers: {add: {Upgrade: x}}}"),
            "services[0].http.response-headers.add.Upgrade",
            "Ballast's own",
            "remove it",
        ),
        row(
            route("status: 200, request-headers: {set: {A: b}}"),
            "frontends[0].routes[0].request-headers",
            "changes what a service gets",
            "add service",
        ),
        row(
            route("redirect: {scheme: https}, response-headers: {set: {Connection: b}}"),
            "frontends[0].routes[0].response-headers.set.Connection",
            "Ballast's own",
            "remove it",
        ),
        row(
            frontend("http", "http: {response-headers: {set: {Connection: b}}}"),
            "frontends[0].http.response-headers.set.Connection",
            "Ballast's own",
            "remove it",
        ),
        row(
            frontend(
                "tls",
                "routes: [{host: a.org, service: s, request-headers: {set: {A: b}}}]",
            ),
            "frontends[0].routes[0].request-headers",
            "unopened has no request-headers",
            "protocol: https",
        ),
    ]);
    good(&edits("remove: [X], add: {X: a}"));
    good(&edits("set: {X: a, Host: a.org}, add: {x: b}, remove: [Y]"));
    good(&edits(""));
}

#[test]
fn rules_of_other_fields_of_routes() {
    hold(vec![
        row(
            to_s("rewrite: {}"),
            "frontends[0].routes[0].rewrite",
            "changes nothing",
            "add prefix, path or host",
        ),
        row(
            to_s("rewrite: {prefix: /, path: /y}"),
            "frontends[0].routes[0].rewrite",
            "has prefix and path at once",
            "keep prefix",
        ),
        row(
            to_s("rewrite: {host: '*.a.org'}"),
            "frontends[0].routes[0].rewrite.host",
            "is not one host",
            "without *",
        ),
        row(
            to_s("rewrite: {host: 'a.org:80'}"),
            "frontends[0].routes[0].rewrite.host",
            "is not a host",
            "without a port",
        ),
        row(
            to_s("rewrite: x"),
            "frontends[0].routes[0].rewrite",
            "\"x\" is not a path",
            "such as /shop, or {KEY: VALUE, …}",
        ),
        row(
            to_s("rewrite: 5"),
            "frontends[0].routes[0].rewrite",
            "5 is a number, not a path",
            ", or {KEY: VALUE, …}",
        ),
        row(
            route("redirect: {prefix: /a, path: /b}"),
            "frontends[0].routes[0].redirect",
            "has prefix and path at once",
            "keep prefix",
        ),
        row(
            to_s("timeout: 25d"),
            "frontends[0].routes[0].timeout",
            "out of range",
            "24d",
        ),
        row(
            route("status: 200, timeout: 1s"),
            "frontends[0].routes[0].timeout",
            "how long a service takes",
            "add service",
        ),
        row(
            frontend("tls", "routes: [{host: a.org, service: s, timeout: 1s}]"),
            "frontends[0].routes[0].timeout",
            "unopened has no timeout",
            "protocol: https",
        ),
        row(
            frontend(
                "http",
                "routes: [{path: /x, name: a, service: s}], default: {name: a, service: s}",
            ),
            "frontends[0].default.name",
            "\"a\" is the name of frontends[0].routes[0] already",
            "a name of its own",
        ),
        row(
            to_s("name: 'a b'"),
            "frontends[0].routes[0].name",
            "is not a name",
            "letters",
        ),
    ]);
    good(&to_s("rewrite: {host: a.org}, timeout: 1ms, name: a"));
    good(&route("redirect: {prefix: /a}"));
    good(&frontend(
        "tls",
        "routes: [{host: a.org, name: a, service: s}]",
    ));
    // Each frontend has names of its own.
    let one = |n: u8| {
        format!(
            "{{name: f{n}, bind: ['*:{n}'], protocol: http, routes: [{{name: a, status: 200}}]}}"
        )
    };
    good(&super::table(&format!("{}, {}", one(1), one(2)), ""));
}

#[test]
fn a_short_form_means_the_same_as_its_map() {
    let table = |rewrite: &str| good(&to_s(&format!("rewrite: {rewrite}")));
    let of = |rewrite: &str| table(rewrite).frontends[0].routes[0].rewrite().unwrap();
    assert_eq!(of("/y"), of("{prefix: /y}"));
    assert_ne!(of("/y"), of("{path: /y}"));
    assert!(table("{host: a.org}").frontends[0].routes[0].maps_back());
}

#[test]
fn http2_is_on_off_or_limited() {
    let of = |http2: &str| {
        let table = good(&frontend(
            "http",
            &format!("http: {{http2: {http2}}}, default: {{service: s}}"),
        ));
        table.frontends[0].http().http2()
    };
    let limits = |streams, memory| Some(Http2 { streams, memory });
    assert_eq!(of("true"), limits(100, Size::kib(1024)));
    assert_eq!(of("{}"), of("true"));
    assert_eq!(of("false"), None);
    assert_eq!(of("{streams: 1000}"), limits(1000, Size::kib(1024)));
    assert_eq!(of("{memory: 64KiB}"), limits(100, Size::kib(64)));
    assert_eq!(
        good(&frontend("http", "default: {service: s}")).frontends[0]
            .http()
            .http2,
        OrMap::Value(true)
    );
    let http2 = |http2: &str| {
        frontend(
            "http",
            &format!("http: {{http2: {http2}}}, default: {{service: s}}"),
        )
    };
    hold(vec![
        row(
            http2("{streams: 0}"),
            "frontends[0].http.http2.streams",
            "0 is out of range",
            "1 to 1000",
        ),
        row(
            http2("{streams: 1001}"),
            "frontends[0].http.http2.streams",
            "1001 is out of range",
            "1 to 1000",
        ),
        row(
            http2("{memory: 63KiB}"),
            "frontends[0].http.http2.memory",
            "63KiB is out of range",
            "64KiB at least",
        ),
        row(
            http2("{windows: 1}"),
            "frontends[0].http.http2.windows",
            "is not a known key",
            "memory, streams",
        ),
        row(
            http2("'on'"),
            "frontends[0].http.http2",
            "\"on\" is a text, not true or false",
            "without quotes, or {KEY: VALUE, …}",
        ),
        row(
            https("http: {http2: false}, tls: {certificates: [{cert: c}], alpn: [h2]}, default: {service: s}")
                .replacen("tls: {certificates: [{cert: c}]}, ", "", 1),
            "frontends[0].tls.alpn[0]",
            "http.http2 is false",
            "http2: true",
        ),
    ]);
    good(
        &https("http: {http2: {streams: 10}}, tls: {certificates: [{cert: c}], alpn: [h2]}, default: {service: s}")
            .replacen("tls: {certificates: [{cert: c}]}, ", "", 1),
    );
}
