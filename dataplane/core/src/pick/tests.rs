use super::*;
use crate::service::fixture::*;

mod algorithms;
mod cookie;
mod properties;
mod rounds;
mod sticky;
mod waiting;

const NOW: Moment = Moment(1_000_000);
const ALGORITHMS: [&str; 6] = [
    "round-robin",
    "least-connections",
    "source-hash",
    "source-port-hash",
    "random",
    "first",
];

fn client(n: u32) -> Key {
    Key::new(SocketAddr::from((
        n.wrapping_mul(2_654_435_761).to_be_bytes(),
        4_000,
    )))
}

fn algorithm(name: &str) -> String {
    format!(r#""algorithm": "{name}""#)
}

/// The picked endpoint; the lease is not held.
fn index(service: &Service, key: &Key, rng: &mut Rng) -> Result<usize, Unavailable> {
    service
        .pick(key, &Tried::default(), NOW, rng)
        .map(|picked| picked.index)
}

fn eject(service: &Service, index: usize) {
    let ejected = service.endpoints()[index].live().eject(
        std::time::Duration::from_secs(9),
        std::time::Duration::from_secs(9),
        NOW,
        NOW,
    );
    assert!(ejected.is_some());
}

fn fail_checks(service: &Service, index: usize) {
    service.endpoints()[index].live().set_passing(false, NOW);
}

#[test]
fn the_tiers_come_in_order() {
    const BACKUP: &str = r#""state": "backup""#;
    let (ready, ejected, down) = ((0, ""), (1, ""), (2, ""));
    let (backup, backup_ejected, backup_down) = ((0, BACKUP), (1, BACKUP), (2, BACKUP));
    let (draining, disabled, unweighted) = (
        (0, r#""state": "draining""#),
        (0, r#""state": "disabled""#),
        (0, r#""weight": 0"#),
    );
    let nobody = [draining, disabled, unweighted];
    // The endpoints, those that may be picked, whether that is a panic.
    type Case = (Vec<(u8, &'static str)>, Vec<usize>, bool);
    let cases: Vec<Case> = vec![
        (vec![ejected, ready, backup, down, ready], vec![1, 4], false),
        (vec![ejected, backup, down, ejected], vec![0, 3], false),
        (
            vec![down, backup, backup_ejected, backup],
            vec![1, 3],
            false,
        ),
        (vec![backup_ejected, down, backup_down], vec![0], false),
        (vec![down, backup_down], vec![0, 1], true),
        (
            vec![draining, down, disabled, backup, unweighted],
            vec![3],
            false,
        ),
        (vec![draining, down, disabled, unweighted], vec![1], true),
        (nobody.to_vec(), vec![], false),
        (vec![], vec![], false),
    ];
    for name in ALGORITHMS {
        for (endpoints, expected, is_panic) in &cases {
            let words: Vec<&str> = endpoints.iter().map(|(_, words)| *words).collect();
            let service = service(&algorithm(name), &words);
            for (index, (health, _)) in endpoints.iter().enumerate() {
                match health {
                    1 => eject(&service, index),
                    2 => fail_checks(&service, index),
                    _ => {}
                }
            }
            let mut rng = Rng::new(1);
            for n in 0..40 {
                let picked = service.pick(&client(n), &Tried::default(), NOW, &mut rng);
                match picked {
                    Ok(picked) => {
                        assert!(
                            expected.contains(&picked.index),
                            "{name} {endpoints:?}: {picked:?}"
                        );
                        assert_eq!(picked.is_panic, *is_panic, "{name} {endpoints:?}");
                    }
                    Err(why) => {
                        assert_eq!(why, Unavailable::NoEndpoint);
                        assert!(expected.is_empty(), "{name} {endpoints:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn with_refuse_nobody_is_tried_whose_checks_fail() {
    for name in ALGORITHMS {
        let service = service_of(&format!(r#"{}, "all-down": "refuse""#, algorithm(name)), 3);
        (0..3).for_each(|index| fail_checks(&service, index));
        let none = index(&service, &client(1), &mut Rng::new(1));
        assert_eq!(none, Err(Unavailable::NoEndpoint));
    }
}

#[test]
fn a_further_attempt_goes_down_the_tiers_and_is_never_a_panic() {
    for name in ALGORITHMS {
        let service = service(&algorithm(name), &["", "", r#""state": "backup""#, ""]);
        eject(&service, 1);
        fail_checks(&service, 3);
        let mut rng = Rng::new(2);
        let mut tried = Tried::default();
        for expected in [0, 1, 2, 3] {
            let picked = service.pick(&client(1), &tried, NOW, &mut rng).unwrap();
            assert_eq!((picked.index, picked.is_panic), (expected, false), "{name}");
            tried.note(&service.endpoints()[picked.index], Failure::Refused);
        }
        let none = service.pick(&client(1), &tried, NOW, &mut rng);
        assert_eq!(none.unwrap_err(), Unavailable::NoEndpoint);
    }
}

#[test]
fn after_a_time_out_its_node_is_avoided_while_that_can_be() {
    let (w1, w2) = (r#""node": "w1""#, r#""node": "w2", "max-connections": 1"#);
    for name in ALGORITHMS {
        let service = service(&algorithm(name), &[w1, w1, w1, w2]);
        let mut rng = Rng::new(3);
        for first in 0..3 {
            let mut refused = Tried::default();
            refused.note(&service.endpoints()[first], Failure::Refused);
            let mut timed_out = Tried::default();
            timed_out.note(&service.endpoints()[first], Failure::TimedOut);
            let mut seen = [false; 4];
            for n in 0..60 {
                let picked = service.pick(&client(n), &timed_out, NOW, &mut rng).unwrap();
                assert_eq!(picked.index, 3, "{name}");
                drop(picked);
                seen[service
                    .pick(&client(n), &refused, NOW, &mut rng)
                    .unwrap()
                    .index] = true;
            }
            assert!(!seen[first]);
            // If the good node is full, the silent one is better than waiting.
            let full = service.endpoints()[3].live().lease(1);
            let picked = service.pick(&client(1), &timed_out, NOW, &mut rng).unwrap();
            assert!(picked.index < 3 && picked.index != first);
            drop(full);
        }
    }
}

#[test]
fn what_was_tried_stays_tried_after_a_swap() {
    let process = Process::default();
    let old = process.compile(spec_of("", &["", ""]), None, NOW);
    let mut tried = Tried::default();
    tried.note(&old.endpoints()[0], Failure::Refused);
    let turned = spec(r#"{"endpoints": [{"address": "127.0.0.1:2"}, {"address": "127.0.0.1:1"}]}"#);
    let new = process.compile(turned, Some(&old), NOW);
    let picked = new.pick(&client(1), &tried, NOW, &mut Rng::new(1)).unwrap();
    assert_eq!(picked.lease.address().port(), 2);
}

#[test]
fn a_full_tier_is_full_though_others_have_room() {
    for name in ALGORITHMS {
        let full = r#""max-connections": 1"#;
        let service = service(&algorithm(name), &[full, full, r#""state": "backup""#, ""]);
        fail_checks(&service, 3);
        let mut rng = Rng::new(1);
        let held: Vec<_> = (0..2)
            .map(|n| {
                service
                    .pick(&client(n), &Tried::default(), NOW, &mut rng)
                    .unwrap()
            })
            .collect();
        assert_ne!(held[0].index, held[1].index);
        assert_eq!(
            index(&service, &client(7), &mut rng),
            Err(Unavailable::Full),
            "{name}"
        );
        let mut tried = Tried::default();
        tried.note(&service.endpoints()[0], Failure::Refused);
        let again = service.pick(&client(7), &tried, NOW, &mut rng);
        assert_eq!(again.unwrap_err(), Unavailable::Full, "{name}");
        drop(held);
        assert!(index(&service, &client(7), &mut rng).is_ok());
    }
}

#[test]
fn a_key_is_the_client_in_its_one_form() {
    let mapped = Key::new("[::ffff:10.0.0.1]:7".parse().unwrap());
    assert_eq!(mapped, Key::new("10.0.0.1:7".parse().unwrap()));
    assert_eq!(mapped.client().to_string(), "10.0.0.1:7");
}

#[test]
fn ten_thousand_endpoints_are_no_matter() {
    for name in ALGORITHMS {
        let service = service_of(&algorithm(name), 10_000);
        let mut rng = Rng::new(4);
        let mut seen = std::collections::HashSet::new();
        for n in 0..100 {
            seen.insert(index(&service, &client(n), &mut rng).unwrap());
        }
        assert!(name == "first" || seen.len() > 80, "{name}: {}", seen.len());
        // All but one fail.
        for index in (0..10_000).filter(|index| *index != 7_777) {
            fail_checks(&service, index);
        }
        assert_eq!(index(&service, &client(1), &mut rng), Ok(7_777), "{name}");
    }
}

#[test]
fn there_is_another_one_only_if_it_may_be_picked() {
    let refuse = r#""all-down": "refuse""#;
    let cases: [(&str, &str, bool); 6] = [
        ("", "", true),
        (refuse, "", true),
        ("", r#""state": "backup""#, true),
        ("", r#""state": "draining""#, false),
        ("", r#""weight": 0"#, false),
        ("", r#""state": "disabled""#, false),
    ];
    for (fields, other, has_another) in cases {
        let service = service(fields, &["", other]);
        let tried = Tried::default();
        assert_eq!(service.has_another(0, &tried), has_another, "{other}");
    }
    for (fields, has_another) in [("", true), (refuse, false)] {
        let service = service(fields, &["", ""]);
        fail_checks(&service, 1);
        let mut tried = Tried::default();
        assert_eq!(service.has_another(0, &tried), has_another, "{fields}");
        tried.note(&service.endpoints()[1], Failure::Refused);
        assert!(!service.has_another(0, &tried), "it was tried");
    }
}
