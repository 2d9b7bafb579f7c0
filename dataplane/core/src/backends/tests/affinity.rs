//! Clients that stay with the service that they had.

use std::time::Duration;

use super::*;
use crate::affinity::cookie::CookieValue;
use crate::pick::Picked;

const BY_ADDRESS: &str = "affinity: {client-ip: 1h}, all-down: refuse";
const BY_COOKIE: &str = "affinity: {cookie: SERVERID}, all-down: refuse";
const EVENLY: &str = "backends: [{service: a}, {service: b}]";

impl Process {
    /// Chooses a service, and picks an endpoint there.
    fn pick(&mut self, client: u8, now: Moment) -> (String, Picked) {
        let key = key(client);
        let chosen = self.backends().choose(&key, &[], now);
        let service = Arc::clone(chosen.service);
        let picked = service.pick(&key, &Tried::default(), now, &mut self.rng);
        (service.state().name().to_owned(), picked.unwrap())
    }
}

fn after(minutes: u64) -> Moment {
    NOW.after(Duration::from_secs(minutes * 60))
}

#[test]
fn a_client_stays_by_its_address() {
    let mut process = Process::new(EVENLY, &abc(BY_ADDRESS));
    let first: Vec<String> = (0..100).map(|n| process.pick(n, NOW).0).collect();
    let of_a = first.iter().filter(|name| **name == "a").count();
    assert_eq!(of_a, 50, "new ones are shared out");
    // Each time renews it.
    for minutes in [30, 80, 130] {
        let again = (0..100).map(|n| process.pick(n, after(minutes)).0);
        assert_eq!(again.collect::<Vec<_>>(), first);
    }
    // So that the next hundred does not begin with the first client.
    process.pick(200, NOW);
    let later = (0..100).map(|n| process.pick(n, after(191)).0);
    assert_ne!(later.collect::<Vec<_>>(), first, "it has expired");
}

#[test]
fn a_weight_of_0_keeps_its_clients_and_gets_no_others() {
    let mut process = Process::new(EVENLY, &abc(BY_ADDRESS));
    let first: Vec<String> = (0..20).map(|n| process.pick(n, NOW).0).collect();
    process.swap(
        "backends: [{service: a, weight: 0}, {service: b}]",
        &abc(BY_ADDRESS),
    );
    let again = (0..20).map(|n| process.pick(n, NOW).0);
    assert_eq!(again.collect::<Vec<_>>(), first);
    assert!((20..60).all(|n| process.pick(n, NOW).0 == "b"));
}

#[test]
fn a_client_of_the_one_service_stays_when_another_one_joins_it() {
    let mut process = Process::new("service: a", &abc(BY_ADDRESS));
    (0..20).for_each(|n| drop(process.pick(n, NOW)));
    process.swap(
        "backends: [{service: a, weight: 1}, {service: b, weight: 99}]",
        &abc(BY_ADDRESS),
    );
    assert!((0..20).all(|n| process.pick(n, NOW).0 == "a"));
    let of_b = (20..120).filter(|n| process.pick(*n, NOW).0 == "b").count();
    assert_eq!(of_b, 99);
}

#[test]
fn a_client_moves_when_its_service_fails_and_then_stays_there() {
    let mut process = Process::new(EVENLY, &abc(BY_ADDRESS));
    let clients = 0..20;
    clients.clone().for_each(|n| drop(process.pick(n, NOW)));
    process.set_passing("a", false);
    assert!(clients.clone().all(|n| process.pick(n, after(1)).0 == "b"));
    process.set_passing("a", true);
    let moved = clients.map(|n| process.pick(n, after(2)).0);
    assert!(
        moved.into_iter().all(|name| name == "b"),
        "they stay with the last one"
    );
}

#[test]
fn a_draining_endpoint_keeps_its_clients() {
    let mut process = Process::new(EVENLY, &abc(BY_ADDRESS));
    let first: Vec<String> = (0..20).map(|n| process.pick(n, NOW).0).collect();
    let drained = abc(BY_ADDRESS).replacen(":1'", ":1', state: draining", 1);
    process.swap(EVENLY, &drained);
    let again = (0..20).map(|n| process.pick(n, NOW).0);
    assert_eq!(again.collect::<Vec<_>>(), first);
    assert!((20..40).all(|n| process.pick(n, NOW).0 == "b"));
    let disabled = drained.replace("draining", "disabled");
    process.swap(EVENLY, &disabled);
    assert!((0..20).all(|n| process.pick(n, NOW).0 == "b"));
}

