//! A long run of everything at once: does Ballast fail a client, or grow, while all that may change does change?
//!
//! ```text
//! cargo bench --bench soak -- --seconds 120
//! cargo bench --bench soak -- --seconds 3600 --idle 8000
//! ```
//!
//! It runs `target/release/ballast` (`BALLAST_BIN` names another one) and, in its own process, clients and endpoints. Meanwhile
//!
//! - a table replaces the one before every 100 ms: weights change, one endpoint of three and one frontend come and go;
//! - endpoints of the service `dying` close their sockets and open them again, and are checked for it;
//! - every minute a new Ballast takes over from the one that runs (`--handover`);
//! - clients of TCP, HTTP/1, HTTP/2, TLS and UDP ask as fast as they are answered, or wait for most of their time.
//!
//! The report names, by kind of client: exchanges, failures, and latencies. A failure is a connection that is refused, reset or cut
//! before its answer, an answer with another status than 200, or a datagram without an answer within a second. Of the clients of `dying`
//! some must fail: they are counted apart. Memory, descriptors and threads of the Ballast that serves are looked at every second.
//! The run fails if another client has failed, if a gauge is not back at zero when all clients have gone, or if memory or
//! descriptors have grown by more than a tenth since the first quarter of the run.
//!
//! 8,000 idle clients want 45,000 descriptors for each process; where fewer are allowed, there are fewer idle clients, and the report
//! says how many. All traffic is on 127.0.0.0/8.

mod clients;
mod endpoints;
#[path = "../peers/hist.rs"]
mod hist;
#[path = "../common/program.rs"]
mod program;
mod proxy;
mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::papers::Papers;

use self::clients::{Crowd, Tallies};
use self::endpoints::Endpoints;
use self::proxy::Proxy;
use self::report::Samples;

fn main() -> ExitCode {
    let options = match Options::of(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("soak: {why}\nusage: soak [--seconds N] [--idle N] [--active N]");
            return ExitCode::from(2);
        }
    };
    match soak(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("soak: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all that is promised was held.
fn soak(options: &Options) -> Result<bool, String> {
    let papers = Papers::new();
    papers.issue("soak", &["soak.example"]);
    let endpoints = Endpoints::start().map_err(|error| format!("endpoints: {error}"))?;
    let mut proxy = Proxy::start(&endpoints, &papers)?;
    let tallies = Arc::new(Tallies::default());
    let over = Arc::new(AtomicBool::new(false));
    println!(
        "{} s; {} idle and {} active clients; a table every {:?}, a hand-over every {:?}",
        options.seconds, options.idle, options.active, SWAP_EVERY, HAND_OVER_EVERY
    );
    let crowd = Crowd::come(&proxy.places(), &papers, options, &tallies, &over);
    let mut samples = Samples::default();
    let begun = Instant::now();
    let (mut swaps, mut handed_over) = (0, Instant::now());
    let mut sampled = Instant::now();
    while begun.elapsed() < Duration::from_secs(options.seconds) {
        thread::sleep(SWAP_EVERY);
        swaps += 1;
        proxy.swap(swaps)?;
        if sampled.elapsed() >= SAMPLE_EVERY {
            sampled = Instant::now();
            samples.take(begun.elapsed(), proxy.look()?);
        }
        // The last one has time to end before the clients go.
        let is_time = handed_over.elapsed() >= HAND_OVER_EVERY;
        if is_time && begun.elapsed() + HAND_OVER_EVERY / 4 < Duration::from_secs(options.seconds) {
            handed_over = Instant::now();
            proxy.hand_over()?;
        }
    }
    over.store(true, Ordering::SeqCst);
    crowd.go();
    let left = proxy.left(Duration::from_secs(30))?;
    let complaints = proxy.end()?;
    Ok(report::print(&tallies, &samples, swaps, &left, &complaints))
}

/// What the command line asks for.
pub(crate) struct Options {
    pub(crate) seconds: u64,
    pub(crate) idle: usize,
    pub(crate) active: usize,
}

impl Options {
    fn of(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seconds: 120,
            idle: 8_000,
            active: 500,
        };
        // cargo adds --bench.
        let mut words = words.filter(|word| word != "--bench");
        while let Some(name) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{name} needs a number"))?;
            let number: usize = value
                .parse()
                .map_err(|_| format!("{name}: {value:?} is no number"))?;
            match &*name {
                "--seconds" => options.seconds = number as u64,
                "--idle" => options.idle = number,
                "--active" => options.active = number,
                _ => return Err(format!("{name} is no option")),
            }
        }
        let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let descriptors = usize::try_from(limits.maximum.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        // Ballast gives UDP half of its descriptors, and a connection two.
        let most = (descriptors / 9 * 2).saturating_sub(2 * options.active);
        options.idle = options.idle.min(most);
        Ok(options)
    }
}

const SWAP_EVERY: Duration = Duration::from_millis(100);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
const HAND_OVER_EVERY: Duration = Duration::from_secs(60);
