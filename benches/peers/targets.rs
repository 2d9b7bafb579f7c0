//! What Ballast has to reach, and whether it did. Judged on medians as they are, and what is to hold always on
//! the most of all rounds: nothing is rounded in its favour.

use serde_json::{Value, json};

use crate::catalog::{Figure, Measure, Party};
use crate::flood::Flood;
use crate::protocol::Cipher;
use crate::proxies::Proxy;
use crate::report::Medians;

/// One thing to reach.
pub(crate) struct Target {
    pub(crate) what: String,
    measured: Option<f64>,
    limit: f64,
    unit: &'static str,
}

/// All targets, in the order of the report.
pub(crate) fn judge(medians: Medians<'_>) -> Vec<Target> {
    let mut targets = Vec::new();
    let requests = [
        Measure::Requests,
        Measure::PacedRequests(25),
        Measure::PacedRequests(50),
    ];
    let connections = [
        Measure::Connections,
        Measure::PacedConnections(25),
        Measure::PacedConnections(50),
    ];
    let bulk = [Measure::Upload, Measure::Download];
    for measure in requests.into_iter().chain(connections).chain(bulk) {
        for figure in COSTS {
            targets.push(Target::ratio(
                medians,
                measure,
                BALLAST,
                figure,
                Some(FLOOR),
                1.05,
            ));
        }
    }
    for measure in requests {
        for figure in COSTS {
            let peer = medians.better_peer(measure, figure);
            targets.push(Target::ratio(medians, measure, BALLAST, figure, peer, 0.97));
        }
    }
    for measure in bulk {
        for figure in COSTS {
            targets.push(Target::ratio(
                medians,
                measure,
                BALLAST,
                figure,
                Some(SPLICING),
                1.05,
            ));
        }
    }
    for measure in requests.into_iter().chain(connections) {
        targets.push(Target::ratio(
            medians,
            measure,
            BALLAST,
            Figure::P99,
            Some(HAPROXY),
            1.0,
        ));
    }
    for measure in [Measure::Swap, Measure::PacedSwap(50)] {
        targets.push(Target::ratio(
            medians,
            measure,
            Party::Swapping(Proxy::Ballast),
            Figure::P99,
            Some(HAPROXY),
            1.0,
        ));
    }
    for (measure, figure, limit) in OF_DATAGRAMS {
        let target = Target::ratio(medians, measure, BALLAST, figure, Some(NGINX), limit);
        targets.push(target);
    }
    for (measure, limit) in OF_HTTP {
        let peer = medians.better_peer(measure, Figure::Cost);
        let target = Target::ratio(medians, measure, BALLAST, Figure::Cost, peer, limit);
        targets.push(target);
    }
    targets.push(Target {
        what: format!("{}: CPU with access lines / without", Measure::HttpRequests),
        measured: medians.ratio(
            Measure::HttpRequests,
            Party::Logging(Proxy::Ballast),
            Figure::Cost,
            BALLAST,
        ),
        limit: 1.1,
        unit: "x",
    });
    for measure in OF_TLS {
        let target = Target::ratio(medians, measure, BALLAST, Figure::Cost, Some(HAPROXY), 1.0);
        targets.push(target);
    }
    for (measure, peer, limit) in OF_HTTP2 {
        let peer = peer.or_else(|| medians.better_peer(measure, Figure::Cost));
        let target = Target::ratio(medians, measure, BALLAST, Figure::Cost, peer, limit);
        targets.push(target);
    }
    for flood in [Flood::Frames, Flood::Chunks] {
        let (measure, quiet) = (Measure::Flooded(flood), Measure::Flooded(Flood::Nothing));
        targets.push(Target {
            what: format!("{measure}: p99 / without the flood"),
            measured: medians.between(measure, quiet, BALLAST, Figure::P99),
            limit: 2.0,
            unit: "x",
        });
    }
    for (measure, figure, what, limit, unit) in OF_BALLAST_ALONE {
        targets.push(Target {
            what: what.to_owned(),
            measured: match figure {
                Figure::ServedMost | Figure::PauseMost | Figure::Peak => {
                    medians.most(measure, BALLAST, figure)
                }
                _ => medians.of(measure, BALLAST, figure),
            },
            limit,
            unit,
        });
    }
    targets
}

