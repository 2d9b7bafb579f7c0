//! How values are written, and what is said where they are written otherwise.

use std::time::Duration;

use super::super::{Bind, Expect, HostPattern, MaxAge, Name, Payload, Shown, Size, parse_duration};
use super::{endpoint, frontend, good, hold, problems_of, row, service, table};

#[test]
fn durations_have_one_unit() {
    let good = [
        ("1ms", 1),
        ("250ms", 250),
        ("5s", 5_000),
        ("3m", 180_000),
        ("1h", 3_600_000),
        ("24d", 2_073_600_000),
    ];
    for (text, millis) in good {
        let duration = parse_duration(text).unwrap();
        assert_eq!(duration, Duration::from_millis(millis), "{text}");
        assert_eq!(Shown(duration).to_string(), text);
    }
    assert_eq!(Shown(Duration::from_millis(60_500)).to_string(), "60500ms");
    assert_eq!(Shown(Duration::ZERO).to_string(), "0ms");
    for text in [
        "", "5", "s", "5 s", "1h30m", "1.5s", "-1s", "5S", "5w", "٥s", "0x5s",
    ] {
        assert!(
            parse_duration(text)
                .unwrap_err()
                .why
                .contains("not a duration"),
            "{text}"
        );
    }
    for text in ["0s", "0ms", "25d", "577h", "99999999999999999999999999d"] {
        assert!(
            parse_duration(text)
                .unwrap_err()
                .why
                .contains("out of range"),
            "{text}"
        );
    }
}

#[test]
fn durations_in_their_fields() {
    let timeouts = |fields: &str| frontend("tcp", &format!("service: s, timeouts: {{{fields}}}"));
    hold(vec![
        row(
            timeouts("client: 5"),
            "frontends[0].timeouts.client",
            "5 is a number, not a duration",
            "or off",
        ),
        row(
            timeouts("client: never"),
            "frontends[0].timeouts.client",
            "\"never\" is not a duration",
            "or off",
        ),
        row(
            timeouts("preamble: off"),
            "frontends[0].timeouts.preamble",
            "\"off\" is not a duration",
            "250ms, 5s",
        ),
        row(
            timeouts("preamble: 25d"),
            "frontends[0].timeouts.preamble",
            "\"25d\" is out of range",
            "1ms to 24d",
        ),
        row(
            timeouts("client-fin: 0s"),
            "frontends[0].timeouts.client-fin",
            "\"0s\" is out of range",
            "1ms to 24d",
        ),
    ]);
    assert_eq!(
        good(&timeouts("client: off")).frontends[0].client_timeout(),
        None
    );
    assert_eq!(
        good(&timeouts("client: 2m")).frontends[0].client_timeout(),
        Some(Duration::from_secs(120))
    );
}

#[test]
fn ages_may_be_long_and_are_whole_seconds() {
    assert_eq!("180d".parse::<MaxAge>().unwrap().seconds(), 180 * 86_400);
    for text in ["500ms", "1500ms", "0s", "36501d", "x"] {
        assert!(text.parse::<MaxAge>().is_err(), "{text}");
    }
}

#[test]
fn sizes_have_a_unit() {
    for (text, bytes) in [("512B", 512), ("64KiB", 65_536), ("1MiB", 1 << 20)] {
        let size: Size = text.parse().unwrap();
        assert_eq!(size.bytes(), bytes);
        assert_eq!(size.to_string(), text);
    }
    for text in [
        "64",
        "64K",
        "64KB",
        "64 KiB",
        "KiB",
        "4096MiB",
        "99999999999999999999KiB",
    ] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
}

#[test]
fn binds() {
    let shown = |text: &str| text.parse::<Bind>().map(|bind| bind.to_string());
    assert_eq!(shown("*:80").unwrap(), "*:80");
    assert_eq!(shown("*:0").unwrap(), "*:0");
    assert_eq!(shown("[2001:DB8::1]:80").unwrap(), "[2001:db8::1]:80");
    assert_eq!(shown("[::ffff:10.0.0.1]:80").unwrap(), "10.0.0.1:80");
    for text in [
        "*",
        "*:",
        "*:x",
        "*:65536",
        "*:+1",
        ":80",
        "80",
        "",
        "localhost:80",
        "10.0.0.1",
        "::1:80",
        "[::1]",
    ] {
        let wrong = shown(text).unwrap_err();
        assert!(wrong.remedy.contains("PORT"), "{text}: {wrong}");
    }
    let addresses: Vec<String> = "*:80"
        .parse::<Bind>()
        .unwrap()
        .addresses()
        .map(|address| address.to_string())
        .collect();
    assert_eq!(addresses, ["0.0.0.0:80", "[::]:80"]);
}

