//! How fast `ballast-controller announce` is, and how small: with FIGURES=1, on a machine that does nothing else. The limits are those
//! that the project promises.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::hosts::{Host, Place, enter, pause, until};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A host loses its power, again and again, while a client connects all the time.
pub(crate) fn kills(place: &mut Place) {
    let mut gaps: Vec<Duration> = (0..kills_asked_for()).map(|_| one_kill(place)).collect();
    gaps.sort();
    let of = |hundredth: usize| gaps[(gaps.len() * hundredth / 100).min(gaps.len() - 1)];
    println!(
        "{} kills: without service for {:?} (p50), {:?} (p99), {:?} at most",
        gaps.len(),
        of(50),
        of(99),
        gaps[gaps.len() - 1]
    );
    assert!(of(50) <= MS(450) && of(99) <= MS(650));
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
    for _ in 0..10 {
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
    gaps.sort();
    println!("the data plane ends, the host lives: without service for {gaps:?}");
    assert!(gaps[gaps.len() - 1] <= MS(300));
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

fn kills_asked_for() -> usize {
    let asked = std::env::var("KILLS").ok();
    asked.and_then(|kills| kills.parse().ok()).unwrap_or(50)
}

const V4: &str = "10.77.0.100";
