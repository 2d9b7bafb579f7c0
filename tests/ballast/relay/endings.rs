//! How connections end: by a FIN or by a reset, with bytes behind and before it, towards who reads at once, slowly or never.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::relay::fins;
use support::peers::{
    End, Lateness, Watched, await_delivery, forgiven, hear, hear_slowly, narrow_client, noise,
    reset, stuff, time_waits_towards,
};
use support::{ask, named, server, server_at, table};

#[test]
fn who_is_done_sending_still_hears_a_late_answer() {
    let late = server(|mut client| {
        assert_eq!(hear(&mut client), (vec![1], End::Clean));
        support::pause(Duration::from_secs(2));
        client.write_all(&noise(1 << 20, 1)).unwrap();
    });
    let ballast = Watched::serve(&table("", "", &[late]), 1);
    let mut client = ballast.connect();
    client.write_all(&[1]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (heard, end) = hear(&mut client);
    assert_eq!(heard.len(), 1 << 20);
    assert!(heard == noise(1 << 20, 1));
    assert_eq!(end, End::Clean);
    drop(client);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

/// Either side, while the other one is silent.
#[test]
fn a_reset_behind_the_end_of_a_side_is_passed_on_at_once() {
    let (accepted, endpoint) = channel();
    let quiet = server(move |client| accepted.send(client).unwrap());
    let ballast = Watched::serve(&table("", "", &[quiet]), 1);
    for client_ends in [true, false] {
        let mut client = ballast.connect();
        client.write_all(&[1]).unwrap();
        let mut server = endpoint.recv_timeout(Duration::from_secs(10)).unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        server.read_exact(&mut [0]).unwrap();
        let (ends, mut waits) = if client_ends {
            (client, server)
        } else {
            (server, client)
        };
        ends.shutdown(Shutdown::Write).unwrap();
        assert_eq!(waits.read(&mut [0]).unwrap(), 0, "the end is heard");
        let lateness = Lateness::watch();
        let begun = Instant::now();
        reset(ends);
        ballast.until(|ballast| ballast.in_flight() == 0);
        // To wait for a write, or for the end of client-fin or server-fin, would take 30 seconds.
        let (took, late) = (begun.elapsed(), lateness.end());
        assert!(
            took < Duration::from_secs(1) + forgiven(late),
            "{took:?} on a machine that is late by {late:?}"
        );
        // The kernel says "broken pipe" to who was told of the end before.
        assert!(waits.write_all(&[1]).is_err(), "it is reset");
    }
    assert_eq!(ballast.count(|counters| &counters.client_aborts), 1);
    assert_eq!(ballast.count(|counters| &counters.server_aborts), 1);
}

#[test]
fn the_end_comes_right_behind_bytes_that_had_to_wait() {
    let (told, waiting) = channel();
    let late = server(move |mut client| {
        // Long enough for all buffers between to fill.
        support::pause(Duration::from_millis(500));
        let begun = Instant::now();
        let (heard, end) = hear(&mut client);
        told.send((heard, end, begun.elapsed())).unwrap();
    });
    let lateness = Lateness::watch();
    let ballast = Watched::serve(&table("", "", &[late]), 1);
    let mut client = ballast.connect();
    let sent = noise(4 << 20, 2);
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (heard, end, took) = waiting.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(heard == sent, "{} of {} came", heard.len(), sent.len());
    assert_eq!(end, End::Clean);
    // Within a second, and what a busy machine adds; to the letter with FIGURES=1. A lost end would come after 30 seconds.
    let late = lateness.end();
    assert!(
        took < Duration::from_secs(1) + forgiven(late),
        "{took:?} on a machine that is late by {late:?}"
    );
}

#[test]
fn bytes_before_the_reset_of_a_server_that_did_not_read_all_arrive() {
    let rude = server(|mut client| {
        let mut first = [0];
        client.read_exact(&mut first).unwrap();
        client.write_all(&noise(64 << 10, 3)).unwrap();
        await_delivery(&client);
        // The rest of the question is unread, so this close is a reset.
    });
    let ballast = Watched::serve(&table("", "", &[rude]), 1);
    for _ in 0..20 {
        let mut client = ballast.connect();
        client.write_all(&[0; 1000]).unwrap();
        let (heard, end) = hear(&mut client);
        assert!(heard == noise(64 << 10, 3), "{} bytes came", heard.len());
        assert_eq!(end, End::Reset);
    }
}

#[test]
fn a_reset_stays_a_reset_behind_all_bytes_for_a_fast_and_for_a_slow_client() {
    let sent = noise(100 << 10, 4);
    let answer = sent.clone();
    let aborting = server(move |mut client| {
        client.write_all(&answer).unwrap();
        await_delivery(&client);
        reset(client);
    });
    let ballast = Watched::serve(&table("", "", &[aborting]), 1);

    let (heard, end) = hear(&mut ballast.connect());
    assert!(heard == sent, "{} of {} came", heard.len(), sent.len());
    assert_eq!(end, End::Reset);

    let mut slow = narrow_client(ballast.address(), 8 << 10);
    let (heard, end) = hear_slowly(&mut slow, 1 << 10, Duration::from_millis(10));
    assert!(heard == sent, "{} of {} came", heard.len(), sent.len());
    assert_eq!(end, End::Reset);

    ballast.until(|ballast| ballast.in_flight() == 0);
    let aborts = (
        ballast.count(|counters| &counters.client_aborts),
        ballast.count(|counters| &counters.server_aborts),
    );
    assert_eq!(aborts, (0, 2));
}

#[test]
fn a_clean_end_stays_clean_for_a_slow_client_however_long_it_reads() {
    let sent = noise(1 << 20, 5);
    let answer = sent.clone();
    let brief = server(move |mut client| client.write_all(&answer).unwrap());
    let (frontend, service) = fins("1s", "1s");
    let ballast = Watched::serve(&table(&frontend, &service, &[brief]), 1);
    let mut slow = narrow_client(ballast.address(), 16 << 10);
    let begun = Instant::now();
    let (heard, end) = hear_slowly(&mut slow, 4 << 10, Duration::from_millis(15));
    assert!(heard == sent, "{} of {} came", heard.len(), sent.len());
    assert_eq!(end, End::Clean);
    // Else it shows nothing.
    assert!(begun.elapsed() > Duration::from_secs(3));
}

#[test]
fn a_download_that_the_client_cuts_is_counted_as_its_abort() {
    let (endpoint, told) = endless();
    let ballast = Watched::serve(&table("", "", &[endpoint]), 1);
    for _ in 0..100 {
        let mut client = ballast.connect();
        client.read_exact(&mut [0; 100_000]).unwrap();
        reset(client);
        assert_eq!(
            told.recv_timeout(Duration::from_secs(10)).unwrap(),
            std::io::ErrorKind::ConnectionReset
        );
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(ballast.count(|counters| &counters.server_aborts), 0);
    assert_eq!(ballast.count(|counters| &counters.client_aborts), 100);
}

/// A server that says things until it cannot, and how it learnt that.
fn endless() -> (SocketAddr, Receiver<std::io::ErrorKind>) {
    let (told, errors) = channel();
    let address = server(move |mut client| {
        let block = [0; 10_000];
        loop {
            if let Err(error) = client.write_all(&block) {
                return told.send(error.kind()).expect("somebody who waits");
            }
        }
    });
    (address, errors)
}

#[test]
fn a_reset_by_the_client_reaches_the_server_behind_its_bytes() {
    let (told, heard) = channel();
    let listening = server(move |mut client| told.send(hear(&mut client)).unwrap());
    let ballast = Watched::serve(&table("", "", &[listening]), 1);
    let mut client = ballast.connect();
    let sent = noise(100 << 10, 6);
    client.write_all(&sent).unwrap();
    await_delivery(&client);
    reset(client);
    let (heard, end) = heard.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(heard == sent, "{} of {} came", heard.len(), sent.len());
    assert_eq!(end, End::Reset);
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(ballast.count(|counters| &counters.client_aborts), 1);
    assert_eq!(ballast.count(|counters| &counters.server_aborts), 0);
}

#[test]
fn an_answer_before_the_end_of_an_upload_is_heard() {
    let hasty = server(|mut client| {
        let mut first = [0];
        client.read_exact(&mut first).unwrap();
        client.write_all(b"413 too large").unwrap();
        await_delivery(&client);
    });
    let ballast = Watched::serve(&table("", "", &[hasty]), 1);
    for _ in 0..10 {
        let mut client = ballast.connect();
        let block = vec![0; 64 << 10];
        for _ in 0..160 {
            // It fails as soon as the reset is here, and what came before must still be there.
            if client.write_all(&block).is_err() {
                break;
            }
        }
        assert_eq!(hear(&mut client).0, b"413 too large");
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    let aborts = (
        ballast.count(|counters| &counters.client_aborts),
        ballast.count(|counters| &counters.server_aborts),
    );
    assert_eq!(aborts, (0, 10), "the server ended them");
}

#[test]
fn a_client_that_resets_while_the_server_reads_nothing_is_noticed_without_a_spin() {
    let (hold, held) = channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let deaf = server(move |client| {
        // Until the test ends.
        held.lock().unwrap().recv().ok();
        drop(client);
    });
    let (frontend, service) = fins("1s", "1s");
    let ballast = Watched::serve(&table(&frontend, &service, &[deaf]), 1);
    let mut client = ballast.connect();
    assert!(stuff(&mut client) > 100_000);
    let (before, begun) = (ballast.cpu(), Instant::now());
    reset(client);
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    assert_rested(&ballast, before, begun);
    drop(hold);
}

#[test]
fn a_server_that_resets_while_the_client_reads_nothing_is_noticed_without_a_spin() {
    let (told, aborted) = channel();
    let loud = server(move |mut client| {
        assert!(stuff(&mut client) > 100_000);
        reset(client);
        told.send(()).unwrap();
    });
    let (frontend, service) = fins("1s", "1s");
    let ballast = Watched::serve(&table(&frontend, &service, &[loud]), 1);
    let _deaf = ballast.connect();
    aborted.recv_timeout(Duration::from_secs(10)).unwrap();
    let (before, begun) = (ballast.cpu(), Instant::now());
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    assert_rested(&ballast, before, begun);
}

/// Looks at the processor time since `begun` over two seconds at least: less than 5 % of it.
fn assert_rested(ballast: &Watched, before: Duration, begun: Instant) {
    support::pause(Duration::from_secs(2).saturating_sub(begun.elapsed()));
    let (used, of) = (ballast.cpu().saturating_sub(before), begun.elapsed());
    assert!(used < of / 20, "{used:?} of {of:?}");
}

#[test]
fn five_thousand_connections_that_the_server_closed_leave_no_port_of_ours_waiting() {
    let endpoint = server_at(Ipv4Addr::new(127, 21, 0, 1), named("a"));
    let ballast = Watched::serve(&table("", "", &[endpoint]), 1);
    let address = ballast.address();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..1250 {
                    assert_eq!(ask(address).unwrap(), "a");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    let waiting = time_waits_towards(endpoint);
    assert!(waiting < 100, "{waiting} ports wait");
}

#[test]
fn connections_that_we_abandon_are_reset_and_leave_no_port_of_ours_waiting() {
    let (told, ends) = channel();
    let patient = server_at(Ipv4Addr::new(127, 21, 0, 2), move |mut client| {
        told.send(hear(&mut client).1).unwrap();
    });
    let ballast = Watched::serve(
        &table(
            ", timeouts: {client: 300ms}",
            ", timeouts: {server: 300ms}",
            &[patient],
        ),
        1,
    );
    let clients: Vec<_> = (0..50).map(|_| ballast.connect()).collect();
    for mut client in clients {
        assert_eq!(hear(&mut client), (Vec::new(), End::Reset));
    }
    for _ in 0..50 {
        let end = ends.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(end, End::Reset);
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(time_waits_towards(patient), 0);
}
