//! The report: a table of medians for each measure, the targets with pass or miss, and the same as JSON. Ratios are medians of
//! the ratios within each round, so that a machine that drifts from round to round does not blur them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::catalog::{Figure, MOST_FOREIGN, Measure, Party, Row, median};
use crate::proxies::Proxy;
use crate::targets::{self, Target};
use crate::titles::title;

/// The rows of a run, asked for medians and ratios.
#[derive(Clone, Copy)]
pub(crate) struct Medians<'a>(pub(crate) &'a [Row]);

impl Medians<'_> {
    /// The median over the rounds.
    pub(crate) fn of(self, measure: Measure, party: Party, figure: Figure) -> Option<f64> {
        median(
            self.values(measure, party, figure)
                .into_iter()
                .map(|(_, value)| value)
                .collect(),
        )
    }

    /// The median of the ratios to `base` in the same rounds.
    pub(crate) fn ratio(
        self,
        measure: Measure,
        party: Party,
        figure: Figure,
        base: Party,
    ) -> Option<f64> {
        let bases = self.values(measure, base, figure);
        median_ratio(&self.values(measure, party, figure), &bases)
    }

    /// The same of one party's figures in two measures.
    pub(crate) fn between(
        self,
        measure: Measure,
        base: Measure,
        party: Party,
        figure: Figure,
    ) -> Option<f64> {
        let bases = self.values(base, party, figure);
        median_ratio(&self.values(measure, party, figure), &bases)
    }

    /// haproxy or nginx, whichever has the lower median.
    pub(crate) fn better_peer(self, measure: Measure, figure: Figure) -> Option<Party> {
        let peers = [Party::Plain(Proxy::Haproxy), Party::Plain(Proxy::Nginx)];
        let measured = peers
            .into_iter()
            .filter_map(|peer| Some((peer, self.of(measure, peer, figure)?)));
        measured
            .min_by(|left, right| left.1.total_cmp(&right.1))
            .map(|(peer, _)| peer)
    }

    /// The most of all rounds.
    pub(crate) fn most(self, measure: Measure, party: Party, figure: Figure) -> Option<f64> {
        self.spread(measure, party, figure).map(|(_, most)| most)
    }

    fn spread(self, measure: Measure, party: Party, figure: Figure) -> Option<(f64, f64)> {
        let values = self.values(measure, party, figure);
        let least = values
            .iter()
            .map(|(_, value)| *value)
            .min_by(f64::total_cmp)?;
        let most = values
            .iter()
            .map(|(_, value)| *value)
            .max_by(f64::total_cmp)?;
        Some((least, most))
    }

    fn values(self, measure: Measure, party: Party, figure: Figure) -> Vec<(u32, f64)> {
        let rows = self
            .0
            .iter()
            .filter(|row| row.measure == measure && row.party == party);
        rows.filter_map(|row| Some((row.round, *row.figures.get(&figure)?)))
            .collect()
    }

    fn parties(self, measure: Measure) -> Vec<Party> {
        let mut parties = Vec::new();
        for row in self.0.iter().filter(|row| row.measure == measure) {
            if !parties.contains(&row.party) {
                parties.push(row.party);
            }
        }
        parties
    }
}

/// The median of the ratios in the rounds that both have.
fn median_ratio(values: &[(u32, f64)], bases: &[(u32, f64)]) -> Option<f64> {
    let ratios = values.iter().filter_map(|(round, value)| {
        let (_, base) = bases.iter().find(|(base_round, _)| base_round == round)?;
        (*base > 0.0).then(|| value / base)
    });
    median(ratios.collect())
}

/// The whole report, to be printed.
pub(crate) fn text(rows: &[Row], notes: &[String]) -> String {
    let medians = Medians(rows);
    let mut text = String::new();
    for measure in Measure::all() {
        let parties = medians.parties(measure);
        if parties.is_empty() {
            continue;
        }
        text.push_str(&title(measure));
        text.push('\n');
        text.push_str(&match measure {
            _ if measure.is_idle() || measure == Measure::Frontends => {
                memory_table(medians, measure, &parties)
            }
            Measure::Large => swap_table(medians, &parties),
            _ => load_table(medians, measure, &parties),
        });
        text.push('\n');
    }
    text.push_str(&targets_table(&targets::judge(medians)));
    text.push_str(&notes_text(medians, notes));
    text
}

/// The same for programs.
pub(crate) fn json(head: &[(String, String)], rows: &[Row], notes: &[String]) -> Value {
    let medians = Medians(rows);
    let mut tables = Vec::new();
    for measure in Measure::all() {
        for party in medians.parties(measure) {
            let named = FIGURES.into_iter().filter_map(|(figure, name)| {
                let median = medians.of(measure, party, figure)?;
                let (least, most) = medians.spread(measure, party, figure)?;
                let floor = medians.ratio(measure, party, figure, Party::Plain(Proxy::Floor));
                Some((
                    name.to_owned(),
                    json!({"median": median, "min": least, "max": most, "to_floor": floor}),
                ))
            });
            let figures: serde_json::Map<String, Value> = named.collect();
            tables.push(json!({"measure": measure.to_string(), "party": party.to_string(), "figures": figures}));
        }
    }
    let head: serde_json::Map<String, Value> = head
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let rows: Vec<Value> = rows.iter().map(row_json).collect();
    let targets: Vec<Value> = targets::judge(medians)
        .iter()
        .map(Target::to_json)
        .collect();
    json!({"about": head, "medians": tables, "targets": targets, "rows": rows, "notes": notes})
}

