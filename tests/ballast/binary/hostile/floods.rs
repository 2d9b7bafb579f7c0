//! Many connections at once: from many addresses, without an end, without a word.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{Cost, Most, Siege, client_hello, connect_from, source};
use crate::peers::{connect, echo_server, ping};
use crate::process::{Process, folder, table};
use support::netns::{PLACE, Site};

#[test]
fn a_storm_of_resets_leaves_nothing_behind() {
    let siege = Siege::new();
    let all = [
        siege.tcp,
        siege.proxied,
        siege.http,
        siege.https,
        siege.pass,
    ];
    let hello = client_hello("web.test", 0);
    let begun = Instant::now();
    let mut number = 0;
    while number < STORM && begun.elapsed() < AT_MOST {
        let to = all[number as usize % all.len()];
        let mut client = connect_from(source(number % 5_000), to).unwrap();
        // Some leave at once, some in the middle of a word, some after one.
        match number % 3 {
            0 => {}
            1 => client.write_all(&hello[..40]).unwrap(),
            _ => client
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap(),
        }
        SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        number += 1;
        if number.is_multiple_of(STORM / 4) {
            siege.serves_others();
        }
    }
    println!("{number} resets in {:?}", begun.elapsed());
    siege.until_let_go();
    let cpu = f64::from(number) * 0.004;
    siege.has_cost("a storm of resets", &Most { mebibytes: 48, cpu });
    siege.serves_others();
    let metrics = siege.process.metrics();
    assert!(
        metrics.contains("\nballast_task_panics_total 0\n"),
        "{metrics}"
    );
}

/// What is known of each client, its connections and its rate, is bounded however many there are.
#[test]
fn clients_from_many_addresses_take_bounded_memory_where_each_is_counted() {
    let limits = ", max-connections-per-client: 10, max-connection-rate-per-client: 100";
    let siege = Siege::with(limits, &[]);
    let begun = Instant::now();
    let mut half = siege.before;
    let mut number = 0;
    while number < STORM && begun.elapsed() < AT_MOST {
        let client = connect_from(source(number), siege.tcp).unwrap();
        SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        number += 1;
        if number == STORM / 2 {
            half = Cost::of(&siege.process);
        }
    }
    let cost = siege.has_cost(
        "clients from many addresses",
        &Most {
            mebibytes: 48,
            cpu: f64::from(number) * 0.004,
        },
    );
    println!(
        "{number} clients, {} KiB in the second half",
        cost.resident.saturating_sub(half.resident) >> 10
    );
    siege.until_let_go();
    siege.serves_others();
}

/// Connections that say nothing, and such that have ended their own direction and wait.
#[test]
fn thousands_that_stay_and_say_nothing_are_let_go_at_their_time() {
    let siege = Siege::new();
    let mut hoard: Vec<TcpStream> = Vec::new();
    for number in 0..HOARD {
        let all = [
            siege.tcp,
            siege.proxied,
            siege.http,
            siege.https,
            siege.pass,
        ];
        let to = all[number as usize % all.len()];
        let client = connect_from(source(number), to).unwrap();
        if number.is_multiple_of(2) {
            client.shutdown(Shutdown::Write).unwrap();
        }
        hoard.push(client);
    }
    siege.serves_others();
    let most = Most {
        mebibytes: 64,
        cpu: f64::from(HOARD) * 0.006,
    };
    siege.has_cost("a hoard", &most);
    siege.until_let_go();
    siege.serves_others();
    drop(hoard);
}

/// A descriptor is all that a client has to hold who is many: the places of the process are shared out, and the others wait.
#[test]
fn a_hoard_above_the_limit_of_the_process_waits_outside() {
    let siege = Siege::with("", &["--max-connections", "300"]);
    let hoard: Vec<TcpStream> = (0..1_000)
        .map(|number| connect_from(source(number), siege.http).unwrap())
        .collect();
    siege.process.until("the process is full", || {
        Cost::of(&siege.process).sockets >= siege.before.sockets + 100
    });
    let held = Cost::of(&siege.process).sockets - siege.before.sockets;
    assert!(held <= 2 * 300 + 20, "{held} sockets");
    // Each of the hoard is cut off after 2 s without a head, and then the next ones come in.
    siege.until_let_go();
    siege.serves_others();
    siege.has_cost(
        "a hoard outside",
        &Most {
            mebibytes: 48,
            cpu: 10.0,
        },
    );
    drop(hoard);
}

/// Their cable is cut: no FIN, no RST, nothing is ever heard of them again.
#[test]
fn clients_that_vanish_without_an_end_are_let_go() {
    let Some(site) = Site::build(1) else { return };
    let to = SocketAddr::new(PLACE.into(), 17_000);
    let (process, _folder) = site.place.within(|| {
        let text = table(&[(to, echo_server())]);
        let folder =
            folder(&text.replace("protocol: tcp", "protocol: tcp, timeouts: {client: 10s}"));
        (Process::run(folder.path(), &[]), folder)
    });
    process.until_said("table applied");
    let before = Cost::of(&process).sockets;
    let clients: Vec<TcpStream> = site.nodes[0].within(|| {
        let come = |_| {
            let mut client = connect(to).unwrap();
            ping(&mut client).unwrap();
            client
        };
        (0..200).map(come).collect()
    });
    assert!(Cost::of(&process).sockets >= before + 400);
    site.silence(0);
    process.until("descriptors are given back", || {
        Cost::of(&process).sockets <= before + 4
    });
    drop(clients);
}

const STORM: u32 = 12_000;
const HOARD: u32 = 3_000;
const AT_MOST: Duration = Duration::from_secs(30);
