//! Few descriptors: nobody is harmed by clients that they are too few for.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::peers::{connect, echo_server, fresh_address, ping, server};
use crate::process::{Process, folder, limited, table};

#[test]
fn what_is_derived_from_few_descriptors_keeps_them_from_running_out() {
    let (process, frontend, _folder) = serve("64", echo_server(), &[]);
    process.until_said("at most 3 connections: 64 descriptors");
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| asking(frontend)).collect();
    let mut served = take_answered(&process, &mut clients, 3);
    assert_eq!(served.len(), 3);

    is_quiet(&process);
    served.iter_mut().for_each(|client| ping(client).unwrap());
    let metrics = process.metrics();
    assert!(
        !metrics.contains("ballast_accept_errors_total{"),
        "{metrics}"
    );

    // Whoever waits is served as soon as somebody leaves: nobody is turned away.
    drop(served);
    while !clients.is_empty() {
        drop(take_answered(&process, &mut clients, 1));
    }
    assert_eq!(process.err.times("cannot"), 0, "{}", process.err.text());
}

#[test]
fn descriptors_that_run_out_harm_nobody_who_is_served() {
    // With an even number left, none is left in the end; with an odd one, one that is too few for a connection.
    let runs = ["64", "65"].map(errors_while_descriptors_run_out);
    assert!(
        runs.iter().any(|(grown, _)| *grown > 0),
        "they never ran out"
    );
    assert!(
        runs.iter().any(|(_, refused)| *refused > 0),
        "who could not be connected is not counted"
    );
}

/// How many accepts failed in two seconds, while everything else went well; and how many clients were turned away, because
/// they could not be connected.
fn errors_while_descriptors_run_out(descriptors: &str) -> (u64, u64) {
    let (process, frontend, _folder) =
        serve(descriptors, echo_server(), &["--max-connections", "1000"]);
    process.until_said("at most 1000 connections, as told, but only 4 fit");
    let mut served = Vec::new();
    // Served ones first, so that some surely are.
    for _ in 0..6 {
        let mut client = asking(frontend);
        client.read_exact(&mut [0]).unwrap();
        served.push(client);
    }
    // Whoever is let in but cannot be connected is reset, perhaps before it has said a byte.
    let others: Vec<_> = (0..CLIENTS).map(|_| connect(frontend)).collect();
    process.until("no descriptor for a client", || accept_errors(&process) > 0);
    process.until_said("cannot accept; waiting for connections to end");

    let grown = is_quiet(&process);
    served.iter_mut().for_each(|client| ping(client).unwrap());
    process.until_answers("/readyz", 200);
    let metrics = process.metrics();
    let refused = metrics
        .lines()
        .filter(|line| line.starts_with("ballast_connections_refused_total{"))
        .find_map(|line| line.split_once(",reason=\"failed\"} "))
        .map_or(0, |(_, count)| count.parse().unwrap());

    drop((others, served));
    process.until("a client that is served again", || {
        connect(frontend).is_ok_and(|mut client| ping(&mut client).is_ok())
    });
    (grown, refused)
}

/// Accepts that failed for want of a descriptor, by the metrics.
fn accept_errors(process: &Process) -> u64 {
    let metrics = process.metrics();
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("ballast_accept_errors_total{errno=\"24\"} "));
    count.map_or(0, |count| count.parse().unwrap())
}

