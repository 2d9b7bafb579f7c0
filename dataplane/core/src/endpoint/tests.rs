use super::*;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

fn endpoint() -> Arc<EndpointState> {
    let service = Arc::new(ServiceState::new("s", 2));
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    Arc::new(EndpointState::new(&service, address))
}

#[test]
fn a_lease_counts_while_it_is_held() {
    let endpoint = endpoint();
    let first = endpoint.lease(2).unwrap();
    let second = endpoint.lease(2).unwrap();
    assert!(endpoint.lease(2).is_none());
    assert_eq!((endpoint.in_flight(), endpoint.peak()), (2, 2));
    drop(first);
    assert_eq!(endpoint.in_flight(), 1);
    drop(endpoint.lease(2).unwrap());
    drop(second);
    assert_eq!((endpoint.in_flight(), endpoint.peak()), (0, 2));
    assert!(endpoint.lease(0).is_none());
}

#[test]
fn a_service_counts_the_leases_of_all_its_endpoints() {
    let service = Arc::new(ServiceState::new("s", 2));
    let [one, other] = [1, 2].map(|port| {
        Arc::new(EndpointState::new(
            &service,
            SocketAddr::from(([127, 0, 0, 1], port)),
        ))
    });
    let (first, second) = (one.lease(9).unwrap(), other.lease(9).unwrap());
    assert_eq!((service.current(), service.peak()), (2, 2));
    drop(first);
    assert_eq!((service.current(), service.peak()), (1, 2));
    drop(second);
    drop(one.lease(9).unwrap());
    assert_eq!((service.current(), service.peak()), (0, 2));
}

#[test]
fn many_threads_never_exceed_the_limit_and_end_at_zero() {
    let endpoint = endpoint();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let lease = endpoint.lease(3);
                    assert!(endpoint.in_flight() <= 3);
                    drop(lease);
                }
            });
        }
    });
    assert_eq!(endpoint.in_flight(), 0);
    assert!(endpoint.peak() <= 3);
}

#[test]
fn ejections_double_up_to_the_longest() {
    let endpoint = endpoint();
    let mut now = Moment(10_000);
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        let until = endpoint.eject(FIRST, LONGEST, now, now).unwrap();
        assert_eq!(until, now.after(Duration::from_secs(seconds)));
        assert!(endpoint.is_ejected(now));
        assert_eq!(endpoint.ejected_until(now), Some(until));
        now = until;
        assert!(!endpoint.is_ejected(now));
    }
}

#[test]
fn one_that_held_out_begins_anew() {
    let endpoint = endpoint();
    let until = endpoint
        .eject(FIRST, LONGEST, Moment(0), Moment(0))
        .unwrap();
    let until = endpoint.eject(FIRST, LONGEST, until, until).unwrap();
    assert_eq!(until, Moment(3000));
    let soon = Moment(until.0 + 1999);
    assert_eq!(
        endpoint.eject(FIRST, LONGEST, soon, soon),
        Some(Moment(soon.0 + 4000))
    );
    let late = Moment(soon.0 + 8000);
    assert_eq!(
        endpoint.eject(FIRST, LONGEST, late, late),
        Some(Moment(late.0 + 1000))
    );
}

#[test]
fn a_dial_that_waits_in_vain_for_longer_than_the_ejection_is_no_holding_out() {
    let endpoint = endpoint();
    let mut began = Moment(10_000);
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        let timed_out = began.after(Duration::from_millis(1250));
        let until = endpoint.eject(FIRST, LONGEST, began, timed_out).unwrap();
        assert_eq!(until, timed_out.after(Duration::from_secs(seconds)));
        began = until;
    }
}

#[test]
fn one_at_a_time_tries_who_was_ejected_until_somebody_reaches_it() {
    let endpoint = endpoint();
    let trial = Duration::from_secs(2);
    assert!(!endpoint.begin_trial(trial, Moment(0)), "it is well");
    let until = endpoint
        .eject(FIRST, LONGEST, Moment(0), Moment(0))
        .unwrap();
    assert!(
        !endpoint.begin_trial(trial, Moment(until.0 - 1)),
        "too soon"
    );
    assert!(endpoint.begin_trial(trial, until));
    assert!(endpoint.is_ejected(until), "for others");
    assert!(!endpoint.begin_trial(trial, until));

    // The trial fails, and an overlapping dial gives no new information.
    let now = until.after(Duration::from_millis(1250));
    let until = endpoint.eject_longer(FIRST, LONGEST, now).unwrap();
    assert_eq!(until, now.after(2 * FIRST));
    assert_eq!(endpoint.eject(FIRST, LONGEST, now, now), None);

    // The client of the trial is gone without a result: another client tries.
    assert!(endpoint.begin_trial(trial, until));
    let forgotten = until.after(trial);
    assert!(endpoint.begin_trial(trial, forgotten));

    endpoint.connected(forgotten);
    assert!(!endpoint.is_ejected(forgotten));
    assert_eq!(endpoint.eject_longer(FIRST, LONGEST, forgotten), None);
    assert!(!endpoint.begin_trial(trial, forgotten.after(LONGEST)));
}

