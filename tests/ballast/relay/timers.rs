//! Who is waited for, how long, and what waiting costs.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::relay::fins;
use support::peers::{End, ShutDoor, Watched, hear, ping};
use support::{ask, echo_server, server, table};

/// A server that answers the first byte, and after the client's end says a byte every `pause` for `drips` times, and then
/// neither says anything nor closes.
fn never_closing(pause: Duration, drips: u32) -> std::net::SocketAddr {
    server(move |mut client| {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a read");
        client.write_all(&byte).expect("a write");
        assert_eq!(hear(&mut client), (Vec::new(), End::Clean));
        for _ in 0..drips {
            support::pause(pause);
            if client.write_all(&[1]).is_err() {
                return;
            }
        }
        support::pause(Duration::from_secs(20));
        drop(client);
    })
}

fn half_closed(ballast: &Watched) -> TcpStream {
    let mut client = ballast.connect();
    ping(&mut client).expect("an echo");
    client.shutdown(Shutdown::Write).expect("an end");
    client
}

#[test]
fn a_half_closed_connection_whose_server_never_closes_ends_in_time() {
    let (frontend, service) = fins("30s", "500ms");
    let silent = never_closing(Duration::ZERO, 0);
    let ballast = Watched::serve(&table(&frontend, &service, &[silent]), 1);
    let begun = Instant::now();
    let mut client = half_closed(&ballast);
    assert_eq!(hear(&mut client), (Vec::new(), End::Reset));
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(500), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(aborts(&ballast), (0, 1), "the server let the client wait");
}

/// As haproxy counts them: by the side that let the other one wait for too long.
#[test]
fn a_connection_with_bytes_that_wait_is_the_fault_of_who_takes_none() {
    let (frontend, service) = fins("500ms", "500ms");
    let generous = server(|mut client| {
        client.write_all(&vec![7; 16 << 20]).ok();
    });
    let ballast = Watched::serve(&table(&frontend, &service, &[generous]), 1);
    let client = ballast.connect();
    // More than its kernel takes for it.
    ballast.until(|_| ballast.count(|counters| &counters.bytes_out) > 150_000);
    client.shutdown(Shutdown::Write).unwrap();
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(aborts(&ballast), (1, 0));

    let deaf = server(|client| {
        support::pause(Duration::from_secs(30));
        drop(client);
    });
    // The client may be silent for less long, but it is not the silent one.
    let frontend = ", timeouts: {client: 500ms}";
    let ballast = Watched::serve(&table(frontend, "", &[deaf]), 1);
    let mut client = ballast.connect();
    // Until the reset comes.
    while client.write(&[0; 64 << 10]).is_ok() {}
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(aborts(&ballast), (0, 1));
}

#[test]
fn a_silent_connection_is_the_fault_of_the_side_that_may_be_silent_for_less_long() {
    for (client, server, aborted) in [("300ms", "30s", (1, 0)), ("30s", "300ms", (0, 1))] {
        let (frontend, service) = (
            format!(", timeouts: {{client: {client}}}"),
            format!(", timeouts: {{server: {server}}}"),
        );
        let ballast = Watched::serve(&table(&frontend, &service, &[echo_server()]), 1);
        let mut client = ballast.connect();
        assert_eq!(hear(&mut client), (Vec::new(), End::Reset));
        ballast.until(|ballast| ballast.in_flight() == 0);
        assert_eq!(aborts(&ballast), aborted);
    }
}

/// Sessions that the clients cut, and those that the servers cut.
fn aborts(ballast: &Watched) -> (u64, u64) {
    (
        ballast.count(|counters| &counters.client_aborts),
        ballast.count(|counters| &counters.server_aborts),
    )
}

