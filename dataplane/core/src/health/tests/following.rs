//! Checks keep their verdicts across plans where the endpoint and its check stay the same, begin anew elsewhere, and report a new
//! verdict to every plan.

use std::num::NonZeroU16;

use super::*;
use crate::pick::{Key, Tried};
use crate::service::{EjectionReason, Failure};

const TCP: &str = "{mode: tcp, interval: 1s}";

/// The endpoint at `port` fails, all others pass.
fn gone(port: u16) -> impl Fn(Moment, SocketAddr) -> Outcome {
    move |_, address| {
        if address.port() == port {
            REFUSED
        } else {
            Outcome::Connected
        }
    }
}

/// The ports of this many picks.
fn picked(process: &mut Process, times: usize) -> Vec<u16> {
    let service = Arc::clone(&process.plan.services()[0]);
    let key = Key::new(SocketAddr::from(([192, 0, 2, 1], 1)));
    let picks =
        (0..times).map(|_| service.pick(&key, &Tried::default(), process.now, &mut process.rng));
    let mut ports: Vec<u16> = picks
        .filter_map(|picked| Some(picked.ok()?.lease.address().port()))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[test]
fn a_swap_keeps_what_is_known_of_an_unchanged_check() {
    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1, 2, 3]);
    process.run(seconds(10), gone(2));
    assert_eq!(picked(&mut process, 30), [1, 3]);
    let before = process.monitor(2);

    // The same service with other endpoints, and another field changed.
    process.serve(&format!(
        "[{{name: s, retries: 1, health: {TCP}, endpoints: [{{address: \"127.0.0.1:4\"}}, {{address: \"127.0.0.1:2\", weight: 7}}]}}]"
    ));
    assert_eq!(process.monitor(2), before);
    assert_eq!(
        picked(&mut process, 30),
        [4],
        "no connection goes to who is down"
    );
    assert_eq!(process.run(seconds(10), gone(2)), Vec::<String>::new());
}

#[test]
fn another_check_begins_unproven_and_its_first_result_decides() {
    let other = "{mode: tcp, interval: 2s}";
    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1, 2]);
    process.run(seconds(10), gone(2));
    process.serve_ports(other, &[1, 2]);
    assert_eq!(picked(&mut process, 30), [1], "the verdict stays meanwhile");
    let lines = process.run(seconds(2), gone(1));
    assert_eq!(lines.len(), 2, "one result each: {lines:?}");
    assert_eq!(picked(&mut process, 30), [2]);
    assert_eq!(process.monitor(2).downs, 1, "its history stays");
}

#[test]
fn a_result_of_a_check_that_was_replaced_says_nothing() {
    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1]);
    let check = process.next();
    assert!(process.monitor(1).is_running);
    process.serve_ports("{mode: tcp, interval: 2s}", &[1]);
    assert!(!process.monitor(1).is_running);
    assert_eq!(process.end(&check, REFUSED), None);
    assert!(process.endpoint(1).is_passing());

    let check = process.next();
    process.serve("[]");
    process.serve_ports(TCP, &[1]);
    assert_eq!(process.end(&check, REFUSED), None);
    assert!(process.endpoint(1).is_passing(), "a new endpoint");
}

#[test]
fn without_health_an_endpoint_is_well_again() {
    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1, 2]);
    process.run(seconds(10), gone(2));
    process.serve_ports("{mode: off}", &[1, 2]);
    assert_eq!(picked(&mut process, 30), [1, 2]);
    assert_eq!(process.endpoint(2).monitor(), None);
    assert!(process.asks_nobody());
}

#[test]
fn a_disabled_endpoint_is_not_asked_and_keeps_its_verdict() {
    let mut process = Process::new(100);
    let with = |state: &str| {
        format!(
            "[{{name: s, health: {TCP}, endpoints: [{{address: \"127.0.0.1:1\", state: {state}}}]}}]"
        )
    };
    process.serve(&with("ready"));
    process.run(seconds(10), gone(1));
    process.serve(&with("disabled"));
    assert!(process.asks_nobody());
    process.serve(&with("ready"));
    assert!(!process.endpoint(1).is_passing());
    let lines = process.run(seconds(1), well);
    assert_eq!(lines.len(), 1, "its first result decides: {lines:?}");
    assert!(process.endpoint(1).is_passing());
}

