//! The words on the bench's command line. Parsed once, by main.

use std::path::PathBuf;
use std::time::Duration;

use crate::groups::Group;
use crate::netns::Cores;
use crate::proxies::Proxy;

/// What to measure, how often and how long.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: u32,
    pub(crate) window: Duration,
    pub(crate) warmup: Duration,
    /// Of the large table, in a round.
    pub(crate) swaps: u32,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) groups: Vec<Group>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) cores: Option<Cores>,
    pub(crate) loopback: bool,
    pub(crate) patient: bool,
    pub(crate) nice: i32,
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    Run(Options),
    Help,
    /// Nothing was asked for, as when a test runner starts all bench targets.
    Nothing,
}

/// Reads the words behind the program's name; the error is one sentence for the user.
pub(crate) fn parse(words: &[String]) -> Result<Request, String> {
    if words.is_empty()
        || words
            .iter()
            .any(|word| word == "--test" || word == "--list")
    {
        return Ok(Request::Nothing);
    }
    let mut options = Options::default();
    let mut seconds = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, attached) = word
            .split_once('=')
            .map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        let mut value = || {
            let value = attached.or_else(|| words.next().map(String::as_str));
            value.ok_or_else(|| format!("{name} wants a value; see --help"))
        };
        match name {
            "--help" | "-h" => return Ok(Request::Help),
            "--bench" => {}
            "--quick" => options.hurry(),
            "--loopback" => options.loopback = true,
            "--patient" => options.patient = true,
            "--rounds" => options.rounds = number(name, value()?)?,
            "--seconds" => seconds = Some(number::<f64>(name, value()?)?),
            "--only" => options.proxies = list(value()?, Proxy::ALL, Proxy::name)?,
            "--measure" => options.groups = list(value()?, Group::ALL, Group::name)?,
            "--json" => options.json = Some(PathBuf::from(value()?)),
            "--nice" => options.nice = number(name, value()?)?,
            "--cores" => options.cores = Some(Cores::parse(value()?)?),
            _ => return Err(format!("{word} is no option of this bench; see --help")),
        }
    }
    if let Some(seconds) = seconds {
        options.window = Duration::try_from_secs_f64(seconds)
            .map_err(|error| format!("--seconds {seconds}: {error}"))?;
    }
    if options.rounds == 0 || options.window.is_zero() {
        return Err("--rounds and --seconds must be above 0".to_owned());
    }
    Ok(Request::Run(options))
}

/// The text of `--help`.
pub(crate) const HELP: &str = "\
Ballast beside a bare epoll loop, haproxy and nginx: same machine, same load, in turn.

usage: cargo bench --bench peers -- [OPTIONS]

  --rounds N        how often each figure is taken; the table shows medians   [5]
  --seconds S       the window of each figure                                 [1.4]
  --quick           one round of short windows: does it work, not how fast is it
  --only LIST       of direct, floor, haproxy, haproxy-auto, haproxy-splice, nginx, ballast,
                    beside (only where BALLAST_BESIDE is set)              [all]
  --measure LIST    of requests, connections, bulk, messages, idle, openloop, swap,
                    frontends, large, udp, udpbulk, udpflows, udpidle, http-requests,
                    http-connections, http-idle, tls-handshakes, tls-bulk, h2-requests, h2-grpc,
                    h2-tls-bulk, h2-idle, h2-flood   [all]
  --json FILE       writes every round's figures, the medians and the targets
  --cores P,C,O     cores of the proxy, the client and the origin             [the first ones; O may equal C]
  --loopback        no namespaces: 127.0.0.0/8 (also what happens without root)
  --nice N          the priority of all that take part, as root -20 to 19: below 0 strangers disturb less   [0]
  --patient         waits for a quiet machine, and repeats a run that other processes disturbed
  --help            this text

Environment: BALLAST_BIN, the ballast to measure [target/release/ballast]; BALLAST_BESIDE, another one to be
measured in turn with it, say that of before a change.
A full run takes less than 20 minutes. Nothing else should run meanwhile.
";

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 5,
            window: Duration::from_millis(1_400),
            warmup: Duration::from_millis(250),
            swaps: 8,
            proxies: Proxy::usual(),
            groups: Group::ALL.to_vec(),
            json: None,
            cores: None,
            loopback: false,
            patient: false,
            nice: 0,
        }
    }
}

impl Options {
    fn hurry(&mut self) {
        self.rounds = 1;
        self.window = Duration::from_millis(700);
        self.warmup = Duration::from_millis(200);
        self.swaps = 3;
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} {value}: not a number"))
}

fn list<T: Copy, const N: usize>(
    value: &str,
    known: [T; N],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>, String> {
    let chosen = value.split(',').map(|word| {
        known
            .into_iter()
            .find(|entry| name(*entry) == word)
            .ok_or_else(|| {
                let names: Vec<&str> = known.into_iter().map(name).collect();
                format!("{word}: not one of {}", names.join(", "))
            })
    });
    chosen.collect()
}
