//! `ballast`: checks over real sockets: what is asked, how answers are judged, how sockets are closed, and what clients notice.

mod answers;
mod clients;
mod https;
mod questions;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ballast::config::Admin;
use ballast::{Config, Running};
use ballast_core::endpoint::EndpointState;
use ballast_core::health::Monitor;
use ballast_core::moment::Moment;
use socket2::SockRef;
use support::{Ballast, server, table};

/// A server that is well, whoever asks.
fn well() -> SocketAddr {
    server(|mut client| {
        let mut bytes = [0; 1024];
        match client.read(&mut bytes) {
            Ok(1) => client.write_all(b"well").ok(),
            Ok(2..) => client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok(),
            _ => None,
        };
    })
}

/// A server that serves clients, and tells checks that it is ill.
fn ill() -> SocketAddr {
    server(|mut client| {
        let mut bytes = [0; 1024];
        match client.read(&mut bytes) {
            Ok(1) => client.write_all(b"ill").ok(),
            Ok(2..) => client.write_all(b"HTTP/1.1 503 No\r\n\r\n").ok(),
            _ => None,
        };
    })
}

fn reset(client: TcpStream) {
    let linger = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    linger.expect("an option");
    drop(client);
}

/// A table whose endpoints are checked quickly.
fn checked(health: &str, endpoints: &[SocketAddr]) -> String {
    let interval = if health.contains("interval") {
        ""
    } else {
        QUICK
    };
    table(
        "",
        &format!(", health: {{{health}, {interval}}}"),
        endpoints,
    )
}

fn endpoint(ballast: &Ballast, index: usize) -> Arc<EndpointState> {
    let plan = ballast.running.shared().live.plan();
    Arc::clone(plan.services()[0].endpoints()[index].live())
}

/// The monitor of an endpoint, if it is checked.
fn known(ballast: &Ballast, index: usize) -> Option<Monitor> {
    endpoint(ballast, index).monitor()
}

/// The monitor of an endpoint that is checked, or will be any moment.
fn monitor(ballast: &Ballast, index: usize) -> Monitor {
    ballast.until(|ballast| known(ballast, index).is_some());
    known(ballast, index).expect("a check")
}

/// What its last check found, in haproxy's word.
fn last_word(monitor: &Monitor) -> &'static str {
    monitor.last.map_or("", |seen| seen.outcome.word())
}

/// When its last check ended.
fn seen(ballast: &Ballast, index: usize) -> Option<Moment> {
    Some(known(ballast, index)?.last?.at)
}

fn dials(ballast: &Ballast, index: usize) -> u64 {
    let endpoint = endpoint(ballast, index);
    let counters = endpoint.all_counters();
    counters.map_or(0, |counters| counters.sum(|counters| &counters.dials))
}

fn sessions(ballast: &Ballast, index: usize) -> u64 {
    let endpoint = endpoint(ballast, index);
    let counters = endpoint.all_counters();
    counters.map_or(0, |counters| counters.sum(|counters| &counters.sessions))
}

/// A data plane with settings of its own.
fn start(table: &str, set: impl FnOnce(&mut Config)) -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("table.yaml"), table).expect("a table");
    let mut config = Config {
        threads: Some(1),
        admin: Admin::At(Vec::new()),
        ..Config::new(folder.path().into())
    };
    set(&mut config);
    (ballast::start(config).expect("a start"), folder)
}

fn end(ballast: Ballast) {
    block_on(ballast.running.stop());
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

/// Where something changes, and patient with a busy machine.
const QUICK: &str = "interval: 1s, fast-interval: 100ms, timeout: 1s";
