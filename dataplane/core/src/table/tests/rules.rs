//! One row for each rule of the table as a whole and of its frontends.

use super::{endpoint, frontend, good, hold, https, problems_of, row, service, table};

const TWO: &str = "{name: a, bind: ['*:1'], protocol: tcp, service: s}, {name: b, ";

fn two(rest: &str) -> String {
    table(&format!("{TWO}{rest}}}"), "{name: s}")
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
            "add version: 1",
        ),
    ]);
}

#[test]
fn the_admin_side_and_access_lines() {
    let stats = |fields: &str| format!("{{version: 1, stats: {{{fields}}}}}");
    let log = |fields: &str| format!("{{version: 1, log: {{{fields}}}}}");
    hold(vec![
        row(stats("bind: []"), "stats.bind", "this list is empty", "leave the key out"),
        row(stats("bind: '127.0.0.1:1'"), "stats.bind", "\"127.0.0.1:1\" is a text, not a list", "a list of one is [\"127.0.0.1:1\"]"),
        row(stats("bind: ['127.0.0.1:1', '127.0.0.1:1']"), "stats.bind[1]", "taken already by stats.bind[0]", "own"),
        row(stats("bind: ['*:1'], healthz: ['0.0.0.0:1']"), "stats.healthz[0]", "taken already by stats.bind[0]", "own"),
        row(stats("healthz: []"), "stats.healthz", "this list is empty", "or off"),
        row(stats("healthz: on"), "stats.healthz", "\"on\" is a text, not a list", "or off"),
        row(log("access: clf"), "log.access", "\"clf\" is not a form of access lines", "off, haproxy, json"),
        row(log("to: [file]"), "log.to[0]", "is not a place for access lines", "stdout, unix:PATH or udp:IP:PORT"),
        row(stats("bind: ['*:99999']"), "stats.bind[0]", "has no port from 0 to 65535", "*:PORT"),
        row(stats("bind: ['127.0.0.1:99999']"), "stats.bind[0]", "has no port from 0 to 65535", "IP:PORT"),
        row(log("to: ['udp:127.0.0.1:99999']"), "log.to[0]", "has no port from 1 to 65535", "udp:IP:PORT"),
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
    // The kernel prefers the exact address, and the families have a socket each.
    for beside in [
        "'10.0.0.1:1', '[2001:db8::1]:1'",
        "'*:2', '10.0.0.1:2'",
        "'0.0.0.0:2', '10.0.0.1:2'",
        "'0.0.0.0:2', '[::]:2'",
    ] {
        good(&two(&format!(
            "bind: [{beside}], protocol: tcp, service: s"
        )));
    }
    // A frontend and a service are different things, and a service needs no frontend.
    good(&table(
        "{name: a, bind: ['*:1'], protocol: tcp, service: a}",
        "{name: a}, {name: nobody-uses-it}",
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
fn names_of_certificates_are_such_as_clients_ask_for() {
    let of_certificate = |hosts: &str| {
        frontend(
            "https",
            &format!("tls: {{certificates: [{{cert: c, {hosts}}}]}}"),
        )
    };
    hold(vec![
        row(
            of_certificate("hosts: [shop.test, Shop.test., '*.shop.test']"),
            "frontends[0].tls.certificates[0].hosts[1]",
            "shop.test stands here twice",
            "keep one",
        ),
        row(
            of_certificate("hosts: [shop.test, 10.0.0.1]"),
            "frontends[0].tls.certificates[0].hosts[1]",
            "no client asks for the address 10.0.0.1 by name",
            "the first certificate",
        ),
        row(
            of_certificate("hosts: ['[2001:db8::1]']"),
            "frontends[0].tls.certificates[0].hosts[0]",
            "no client asks for the address [2001:db8::1] by name",
            "the first certificate",
        ),
        row(
            of_certificate("hosts: ['*']"),
            "frontends[0].tls.certificates[0].hosts[0]",
            "is not a host",
            "*. before one",
        ),
        row(
            of_certificate("hosts: []"),
            "frontends[0].tls.certificates[0].hosts",
            "this list is empty",
            "leave the key out",
        ),
    ]);
    good(&of_certificate("hosts: [shop.test, '*.shop.test']"));
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
            service(&format!("labels: {{{}}}", labels.join(","))),
            "services[0].labels",
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
            "h2, http/1.1 or http/1.0",
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
            frontend("http", "routes: [{path: /x, service: othe}]"),
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