#[test]
fn a_change_is_one_line_in_haproxys_words() {
    let mut process = Process::new(100);
    process.serve(
        "[{name: be1, health: {mode: tcp, interval: 1s}, endpoints: [{address: \"10.0.0.1:80\", name: srv1}, {address: \"10.0.0.2:80\", state: backup}]}]",
    );
    assert_eq!(process.run(seconds(5), well), Vec::<String>::new());
    let mut lines = process.run(seconds(5), |_, address| match address.ip().to_string() {
        ip if ip == "10.0.0.1" => REFUSED,
        _ => Outcome::WrongStatus(503),
    });
    lines.sort();
    assert_eq!(
        lines,
        [
            "Health check for backup server be1/10.0.0.2:80 failed, reason: Layer7 wrong status, code: 503, check duration: 1ms, status: 0/2 DOWN.",
            "Health check for server be1/srv1 failed, reason: Layer4 connection problem, info: \"Connection refused\", check duration: 1ms, status: 0/2 DOWN.",
        ]
    );
    let mut lines = process.run(seconds(5), |_, _| Outcome::Answered(Some(200)));
    lines.sort();
    assert_eq!(
        lines[1],
        "Health check for server be1/srv1 succeeded, reason: Layer7 check passed, code: 200, check duration: 1ms, status: 3/3 UP."
    );
}

#[test]
fn a_passed_check_ends_an_ejection() {
    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1, 2]);
    process.run(seconds(10), well);
    let service = Arc::clone(&process.plan.services()[0]);
    let news = service.failed(0, Failure::TimedOut, process.now, process.now);
    assert_eq!(
        news.ejection.map(|ejection| ejection.reason),
        Some(EjectionReason::Timeout)
    );
    process.run(Duration::from_millis(400), gone(1));
    // The next check ends it at the latest, long before the ejection would end, after 1 s.
    let mut asked = false;
    while !asked {
        assert!(process.endpoint(1).is_ejected(process.now));
        let check = process.next();
        asked = check.address.port() == 1;
        process.end(&check, Outcome::Connected);
    }
    assert!(!process.endpoint(1).is_ejected(process.now));
}

#[test]
fn it_is_known_and_said_once_that_nobody_is_left() {
    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1, 2]);
    let nobody_left =
        |process: &Process| process.plan.services()[0].state().checked().nobody_left();
    process.run(seconds(10), gone(1));
    assert!(!nobody_left(&process));
    let mut last = Vec::new();
    while last.len() < 20 {
        let check = process.next();
        let now = process.now;
        let (checks, rng) = (&mut process.checks, &mut process.rng);
        last.push(checks.ended(check.id, REFUSED, TOOK, now, rng));
    }
    let said: Vec<_> = last
        .iter()
        .flatten()
        .map(|change| change.nobody_left)
        .collect();
    assert_eq!(said, [true]);
    assert!(nobody_left(&process) && process.plan.services()[0].is_panicking());
    assert_eq!(picked(&mut process, 30), [1, 2], "checks are ignored");
    process.run(seconds(10), gone(1));
    assert!(!nobody_left(&process));
    process.run(seconds(10), |_, _| REFUSED);
    assert!(nobody_left(&process));
    process.serve_ports("{mode: off}", &[1, 2]);
    assert!(!nobody_left(&process));
}

#[test]
fn a_service_remembers_the_flaps_of_endpoints_that_left() {
    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1, 2]);
    for _ in 0..3 {
        process.run(seconds(10), well);
        process.run(seconds(10), gone(1));
    }
    assert_eq!(process.monitor(1).flaps, 2);
    process.serve_ports(TCP, &[2]);
    assert_eq!(process.plan.services()[0].state().checked().flaps(), 2);
}

#[test]
fn refuse_leaves_nobody_to_pick_when_all_are_down() {
    let mut process = Process::new(100);
    process.serve(&format!(
        "[{{name: s, all-down: refuse, health: {TCP}, endpoints: [{{address: \"127.0.0.1:1\"}}]}}]"
    ));
    process.run(seconds(10), gone(1));
    assert_eq!(picked(&mut process, 30), Vec::<u16>::new());
}