fn row_json(row: &Row) -> Value {
    let named = FIGURES
        .into_iter()
        .filter_map(|(figure, name)| Some((name.to_owned(), json!(row.figures.get(&figure)?))));
    let figures: serde_json::Map<String, Value> = named.collect();
    json!({
        "round": row.round,
        "measure": row.measure.to_string(),
        "party": row.party.to_string(),
        "figures": figures,
    })
}

fn notes_text(medians: Medians<'_>, notes: &[String]) -> String {
    let mut notes = notes.to_vec();
    for measure in [Measure::Upload, Measure::Download] {
        for proxy in [Proxy::HaproxyAuto, Proxy::HaproxySplice] {
            let share = medians.of(measure, Party::Plain(proxy), Figure::Spliced);
            if let Some(share) = share.filter(|share| *share < 0.9) {
                let (name, percent) = (proxy.name(), share * 100.0);
                notes.push(format!("{measure}: {name} did NOT splice as asked, but {percent:.0} % of its bytes only"));
            }
        }
    }
    notes.extend(disturbed(medians.0));
    notes.sort_unstable();
    notes.dedup();
    let lines: String = notes.iter().map(|note| format!("- {note}\n")).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\nNotes\n{lines}")
    }
}

/// Says so where the machine was not the bench's alone.
fn disturbed(rows: &[Row]) -> Option<String> {
    let shares: Vec<f64> = rows
        .iter()
        .filter_map(|row| row.figures.get(&Figure::Foreign).copied())
        .collect();
    let most = shares.iter().copied().max_by(f64::total_cmp)?;
    let disturbed = shares.iter().filter(|share| **share > MOST_FOREIGN).count();
    (disturbed > 0).then(|| {
        let (all, percent) = (shares.len(), most * 100.0);
        format!("NOT A QUIET MACHINE: {disturbed} of {all} runs beside other processes, which used up to {percent:.0} % of the cores")
    })
}

fn load_table(medians: Medians<'_>, measure: Measure, parties: &[Party]) -> String {
    let (rate, cost) = if measure.is_bulk() {
        ("MB/s", "ms/GB")
    } else {
        ("per s", "µs")
    };
    let proxy = format!("proxy {cost}");
    let head = [
        "",
        rate,
        &proxy,
        "(min..max)",
        "/floor",
        "/best",
        "machine",
        "added",
        "/floor",
        "busy",
    ];
    let head = head
        .into_iter()
        .chain(last_columns(measure).iter().map(|(_, name, _)| *name));
    let mut lines = vec![head.map(str::to_owned).collect()];
    lines.extend(
        parties
            .iter()
            .map(|party| load_line(medians, measure, *party)),
    );
    aligned(&lines)
}

fn load_line(medians: Medians<'_>, measure: Measure, party: Party) -> Vec<String> {
    let of = |figure| medians.of(measure, party, figure);
    let cost = |value: Option<f64>| cell(value, if measure.is_bulk() { 0 } else { 2 });
    let ratio = |figure, base| cell(medians.ratio(measure, party, figure, base), 3);
    let spread = medians.spread(measure, party, Figure::Cost);
    let best = medians.better_peer(measure, Figure::Cost);
    let floor = Party::Plain(Proxy::Floor);
    let mut line = vec![
        party.to_string(),
        cell(of(Figure::Rate), 0),
        cost(of(Figure::Cost)),
        spread
            .map(|(least, most)| format!("({}..{})", cost(Some(least)), cost(Some(most))))
            .unwrap_or_default(),
        ratio(Figure::Cost, floor),
        best.map(|best| ratio(Figure::Cost, best))
            .unwrap_or_default(),
        cost(of(Figure::Machine)),
        cost(of(Figure::Added)),
        ratio(Figure::Added, floor),
        cell(of(Figure::Busy), 2),
    ];
    line.extend(
        last_columns(measure)
            .iter()
            .map(|(figure, _, decimals)| cell(of(*figure), *decimals)),
    );
    line
}

/// The columns behind the costs, and their decimals; bulk has no latency.
fn last_columns(measure: Measure) -> &'static [(Figure, &'static str, usize)] {
    if measure.is_bulk() {
        return &[
            (Figure::Spliced, "spliced", 2),
            (Figure::Errors, "errors", 0),
        ];
    }
    &[
        (Figure::P50, "p50 µs", 0),
        (Figure::P99, "p99 µs", 0),
        (Figure::P999, "p99.9 µs", 0),
        (Figure::Errors, "errors", 0),
    ]
}