#[test]
fn ranges_lose_their_host_bits_and_belong_to_one_family() {
    let ranges = |range: &str| frontend("http", &format!("source-ranges: ['{range}']"));
    let read = |range: &str| {
        good(&ranges(range)).frontends[0]
            .source_ranges
            .as_ref()
            .unwrap()[0]
            .to_string()
    };
    assert_eq!(read("192.0.2.77/24"), "192.0.2.0/24");
    assert_eq!(read("2001:db8::1/32"), "2001:db8::/32");
    assert_eq!(read("::ffff:10.1.2.3/104"), "10.0.0.0/8");
    assert_eq!(read("0.0.0.0/0"), "0.0.0.0/0");
    assert_eq!(read("::/0"), "::/0");
    const AT: &str = "frontends[0].source-ranges[0]";
    hold(vec![
        row(
            ranges("10.0.0.1"),
            AT,
            "is a single address, not a range",
            "10.0.0.1/32",
        ),
        row(
            ranges("2001:db8::1"),
            AT,
            "is a single address, not a range",
            "2001:db8::1/128",
        ),
        row(
            ranges("10.0.0.0/33"),
            AT,
            "is not a range of addresses",
            "IP/LENGTH",
        ),
        row(
            ranges("0/0"),
            AT,
            "is not a range of addresses",
            "IP/LENGTH",
        ),
        row(
            ranges("any"),
            AT,
            "is not a range of addresses",
            "IP/LENGTH",
        ),
        row(
            ranges("::ffff:0.0.0.0/90"),
            AT,
            "belongs to neither IPv4 nor IPv6",
            "one family",
        ),
        row(
            frontend("http", "source-ranges: []"),
            "frontends[0].source-ranges",
            "this list is empty",
            "leave the key out",
        ),
        row(
            frontend("http", "source-ranges: 10.0.0.0/8"),
            "frontends[0].source-ranges",
            "is a text, not a list",
            "a list of one is [\"10.0.0.0/8\"]",
        ),
        row(
            frontend("http", "source-ranges:"),
            "frontends[0].source-ranges",
            "no value stands here",
            "leave it out",
        ),
    ]);
}

#[test]
fn names() {
    let long = "a".repeat(200);
    for name in ["a", "shop.web:80-udp_2", &long] {
        assert_eq!(name.parse::<Name>().unwrap().as_str(), name);
    }
    let too_long = "a".repeat(201);
    for name in ["", "a b", "a/b", "ä", "a\n", &too_long] {
        assert!(name.parse::<Name>().is_err(), "{name}");
    }
}

#[test]
fn hosts_of_routes() {
    let host = |text: &str| text.parse::<HostPattern>().map(|host| host.to_string());
    assert_eq!(host("Shop.Example.com.").unwrap(), "shop.example.com");
    assert_eq!(host("*.Example.com").unwrap(), "*.example.com");
    assert_eq!(host("10.0.0.1").unwrap(), "10.0.0.1");
    assert_eq!(host("[2001:db8::1]").unwrap(), "[2001:db8::1]");
    for text in [
        "",
        "*",
        "a:80",
        "a..b",
        "*a.org",
        "a.*.org",
        "bücher.example",
        "a b",
        ".",
        "*.",
        "http://a",
    ] {
        assert!(host(text).is_err(), "{text}");
    }
    assert!(host("*").unwrap_err().remedy.contains("without host"));
    assert!(host("bücher.example").unwrap_err().remedy.contains("xn--"));
}

#[test]
fn paths_of_routes_are_absolute_and_without_a_query() {
    for path in ["shop", "/shop?a", "/a b", "/a#b", ""] {
        hold(vec![row(
            frontend("http", &format!("routes: [{{path: '{path}', service: s}}]")),
            "frontends[0].routes[0].path",
            "is not a path",
            "absolute path without a query",
        )]);
    }
}

