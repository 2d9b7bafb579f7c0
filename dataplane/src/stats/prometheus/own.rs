//! Families that haproxy has no word for: those that counters declare, and others.

use ballast_core::counters::Counts;
use ballast_core::endpoint::EndpointCounts;
use ballast_core::flow::{FlowEnd, UdpCounts};
use ballast_core::plan::FrontendCounts;
use ballast_core::service::ServiceCounts;

use super::super::columns::Row;
use super::super::selection::Kinds;
use super::super::snapshot::{FrontendStats, ServiceStats};
use super::{Family, Source, kind_of};

/// Tells each series of a row to the second argument.
pub(super) type Each = Box<dyn Fn(Row<'_>, &mut Tell<'_>) + Send>;

/// Takes what distinguishes a series from the others of its row, if something does, and its value.
type Tell<'a> = dyn FnMut(Option<&str>, u64) + 'a;

pub(super) fn of_frontends() -> Vec<Family> {
    let mut families = declared::<FrontendCounts>(Kinds::FRONTEND, |row| match row {
        // Those of datagrams are counted with them.
        Row::Frontend(frontend) if frontend.datagrams.is_none() => Some(&frontend.counts),
        _ => None,
    });
    families.extend([
        frontend(
            "ballast_proxy_header_errors_total",
            "reason",
            "Trusted peers without a good PROXY header, by reason.",
            |frontend, tell| {
                if frontend.spec.accept_proxy.is_some() && frontend.datagrams.is_none() {
                    tell(Some("bad-header"), frontend.counts.bad_headers);
                    tell(Some("timeout"), frontend.counts.late_headers);
                }
            },
        ),
        of_datagrams(
            "ballast_udp_flows",
            "",
            "Flows now.",
            |frontend, _, tell| {
                tell(None, frontend.current.into());
            },
        ),
        of_datagrams(
            "ballast_udp_flows_created_total",
            "",
            "Flows that began.",
            |frontend, _, tell| tell(None, frontend.counts.sessions),
        ),
        of_datagrams(
            "ballast_udp_flows_ended_total",
            "reason",
            "Flows that are over, by reason.",
            |_, counts, tell| {
                for why in FlowEnd::ALL {
                    tell(Some(why.word()), counts.ended[why.index()]);
                }
            },
        ),
        of_datagrams(
            "ballast_udp_datagrams_total",
            "direction",
            "Datagrams that were passed on; those of clients are in.",
            |_, counts, tell| {
                tell(Some("in"), counts.datagrams_in);
                tell(Some("out"), counts.datagrams_out);
            },
        ),
        of_datagrams(
            "ballast_udp_bytes_total",
            "direction",
            "Bytes of payload that were passed on; those of clients are in.",
            |frontend, _, tell| {
                tell(Some("in"), frontend.counts.bytes_in);
                tell(Some("out"), frontend.counts.bytes_out);
            },
        ),
    ]);
    families.extend(declared::<UdpCounts>(Kinds::FRONTEND, |row| match row {
        Row::Frontend(frontend) => frontend.datagrams.as_deref(),
        _ => None,
    }));
    families
}

pub(super) fn of_services() -> Vec<Family> {
    let mut families = vec![
        service(
            "ballast_service_panic",
            "1 while checks are ignored, because those of all endpoints fail.",
            |service| service.is_panicking.into(),
        ),
        service(
            "ballast_health_flaps_total",
            "Endpoints whose checks failed within a minute of having come back.",
            |service| service.flaps,
        ),
        service(
            "ballast_queue_waiting",
            "Clients that wait for a full service.",
            |service| service.queue.into(),
        ),
    ];
    families.extend(declared::<ServiceCounts>(Kinds::BACKEND, |row| match row {
        Row::Service(service) => Some(&service.own),
        _ => None,
    }));
    families
}

pub(super) fn of_endpoints() -> Vec<Family> {
    declared::<EndpointCounts>(Kinds::SERVER, |row| match row {
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
        Some(family(kinds, name, "reason", help, each))
    });
    counters.collect()
}

fn frontend(
    name: &'static str,
    by: &'static str,
    help: &'static str,
    each: fn(&FrontendStats, &mut Tell<'_>),
) -> Family {
    let each: Each = Box::new(move |row, tell| {
        if let Row::Frontend(frontend) = row {
            each(frontend, tell);
        }
    });
    family(Kinds::FRONTEND, name, by, help, each)
}

fn of_datagrams(
    name: &'static str,
    by: &'static str,
    help: &'static str,
    each: fn(&FrontendStats, &UdpCounts, &mut Tell<'_>),
) -> Family {
    let each: Each = Box::new(move |row, tell| {
        if let Row::Frontend(frontend) = row
            && let Some(datagrams) = &frontend.datagrams
        {
            each(frontend, datagrams, tell);
        }
    });
    family(Kinds::FRONTEND, name, by, help, each)
}

fn service(name: &'static str, help: &'static str, value: fn(&ServiceStats) -> u64) -> Family {
    let each: Each = Box::new(move |row, tell| {
        if let Row::Service(service) = row {
            tell(None, value(service));
        }
    });
    family(Kinds::BACKEND, name, "", help, each)
}

fn family(
    kinds: Kinds,
    name: &'static str,
    by: &'static str,
    help: &'static str,
    each: Each,
) -> Family {
    Family {
        name: name.into(),
        kind: kind_of(name),
        help,
        kinds,
        source: Source::Own(by, each),
    }
}
