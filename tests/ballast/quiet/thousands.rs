//! `ballast`: as many connections as a process may hold, while a hundred tables a second come into force: none is lost, none reaches
//! what its table did not name, and all are counted to the last one.
//!
//! Their three ends (clients, data plane, servers) are three processes: the limit of descriptors is a process's. How often the
//! table is swapped is held with FIGURES=1, which wants a machine that does nothing else; everything else always.

use std::env;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ballast::limits::Budget;
use rustix::time::{ClockId, clock_gettime};
use support::Ballast;
use support::crowd::{Guest, quiet_runtime, servers, source};
use tokio::task::JoinSet;

#[test]
fn ten_thousand_connections_live_across_a_hundred_swaps_a_second() {
    let _turn = crate::turn();
    match env::var(ROLE).as_deref() {
        Ok("servers") => return be_servers(),
        Ok("clients") => return be_clients(),
        _ => {}
    }
    let mut servers = Peers::start("servers");
    let addresses: Vec<SocketAddr> = servers
        .hear("servers")
        .split(' ')
        .map(|address| address.parse().expect("an address"))
        .collect();
    let ballast = Ballast::serve(&table(0, &addresses), 2);
    let shared = ballast.running.shared();
    // 10,000, or what two descriptors each leave of the limit beside those that come and go.
    let room = shared.most.load(Ordering::Relaxed) - AT_ONCE;
    let held = room.min(10_000);
    let mut clients = Peers::start("clients");

    let over = AtomicBool::new(false);
    let (swaps, visits, took) = thread::scope(|scope| {
        let begun = Instant::now();
        let swapping = scope.spawn(|| swap_until(&over, &ballast, &addresses));
        clients.tell(format!("{} {held}", ballast.address()));
        assert_eq!(clients.hear("held"), held.to_string());
        clients.tell("others may come and go");
        let others: u32 = clients.hear("served").parse().expect("a number");
        ballast.until(|_| shared.connections() == held as usize);
        clients.tell("ask again");
        assert_eq!(clients.hear("answered"), held.to_string());
        over.store(true, Ordering::Relaxed);
        let (swaps, took) = (swapping.join().expect("no panic"), begun.elapsed());
        let visits: Vec<Visit> = (0..held + others)
            .map(|_| Visit::parse(&clients.hear("visit")))
            .collect();
        (swaps, visits, took)
    });
    let per_second = |count: usize| count as f64 / took.as_secs_f64();
    println!(
        "{held} connections held and {} others in {took:.1?}: {:.0} a second, {:.0} swaps a second",
        visits.len() - held as usize,
        per_second(visits.len()),
        per_second(swaps.len())
    );
    for visit in &visits {
        visit.assert_was_named(&swaps, &addresses);
    }
    let promised = if env::var_os("FIGURES").is_some() {
        95.0
    } else {
        2.0
    };
    assert!(
        per_second(swaps.len()) > promised,
        "{} swaps in {took:?}",
        swaps.len()
    );
    clients.tell("leave");
    clients.end();
    nobody_is_left(&ballast, &addresses);
    servers.end();
}

/// Begins a new table every 10 ms, and says when each was written and served.
fn swap_until(over: &AtomicBool, ballast: &Ballast, servers: &[SocketAddr]) -> Vec<(u64, u64)> {
    let (begun, mut swaps) = (Instant::now(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let written = now();
        ballast.swap(&table(swaps.len() + 1, servers));
        swaps.push((written, now()));
        let next = Duration::from_millis(10) * u32::try_from(swaps.len()).expect("not so many");
        support::pause(next.saturating_sub(begun.elapsed()));
    }
    swaps
}

/// All that were ever counted are looked at.
fn nobody_is_left(ballast: &Ballast, servers: &[SocketAddr]) {
    ballast.swap(&naming(0, servers));
    let shared = ballast.running.shared();
    ballast.until(|ballast| ballast.in_flight() == 0 && shared.connections() == 0);
    ballast.until(|_| shared.status.retired.load(Ordering::Relaxed) == 0);
    let plan = shared.live.plan();
    let (mut sessions, mut ended) = (0, 0);
    for endpoint in plan.services()[0].endpoints() {
        assert_eq!(endpoint.live().in_flight(), 0, "{}", endpoint.address());
        if let Some(counters) = endpoint.live().all_counters() {
            sessions += counters.sum(|counters| &counters.sessions);
            ended += counters.sum(|counters| &counters.ended);
        }
    }
    // Those of endpoints that were forgotten meanwhile are not among them.
    assert_eq!(sessions, ended);
    let metrics = ballast.metrics();
    assert!(metrics.contains("haproxy_frontend_current_sessions{proxy=\"f\"} 0\n"));
    assert!(metrics.contains("ballast_task_panics_total 0\n"));
    assert!(!metrics.contains("ballast_accept_errors_total{"));
    let refused = metrics
        .lines()
        .filter(|line| line.starts_with("ballast_connections_refused_total"));
    for line in refused {
        assert!(line.ends_with(" 0"), "{line}");
    }
}

/// Each generation names two of all servers, and the next one another two.
fn table(generation: usize, servers: &[SocketAddr]) -> String {
    let two = [generation, generation + 1].map(|index| servers[index % servers.len()]);
    naming(generation, &two)
}

fn naming(generation: usize, endpoints: &[SocketAddr]) -> String {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|address| format!("{{address: \"{address}\"}}"))
        .collect();
    format!(
        "version: 1\ngeneration: {generation}\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s}}]\nservices: [{{name: s, timeouts: {{connect: 20s}}, endpoints: [{}]}}]\n",
        endpoints.join(", ")
    )
}

