//! The catalogue: which figures there are, of what, and who takes part in each. Nothing is started here.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::flood::Flood;
use crate::groups::Group;
use crate::protocol::{Cipher, Protocol};
use crate::proxies::Proxy;

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
    /// A table of 10,000 services of which one endpoint changes.
    Large,
    Datagrams,
    DatagramBulk,
    Flows,
    IdleFlows,
    /// Requests of HTTP on connections that stay, through a route that rewrites the path.
    HttpRequests,
    /// A connection for each.
    HttpConnections,
    /// The same in TLS, so that each takes a handshake.
    Handshakes,
    /// The same with the ticket of an earlier one.
    ResumedHandshakes,
    /// A body in TLS.
    TlsDownload(Cipher),
    /// Connections of HTTP/1 in TLS that wait for a request.
    IdleHttps,
    /// The same of HTTP/2 without TLS.
    IdleHttp2,
    /// Requests of HTTP/2 in the clear, several at once on each connection, to an endpoint of HTTP/1.
    Http2Requests,
    /// Unary calls of gRPC: HTTP/2 in the clear on both sides.
    Grpc,
    /// Bodies in HTTP/2 in TLS, several at once on each connection, from an endpoint of HTTP/1.
    Http2Download,
    /// Requests of HTTP/1 at a fixed rate, while another client floods the same worker.
    Flooded(Flood),
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Plain(Proxy),
    /// One that reads tables, while its table is replaced every 100 ms.
    Swapping(Proxy),
    /// One that writes a line for each request.
    Logging(Proxy),
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
    /// The reciprocal of the rate, in µs: so that less is better, as of all that has a target.
    Interval,
    /// CPU of the proxy.
    Cost,
    /// CPU of all that take part.
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
    /// Private bytes per idle pair; resident bytes for `Frontends` and `Large`.
    Memory,
    /// The most bytes that ever were resident.
    Peak,
    /// From the rename of a table to the first client that it serves, in ms: in the middle, and at most.
    Served,
    ServedMost,
    /// The longest pause of a ping-pong client in the time of one swap, in ms: in the middle, and at most.
    Pause,
    PauseMost,
    /// The same in as much time without a swap.
    QuietPause,
    QuietPauseMost,
    /// The same in the time of a swap, of a client that needs no proxy.
    DirectPause,
    DirectPauseMost,
    /// CPU of a swap in ms, of all threads.
    SwapCost,
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
            Self::Large,
            Self::Datagrams,
            Self::DatagramBulk,
            Self::Flows,
            Self::IdleFlows,
            Self::HttpRequests,
            Self::HttpConnections,
            Self::Handshakes,
            Self::ResumedHandshakes,
            Self::TlsDownload(Cipher::Aes128),
            Self::TlsDownload(Cipher::Aes256),
            Self::IdleHttps,
            Self::IdleHttp2,
            Self::Http2Requests,
            Self::Grpc,
            Self::Http2Download,
            Self::Flooded(Flood::Nothing),
            Self::Flooded(Flood::Frames),
            Self::Flooded(Flood::Chunks),
        ]
    }

    /// What the clients speak.
    pub(crate) fn protocol(self) -> Protocol {
        let https = |cipher, resumes| Protocol::Https { cipher, resumes };
        match self {
            Self::HttpRequests | Self::HttpConnections | Self::Flooded(_) => Protocol::Http,
            Self::Handshakes | Self::IdleHttps => https(Cipher::Aes128, false),
            Self::ResumedHandshakes => https(Cipher::Aes128, true),
            Self::TlsDownload(cipher) => https(cipher, false),
            Self::IdleHttp2 | Self::Http2Requests => Protocol::Http2,
            Self::Grpc => Protocol::Grpc,
            Self::Http2Download => Protocol::Http2Tls,
            _ => Protocol::Tcp,
        }
    }

    /// Whether it is memory that does nothing.
    pub(crate) fn is_idle(self) -> bool {
        matches!(
            self,
            Self::Idle | Self::IdleFlows | Self::IdleHttps | Self::IdleHttp2
        )
    }

    pub(crate) fn is_of_datagrams(self) -> bool {
        matches!(
            self,
            Self::Datagrams | Self::DatagramBulk | Self::Flows | Self::IdleFlows
        )
    }

    pub(crate) fn is_bulk(self) -> bool {
        matches!(
            self,
            Self::Upload | Self::Download | Self::TlsDownload(_) | Self::Http2Download
        )
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
            Self::Large => Group::Large,
            Self::Datagrams => Group::Udp,
            Self::DatagramBulk => Group::UdpBulk,
            Self::Flows => Group::UdpFlows,
            Self::IdleFlows => Group::UdpIdle,
            Self::HttpRequests => Group::HttpRequests,
            Self::HttpConnections => Group::HttpConnections,
            Self::Handshakes | Self::ResumedHandshakes => Group::TlsHandshakes,
            Self::TlsDownload(_) => Group::TlsBulk,
            Self::IdleHttps => Group::HttpIdle,
            Self::IdleHttp2 => Group::H2Idle,
            Self::Http2Requests => Group::H2Requests,
            Self::Grpc => Group::H2Grpc,
            Self::Http2Download => Group::H2TlsBulk,
            Self::Flooded(_) => Group::H2Flood,
        }
    }

    /// Who takes part. Splicing makes no difference to what is never bulk.
    pub(crate) fn parties(self) -> Vec<Party> {
        match self {
            Self::Frontends | Self::Large => BALLASTS.map(Party::Plain).to_vec(),
            Self::Swap | Self::PacedSwap(_) => {
                let others = [Proxy::Haproxy, Proxy::Ballast].map(Party::Plain);
                let swapping = BALLASTS.map(Party::Swapping);
                others.into_iter().chain(swapping).collect()
            }
            Self::HttpRequests => {
                let plain = [Proxy::Direct].into_iter().chain(OF_HTTP);
                let plain = plain.map(Party::Plain);
                plain.chain(OF_HTTP.map(Party::Logging)).collect()
            }
            Self::HttpConnections | Self::Grpc => {
                let plain = [Proxy::Direct].into_iter().chain(OF_HTTP);
                plain.map(Party::Plain).collect()
            }
            _ if self.protocol() != Protocol::Tcp => OF_HTTP.map(Party::Plain).to_vec(),
            _ => {
                let takes_part = |proxy: &Proxy| match proxy {
                    Proxy::Direct => !matches!(self, Self::Idle | Self::IdleFlows),
                    // It knows no datagrams.
                    Proxy::Haproxy => !self.is_of_datagrams(),
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
            _ if self.is_idle() => 2,
            Self::Large => 2,
            Self::Frontends => 1,
            _ => u32::MAX,
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Connections | Self::PacedConnections(_) => "connections",
            Self::HttpConnections => "connections",
            Self::Handshakes | Self::ResumedHandshakes => "handshakes",
            Self::Upload | Self::Download | Self::TlsDownload(_) | Self::Http2Download => "MB",
            Self::Messages(_) => "messages",
            Self::Datagrams | Self::DatagramBulk => "datagrams",
            Self::Flows => "flows",
            _ => "requests",
        }
    }

    pub(crate) fn headline(self) -> Figure {
        match self {
            _ if self.is_idle() => Figure::Memory,
            Self::Frontends => Figure::Memory,
            Self::Large => Figure::Served,
            Self::PacedRequests(_)
            | Self::PacedConnections(_)
            | Self::PacedSwap(_)
            | Self::Flooded(_) => Figure::P99,
            _ => Figure::Rate,
        }
    }

    /// What the client's answer says, per unit.
    pub(crate) fn figures(self, outcome: &Value) -> BTreeMap<Figure, f64> {
        if self == Self::Large {
            return of_swaps(outcome);
        }
        let value = |key: &str| outcome[key].as_f64().unwrap_or_default();
        let units = value("units").max(1.0);
        if self.is_idle() {
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
            (Figure::Interval, window_ns / units * per_ns),
            (Figure::Cost, value("proxy_ns") / units * per_ns),
            (Figure::Machine, value("machine_ns") / units * per_ns),
            (Figure::Busy, value("proxy_ns") / window_ns),
            (Figure::Errors, value("errors")),
        ]);
        if !self.is_bulk() && self != Self::DatagramBulk {
            figures.insert(Figure::P50, value("p50_us"));
            figures.insert(Figure::P99, value("p99_us"));
            figures.insert(Figure::P999, value("p999_us"));
        }
        figures
    }
}

