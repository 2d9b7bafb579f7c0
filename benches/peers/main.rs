//! Ballast beside a bare epoll loop, haproxy and nginx: the same machine, the same load, in turn.
//!
//! ```text
//! cargo bench --bench peers
//! cargo bench --bench peers -- --quick
//! cargo bench --bench peers -- --only direct,floor,haproxy,ballast --measure requests,connections --rounds 9
//! ```
//!
//! It builds `target/release/ballast` first, as it is released; `BALLAST_BIN` names another one to measure.
//!
//! Each party gets one worker on one core; the load client and the origin server have the others (on two cores: share the
//! second). As root, all of it happens in three network namespaces of the bench's own, joined by veth; otherwise on loopback, where
//! figures say less, and the first lines say so. haproxy and nginx are the distribution's, from PATH; one that is absent is
//! named and left out. Nothing else should run on the machine meanwhile; the bench says so if something does.
//!
//! # Parties
//! - `direct`: client and origin without a proxy between.
//! - `floor`: a bare epoll loop that accepts, connects and relays ([`floor`]), without any feature. The yardstick.
//! - `haproxy`, and for bulk `haproxy-auto` (`option splice-auto`: it splices if it thinks that the bytes come fast) and
//!   `haproxy-splice` (told to splice); column `spliced` is the share of bytes that did go that way. `nginx` (stream).
//! - `ballast`, and `ballast+swaps`: the same while its table is replaced by rename every 100 ms.
//! - `haproxy+lines`, `nginx+lines`, `ballast+lines`: with a line for each request, in the form of haproxy's `option httplog`, or
//!   nginx's `combined`, each written as that proxy does it to a file. Ballast's is written by a thread that counts as CPU of the proxy.
//!
//! HTTP goes through one route that strips `/svc` of the path; connections to the origin are kept by all, and serve every client
//! (`http-reuse always`, nginx's `keepalive`). haproxy and nginx write `X-Forwarded-For`; Ballast writes that and `-Proto`, `-Port`,
//! `-Host` and `-Prefix`, as it does where nobody asks for anything else. TLS ends at the proxy: the client offers one cipher, X25519
//! and no tickets, unless they are measured.
//!
//! HTTP/2 goes over connections with several requests at once. The client encodes as browsers and gRPC libraries do: a field is said
//! in full once, and by its number in the table from then on. It has a browser's windows: 6 MiB for a stream, 15 MiB for a connection.
//! The origin answers a call of gRPC at once, and takes 100 at once on a connection; other requests reach it by HTTP/1. While one
//! client floods ([`flood`]), the others ask at a fixed rate, so that their latency does not mirror their number.
//!
//! # Columns
//! - `per s`, `MB/s`: units of work in the window. Where the client's core is the limit this says little about the proxy;
//!   `busy`, the share of its core that the proxy used, tells.
//! - `proxy µs`, `proxy ms/GB`: CPU time of the proxy's processes per unit, with the least and the most of all rounds. The
//!   scheduler counts it, soft interrupts that ran meanwhile included.
//! - `machine`: CPU time per unit of all that take part: proxy, client, origin and the kernel's threads for soft interrupts;
//!   `added`: the same less the direct run's of that round. On veth a packet is received in its sender's time, so one proxy's work
//!   may hide in its neighbours' accounts: this column sees it. Strangers' processes are not in it.
//! - `/floor`, `/best`: the ratio to the floor, and to haproxy or nginx, whichever is cheaper.
//!   For datagrams the cost is of one, there and back; of bulk, of one that arrived.
//! - `p50`, `p99`, `p99.9`: latency. Closed loop it mostly mirrors the rate; open loop it counts from the moment at which the
//!   unit was due.
//!
//! Every figure is taken once a round, each time from a fresh process; the tables show medians over the rounds, and ratios are
//! medians of each round's own ratio. The last table holds the targets.

mod bulk;
mod catalog;
mod client;
mod connects;
mod exchange;
mod flood;
mod floor;
mod groups;
mod hist;
mod http;
mod http2;
mod large;
mod load;
mod loads;
mod measure;
mod multiplexed;
mod netns;
mod options;
mod origin;
mod origin_http2;
mod pace;
mod poll;
#[path = "../common/program.rs"]
mod program;
mod protocol;
mod proxies;
mod report;
mod requests;
mod tables;
mod targets;
mod titles;
mod tls;
mod udp;
mod udp_floor;
mod udp_origin;
mod usage;