#[test]
fn a_client_stays_with_a_service_whose_other_endpoints_can_serve_it() {
    let a = |ports: &[u16]| {
        let endpoints = ports
            .iter()
            .map(|port| format!("{{address: '10.0.0.1:{port}'}}"));
        let endpoints = endpoints.collect::<Vec<_>>().join(", ");
        format!(
            "{{name: a, endpoints: [{endpoints}], {BY_ADDRESS}}}, {}",
            one("b", 2, BY_ADDRESS)
        )
    };
    let mut process = Process::new(
        "backends: [{service: a}, {service: b, weight: 0}]",
        &a(&[1]),
    );
    (0..10).for_each(|n| drop(process.pick(n, NOW)));
    process.swap(
        "backends: [{service: a, weight: 0}, {service: b}]",
        &a(&[3]),
    );
    assert!((0..10).all(|n| process.pick(n, NOW).0 == "a"));
}

proptest! {
    /// A client stays with its service as long as that can serve it, while other services fail and return and weights change.
    #[test]
    fn a_client_leaves_its_service_only_when_that_fails(
        steps in prop::collection::vec((0..6_u8, prop::option::of((0..3_usize, any::<bool>())), prop::option::of(prop::array::uniform3(0..3_u32))), 1..40),
    ) {
        let names = ["a", "b", "c"];
        let list = |weights: [u32; 3]| {
            let backends = names.iter().zip(weights);
            let backends = backends.map(|(name, weight)| format!("{{service: {name}, weight: {weight}}}"));
            format!("backends: [{}]", backends.collect::<Vec<_>>().join(", "))
        };
        let mut weights = [1; 3];
        let mut passing = [true; 3];
        // When each client came to each service for the last time; 0: never.
        let mut came = [[0; 3]; 6];
        let mut process = Process::new(&list(weights), &abc(BY_ADDRESS));
        for (step, (client, change, other)) in (1..).zip(steps) {
            let now = NOW.after(Duration::from_millis(step));
            if let Some((service, passes)) = change {
                passing[service] = passes;
                process.set_passing(names[service], passes);
            }
            if let Some(other) = other.filter(|other| other.iter().sum::<u32>() > 0) {
                weights = other;
                process.swap(&list(weights), &abc(BY_ADDRESS));
            }
            let key = key(client);
            let chosen = process.chosen(&key, &[], now);
            let came = &mut came[usize::from(client)];
            let place = names.iter().position(|name| **name == *chosen).unwrap();
            let last = (0..3).max_by_key(|place| came[*place]).filter(|place| came[*place] > 0);
            match last {
                Some(last) if passing[last] => prop_assert_eq!(place, last),
                _ => {
                    let any = passing.iter().zip(weights).any(|(passes, weight)| *passes && weight > 0);
                    prop_assert!(weights[place] > 0 && (passing[place] || !any));
                }
            }
            let service = Arc::clone(process.plan.service(&chosen).unwrap());
            let picked = service.pick(&key, &Tried::default(), now, &mut process.rng);
            // A client that is known counts as one that came, also where it is turned away.
            if picked.is_ok() || came[place] > 0 {
                came[place] = step;
            }
        }
    }
}

#[test]
fn the_cookie_that_a_client_sends_decides() {
    let process = Process::new(
        "protocol: http, default: {backends: [{service: a, weight: 0}, {service: b}, {service: c}]}",
        &abc(BY_COOKIE),
    );
    let ask = |text: &str| {
        let field = Field {
            name: "cookie",
            value: text.as_bytes(),
        };
        process.chosen(&key(1), &[field], NOW)
    };
    let cookie = |service: &str, port: u16| {
        let endpoint = SocketAddr::from(([10, 0, 0, 1], port));
        format!("x=1; SERVERID={}", CookieValue::of(service, endpoint))
    };
    for _ in 0..5 {
        assert_eq!(ask(&cookie("a", 1)), "a");
        assert_eq!(ask(&cookie("b", 2)), "b");
        assert_eq!(ask(&cookie("c", 3)), "c");
    }
    // Such an endpoint is not there, or has never been.
    let unknown = [cookie("a", 2), cookie("d", 1), "SERVERID=x".to_owned()];
    for text in unknown {
        let names: Vec<String> = (0..100).map(|_| ask(&text)).collect();
        assert!(
            ["b", "c"]
                .iter()
                .all(|name| names.contains(&(*name).to_owned()))
        );
        assert!(!names.contains(&"a".to_owned()));
    }
    process.set_passing("a", false);
    let names: Vec<String> = (0..100).map(|_| ask(&cookie("a", 1))).collect();
    assert!(!names.contains(&"a".to_owned()), "it cannot serve");
}

#[test]
fn a_cookie_counts_more_than_an_address() {
    let services = format!("{}, {}", one("a", 1, BY_ADDRESS), one("b", 2, BY_COOKIE));
    let mut process = Process::new(
        "protocol: http, default: {backends: [{service: a}, {service: b, weight: 0}]}",
        &services,
    );
    process.pick(1, NOW);
    assert_eq!(process.choose_for(1), "a");
    let value = CookieValue::of("b", SocketAddr::from(([10, 0, 0, 1], 2)));
    let text = format!("SERVERID={value}");
    let field = Field {
        name: "Cookie",
        value: text.as_bytes(),
    };
    assert_eq!(process.chosen(&key(1), &[field], NOW), "b");
}
