//! Shares to the last choice, who gets those of a service that can serve nobody, and clients that stay.

mod affinity;
mod records;

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::compile::{CompileContext, compile};
use crate::loops::LOOPBACK_ONLY;
use crate::plan::{Plan, Serves};
use crate::rng::Rng;
use crate::service::Failure;
use crate::table::{Format, parse};

/// A process that has served valid tables.
struct Process {
    plan: Plan,
    rng: Rng,
}

impl Process {
    /// Serves a table with a tcp frontend that has these fields, and with these services.
    fn new(frontend: &str, services: &str) -> Self {
        let mut process = Self {
            plan: Plan::default(),
            rng: Rng::new(3),
        };
        process.swap(frontend, services);
        process
    }

    fn swap(&mut self, frontend: &str, services: &str) {
        let protocol = if frontend.contains("protocol") {
            ""
        } else {
            "protocol: tcp,"
        };
        self.serve(&format!(
            "{{version: 1, frontends: [{{name: f, bind: ['*:80'], {protocol} {frontend}}}], services: [{services}]}}"
        ));
    }

    fn serve(&mut self, yaml: &str) {
        let table = parse(yaml.as_bytes(), Format::Yaml);
        let mut context = CompileContext {
            now: NOW,
            workers: 2,
            ipv6: true,
            host: &LOOPBACK_ONLY,
            rng: &mut self.rng,
        };
        self.plan = compile(
            table.unwrap_or_else(|it| panic!("{yaml}\n{it}")),
            &self.plan,
            &mut context,
        );
    }

    fn backends(&self) -> &Backends {
        match self.plan.frontends()[0].serves() {
            Serves::Tcp(backends) | Serves::Udp(backends) => backends,
            Serves::Http(http) => {
                let route = http.routes().find(&crate::http::Request {
                    method: "GET",
                    path: "/",
                    query: None,
                    host: None,
                    version: crate::http::Version::Http11,
                    fields: &[],
                });
                &route.route.forward().unwrap().backends
            }
            other => panic!("{other:?}"),
        }
    }

    /// The service of a client that is met for the first time.
    fn choose(&self) -> String {
        self.choose_for(1)
    }

    fn choose_for(&self, client: u8) -> String {
        self.chosen(&key(client), &[], NOW)
    }

