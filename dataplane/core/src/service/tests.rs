use super::fixture::*;
use super::*;
use crate::endpoint::FULL_SHARE;

const NOW: Moment = Moment(10_000);

fn ms(ms: u64) -> Moment {
    Moment(NOW.0 + ms)
}

/// A dial that timed out after 1.25 s.
fn times_out(service: &Service, index: usize, now: Moment) -> FailureNews {
    service.failed(index, Failure::TimedOut, Moment(now.0 - 1250), now)
}

fn ejected(service: &Service, now: Moment) -> Vec<usize> {
    (0..service.endpoints().len())
        .filter(|index| service.endpoints()[*index].live().is_ejected(now))
        .collect()
}

#[test]
fn a_swap_keeps_what_is_known_by_address() {
    let process = Process::default();
    let old = process.compile(spec_of("", &["", "", ""]), None, NOW);
    old.endpoints()[1].live().set_passing(false, NOW);
    let lease = old.endpoints()[2].live().lease(1);
    let moved = spec(
        r#"{"endpoints": [
        {"address": "127.0.0.1:3", "weight": 7}, {"address": "127.0.0.1:9"},
        {"address": "127.0.0.1:2"}, {"address": "127.0.0.1:1", "max-connections": 4}]}"#,
    );
    let new = process.compile(moved, Some(&old), ms(5));
    assert!(Arc::ptr_eq(old.state(), new.state()));
    for (new_index, old_index) in [(0, 2), (2, 1), (3, 0)] {
        assert!(Arc::ptr_eq(
            new.endpoints()[new_index].live(),
            old.endpoints()[old_index].live()
        ));
    }
    assert_eq!(new.endpoints()[0].live().in_flight(), 1);
    assert!(!new.endpoints()[2].live().is_passing());
    assert_eq!(new.endpoints()[0].weight(), 7);
    assert_eq!(new.endpoints()[3].max_connections(), Some(4));
    drop(lease);
    assert_eq!(new.endpoints()[0].live().in_flight(), 0);
}

#[test]
fn one_that_comes_back_while_it_has_connections_is_the_same_one() {
    let mut process = Process::default();
    let first = process.compile(spec_of("", &["", ""]), None, NOW);
    let lease = first.endpoints()[1].live().lease(9).unwrap();
    let second = process.compile(spec_of("", &[""]), Some(&first), NOW);
    let left = Arc::clone(lease.endpoint());
    process.gone.insert(left.address(), Arc::clone(&left));
    let third = process.compile(spec_of("", &["", ""]), Some(&second), NOW);
    assert!(Arc::ptr_eq(third.endpoints()[1].live(), &left));

    // The same holds for a service that was absent for a while.
    let again = process.compile(spec_of("", &["", ""]), None, NOW);
    assert!(Arc::ptr_eq(again.endpoints()[1].live(), &left));
    assert!(Arc::ptr_eq(again.state(), first.state()));
    assert!(
        again
            .endpoints()
            .iter()
            .all(|endpoint| Arc::ptr_eq(endpoint.live().service(), again.state()))
    );

    // But one service never has two states.
    let other = Process::default().compile(spec_of("", &[""]), None, NOW);
    let mixed = process.compile(spec_of("", &["", ""]), Some(&other), NOW);
    assert!(!Arc::ptr_eq(mixed.endpoints()[1].live(), &left));
    assert!(
        mixed
            .endpoints()
            .iter()
            .all(|endpoint| Arc::ptr_eq(endpoint.live().service(), mixed.state()))
    );
}

#[test]
fn growth_is_said_only_while_something_grows() {
    let process = Process::default();
    let slow = r#""slow-start": "10s""#;
    let first = process.compile(spec_of(slow, &[""]), None, NOW);
    let second = process.compile(spec_of(slow, &["", ""]), Some(&first), NOW);
    let growth = |at, after| {
        let now = NOW.after(Duration::from_secs(after));
        second.growth(&second.endpoints()[at], now)
    };
    assert_eq!((growth(0, 0), growth(1, 0)), (None, Some(0)));
    assert_eq!((growth(1, 5), growth(1, 10)), (Some(50), None));
    let quick = process.compile(spec_of("", &["", ""]), Some(&first), NOW);
    assert_eq!(quick.growth(&quick.endpoints()[1], NOW), None);
}

