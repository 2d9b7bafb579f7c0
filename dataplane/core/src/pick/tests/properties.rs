use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;

/// A service whose endpoints may have all kinds of problems.
#[derive(Clone, Debug)]
struct Case {
    algorithm: usize,
    try_all: bool,
    endpoints: Vec<Member>,
    seed: u64,
}

#[derive(Clone, Debug)]
struct Member {
    state: &'static str,
    weight: u16,
    max: Option<u32>,
    held: u32,
    passing: bool,
    ejected: bool,
    closes_loop: bool,
    node: u8,
}

fn member() -> impl Strategy<Value = Member> {
    let state = prop::sample::select(vec![
        "ready", "ready", "ready", "backup", "draining", "disabled",
    ]);
    let weight = prop_oneof![4 => Just(1_u16), 3 => 0_u16..=256];
    let max = prop::option::weighted(0.4, 1_u32..4);
    (
        state,
        weight,
        max,
        0_u32..4,
        prop::bool::weighted(0.7),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.2),
        0_u8..3,
    )
        .prop_map(
            |(state, weight, max, held, passing, ejected, closes_loop, node)| Member {
                state,
                weight,
                max,
                held: held.min(max.unwrap_or(4)),
                passing,
                ejected,
                closes_loop,
                node,
            },
        )
}

fn case() -> impl Strategy<Value = Case> {
    let endpoints = prop_oneof![
        6 => prop::collection::vec(member(), 0..12),
        1 => prop::collection::vec(member(), 60..90),
    ];
    (0..ALGORITHMS.len(), any::<bool>(), endpoints, any::<u64>()).prop_map(
        |(algorithm, try_all, endpoints, seed)| Case {
            algorithm,
            try_all,
            endpoints,
            seed,
        },
    )
}