    fn chosen(&self, key: &Key, fields: &[Field<'_>], now: Moment) -> String {
        let chosen = self.backends().choose(key, fields, now);
        self.backends().count(chosen.place, WorkerId(0));
        chosen.service.state().name().to_owned()
    }

    /// How often each of these services is chosen in the next `turns`.
    fn shares<const N: usize>(&self, names: [&str; N], turns: usize) -> [usize; N] {
        let mut shares = [0; N];
        for _ in 0..turns {
            let chosen = self.choose();
            let place = names.iter().position(|name| **name == *chosen);
            shares[place.expect("one of them")] += 1;
        }
        shares
    }

    fn set_passing(&self, service: &str, passing: bool) {
        for endpoint in self.plan.service(service).unwrap().endpoints() {
            endpoint.live().set_passing(passing, NOW);
        }
    }
}

fn key(client: u8) -> Key {
    Key::new(SocketAddr::from(([192, 0, 2, client], 4000)))
}

/// A service with one endpoint.
fn one(name: &str, port: u16, fields: &str) -> String {
    format!("{{name: {name}, endpoints: [{{address: '10.0.0.1:{port}'}}], {fields}}}")
}

fn abc(fields: &str) -> String {
    let services = [("a", 1), ("b", 2), ("c", 3)];
    services
        .map(|(name, port)| one(name, port, fields))
        .join(", ")
}

#[test]
fn each_hundred_choices_have_the_exact_shares() {
    let process = Process::new(
        "backends: [{service: a, weight: 90}, {service: b, weight: 9}, {service: c}]",
        &abc(""),
    );
    for _ in 0..10 {
        assert_eq!(process.shares(["a", "b", "c"], 100), [90, 9, 1]);
    }
    // From anywhere.
    process.shares(["a", "b", "c"], 37);
    assert_eq!(process.shares(["a", "b", "c"], 100), [90, 9, 1]);
}

#[test]
fn a_share_does_not_come_all_at_once() {
    let process = Process::new(
        "backends: [{service: a, weight: 80}, {service: b, weight: 20}]",
        &abc(""),
    );
    for _ in 0..40 {
        let of_b = process.shares(["a", "b"], 10)[1];
        assert!((1..=3).contains(&of_b), "{of_b} of 10");
    }
}

#[test]
fn weights_that_fill_no_hundred_are_exact_in_the_long_run() {
    let process = Process::new(
        "backends: [{service: a, weight: 2}, {service: b, weight: 1}]",
        &abc(""),
    );
    for _ in 0..30 {
        let shares = process.shares(["a", "b"], 100);
        assert!([[67, 33], [66, 34]].contains(&shares), "{shares:?}");
    }
    let mut process = process;
    process.swap(
        "backends: [{service: a, weight: 1}, {service: b, weight: 999999}]",
        &abc(""),
    );
    assert!(process.shares(["a", "b"], 20_000)[0] <= 1);
}

#[test]
fn workers_share_one_order() {
    let process = Process::new(
        "backends: [{service: a, weight: 3}, {service: b}]",
        &abc(""),
    );
    let mut of_a = 0;
    for turn in 0..100 {
        let worker = WorkerId(usize::from(turn % 7 == 0));
        let chosen = process.backends().choose(&key(1), &[], NOW);
        process.backends().count(chosen.place, worker);
        of_a += usize::from(chosen.service.state().name() == "a");
    }
    assert_eq!(of_a, 75);
}

#[test]
fn a_service_that_can_serve_nobody_gives_its_share_to_the_others() {
    let backends =
        "backends: [{service: a, weight: 50}, {service: b, weight: 40}, {service: c, weight: 10}]";
    let names = ["a", "b", "c"];
    let process = Process::new(backends, &abc("all-down: refuse"));
    assert_eq!(process.shares(names, 100), [50, 40, 10]);
    process.set_passing("a", false);
    assert_eq!(process.shares(names, 100), [0, 80, 20]);
    process.set_passing("b", false);
    assert_eq!(process.shares(names, 100), [0, 0, 100]);
    // No service can serve the client: the weights alone decide which service refuses it.
    process.set_passing("c", false);
    assert_eq!(process.shares(names, 100), [50, 40, 10]);
    process.set_passing("a", true);
    assert_eq!(process.shares(names, 100), [100, 0, 0]);
    process.set_passing("b", true);
    process.set_passing("c", true);
    assert_eq!(process.shares(names, 100), [50, 40, 10]);
}

#[test]
fn what_makes_a_service_unable() {
    let empty = "{name: a, endpoints: []}".to_owned();
    let of = |endpoint: &str, fields: &str| {
        format!("{{name: a, endpoints: [{{address: '10.0.0.1:1', {endpoint}}}], {fields}}}")
    };
    for (a, is_usable) in [
        (empty, false),
        (of("state: draining", ""), false),
        (of("state: disabled", ""), false),
        (of("weight: 0", ""), false),
        (of("state: backup", ""), true),
        (of("", "all-down: try-all"), true),
        (of("max-connections: 1", ""), true),
    ] {
        let services = format!("{a}, {}", one("b", 2, ""));
        let process = Process::new("backends: [{service: a}, {service: b}]", &services);
        let expected = if is_usable { [50, 50] } else { [0, 100] };
        assert_eq!(process.shares(["a", "b"], 100), expected, "{a}");
    }
    let process = Process::new("backends: [{service: a}, {service: b}]", &abc(""));
    process.set_passing("a", false);
    assert_eq!(process.shares(["a", "b"], 100), [50, 50], "try-all");
}

#[test]
fn a_weight_of_0_gets_nobody() {
    let process = Process::new(
        "backends: [{service: a, weight: 0}, {service: b}]",
        &abc("all-down: refuse"),
    );
    assert_eq!(process.shares(["a", "b"], 100), [0, 100]);
    process.set_passing("b", false);
    assert_eq!(process.shares(["a", "b"], 100), [0, 100]);
}

#[test]
fn who_could_not_reach_an_endpoint_gets_a_service_with_another_one() {
    let process = Process::new(
        "backends: [{service: a, weight: 98}, {service: b}, {service: c}]",
        &abc(""),
    );
    let mut tried = Tried::default();
    let again = |tried: &Tried| -> Vec<String> {
        let choose = || process.backends().choose_again(&key(1), tried, NOW);
        let chosen = (0..100).map(|_| choose().service.state().name().to_owned());
        chosen.collect()
    };
    for (service, left) in [("a", "b"), ("b", "c")] {
        let endpoint = &process.plan.service(service).unwrap().endpoints()[0];
        tried.note(endpoint, Failure::Refused);
        let chosen = again(&tried);
        assert!(chosen.contains(&left.to_owned()) && !chosen.contains(&service.to_owned()));
    }
    // Once all are tried, the same ones are better than none.
    let last = &process.plan.service("c").unwrap().endpoints()[0];
    tried.note(last, Failure::Refused);
    let of_a = again(&tried).iter().filter(|name| **name == "a").count();
    assert_eq!(of_a, 98);
}

#[test]
fn one_service_is_not_chosen_but_given() {
    for frontend in ["service: a", "backends: [{service: a}]"] {
        let process = Process::new(frontend, &abc("all-down: refuse"));
        process.set_passing("a", false);
        assert_eq!(process.shares(["a"], 10), [10]);
        let services = process.backends().services();
        assert_eq!(services.count(), 1);
    }
}

#[test]
fn services_and_edits_are_found_by_their_place() {
    let process = Process::new(
        "protocol: http, default: {backends: [{service: a}, {service: b, request-headers: {set: {X: y}}, response-headers: {remove: [Z]}}]}",
        &abc(""),
    );
    let backends = process.backends();
    let names: Vec<&str> = backends.services().map(|it| it.state().name()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(backends.request_headers(0), None);
    assert_eq!(backends.request_headers(1).unwrap().set.len(), 1);
    assert_eq!(backends.response_headers(1).unwrap().remove.len(), 1);
    assert_eq!(backends.response_headers(2), None);
    for name in ["a", "b", "c"] {
        let endpoint = process.plan.service(name).unwrap().endpoints()[0].live();
        let found = backends.service_of(endpoint);
        let found = found.map(|service| service.state().name());
        assert_eq!(found, (name != "c").then_some(name));
    }
}

proptest! {
    /// Whatever the weights and whoever can serve: each hundred is exact, and nobody is chosen who cannot serve.
    #[test]
    fn shares_are_exact_among_those_that_can_serve(
        weights in prop::collection::vec((0..1000_u32, any::<bool>()), 2..6),
        hundreds in 1..20_usize,
    ) {
        prop_assume!(weights.iter().any(|(weight, can)| *weight > 0 && *can));
        let (mut backends, mut services) = (Vec::new(), Vec::new());
        for (n, (weight, can)) in weights.iter().enumerate() {
            backends.push(format!("{{service: s{n}, weight: {weight}}}"));
            let state = if *can { "ready" } else { "disabled" };
            services.push(format!("{{name: s{n}, endpoints: [{{address: '10.0.0.{n}:1', state: {state}}}]}}"));
        }
        let frontend = format!("backends: [{}]", backends.join(", "));
        let process = Process::new(&frontend, &services.join(", "));
        let total: u32 = weights.iter().map(|(weight, can)| weight * u32::from(*can)).sum();
        let mut all = vec![0_u64; weights.len()];
        for _ in 0..hundreds {
            let mut counts = vec![0_u32; weights.len()];
            for _ in 0..100 {
                let name = process.choose();
                let place: usize = name.strip_prefix('s').unwrap().parse().unwrap();
                counts[place] += 1;
            }
            for (n, (weight, can)) in weights.iter().enumerate() {
                let share = 100 * weight * u32::from(*can);
                prop_assert!(counts[n] == share / total || counts[n] == share.div_ceil(total), "{n}: {counts:?}");
                all[n] += u64::from(counts[n]);
            }
        }
        for (n, (weight, can)) in weights.iter().enumerate() {
            let share = hundreds as f64 * 100.0 * f64::from(*weight) * f64::from(u8::from(*can)) / f64::from(total);
            prop_assert!((all[n] as f64 - share).abs() < 8.0, "{n}: {} for {share}", all[n]);
        }
    }
}

const NOW: Moment = Moment(1_000_000);
