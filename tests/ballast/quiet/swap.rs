//! `ballast`: tables that change under load: nobody notices but who is meant to.
//!
//! How many swaps and connections a second were reached is printed always. With FIGURES=1, which wants a release build and a
//! machine that does nothing else, it is what is promised:
//!
//!   FIGURES=1 cargo test --release --test quiet swap::a_hundred -- --nocapture

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use support::Ballast;
use support::crowd::{Client, Guest, quiet_runtime, serve_as, servers, source};
use support::skip::{MUCH, Others, undecided};
use tokio::sync::Semaphore;

#[test]
fn a_hundred_swaps_a_second_fail_no_client_of_thousands() {
    let _turn = crate::turn();
    let storm = Storm::rage(Duration::from_secs(5), CONNECTIONS, Duration::ZERO);
    storm.report("short connections", 20);
    assert!(storm.served > 500, "{} served", storm.served);
    if std::env::var_os("FIGURES").is_some() {
        let (connections, swaps) = (storm.per_second(storm.served), storm.swaps_per_second());
        assert!(connections >= 0.99 * CONNECTIONS, "{connections}");
        assert!(swaps >= 0.99 * SWAPS, "{swaps}");
    }
}

#[test]
fn connections_live_across_swaps_and_reach_only_what_their_table_had() {
    let _turn = crate::turn();
    let storm = Storm::rage(Duration::from_secs(5), 1_000.0, Duration::from_millis(500));
    storm.report("long connections", 50);
    assert!(storm.served > 200, "{} served", storm.served);
}

#[test]
fn a_connection_keeps_no_table_alive() {
    let _turn = crate::turn();
    let servers = servers(3);
    let ballast = Ballast::serve(&table_of(1, &servers), 2);
    let mut held = Client::from([127, 0, 0, 1], ballast.address()).unwrap();
    let server = held.ask().unwrap();
    for generation in 2..6 {
        ballast.swap(&table_of(generation, &[]));
        ballast.swap(&table_of(generation, &servers));
    }
    let status = &ballast.running.shared().status;
    ballast.until(|_| status.retired.load(Ordering::Relaxed) == 0);
    assert_eq!(held.ask().unwrap(), server);
    // Its endpoint left the table four times, and is still the one that counts it.
    assert_eq!(ballast.in_flight(), 1);
    drop(held);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

/// What clients saw while tables changed.
struct Storm {
    served: u64,
    /// When each table was served, since the first one was.
    swaps: Vec<Duration>,
    took: Duration,
    /// The part of the machine that other processes took.
    others: f64,
}

impl Storm {
    /// Clients come, ask, stay for up to `stay`, ask again and go, while each table names two servers of forty.
    fn rage(lasting: Duration, per_second: f64, stay: Duration) -> Self {
        let servers: Arc<[SocketAddr]> = servers(40).into();
        let ballast = Ballast::serve(&storm_table(&servers, 0), 2);
        let tables = Arc::new(Tables::default());
        let address = ballast.address();
        let guests = {
            let (tables, servers) = (Arc::clone(&tables), Arc::clone(&servers));
            thread::spawn(move || {
                quiet_runtime().block_on(guests(address, servers, tables, per_second, stay))
            })
        };
        let (others, begun) = (Others::watch(), Instant::now());
        let (mut generation, mut swaps) = (0, Vec::new());
        while begun.elapsed() < lasting {
            generation += 1;
            tables.written.store(generation, Ordering::SeqCst);
            ballast.swap(&storm_table(&servers, generation));
            tables.served.store(generation, Ordering::SeqCst);
            swaps.push(begun.elapsed());
            support::pause(Duration::from_millis(10 * generation).saturating_sub(begun.elapsed()));
        }
        tables.over.store(true, Ordering::SeqCst);
        let (took, others) = (begun.elapsed(), others.share());
        let (served, failures) = guests.join().expect("an end");
        assert!(failures.is_empty(), "{failures:#?}");
        nobody_is_left(&ballast, &servers, generation + 1);
        Self {
            served,
            swaps,
            took,
            others,
        }
    }

    /// Prints what was reached. Also a debug build swaps as many as the `fewest` in its best second, unless other processes are
    /// busy: fewer where clients come faster than both of them can serve, for apply gives way.
    fn report(&self, what: &str, fewest: usize) {
        let best = self.swaps_of_the_best_second();
        println!(
            "{what}: {:.0} connections/s, {:.0} swaps/s, {best} in the best second; none failed",
            self.per_second(self.served),
            self.swaps_per_second(),
        );
        if best < fewest && self.others > MUCH {
            return undecided("other processes take the machine");
        }
        assert!(best >= fewest, "{best} swaps in the best second");
    }

    fn swaps_per_second(&self) -> f64 {
        self.per_second(self.swaps.len() as u64)
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.took.as_secs_f64()
    }

    fn swaps_of_the_best_second(&self) -> usize {
        let within_a_second = |(first, begun): (usize, &Duration)| {
            let end = *begun + Duration::from_secs(1);
            self.swaps.partition_point(|swap| *swap < end) - first
        };
        let counts = self.swaps.iter().enumerate().map(within_a_second);
        counts.max().unwrap_or(0)
    }
}

/// Which tables may be in force.
#[derive(Default)]
struct Tables {
    served: AtomicU64,
    written: AtomicU64,
    over: AtomicBool,
}

fn storm_table(servers: &[SocketAddr], generation: u64) -> String {
    let two: Vec<_> = servers
        .iter()
        .enumerate()
        .filter(|(index, _)| named_by(servers.len(), generation, *index))
        .map(|(_, server)| *server)
        .collect();
    table_of(generation, &two)
}

/// Whether the table of this generation names the server at `index`.
fn named_by(servers: usize, generation: u64, index: usize) -> bool {
    let first = generation % servers as u64;
    let second = (generation + 1) % servers as u64;
    index as u64 == first || index as u64 == second
}

fn table_of(generation: u64, endpoints: &[SocketAddr]) -> String {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|address| format!("{{address: \"{address}\"}}"))
        .collect();
    format!(
        "version: 1\ngeneration: {generation}\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}]\nservices: [{{name: s, endpoints: [{}]}}]\n",
        endpoints.join(", ")
    )
}

