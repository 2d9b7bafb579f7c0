//! One row for each rule of meaning and range.

use super::{Row, endpoint, frontend, good, hold, problems_of, row, service, table};

const TWO: &str = "{name: a, bind: ['*:1'], protocol: tcp, service: s}, {name: b, ";

fn two(rest: &str) -> String {
    table(&format!("{TWO}{rest}}}"), "{name: s}")
}

fn https(fields: &str) -> String {
    frontend(
        "https",
        &format!("tls: {{certificates: [{{cert: c}}]}}, {fields}"),
    )
}

fn routes(protocol: &str, routes: &str) -> String {
    match protocol {
        "https" => https(&format!("routes: [{routes}]")),
        _ => frontend(protocol, &format!("routes: [{routes}]")),
    }
}

#[test]
fn versions() {
    hold(vec![
        row(
            "version: 2".to_owned(),
            "version",
            "2 is newer than this ballast knows",
            "expected 1",
        ),
        row(
            "version: 0".to_owned(),
            "version",
            "0 is no version",
            "expected 1",
        ),
        row(
            "frontends: []".to_owned(),
            "",
            "version is missing",
            "add version",
        ),
    ]);
}

#[test]
fn the_admin_side_and_access_lines() {
    let stats = |fields: &str| format!("{{version: 1, stats: {{{fields}}}}}");
    let log = |fields: &str| format!("{{version: 1, log: {{{fields}}}}}");
    hold(vec![
        row(stats("bind: []"), "stats.bind", "this list is empty", "leave the key out"),
        row(stats("bind: '127.0.0.1:1'"), "stats.bind", "\"127.0.0.1:1\" is a text, not a list", "[ITEM, …]"),
        row(stats("bind: ['127.0.0.1:1', '127.0.0.1:1']"), "stats.bind[1]", "taken already by stats.bind[0]", "own"),
        row(stats("bind: ['*:1'], healthz: ['0.0.0.0:1']"), "stats.healthz[0]", "taken already by stats.bind[0]", "own"),
        row(stats("healthz: []"), "stats.healthz", "this list is empty", "or off"),
        row(stats("healthz: on"), "stats.healthz", "\"on\" is a text, not a list", "or off"),
        row(log("access: clf"), "log.access", "\"clf\" is not a form of access lines", "off, haproxy, json"),
        row(log("to: [file]"), "log.to[0]", "is not a place for access lines", "stdout, unix:PATH or udp:IP:PORT"),
        row(log("to: [udp:loghost:514]"), "log.to[0]", "is a name, not an address", "udp:IP:PORT"),
        row(log("to: []"), "log.to", "this list is empty", "leave the key out"),
        row(log("to: [stdout, stdout]"), "log.to[1]", "twice", "keep one"),
        row(
            "{version: 1, stats: {bind: ['*:80']}, frontends: [{name: f, bind: ['0.0.0.0:80'], protocol: tcp, service: s}], services: [{name: s}]}".to_owned(),
            "frontends[0].bind[0]",
            "0.0.0.0:80 is taken already by stats.bind[0]",
            "a port of its own",
        ),
    ]);
    good(
        "{version: 1, stats: {bind: ['*:80']}, frontends: [{name: f, bind: ['*:80'], protocol: udp, service: s}], services: [{name: s}]}",
    );
    good(
        "{version: 1, frontends: [{name: f, bind: ['127.0.0.1:1936'], protocol: tcp, service: s}], services: [{name: s}]}",
    );
}

