//! Endpoints that refuse for a moment: a client waits a little and is served, instead of being reset.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use support::peers::{End, Watched, hear, reset};
use support::{ask, named_server, nobody, table};

/// More attempts and time than any of these tests needs on the slowest machine.
const PATIENT: &str = ", ejection: off, timeouts: {connect: 60s}, retries: 1000";

fn serve(service: &str, endpoints: &[SocketAddr]) -> Watched {
    Watched::serve(&table("", service, endpoints), 1)
}

/// A client that has asked, and whose every attempt was refused so far; at least so many were.
fn refused(ballast: &Watched, attempts: u64) -> TcpStream {
    let mut client = ballast.connect();
    client.write_all(b"?").expect("a client asks");
    ballast.until(|_| errors(ballast) >= attempts);
    client
}

fn errors(ballast: &Watched) -> u64 {
    ballast.count(|counters| &counters.connect_errors)
}

/// From now on somebody listens there, and says its name.
fn open(address: SocketAddr, name: &'static str) {
    let listener = TcpListener::bind(address).expect("the endpoint's port is free");
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _asked = client.read(&mut [0]);
            client.write_all(name.as_bytes()).ok();
        }
    });
}

#[test]
fn a_client_whose_only_endpoint_refuses_for_a_moment_is_served() {
    let endpoint = nobody();
    let ballast = serve(PATIENT, &[endpoint]);
    // The third attempt is made 300 ms after the first one.
    let mut client = refused(&ballast, 2);
    // While it waits it holds no place at the endpoint.
    ballast.until(|ballast| ballast.in_flight() == 0);
    open(endpoint, "late");
    assert_eq!(hear(&mut client), (b"late".to_vec(), End::Clean));
    let failed = errors(&ballast);
    assert_eq!(ballast.count(|counters| &counters.retries), failed);
    assert_eq!(ballast.count(|counters| &counters.dials), failed + 1);
    assert_eq!(ballast.count(|counters| &counters.sessions), 1);
    assert_eq!(ballast.count(|counters| &counters.redispatches), 0);
    let metrics = ballast.metrics();
    let retries = format!("haproxy_backend_retry_warnings_total{{proxy=\"s\"}} {failed}\n");
    assert!(metrics.contains(&retries), "{metrics}");
}

#[test]
fn without_retries_a_refused_client_is_reset_at_once() {
    let ballast = serve(", retries: 0", &[nobody()]);
    assert!(ask(ballast.address()).is_err());
    assert_eq!(ballast.count(|counters| &counters.dials), 1);
    assert_eq!(ballast.count(|counters| &counters.retries), 0);
}

#[test]
fn the_pauses_double_until_the_retries_are_spent() {
    let ballast = serve(", timeouts: {connect: 60s}", &[nobody()]);
    let begun = Instant::now();
    assert!(ask(ballast.address()).is_err());
    // 100, 200 and 400 ms; a timer is precise to a millisecond.
    assert!(begun.elapsed() > Duration::from_millis(690));
    assert_eq!(ballast.count(|counters| &counters.dials), 4);
    assert_eq!(ballast.count(|counters| &counters.retries), 3);
    let line = "ballast_connections_refused_total{frontend=\"f\",reason=\"failed\"} 1\n";
    assert!(ballast.metrics().contains(line));
}

#[test]
fn no_attempt_begins_when_the_time_to_connect_is_over() {
    let ballast = serve(
        ", ejection: off, timeouts: {connect: 350ms}, retries: 1000",
        &[nobody()],
    );
    assert!(ask(ballast.address()).is_err());
    // At 0, 100 and 300 ms, or fewer where the machine was late.
    let dials = ballast.count(|counters| &counters.dials);
    assert!((1..=3).contains(&dials), "{dials}");
}

#[test]
fn of_two_endpoints_that_refuse_the_one_that_returns_serves() {
    let endpoints = [nobody(), nobody()];
    let ballast = serve(PATIENT, &endpoints);
    let mut client = refused(&ballast, 4);
    open(endpoints[1], "second");
    assert_eq!(hear(&mut client), (b"second".to_vec(), End::Clean));
    let further = ballast.count(|counters| &counters.redispatches)
        + ballast.count(|counters| &counters.retries);
    assert_eq!(further, errors(&ballast));
    // In each round one goes to the other endpoint.
    assert!(ballast.count(|counters| &counters.redispatches) >= 2);
}

#[test]
fn a_client_that_leaves_during_a_pause_frees_everything() {
    let ballast = serve(PATIENT, &[nobody()]);
    for left in 1..=3 {
        let before = errors(&ballast);
        reset(refused(&ballast, before + 2));
        ballast.until(|ballast| ballast.running.shared().connections() == 0);
        assert_eq!(ballast.in_flight(), 0);
        assert_eq!(ballast.count(|counters| &counters.client_aborts), left);
    }
}

#[test]
fn a_table_that_replaces_the_endpoint_is_followed() {
    let ballast = serve(PATIENT, &[nobody()]);
    let mut client = refused(&ballast, 1);
    let successor = named_server("successor");
    ballast.swap(&table("", PATIENT, &[successor]));
    assert_eq!(hear(&mut client), (b"successor".to_vec(), End::Clean));
}

#[test]
fn a_table_without_endpoints_ends_the_wait() {
    let ballast = serve(PATIENT, &[nobody()]);
    let mut client = refused(&ballast, 1);
    ballast.swap(&table("", PATIENT, &[]));
    assert_eq!(hear(&mut client), (Vec::new(), End::Reset));
    ballast.until(|ballast| ballast.running.shared().connections() == 0);
}

#[test]
fn an_order_to_cut_the_endpoints_connections_ends_the_wait() {
    let ballast = serve(PATIENT, &[nobody()]);
    let mut client = refused(&ballast, 1);
    let shared = ballast.running.shared();
    let endpoint = Arc::clone(shared.live.plan().services()[0].endpoints()[0].live());
    shared.cut(vec![endpoint]);
    assert_eq!(hear(&mut client), (Vec::new(), End::Reset));
}
