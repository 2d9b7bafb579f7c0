//! Families of datagrams and flows, of the frontends that have some.

use ballast_core::flow::{Dropped, FlowEnd};

use super::super::snapshot::FrontendStats;
use super::own::Own;

pub(super) static DATAGRAMS: [Own<FrontendStats>; 8] = [
    Own {
        name: "ballast_udp_flows",
        kind: "gauge",
        help: "Flows now.",
        label: "frontend",
        by: "",
        each: |frontend, series| {
            if frontend.datagrams.is_some() {
                series(None, frontend.current.into());
            }
        },
    },
    Own {
        name: "ballast_udp_flows_created_total",
        kind: "counter",
        help: "Flows that began.",
        label: "frontend",
        by: "",
        each: |frontend, series| {
            if frontend.datagrams.is_some() {
                series(None, frontend.sessions);
            }
        },
    },
    Own {
        name: "ballast_udp_flows_ended_total",
        kind: "counter",
        help: "Flows that are over, by reason.",
        label: "frontend",
        by: "reason",
        each: |frontend, series| {
            if let Some(datagrams) = &frontend.datagrams {
                FlowEnd::ALL
                    .iter()
                    .for_each(|why| series(Some(why.word()), datagrams.ended(*why)));
            }
        },
    },
    Own {
        name: "ballast_udp_datagrams_total",
        kind: "counter",
        help: "Datagrams that were passed on; those of clients are in.",
        label: "frontend",
        by: "direction",
        each: |frontend, series| {
            if let Some(datagrams) = &frontend.datagrams {
                series(Some("in"), datagrams.from_clients);
                series(Some("out"), datagrams.to_clients);
            }
        },
    },
    Own {
        name: "ballast_udp_bytes_total",
        kind: "counter",
        help: "Bytes of payload that were passed on; those of clients are in.",
        label: "frontend",
        by: "direction",
        each: |frontend, series| {
            if frontend.datagrams.is_some() {
                series(Some("in"), frontend.bytes_in);
                series(Some("out"), frontend.bytes_out);
            }
        },
    },
    Own {
        name: "ballast_udp_dropped_total",
        kind: "counter",
        help: "Datagrams of clients that were not passed on, by reason.",
        label: "frontend",
        by: "reason",
        each: |frontend, series| {
            if let Some(datagrams) = &frontend.datagrams {
                Dropped::ALL
                    .iter()
                    .for_each(|why| series(Some(why.word()), datagrams.dropped(*why)));
            }
        },
    },
    Own {
        name: "ballast_udp_kernel_drops_total",
        kind: "counter",
        help: "Datagrams of clients that came faster than they were read, so that the kernel dropped them.",
        label: "frontend",
        by: "",
        each: |frontend, series| {
            if let Some(datagrams) = &frontend.datagrams {
                series(None, datagrams.kernel_drops);
            }
        },
    },
    Own {
        name: "ballast_udp_unsent_total",
        kind: "counter",
        help: "Datagrams in either direction that the kernel did not take.",
        label: "frontend",
        by: "",
        each: |frontend, series| {
            if let Some(datagrams) = &frontend.datagrams {
                series(None, datagrams.unsent);
            }
        },
    },
];