fn memory_table(medians: Medians<'_>, measure: Measure, parties: &[Party]) -> String {
    let (unit, scale) = if measure != Measure::Frontends {
        ("bytes", 1.0)
    } else {
        ("MB", 1e-6)
    };
    let mut lines = vec![vec![
        String::new(),
        unit.to_owned(),
        "(min..max)".to_owned(),
    ]];
    for party in parties.iter().copied() {
        let scaled = |value: f64| cell(Some(value * scale), 0);
        let spread = medians.spread(measure, party, Figure::Memory);
        lines.push(vec![
            party.to_string(),
            medians
                .of(measure, party, Figure::Memory)
                .map(scaled)
                .unwrap_or_default(),
            spread
                .map(|(least, most)| format!("({}..{})", scaled(least), scaled(most)))
                .unwrap_or_default(),
        ]);
    }
    aligned(&lines)
}

/// Figures below each other: there are many, and hardly ever a second party.
fn swap_table(medians: Medians<'_>, parties: &[Party]) -> String {
    let mut head = vec![String::new()];
    for party in parties {
        head.extend([party.to_string(), "(min..max of rounds)".to_owned()]);
    }
    let mut lines = vec![head];
    for (figure, what, scale, decimals) in SWAP_FIGURES {
        let shown = |value: f64| format!("{:.decimals$}", value * scale);
        let mut line = vec![what.to_owned()];
        for party in parties.iter().copied() {
            let median = medians.of(Measure::Large, party, figure);
            let spread = medians.spread(Measure::Large, party, figure);
            let spread = spread.map(|(least, most)| format!("({}..{})", shown(least), shown(most)));
            line.extend([
                median.map(shown).unwrap_or_default(),
                spread.unwrap_or_default(),
            ]);
        }
        lines.push(line);
    }
    aligned(&lines)
}

fn targets_table(targets: &[Target]) -> String {
    let mut lines = vec![
        ["target", "measured", "limit", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    let measured = targets.iter().filter(|target| target.is_measured());
    lines.extend(measured.map(|target| {
        vec![
            target.what.clone(),
            target.measured_text(),
            target.limit_text(),
            target.verdict().to_owned(),
        ]
    }));
    let missed = targets
        .iter()
        .filter(|target| target.verdict() == "MISS")
        .count();
    let open = targets
        .iter()
        .filter(|target| !target.is_measured())
        .count();
    let met = targets.len() - missed - open;
    format!(
        "{}{met} met, {missed} missed, {open} not measured\n",
        aligned(&lines)
    )
}

/// Columns of equal width: the first to the left, the others to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::from(" ");
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let written = if column == 0 {
                write!(row, " {cell:<width$}")
            } else {
                write!(row, "  {cell:>width$}")
            };
            debug_assert!(written.is_ok(), "a String takes everything");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn cell(value: Option<f64>, decimals: usize) -> String {
    value
        .map(|value| format!("{value:.decimals$}"))
        .unwrap_or_default()
}

const SWAP_FIGURES: [(Figure, &str, f64, usize); 11] = [
    (Figure::Served, "rename to first client served, ms", 1.0, 1),
    (Figure::ServedMost, "  at most", 1.0, 1),
    (
        Figure::SwapCost,
        "CPU of the proxy for one swap, ms",
        1.0,
        1,
    ),
    (
        Figure::Pause,
        "longest pause of a ping-pong client within 1.5 s with a swap, ms",
        1.0,
        2,
    ),
    (Figure::PauseMost, "  at most", 1.0, 2),
    (Figure::QuietPause, "the same without a swap, ms", 1.0, 2),
    (Figure::QuietPauseMost, "  at most", 1.0, 2),
    (
        Figure::DirectPause,
        "the same with a swap, but past the proxy, ms",
        1.0,
        2,
    ),
    (Figure::DirectPauseMost, "  at most", 1.0, 2),
    (Figure::Memory, "resident memory, MB", 1e-6, 1),
    (Figure::Peak, "  at most", 1e-6, 1),
];
const FIGURES: [(Figure, &str); 22] = [
    (Figure::Rate, "rate"),
    (Figure::Cost, "proxy_cpu"),
    (Figure::Machine, "machine_cpu"),
    (Figure::Added, "machine_cpu_less_direct"),
    (Figure::P50, "p50_us"),
    (Figure::P99, "p99_us"),
    (Figure::P999, "p999_us"),
    (Figure::Busy, "busy"),
    (Figure::Errors, "errors"),
    (Figure::Spliced, "spliced_share"),
    (Figure::Foreign, "foreign_share"),
    (Figure::Memory, "memory_bytes"),
    (Figure::Peak, "peak_bytes"),
    (Figure::Served, "served_ms"),
    (Figure::ServedMost, "served_most_ms"),
    (Figure::Pause, "pause_ms"),
    (Figure::PauseMost, "pause_most_ms"),
    (Figure::QuietPause, "quiet_pause_ms"),
    (Figure::QuietPauseMost, "quiet_pause_most_ms"),
    (Figure::DirectPause, "direct_pause_ms"),
    (Figure::DirectPauseMost, "direct_pause_most_ms"),
    (Figure::SwapCost, "swap_cpu_ms"),
];
