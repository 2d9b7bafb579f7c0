//! Many bytes: through pipes, around pipes, behind a PROXY header, between peers that take them in pieces.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ballast_core::rng::Rng;

use support::apart::Apart;
use support::peers::{End, Watched, hear, narrow_client, noise};
use support::{connect, echo_server, get, server, table};

/// A server that hands over what it heard, byte for byte.
fn recorder() -> (SocketAddr, mpsc::Receiver<(Vec<u8>, End)>) {
    let (told, heard) = mpsc::channel();
    let address =
        server(move |mut client| told.send(hear(&mut client)).expect("somebody who waits"));
    (address, heard)
}

fn spliced(metrics: &str) -> u64 {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("ballast_spliced_bytes_total "));
    line.expect("the metric").parse().expect("a number")
}

#[test]
fn bulk_behind_a_proxy_header_arrives_once_and_in_order_and_is_spliced() {
    let header = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
    let (endpoint, heard) = recorder();
    let ballast = Watched::serve(
        &table(
            ", accept-proxy: {from: [\"127.0.0.0/8\"]}",
            ", send-proxy: v1",
            &[endpoint],
        ),
        1,
    );
    let bulk = noise(4 << 20, 20);
    let whole = [&header[..], &bulk].concat();
    // In one piece, byte by byte, and cut within the header, right behind it, and within the bulk.
    let cuts: [&[usize]; 6] = [
        &[],
        &(1..60).collect::<Vec<_>>(),
        &[10],
        &[header.len()],
        &[header.len() + 1],
        &[header.len() + 70_000],
    ];
    for cuts in cuts {
        let mut client = ballast.connect();
        client.set_nodelay(true).unwrap();
        let mut from = 0;
        for cut in cuts {
            client.write_all(&whole[from..*cut]).unwrap();
            support::pause(Duration::from_millis(2));
            from = *cut;
        }
        client.write_all(&whole[from..]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (bytes, end) = heard.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(
            bytes == whole,
            "cut at {cuts:?}: {} of {}, the first wrong one at {:?}",
            bytes.len(),
            whole.len(),
            bytes.iter().zip(&whole).position(|(is, was)| is != was)
        );
        assert_eq!(end, End::Clean);
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    let (spliced, sent) = (spliced(&ballast.metrics()), 6 * bulk.len() as u64);
    assert!(spliced > sent / 2, "{spliced} of {sent}");
}

#[test]
fn whims_of_both_peers_at_once_lose_and_reorder_nothing() {
    let mirror = server(|mut client| {
        let mut seed = [0; 8];
        client.read_exact(&mut seed).unwrap();
        let seed = u64::from_le_bytes(seed);
        assert_eq!(converse(client, seed, !seed), End::Clean);
    });
    let ballast = Watched::serve(&table("", "", &[mirror]), 1);
    let address = ballast.address();
    let clients: Vec<_> = (0..12)
        .map(|seed: u64| {
            thread::spawn(move || {
                let mut client = narrow_client(address, 4 << (10 + seed % 6));
                client.write_all(&seed.to_le_bytes()).unwrap();
                assert_eq!(converse(client, !seed, seed), End::Clean);
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert!(spliced(&ballast.metrics()) > 0);
}

/// Says the noise of one seed and hears that of the other at the same time, both in pieces and with pauses as the dice fall.
fn converse(mut stream: TcpStream, says: u64, hears: u64) -> End {
    let mut writing = stream.try_clone().expect("a second handle");
    let said = thread::spawn(move || {
        let (bytes, mut dice) = (noise(length(says), says), Rng::new(says));
        let mut left = &bytes[..];
        while !left.is_empty() {
            let piece = piece(&mut dice).min(left.len());
            writing.write_all(&left[..piece]).expect("a write");
            left = &left[piece..];
        }
        writing.shutdown(Shutdown::Write).expect("an end");
    });
    let expected = noise(length(hears), hears);
    let (mut heard, mut dice) = (Vec::new(), Rng::new(hears ^ says));
    let end = loop {
        let mut bytes = vec![0; piece(&mut dice)];
        match stream.read(&mut bytes).expect("a read") {
            0 => break End::Clean,
            read => heard.extend_from_slice(&bytes[..read]),
        }
    };
    said.join().expect("no panic");
    assert!(heard == expected, "seed {hears}: {} came", heard.len());
    end
}

fn length(seed: u64) -> usize {
    (1 << 20) + usize::try_from(Rng::new(seed).below(1 << 20)).expect("a small number")
}

/// Small and large ones in turns of some length, so that directions change between copying and splicing.
fn piece(dice: &mut Rng) -> usize {
    if dice.below(200) == 0 {
        support::pause(Duration::from_millis(dice.below(20)));
    }
    let most = [600, 9_000, 200_000][usize::try_from(dice.below(3)).expect("a small number")];
    1 + usize::try_from(dice.below(most)).expect("a small number")
}

/// The data plane is another process, since a limit is the process's.
#[test]
fn a_hundred_bulk_connections_in_256_descriptors_are_all_whole() {
    if Apart::is_served_here() {
        return;
    }
    let mut limited = Apart::start(
        "relay::bulk::a_hundred_bulk_connections_in_256_descriptors_are_all_whole",
        &table("", "", &[echo_server()]),
        "ulimit -n 256 &&",
    );
    let address = limited.address;
    let clients: Vec<_> = (0..100)
        .map(|seed| {
            thread::spawn(move || {
                let client = connect(address);
                client
                    .set_read_timeout(Some(Duration::from_secs(30)))
                    .unwrap();
                let sent = noise(300_000, seed);
                let expected = sent.clone();
                let mut writing = client.try_clone().unwrap();
                let said = thread::spawn(move || {
                    writing.write_all(&sent).unwrap();
                    writing.shutdown(Shutdown::Write).unwrap();
                });
                let (heard, end) = hear(&mut { client });
                said.join().unwrap();
                assert!(heard == expected, "{} of {}", heard.len(), expected.len());
                assert_eq!(end, End::Clean);
            })
        })
        .collect();
    // Descriptors are kept for this.
    assert!(get(limited.admin, "/healthz").0.contains("200"));
    for client in clients {
        client.join().unwrap();
    }
    let metrics = get(limited.admin, "/metrics").1;
    assert!(
        !metrics.contains("ballast_accept_errors_total{"),
        "{metrics}"
    );
    assert!(metrics.contains("ballast_task_panics_total 0\n"));
    assert!(metrics.contains("process_max_fds 256\n"), "{metrics}");
    limited.end();
}
