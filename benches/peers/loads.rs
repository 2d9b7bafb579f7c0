//! Which load each measure applies.

use std::time::Duration;

use crate::catalog::Measure;
use crate::load::{Kind, Load};

/// The load of `measure`, made of one that fits most. `idle`: how many idle connections the machine can hold; `share`: that many
/// percent of the floor's rate of such units.
pub(crate) fn of(
    measure: Measure,
    load: Load,
    idle: usize,
    share: impl Fn(u32, &str) -> Option<f64>,
) -> Load {
    let bulk = Load {
        connections: 8,
        warmup: load.warmup * 2,
        ..load.clone()
    };
    match measure {
        Measure::Requests
        | Measure::HttpRequests
        | Measure::Swap
        | Measure::Frontends
        | Measure::Large => load,
        Measure::Connections
        | Measure::HttpConnections
        | Measure::Handshakes
        | Measure::ResumedHandshakes => Load {
            kind: Kind::Connections,
            ..load
        },
        Measure::Upload => Load {
            kind: Kind::Upload,
            ..bulk
        },
        Measure::Download | Measure::TlsDownload(_) => Load {
            kind: Kind::Download,
            ..bulk
        },
        Measure::Messages(kib) => Load {
            size: kib * 1024,
            ..load
        },
        Measure::PacedRequests(percent) | Measure::PacedSwap(percent) => Load {
            rate: share(percent, measure.unit()),
            ..load
        },
        Measure::PacedConnections(percent) => Load {
            kind: Kind::Connections,
            rate: share(percent, measure.unit()),
            ..load
        },
        Measure::Http2Requests | Measure::Grpc => Load {
            connections: 10,
            streams: 10,
            ..load
        },
        Measure::Http2Download => Load {
            kind: Kind::Download,
            connections: 2,
            streams: 4,
            ..bulk
        },
        Measure::Flooded(_) => Load {
            rate: Some(OTHERS_RATE),
            ..load
        },
        Measure::Datagrams => Load {
            kind: Kind::Datagrams,
            connections: 32,
            ..load
        },
        Measure::DatagramBulk => Load {
            kind: Kind::DatagramBulk,
            connections: 1,
            ..load
        },
        Measure::Flows => Load {
            kind: Kind::Flows,
            ..load
        },
        Measure::IdleFlows => Load {
            kind: Kind::IdleFlows,
            connections: idle.min(IDLE_FLOWS),
            warmup: Duration::from_millis(300),
            window: Duration::from_millis(500),
            ..load
        },
        Measure::Idle | Measure::IdleHttps | Measure::IdleHttp2 => Load {
            kind: Kind::Idle,
            connections: match measure {
                Measure::Idle => idle,
                _ => idle.min(IDLE_HTTP),
            },
            warmup: Duration::from_millis(300),
            window: Duration::from_millis(500),
            ..load
        },
    }
}

/// Each takes a handshake, or a connection that the proxy keeps to the origin.
const IDLE_HTTP: usize = 2_000;
/// Few enough that nobody ends one for want of room.
const IDLE_FLOWS: usize = 4_000;
/// Requests a second of those that do not flood: a quarter of what one worker does, or less.
const OTHERS_RATE: f64 = 10_000.0;