/// A client's first question and its answer.
struct Visit {
    asked: u64,
    answered: u64,
    by: SocketAddr,
}

impl Visit {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [asked, answered, by] = words[..] else {
            panic!("{line}");
        };
        Self {
            asked: asked.parse().expect("a time"),
            answered: answered.parse().expect("a time"),
            by: by.parse().expect("an address"),
        }
    }

    /// Some table that may have been in force meanwhile named the server.
    fn assert_was_named(&self, swaps: &[(u64, u64)], servers: &[SocketAddr]) {
        let oldest = swaps.partition_point(|(_, served)| *served <= self.asked);
        let newest = swaps.partition_point(|(written, _)| *written <= self.answered);
        let index = servers.iter().position(|server| *server == self.by);
        let index = index.unwrap_or_else(|| panic!("{} is none of ours", self.by));
        let named = (oldest..=newest).any(|generation| {
            [generation, generation + 1]
                .map(|named| named % servers.len())
                .contains(&index)
        });
        assert!(
            named,
            "server {index} was in no table of {oldest} to {newest}"
        );
    }
}

/// The same for all processes.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).expect("a time")
}

/// Another process with this test's program.
struct Peers {
    process: Child,
    told: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Peers {
    fn start(role: &str) -> Self {
        let test = "thousands::ten_thousand_connections_live_across_a_hundred_swaps_a_second";
        let mut process = Command::new(env::current_exe().expect("a program"))
            .args([test, "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        Self {
            told: process.stdin.take().expect("a pipe"),
            said: BufReader::new(process.stdout.take().expect("a pipe")).lines(),
            process,
        }
    }

    fn tell(&mut self, order: impl Display) {
        writeln!(self.told, "{order}").expect("somebody who listens");
    }

    /// The rest of the next line that begins with this word.
    fn hear(&mut self, word: &str) -> String {
        loop {
            let line = self.said.next().expect("its word").expect("text");
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn end(mut self) {
        drop(self.told);
        // What it says at its end must find room.
        self.said.by_ref().for_each(drop);
        assert!(self.process.wait().expect("its end").success());
    }
}

fn order() -> Option<String> {
    io::stdin().lines().next()?.ok()
}

fn be_servers() {
    give_way();
    let _budget = Budget::claim();
    let addresses: Vec<String> = servers(40).iter().map(ToString::to_string).collect();
    println!("\nservers {}", addresses.join(" "));
    assert_eq!(order(), None, "until nobody needs them");
}

/// Also to the thread that applies tables.
fn give_way() {
    rustix::process::nice(19).expect("a lower priority");
}

fn be_clients() {
    give_way();
    let _budget = Budget::claim();
    let asked = order().expect("an order");
    let (address, count) = asked.split_once(' ').expect("two words");
    let (address, count) = (
        address.parse().expect("an address"),
        count.parse().expect("a number"),
    );
    quiet_runtime().block_on(async {
        let stay = |guest| guest;
        let (mut visits, mut held): (Vec<_>, Vec<_>) = come(address, |came| came < count, stay)
            .await
            .into_iter()
            .unzip();
        println!("\nheld {}", held.len());
        order();
        let until = Instant::now() + Duration::from_secs(2);
        let others = come(address, |_| Instant::now() < until, drop::<Guest>).await;
        println!("served {}", others.len());
        visits.extend(others.into_iter().map(|(visit, _)| visit));
        order();
        for (guest, visit) in held.iter_mut().zip(&visits) {
            assert_eq!(guest.ask().await.expect("an answer"), visit.by);
        }
        println!("answered {}", held.len());
        for Visit {
            asked,
            answered,
            by,
        } in visits
        {
            println!("visit {asked} {answered} {by}");
        }
        order();
    });
}

/// Brings clients, a few at once, for as long as that is to go on; each asks once, and stays or leaves.
async fn come<T: Send + 'static>(
    address: SocketAddr,
    goes_on: impl Fn(u64) -> bool,
    then: fn(Guest) -> T,
) -> Vec<(Visit, T)> {
    let (mut coming, mut came, mut all) = (JoinSet::new(), 0, Vec::new());
    loop {
        if coming.len() < AT_ONCE as usize && goes_on(came) {
            came += 1;
            let source = source(came);
            coming.spawn(async move {
                let asked = now();
                let mut guest = Guest::from(source, address).await?;
                let by = guest.ask().await?;
                let answered = now();
                let visit = Visit {
                    asked,
                    answered,
                    by,
                };
                io::Result::Ok((visit, then(guest)))
            });
            continue;
        }
        match coming.join_next().await {
            Some(visit) => all.push(visit.expect("no panic").expect("an answer")),
            None => return all,
        }
    }
}

const ROLE: &str = "BALLAST_TEST_ROLE";
/// How many clients may be about to be served.
const AT_ONCE: u32 = 200;