#[test]
fn names_and_addresses_stand_once() {
    hold(vec![
        row(
            two("bind: ['*:2'], protocol: tcp, service: s").replace("name: b", "name: a"),
            "frontends[1].name",
            "\"a\" is the name of frontends[0] already",
            "name of its own",
        ),
        row(
            table("", "{name: s}, {name: s}"),
            "services[1].name",
            "\"s\" is the name of services[0] already",
            "name of its own",
        ),
        row(
            two("bind: ['0.0.0.0:1'], protocol: tcp, service: s"),
            "frontends[1].bind[0]",
            "taken already by frontends[0].bind[0] of frontend \"a\"",
            "port of its own",
        ),
        row(
            two("bind: ['[::]:1'], protocol: http"),
            "frontends[1].bind[0]",
            "[::]:1 is taken already",
            "port of its own",
        ),
        row(
            two("bind: ['*:1'], protocol: tls"),
            "frontends[1].bind[0]",
            "*:1 is taken already",
            "port of its own",
        ),
        row(
            two("bind: ['*:2', '10.0.0.1:2', '[::]:2'], protocol: tls"),
            "frontends[1].bind[2]",
            "frontends[1].bind[0] of frontend \"b\"",
            "port of its own",
        ),
        row(
            two("bind: ['10.0.0.1:2', '[::ffff:10.0.0.1]:2'], protocol: tls"),
            "frontends[1].bind[1]",
            "10.0.0.1:2 is taken already",
            "port of its own",
        ),
        row(
            service("endpoints: [{address: '10.0.0.1:1'}, {address: '[::ffff:10.0.0.1]:1'}]"),
            "services[0].endpoints[1].address",
            "10.0.0.1:1 is the address of endpoints[0] already",
            "weight",
        ),
        row(
            service(
                "endpoints: [{address: '10.0.0.1:1', name: a}, {address: '10.0.0.1:2', name: a}]",
            ),
            "services[0].endpoints[1].name",
            "\"a\" is the name of endpoints[0] already",
            "name of its own",
        ),
        row(
            service(
                "endpoints: [{address: '10.0.0.1:1'}, {address: '10.0.0.1:2', name: '10.0.0.1:1'}]",
            ),
            "services[0].endpoints[1].name",
            "endpoints[0] has no name and is shown as 10.0.0.1:1",
            "another name",
        ),
    ]);
    good(&two(
        "bind: ['10.0.0.1:1', '[2001:db8::1]:1'], protocol: tcp, service: s",
    ));
    good(&two("bind: ['*:1'], protocol: udp, service: s"));
    good(&two(
        "bind: ['127.0.0.1:0', '127.0.0.1:0', '*:0'], protocol: tcp, service: s",
    ));
    good(&service(
        "endpoints: [{address: '10.0.0.1:1', name: '10.0.0.1:1'}]",
    ));
}

#[test]
fn duplicates_are_found_among_many_endpoints_too() {
    let endpoints: Vec<String> = (0..40)
        .map(|index| {
            format!(
                "{{address: '10.0.0.{}:1', name: n{}}}",
                index % 39,
                index % 38
            )
        })
        .collect();
    let problems = problems_of(&service(&format!("endpoints: [{}]", endpoints.join(","))));
    let places: Vec<&str> = problems.iter().map(|problem| problem.at.as_str()).collect();
    assert_eq!(
        places,
        [
            "services[0].endpoints[38].name",
            "services[0].endpoints[39].address",
            "services[0].endpoints[39].name"
        ]
    );
}

#[test]
fn what_is_required_is_missed_at_its_parent() {
    hold(vec![
        row(
            table("{bind: ['*:80'], protocol: http}", ""),
            "frontends[0]",
            "name is missing",
            "add name",
        ),
        row(
            table("{name: f, protocol: http}", ""),
            "frontends[0]",
            "bind is missing",
            "add bind",
        ),
        row(
            table("{name: f, bind: ['*:80']}", ""),
            "frontends[0]",
            "protocol is missing",
            "add protocol",
        ),
        row(
            frontend("tcp", ""),
            "frontends[0]",
            "service is missing",
            "a tcp frontend leads to one service",
        ),
        row(
            frontend("udp", ""),
            "frontends[0]",
            "service is missing",
            "a udp frontend leads to one service",
        ),
        row(
            frontend("https", ""),
            "frontends[0]",
            "tls is missing",
            "certificates",
        ),
        row(
            frontend("https", "tls: {}"),
            "frontends[0].tls",
            "certificates is missing",
            "add certificates",
        ),
        row(
            frontend("https", "tls: {certificates: [{key: k}]}"),
            "frontends[0].tls.certificates[0]",
            "cert is missing",
            "add cert",
        ),
        row(
            frontend("http", "accept-proxy: {}"),
            "frontends[0].accept-proxy",
            "from is missing",
            "add from",
        ),
        row(
            frontend(
                "tcp",
                "service: s, tls: {certificates: [{cert: c}], client-auth: {mode: optional}}",
            ),
            "frontends[0].tls.client-auth",
            "ca is missing",
            "add ca",
        ),
        row(
            table("", "{endpoints: []}"),
            "services[0]",
            "name is missing",
            "add name",
        ),
        row(
            service("health: {port: 80}"),
            "services[0].health",
            "mode is missing",
            "add mode",
        ),
        row(
            endpoint("weight: 1"),
            "services[0].endpoints[0]",
            "address is missing",
            "add address",
        ),
    ]);
}