#[test]
fn payloads_have_escapes_of_their_own() {
    let payload: Payload = r"\x00ping\r\n\\\xffü".parse().unwrap();
    assert_eq!(payload.bytes(), b"\x00ping\r\n\\\xff\xc3\xbc");
    assert_eq!(payload.to_string().parse::<Payload>().unwrap(), payload);
    for text in ["", r"\", r"\x0", r"\xg0", r"\q", r"\u0041"] {
        assert!(text.parse::<Payload>().is_err(), "{text}");
    }
}

#[test]
fn expected_statuses() {
    let expect: Expect = "200, 204,300-399".parse().unwrap();
    assert_eq!(expect.to_string(), "200,204,300-399");
    assert!(expect.takes(204) && expect.takes(399));
    assert!(!expect.takes(201) && !expect.takes(400));
}

#[test]
fn words_and_kinds() {
    hold(vec![
        row(
            table(
                "{name: f, bind: ['*:80'], protocol: tpc, service: s}",
                "{name: s}",
            ),
            "frontends[0].protocol",
            "\"tpc\" is not a protocol",
            "did you mean tcp?",
        ),
        row(
            table(
                "{name: f, bind: ['*:80'], protocol: sctp, service: s}",
                "{name: s}",
            ),
            "frontends[0].protocol",
            "\"sctp\" is not a protocol",
            "tcp",
        ),
        row(
            table("{name: f, bind: '*:80', protocol: http}", ""),
            "frontends[0].bind",
            "\"*:80\" is a text, not a list",
            "a list of one is [\"*:80\"]",
        ),
        row(
            table("{name: f, bind: [80], protocol: http}", ""),
            "frontends[0].bind[0]",
            "80 is a number, not an address",
            "in quotes",
        ),
        row(
            table("{name: f, bind: [], protocol: http}", ""),
            "frontends[0].bind",
            "this list is empty",
            "put something in",
        ),
        row(
            table("{name: 80, bind: ['*:80'], protocol: http}", ""),
            "frontends[0].name",
            "80 is a number, not a name",
            "in quotes",
        ),
        row(
            table("5", ""),
            "frontends[0]",
            "5 is a number, not a map",
            "{KEY: VALUE, …}",
        ),
        row(
            "{version: 1, frontends: {}}".to_owned(),
            "frontends",
            "this is a map, not a list",
            "[ITEM, …]",
        ),
        row(
            "{version: '1'}".to_owned(),
            "version",
            "\"1\" is a text, not a whole number",
            "without quotes",
        ),
        row(
            "{version: 1, generation: -1}".to_owned(),
            "generation",
            "-1 is out of range",
            "0 to",
        ),
        row(
            "{version: 1, services:}".to_owned(),
            "services",
            "no value stands here",
            "leave it out",
        ),
        row(
            "{version: 1, ticket-keys: ''}".to_owned(),
            "ticket-keys",
            "\"\" is not a file",
            "a path",
        ),
        row(
            frontend(
                "tcp",
                "service: s, tls: {certificates: [{cert: c}], min-version: 1.2}",
            ),
            "frontends[0].tls.min-version",
            "1.2 is a number, not a version of TLS",
            "in quotes",
        ),
        row(
            frontend("udp", "service: s, udp: {per-datagram: on}"),
            "frontends[0].udp.per-datagram",
            "\"on\" is a text",
            "true or false",
        ),
    ]);
}

