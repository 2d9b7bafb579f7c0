//! The catalogue: which figures there are, of what, and who takes part in each. Nothing is started here.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::proxies::Proxy;

/// The names that `--measure` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Requests,
    Connections,
    Bulk,
    Messages,
    Idle,
    OpenLoop,
    Swap,
    Frontends,
}

/// One table of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Requests,
    Connections,
    Upload,
    Download,
    /// Requests and answers of so many KiB.
    Messages(usize),
    /// Requests at this percentage of the floor's closed-loop rate.
    PacedRequests(u32),
    PacedConnections(u32),
    Idle,
    /// Requests while the table is swapped.
    Swap,
    PacedSwap(u32),
    Frontends,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Plain(Proxy),
    /// Ballast while its table is replaced every 100 ms.
    Swapping,
}

/// The figures of one run.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) round: u32,
    pub(crate) measure: Measure,
    pub(crate) party: Party,
    pub(crate) figures: BTreeMap<Figure, f64>,
}

/// What can be known of a run. Costs are µs per unit, for bulk ms per GB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// Units per second; for bulk MB per second.
    Rate,
    /// CPU of the proxy.
    Cost,
    /// CPU of all cores in use.
    Machine,
    /// The same less the direct run's.
    Added,
    P50,
    P99,
    P999,
    /// How much of its core the proxy used, 0 to 1.
    Busy,
    Errors,
    /// The share of all bytes that haproxy says it spliced.
    Spliced,
    /// How much of all cores processes used that have nothing to do with the bench, 0 to 1.
    Foreign,
    /// Private bytes per idle pair; resident bytes for `Frontends`.
    Memory,
}

impl Measure {
    pub(crate) fn all() -> Vec<Self> {
        vec![
            Self::Requests,
            Self::Connections,
            Self::Upload,
            Self::Download,
            Self::Messages(1),
            Self::Messages(4),
            Self::Messages(16),
            Self::PacedRequests(25),
            Self::PacedRequests(50),
            Self::PacedConnections(25),
            Self::PacedConnections(50),
            Self::Swap,
            Self::PacedSwap(50),
            Self::Idle,
            Self::Frontends,
        ]
    }

    pub(crate) fn is_bulk(self) -> bool {
        matches!(self, Self::Upload | Self::Download)
    }

    pub(crate) fn group(self) -> Group {
        match self {
            Self::Requests => Group::Requests,
            Self::Connections => Group::Connections,
            Self::Upload | Self::Download => Group::Bulk,
            Self::Messages(_) => Group::Messages,
            Self::PacedRequests(_) | Self::PacedConnections(_) => Group::OpenLoop,
            Self::Idle => Group::Idle,
            Self::Swap | Self::PacedSwap(_) => Group::Swap,
            Self::Frontends => Group::Frontends,
        }
    }

    /// Who takes part. Splicing makes no difference to what is never bulk.
    pub(crate) fn parties(self) -> Vec<Party> {
        match self {
            Self::Frontends => vec![Party::Plain(Proxy::Ballast)],
            Self::Swap | Self::PacedSwap(_) => {
                vec![
                    Party::Plain(Proxy::Haproxy),
                    Party::Plain(Proxy::Ballast),
                    Party::Swapping,
                ]
            }
            _ => {
                let takes_part = |proxy: &Proxy| match proxy {
                    Proxy::Direct => self != Self::Idle,
                    Proxy::HaproxyAuto | Proxy::HaproxySplice => self.is_bulk(),
                    _ => true,
                };
                Proxy::ALL
                    .into_iter()
                    .filter(takes_part)
                    .map(Party::Plain)
                    .collect()
            }
        }
    }

    pub(crate) fn most_rounds(self) -> u32 {
        match self {
            Self::Idle => 2,
            Self::Frontends => 1,
            _ => u32::MAX,
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Connections | Self::PacedConnections(_) => "connections",
            Self::Upload | Self::Download => "MB",
            Self::Messages(_) => "messages",
            _ => "requests",
        }
    }

    pub(crate) fn headline(self) -> Figure {
        match self {
            Self::Idle | Self::Frontends => Figure::Memory,
            Self::PacedRequests(_) | Self::PacedConnections(_) | Self::PacedSwap(_) => Figure::P99,
            _ => Figure::Rate,
        }
    }

    /// What the client's answer says, per unit.
    pub(crate) fn figures(self, outcome: &Value) -> BTreeMap<Figure, f64> {
        let value = |key: &str| outcome[key].as_f64().unwrap_or_default();
        let units = value("units").max(1.0);
        if self == Self::Idle {
            return BTreeMap::from([(
                Figure::Memory,
                (value("private_after") - value("private_before")) / units,
            )]);
        }
        let window_ns = (value("seconds") * 1e9).max(1.0);
        // Bytes become MB per second and ms per GB; all else is counted as it is, and costs µs.
        let (per_second, per_ns) = if self.is_bulk() {
            (1e3, 1e3)
        } else {
            (1e9, 1e-3)
        };
        let mut figures = BTreeMap::from([
            (Figure::Rate, units / window_ns * per_second),
            (Figure::Cost, value("proxy_ns") / units * per_ns),
            (Figure::Machine, value("machine_ns") / units * per_ns),
            (Figure::Busy, value("proxy_ns") / window_ns),
            (Figure::Errors, value("errors")),
        ]);
        if !self.is_bulk() {
            figures.insert(Figure::P50, value("p50_us"));
            figures.insert(Figure::P99, value("p99_us"));
            figures.insert(Figure::P999, value("p999_us"));
        }
        figures
    }
}

impl Party {
    pub(crate) fn proxy(self) -> Proxy {
        match self {
            Self::Plain(proxy) => proxy,
            Self::Swapping => Proxy::Ballast,
        }
    }
}

impl Group {
    pub(crate) const ALL: [Self; 8] = [
        Self::Requests,
        Self::Connections,
        Self::Bulk,
        Self::Messages,
        Self::Idle,
        Self::OpenLoop,
        Self::Swap,
        Self::Frontends,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Connections => "connections",
            Self::Bulk => "bulk",
            Self::Messages => "messages",
            Self::Idle => "idle",
            Self::OpenLoop => "openloop",
            Self::Swap => "swap",
            Self::Frontends => "frontends",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests => f.write_str("requests"),
            Self::Connections => f.write_str("connections"),
            Self::Upload => f.write_str("bulk up"),
            Self::Download => f.write_str("bulk down"),
            Self::Messages(kib) => write!(f, "messages of {kib} KiB"),
            Self::PacedRequests(percent) => write!(f, "requests at {percent} %"),
            Self::PacedConnections(percent) => write!(f, "connections at {percent} %"),
            Self::Idle => f.write_str("idle"),
            Self::Swap => f.write_str("requests while swapping"),
            Self::PacedSwap(percent) => write!(f, "requests at {percent} % while swapping"),
            Self::Frontends => f.write_str("frontends"),
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(proxy) => f.write_str(proxy.name()),
            Self::Swapping => f.write_str("ballast+swaps"),
        }
    }
}

/// A run in which other processes used more of the cores than this tells little.
pub(crate) const MOST_FOREIGN: f64 = 0.03;