/// Brings clients at an even rate, as far as the machine keeps up.
async fn guests(
    address: SocketAddr,
    servers: Arc<[SocketAddr]>,
    tables: Arc<Tables>,
    per_second: f64,
    stay: Duration,
) -> (u64, Vec<String>) {
    let at_once = Arc::new(Semaphore::new(1_000));
    let seen = Arc::new(Mutex::new((0, Vec::new())));
    let begun = Instant::now();
    let mut came = 0;
    while !tables.over.load(Ordering::SeqCst) {
        let due = begun.elapsed().as_secs_f64() * per_second;
        while (came as f64) < due {
            came += 1;
            let Ok(place) = Arc::clone(&at_once).try_acquire_owned() else {
                continue;
            };
            let (servers, tables, seen) =
                (Arc::clone(&servers), Arc::clone(&tables), Arc::clone(&seen));
            let stay = stay.mul_f64((came % 8) as f64 / 7.0);
            tokio::spawn(async move {
                let visited = visit(source(came), address, &servers, &tables, stay).await;
                let mut seen = seen.lock().expect("no panic");
                match visited {
                    Ok(()) => seen.0 += 1,
                    Err(why) => seen.1.push(why),
                }
                drop(place);
            });
        }
        support::pause_async(Duration::from_millis(1)).await;
    }
    let all = at_once.acquire_many(1_000).await;
    drop(all);
    std::mem::take(&mut *seen.lock().expect("no panic"))
}

