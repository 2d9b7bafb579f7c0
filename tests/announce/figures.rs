//! How fast `ballast-controller announce` is, and how small: with FIGURES=1, on a machine that does nothing else. The limits are those
//! that the project promises.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ballast_announce::ack::{Ack, State};

use crate::hosts::{Host, Place, enter, pause, until};
use crate::{V4, V6};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A host loses its power, again and again, while a client connects all the time.
pub(crate) fn kills(place: &mut Place) {
    let gaps = (0..kills_asked_for()).map(|_| one_kill(place)).collect();
    let [p50, p99, _] = told("a host loses its power: without service for", gaps);
    assert!(p50 <= MS(450) && p99 <= MS(650));
}

/// Prints the times; returns their median, the 99th hundredth and the longest.
pub(crate) fn told(what: &str, mut times: Vec<Duration>) -> [Duration; 3] {
    times.sort();
    let of = |hundredth: usize| times[(times.len() * hundredth / 100).min(times.len() - 1)];
    let [p50, p99, most] = [of(50), of(99), of(100)];
    println!(
        "{what} {p50:?} (p50), {p99:?} (p99), {most:?} at most, of {}",
        times.len()
    );
    [p50, p99, most]
}

fn one_kill(place: &mut Place) -> Duration {
    (0..place.hosts.len()).for_each(|number| place.start(number));
    // Whoever began last has heard of the others, and probes are anywhere in their period.
    pause(MS(3_000));
    until("the address is held", || place.holders(V4).len() == 1);
    let one = place.holders(V4)[0];
    let client = place.client.holder();
    let gap = longest_gap(client, || {
        place.hosts[one].power_off();
        pause(MS(2_000));
    });
    place.hosts[one].power_on();
    gap
}

pub(crate) fn data_plane(place: &mut Place) {
    let mut gaps = Vec::new();
    for _ in 0..kills_asked_for() {
        place.start(0);
        place.start(1);
        pause(MS(3_000));
        until("the address is held", || place.holders(V4).len() == 1);
        let one = place.holders(V4)[0];
        let client = place.client.holder();
        gaps.push(longest_gap(client, || {
            place.hosts[one].end_data_plane();
            pause(MS(1_500));
        }));
        place.hosts[one].kill();
    }
    let [_, _, most] = told(
        "the data plane ends, the host lives: without service for",
        gaps,
    );
    assert!(most <= MS(300));
}

pub(crate) fn thousand(place: &mut Place) {
    place.start_with(0, &many(1_000));
    place.start_with(1, &many(1_000));
    let count = |host: &Host| {
        host.ip("-o address show dev eth0")
            .matches(" 10.78.")
            .count()
    };
    until("all are held", || {
        place.hosts.iter().map(&count).sum::<usize>() == 1_000
    });
    pause(MS(6_000));
    let of_other = count(&place.hosts[1]);
    place.hosts[0].power_off();
    let at = Instant::now();
    until("the other has all", || count(&place.hosts[1]) == 1_000);
    let took = at.elapsed();
    println!("{} addresses of a dead host: {took:?}", 1_000 - of_other);
    assert!(took <= MS(1_500));
}

/// Ten members and a thousand addresses, at rest for half a minute.
pub(crate) fn at_rest(place: &mut Place) {
    let hosts = place.hosts.len();
    (0..hosts).for_each(|number| place.start_with(number, &many(1_000)));
    let all = |place: &Place| {
        let count = |host: &Host| {
            host.ip("-o address show dev eth0")
                .matches(" 10.78.")
                .count()
        };
        place.hosts.iter().map(count).sum::<usize>()
    };
    until("all are held", || all(place) == 1_000);
    pause(MS(10_000));
    let before: Vec<f64> = place.hosts.iter().map(Host::processor).collect();
    pause(MS(30_000));
    for (host, before) in place.hosts.iter().zip(before) {
        let share = (host.processor() - before) / 30.0 * 100.0;
        let memory = host.memory();
        println!("at rest, {hosts} members: {memory} kB, {share:.2} % of a core");
        assert!(memory <= 20_000 && share <= 1.0);
    }
}

