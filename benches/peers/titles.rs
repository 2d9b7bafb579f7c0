//! What stands above each table of the report: the measure, and the load in a few words.

use crate::catalog::Measure;
use crate::flood::Flood;

/// The heading of a measure's table.
pub(crate) fn title(measure: Measure) -> String {
    let what = match measure {
        Measure::Requests => "closed loop, 64 connections, 64 bytes there and back",
        Measure::Connections => {
            "closed loop, 64 at a time: connect, 64 bytes there and back, close"
        }
        Measure::Upload => "8 streams, client to origin",
        Measure::Download => "8 streams, origin to client",
        Measure::Messages(_) => "closed loop, 64 connections, there and back",
        Measure::PacedRequests(_) | Measure::PacedConnections(_) => {
            "open loop at this share of the floor's rate; latency from the intended moment"
        }
        Measure::Idle => "private memory per idle pair of connections, each after one request",
        Measure::Datagrams => "closed loop, 32 clients with 8 on the way, 64 bytes there and back",
        Measure::DatagramBulk => "one client, bursts of 1,200 bytes each, those that arrived",
        Measure::Flows => "closed loop, 64 at a time, each from a new port, one answer ends it",
        Measure::IdleFlows => "private memory per idle flow, each after two questions",
        Measure::HttpRequests => {
            "closed loop, 64 connections; a path prefix stripped, X-Forwarded-For written; +lines: with access lines"
        }
        Measure::HttpConnections => {
            "closed loop, 64 at a time: connect, the same request, its answer, close"
        }
        Measure::Handshakes => {
            "closed loop, 64 at a time: connect, TLS 1.3 with ECDSA P-256 and X25519, a request, close"
        }
        Measure::ResumedHandshakes => "the same with a ticket",
        Measure::TlsDownload(_) => "8 bodies in TLS 1.3, origin to client",
        Measure::IdleHttps => {
            "private memory per idle connection of HTTP/1 in TLS 1.3, each after one request"
        }
        Measure::IdleHttp2 => {
            "private memory per idle connection of HTTP/2 in the clear, each after one request"
        }
        Measure::Http2Requests => {
            "closed loop, 10 connections with 10 requests each in the clear, endpoint of HTTP/1; a path prefix stripped, X-Forwarded-For written"
        }
        Measure::Grpc => {
            "closed loop, 10 connections with 10 unary calls each, 100 bytes there and back, HTTP/2 in the clear on both sides"
        }
        Measure::Http2Download => {
            "2 connections with 4 bodies each, HTTP/2 in TLS 1.3 with AES-128-GCM, endpoint of HTTP/1"
        }
        Measure::Flooded(Flood::Nothing) => {
            "open loop, 64 connections, latency from the intended moment"
        }
        Measure::Flooded(Flood::Frames) => {
            "2 connections of HTTP/2 send unknown frames of 16 KiB without pause; their CPU is in the proxy's"
        }
        Measure::Flooded(Flood::Chunks) => {
            "a client of HTTP/1.0 reads a response of endless chunks; its CPU is in the proxy's"
        }
        Measure::Swap => "closed loop; the table is replaced every 100 ms",
        Measure::PacedSwap(_) => "open loop; the table is replaced every 100 ms",
        Measure::Frontends => "resident memory with 10,000 idle frontends of one IPv4 address each",
        Measure::Large => {
            "10,000 services of 10 endpoints behind 100 frontends; one endpoint changes, by a rename of the table"
        }
    };
    format!("{measure} ({what})")
}