async fn visit(
    source: Ipv4Addr,
    address: SocketAddr,
    servers: &[SocketAddr],
    tables: &Tables,
    stay: Duration,
) -> Result<(), String> {
    let oldest = tables.served.load(Ordering::SeqCst);
    let mut guest = Guest::from(source, address)
        .await
        .map_err(|error| format!("connect: {error}"))?;
    let heard = guest
        .ask()
        .await
        .map_err(|error| format!("ask, at {oldest}: {error}"))?;
    let newest = tables.written.load(Ordering::SeqCst);
    let index = servers.iter().position(|server| *server == heard);
    let index = index.ok_or_else(|| format!("{heard} is none of ours"))?;
    if !(oldest..=newest).any(|generation| named_by(servers.len(), generation, index)) {
        return Err(format!(
            "server {index} was in no table of {oldest} to {newest}"
        ));
    }
    if stay.is_zero() {
        return Ok(());
    }
    support::pause_async(stay).await;
    match guest.ask().await {
        Ok(again) if again == heard => Ok(()),
        Ok(again) => Err(format!("moved from {heard} to {again}")),
        Err(error) => Err(format!("ask again: {error}")),
    }
}

/// With all servers in the table, so that all that was ever counted is looked at.
fn nobody_is_left(ballast: &Ballast, servers: &[SocketAddr], generation: u64) {
    ballast.swap(&table_of(generation, servers));
    let shared = ballast.running.shared();
    ballast.until(|ballast| ballast.in_flight() == 0 && shared.connections() == 0);
    ballast.until(|_| shared.status.retired.load(Ordering::Relaxed) == 0);
    ballast.until(|ballast| {
        ballast
            .metrics()
            .contains("haproxy_frontend_current_sessions{proxy=\"f\"} 0\n")
    });
    assert!(ballast.metrics().contains("ballast_task_panics_total 0\n"));
}

#[test]
fn who_waits_to_be_accepted_is_served_though_the_address_goes() {
    let _turn = crate::turn();
    let server = servers(1)[0];
    let (held, going) = (loopback(1), loopback(2));
    let table = |generation: u32, frontends: &str| {
        format!(
            "version: 1\ngeneration: {generation}\nfrontends: [{frontends}]\nservices: [{{name: s, endpoints: [{{address: \"{server}\"}}]}}]\n"
        )
    };
    let stays = format!("{{name: stays, bind: [\"{held}\"], protocol: tcp, service: s}}");
    let goes = format!("{{name: goes, bind: [\"{going}\"], protocol: tcp, service: s}}");
    let ballast = serve_as(&table(1, &format!("{stays}, {goes}")), 2, |settings| {
        settings.max_connections = Some(1);
    });
    let mut first = Client::from([127, 0, 0, 1], held).unwrap();
    first.ask().unwrap();
    let mut waiting: Vec<_> = (0..10)
        .map(|_| Client::from([127, 0, 0, 1], going).unwrap())
        .collect();
    for client in &mut waiting {
        client.stream.write_all(b"?").unwrap();
        assert!(client.still_waits(), "one connection is the limit");
    }
    ballast.swap(&table(2, &stays));
    for client in &mut waiting {
        assert_eq!(client.answer().unwrap(), server);
    }
    assert!(Client::from([127, 0, 0, 1], going).is_err());
    assert_eq!(first.ask().unwrap(), server);
}

#[test]
fn a_frontend_that_gets_another_name_forgets_the_limit_that_it_waited_for() {
    let _turn = crate::turn();
    let server = servers(1)[0];
    let address = loopback(1);
    let table = |name: &str| {
        format!(
            "version: 1\nfrontends: [{{name: {name}, bind: [\"{address}\"], protocol: tcp, service: s, max-connections: 1}}]\nservices: [{{name: s, endpoints: [{{address: \"{server}\"}}]}}]\n"
        )
    };
    let ballast = Ballast::serve(&table("old"), 1);
    let mut first = Client::from([127, 0, 0, 1], address).unwrap();
    first.ask().unwrap();
    let mut second = Client::from([127, 0, 0, 1], address).unwrap();
    second.stream.write_all(b"?").unwrap();
    assert!(second.still_waits());
    ballast.swap(&table("new"));
    assert_eq!(second.answer().unwrap(), server);
    assert_eq!(first.ask().unwrap(), server);
}

