use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::hash::endpoint_hash;

/// How often each endpoint is picked; no leases are held.
fn counts(service: &Service, picks: u32, rng: &mut Rng) -> Vec<u32> {
    let mut counts = vec![0; service.endpoints().len()];
    for n in 0..picks {
        counts[index(service, &client(n), rng).unwrap()] += 1;
    }
    counts
}

fn turns(service: &Service, picks: u32) -> Vec<usize> {
    let mut rng = Rng::new(1);
    (0..picks)
        .map(|n| index(service, &client(n), &mut rng).unwrap())
        .collect()
}

#[test]
fn round_robin_with_equal_weights_is_the_plain_order() {
    let service = service("", &[r#""weight": 5"#; 4]);
    assert_eq!(turns(&service, 9), [0, 1, 2, 3, 0, 1, 2, 3, 0]);
}

#[test]
fn round_robin_does_not_double_the_neighbour_of_a_dead_one() {
    let service = service_of("", 4);
    fail_checks(&service, 1);
    assert_eq!(turns(&service, 9), [0, 2, 3, 0, 2, 3, 0, 2, 3]);
}

#[test]
fn round_robin_passes_over_full_ones() {
    let service = service("", &["", r#""max-connections": 1"#, ""]);
    let held = service.endpoints()[1].live().lease(1);
    assert_eq!(turns(&service, 4), [0, 2, 0, 2]);
    drop(held);
    assert_eq!(turns(&service, 3), [0, 1, 2]);
}

#[test]
fn round_robin_spreads_a_heavy_one() {
    let service = service(
        "",
        &[r#""weight": 50"#, r#""weight": 10"#, r#""weight": 10"#],
    );
    let order = turns(&service, 7);
    assert_eq!(order.iter().filter(|index| **index == 0).count(), 5);
    let light: Vec<usize> = (0..7).filter(|turn| order[*turn] != 0).collect();
    assert!(light[1] - light[0] >= 2, "{order:?}");
}

#[test]
fn round_robin_is_exact_among_backups_too() {
    let backup = |weight| format!(r#""state": "backup", "weight": {weight}"#);
    let (one, two, four) = (backup(1), backup(2), backup(4));
    let service = service("", &["", &one, &two, &four]);
    fail_checks(&service, 0);
    assert_eq!(counts(&service, 7 * 10, &mut Rng::new(1)), [0, 10, 20, 40]);
}

#[test]
fn round_robin_is_one_order_over_all_workers() {
    let service = service("", &[r#""weight": 3"#, r#""weight": 2"#, r#""weight": 1"#]);
    let picked: Vec<_> = [(); 3].map(|()| AtomicU32::new(0)).into();
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (service, picked) = (&service, &picked);
            scope.spawn(move || {
                let mut rng = Rng::new(worker);
                for n in 0..3_000 {
                    let index = index(service, &client(n), &mut rng).unwrap();
                    picked[index].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let picked: Vec<u32> = picked.into_iter().map(AtomicU32::into_inner).collect();
    assert_eq!(picked, [6_000, 4_000, 2_000]);
}

#[test]
fn least_connections_fills_by_weight() {
    for endpoints in [3_usize, 100] {
        let mut words = vec![r#""weight": 1"#; endpoints];
        words[0] = r#""weight": 2"#;
        let service = service(&algorithm("least-connections"), &words);
        let mut rng = Rng::new(1);
        let picks = u32::try_from(endpoints + 1).unwrap() * 20;
        let held: Vec<_> = (0..picks)
            .map(|n| {
                service
                    .pick(&client(n), &Tried::default(), NOW, &mut rng)
                    .unwrap()
            })
            .collect();
        let loads: Vec<u32> = service
            .endpoints()
            .iter()
            .map(|e| e.live().in_flight())
            .collect();
        let most = *loads[1..].iter().max().unwrap();
        match endpoints {
            3 => assert_eq!(loads, [40, 20, 20]),
            _ => assert!(
                most <= 23 && loads[1..].iter().all(|load| *load >= 17),
                "{loads:?}"
            ),
        }
        drop(held);
        assert!(
            service
                .endpoints()
                .iter()
                .all(|e| e.live().in_flight() == 0)
        );
    }
}

#[test]
fn least_connections_rotates_among_equals() {
    let service = service_of(&algorithm("least-connections"), 5);
    let counts = counts(&service, 100, &mut Rng::new(1));
    assert_eq!(counts, [20; 5]);
    let held: Vec<_> = (0..2)
        .map(|n| service.endpoints()[n].live().lease(9))
        .collect();
    let counts = self::counts(&service, 99, &mut Rng::new(1));
    assert_eq!(counts, [0, 0, 33, 33, 33]);
    drop(held);
}

#[test]
fn random_takes_the_better_of_two() {
    let service = service_of(&algorithm("random"), 10);
    let mut rng = Rng::new(1);
    let held: Vec<_> = (0..1_000)
        .map(|n| {
            service
                .pick(&client(n), &Tried::default(), NOW, &mut rng)
                .unwrap()
        })
        .collect();
    let loads: Vec<u32> = service
        .endpoints()
        .iter()
        .map(|e| e.live().in_flight())
        .collect();
    assert!(
        loads.iter().all(|load| (95..=105).contains(load)),
        "{loads:?}"
    );
    drop(held);
}

#[test]
fn first_fills_in_order() {
    let service = service(
        &algorithm("first"),
        &[r#""max-connections": 2"#, r#""max-connections": 1"#, ""],
    );
    let mut rng = Rng::new(1);
    let mut held: Vec<_> = (0..5)
        .map(|n| {
            service
                .pick(&client(n), &Tried::default(), NOW, &mut rng)
                .unwrap()
        })
        .collect();
    let order: Vec<usize> = held.iter().map(|picked| picked.index).collect();
    assert_eq!(order, [0, 0, 1, 2, 2]);
    drop(held.remove(0));
    assert_eq!(index(&service, &client(9), &mut rng), Ok(0));
}

#[test]
fn source_hash_looks_at_the_address_and_source_port_hash_at_both() {
    let mut rng = Rng::new(1);
    let places = |service: &Service, rng: &mut Rng| {
        let mut places: Vec<usize> = (1..200_u16)
            .map(|port| {
                index(
                    service,
                    &Key::new(SocketAddr::from(([10, 0, 0, 1], port))),
                    rng,
                )
                .unwrap()
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    };
    assert_eq!(
        places(&service_of(&algorithm("source-hash"), 10), &mut rng),
        1
    );
    assert_eq!(
        places(&service_of(&algorithm("source-port-hash"), 10), &mut rng),
        10
    );
}

/// These are the results of other machines and of earlier releases. They were computed independently of this code.
#[test]
fn the_hashes_never_change() {
    let service = service_of(&algorithm("source-hash"), 10);
    let mut rng = Rng::new(1);
    let mut place =
        |text: &str| index(&service, &Key::new(text.parse().unwrap()), &mut rng).unwrap();
    let places = [
        "10.0.0.1:1",
        "10.0.0.2:1",
        "192.0.2.7:1",
        "[2001:db8::1]:1",
        "[2001:db8::2]:1",
    ]
    .map(&mut place);
    assert_eq!(places, HASHED);
    let hashes =
        ["10.0.0.1:80", "[2001:db8::1]:443"].map(|text| endpoint_hash(text.parse().unwrap()));
    assert_eq!(hashes, ENDPOINT_HASHES);
}

const HASHED: [usize; 5] = [4, 5, 7, 2, 7];
const ENDPOINT_HASHES: [u64; 2] = [0x2fef_2a1e_d650_adf7, 0x62d0_b110_1ebc_99ad];

#[test]
fn a_hashed_client_whose_endpoint_is_full_goes_to_its_next_rank_and_returns() {
    let service = service(&algorithm("source-hash"), &[r#""max-connections": 1"#; 5]);
    let mut rng = Rng::new(1);
    for n in 0..50 {
        let first = index(&service, &client(n), &mut rng).unwrap();
        let full = service.endpoints()[first].live().lease(1).unwrap();
        let second = index(&service, &client(n), &mut rng).unwrap();
        assert_ne!(first, second);
        let mut tried = Tried::default();
        tried.note(&service.endpoints()[first], Failure::Refused);
        let next = service
            .pick(&client(n), &tried, NOW, &mut rng)
            .unwrap()
            .index;
        assert_eq!(next, second, "the next attempt is the next rank too");
        drop(full);
        assert_eq!(index(&service, &client(n), &mut rng), Ok(first));
    }
}

#[test]
fn weights_hold_within_five_percent() {
    let weights = [1, 2, 3, 5, 9];
    let words: Vec<String> = weights
        .iter()
        .map(|weight| format!(r#""weight": {weight}"#))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let picks = 200_000;
    for name in ["round-robin", "source-hash", "source-port-hash", "random"] {
        let service = service(&algorithm(name), &words);
        let counts = counts(&service, picks, &mut Rng::new(5));
        for (count, weight) in counts.iter().zip(weights) {
            let expected = f64::from(picks) * f64::from(weight) / 20.0;
            let off = (f64::from(*count) - expected).abs() / expected;
            assert!(off < 0.05, "{name}: {counts:?}");
        }
    }
}

#[test]
fn slow_start_gives_each_its_growing_share() {
    let start = 60_000;
    for name in ["round-robin", "source-hash", "random"] {
        let service = service_of(&format!(r#"{}, "slow-start": "60s""#, algorithm(name)), 4);
        service.endpoints()[0].live().begin_ramp(NOW);
        let mut before = vec![];
        for percent in [0, 25, 50, 75, 100] {
            let now = Moment(NOW.0 + start * percent / 100);
            let mut rng = Rng::new(percent);
            let mine: Vec<u32> = (0..20_000)
                .filter(|n| {
                    service
                        .pick(&client(*n), &Tried::default(), now, &mut rng)
                        .unwrap()
                        .index
                        == 0
                })
                .collect();
            let reached = f64::from(u32::try_from(percent).unwrap()) / 100.0;
            let expected = 20_000.0
                * match name {
                    // A client that an endpoint does not take yet goes to its next rank.
                    "source-hash" => reached / 4.0,
                    _ => reached / (3.0 + reached),
                };
            let got = f64::from(u32::try_from(mine.len()).unwrap());
            assert!(
                (got - expected).abs() < 300.0,
                "{name} at {percent} %: {got}, not {expected}"
            );
            if name == "source-hash" {
                assert!(
                    before.iter().all(|n| mine.contains(n)),
                    "clients that came stay"
                );
            }
            before = mine;
        }
    }
}

#[test]
fn a_service_that_only_grows_serves() {
    for name in ALGORITHMS {
        let service = service_of(&format!(r#"{}, "slow-start": "60s""#, algorithm(name)), 3);
        for endpoint in service.endpoints() {
            endpoint.live().begin_ramp(NOW);
        }
        let mut rng = Rng::new(1);
        assert!(
            (0..200).all(|n| index(&service, &client(n), &mut rng).is_ok()),
            "{name}"
        );
    }
}

#[test]
fn slow_start_weakens_least_connections() {
    let service = service_of(
        &format!(r#"{}, "slow-start": "60s""#, algorithm("least-connections")),
        2,
    );
    service.endpoints()[0].live().begin_ramp(NOW);
    let now = Moment(NOW.0 + 20_000);
    let mut rng = Rng::new(1);
    let held: Vec<_> = (0..400)
        .map(|n| {
            service
                .pick(&client(n), &Tried::default(), now, &mut rng)
                .unwrap()
        })
        .collect();
    let mine = held.iter().filter(|picked| picked.index == 0).count();
    assert!((98..=102).contains(&mine), "{mine}");
}
