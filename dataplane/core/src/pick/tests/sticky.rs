use super::*;

const STICKY: &str = r#""affinity": {"client-ip": "1h"}"#;

/// The endpoints of the first clients.
fn places(service: &Service, clients: u32) -> Vec<usize> {
    let mut rng = Rng::new(1);
    (0..clients)
        .map(|n| index(service, &client(n), &mut rng).unwrap())
        .collect()
}

/// The service after a swap that describes the endpoints differently.
fn swap(old: &Service, words: &[&str]) -> Service {
    Process::default().compile(spec_of(STICKY, words), Some(old), NOW)
}

#[test]
fn the_first_choice_is_by_rendezvous_whatever_the_algorithm() {
    for name in ALGORITHMS
        .into_iter()
        .filter(|name| *name != "source-port-hash")
    {
        let sticky = service_of(&format!("{}, {STICKY}", algorithm(name)), 7);
        let hashed = service_of(&algorithm("source-hash"), 7);
        assert_eq!(places(&sticky, 100), places(&hashed, 100), "{name}");
    }
}

#[test]
fn a_client_stays_though_endpoints_come_and_weights_change() {
    let old = service_of(STICKY, 4);
    let before = places(&old, 100);
    let new = swap(
        &old,
        &[
            r#""weight": 9"#,
            "",
            r#""weight": 2"#,
            "",
            "",
            "",
            r#""weight": 256"#,
        ],
    );
    assert_eq!(places(&new, 100), before);
    assert_eq!(new.state().affinity().unwrap().len(), 100);
}

#[test]
fn a_client_stays_though_the_order_changes() {
    let old = service_of(STICKY, 3);
    let ports = |service: &Service| -> Vec<u16> {
        let places = places(service, 100);
        places
            .into_iter()
            .map(|index| service.endpoints()[index].address().port())
            .collect()
    };
    let before = ports(&old);
    let turned = spec(&format!(
        r#"{{{STICKY}, "endpoints": [{{"address": "127.0.0.1:9", "weight": 256}}, {{"address": "127.0.0.1:3"}},
            {{"address": "127.0.0.1:2"}}, {{"address": "127.0.0.1:1"}}]}}"#
    ));
    let new = Process::default().compile(turned, Some(&old), NOW);
    assert_eq!(ports(&new), before);
}

#[test]
fn clients_reach_draining_and_unweighted_ones_but_never_disabled_ones() {
    for (words, reached) in [
        (r#""state": "draining""#, true),
        (r#""weight": 0"#, true),
        (r#""state": "backup""#, true),
        (r#""state": "disabled""#, false),
    ] {
        let old = service_of(STICKY, 3);
        let before = places(&old, 100);
        let new = swap(&old, &["", words, ""]);
        let after = places(&new, 100);
        for (before, after) in before.iter().zip(&after) {
            let stays = *before != 1 || reached;
            assert_eq!(before == after, stays, "{words}");
        }
        // No other client comes.
        let mut rng = Rng::new(2);
        assert!(
            (1000..1100).all(|n| index(&new, &client(n), &mut rng) != Ok(1)),
            "{words}"
        );
    }
}

#[test]
fn a_client_whose_endpoint_fails_its_checks_moves_for_good() {
    let service = service_of(STICKY, 3);
    let before = places(&service, 100);
    fail_checks(&service, 1);
    let moved = places(&service, 100);
    assert!(moved.iter().all(|index| *index != 1));
    assert!(
        before
            .iter()
            .zip(&moved)
            .all(|(before, after)| *before == 1 || before == after)
    );
    service.endpoints()[1].live().set_passing(true, NOW);
    assert_eq!(places(&service, 100), moved);
}

#[test]
fn a_client_whose_dial_failed_moves_for_good() {
    let service = service_of(STICKY, 3);
    let mut rng = Rng::new(1);
    let first = index(&service, &client(1), &mut rng).unwrap();
    let mut tried = Tried::default();
    tried.note(&service.endpoints()[first], Failure::Refused);
    let second = service
        .pick(&client(1), &tried, NOW, &mut rng)
        .unwrap()
        .index;
    assert_ne!(first, second);
    assert_eq!(index(&service, &client(1), &mut rng), Ok(second));
}

#[test]
fn a_client_whose_endpoint_is_full_or_ejected_comes_back() {
    let service = service(STICKY, &[r#""max-connections": 1"#; 3]);
    let before = places(&service, 100);
    let full = service.endpoints()[1].live().lease(1);
    let meanwhile = places(&service, 100);
    assert!(meanwhile.iter().all(|index| *index != 1));
    drop(full);
    assert_eq!(places(&service, 100), before);

    eject(&service, 1);
    assert_eq!(places(&service, 100), meanwhile);
    service.endpoints()[1].live().connected(NOW);
    assert_eq!(places(&service, 100), before);
}

#[test]
fn where_everybody_is_full_a_client_waits() {
    let service = service(STICKY, &[r#""max-connections": 1"#; 2]);
    let held: Vec<_> = service
        .endpoints()
        .iter()
        .map(|e| e.live().lease(1))
        .collect();
    let mut rng = Rng::new(1);
    assert_eq!(
        index(&service, &client(1), &mut rng),
        Err(Unavailable::Full)
    );
    drop(held);
}

#[test]
fn ignored_checks_move_nobody() {
    let service = service_of(STICKY, 3);
    let before = places(&service, 100);
    // One endpoint fails for a while, so that the remembered endpoints differ from those of rendezvous hashing.
    fail_checks(&service, 0);
    let before: Vec<usize> = before
        .into_iter()
        .zip(places(&service, 100))
        .map(|(_, after)| after)
        .collect();
    (1..3).for_each(|index| fail_checks(&service, index));
    let picked = service
        .pick(&client(1), &Tried::default(), NOW, &mut Rng::new(1))
        .unwrap();
    assert!(picked.is_panic);
    drop(picked);
    assert_eq!(places(&service, 100), before);
}

#[test]
fn an_ejected_one_is_better_than_none() {
    let service = service_of(STICKY, 2);
    let before = places(&service, 20);
    let draining = swap(
        &service,
        &[r#""state": "draining""#, r#""state": "draining""#],
    );
    let one = before[0];
    eject(&draining, one);
    assert_eq!(places(&draining, 1), [one]);
    let stranger = index(&draining, &client(999), &mut Rng::new(1));
    assert_eq!(stranger, Err(Unavailable::NoEndpoint));
}

#[test]
fn a_client_leaves_an_endpoint_that_closes_a_loop_now() {
    let old = service_of(STICKY, 2);
    let before = places(&old, 100);
    assert!(before.contains(&0) && before.contains(&1));
    let process = Process {
        closing: vec![0],
        ..Process::default()
    };
    let new = process.compile(spec_of(STICKY, &["", ""]), Some(&old), NOW);
    assert_eq!(places(&new, 100), [1; 100]);
}