#[test]
fn a_half_closed_connection_lives_as_long_as_bytes_drip() {
    let (frontend, service) = fins("1s", "1s");
    let dripping = never_closing(Duration::from_millis(100), 30);
    let ballast = Watched::serve(&table(&frontend, &service, &[dripping]), 1);
    let mut client = half_closed(&ballast);
    let (heard, end) = hear(&mut client);
    assert_eq!(heard, [1; 30], "every drop, over three times the patience");
    assert_eq!(end, End::Reset, "and then it is over");
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn patience_with_half_closed_ones_is_nothing_to_an_open_and_silent_one() {
    let (frontend, service) = fins("100ms", "100ms");
    let ballast = Watched::serve(&table(&frontend, &service, &[echo_server()]), 1);
    let mut client = ballast.connect();
    ping(&mut client).unwrap();
    support::pause(Duration::from_millis(800));
    ping(&mut client).unwrap();
}

#[test]
fn the_expiry_of_half_closed_connections_costs_next_to_nothing() {
    let endpoint = never_closing(Duration::ZERO, 0);
    let ballast = Watched::serve(
        &table(
            ", timeouts: {client: 10s, client-fin: 100ms}",
            ", timeouts: {server: 10s, server-fin: 100ms}",
            &[endpoint],
        ),
        1,
    );
    let mut clients: Vec<_> = (0..100).map(|_| ballast.connect()).collect();
    for client in &mut clients {
        ping(client).unwrap();
    }
    let (before, begun) = (ballast.cpu(), Instant::now());
    for client in &clients {
        client.shutdown(Shutdown::Write).unwrap();
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    support::pause(Duration::from_secs(2).saturating_sub(begun.elapsed()));
    let (used, of) = (ballast.cpu() - before, begun.elapsed());
    assert!(used < of / 20, "{used:?} of {of:?}");
}

#[test]
fn timers_that_are_put_off_again_and_again_cost_next_to_nothing() {
    let (frontend, service) = fins("700ms", "700ms");
    let dripping = never_closing(Duration::from_millis(50), 1000);
    let ballast = Watched::serve(&table(&frontend, &service, &[dripping]), 1);
    let clients: Vec<_> = (0..10).map(|_| half_closed(&ballast)).collect();
    let (before, begun) = (ballast.cpu(), Instant::now());
    support::pause(Duration::from_secs(3));
    let (used, of) = (ballast.cpu() - before, begun.elapsed());
    assert!(used < of / 20, "{used:?} of {of:?}");
    assert_eq!(ballast.in_flight(), 10, "all of them live");
    drop(clients);
}

#[test]
fn a_connect_that_takes_longer_than_the_idle_time_is_no_error() {
    let door = ShutDoor::new();
    let ballast = Watched::serve(
        &table(
            ", timeouts: {client: 400ms}",
            ", timeouts: {server: 400ms}",
            &[door.address()],
        ),
        1,
    );
    let address = ballast.address();
    let (told, answers) = mpsc::channel();
    for _ in 0..50 {
        let told = told.clone();
        thread::spawn(move || told.send(ask(address)).unwrap());
    }
    ballast.until(|ballast| ballast.in_flight() == 50);
    // The first SYNs have been dropped, and so are those that repeat them after a second.
    support::pause(Duration::from_millis(1200));
    door.open(|mut client| {
        if client.read_exact(&mut [0]).is_ok() {
            client.write_all(b"at last").unwrap();
        }
    });
    for _ in 0..50 {
        let answer = answers.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(answer.unwrap(), "at last");
    }
    assert_eq!(ballast.count(|counters| &counters.connect_errors), 0);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_connect_that_never_ends_is_given_up_in_time() {
    let door = ShutDoor::new();
    let ballast = Watched::serve(
        &table("", ", timeouts: {connect: 700ms}", &[door.address()]),
        1,
    );
    let begun = Instant::now();
    let mut client = ballast.connect();
    assert_eq!(hear(&mut client), (Vec::new(), End::Reset));
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(700), "{took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(ballast.count(|counters| &counters.connect_errors), 1);
    ballast.until(|ballast| ballast.in_flight() == 0);
}