impl Target {
    pub(crate) fn verdict(&self) -> &'static str {
        match self.measured {
            None => "not measured",
            Some(measured) if measured <= self.limit => "pass",
            Some(_) => "MISS",
        }
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.measured.is_some()
    }

    pub(crate) fn measured_text(&self) -> String {
        self.measured
            .map(|value| self.shown(value))
            .unwrap_or_default()
    }

    pub(crate) fn limit_text(&self) -> String {
        format!("<= {}", self.shown(self.limit))
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "what": self.what,
            "measured": self.measured,
            "limit": self.limit,
            "verdict": self.verdict(),
        })
    }

    fn ratio(
        medians: Medians<'_>,
        measure: Measure,
        party: Party,
        figure: Figure,
        base: Option<Party>,
        limit: f64,
    ) -> Self {
        let name = match figure {
            Figure::Cost => "CPU of the proxy",
            Figure::Added => "CPU added to the machine",
            Figure::Interval => "time between two that arrive",
            _ => "p99",
        };
        let (base_name, measured) = match base {
            Some(base) => (
                base.to_string(),
                medians.ratio(measure, party, figure, base),
            ),
            None => ("the better of haproxy and nginx".to_owned(), None),
        };
        let is_better_peer = limit < 1.0 || measure == Measure::HttpConnections;
        let whose = if is_better_peer && !measure.is_of_datagrams() {
            format!("{base_name}'s, the better peer")
        } else {
            format!("{base_name}'s")
        };
        Self {
            what: format!("{measure}: {name} / {whose}"),
            measured,
            limit,
            unit: "x",
        }
    }

    fn shown(&self, value: f64) -> String {
        match self.unit {
            "MB" => format!("{:.1} MB", value / 1e6),
            "ms" => format!("{value:.2} ms"),
            "bytes" => format!("{value:.0} bytes"),
            _ => format!("{value:.3} x"),
        }
    }
}

const BALLAST: Party = Party::Plain(Proxy::Ballast);
const FLOOR: Party = Party::Plain(Proxy::Floor);
const HAPROXY: Party = Party::Plain(Proxy::Haproxy);
const NGINX: Party = Party::Plain(Proxy::Nginx);
const SPLICING: Party = Party::Plain(Proxy::HaproxySplice);
const COSTS: [Figure; 2] = [Figure::Cost, Figure::Added];

/// Beside nginx: 1.3 times as many datagrams for the same CPU, 3 times as much bulk in the same time, no fewer new flows.
const OF_DATAGRAMS: [(Measure, Figure, f64); 3] = [
    (Measure::Datagrams, Figure::Cost, 1.0 / 1.3),
    (Measure::DatagramBulk, Figure::Interval, 1.0 / 3.0),
    (Measure::Flows, Figure::Cost, 1.0),
];

/// Beside the better peer.
const OF_HTTP: [(Measure, f64); 2] = [
    (Measure::HttpRequests, 0.78),
    (Measure::HttpConnections, 1.0),
];

/// Beside haproxy: no fewer handshakes, and no fewer bytes, for the same CPU.
const OF_TLS: [Measure; 4] = [
    Measure::Handshakes,
    Measure::ResumedHandshakes,
    Measure::TlsDownload(Cipher::Aes128),
    Measure::TlsDownload(Cipher::Aes256),
];

/// Beside the better peer, haproxy and nginx.
const OF_HTTP2: [(Measure, Option<Party>, f64); 3] = [
    (Measure::Http2Requests, None, 0.8),
    (Measure::Grpc, Some(HAPROXY), 1.0),
    (Measure::Http2Download, Some(NGINX), 1.0),
];

const OF_BALLAST_ALONE: [(Measure, Figure, &str, f64, &str); 8] = [
    (
        Measure::IdleHttps,
        Figure::Memory,
        "memory per idle connection of https",
        20e3,
        "bytes",
    ),
    (
        Measure::IdleHttp2,
        Figure::Memory,
        "memory per idle connection of HTTP/2",
        12e3,
        "bytes",
    ),
    (
        Measure::IdleFlows,
        Figure::Memory,
        "memory per idle flow",
        1_024.0,
        "bytes",
    ),
    (
        Measure::Idle,
        Figure::Memory,
        "memory per idle pair",
        2_048.0,
        "bytes",
    ),
    (
        Measure::Frontends,
        Figure::Memory,
        "memory of 10,000 frontends",
        60e6,
        "MB",
    ),
    (
        Measure::Large,
        Figure::ServedMost,
        "large table: rename to first client served, at most",
        150.0,
        "ms",
    ),
    (
        Measure::Large,
        Figure::Peak,
        "large table: most resident memory",
        100e6,
        "MB",
    ),
    (
        Measure::Large,
        Figure::PauseMost,
        "large table: longest pause of others while it is swapped",
        2.0,
        "ms",
    ),
];
