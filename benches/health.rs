//! What health checks cost: the decisions of one check, and a thousand checks a second over real sockets.
//!
//! The second part prints the processor time of the thread that runs the checks, as a share of one core, and beside it that
//! of the thread that plays all endpoints. Each is what the scheduler says of that thread, so the kernel's work for it is in
//! it. The endpoints are on this machine: what the kernel does when a packet arrives at one of them happens in the thread
//! that has sent it, and counts as that one's.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ballast::config::Admin;
use ballast::{Config, Running};
use ballast_core::compile::{CompileContext, compile};
use ballast_core::health::{Checks, Outcome};
use ballast_core::loops::LOOPBACK_ONLY;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{self, Format};
use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decisions(&mut criterion);
    criterion.final_summary();
    if std::env::args().any(|arg| arg == "--bench") {
        for (name, health) in [
            ("tcp, connect only", "mode: tcp"),
            (
                "tcp, question and answer",
                "mode: tcp, send: ping, answer: pong",
            ),
            ("http", "mode: http"),
        ] {
            thousand_a_second(name, health);
        }
    }
}

/// One check of 10,000: taken from the schedule, judged, put back.
fn decisions(criterion: &mut Criterion) {
    let mut rng = Rng::new(1);
    let addresses: Vec<SocketAddr> = (0..10)
        .map(|host| SocketAddr::from(([10, 0, 0, host], 80)))
        .collect();
    let text = services(1_000, "mode: tcp", &addresses);
    let mut context = CompileContext {
        now: Moment(0),
        workers: 1,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng: &mut rng,
    };
    let table = table::parse(text.as_bytes(), Format::Yaml).expect("a table");
    let plan = compile(table, &Plan::default(), &mut context);
    let mut checks = Checks::new(u32::MAX, &mut rng);
    checks.follow(&plan, Moment(0));
    let took = Duration::from_millis(1);
    criterion.bench_function("health/one check of 10000", |bencher| {
        bencher.iter(|| {
            let now = checks.next_due().expect("somebody is due");
            if let Some(check) = checks.next(now) {
                checks.ended(check.id, Outcome::Connected, took, now, &mut rng);
            }
        });
    });
}

/// 2,000 endpoints, each checked every 2 s.
fn thousand_a_second(name: &str, health: &str) {
    let (addresses, serving) = endpoints(20);
    let folder = tempfile::tempdir().expect("a folder");
    let text = services(100, health, &addresses);
    fs::write(folder.path().join("table.yaml"), text).expect("a table");
    let running = ballast::start(Config {
        threads: Some(1),
        admin: Admin::At(Vec::new()),
        ..Config::new(folder.path().into())
    })
    .expect("a start");
    // The first round is behind it.
    thread::sleep(Duration::from_secs(4));
    let (before, began) = ([time_of("probe"), time_of("endpoints")], Instant::now());
    let checks = answered();
    thread::sleep(MEASURED);
    let now = [time_of("probe"), time_of("endpoints")];
    let took = began.elapsed().as_secs_f64();
    let share = |which: usize| (now[which] - before[which]).as_secs_f64() / took * 100.0;
    let (probe, endpoints, failed) = (share(0), share(1), failed(&running));
    let checks = u32::try_from(answered() - checks).map_or(f64::NAN, f64::from) / took;
    println!(
        "health/1000 a second, {name}: {probe:.2} % of one core for {checks:.0} a second ({failed} failed); the endpoints: {endpoints:.2} %"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(running.stop());
    ENDED.store(true, Ordering::Relaxed);
    serving.join().expect("the endpoints");
}

/// Processor time of the threads of this name, in the kernel too.
fn time_of(name: &str) -> Duration {
    let tasks = fs::read_dir("/proc/self/task").expect("threads");
    tasks
        .flatten()
        .filter(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        })
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse().ok())
        .map(Duration::from_nanos)
        .sum()
}

fn failed(running: &Running) -> u64 {
    let plan = running.shared().live.plan();
    plan.services()
        .iter()
        .flat_map(|service| service.endpoints())
        .filter_map(|endpoint| endpoint.live().monitor())
        .map(|monitor| monitor.failed)
        .sum()
}

/// Servers that answer and close. They look for clients every few milliseconds instead of being woken by each: on
/// another machine nobody's waking would be at the cost of the thread that is measured.
fn endpoints(count: usize) -> (Vec<SocketAddr>, JoinHandle<()>) {
    let listeners: Vec<TcpListener> = (0..count)
        .map(|_| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
            listener.set_nonblocking(true).expect("an option");
            listener
        })
        .collect();
    let addresses = listeners
        .iter()
        .map(|listener| listener.local_addr().expect("an address"))
        .collect();
    let serve = move || {
        let mut clients: Vec<TcpStream> = Vec::new();
        loop {
            thread::sleep(Duration::from_millis(3));
            for listener in &listeners {
                while let Ok((client, _)) = listener.accept() {
                    ANSWERED.fetch_add(1, Ordering::Relaxed);
                    client.set_nonblocking(true).expect("an option");
                    clients.push(client);
                }
            }
            clients.retain_mut(is_not_done);
            if ENDED.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    ENDED.store(false, Ordering::Relaxed);
    let serving = thread::Builder::new().name("endpoints".into()).spawn(serve);
    (addresses, serving.expect("a thread"))
}

/// Connections that the endpoints took.
fn answered() -> u64 {
    ANSWERED.load(Ordering::Relaxed)
}

fn is_not_done(client: &mut TcpStream) -> bool {
    let mut asked = [0; 1024];
    let answer: &[u8] = match client.read(&mut asked) {
        Ok(4) => b"pong",
        Ok(5..) => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
        _ => return false,
    };
    client.write_all(answer).ok();
    false
}

fn services(count: usize, health: &str, addresses: &[SocketAddr]) -> String {
    let mut text = String::from("version: 1\nservices:\n");
    for n in 0..count {
        write!(
            text,
            "- {{name: s{n}, health: {{{health}, interval: 2s}}, endpoints: ["
        )
        .expect("a string takes all");
        for address in addresses {
            write!(text, "{{address: \"{address}\"}}, ").expect("a string takes all");
        }
        text.push_str("]}\n");
    }
    text
}

static ANSWERED: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);
const MEASURED: Duration = Duration::from_secs(10);
