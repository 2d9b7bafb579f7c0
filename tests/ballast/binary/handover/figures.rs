//! A hundred hand-overs under load, with what clients notice, as a table. `FIGURES=1` runs it.

use std::sync::Mutex;
use std::time::Instant;

use support::raw::{Event, Raw};

use super::flows::{Flows, place};
use super::*;

/// When a visit began, and how long it took.
type Visits = Arc<Mutex<Vec<(Instant, Duration)>>>;

#[test]
fn a_hundred_hand_overs_under_load() {
    if !support::peers::is_for_figures() {
        return;
    }
    let place = place();
    let run = || Process::spawn(&mut place.run(&["--threads", "2"]));
    let mut running = run();
    running.until_answers("/readyz", 200);
    let mut clients = Clients::of(&place);
    let visits = Visits::default();
    for _ in 0..4 {
        let (visits, address) = (Arc::clone(&visits), place.tcp);
        clients.begin("timed tcp", move || {
            let began = Instant::now();
            ping(&mut connect(address)?)?;
            visits.lock().unwrap().push((began, began.elapsed()));
            Ok(())
        });
    }
    for _ in 0..2 {
        clients.begin("http/2", http2(place.at(1)));
    }
    for _ in 0..BULK {
        let address = place.tcp;
        clients.begin("bulk", move || stream(address));
    }
    let is_over = Arc::default();
    let mut flows = Flows::of(place.tcp, FLOWS);
    flows.ask();
    let asking = flows.begin(&is_over);
    let before = Instant::now();
    support::pause(Duration::from_secs(15));
    let began = Instant::now();
    for _ in 0..HAND_OVERS {
        let next = run();
        next.until_said("table applied");
        running.until_said("the next process serves");
        let mut before = std::mem::replace(&mut running, next);
        assert_eq!(before.ends(), Some(0));
    }
    let ended = Instant::now();
    is_over.store(true, Ordering::Relaxed);
    let asked = asking.join().unwrap();
    for (name, served, failed) in clients.end() {
        println!(
            "{name}: {served} served, {} failed {failed:?}",
            failed.len()
        );
    }
    println!("udp: {FLOWS} flows, {asked} datagrams of each, none lost, none moved");
    let visits = visits.lock().unwrap();
    print_times("before", &visits, before..began);
    print_times("during", &visits, began..ended);
    println!("{HAND_OVERS} hand-overs in {:?}", ended - began);
}

/// 256 KiB there and back.
fn stream(address: SocketAddr) -> std::io::Result<()> {
    let mut client = connect(address)?;
    let (sent, mut heard) = ([7; 16 << 10], [0; 16 << 10]);
    for _ in 0..16 {
        client.write_all(&sent)?;
        client.read_exact(&mut heard)?;
        support::pause(Duration::from_millis(20));
    }
    Ok(())
}

/// Requests on one connection until it ends. A request that was not begun is asked for on the next connection.
fn http2(address: SocketAddr) -> impl FnMut() -> std::io::Result<()> + Send {
    let mut kept = None;
    move || loop {
        let (mut client, stream) = kept.take().unwrap_or_else(|| (Raw::to(address), 1));
        client.get(stream, "/");
        let mut is_ending = false;
        let is_answered = loop {
            match client.event() {
                Event::GoAway { last, .. } if last < stream => break false,
                Event::GoAway { .. } => is_ending = true,
                Event::Head {
                    stream: of, ends, ..
                }
                | Event::Data {
                    stream: of, ends, ..
                } if of == stream && ends => {
                    break true;
                }
                Event::Reset { code: REFUSED, .. } => break false,
                Event::Reset { code, .. } => {
                    return Err(std::io::Error::other(format!("reset by {code}")));
                }
                Event::End => return Err(ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        };
        if is_answered {
            if !is_ending {
                kept = Some((client, stream + 2));
            }
            return Ok(());
        }
    }
}

fn print_times(name: &str, visits: &[(Instant, Duration)], during: std::ops::Range<Instant>) {
    let in_time = |visit: &&(Instant, Duration)| during.contains(&visit.0);
    let visits: Vec<_> = visits.iter().filter(in_time).collect();
    let mut times: Vec<Duration> = visits.iter().map(|(_, took)| *took).collect();
    let mut ends: Vec<Instant> = visits.iter().map(|(began, took)| *began + *took).collect();
    times.sort();
    ends.sort();
    let gap = ends.windows(2).map(|two| two[1] - two[0]).max();
    let part = |per_mille: usize| times.get(times.len() * per_mille / 1000);
    let seconds = (during.end - during.start).as_secs_f64();
    println!(
        "{name}: {:.0} connections a second of the timed ones, p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?}, longest gap {gap:?}",
        times.len() as f64 / seconds,
        part(500),
        part(990),
        part(999),
        times.last(),
    );
}

/// REFUSED_STREAM.
const REFUSED: u32 = 7;
const HAND_OVERS: usize = 100;
const BULK: usize = 50;
const FLOWS: usize = 250;
