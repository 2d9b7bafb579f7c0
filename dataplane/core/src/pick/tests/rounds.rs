//! Rounds of attempts: which endpoints are tried again, and after which pause.

use std::time::Duration;

use super::*;

const FAR: Moment = Moment(u64::MAX);

fn attempt(service: &Service, tried: &mut Tried, now: Moment) -> usize {
    let picked = service.pick(&client(1), tried, now, &mut Rng::new(1));
    let picked = picked.unwrap();
    assert!(!picked.is_panic || tried.is_empty());
    tried.note(&service.endpoints()[picked.index], Failure::Refused);
    picked.index
}

/// The endpoints that a client tries if every attempt is refused, and the pauses between the rounds in milliseconds.
fn rounds(service: &Service, now: Moment) -> Vec<(Vec<usize>, Option<u64>)> {
    let (mut tried, mut rounds) = (Tried::default(), Vec::new());
    loop {
        let mut round = Vec::new();
        while !service.is_spent(&tried)
            && service
                .pick(&client(1), &tried, now, &mut Rng::new(1))
                .is_ok()
        {
            round.push(attempt(service, &mut tried, now));
        }
        let pause = service.pause(&tried, now, FAR);
        rounds.push((round, pause.map(crate::moment::whole_millis)));
        if pause.is_none() {
            return rounds;
        }
        tried.begin_again(service, now);
    }
}