#[test]
fn fields_of_another_protocol() {
    let rows = |protocol: &str, fields: &[(&str, &'static str, &'static str)]| -> Vec<Row> {
        let base = if matches!(protocol, "tcp" | "udp") {
            "service: s, "
        } else {
            ""
        };
        fields
            .iter()
            .map(|(text, at, why)| row(frontend(protocol, &format!("{base}{text}")), at, why, ""))
            .collect()
    };
    hold(rows(
        "tcp",
        &[
            ("udp: {}", "frontends[0].udp", "protocol tcp has no udp"),
            ("http: {}", "frontends[0].http", "protocol tcp has no http"),
            (
                "routes: [{service: s}]",
                "frontends[0].routes",
                "protocol tcp has no routes",
            ),
            (
                "default: {service: s}",
                "frontends[0].default",
                "protocol tcp has no default",
            ),
            (
                "errors: {503: e}",
                "frontends[0].errors",
                "protocol tcp has no errors",
            ),
        ],
    ));
    hold(rows(
        "udp",
        &[
            (
                "tls: {certificates: [{cert: c}]}",
                "frontends[0].tls",
                "protocol udp has no tls",
            ),
            (
                "default: {service: s}",
                "frontends[0].default",
                "protocol udp has no default",
            ),
        ],
    ));
    hold(rows(
        "http",
        &[
            (
                "service: s",
                "frontends[0].service",
                "protocol http has no service",
            ),
            ("udp: {}", "frontends[0].udp", "protocol http has no udp"),
            (
                "tls: {certificates: [{cert: c}]}",
                "frontends[0].tls",
                "protocol http has no tls",
            ),
        ],
    ));
    hold(rows(
        "tls",
        &[
            (
                "service: s",
                "frontends[0].service",
                "protocol tls has no service",
            ),
            (
                "tls: {certificates: [{cert: c}]}",
                "frontends[0].tls",
                "passes TLS on unopened",
            ),
            ("http: {}", "frontends[0].http", "protocol tls has no http"),
            (
                "errors: {503: e}",
                "frontends[0].errors",
                "protocol tls has no errors",
            ),
        ],
    ));
    hold(vec![row(
        https("service: s"),
        "frontends[0].service",
        "protocol https has no service",
        "default: {service: NAME}",
    )]);
    good(&frontend(
        "tcp",
        "service: s, timeouts: {request: 1s, keep-alive: 1s, idle: 1s}",
    ));
    good(&frontend(
        "tcp",
        "service: s, tls: {certificates: [{cert: c}], alpn: [imap]}",
    ));
    good(&https("errors: {503: e}, default: {service: s}"));
}