impl Case {
    fn service(&self) -> (Service, Vec<Lease>) {
        let words: Vec<String> = self
            .endpoints
            .iter()
            .map(|member| {
                let max = member.max.map_or(String::new(), |max| {
                    format!(r#", "max-connections": {max}"#)
                });
                format!(
                    r#""state": "{}", "weight": {}, "node": "w{}"{max}"#,
                    member.state, member.weight, member.node
                )
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let json = format!(
            r#"{}, "all-down": "{}""#,
            algorithm(ALGORITHMS[self.algorithm]),
            if self.try_all { "try-all" } else { "refuse" }
        );
        let closing = (0..self.endpoints.len()).filter(|index| self.endpoints[*index].closes_loop);
        let process = Process {
            closing: closing.collect(),
            ..Process::default()
        };
        let service = process.compile(spec_of(&json, &words), None, Moment(0));
        let mut held = Vec::new();
        for (index, member) in self.endpoints.iter().enumerate() {
            if !member.passing {
                fail_checks(&service, index);
            }
            if member.ejected {
                eject(&service, index);
            }
            held.extend(
                (0..member.held).filter_map(|_| service.endpoints()[index].live().lease(u32::MAX)),
            );
        }
        (service, held)
    }

    /// The rule of the documentation, implemented simply and slowly.
    fn tier(&self, index: usize) -> Option<u8> {
        let member = &self.endpoints[index];
        let eligible =
            member.weight > 0 && matches!(member.state, "ready" | "backup") && !member.closes_loop;
        let backup = u8::from(member.state == "backup");
        match (eligible, member.passing, member.ejected) {
            (false, ..) => None,
            (true, true, false) => Some(2 * backup),
            (true, true, true) => Some(2 * backup + 1),
            (true, false, _) => self.try_all.then_some(4),
        }
    }

    fn is_full(&self, index: usize) -> bool {
        let member = &self.endpoints[index];
        member.max.is_some_and(|max| member.held >= max)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nobody_worse_while_somebody_better_is_untried(case in case()) {
        let (service, _held) = case.service();
        let mut rng = Rng::new(case.seed);
        for n in 0..20 {
            let mut tried = Tried::default();
            let mut gone: Vec<usize> = Vec::new();
            let mut silent: Vec<u8> = Vec::new();
            loop {
                let untried = || (0..case.endpoints.len()).filter(|index| !gone.contains(index));
                let best = untried().filter_map(|index| case.tier(index)).min();
                let of_best = || untried().filter(|index| case.tier(*index) == best && !case.is_full(*index));
                let elsewhere = of_best().any(|index| !silent.contains(&case.endpoints[index].node));
                match service.pick(&client(n), &tried, NOW, &mut rng) {
                    Err(why @ (Unavailable::NoEndpoint | Unavailable::Loop)) => {
                        prop_assert_eq!(best, None);
                        let is_loop = case.endpoints.iter().any(|member| member.closes_loop);
                        prop_assert_eq!(why == Unavailable::Loop, is_loop);
                        break;
                    }
                    Err(Unavailable::Full) => {
                        prop_assert!(best.is_some());
                        prop_assert_eq!(of_best().count(), 0);
                        break;
                    }
                    Ok(picked) => {
                        prop_assert!(best.is_some());
                        prop_assert!(of_best().any(|index| index == picked.index));
                        let node = case.endpoints[picked.index].node;
                        prop_assert!(!elsewhere || !silent.contains(&node));
                        prop_assert_eq!(picked.is_panic, best == Some(4) && gone.is_empty());
                        let failure = if n % 2 == 0 { Failure::TimedOut } else { Failure::Refused };
                        tried.note(&service.endpoints()[picked.index], failure);
                        gone.push(picked.index);
                        if n % 2 == 0 {
                            silent.push(node);
                        }
                    }
                }
            }
        }
        let in_flight: u32 = service.endpoints().iter().map(|e| e.live().in_flight()).sum();
        prop_assert_eq!(in_flight, case.endpoints.iter().map(|member| member.held).sum::<u32>());
    }

    #[test]
    fn a_cycle_gives_everybody_exactly_its_weight(
        weights in prop::collection::vec(0_u16..=40, 1..30),
        down in prop::collection::vec(any::<bool>(), 30),
        cycles in 1_u32..3,
    ) {
        let words: Vec<String> = weights.iter().map(|weight| format!(r#""weight": {weight}"#)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let service = service("", &words);
        let mut rng = Rng::new(1);
        let cycle: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
        let mut counts = vec![0; weights.len()];
        for n in 0..cycle * cycles {
            counts[index(&service, &client(n), &mut rng).unwrap()] += 1;
        }
        let expected: Vec<u32> = weights.iter().map(|weight| u32::from(*weight) * cycles).collect();
        prop_assert_eq!(&counts, &expected);

        // If some of them are down, the shares of the others stay in proportion.
        let up: Vec<usize> = (0..weights.len()).filter(|index| weights[*index] > 0 && !down[*index]).collect();
        (0..weights.len()).filter(|index| !up.contains(index)).for_each(|index| fail_checks(&service, index));
        let cycle: u32 = up.iter().map(|index| u32::from(weights[*index])).sum();
        let mut counts = vec![0_u32; weights.len()];
        for n in 0..cycle * 20 {
            counts[index(&service, &client(n), &mut rng).unwrap()] += 1;
        }
        for index in up {
            let expected = f64::from(weights[index]) * 20.0;
            let off = (f64::from(counts[index]) - expected).abs();
            prop_assert!(off <= 0.05 * expected + 3.0, "{}: {} not {}", index, counts[index], expected);
        }
    }

    #[test]
    fn rendezvous_moves_only_the_clients_of_who_leaves(
        weights in prop::collection::vec(1_u16..=256, 2..12),
        even in any::<bool>(),
        leaving in any::<prop::sample::Index>(),
        turn in 0_usize..12,
    ) {
        let count = weights.len();
        let leaving = leaving.index(count);
        let endpoint = |index: usize| {
            let weight = if even { 3 } else { weights[index] };
            format!(r#"{{"address": "127.0.0.1:{}", "weight": {weight}}}"#, index + 1)
        };
        let service = |order: Vec<usize>| {
            let endpoints: Vec<String> = order.into_iter().map(endpoint).collect();
            let json = format!(r#"{{"algorithm": "source-hash", "endpoints": [{}]}}"#, endpoints.join(","));
            Process::default().compile(spec(&json), None, NOW)
        };
        let all = service((0..count).collect());
        let turned = service((0..count).map(|index| (index + turn) % count).rev().collect());
        let fewer = service((0..count).filter(|index| *index != leaving).collect());
        let mut rng = Rng::new(1);
        let mut port = |service: &Service, n| {
            let picked = service.pick(&client(n), &Tried::default(), NOW, &mut rng).unwrap();
            picked.lease.address().port()
        };
        let gone = u16::try_from(leaving + 1).unwrap();
        for n in 0..300 {
            let before = port(&all, n);
            prop_assert_eq!(port(&turned, n), before, "the order of the table means nothing");
            let after = port(&fewer, n);
            prop_assert!(after != gone);
            prop_assert!(before == gone || before == after);
        }
    }

    #[test]
    fn equal_weights_choose_as_the_general_way_does(count in 1_usize..20, weight in 1_u16..=256) {
        let words = format!(r#""weight": {weight}"#);
        let service = service(&algorithm("source-hash"), &vec![words.as_str(); count]);
        assert!(service.even);
        let candidates = Candidates {
            service: &service,
            tried: &Tried::default(),
            tier: Tier::Ready,
            spare_nodes: false,
            now: NOW,
        };
        for n in 0..200 {
            let key = client(n);
            prop_assert_eq!(rendezvous::pick_fast(&service, &key, NOW), rendezvous::choose(&candidates, &key));
        }
    }

    #[test]
    fn no_limit_is_ever_exceeded(case in case(), clients in 1_u32..80) {
        let (service, _held) = case.service();
        let mut rng = Rng::new(case.seed);
        let mut held: HashMap<u32, Picked> = HashMap::new();
        for n in 0..clients {
            let picked = service.pick(&client(n), &Tried::default(), NOW, &mut rng);
            if let Ok(picked) = picked {
                held.insert(n, picked);
            }
            if rng.below(3) == 0 {
                let leaves = u32::try_from(rng.below(clients.into())).unwrap();
                held.remove(&leaves);
            }
            for endpoint in service.endpoints() {
                prop_assert!(endpoint.live().in_flight() <= endpoint.max);
            }
        }
    }
}
