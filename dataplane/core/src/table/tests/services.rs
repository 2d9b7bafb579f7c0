//! One row for each rule of a service.

use super::{endpoint, good, hold, problems_of, row, service, table};

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
    // One mistake, however many frontends meet it.
    for (protocol, fields, place) in [
        ("tcp", cookie, "services[0].affinity.cookie"),
        ("udp", "send-proxy: v1", "services[0].send-proxy"),
    ] {
        let frontends: Vec<String> = (0..3)
            .map(|index| {
                format!(
                    "{{name: f{index}, bind: ['*:{}'], protocol: {protocol}, service: s}}",
                    80 + index
                )
            })
            .collect();
        let text = table(&frontends.join(", "), &format!("{{name: s, {fields}}}"));
        hold(vec![row(text, place, "frontends[0] (\"f0\")", "")]);
    }
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
fn one_wrong_field_hides_only_mistakes_that_it_has_a_part_in() {
    for (ejection, places) in [
        ("failures: 0, first: 1m", &[".failures", ""][..]),
        ("first: 1m, longest: soon", &[".longest"]),
        ("first: soon, longest: 1s", &[".first"]),
    ] {
        let problems = problems_of(&service(&format!("ejection: {{{ejection}}}")));
        let mut found: Vec<&str> = problems
            .iter()
            .filter_map(|problem| problem.at.strip_prefix("services[0].ejection"))
            .collect();
        let mut places = places.to_vec();
        found.sort_unstable();
        places.sort_unstable();
        assert_eq!(found, places, "{problems:?}");
    }
}

#[test]
fn files_of_a_refused_table_are_known_as_far_as_they_can_be_read() {
    let text = table(
        "{name: f, bind: ['*:1'], protocol: https, tls: {certificates: [{cert: a, key: [b]}, {key: c}]}}",
        "{name: s, weight: 1, tls: {ca: d}}",
    );
    let problems = super::parse(text.as_bytes(), super::Format::Yaml).unwrap_err();
    let files: Vec<_> = problems
        .read_parts()
        .files
        .iter()
        .map(|(at, file)| (at.as_str(), file.to_str()))
        .collect();
    assert_eq!(
        files,
        [
            ("frontends[0].tls.certificates[0].cert", Some("a")),
            ("frontends[0].tls.certificates[1].key", Some("c")),
            ("services[0].tls.ca", Some("d")),
        ],
        "{problems}"
    );
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
            service("health: {mode: tcp, answer: a, answer-contains: b}"),
            "services[0].health.answer-contains",
            "stands beside answer",
            "keep answer",
        ),
        row(
            service("health: {mode: https, tls: {verified-name: a.org}}"),
            "services[0].health.tls.verified-name",
            "without ca nothing is verified",
            "add ca",
        ),
        row(
            service("tls: {insecure: true, verified-name: off}"),
            "services[0].tls.verified-name",
            "insecure: true verifies nothing",
            "remove verified-name",
        ),
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
            "only the controller resolves names",
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