#[test]
fn other_rules_of_frontends() {
    let labels: Vec<String> = (0..9).map(|index| format!("k{index}: v")).collect();
    let tls = |fields: &str| {
        frontend(
            "https",
            &format!("tls: {{certificates: [{{cert: c}}], {fields}}}"),
        )
    };
    hold(vec![
        row(
            frontend("http", &format!("labels: {{{}}}", labels.join(","))),
            "frontends[0].labels",
            "9 labels are too many",
            "at most 8",
        ),
        row(
            frontend("http", "labels: {a-b: c}"),
            "frontends[0].labels.a-b",
            "\"a-b\" is not the key of a label",
            "[a-zA-Z_][a-zA-Z0-9_]*",
        ),
        row(
            frontend("http", "labels: {a: 1}"),
            "frontends[0].labels.a",
            "1 is a number, not a line of text",
            "in quotes",
        ),
        row(
            frontend("http", "http: {hsts: 180d}"),
            "frontends[0].http.hsts",
            "browsers ignore hsts",
            "https",
        ),
        row(
            frontend("http", "http: {max-header-bytes: 17MiB}"),
            "frontends[0].http.max-header-bytes",
            "17MiB is out of range",
            "1KiB to 16MiB",
        ),
        row(
            frontend("http", "http: {max-headers: 0}"),
            "frontends[0].http.max-headers",
            "0 is out of range",
            "1 to 10000",
        ),
        row(
            tls("alpn: [h3]"),
            "frontends[0].tls.alpn[0]",
            "does not speak \"h3\"",
            "h2 or http/1.1",
        ),
        row(
            https("http: {http2: false}").replace("{cert: c}]", "{cert: c}], alpn: [http/1.1, h2]"),
            "frontends[0].tls.alpn[1]",
            "http.http2 is false",
            "http.http2: true",
        ),
        row(
            frontend(
                "udp",
                "service: s, accept-proxy: {from: [10.0.0.0/8], versions: [v1]}",
            ),
            "frontends[0].accept-proxy.versions",
            "no datagrams",
            "v2",
        ),
        row(
            frontend("tcp", "service: mysq"),
            "frontends[0].service",
            "there is no service \"mysq\"",
            "add a service of that name",
        ),
        row(
            frontend("tcp", "service: ohter"),
            "frontends[0].service",
            "there is no service \"ohter\"",
            "did you mean other?",
        ),
        row(
            routes("http", "{path: /x, service: othe}"),
            "frontends[0].routes[0].service",
            "there is no service",
            "did you mean other?",
        ),
        row(
            frontend("tls", "default: {service: othe}"),
            "frontends[0].default.service",
            "there is no service",
            "did you mean other?",
        ),
        row(
            frontend("http", "errors: {200: e}"),
            "frontends[0].errors.200",
            "\"200\" is not the status of an error",
            "400 to 599",
        ),
    ]);
    good(&frontend(
        "udp",
        "service: s, accept-proxy: {from: [10.0.0.0/8]}",
    ));
    good(&https("http: {hsts: 3650d}"));
}

#[test]
fn limits_of_zero_are_not_unlimited() {
    let limits = [
        "max-connections",
        "max-connection-rate",
        "max-connections-per-client",
        "max-connection-rate-per-client",
    ];
    for limit in limits {
        let problems = problems_of(&frontend("tcp", &format!("service: s, {limit}: 0")));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].at, format!("frontends[0].{limit}"));
        assert!(problems[0].why.contains("0 does not mean unlimited"));
        assert!(problems[0].remedy.contains("leave the key out"));
    }
    hold(vec![
        row(
            frontend("udp", "service: s, udp: {requests: 0}"),
            "frontends[0].udp.requests",
            "0 does not mean unlimited",
            "leave the key out",
        ),
        row(
            service("max-queue: 0"),
            "services[0].max-queue",
            "0 does not mean unlimited",
            "or off",
        ),
        row(
            endpoint("address: '10.0.0.1:1', max-connections: 0"),
            "services[0].endpoints[0].max-connections",
            "0 does not mean unlimited",
            "1 to",
        ),
        row(
            endpoint("address: '10.0.0.1:1', max-connections: -1"),
            "services[0].endpoints[0].max-connections",
            "-1 is out of range",
            "expected 1 to 4294967295",
        ),
    ]);
    good(&service("retries: 0, max-queue: off"));
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