#[test]
fn bulk_of_more_connections_than_there_are_pipes_arrives_whole() {
    let swap = server(|mut client| {
        let mut seed = [0];
        client.read_exact(&mut seed).unwrap();
        let heard = hear_bulk(&mut client);
        assert!(heard == bulk(seed[0]), "an upload was changed");
        client.write_all(&bulk(!seed[0])).unwrap();
    });
    let (process, frontend, _folder) = serve("256", swap, &[]);
    process.until_said("at most 87 connections: 256 descriptors");
    let clients: Vec<_> = (0..100)
        .map(|seed: u8| {
            thread::spawn(move || {
                let mut client = connect(frontend).unwrap();
                client.write_all(&[seed]).unwrap();
                client.write_all(&bulk(seed)).unwrap();
                let heard = hear_bulk(&mut client);
                assert!(heard == bulk(!seed), "a download was changed");
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let metrics = process.metrics();
    assert!(
        !metrics.contains("ballast_accept_errors_total{"),
        "{metrics}"
    );
    process.until("spliced bytes", || {
        !process
            .metrics()
            .contains("\nballast_spliced_bytes_total 0\n")
    });
}

#[test]
fn readers_that_stop_reading_leave_pipes_to_those_that_read() {
    let endless = server(|mut client| {
        client.read_exact(&mut [0]).unwrap();
        while client.write_all(&[7; 64 << 10]).is_ok() {}
    });
    // Each of two workers has four pipes.
    let (process, frontend, _folder) = serve("256", endless, &[]);
    let stuck: Vec<TcpStream> = (0..40).map(|_| asking(frontend)).collect();
    let sent = || value(&process, "ballast_spliced_bytes_total ");
    let out = || value(&process, "haproxy_frontend_bytes_out_total{proxy=\"f0\"} ");
    let before = Cell::new(0);
    process.until("downloads that are stuck", || {
        support::pause(Duration::from_millis(200));
        let now = out();
        now > 0 && before.replace(now) == now
    });

    let before = sent();
    let mut reader = asking(frontend);
    let mut bytes = vec![0; 1 << 20];
    for _ in 0..READ {
        reader.read_exact(&mut bytes).unwrap();
    }
    drop(reader);
    let least = before + (READ << 20) / 2;
    process.until("what was read, spliced", || sent() > least);
    drop(stuck);
}

/// The value of one metric.
fn value(process: &Process, name: &str) -> u64 {
    let metrics = process.metrics();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    value.expect(name).parse().unwrap()
}

/// `ballast run` with so many descriptors, and one frontend for this endpoint.
fn serve(descriptors: &str, endpoint: SocketAddr, args: &[&str]) -> (Process, SocketAddr, TempDir) {
    let frontend = fresh_address();
    let folder = folder(&table(&[(frontend, endpoint)]));
    let run = [
        "run",
        "--threads",
        "2",
        "--admin",
        "127.0.0.1:0",
        "--table",
        folder.path().to_str().unwrap(),
    ];
    let limit = format!("ulimit -n {descriptors}");
    let process = Process::spawn(&mut limited(&limit, &[&run, args].concat()));
    process.until_answers("/readyz", 200);
    (process, frontend, folder)
}

/// A client that has said a byte, and hears it as soon as it is served.
fn asking(frontend: SocketAddr) -> TcpStream {
    let mut client = connect(frontend).unwrap();
    client.write_all(b"x").unwrap();
    client
}

/// Waits until so many at least are answered, and takes those out of `clients`. An end without an answer is a failure.
fn take_answered(process: &Process, clients: &mut Vec<TcpStream>, least: usize) -> Vec<TcpStream> {
    let least = least.min(clients.len());
    let mut answered = Vec::new();
    let begun = Instant::now();
    while answered.len() < least {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{}",
            process.err.text()
        );
        for index in (0..clients.len()).rev() {
            let client = &mut clients[index];
            client.set_nonblocking(true).unwrap();
            match client.read(&mut [0]) {
                Ok(1) => {
                    let client = clients.swap_remove(index);
                    client.set_nonblocking(false).unwrap();
                    answered.push(client);
                }
                Ok(_) => panic!("an end without an answer"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
        support::pause(Duration::from_millis(5));
    }
    answered
}

/// For two seconds it uses little of a core, says little, does not try in vain all the time, and its admin side
/// answers. Returns how often it tried in vain.
fn is_quiet(process: &Process) -> u64 {
    let (cpu, lines, errors) = (
        process.cpu(),
        process.err.times("\n"),
        accept_errors(process),
    );
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        process.until_answers("/healthz", 200);
        support::pause(Duration::from_millis(200));
    }
    let errors = accept_errors(process) - errors;
    let lines = process.err.times("\n") - lines;
    let seconds = begun.elapsed().as_secs_f64();
    let share = (process.cpu() - cpu) / seconds;
    assert!(share < 0.2, "{share} of a core");
    // Each of two workers, ten times a second.
    assert!(
        Duration::from_millis(errors * 50) < begun.elapsed() * 2,
        "{errors} failed accepts in {seconds} s"
    );
    assert!(lines <= 20, "{lines} lines: {}", process.err.text());
    errors
}

fn hear_bulk(stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = vec![0; BULK];
    stream.read_exact(&mut heard).unwrap();
    heard
}

/// Bytes that differ by seed and place.
fn bulk(seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    (0..BULK)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect()
}

const CLIENTS: usize = 200;
const BULK: usize = 1 << 20;
/// MiB.
const READ: u64 = 64;
