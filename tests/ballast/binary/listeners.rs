//! More addresses than there are descriptors for: those that are listened at are served, and the rest is said.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use serde_json::Value;

use crate::peers::{connect, echo_server, fresh_address, fresh_ip, get, ping};
use crate::process::{Process, ack, folder, limited, replace, table};

#[test]
fn addresses_that_do_not_fit_leave_those_that_do_served_and_the_table_correctable() {
    let endpoint = echo_server();
    let frontends: Vec<_> = (0..60).map(|_| (fresh_address(), endpoint)).collect();
    let folder = folder(&table(&frontends));
    let process = serve(folder.path(), "1", &[]);
    process.until_answers("/readyz", 200);

    let served = ack(folder.path()).unwrap();
    let failed = served["exceptions"].as_array().unwrap();
    assert!((40..60).contains(&failed.len()), "{failed:?}");
    for exception in failed {
        assert_eq!(exception["state"], "failed");
        let why = exception["why"].as_str().unwrap();
        assert!(why.contains("raise the limit (ulimit -n)"), "{why}");
    }
    let is_failed = |address: &SocketAddr| {
        let bind = address.to_string();
        failed.iter().any(|exception| exception["bind"] == *bind)
    };
    let addresses = frontends.iter().map(|(address, _)| *address);
    let (failed, served): (Vec<_>, Vec<_>) = addresses.partition(is_failed);
    for address in served {
        // There is room for a single connection; the next one waits for its end.
        ping(&mut connect(address).unwrap()).unwrap();
    }
    // The promise was kept: nothing ran out.
    let metrics = process.metrics();
    assert!(
        !metrics.contains("ballast_accept_errors_total{"),
        "{metrics}"
    );

    // None of these could be bound, and none of those that listen is wanted any longer.
    let corrected = &failed[..3];
    let pairs: Vec<_> = corrected
        .iter()
        .map(|address| (*address, endpoint))
        .collect();
    replace(&folder, &table(&pairs));
    process.until("the corrected table without exceptions", || {
        ack(folder.path()).is_some_and(|ack| ack["exceptions"] == Value::Array(Vec::new()))
    });
    for address in corrected {
        ping(&mut connect(*address).unwrap()).unwrap();
    }
}

#[test]
fn a_table_is_read_and_answered_while_no_descriptor_is_left() {
    let endpoint = echo_server();
    let address = fresh_address();
    let folder = folder(&table(&[(address, endpoint)]));
    let process = serve(folder.path(), "1", &["--max-connections", "1000"]);
    process.until_answers("/readyz", 200);
    let clients: Vec<TcpStream> = (0..100).filter_map(|_| connect(address).ok()).collect();
    process.until("no descriptor for a client", || {
        process.metrics().contains("ballast_accept_errors_total{")
    });

    for generation in 1..6 {
        let text = table(&[(address, endpoint)]);
        replace(&folder, &format!("{text}generation: {generation}\n"));
        process.until("a table that is served", || {
            ack(folder.path()).is_some_and(|ack| ack["served"]["generation"] == generation)
        });
    }
    drop(clients);
    process.until("a client that is served again", || {
        connect(address).is_ok_and(|mut client| ping(&mut client).is_ok())
    });
}

#[test]
fn a_process_that_can_accept_nobody_is_not_ready_until_it_can() {
    let endpoint = echo_server();
    let taken = TcpListener::bind((fresh_ip(), 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let folder = folder(&table(&[(address, endpoint)]));
    let process = serve(folder.path(), "1", &[]);
    // The log has the table a moment before /readyz has it.
    process.until("the reason at /readyz", || {
        get(process.admin(), "/readyz").is_ok_and(|(status, why)| {
            status == 503 && why.contains("could be bound") && why.contains("address in use")
        })
    });

    // Beside one that is served, one that is not does not matter; and who has nothing to serve is ready for more.
    let both = table(&[(address, endpoint), (fresh_address(), endpoint)]);
    for ready in [both.as_str(), "version: 1\n"] {
        replace(&folder, ready);
        process.until_answers("/readyz", 200);
        replace(&folder, &table(&[(address, endpoint)]));
        process.until_answers("/readyz", 503);
    }
    drop(taken);
    process.until_answers("/readyz", 200);
    let mut client = connect(address).unwrap();
    ping(&mut client).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

/// `ballast run` with 64 descriptors and this folder.
fn serve(folder: &Path, threads: &str, args: &[&str]) -> Process {
    let run = [
        "run",
        "--admin",
        "127.0.0.1:0",
        "--threads",
        threads,
        "--table",
    ];
    let table = folder.to_str().unwrap();
    Process::spawn(&mut limited(
        "ulimit -n 64",
        &[&run, &[table][..], args].concat(),
    ))
}