#[test]
fn services_suit_their_frontends() {
    let behind = |protocol: &str, rest: &str, fields: &str| {
        table(
            &format!("{{name: f, bind: ['*:80'], protocol: {protocol}, {rest}}}"),
            &format!("{{name: s, {fields}}}"),
        )
    };
    let cookie = "affinity: {cookie: ID}";
    hold(vec![
        row(
            behind("tcp", "service: s", cookie),
            "services[0].affinity.cookie",
            "frontends[0] (\"f\") relays to this service without reading HTTP",
            "client-ip",
        ),
        row(
            behind("udp", "service: s", cookie),
            "services[0].affinity.cookie",
            "without reading HTTP",
            "client-ip",
        ),
        row(
            behind("tls", "default: {service: s}", cookie),
            "services[0].affinity.cookie",
            "without reading HTTP",
            "client-ip",
        ),
        row(
            behind("udp", "service: s", "send-proxy: v1"),
            "services[0].send-proxy",
            "v1 knows no datagrams, and frontends[0] (\"f\") is udp",
            "v2",
        ),
    ]);
    good(&behind("http", "default: {service: s}", cookie));
    good(&behind(
        "tcp",
        "service: s",
        "send-proxy: v1, http: {version: h2}, send-proxy-udp: first",
    ));
    good(&behind("udp", "service: s", "send-proxy: v2"));
    good(&service("affinity: {cookie: ID}, send-proxy: v1"));
}

#[test]
fn rules_of_services() {
    let tls = |fields: &str| service(&format!("tls: {{{fields}}}"));
    let headers = |fields: &str| service(&format!("http: {{request-headers: {{{fields}}}}}"));
    hold(vec![
        row(
            service("algorithm: roundrobin"),
            "services[0].algorithm",
            "\"roundrobin\" is not an algorithm",
            "did you mean round-robin?",
        ),
        row(
            service("affinity: {}"),
            "services[0].affinity",
            "is not one way",
            "{cookie: NAME}",
        ),
        row(
            service("affinity: {client-ip: 3h, cookie: a}"),
            "services[0].affinity",
            "is not one way",
            "{client-ip: TIME}",
        ),
        row(
            service("affinity: {cookie: 'a b'}"),
            "services[0].affinity.cookie",
            "\"a b\" is not an HTTP token",
            "letters",
        ),
        row(
            service("affinity: 3h"),
            "services[0].affinity",
            "\"3h\" is a text, not a map",
            "{KEY: VALUE, …}",
        ),
        row(
            service("send-proxy: on"),
            "services[0].send-proxy",
            "\"on\" is not a PROXY header",
            "off, v1, v2",
        ),
        row(
            service("send-proxy-tlvs: []"),
            "services[0].send-proxy-tlvs",
            "this list is empty",
            "leave the key out",
        ),
        row(
            service("source: [localhost]"),
            "services[0].source[0]",
            "\"localhost\" is not an IP address",
            "without a port",
        ),
        row(
            service("source: ['10.0.0.1:80']"),
            "services[0].source[0]",
            "is not an IP address",
            "without a port",
        ),
        row(
            service("source: [0.0.0.0]"),
            "services[0].source[0]",
            "0.0.0.0 is no address",
            "of this node",
        ),
        row(
            service("source: [10.0.0.1, '::ffff:10.0.0.1']"),
            "services[0].source[1]",
            "10.0.0.1 stands here twice",
            "keep one",
        ),
        row(
            service("retries: 70000"),
            "services[0].retries",
            "70000 is out of range",
            "0 to 65535",
        ),
        row(
            service("ejection: {share: 0}"),
            "services[0].ejection.share",
            "0 is out of range",
            "1 to 100",
        ),
        row(
            service("ejection: {share: 101}"),
            "services[0].ejection.share",
            "101 is out of range",
            "1 to 100",
        ),
        row(
            service("ejection: {failures: 0}"),
            "services[0].ejection.failures",
            "0 is out of range",
            "1 to 1000",
        ),
        row(
            service("ejection: {first: 1m}"),
            "services[0].ejection",
            "first (1m) is above longest (30s)",
            "at most longest",
        ),
        row(
            service("ejection: on"),
            "services[0].ejection",
            "\"on\" is a text, not a map",
            "or off",
        ),
        row(
            tls("key: k"),
            "services[0].tls.key",
            "key of no certificate",
            "add cert",
        ),
        row(
            tls("insecure: true, ca: c"),
            "services[0].tls.ca",
            "verifies nothing",
            "remove",
        ),
        row(
            tls("insecure: yes"),
            "services[0].tls.insecure",
            "\"yes\" is a text, not true or false",
            "without quotes",
        ),
        row(
            tls("sni: 'a b'"),
            "services[0].tls.sni",
            "\"a b\" is not a DNS name",
            "shop.example.com",
        ),
        row(
            headers("set: {X: a, x: b}"),
            "services[0].http.request-headers.set.x",
            "x stands at services[0].http.request-headers.set.X already",
            "keep one",
        ),
        row(
            headers("set: {X: a}, remove: [x]"),
            "services[0].http.request-headers.remove[0]",
            "x stands at",
            "keep one",
        ),
        row(
            headers("remove: [Transfer-Encoding]"),
            "services[0].http.request-headers.remove[0]",
            "Ballast's own",
            "remove it",
        ),
        row(
            headers("set: {'X Y': a}"),
            "services[0].http.request-headers.set.X Y",
            "\"X Y\" is not an HTTP token",
            "letters",
        ),
        row(
            headers("set: {X: \"a\\r\\nB: c\"}"),
            "services[0].http.request-headers.set.X",
            "is not the value of a header",
            "without line ends",
        ),
        row(
            headers("remove: []"),
            "services[0].http.request-headers.remove",
            "this list is empty",
            "leave the key out",
        ),
    ]);
    good(&headers("set: {}"));
    good(&service("ejection: off"));
}

