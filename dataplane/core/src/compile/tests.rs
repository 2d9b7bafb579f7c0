//! What a plan carries over from the previous one, and which sockets it wants: single cases and random tables.

mod large;
mod oracle;
mod properties;
mod routes;
mod tables;

use std::collections::BTreeSet;

use super::*;
use crate::change::{Change, change, may_be_wanted};
use crate::loops::LOOPBACK_ONLY;
use crate::pick::{Key, Tried};
use crate::plan::Listens;
use crate::rng::Rng;
use crate::table::{Format, OnGone, State};

/// A process that has only served valid tables.
struct Process {
    plan: Plan,
    bound: BTreeSet<SocketKey>,
    rng: Rng,
}

fn process_with(yaml: &str) -> (Process, Change) {
    let mut process = Process {
        plan: Plan::default(),
        bound: BTreeSet::new(),
        rng: Rng::new(7),
    };
    let change = swap(&mut process, yaml);
    (process, change)
}

/// Applies a table.
fn swap(process: &mut Process, yaml: &str) -> Change {
    let plan = compiled(process, yaml);
    let change = change(&process.bound, &process.plan, &plan);
    process.bound.extend(change.open.iter().cloned());
    process.bound.retain(|key| !change.close.contains(key));
    process.plan = plan;
    change
}

fn compiled(process: &mut Process, yaml: &str) -> Plan {
    let table = table::parse(yaml.as_bytes(), Format::Yaml).unwrap();
    let mut context = CompileContext {
        now: Moment(1000),
        workers: 2,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng: &mut process.rng,
    };
    compile(table, &process.plan, &mut context)
}

fn shown(keys: &[SocketKey]) -> Vec<String> {
    keys.iter().map(SocketKey::to_string).collect()
}

const ONE: &str = "services: [{name: s, endpoints: [{address: '10.0.0.1:80'}]}]";

#[test]
fn who_takes_over_an_address_takes_over_its_socket() {
    let by = |name: &str, rest: &str| {
        format!(
            "{{version: 1, frontends: [{{name: {name}, bind: ['*:80'], protocol: tcp, service: s, {rest}}}], {ONE}}}"
        )
    };
    let (mut process, first) = process_with(&by("a", ""));
    assert_eq!(shown(&first.open), ["0.0.0.0:80", "[::]:80"]);
    for next in [
        by("a", "max-connections: 5, source-ranges: [10.0.0.0/8]"),
        by("b", ""),
        by("a", "accept-proxy: {from: [10.0.0.0/8]}"),
    ] {
        let change = swap(&mut process, &next);
        assert!(change.open.is_empty() && change.close.is_empty(), "{next}");
    }
    let change = swap(&mut process, &by("a", "").replace("*:80", "0.0.0.0:80"));
    assert_eq!(
        (shown(&change.open), shown(&change.close)),
        (vec![], vec!["[::]:80".to_owned()])
    );
}

#[test]
fn another_idle_time_of_a_udp_frontend_that_stays_is_a_change() {
    let with = |name: &str, protocol: &str, idle: &str| {
        format!(
            "{{version: 1, frontends: [{{name: {name}, bind: ['*:80'], protocol: {protocol}, service: s, timeouts: {{idle: {idle}}}}}], {ONE}}}"
        )
    };
    let (mut process, first) = process_with(&with("f", "udp", "60s"));
    assert!(!first.revises_flows, "no flow is there yet");
    for (table, is_change) in [
        (with("f", "udp", "60s"), false),
        (with("f", "udp", "1s"), true),
        (with("f", "udp", "2s"), true),
        (with("g", "udp", "1s"), false),
        (with("g", "tcp", "1s"), false),
        (with("g", "tcp", "2s"), false),
    ] {
        assert_eq!(
            swap(&mut process, &table).revises_flows,
            is_change,
            "{table}"
        );
    }
}

/// A socket belongs to its address: for each connection the plan is asked which protocol is served there.
#[test]
fn tcp_sockets_have_one_identity_whatever_is_spoken_there() {
    let sockets = |frontend: &str| {
        let (process, _) = process_with(&format!(
            "{{version: 1, frontends: [{{name: f, bind: ['*:80', '127.0.0.1:81'], {frontend}}}], {ONE}}}"
        ));
        process.plan.frontends[0].sockets().to_vec()
    };
    let tcp = sockets("protocol: tcp, service: s");
    let tls = "tls: {certificates: [{cert: c}]}";
    assert_eq!(tcp, sockets("protocol: http, default: {service: s}"));
    assert_eq!(tcp, sockets("protocol: tls, default: {service: s}"));
    assert_eq!(tcp, sockets(&format!("protocol: tcp, service: s, {tls}")));
    assert_eq!(
        tcp,
        sockets(&format!("protocol: https, default: {{service: s}}, {tls}"))
    );
    let udp = sockets("protocol: udp, service: s");
    assert!(udp.iter().all(|socket| !tcp.contains(socket)));
    assert_eq!(shown(&udp), shown(&tcp));
}