fn many(count: u32) -> String {
    let line = |last: u32| {
        let (high, low) = (last / 250, last % 250 + 1);
        format!("- {{address: 10.78.{high}.{low}, mode: l2, nodes: [NODES], interface: eth0}}\n")
    };
    (0..count).map(line).collect()
}

/// The longest time between two connections that were taken, while the work is done.
fn longest_gap(client: u32, work: impl FnOnce()) -> Duration {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let measured = scope.spawn(|| {
            enter(client);
            let to: SocketAddr = (V4.parse::<std::net::IpAddr>().expect("an address"), 80).into();
            let (mut last, mut gap) = (Instant::now(), Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                match TcpStream::connect_timeout(&to, MS(10)) {
                    Ok(_) => {
                        gap = gap.max(last.elapsed());
                        last = Instant::now();
                        pause(MS(10));
                    }
                    Err(error) if error.kind() == ErrorKind::TimedOut => {}
                    Err(_) => pause(MS(10)),
                }
            }
            gap.max(last.elapsed())
        });
        pause(MS(200));
        work();
        is_over.store(true, Ordering::Relaxed);
        measured.join().expect("no panic")
    })
}

/// A twentieth of all packets is lost, and then one node has more to do than it can: nothing moves.
pub(crate) fn loss(place: &mut Place) {
    (0..place.hosts.len()).for_each(|number| place.start(number));
    until("each address is held", || {
        place.holders(V4).len() == 1 && place.holders(V6).len() == 1
    });
    // The host that began last may take its share of the addresses at first.
    pause(if is_long() { MS(35_000) } else { MS(1_000) });
    let before = held(place);
    assert_eq!(before.len(), 2, "{before:?}");
    for host in &place.hosts {
        for tables in ["iptables", "ip6tables"] {
            let mut command = host.program(tables);
            command.args(["-w", "-A", "INPUT", "-m", "statistic", "--mode", "random"]);
            command.args(["--probability", "0.05", "-j", "DROP"]);
            let output = command.output().expect("iptables");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{tables}: {said}");
        }
    }
    let minutes = asked("MINUTES").unwrap_or(30);
    let long = MS(60_000) * u32::try_from(minutes).unwrap_or(30);
    pause(if is_long() { long } else { MS(4_000) });
    assert_eq!(held(place), before, "of 5 % loss nothing moves");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        pause(if is_long() { long / 6 } else { MS(2_000) });
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(held(place), before, "of 20 busy processes nothing moves");
    println!("5 % loss for {minutes} min, a sixth of it with a load of 20: 0 moves");
}

/// The addresses that are held, by host, and since when: other values after a move.
fn held(place: &Place) -> Vec<(usize, String)> {
    let hosts = place.hosts.iter().enumerate();
    let of_host = |(number, host): (usize, &Host)| {
        let ack: Ack = serde_json::from_str(&host.ack()).expect("an ack");
        let held = ack.addresses.into_iter();
        let held = held.filter(|one| one.state == State::Held);
        let held = held.map(move |one| (number, format!("{} {}", one.address, one.since)));
        held.collect::<Vec<_>>()
    };
    hosts.flat_map(of_host).collect()
}

/// Whether the figures are measured; else a short run looks whether it works.
pub(crate) fn is_long() -> bool {
    std::env::var_os("FIGURES").is_some()
}

/// How often something is done: as often as the figures need it, or so often in a short run.
pub(crate) fn rounds(short: usize) -> usize {
    if is_long() { kills_asked_for() } else { short }
}

pub(crate) fn kills_asked_for() -> usize {
    asked("KILLS").unwrap_or(50)
}

fn asked(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}