#[test]
fn a_thousand_long_connections_are_spread_evenly_over_the_workers() {
    let _turn = crate::turn();
    let servers = servers(4);
    let ballast = Ballast::serve(&table_of(1, &servers), 4);
    let (address, shared) = (ballast.address(), ballast.running.shared());
    quiet_runtime().block_on(async {
        for at_once in [1, 20, 1_000] {
            let mut guests = Vec::new();
            while guests.len() < 1_000 {
                let coming: Vec<_> = (0..at_once)
                    .map(|_| tokio::spawn(Guest::from(Ipv4Addr::LOCALHOST, address)))
                    .collect();
                for guest in coming {
                    guests.push(guest.await.unwrap().unwrap());
                }
            }
            for guest in &mut guests {
                guest.ask().await.unwrap();
            }
            let loads: Vec<_> = shared
                .loads
                .iter()
                .map(|load| load.load(Ordering::Relaxed))
                .collect();
            println!("{at_once} at once: {loads:?}");
            assert_eq!(loads.iter().sum::<usize>(), guests.len());
            let (most, least) = (loads.iter().max().unwrap(), loads.iter().min().unwrap());
            assert!(2 * most <= 3 * least, "{at_once} at once: {loads:?}");
            drop(guests);
            ballast.until(|ballast| ballast.in_flight() == 0 && shared.connections() == 0);
        }
    });
}

#[test]
fn five_thousand_at_once_need_no_setting() {
    let _turn = crate::turn();
    // Both of their ends cost descriptors too, so they are another process's.
    let mut peers = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "swap::peers_of_another_process", "--nocapture"])
        .env("BALLAST_TEST_PEERS", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut order = peers.stdin.take().unwrap();
    let mut said = BufReader::new(peers.stdout.take().unwrap()).lines();
    let mut hears = |word: &str| loop {
        let line = said.next().expect("the peers' word").unwrap();
        if let Some(rest) = line.strip_prefix(word) {
            return rest.trim().to_owned();
        }
    };
    let server = hears("server").parse().unwrap();
    let ballast = Ballast::serve(&table_of(1, &[server]), 2);
    writeln!(order, "{}", ballast.address()).unwrap();
    assert_eq!(hears("held"), "5000");
    assert_eq!(ballast.in_flight(), 5_000);
    assert_eq!(ballast.running.shared().connections(), 5_000);
    let metrics = ballast.metrics();
    assert!(
        !metrics.contains("ballast_accept_errors_total{"),
        "{metrics}"
    );
    for line in metrics
        .lines()
        .filter(|line| line.starts_with("ballast_connections_refused_total"))
    {
        assert!(line.ends_with(" 0"), "{line}");
    }
    writeln!(order).unwrap();
    assert_eq!(hears("answered"), "5000");
    assert!(peers.wait().unwrap().success());
    ballast.until(|ballast| ballast.in_flight() == 0);
}

/// Nothing but the other process of the test above.
#[test]
fn peers_of_another_process() {
    let _turn = crate::turn();
    if std::env::var_os("BALLAST_TEST_PEERS").is_none() {
        return;
    }
    let _budget = ballast::limits::Budget::claim();
    println!("\nserver {}", servers(1)[0]);
    let mut orders = std::io::stdin().lines();
    let mut order = || orders.next().unwrap().unwrap();
    let address: SocketAddr = order().parse().unwrap();
    quiet_runtime().block_on(async {
        let mut guests = Vec::new();
        for index in 0..5_000 {
            let mut guest = Guest::from(source(index), address).await.unwrap();
            guest.ask().await.unwrap();
            guests.push(guest);
        }
        println!("held {}", guests.len());
        order();
        for guest in &mut guests {
            guest.ask().await.unwrap();
        }
        println!("answered {}", guests.len());
    });
}

/// An address that nobody uses, on a host of its own.
fn loopback(host: u8) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 32, 0, host), 0)).expect("a listener");
    listener.local_addr().expect("an address")
}

/// A second, as promised.
const CONNECTIONS: f64 = 5_000.0;
/// A second, as promised: one every 10 ms.
const SWAPS: f64 = 100.0;
