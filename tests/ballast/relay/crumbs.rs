//! Bytes one by one between bulk, towards who reads slowly: a pipe is full of few of them, and nothing may stall or spin.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use socket2::SockRef;

use support::peers::{Lateness, Watched, forgiven, noise};
use support::{server, table};

#[test]
fn single_bytes_between_bulk_flow_on_to_a_slow_reader() {
    let (endpoint, heard) = slow_reader();
    let ballast = Watched::serve(&table("", "", &[endpoint]), 1);
    let (before, begun, lateness) = (ballast.cpu(), Instant::now(), Lateness::watch());
    let mut client = ballast.connect();
    client.set_nodelay(true).unwrap();
    let sent = noise((9 << 20) + 2 * CRUMBS, 17);
    let (mut bulk, mut rest) = sent.split_at(8 << 20);
    for _ in 0..2 {
        client.write_all(bulk).unwrap();
        let (crumbs, behind) = rest.split_at(CRUMBS);
        for byte in crumbs {
            client.write_all(&[*byte]).unwrap();
        }
        (bulk, rest) = behind.split_at(behind.len().min(1 << 20));
    }
    client.shutdown(Shutdown::Write).unwrap();
    let (bytes, longest) = heard.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(bytes == sent, "{} of {} came", bytes.len(), sent.len());
    let (late, used, of) = (lateness.end(), ballast.cpu() - before, begun.elapsed());
    println!("{used:?} of {of:?} used, nothing came for {longest:?} at most");
    assert!(
        longest < Duration::from_millis(100) + forgiven(late),
        "nothing came for {longest:?} on a machine that is late by {late:?}"
    );
    assert!(used < of / 2, "{used:?} of {of:?}");
}

/// A server with little room that pauses after each read, and reads little at a time once there has been much; what it heard, and the longest that it had to wait for some of it.
fn slow_reader() -> (SocketAddr, Receiver<(Vec<u8>, Duration)>) {
    let (told, heard) = channel();
    let address = server(move |mut client| {
        SockRef::from(&client)
            .set_recv_buffer_size(64 << 10)
            .expect("an option");
        let (mut heard, mut bytes, mut longest) = (Vec::new(), [0; 32 << 10], Duration::ZERO);
        loop {
            let most = if heard.len() < 8 << 20 {
                32 << 10
            } else {
                1 << 10
            };
            let begun = Instant::now();
            let read = client.read(&mut bytes[..most]).expect("a read");
            if !heard.is_empty() {
                longest = longest.max(begun.elapsed());
            }
            if read == 0 {
                return told.send((heard, longest)).expect("somebody who waits");
            }
            heard.extend_from_slice(&bytes[..read]);
            support::pause(Duration::from_millis(1));
        }
    });
    (address, heard)
}

const CRUMBS: usize = 50_000;