#[test]
fn rules_of_health() {
    let health = |fields: &str| service(&format!("health: {{mode: http, {fields}}}"));
    hold(vec![
        row(
            service("health: {mode: tls}"),
            "services[0].health.mode",
            "\"tls\" is not a mode of health",
            "off, tcp, http, https, udp",
        ),
        row(
            health("interval: 99ms"),
            "services[0].health.interval",
            "99ms is out of range",
            "100ms to 24d",
        ),
        row(
            health("fast-interval: 50ms"),
            "services[0].health.fast-interval",
            "50ms is out of range",
            "100ms to 24d",
        ),
        row(
            health("timeout: 3s"),
            "services[0].health.timeout",
            "3s is above the interval (2s)",
            "at most 2s",
        ),
        row(
            health("rise: 0"),
            "services[0].health.rise",
            "0 is out of range",
            "1 to 10",
        ),
        row(
            health("rise: 11"),
            "services[0].health.rise",
            "11 is out of range",
            "1 to 10",
        ),
        row(
            health("fall: 21"),
            "services[0].health.fall",
            "21 is out of range",
            "1 to 20",
        ),
        row(
            health("fall: 300"),
            "services[0].health.fall",
            "300 is out of range",
            "1 to 20",
        ),
        row(
            health("port: 0"),
            "services[0].health.port",
            "0 is out of range",
            "1 to 65535",
        ),
        row(
            health("expect: 200"),
            "services[0].health.expect",
            "200 is a number, not a list of statuses",
            "in quotes",
        ),
        row(
            health("expect: '399-200'"),
            "services[0].health.expect",
            "\"399-200\" is not a list of statuses",
            "from 100 to 599",
        ),
        row(
            health("expect: '600'"),
            "services[0].health.expect",
            "is not a list of statuses",
            "from 100 to 599",
        ),
        row(
            health("path: healthz"),
            "services[0].health.path",
            "\"healthz\" is not a path",
            "/healthz",
        ),
        row(
            health("host: ''"),
            "services[0].health.host",
            "is empty",
            "leave the key out",
        ),
        row(
            health("body: ''"),
            "services[0].health.body",
            "\"\" is not a text to look for",
            "not empty",
        ),
        row(
            health("method: 'GET /'"),
            "services[0].health.method",
            "is not an HTTP token",
            "letters",
        ),
        row(
            service("health: {mode: tcp, send: '\\q'}"),
            "services[0].health.send",
            "is not a payload",
            "\\xNN",
        ),
    ]);
    // As with another protocol: at a service it has no effect.
    good(&health("send: ping, answer: pong, tls: {ca: c}"));
    good(&service("health: {mode: tcp, path: /healthz, body: ok}"));
    let short = good(&health("interval: 500ms"));
    let checks = short.services[0].checks().unwrap();
    assert_eq!(checks.timeout().as_millis(), 500);
    assert_eq!(checks.fast_interval().as_millis(), 500);
    assert!(
        good(&service("health: {mode: off}")).services[0]
            .checks()
            .is_none()
    );
}