#[test]
fn old_dials_say_nothing_new() {
    let endpoint = endpoint();
    let until = endpoint
        .eject(FIRST, LONGEST, Moment(0), Moment(500))
        .unwrap();
    let later = Moment(until.0 + 200);
    assert_eq!(
        endpoint.eject(FIRST, LONGEST, Moment(400), Moment(600)),
        None
    );
    assert_eq!(endpoint.eject(FIRST, LONGEST, Moment(499), later), None);
    assert_eq!(endpoint.refused(Moment(499)), 0);
    assert_eq!(endpoint.refused(until), 1);
    assert!(endpoint.eject(FIRST, LONGEST, until, later).is_some());
}

#[test]
fn a_connection_ends_ejection_and_failures() {
    let endpoint = endpoint();
    assert_eq!(endpoint.refused(Moment(0)), 1);
    assert_eq!(endpoint.refused(Moment(0)), 2);
    endpoint.connected(Moment(5));
    assert_eq!(endpoint.refused(Moment(5)), 1);
    endpoint
        .eject(FIRST, LONGEST, Moment(5), Moment(5))
        .unwrap();
    endpoint.connected(Moment(100));
    assert!(!endpoint.is_ejected(Moment(100)));
    assert_eq!(endpoint.refused(Moment(100)), 1);
}

#[test]
fn a_recovered_endpoint_grows_into_its_share() {
    let endpoint = endpoint();
    assert_eq!(endpoint.ramp(1000, Moment(0)), FULL_SHARE);
    assert!(endpoint.set_passing(false, Moment(10)));
    assert!(!endpoint.set_passing(false, Moment(20)));
    assert!(endpoint.set_passing(true, Moment(1000)));
    let shares = [0, 250, 500, 1000, 5000].map(|ms| endpoint.ramp(1000, Moment(1000 + ms)));
    assert_eq!(
        shares,
        [1, FULL_SHARE / 4, FULL_SHARE / 2, FULL_SHARE, FULL_SHARE]
    );
}

#[test]
fn extremes_neither_panic_nor_wrap() {
    let endpoint = endpoint();
    let (end, endless) = (Moment(u64::MAX), Duration::MAX);
    let until = endpoint
        .eject(endless, endless, Moment(7), Moment(7))
        .unwrap();
    assert_eq!(until, Moment(LAST_MOMENT));
    assert!(!endpoint.is_ejected(end));
    assert_eq!(ejection_length(u8::MAX, FIRST, LONGEST), 30_000);
    let ejection = EjectionState {
        until: u64::MAX,
        failures: u16::MAX,
        ejections: MOST_EJECTIONS,
        awaits_proof: true,
    };
    let most = EjectionState {
        until: LAST_MOMENT,
        ..ejection
    };
    assert_eq!(EjectionState::unpack(ejection.pack()), most);
    endpoint.counters(WorkerId(0)).ended(endless);
}

#[test]
fn counters_keep_sums_and_the_longest() {
    let endpoint = endpoint();
    assert!(endpoint.all_counters().is_none());
    let cells = endpoint.counters(WorkerId(1));
    for ms in [5, 90, 7] {
        cells.session(Moment(ms), Duration::ZERO, Duration::from_millis(ms));
    }
    assert_eq!(cells.sessions.value(), 3);
    assert_eq!(cells.connect_ms.value(), 102);
    assert_eq!(cells.connect_ms_max.value(), 90);
    assert_eq!(cells.last_session.value(), 90);
}

#[test]
fn what_is_forgotten_is_one_workers_own() {
    let service = Arc::new(ServiceState::new("s", 2));
    let endpoint = Arc::new(EndpointState::new(&service, "10.0.0.1:80".parse().unwrap()));
    let first = endpoint.lease(9).unwrap();
    drop(endpoint.lease(9).unwrap());
    assert_eq!((endpoint.peak(), service.peak()), (2, 2));
    endpoint.forget_peak();
    service.forget_peak();
    assert_eq!((endpoint.peak(), service.peak()), (1, 1), "as many as now");
    drop(first);

    let [one, other] = [WorkerId(0), WorkerId(1)];
    // A worker without counters has nothing to clear, and gets none.
    endpoint.forget_longest(one);
    assert!(endpoint.all_counters().is_none());
    let took = Duration::from_millis(7);
    endpoint.counters(one).session(Moment(1), took, took);
    endpoint.counters(other).session(Moment(1), took, took);
    endpoint.forget_longest(one);
    assert_eq!(endpoint.counters(one).connect_ms_max.value(), 0);
    assert_eq!(endpoint.counters(one).connect_ms.value(), 7);
    assert_eq!(endpoint.counters(other).connect_ms_max.value(), 7);
}
