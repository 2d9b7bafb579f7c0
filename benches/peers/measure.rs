//! What is measured, and the order: in each round each measure, for each measure each party in turn, every time with a fresh
//! process. One line of figures comes out of each run; the report makes tables of them.

use std::collections::BTreeMap;
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::catalog::{Figure, MOST_FOREIGN, Measure, Party, Row};
use crate::flood::Flood;
use crate::groups::Group;
use crate::hist::nanos;
use crate::large::Job;
use crate::load::{Kind, Load};
use crate::loads;
use crate::netns::{Net, Place, Started};
use crate::options::Options;
use crate::protocol::Protocol;
use crate::proxies::{self, Proxy, Running, Task};
use crate::tables::{self, Swapper};
use crate::tls::Certificate;
use crate::usage;

/// All that a run of the bench saw.
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<String>,
}

/// The bench at work.
pub(crate) struct Bench<'a> {
    options: &'a Options,
    origin: Started,
    net: &'a Net,
    present: Vec<Proxy>,
    idle_pairs: usize,
    floor_rates: BTreeMap<&'static str, f64>,
    failures: BTreeMap<Proxy, u32>,
    results: Results,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(options: &'a Options, net: &'a Net, present: Vec<Proxy>) -> io::Result<Self> {
        let mut origin = net.role(Place::Origin, "origin");
        origin.arg(net.origin_bind().to_string());
        Certificate::make(&net.folder)?;
        let pairs = usize::try_from(net.descriptors / 4).unwrap_or(usize::MAX);
        Ok(Self {
            options,
            origin: net.start(&mut origin)?,
            net,
            present,
            idle_pairs: pairs.min(IDLE_PAIRS),
            floor_rates: BTreeMap::new(),
            failures: BTreeMap::new(),
            results: Results {
                rows: Vec::new(),
                notes: Vec::new(),
            },
        })
    }

    /// All rounds.
    pub(crate) fn run(mut self) -> io::Result<Results> {
        self.calibrate()?;
        for round in 1..=self.options.rounds {
            for measure in Measure::all() {
                if self.options.groups.contains(&measure.group()) && round <= measure.most_rounds()
                {
                    self.run_measure(round, measure);
                }
            }
        }
        Ok(self.results)
    }

    /// Open loop needs the floor's rates first; they hold for all rounds.
    fn calibrate(&mut self) -> io::Result<()> {
        if !self
            .options
            .groups
            .iter()
            .any(|group| matches!(group, Group::OpenLoop | Group::Swap))
        {
            return Ok(());
        }
        for measure in [Measure::Requests, Measure::Connections] {
            let figures = self.run_undisturbed(measure, Party::Plain(Proxy::Floor))?;
            let rate = figures.get(&Figure::Rate).copied().unwrap_or_default();
            eprintln!(
                "calibration: the floor does {rate:.0} {} per second",
                measure.unit()
            );
            self.floor_rates.insert(measure.unit(), rate);
        }
        Ok(())
    }

    fn run_measure(&mut self, round: u32, measure: Measure) {
        eprint!("round {round}/{}: {measure}:", self.options.rounds);
        for party in measure.parties() {
            let proxy = party.proxy();
            let failures = self.failures.get(&proxy).copied().unwrap_or_default();
            if !self.present.contains(&proxy) || failures >= MOST_FAILURES {
                continue;
            }
            match self.run_undisturbed(measure, party) {
                Ok(figures) => {
                    let headline = figures
                        .get(&measure.headline())
                        .copied()
                        .unwrap_or_default();
                    eprint!("  {party} {headline:.0}");
                    self.results.rows.push(Row {
                        round,
                        measure,
                        party,
                        figures,
                    });
                }
                Err(error) => {
                    eprint!("  {party} failed");
                    self.failures.insert(proxy, failures + 1);
                    self.results
                        .notes
                        .push(format!("round {round}, {measure}, {party}: {error}"));
                }
            }
        }
        eprintln!();
        self.subtract_direct(round, measure);
    }

    /// If that was asked for: waits until nobody else uses the cores, and runs again if somebody did meanwhile.
    fn run_undisturbed(
        &mut self,
        measure: Measure,
        party: Party,
    ) -> io::Result<BTreeMap<Figure, f64>> {
        if !self.options.patient {
            return self.run_party(measure, party);
        }
        for _ in 1..MOST_TRIES {
            self.await_quiet();
            let figures = self.run_party(measure, party)?;
            if figures
                .get(&Figure::Foreign)
                .is_none_or(|foreign| *foreign <= MOST_FOREIGN)
            {
                return Ok(figures);
            }
        }
        self.run_party(measure, party)
    }

    fn await_quiet(&self) {
        let (ours, cores) = (self.ours(None), self.net.cores.distinct().len() as f64);
        for _ in 0..MOST_WAITING {
            let (begun, before) = (Instant::now(), usage::foreign_ns(&ours));
            std::thread::sleep(Duration::from_secs(1));
            let foreign_ns = usage::foreign_ns(&ours).saturating_sub(before) as f64;
            if foreign_ns <= nanos(begun.elapsed()) as f64 * cores * MOST_FOREIGN {
                return;
            }
        }
    }

    fn run_party(&mut self, measure: Measure, party: Party) -> io::Result<BTreeMap<Figure, f64>> {
        let (protocol, logs) = (measure.protocol(), party.logs());
        let table = match measure {
            Measure::Frontends => tables::many_frontends(self.net.origin(), FRONTENDS),
            Measure::Large => tables::large(self.net.front(), self.net.origin(), 1),
            Measure::Swap | Measure::PacedSwap(_) => {
                tables::swapped(self.net.front(), self.net.origin(), 1)
            }
            _ if measure.is_of_datagrams() => {
                tables::datagrams(self.net.front(), self.net.origin())
            }
            _ if protocol != Protocol::Tcp => {
                let (front, origin) = (self.net.front(), self.net.origin());
                tables::http(front, origin, protocol, logs, &self.net.folder)
            }
            _ => tables::plain(self.net.front(), self.net.origin()),
        };
        let proxy = party.proxy();
        let task = Task {
            protocol,
            logs,
            table: &table,
        };
        let mut running = proxy.start(self.net, &task)?;
        let outcome = match measure {
            Measure::Frontends => self.weigh_frontends(running.as_ref()),
            Measure::Large => self.swap_large_tables(running.as_ref()),
            _ => self.apply_load(measure, party, running.as_ref()),
        };
        let mut figures = outcome.map_err(|error| with_last_words(&error, running.as_mut()))?;
        if let Some(running) = running.as_mut()
            && !running.is_running()
        {
            let last_words = running.last_words();
            return Err(io::Error::other(format!(
                "it ended early; its last words: {last_words}"
            )));
        }
        if matches!(proxy, Proxy::HaproxyAuto | Proxy::HaproxySplice) {
            // Asked before it is ended: what haproxy counted is of warm-up and window alike.
            figures.insert(
                Figure::Spliced,
                proxies::haproxy_spliced_share(&self.net.folder)?,
            );
        }
        Ok(figures)
    }

    fn apply_load(
        &mut self,
        measure: Measure,
        party: Party,
        running: Option<&Running>,
    ) -> io::Result<BTreeMap<Figure, f64>> {
        let load = self.load(measure, party, running);
        let mut client = self.net.role(Place::Client, "client");
        client.args(load.to_words());
        let swapper = matches!(party, Party::Swapping(_))
            .then(|| Swapper::start(&self.net.folder, self.net.front(), self.net.origin()));
        let flooder = match measure {
            Measure::Flooded(flood) => self.start_flood(flood)?,
            _ => None,
        };
        let asked = self.ask_client(&mut client, running, flooder.as_ref());
        drop(flooder);
        if let Some(swapper) = swapper {
            let swaps = swapper.stop(&self.net.folder)?;
            self.results.notes.push(format!(
                "{measure}: {swaps} tables swapped in, the last one acknowledged"
            ));
        }
        let (outcome, foreign) = asked?;
        let mut figures = measure.figures(&outcome);
        figures.insert(Figure::Foreign, foreign);
        if running.is_none() {
            figures.retain(|figure, _| !matches!(figure, Figure::Cost | Figure::Busy));
        }
        Ok(figures)
    }

    /// It begins as soon as the proxy listens.
    fn start_flood(&self, flood: Flood) -> io::Result<Option<Started>> {
        let to = match flood {
            Flood::Nothing => return Ok(None),
            Flood::Frames => tables::second_front(self.net.front()),
            Flood::Chunks => self.net.front(),
        };
        let mut flooder = self.net.background_role(Place::Client, "flood");
        flooder.args([flood.word().to_owned(), to.to_string()]);
        self.net.start(&mut flooder).map(Some)
    }

    fn swap_large_tables(&self, running: Option<&Running>) -> io::Result<BTreeMap<Figure, f64>> {
        let mut client = self.net.role(Place::Client, "large");
        let job = Job {
            front: self.net.front(),
            origin: self.net.origin(),
            direct: self.net.direct(),
            proxy: running.map(Running::id).unwrap_or_default(),
            swaps: self.options.swaps,
        };
        client.arg(&self.net.folder).args(job.to_words());
        let (outcome, foreign) = self.ask_client(&mut client, running, None)?;
        let mut figures = Measure::Large.figures(&outcome);
        figures.insert(Figure::Foreign, foreign);
        Ok(figures)
    }

    /// Runs the client; returns its answer, and the share of the cores that strangers used meanwhile.
    fn ask_client(
        &self,
        client: &mut Command,
        running: Option<&Running>,
        flooder: Option<&Started>,
    ) -> io::Result<(Value, f64)> {
        // Asked twice, because nginx may have started its worker only meanwhile.
        let foreign_ns = || {
            let mut ours = self.ours(running);
            ours.extend(flooder.map(Started::id));
            usage::foreign_ns(&ours)
        };
        let (begun, before) = (Instant::now(), foreign_ns());
        let output = client.stdin(Stdio::null()).output()?;
        let foreign_ns = foreign_ns().saturating_sub(before) as f64;
        let all_ns = nanos(begun.elapsed()) as f64 * self.net.cores.distinct().len() as f64;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!(
                "the client failed: {}",
                why.trim()
            )));
        }
        Ok((serde_json::from_slice(&output.stdout)?, foreign_ns / all_ns))
    }

    fn load(&self, measure: Measure, party: Party, running: Option<&Running>) -> Load {
        let net = self.net;
        let share = |percent: u32, unit: &str| {
            let rate = self.floor_rates.get(unit).copied().unwrap_or_default();
            Some(rate * f64::from(percent) / 100.0)
        };
        let load = Load {
            kind: Kind::Requests,
            protocol: measure.protocol(),
            to: if party.proxy() == Proxy::Direct {
                net.direct()
            } else {
                net.front()
            },
            size: 64,
            connections: 64,
            streams: 1,
            rate: None,
            warmup: self.options.warmup,
            window: self.options.window,
            proxy: running.map(Running::id),
            origin: self.origin.id(),
            cores: net.cores.distinct(),
        };
        loads::of(measure, load, self.idle_pairs, share)
    }

    /// All processes that have to do with the bench, but for the client, which ends before it is asked.
    fn ours(&self, running: Option<&Running>) -> Vec<u32> {
        let mut ours = running
            .map(|running| usage::family(running.id()))
            .unwrap_or_default();
        ours.extend([std::process::id(), self.origin.id()]);
        ours
    }

    fn weigh_frontends(&self, running: Option<&Running>) -> io::Result<BTreeMap<Figure, f64>> {
        let ack = tables::wait_for_ack(&self.net.folder, Duration::from_secs(30), |ack| {
            ack["served"].is_object()
        })?;
        let exceptions = ack["exceptions"]
            .as_array()
            .map(Vec::len)
            .unwrap_or_default();
        if exceptions > 0 {
            return Err(io::Error::other(format!(
                "{exceptions} of {FRONTENDS} frontends do not listen: {ack}"
            )));
        }
        std::thread::sleep(Duration::from_secs(2));
        let family = running
            .map(|running| usage::family(running.id()))
            .unwrap_or_default();
        Ok(BTreeMap::from([(
            Figure::Memory,
            usage::resident_bytes(&family) as f64,
        )]))
    }

    /// Fills in what the machine used for a unit beyond the direct run of the same round.
    fn subtract_direct(&mut self, round: u32, measure: Measure) {
        let direct = self.results.rows.iter().find_map(|row| {
            let is_it = row.round == round
                && row.measure == measure
                && row.party == Party::Plain(Proxy::Direct);
            is_it
                .then(|| row.figures.get(&Figure::Machine).copied())
                .flatten()
        });
        let Some(direct) = direct else {
            return;
        };
        for row in self
            .results
            .rows
            .iter_mut()
            .filter(|row| row.round == round && row.measure == measure)
        {
            if let Some(machine) = row.figures.get(&Figure::Machine).copied()
                && row.party != Party::Plain(Proxy::Direct)
            {
                row.figures.insert(Figure::Added, machine - direct);
            }
        }
    }
}

fn with_last_words(error: &io::Error, running: Option<&mut Running>) -> io::Error {
    let Some(running) = running else {
        return io::Error::other(error.to_string());
    };
    let state = if running.is_running() {
        "running"
    } else {
        "ended"
    };
    io::Error::other(format!(
        "{error} (the proxy is {state}; its last words: {})",
        running.last_words()
    ))
}

const IDLE_PAIRS: usize = 5_000;
const FRONTENDS: u32 = 10_000;
/// So often a proxy may fail before it is left out.
const MOST_FAILURES: u32 = 3;
/// So often a run is done that others disturb, and so many seconds it waits for them to end.
const MOST_TRIES: u32 = 5;
const MOST_WAITING: u32 = 300;