#[test]
fn unknown_keys_have_the_nearest_known_one_as_remedy() {
    hold(vec![
        row(
            "{version: 1, frontend: []}".to_owned(),
            "frontend",
            "is not a known key",
            "did you mean frontends?",
        ),
        row(
            frontend("http", "max_connections: 5"),
            "frontends[0].max_connections",
            "is not a known key",
            "did you mean max-connections?",
        ),
        row(
            frontend("http", "maxConnections: 5"),
            "frontends[0].maxConnections",
            "is not a known key",
            "did you mean max-connections?",
        ),
        row(
            frontend("http", "timeouts: {clinet: 5s}"),
            "frontends[0].timeouts.clinet",
            "is not a known key",
            "did you mean client?",
        ),
        row(
            frontend("http", "routes: [{mach: exact, service: s}]"),
            "frontends[0].routes[0].mach",
            "is not a known key",
            "did you mean match?",
        ),
        row(
            table("", "{name: s, weather: rr}"),
            "services[0].weather",
            "is not a known key",
            "known keys are affinity, algorithm, all-down, description, ejection",
        ),
        row(
            table("", "{name: s, affinity: {client-ip: 3h, ip: x}}"),
            "services[0].affinity.ip",
            "is not a known key",
            "client-ip, cookie",
        ),
    ]);
}

#[test]
fn words_of_others_have_those_of_the_table_as_remedy() {
    for (text, remedy) in [
        (
            service("algorithm: leastconn"),
            "did you mean least-connections?",
        ),
        (
            service("algorithm: roundrobin"),
            "did you mean round-robin?",
        ),
        (service("algorithm: source"), "did you mean source-hash?"),
        (
            endpoint("address: '127.0.0.1:1', backup: true"),
            "write state: backup",
        ),
        (
            service("health: {mode: http, uri: /up}"),
            "did you mean path?",
        ),
        (
            frontend("http", "timeouts: {http-request: 5s}"),
            "did you mean request?",
        ),
        (
            frontend("http", "timeouts: {http-keep-alive: 5s}"),
            "did you mean keep-alive?",
        ),
        (
            frontend("http", "timeouts: {server: 5s}"),
            "it belongs to services[].timeouts",
        ),
        (
            frontend("http", "timeouts: {connect: 5s}"),
            "it belongs to services[].timeouts",
        ),
        (
            service("timeouts: {client: 5s}"),
            "it belongs to frontends[].timeouts",
        ),
        (
            service("timeouts: {request: 5s}"),
            "it belongs to frontends[].timeouts",
        ),
        (
            service("send-proxy: true"),
            "true is a boolean, not a PROXY header; expected off, v1, v2",
        ),
    ] {
        let said: Vec<String> = problems_of(&text).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(remedy), "{said:?}");
        assert!(!said[0].contains("quotes"), "{said:?}");
    }
}

#[test]
fn a_wrong_protocol_hides_no_mistake_that_it_has_no_part_in() {
    let routes = "routes: [{service: s, redirect: {scheme: https}}]";
    for (protocol, more) in [("HTTP", 1), ("sctp", 0)] {
        let text = table(
            &format!(
                "{{name: f, bind: ['*:443'], protocol: {protocol}, {routes}}}, {{name: g, bind: ['*:443'], protocol: tcp, service: s}}"
            ),
            "{name: s}",
        );
        let said: Vec<String> = problems_of(&text).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2 + more, "{said:?}");
        let two = "frontends[0].routes[0]: has service and redirect at once";
        assert!(said.iter().any(|line| line.starts_with(two)), "{said:?}");
        let twice = said.iter().filter(|line| line.contains("is taken already"));
        assert_eq!(twice.count(), more, "{said:?}");
    }
}

#[test]
fn the_words_of_others_and_beginnings_of_words_lead_to_the_right_ones() {
    for (text, remedy) in [
        (
            "{version: 1, backends: []}".to_owned(),
            "did you mean services?",
        ),
        (
            "{version: 1, listen: []}".to_owned(),
            "did you mean frontends?",
        ),
        (
            frontend("tcp", "service: s, maxconn: 5"),
            "did you mean max-connections?",
        ),
        (
            frontend("http", "default_backend: s"),
            "did you mean default?",
        ),
        (service("balance: roundrobin"), "did you mean algorithm?"),
        (service("servers: []"), "did you mean endpoints?"),
        (
            service("endpoints: [{address: '10.0.0.1:1', state: drain}]"),
            "did you mean draining?",
        ),
        (
            frontend("tcp", "service: s, sou: []"),
            "did you mean source-ranges?",
        ),
    ] {
        let problems = problems_of(&text);
        let is_said = problems
            .iter()
            .any(|problem| problem.remedy.starts_with(remedy));
        assert!(is_said, "{text}: {problems:?}");
    }
}