#[test]
fn a_service_without_an_endpoint_to_use_has_no_socket() {
    let with = |endpoints: &str| {
        format!(
            "{{version: 1, frontends: [{{name: f, bind: ['127.0.0.1:80'], protocol: tcp, service: s}}], services: [{{name: s, endpoints: [{endpoints}]}}]}}"
        )
    };
    let (mut process, first) = process_with(&with(""));
    assert!(first.open.is_empty());
    assert_eq!(process.plan.frontends[0].listens(), Listens::Idle);
    for (state, listens) in [
        ("ready", true),
        ("disabled", false),
        ("draining", true),
        ("disabled", false),
        ("backup", true),
    ] {
        let change = swap(
            &mut process,
            &with(&format!(
                "{{address: '10.0.0.1:80', state: {state}, weight: 0}}"
            )),
        );
        assert_eq!(
            (change.open.len(), change.close.len()),
            if listens { (1, 0) } else { (0, 1) },
            "{state}"
        );
        let may_be = may_be_wanted(&process.plan).len();
        assert_eq!(may_be, 1, "{state}: an operator may enable it");
    }
    swap(&mut process, &with(""));
    assert!(may_be_wanted(&process.plan).is_empty());
}

#[test]
fn every_protocol_listens_and_what_is_not_served_yet_does_not() {
    let tls = "tls: {certificates: [{cert: c}]}";
    for (frontend, service, listens) in [
        (
            "protocol: http, default: {service: s}".into(),
            "",
            Listens::Yes,
        ),
        (
            format!("protocol: https, {tls}, default: {{service: s}}"),
            "",
            Listens::Yes,
        ),
        (
            "protocol: tls, default: {service: s}".into(),
            "",
            Listens::Yes,
        ),
        (
            format!("protocol: tcp, {tls}, service: s"),
            "",
            Listens::Yes,
        ),
        (
            "protocol: tcp, service: s".into(),
            "tls: {}, ",
            Listens::Yes,
        ),
        (
            "protocol: http, default: {service: s}".into(),
            "tls: {}, ",
            Listens::Yes,
        ),
        (
            "protocol: http, default: {service: s}".into(),
            "http: {version: h2}, ",
            Listens::Yes,
        ),
    ] {
        let (process, change) = process_with(&format!(
            "{{version: 1, frontends: [{{name: f, bind: ['127.0.0.1:80'], {frontend}}}], services: [{{name: s, {service}endpoints: [{{address: '10.0.0.1:80'}}]}}]}}"
        ));
        assert_eq!(process.plan.frontends[0].listens(), listens, "{frontend}");
        assert_eq!(
            change.open.is_empty(),
            listens != Listens::Yes,
            "{frontend}"
        );
    }
}

#[test]
fn udp_listens_while_there_is_an_endpoint_as_tcp_does() {
    for (endpoints, listens) in [
        ("{address: '10.0.0.1:53'}", Listens::Yes),
        ("{address: '10.0.0.1:53', state: draining}", Listens::Yes),
        ("{address: '10.0.0.1:53', state: disabled}", Listens::Idle),
        ("", Listens::Idle),
    ] {
        let (process, change) = process_with(&format!(
            "{{version: 1, frontends: [{{name: f, bind: ['127.0.0.1:53'], protocol: udp, service: s}}, {{name: g, bind: ['127.0.0.1:53'], protocol: tcp, service: s}}], services: [{{name: s, endpoints: [{endpoints}]}}]}}"
        ));
        for frontend in &process.plan.frontends {
            assert_eq!(frontend.listens(), listens, "{endpoints}");
        }
        let expected = if listens == Listens::Yes { 2 } else { 0 };
        assert_eq!(change.open.len(), expected, "one of each transport");
    }
}

