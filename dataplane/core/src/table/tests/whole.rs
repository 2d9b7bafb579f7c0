//! Whole tables: the examples, what is said of many mistakes at once, and texts that are no tables.

use super::super::{Format, RoutingTable, files, oracle, parse};
use super::{good, problems_of};

pub(super) const MINIMAL: &str = include_str!("../../../../../templates/table-minimal.yaml");
pub(super) const FULL: &str = include_str!("../../../../../templates/table-full.yaml");

#[test]
fn the_example_tables_are_good_and_can_be_written_and_read_again() {
    for example in [MINIMAL, FULL] {
        let table = good(example);
        let json = serde_json::to_vec(&table).unwrap();
        assert_eq!(parse(&json, Format::Json).unwrap(), table);
    }
}

#[test]
fn what_is_absent_is_not_written() {
    let json = serde_json::to_string(&good(MINIMAL)).unwrap();
    assert_eq!(
        json,
        concat!(
            r#"{"version":1,"frontends":[{"name":"mysql","bind":["*:3306"],"protocol":"tcp","service":"mysql"}],"#,
            r#""services":[{"name":"mysql","endpoints":[{"address":"10.1.0.7:3306"},{"address":"10.1.0.8:3306"}]}]}"#
        )
    );
}

#[test]
fn defaults_that_are_written_down_change_nothing() {
    let table = good(FULL);
    let mysql = &table.frontends[0];
    assert_eq!(mysql.on_limit, super::super::OnLimit::Wait);
    assert_eq!(
        mysql.timeouts.preamble,
        super::super::ClientTimeouts::ABSENT.preamble
    );
    let json = serde_json::to_value(&table).unwrap();
    assert_eq!(
        json["frontends"][0]["timeouts"],
        serde_json::json!({"client": "1h"})
    );
    assert_eq!(json["services"][0].get("ejection"), None);
    assert_eq!(json["services"][0].get("retries"), None);
}

#[test]
fn defaults_follow_the_protocol_and_their_neighbours() {
    use super::super::Protocol;
    let table = good(MINIMAL);
    let service = &table.services[0];
    assert_eq!(table.frontends[0].client_timeout().unwrap().as_secs(), 3600);
    assert_eq!(
        service.timeouts.server(Protocol::Tcp).unwrap().as_secs(),
        3600
    );
    assert_eq!(
        service.timeouts.server(Protocol::Https).unwrap().as_secs(),
        50
    );
    assert_eq!(service.timeouts.queue(), service.timeouts.connect);
    assert_eq!(table.stats.bind()[0].to_string(), "127.0.0.1:1936");
    assert_eq!(table.log.to[0].to_string(), "stdout");
}

#[test]
fn every_mistake_comes_at_once_and_in_the_order_of_the_file() {
    let yaml = r#"
version: 1
services:
  - name: s
    retires: 3
    retries: many
    health: {mode: http, interval: 1s, timeout: 2s}
    endpoints:
      - address: "10.0.0.1:80"
        weight: 300
      - address: "10.0.0.1:80"
      - weight: 1
frontends:
  - name: f
    protocol: tcp
    bind: ["*:80", "bad"]
    service: none
  - name: f
    bind: ["*:80"]
    protocol: tcp
    source-ranges: []
"#;
    let told: Vec<String> = problems_of(yaml).iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "services[0].retires: is not a known key; did you mean retries?",
            "services[0].retries: \"many\" is a text, not a whole number; expected a whole number, without quotes",
            "services[0].health.timeout: 2s is above the interval (1s); expected at most 1s, or a longer interval",
            "services[0].endpoints[0].weight: 300 is out of range; expected 0 to 256",
            "services[0].endpoints[1].address: 10.0.0.1:80 is the address of endpoints[0] already; \
             keep one of them; weight gives an endpoint more clients",
            "services[0].endpoints[2]: address is missing; add address",
            "frontends[0].bind[1]: \"bad\" is a name, not an address; \
             expected IP:PORT, [IP6]:PORT or *:PORT; only the controller resolves names",
            "frontends[0].service: there is no service \"none\"; \
             add a service of that name; endpoints: [] will do",
            "frontends[1]: service is missing; add service: a tcp frontend leads to one service",
            "frontends[1].name: \"f\" is the name of frontends[0] already; give each frontend a name of its own",
            "frontends[1].bind[0]: *:80 is taken already by frontends[0].bind[0] of frontend \"f\"; \
             give each one an address or a port of its own",
            "frontends[1].source-ranges: this list is empty; put something in, or leave the key out",
        ]
    );
}

#[test]
fn nothing_is_said_about_the_meaning_of_what_could_not_be_read() {
    let cases = [
        "{version: 1, frontends: [{name: f, bind: ['*:80'], protocol: tpc}]}",
        "{version: 1, frontends: [{name: f, bind: ['*:80'], protocol: tcp, service: 'a b'}]}",
        "{version: 1, frontends: [{name: f, bind: ['*:80'], protocol: tcp, service: s}], services: [{name: 's '}]}",
        "{version: 1, frontends: [{name: f, bind: ['*:80'], protocol: tcp, service: s}], services: 5}",
        "{version: 1, frontends: [{name: f, bind: ['*:80'], protocol: http, routes: [{path: x, service: s}, {service: s}]}], services: [{name: s}]}",
        "{version: 1, frontends: [{name: f, bind: ['*:80'], protocol: http, default: {service: 5}}]}",
        "{version: 1, services: [{name: s, health: {mode: tcp, interval: soon, timeout: 1h}}]}",
        "{version: 1, services: [{name: s, endpoints: [5]}]}",
        "{version: 1, log: {to: [file, stdout]}}",
        // What stands in for a refused value is never a mistake of its own, not even beside the same one.
        "{version: 1, frontends: [{name: f, bind: ['*:80'], protocol: udp, service: s, accept-proxy: {from: [10.0.0.0/8], versions: [v3]}}], services: [{name: s}]}",
        "{version: 1, frontends: [{name: f, bind: [x, '*:80'], protocol: http}]}",
        "{version: 1, services: [{name: 's '}, {name: shop}]}",
        "{version: 1, services: [{name: s, endpoints: [{address: x}, {address: '10.1.0.7:80'}]}]}",
        "{version: 1, services: [{name: s, http: {request-headers: {remove: ['a b', X-Env]}}}]}",
        "{version: 1, services: [{name: s, source: [x, 10.1.0.7]}]}",
    ];
    for case in cases {
        let problems = problems_of(case);
        assert_eq!(problems.len(), 1, "{case}\n{problems:#?}");
    }
}