use std::fs;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use flood::Flood;
use large::Job;
use load::Load;
use measure::Bench;
use netns::{Cores, Net};
use options::{HELP, Options, Request};
use proxies::Proxy;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("role", role)) = words
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return ended(play(role));
    }
    match options::parse(&words) {
        Ok(Request::Run(options)) => ended(run(&options)),
        Ok(Request::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Request::Nothing) => {
            println!(
                "peers: nothing asked for; `cargo bench --bench peers` runs it, `-- --help` tells more"
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("peers: {why}");
            ExitCode::from(64)
        }
    }
}

/// One of the processes that the bench starts of itself.
fn play(words: &[String]) -> io::Result<()> {
    let Some((role, words)) = words.split_first() else {
        return Err(io::Error::other("no role"));
    };
    match (role.as_str(), words) {
        ("pinned", words) => Err(netns::become_pinned(words)),
        ("tune", _) => {
            netns::tune();
            Ok(())
        }
        ("janitor", words) => netns::clean_up_at_end(words),
        ("origin", [at]) => origin::run(at.parse().map_err(io::Error::other)?),
        ("floor", [at, to]) => floor::run(
            at.parse().map_err(io::Error::other)?,
            to.parse().map_err(io::Error::other)?,
        ),
        ("large", [folder, words @ ..]) => large::run(folder.as_ref(), &Job::from_words(words)?),
        ("flood", [flood, to]) => flood::run(
            Flood::from_word(flood)?,
            to.parse().map_err(io::Error::other)?,
        ),
        ("client", words) => client::run(&Load::from_words(words)?),
        _ => Err(io::Error::other(format!("no such role: {role}"))),
    }
}

fn run(options: &Options) -> io::Result<()> {
    let begun = Instant::now();
    let cores = options.cores.unwrap_or_else(Cores::available);
    let (present, mut head) = look_for(&options.proxies);
    head.extend(about(cores));
    let others = busy_share(cores);
    netns::pin(cores.client)?;
    let (net, refusal) = Net::make(cores, options.nice, options.loopback)?;
    let place = match &refusal {
        None => "three network namespaces joined by veth".to_owned(),
        Some(why) => format!("LOOPBACK, the figures say less: {why}"),
    };
    head.push(("place".to_owned(), place));
    let load = format!(
        "{:.0} % of the cores were busy before the bench began",
        others * 100.0
    );
    let warning = if others > MOST_OTHERS {
        " (NOT A QUIET MACHINE: the figures are rough)"
    } else {
        ""
    };
    head.push(("quiet".to_owned(), load + warning));
    for (key, value) in &head {
        println!("{key}: {value}");
    }
    println!();

    let results = Bench::new(options, &net, present)?.run()?;
    print!("\n{}", report::text(&results.rows, &results.notes));
    println!(
        "\n{} rounds in {:.0} s",
        options.rounds,
        begun.elapsed().as_secs_f64()
    );
    if let Some(path) = &options.json {
        fs::write(
            path,
            format!("{:#}\n", report::json(&head, &results.rows, &results.notes)),
        )?;
        println!("written to {}", path.display());
    }
    Ok(())
}

/// The parties that are there, and a line about each, whether there or not.
fn look_for(wanted: &[Proxy]) -> (Vec<Proxy>, Vec<(String, String)>) {
    let mut present = Vec::new();
    let mut lines = Vec::new();
    for proxy in wanted.iter().copied() {
        let line = match proxy.version() {
            Ok(version) => {
                present.push(proxy);
                version
            }
            Err(why) => format!("ABSENT, left out: {why}"),
        };
        lines.push((proxy.name().to_owned(), line));
    }
    (present, lines)
}

fn about(cores: Cores) -> Vec<(String, String)> {
    let read = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let Cores {
        proxy,
        client,
        origin,
    } = cores;
    vec![
        ("kernel".to_owned(), read("/proc/sys/kernel/osrelease")),
        (
            "processor".to_owned(),
            model.map(|(_, model)| model.to_owned()).unwrap_or_default(),
        ),
        (
            "cores".to_owned(),
            format!("proxy {proxy}, client {client}, origin {origin}"),
        ),
    ]
}

/// How busy the cores are with other things.
fn busy_share(cores: Cores) -> f64 {
    let cores = cores.distinct();
    let (begun, idle) = (Instant::now(), usage::idle_ns(&cores));
    std::thread::sleep(Duration::from_millis(500));
    let idle = usage::idle_ns(&cores).saturating_sub(idle) as f64;
    let all = hist::nanos(begun.elapsed()) as f64 * cores.len() as f64;
    (1.0 - idle / all).max(0.0)
}

fn ended(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

const MOST_OTHERS: f64 = 0.05;
