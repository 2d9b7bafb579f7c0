//! Families that haproxy has no word for: those that counters declare, and others.

use ballast_core::counters::Counts;
use ballast_core::endpoint::EndpointCounts;
use ballast_core::flow::{FlowEnd, UdpCounts};
use ballast_core::handshake::HandshakeResult;
use ballast_core::plan::FrontendCounts;
use ballast_core::service::ServiceCounts;
use ballast_core::table::Protocol;

use super::super::columns::Row;
use super::super::selection::Kinds;
use super::super::snapshot::FrontendStats;
use super::{Family, Source};

/// Tells each series of a row to the second argument.
pub(super) type Each = Box<dyn Fn(Row<'_>, &mut Tell<'_>) + Send>;

/// Takes what distinguishes a series from the others of its row, if something does, and its value.
type Tell<'a> = dyn FnMut(Option<&str>, u64) + 'a;

/// Families of the rows that match a pattern: lines of a name, the label that distinguishes the series of a row, the
/// meaning, and what tells each series.
macro_rules! own {
    ($kinds:expr, $row:pat if $condition:expr => $($name:literal $by:literal $help:literal |$tell:ident| $each:expr;)*) => {
        [$(Family::new($kinds, $name, $help, Source::Own($by, Box::new(|row, $tell| {
            if let $row = row && $condition {
                $each;
            }
        })))),*]
    };
}

pub(super) fn of_frontends(kinds: Kinds) -> Vec<Family> {
    let mut families = declared::<FrontendCounts>(kinds, |row| match row {
        // Those of datagrams are counted with them.
        Row::Frontend(frontend) if frontend.datagrams.is_none() => Some(&frontend.counts),
        _ => None,
    });
    families.extend(own! { kinds, Row::Frontend(f) if f.spec.accept_proxy.is_some() && f.datagrams.is_none() =>
        "ballast_proxy_header_errors_total" "reason" "Trusted peers without a good PROXY header, by reason." |tell| {
            tell(Some("bad-header"), f.counts.bad_headers);
            tell(Some("timeout"), f.counts.late_headers);
        };
    });
    families.extend(own! { kinds, Row::Frontend(f) if speaks_tls(f) =>
        "ballast_tls_handshakes_total" "result" "TLS handshakes with clients, by result." |tell| {
            HandshakeResult::ALL.iter().for_each(|result| tell(Some(result.word()), f.counts.handshakes[result.index()]));
        };
    });
    families.extend(own! { kinds, Row::Frontend(f) if f.datagrams.is_some() =>
        "ballast_udp_flows" "" "Flows now." |tell| tell(None, f.current.into());
        "ballast_udp_flows_created_total" "" "Flows that began." |tell| tell(None, f.counts.sessions);
        "ballast_udp_flows_ended_total" "reason" "Flows that are over, by reason." |tell| {
            FlowEnd::ALL.iter().for_each(|why| tell(Some(why.word()), datagrams(f).ended[why.index()]));
        };
        "ballast_udp_datagrams_total" "direction" "Datagrams that were passed on; those of clients are in." |tell| {
            tell(Some("in"), datagrams(f).datagrams_in);
            tell(Some("out"), datagrams(f).datagrams_out);
        };
        "ballast_udp_bytes_total" "direction" "Bytes of payload that were passed on; those of clients are in." |tell| {
            tell(Some("in"), f.counts.bytes_in);
            tell(Some("out"), f.counts.bytes_out);
        };
    });
    families.extend(declared::<UdpCounts>(kinds, |row| match row {
        Row::Frontend(frontend) => frontend.datagrams.as_deref(),
        _ => None,
    }));
    families
}

fn speaks_tls(frontend: &FrontendStats) -> bool {
    frontend.spec.tls.is_some() || frontend.spec.protocol == Protocol::Tls
}

fn datagrams(frontend: &FrontendStats) -> UdpCounts {
    frontend.datagrams.as_deref().copied().unwrap_or_default()
}

pub(super) fn of_services(kinds: Kinds) -> Vec<Family> {
    let mut families = Vec::from(own! { kinds, Row::Service(s) if true =>
        "ballast_service_panic" "" "1 while checks are ignored, because those of all endpoints fail." |tell| tell(None, s.is_panicking.into());
        "ballast_health_flaps_total" "" "Endpoints whose checks failed within a minute of having come back." |tell| tell(None, s.flaps);
        "ballast_queue_waiting" "" "Clients that wait for a full service." |tell| tell(None, s.queue.into());
    });
    families.extend(declared::<ServiceCounts>(kinds, |row| match row {
        Row::Service(service) => Some(&service.own),
        _ => None,
    }));
    families
}

pub(super) fn of_endpoints(kinds: Kinds) -> Vec<Family> {
    declared::<EndpointCounts>(kinds, |row| match row {
        Row::Endpoint(_, endpoint) => Some(&endpoint.counts),
        _ => None,
    })
}

/// The families of the counters whose declaration names one.
fn declared<C: Counts>(kinds: Kinds, of: for<'a> fn(Row<'a>) -> Option<&'a C>) -> Vec<Family> {
    let counters = C::COUNTERS.iter().filter_map(|counter| {
        let (name, help) = counter.metric?;
        let each: Each = Box::new(move |row, tell| {
            let Some(reading) = of(row).map(counter.read) else {
                return;
            };
            for (reason, count) in reading.each("") {
                tell(reading.reason.map(|_| reason), count);
            }
        });
        Some(Family::new(kinds, name, help, Source::Own("reason", each)))
    });
    counters.collect()
}