#[test]
fn the_same_order_is_tried_again_until_the_attempts_are_spent() {
    let first = |retries: u16| format!(r#""algorithm": "first", "retries": {retries}"#);
    assert_eq!(rounds(&service(&first(0), &[""]), NOW), [(vec![0], None)]);
    let alone = rounds(&service(&first(7), &[""]), NOW);
    let pauses: Vec<_> = alone.iter().map(|(_, pause)| *pause).collect();
    assert!(alone.iter().all(|(round, _)| *round == [0]));
    assert_eq!(
        pauses,
        [100, 200, 400, 800, 1_000, 1_000, 1_000, 0].map(|ms| (ms > 0).then_some(ms))
    );
    let four = service(
        &first(5),
        &["", r#""state": "backup""#, "", r#""state": "draining""#],
    );
    assert_eq!(
        rounds(&four, NOW),
        [(vec![0, 2, 1], Some(100)), (vec![0, 2, 1], None)]
    );
    assert_eq!(
        rounds(&service(&first(3), &[""; 9]), NOW),
        [(vec![0, 1, 2, 3], None)],
        "untried ones come first"
    );
}

#[test]
fn the_longest_pause_is_a_second_whatever_the_round() {
    let service = service(r#""retries": 200"#, &[""]);
    let rounds = rounds(&service, NOW);
    assert_eq!(rounds.len(), 201);
    assert_eq!(rounds[199].1, Some(1_000));
}

#[test]
fn there_is_a_pause_only_where_something_is_left_to_do() {
    let refuse = r#""all-down": "refuse""#;
    let tried_once = |service: &Service| {
        let mut tried = Tried::default();
        attempt(service, &mut tried, NOW);
        tried
    };
    let pause = |service: &Service, tried: &Tried, deadline| service.pause(tried, NOW, deadline);
    let plain = service("", &[""]);
    let tried = tried_once(&plain);
    let long = Some(Duration::from_millis(100));
    assert_eq!(
        pause(&plain, &Tried::default(), FAR),
        None,
        "nothing was tried"
    );
    assert_eq!(pause(&plain, &tried, FAR), long);
    assert_eq!(pause(&plain, &tried, Moment(NOW.0 + 101)), long);
    assert_eq!(pause(&plain, &tried, Moment(NOW.0 + 100)), None);
    assert_eq!(pause(&plain, &tried, Moment(NOW.0 - 1)), None);
    // The present table counts.
    for (fields, endpoints, expected) in [
        ("", &[][..], None),
        ("", &[r#""state": "disabled""#], None),
        ("", &[r#""state": "draining""#], None),
        ("", &[r#""weight": 0"#], None),
        (r#""retries": 0"#, &[""], None),
        (refuse, &[""], long),
        ("", &[r#""state": "backup""#], long),
    ] {
        let service = service(fields, endpoints);
        assert_eq!(
            pause(&service, &tried, FAR),
            expected,
            "{fields} {endpoints:?}"
        );
    }
    for (fields, expected) in [("", long), (refuse, None)] {
        let service = service(fields, &[""]);
        let tried = tried_once(&service);
        fail_checks(&service, 0);
        assert_eq!(pause(&service, &tried, FAR), expected, "{fields}");
    }
}

#[test]
fn an_ejected_endpoint_is_tried_again_only_where_all_are_ejected() {
    for name in ALGORITHMS {
        let fields = format!(r#"{}, "retries": 9"#, algorithm(name));
        let three = service(&fields, &["", "", ""]);
        eject(&three, 0);
        eject(&three, 2);
        let rounds_of = rounds(&three, NOW);
        assert_eq!(rounds_of[0].0.len(), 3, "{name}: each is tried once");
        assert!(
            rounds_of[1..].iter().all(|(round, _)| *round == [1]),
            "{name}"
        );
        // Its ejection has ended.
        let later = Moment(NOW.0 + 9_000);
        assert_eq!(rounds(&three, later)[1].0.len(), 3, "{name}");

        let backed = service(&fields, &["", r#""state": "backup""#]);
        eject(&backed, 0);
        assert_eq!(
            rounds(&backed, NOW)[1].0,
            [1],
            "{name}: the backup is not ejected"
        );

        let down = service(&fields, &["", ""]);
        eject(&down, 0);
        fail_checks(&down, 1);
        assert_eq!(
            rounds(&down, NOW)[1].0,
            [0, 1],
            "{name}: no other one is better"
        );
    }
}

#[test]
fn what_a_new_table_brings_is_tried_before_what_was_tried() {
    let process = Process::default();
    let old = process.compile(spec_of("", &[""]), None, NOW);
    let mut tried = Tried::default();
    attempt(&old, &mut tried, NOW);
    let new = process.compile(spec_of("", &["", ""]), Some(&old), NOW);
    tried.begin_again(&new, NOW);
    assert_eq!(attempt(&new, &mut tried, NOW), 1);
    let none = new.pick(&client(1), &tried, NOW, &mut Rng::new(1));
    assert_eq!(none.unwrap_err(), Unavailable::NoEndpoint);
    // The pauses continue as they were.
    assert_eq!(
        new.pause(&tried, NOW, FAR),
        Some(Duration::from_millis(200))
    );
    tried.begin_again(&new, NOW);
    let mut again = [
        attempt(&new, &mut tried, NOW),
        attempt(&new, &mut tried, NOW),
    ];
    again.sort_unstable();
    assert_eq!(again, [0, 1]);
}

#[test]
fn what_was_cut_is_not_tried_again() {
    let alone = service(r#""retries": 9"#, &[""]);
    let mut tried = Tried::default();
    attempt(&alone, &mut tried, NOW);
    tried.cut(alone.endpoints()[0].live());
    assert_eq!(alone.pause(&tried, NOW, FAR), None);

    let two = service(r#""retries": 9, "algorithm": "first""#, &["", ""]);
    let mut tried = Tried::default();
    for cut in [0, 1] {
        assert_eq!(attempt(&two, &mut tried, NOW), cut);
    }
    tried.cut(two.endpoints()[0].live());
    for _ in 0..3 {
        assert!(two.pause(&tried, NOW, FAR).is_some());
        tried.begin_again(&two, NOW);
        assert_eq!(attempt(&two, &mut tried, NOW), 1);
    }
}

/// A client that tries again waits in the queue like others, and does not count as unserved.
#[test]
fn a_client_that_tries_again_is_told_of_a_full_service() {
    let full = r#""max-connections": 1"#;
    let service = service("", &[full]);
    let mut tried = Tried::default();
    attempt(&service, &mut tried, NOW);
    tried.begin_again(&service, NOW);
    assert!(!tried.is_empty());
    assert_eq!(tried.fingerprint(), 0);
    let held = service.endpoints()[0].live().lease(1);
    let none = service.pick(&client(1), &tried, NOW, &mut Rng::new(1));
    assert_eq!(none.unwrap_err(), Unavailable::Full);
    drop(held);
    assert_eq!(attempt(&service, &mut tried, NOW), 0);
}