#[test]
fn the_last_table_that_had_an_endpoint_says_what_becomes_of_its_connections() {
    let with = |removed: &str, endpoints: &str| {
        format!(
            "{{version: 1, services: [{{name: s, on-removed: {removed}, endpoints: [{endpoints}]}}]}}"
        )
    };
    let two = "{address: '10.0.0.1:80'}, {address: '10.0.0.2:80'}";
    let one = "{address: '10.0.0.1:80'}";
    let (mut process, _) = process_with(&with("close", two));
    let gone = swap(&mut process, &with("keep", one)).gone_endpoints;
    assert_eq!(gone.len(), 1);
    assert_eq!(
        (gone[0].endpoint.address().to_string(), gone[0].connections),
        ("10.0.0.2:80".to_owned(), OnGone::Close)
    );
    let gone = swap(&mut process, "version: 1").gone_endpoints;
    assert_eq!(
        (gone[0].endpoint.address().to_string(), gone[0].connections),
        ("10.0.0.1:80".to_owned(), OnGone::Keep)
    );
    assert!(
        swap(&mut process, &with("keep", two))
            .gone_endpoints
            .is_empty()
    );
    let disabled = two.replace("80'", "80', state: disabled");
    assert!(
        swap(&mut process, &with("close", &disabled))
            .gone_endpoints
            .is_empty(),
        "a disabled one is still there"
    );
}

#[test]
fn a_table_keeps_its_word_about_states_and_weights() {
    let (process, _) = process_with(
        "{version: 1, generation: 9, services: [{name: s, endpoints: [{address: '10.0.0.1:80', state: backup, weight: 9}]}]}",
    );
    let endpoint = &process.plan.service("s").unwrap().endpoints()[0];
    assert_eq!((endpoint.state(), endpoint.weight()), (State::Backup, 9));
    assert_eq!(process.plan.generation(), Some(9));
}

/// Until the new plan is published, clients are sent to the endpoints of the old one.
#[test]
fn a_connection_that_begins_while_its_endpoint_leaves_is_counted_when_it_comes_back() {
    let with = |endpoints: &str| {
        format!("{{version: 1, services: [{{name: s, endpoints: [{endpoints}]}}]}}")
    };
    let two = with("{address: '10.0.0.1:80'}, {address: '10.0.0.2:80'}");
    let (mut process, _) = process_with(&two);
    let before = Arc::clone(process.plan.service("s").unwrap().endpoints()[1].live());
    let without = compiled(&mut process, &with("{address: '10.0.0.1:80'}"));
    let lease = before.lease(9).unwrap();
    process.plan = without;
    swap(&mut process, &two);
    let after = Arc::clone(process.plan.service("s").unwrap().endpoints()[1].live());
    assert!(Arc::ptr_eq(&before, &after));
    drop(lease);
    swap(&mut process, "version: 1");
    swap(&mut process, &two);
    assert!(!Arc::ptr_eq(
        &before,
        process.plan.service("s").unwrap().endpoints()[1].live()
    ));
}

/// Its old connections count in it, and a client that waits in its queue is woken when one of them ends.
#[test]
fn a_service_that_returns_with_other_endpoints_while_connections_live_is_the_same_one() {
    let with = |address: &str| {
        format!("{{version: 1, services: [{{name: s, endpoints: [{{address: '{address}'}}]}}]}}")
    };
    let (mut process, _) = process_with(&with("10.0.0.1:80"));
    let before = Arc::clone(process.plan.service("s").unwrap().state());
    let lease = process.plan.service("s").unwrap().endpoints()[0]
        .live()
        .lease(9)
        .unwrap();
    for _ in 0..3 {
        swap(&mut process, "version: 1");
        assert!(process.plan.service("s").is_none());
    }
    swap(&mut process, &with("10.0.0.2:80"));
    let after = Arc::clone(process.plan.service("s").unwrap().state());
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(after.current(), 1);
    drop(lease);
    assert_eq!(after.current(), 0);

    swap(&mut process, "version: 1");
    let known = Arc::downgrade(&after);
    drop((before, after));
    swap(&mut process, "version: 1");
    assert!(
        known.upgrade().is_none(),
        "nobody is there, nothing is kept"
    );
}

#[test]
fn the_corpus_of_the_fuzz_target_keeps_every_promise() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fuzz/corpus/compile"
    );
    let mut tables = 0;
    for seed in std::fs::read_dir(folder).unwrap() {
        tables += oracle::check(&std::fs::read(seed.unwrap().path()).unwrap());
    }
    assert!(tables > 10, "only {tables} valid tables in {folder}");
}