/// What the client of the large table says.
fn of_swaps(outcome: &Value) -> BTreeMap<Figure, f64> {
    let list = |key: &str| -> Vec<f64> {
        let numbers = outcome[key].as_array().into_iter().flatten();
        numbers.filter_map(Value::as_f64).collect()
    };
    let mut figures = BTreeMap::new();
    for (key, middle, most) in [
        ("served_ms", Figure::Served, Figure::ServedMost),
        ("pause_ms", Figure::Pause, Figure::PauseMost),
        ("quiet_pause_ms", Figure::QuietPause, Figure::QuietPauseMost),
        (
            "direct_pause_ms",
            Figure::DirectPause,
            Figure::DirectPauseMost,
        ),
    ] {
        let numbers = list(key);
        let longest = numbers.iter().copied().max_by(f64::total_cmp);
        figures.extend(longest.map(|longest| (most, longest)));
        figures.extend(median(numbers).map(|median| (middle, median)));
    }
    if let (Some(swap), Some(quiet)) = (median(list("cpu_ms")), median(list("quiet_cpu_ms"))) {
        figures.insert(Figure::SwapCost, swap - quiet);
    }
    for (key, figure) in [("resident", Figure::Memory), ("peak", Figure::Peak)] {
        figures.extend(outcome[key].as_f64().map(|bytes| (figure, bytes)));
    }
    figures
}