#[test]
fn a_key_that_stands_there_twice_is_reported_in_both_languages() {
    for (text, format) in [
        (
            r#"{"version": 1, "services": [{"name": "a", "name": "b"}]}"#,
            Format::Json,
        ),
        (
            "version: 1\nservices:\n- name: a\n  name: b\n",
            Format::Yaml,
        ),
    ] {
        let problems = parse(text.as_bytes(), format).unwrap_err();
        assert_eq!(problems[0].at, "services[0].name");
        assert!(problems[0].why.contains("twice"));
        assert!(!problems.not_whole());
    }
    let twice = r#"{"version": 1, "services": [{"name": "a", "labels": {"k": "v", "k": "w"}}]}"#;
    assert_eq!(
        parse(twice.as_bytes(), Format::Json).unwrap_err()[0].at,
        "services[0].labels.k"
    );
}

#[test]
fn yaml_is_1_2_and_its_words_are_no_truths() {
    let table = good(
        "{version: 1, log: {access: off}, services: [{name: no, description: yes, send-proxy: off}]}",
    );
    assert_eq!(&*table.services[0].name, "no");
    good("version: 1\nservices:\n- &base {name: a, retries: 5}\n- {<<: *base, name: b}\n");
    good("\u{feff}version: 1 # with a byte order mark\n");
}

#[test]
fn more_problems_than_anybody_reads_are_counted() {
    let services: Vec<String> = (0..3000).map(|_| "{\"nam\": 1}".to_owned()).collect();
    let text = format!("{{\"version\": 1, \"services\": [{}]}}", services.join(","));
    let problems = parse(text.as_bytes(), Format::Json).unwrap_err();
    assert_eq!(problems.len(), 1001);
    assert_eq!(
        problems.last().unwrap().why,
        "5000 more problems are not shown"
    );
}

#[test]
fn a_refused_table_keeps_its_generation() {
    let generation = |text: &str| {
        parse(text.as_bytes(), Format::Json)
            .unwrap_err()
            .generation()
    };
    assert_eq!(generation(r#"{"version": 2, "generation": 43}"#), Some(43));
    assert_eq!(generation(r#"{"version": 1, "generation": "x"}"#), None);
    assert_eq!(generation(r#"{"version": 1, "generation": 43"#), None);
}

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/table");
    let mut seeds = 0;
    for seed in std::fs::read_dir(folder).unwrap() {
        oracle::check(&std::fs::read(seed.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds > 10, "only {seeds} seeds in {folder}");
}

#[test]
fn strange_keys_stay_on_one_line() {
    let problems = parse(b"{\"version\": 1, \"a\\nb.c[0]\": 1}", Format::Json).unwrap_err();
    assert_eq!(problems[0].at, r#""a\nb.c[0]""#);
}

#[test]
fn every_file_is_named_with_its_place() {
    let named: Vec<(String, String)> = files(&good(FULL))
        .into_iter()
        .map(|(at, file)| (at, file.display().to_string()))
        .collect();
    let named: Vec<(&str, &str)> = named
        .iter()
        .map(|(at, file)| (at.as_str(), file.as_str()))
        .collect();
    assert_eq!(
        named,
        [
            ("ticket-keys", "tickets.key"),
            ("frontends[2].tls.certificates[0].cert", "tls/shop.crt"),
            ("frontends[2].tls.certificates[0].key", "tls/shop.key"),
            ("frontends[2].tls.certificates[0].ocsp", "tls/shop.ocsp"),
            ("frontends[2].tls.certificates[1].cert", "tls/other.pem"),
            ("frontends[2].tls.client-auth.ca", "tls/clients.pem"),
            ("frontends[2].routes[1].denied.body-file", "errors/404.html"),
            ("frontends[2].routes[4].body-file", "robots.txt"),
            ("frontends[2].default.body-file", "errors/404.html"),
            ("frontends[2].errors.502.body-file", "errors/503.html"),
            ("frontends[2].errors.503", "errors/503.html"),
            ("services[2].health.tls.ca", "tls/ca.pem"),
            ("services[2].tls.ca", "tls/ca.pem"),
            ("services[2].tls.cert", "c.pem"),
            ("services[2].tls.key", "k.pem"),
        ]
    );
}

#[test]
fn a_summary_counts() {
    assert_eq!(
        good(MINIMAL).summary(),
        "1 frontend (1 tcp), 1 service, 2 endpoints"
    );
    assert_eq!(
        good("version: 1").summary(),
        "0 frontends, 0 services, 0 endpoints"
    );
}

#[test]
fn services_and_endpoints_are_small() {
    assert!(size_of::<super::super::Endpoint>() <= 96);
    assert!(size_of::<super::super::Service>() <= 320);
    assert!(size_of::<RoutingTable>() <= 256);
}