#[test]
fn only_who_recovers_starts_slowly() {
    let mut process = Process::new(100);
    let table = |endpoints: &str| {
        format!("[{{name: s, slow-start: 100s, health: {TCP}, endpoints: [{endpoints}]}}]")
    };
    process.serve(&table(
        "{address: \"127.0.0.1:1\"}, {address: \"127.0.0.1:2\"}",
    ));
    process.run(seconds(5), gone(2));
    process.run(seconds(5), well);
    let mut counts = BTreeMap::new();
    for _ in 0..1000 {
        let service = Arc::clone(&process.plan.services()[0]);
        let key = Key::new(SocketAddr::from(([192, 0, 2, 1], 1)));
        let picked = service.pick(&key, &Tried::default(), process.now, &mut process.rng);
        *counts
            .entry(picked.unwrap().lease.address().port())
            .or_insert(0) += 1;
    }
    assert!(counts[&1] > 900, "{counts:?}");
}

#[test]
fn want_of_our_own_is_no_verdict() {
    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1]);
    process.run(seconds(10), |_, _| Outcome::NoCheck("Too many open files"));
    assert!(process.endpoint(1).is_passing());
    assert_eq!(process.monitor(1).last.unwrap().outcome.word(), "SOCKERR");
    assert_eq!(process.monitor(1).failed, 0);
}

#[test]
fn health_that_is_set_by_hand_lasts_until_checks_say_otherwise() {
    let mut process = Process::new(100);
    process.serve_ports("{mode: tcp, interval: 1s, rise: 2, fall: 2}", &[1, 2]);
    let all_pass = |_, _| Outcome::Connected;
    process.run(seconds(10), all_pass);
    let endpoint = process.endpoint(2);
    for (health, meanwhile) in [(ForcedHealth::Down, false), (ForcedHealth::Stopping, true)] {
        endpoint.force(health, process.now);
        assert_eq!(
            (endpoint.is_passing(), picked(&mut process, 30)),
            (meanwhile, vec![1])
        );
        process.run(seconds(10), all_pass);
        assert!(endpoint.takes_newcomers(), "{health:?}");
        assert_eq!(picked(&mut process, 30), [1, 2]);
    }
    process.run(seconds(10), gone(2));
    endpoint.force(ForcedHealth::Up, process.now);
    assert_eq!(picked(&mut process, 30), [1, 2]);
    assert!(process.monitor(2).is_up());
    process.run(seconds(10), gone(2));
    assert_eq!(picked(&mut process, 30), [1]);
    assert_eq!(process.monitor(2).downs, 3);
}

#[test]
fn health_that_is_set_by_hand_stays_where_nothing_is_checked() {
    let mut process = Process::new(100);
    process.serve_ports("{mode: off}", &[1, 2]);
    process.endpoint(2).force(ForcedHealth::Down, process.now);
    process.serve("[{name: s, retries: 1, endpoints: [{address: \"127.0.0.1:1\"}, {address: \"127.0.0.1:2\"}]}]");
    assert_eq!(picked(&mut process, 30), [1]);
    process.endpoint(2).force(ForcedHealth::Up, process.now);
    assert_eq!(picked(&mut process, 30), [1, 2]);
}

#[test]
fn checks_go_to_the_port_that_an_operator_has_given() {
    use crate::compile::revise;
    use crate::overrides::OverrideChange;

    let mut process = Process::new(100);
    process.serve_ports(TCP, &[1, 2]);
    process.run(seconds(10), gone(9));
    let service = process.plan.services()[0].spec().name.clone();
    let address = process.endpoint(2).address();
    let change = OverrideChange::CheckPort(service, address, NonZeroU16::new(9));
    let mut overrides = process.plan.overrides().clone();
    overrides.change(&change);
    let mut context = CompileContext {
        now: process.now,
        workers: 1,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng: &mut process.rng,
    };
    process.plan = revise(&process.plan, overrides, &mut context);
    process.checks.follow(&process.plan, process.now);
    assert_eq!(
        picked(&mut process, 30),
        [1, 2],
        "the verdict stays meanwhile"
    );
    process.run(seconds(2), gone(9));
    assert_eq!(picked(&mut process, 30), [1]);
}