/// The middle one; of an even number the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied()?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((upper + values.get(middle.checked_sub(1)?).copied()?) / 2.0)
}

impl Party {
    pub(crate) fn proxy(self) -> Proxy {
        match self {
            Self::Plain(proxy) | Self::Swapping(proxy) | Self::Logging(proxy) => proxy,
        }
    }

    pub(crate) fn logs(self) -> bool {
        matches!(self, Self::Logging(_))
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
            Self::Large => f.write_str("large table"),
            Self::Datagrams => f.write_str("datagrams"),
            Self::DatagramBulk => f.write_str("datagrams in bulk"),
            Self::Flows => f.write_str("new flows"),
            Self::IdleFlows => f.write_str("idle flows"),
            Self::HttpRequests => f.write_str("http requests"),
            Self::HttpConnections => f.write_str("http connections"),
            Self::Handshakes => f.write_str("tls handshakes"),
            Self::ResumedHandshakes => f.write_str("resumed tls handshakes"),
            Self::TlsDownload(Cipher::Aes128) => f.write_str("tls bulk, AES-128-GCM"),
            Self::TlsDownload(Cipher::Aes256) => f.write_str("tls bulk, AES-256-GCM"),
            Self::IdleHttps => f.write_str("idle https"),
            Self::IdleHttp2 => f.write_str("idle http/2"),
            Self::Http2Requests => f.write_str("http/2 requests"),
            Self::Grpc => f.write_str("grpc calls"),
            Self::Http2Download => f.write_str("http/2 tls bulk"),
            Self::Flooded(Flood::Nothing) => f.write_str("http requests at a fixed rate"),
            Self::Flooded(Flood::Frames) => f.write_str("the same beside a flood of frames"),
            Self::Flooded(Flood::Chunks) => f.write_str("the same beside a flood of chunks"),
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(proxy) => f.write_str(proxy.name()),
            Self::Swapping(proxy) => write!(f, "{}+swaps", proxy.name()),
            Self::Logging(proxy) => write!(f, "{}+lines", proxy.name()),
        }
    }
}

/// Those that speak HTTP and TLS.
const OF_HTTP: [Proxy; 4] = [Proxy::Haproxy, Proxy::Nginx, Proxy::Ballast, Proxy::Beside];
const BALLASTS: [Proxy; 2] = [Proxy::Ballast, Proxy::Beside];
/// A run in which other processes used more of the cores than this tells little.
pub(crate) const MOST_FOREIGN: f64 = 0.03;