#[test]
fn slow_start_is_for_the_new_ones_of_a_known_service() {
    let process = Process::default();
    let slow = r#""slow-start": "10s""#;
    let ramps = |service: &Service, now| -> Vec<bool> {
        let grows =
            |endpoint: &Endpoint| endpoint.live().ramp(service.slow_start, now) < FULL_SHARE;
        service.endpoints().iter().map(grows).collect()
    };
    let first = process.compile(spec_of(slow, &["", r#""state": "disabled""#]), None, NOW);
    assert_eq!(ramps(&first, NOW), [false, false], "never at process start");
    let second = process.compile(spec_of(slow, &["", "", ""]), Some(&first), NOW);
    assert_eq!(
        ramps(&second, ms(1)),
        [false, true, true],
        "enabled again, and new"
    );
    assert_eq!(ramps(&second, ms(10_000)), [false, false, false]);
    second.endpoints()[0].live().set_passing(false, ms(20_000));
    second.endpoints()[0].live().set_passing(true, ms(21_000));
    assert_eq!(
        ramps(&second, ms(22_000)),
        [true, false, false],
        "recovered"
    );
    assert!(times_out(&second, 1, ms(23_000)).ejection.is_some());
    assert_eq!(
        ramps(&second, ms(25_000)),
        [true, true, false],
        "back from an ejection"
    );
}

#[test]
fn an_operator_has_the_last_word() {
    let mut process = Process::default();
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let over = Override {
        weight: Some(9),
        state: Some(State::Draining),
        ..Override::default()
    };
    process.over.insert(address, over);
    let service = process.compile(
        spec_of("", &[r#""weight": 3"#, r#""weight": 4"#]),
        None,
        NOW,
    );
    let seen: Vec<_> = service
        .endpoints()
        .iter()
        .map(|e| (e.weight(), e.state()))
        .collect();
    assert_eq!(seen, [(9, State::Draining), (4, State::Ready)]);
}

#[test]
fn a_time_out_ejects_at_once_and_refusals_in_a_row() {
    let service = service_of("", 4);
    let news = times_out(&service, 0, NOW);
    let ejection = news.ejection.unwrap();
    assert_eq!(
        (ejection.reason, ejection.until),
        (EjectionReason::Timeout, ms(1000))
    );
    assert_eq!(ejected(&service, NOW), [0]);

    for failure in [Failure::Refused, Failure::Unreachable] {
        assert!(service.failed(1, failure, NOW, NOW).ejection.is_none());
    }
    service.endpoints()[1].live().connected(NOW);
    for _ in 0..2 {
        assert!(
            service
                .failed(1, Failure::Refused, NOW, NOW)
                .ejection
                .is_none()
        );
    }
    let news = service.failed(1, Failure::Refused, NOW, NOW);
    assert_eq!(news.ejection.unwrap().reason, EjectionReason::Refused);
    assert_eq!(ejected(&service, NOW), [0, 1]);
    assert_eq!(service.state().ejections(EjectionReason::Timeout), 1);
    assert_eq!(service.state().ejections(EjectionReason::Refused), 1);
    assert_eq!(service.next_return(NOW), Some(ms(1000)));
    assert_eq!(service.usable(NOW), (2, 0));

    service.endpoints()[0].live().connected(ms(100));
    assert_eq!(ejected(&service, ms(100)), [1]);
}

#[test]
fn the_share_and_the_last_one_hold() {
    // endpoints, share, time-outs, expected ejections
    let cases = [
        (1, 100, 1, 0),
        (2, 100, 2, 1),
        (2, 50, 2, 1),
        (3, 50, 3, 1),
        (4, 50, 4, 2),
        (5, 1, 5, 1),
        (10, 50, 10, 5),
        (10, 100, 10, 9),
        (10, 29, 10, 2),
    ];
    for (endpoints, share, failing, expected) in cases {
        let service = service_of(&format!(r#""ejection": {{"share": {share}}}"#), endpoints);
        for index in 0..failing {
            drop(times_out(&service, index, NOW));
        }
        assert_eq!(
            ejected(&service, NOW).len(),
            expected,
            "{endpoints} with {share} %"
        );
    }
}

#[test]
fn the_share_counts_those_who_can_be_picked() {
    let service = service(
        r#""ejection": {"share": 50}"#,
        &[
            "",
            "",
            r#""state": "disabled""#,
            r#""weight": 0"#,
            r#""state": "draining""#,
        ],
    );
    assert!(times_out(&service, 0, NOW).ejection.is_some());
    assert!(times_out(&service, 1, NOW).ejection.is_none());
    // Clients with affinity still come to this one.
    assert!(times_out(&service, 4, NOW).ejection.is_some());
}

#[test]
fn one_whose_checks_fail_is_nobody_to_be_left() {
    let service = service_of("", 2);
    service.endpoints()[1].live().set_passing(false, NOW);
    assert!(times_out(&service, 0, NOW).ejection.is_none());
}

#[test]
fn ejection_can_be_off() {
    let service = service(
        r#""ejection": "off""#,
        &[r#""node": "w1""#, r#""node": "w1""#, ""],
    );
    for index in [0, 1, 0] {
        let news = times_out(&service, index, NOW);
        assert!(news.ejection.is_none() && news.silent_node.is_none());
    }
    let node = Arc::clone(service.endpoints()[0].node().unwrap());
    assert_eq!(service.eject_node(&node, NOW), 0);
    assert_eq!(ejected(&service, NOW), [0; 0]);
}

#[test]
fn two_of_one_node_speak_for_all_of_it() {
    let process = Process::default();
    let on = |name: &str| format!(r#""node": "{name}""#);
    let (w1, w2) = (on("w1"), on("w2"));
    let shop = process.compile(
        spec_of("", &[&w1, &w1, &w2, &w1, "", &w2, "", ""]),
        None,
        NOW,
    );
    let mail = process.compile(spec_of("", &[&w2, &w1]), None, NOW);
    assert!(Arc::ptr_eq(
        shop.endpoints()[0].node().unwrap(),
        mail.endpoints()[1].node().unwrap()
    ));

    assert!(times_out(&shop, 0, NOW).silent_node.is_none());
    assert!(
        times_out(&shop, 0, ms(100)).silent_node.is_none(),
        "the same one again"
    );
    assert!(
        times_out(&shop, 2, ms(200)).silent_node.is_none(),
        "another node"
    );
    let node = times_out(&shop, 1, ms(1900)).silent_node.unwrap();
    assert_eq!(node.name(), "w1");
    // The ejection of endpoint 0 has ended by now.
    assert_eq!(shop.eject_node(&node, ms(1900)), 2);
    assert_eq!(ejected(&shop, ms(1900)), [0, 1, 3]);
    assert_eq!(mail.eject_node(&node, ms(1900)), 1);
    assert_eq!(mail.state().ejections(EjectionReason::Node), 1);
    assert_eq!(mail.eject_node(&node, ms(1900)), 0, "once is enough");
}

#[test]
fn a_node_is_not_silent_by_what_is_long_ago_or_too_short() {
    let node = r#""node": "w1""#;
    let service = service("", &[node, node, node, "", "", ""]);
    assert!(times_out(&service, 0, NOW).silent_node.is_none());
    assert!(
        times_out(&service, 1, ms(2001)).silent_node.is_none(),
        "too late"
    );
    let hasty = service.failed(2, Failure::TimedOut, ms(2001), ms(2201));
    assert!(hasty.silent_node.is_none(), "it was given next to no time");
    assert!(times_out(&service, 2, ms(4001)).silent_node.is_some());
}

#[test]
fn many_threads_keep_the_share() {
    let service = service_of(r#""ejection": {"share": 30}"#, 20);
    std::thread::scope(|scope| {
        for worker in 0..4_usize {
            let service = &service;
            scope.spawn(move || {
                for n in 0..20 {
                    drop(times_out(service, (n * 7 + worker * 5) % 20, NOW));
                }
            });
        }
    });
    assert_eq!(ejected(&service, NOW).len(), 6);
}

#[test]
fn panic_is_when_nobody_passes() {
    let cases = [
        (r#""all-down": "try-all""#, vec![false, false], true),
        (r#""all-down": "try-all""#, vec![false, true], false),
        (r#""all-down": "refuse""#, vec![false, false], false),
        ("", vec![], false),
    ];
    for (json, passing, expected) in cases {
        let service = service_of(json, passing.len());
        for (endpoint, passing) in service.endpoints().iter().zip(&passing) {
            endpoint.live().set_passing(*passing, NOW);
        }
        assert_eq!(service.is_panicking(), expected, "{json} {passing:?}");
    }
}

#[test]
fn an_endpoint_costs_little() {
    let state = size_of::<EndpointState>() + 2 * size_of::<usize>();
    let sum = size_of::<Endpoint>() + state;
    assert!(size_of::<Endpoint>() <= 32, "{}", size_of::<Endpoint>());
    assert!(sum <= 160, "{sum}");
}