#[test]
fn rules_of_endpoints() {
    let at = |address: &str| endpoint(&format!("address: {address}"));
    let with = |fields: &str| endpoint(&format!("address: '10.0.0.1:1', {fields}"));
    const AT: &str = "services[0].endpoints[0].address";
    hold(vec![
        row(
            at("'10.0.0.300:80'"),
            AT,
            "\"10.0.0.300:80\" is not an address",
            "expected IP:PORT",
        ),
        row(
            at("db.example.com:80"),
            AT,
            "is a name, not an address",
            "`ballast import` and the controller resolve names",
        ),
        row(at("db"), AT, "is a name, not an address", "IP:PORT"),
        row(at("10.0.0.1"), AT, "has no port", "IP:PORT"),
        row(
            at("'10.0.0.1:http'"),
            AT,
            "has no port from 1 to 65535",
            "IP:PORT",
        ),
        row(
            at("'10.0.0.1:65536'"),
            AT,
            "has no port from 1 to 65535",
            "IP:PORT",
        ),
        row(at("'2001:db8::g:80'"), AT, "is not an address", "IP:PORT"),
        row(at("'[2001:db8::1]'"), AT, "is not an address", "IP:PORT"),
        row(at("'10.0.0.1:0'"), AT, "port 0 is no port", "1 to 65535"),
        row(
            at("'0.0.0.0:80'"),
            AT,
            "0.0.0.0 is no address that one can connect to",
            "one host",
        ),
        row(
            at("'[::]:80'"),
            AT,
            ":: is no address that one can connect to",
            "one host",
        ),
        row(
            at("'224.0.0.1:80'"),
            AT,
            "224.0.0.1 is a multicast address",
            "one host",
        ),
        row(
            at("'255.255.255.255:80'"),
            AT,
            "the broadcast address",
            "one host",
        ),
        row(at("'*:80'"), AT, "is not an address", "IP:PORT"),
        row(
            with("weight: 257"),
            "services[0].endpoints[0].weight",
            "257 is out of range",
            "0 to 256",
        ),
        row(
            with("weight: 70000"),
            "services[0].endpoints[0].weight",
            "70000 is out of range",
            "0 to 256",
        ),
        row(
            with("weight: -1"),
            "services[0].endpoints[0].weight",
            "-1 is out of range",
            "0 to 256",
        ),
        row(
            with("weight: 0.5"),
            "services[0].endpoints[0].weight",
            "0.5 is a number, not a whole number",
            "whole number",
        ),
        row(
            with("weight: '1'"),
            "services[0].endpoints[0].weight",
            "\"1\" is a text, not a whole number",
            "without quotes",
        ),
        row(
            with("state: down"),
            "services[0].endpoints[0].state",
            "\"down\" is not a state",
            "ready, backup, draining, disabled",
        ),
        row(
            with("name: a/b"),
            "services[0].endpoints[0].name",
            "\"a/b\" is not a name",
            "A-Z a-z 0-9 _ . : -",
        ),
        row(
            with("name: ''"),
            "services[0].endpoints[0].name",
            "\"\" is not a name",
            "1 to 200",
        ),
        row(
            with("node: ''"),
            "services[0].endpoints[0].node",
            "\"\" is not the name of a node",
            "without spaces",
        ),
        row(
            with("zone: 1"),
            "services[0].endpoints[0].zone",
            "1 is a number",
            "in quotes",
        ),
    ]);
    good(&with("weight: 0"));
    good(&with("weight: 256"));
    good(&at("'[fe80::1%3]:80'"));
}
