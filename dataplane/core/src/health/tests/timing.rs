//! The times of checks: spread, never synchronised, and within the limit.

use super::*;

/// This many services of ten endpoints each.
fn services(services: usize, health: &str) -> String {
    let services: Vec<String> = (0..services)
        .map(|n| {
            let endpoints: Vec<String> = (1..=10)
                .map(|host| format!("{{address: \"10.{}.{}.{host}:80\"}}", n / 250, n % 250))
                .collect();
            format!(
                "{{name: s{n}, health: {health}, endpoints: [{}]}}",
                endpoints.join(", ")
            )
        })
        .collect();
    format!("[{}]", services.join(", "))
}

/// How many checks began in each 100 ms.
fn buckets(
    process: &mut Process,
    time: Duration,
    mut judge: impl FnMut(Moment, SocketAddr) -> Outcome,
) -> Vec<usize> {
    let begun = process.now.0;
    let mut buckets = vec![0; usize::try_from(time.as_millis() / 100).unwrap()];
    process.run(time, |now, address| {
        buckets[usize::try_from((now.0 - begun) / 100).unwrap()] += 1;
        judge(now, address)
    });
    buckets
}

#[track_caller]
fn assert_even(buckets: &[usize]) {
    let mean = buckets.iter().sum::<usize>() / buckets.len();
    let most = buckets.iter().max().unwrap();
    assert!(most <= &(2 * mean), "{most} in 100 ms, {mean} in the mean");
}

#[test]
fn many_checks_form_no_herd() {
    for (count, interval) in [(100, "2s"), (1000, "2s"), (1000, "10s"), (20, "500ms")] {
        let mut process = Process::new(100_000);
        process.serve(&services(
            count,
            &format!("{{mode: tcp, interval: {interval}}}"),
        ));
        let buckets = buckets(&mut process, seconds(20), well);
        assert_even(&buckets);
        let total: usize = buckets.iter().sum();
        let interval = table::parse_duration(interval).unwrap();
        let expected = count * 10 * 20_000 / usize::try_from(interval.as_millis()).unwrap();
        assert!(
            total.abs_diff(expected) <= expected / 50,
            "{total} checks in 20 s, not {expected}"
        );
    }
}

#[test]
fn no_check_comes_twice_within_half_its_interval_while_all_is_well() {
    let mut process = Process::new(100_000);
    process.serve(&services(10, "{mode: tcp, interval: 1s}"));
    let mut last: BTreeMap<SocketAddr, Moment> = BTreeMap::new();
    process.run(seconds(30), |now, address| {
        if let Some(last) = last.insert(address, now) {
            let gap = now.0 - last.0;
            assert!((450..=1550).contains(&gap), "{gap} ms");
        }
        Outcome::Connected
    });
    assert_eq!(last.len(), 100);
}

#[test]
fn what_failed_together_is_not_checked_together_for_ever() {
    let mut process = Process::new(100_000);
    process.serve(&services(
        1000,
        "{mode: tcp, interval: 2s, fast-interval: 100ms}",
    ));
    process.run(seconds(10), well);
    // A switch fails for five seconds: all endpoints are checked at the fast interval for a while, on their way down and up.
    process.run(seconds(5), |_, _| Outcome::ConnectTimeout);
    process.run(seconds(5), well);
    assert_even(&buckets(&mut process, seconds(20), well));
}

#[test]
fn a_standstill_leaves_no_herd_behind() {
    let mut process = Process::new(100_000);
    process.serve(&services(1000, "{mode: tcp, interval: 2s}"));
    process.run(seconds(10), well);
    // No checks ran for a while; now all are due at once.
    process.now = process.now.after(seconds(30));
    process.run(seconds(4), well);
    assert_even(&buckets(&mut process, seconds(20), well));
}

#[test]
fn above_the_limit_intervals_stretch_evenly_and_it_is_said_once() {
    let mut process = Process::new(1000);
    let table = services(1000, "{mode: tcp, interval: 2s}");
    assert_eq!(process.serve(&table), Some(5000));
    let mut count: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    let buckets = buckets(&mut process, seconds(20), |_, address| {
        *count.entry(address).or_default() += 1;
        Outcome::Connected
    });
    assert_even(&buckets);
    let total: usize = buckets.iter().sum();
    assert!((19_700..=20_100).contains(&total), "{total} in 20 s");
    assert!(
        count.len() == 10_000 && count.values().all(|count| (1..=3).contains(count)),
        "everybody has the same share"
    );
    assert!(process.checks.late(process.now) > Duration::ZERO);

    assert_eq!(
        process.serve(&services(999, "{mode: tcp, interval: 2s}")),
        None,
        "still"
    );
    process.serve(&services(10, "{mode: tcp, interval: 2s}"));
    assert_eq!(process.serve(&table), Some(5000), "again");
}

#[test]
fn a_state_that_changes_is_asked_at_the_fast_interval() {
    let mut process = Process::new(100);
    process.serve_ports(
        "{mode: tcp, interval: 10s, fast-interval: 500ms, rise: 3, fall: 3}",
        &[1],
    );
    process.run(seconds(30), well);
    let mut asked = Vec::new();
    let lines = process.run(seconds(12), |now, _| {
        asked.push(now.0);
        REFUSED
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    let gaps: Vec<u64> = asked.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(
        gaps[..2].iter().all(|gap| (475..=500).contains(gap)),
        "{gaps:?}"
    );
    assert!(gaps[2..].iter().all(|gap| *gap > 4_000), "{gaps:?}");
}

#[test]
fn a_dead_endpoint_is_out_within_fall_times_interval() {
    for seed in 0..200 {
        let mut process = Process::new(100);
        process.now = Moment(1_000_000 + seed * 37);
        process.serve_ports("{mode: tcp, interval: 1s, fall: 3}", &[1]);
        process.run(Duration::from_millis(20_000 + 97 * seed), well);
        let died = process.now;
        let lines = process.run(seconds(5), |_, _| REFUSED);
        assert_eq!(lines.len(), 1);
        let took = process.monitor(1).since.since(died);
        // Its last passed check may have come a little early, so that the next one comes a little more than 1 s later.
        assert!(took <= Duration::from_millis(3_050), "{took:?}");
    }
}

#[test]
fn an_endpoint_that_joins_a_known_service_is_asked_soon() {
    let mut process = Process::new(100);
    let health = "{mode: tcp, interval: 1h, fast-interval: 500ms}";
    process.serve_ports(health, &[1]);
    process.serve_ports(health, &[1, 2]);
    let due = process.checks.next_due().unwrap();
    assert!(due <= process.now.after(Duration::from_millis(500)));
    assert_eq!(process.next().address.port(), 2);
}
