//! Families that haproxy has no word for, of frontends and of services.

use ballast_core::admit::Refusal;
use ballast_core::service::EjectionReason;
use ballast_core::table::{Entries, LabelKey, Text};

use super::super::snapshot::{FrontendStats, ServiceStats};
use super::super::value::number;
use super::{head, label};

/// A family, and how its series are read from whom they belong to.
pub(super) struct Own<T: 'static> {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    /// `frontend` or `service`.
    pub(super) label: &'static str,
    /// What tells its series of one frontend or service apart, if there are several.
    pub(super) by: &'static str,
    /// Says each of its series.
    pub(super) each: fn(&T, &mut Series<'_>),
}

/// Takes what tells a series apart, if something does, and its value.
pub(super) type Series<'a> = dyn FnMut(Option<&str>, u64) + 'a;

type Labels = Entries<LabelKey, Text>;

impl<T> Own<T> {
    /// All series of one frontend or service.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        name: &str,
        labels: &Labels,
        of: &T,
        is_headed: &mut bool,
    ) {
        (self.each)(of, &mut |which, value| {
            if !std::mem::replace(is_headed, true) {
                head(out, self.name, self.kind, self.help);
            }
            for part in [self.name, "{", self.label, "=\""] {
                out.extend_from_slice(part.as_bytes());
            }
            label(out, name);
            if let Some(which) = which {
                for part in ["\",", self.by, "=\""] {
                    out.extend_from_slice(part.as_bytes());
                }
                label(out, which);
            }
            for (key, value) in labels.iter() {
                out.extend_from_slice(b"\",label_");
                out.extend_from_slice(key.as_bytes());
                out.extend_from_slice(b"=\"");
                label(out, value);
            }
            out.extend_from_slice(b"\"} ");
            number(out, value);
            out.push(b'\n');
        });
    }
}

pub(super) static FRONTEND: [Own<FrontendStats>; 2] = [
    Own {
        name: "ballast_connections_refused_total",
        kind: "counter",
        help: "Clients that were turned away, by reason.",
        label: "frontend",
        by: "reason",
        each: |frontend, series| {
            // Those of datagrams are counted with them.
            if frontend.datagrams.is_none() {
                for refusal in Refusal::ALL {
                    series(Some(refusal.word()), frontend.refused(refusal));
                }
            }
        },
    },
    Own {
        name: "ballast_proxy_header_errors_total",
        kind: "counter",
        help: "Trusted peers without a good PROXY header, by reason.",
        label: "frontend",
        by: "reason",
        each: |frontend, series| {
            if frontend.spec.accept_proxy.is_some() && frontend.datagrams.is_none() {
                series(Some("bad-header"), frontend.bad_headers);
                series(Some("timeout"), frontend.late_headers);
            }
        },
    },
];

pub(super) static SERVICE: [Own<ServiceStats>; 4] = [
    Own {
        name: "ballast_service_panic",
        kind: "gauge",
        help: "1 while checks are ignored, because those of all endpoints fail.",
        label: "service",
        by: "reason",
        each: |service, series| series(None, service.is_panicking.into()),
    },
    Own {
        name: "ballast_health_flaps_total",
        kind: "counter",
        help: "Endpoints whose checks failed within a minute of having come back.",
        label: "service",
        by: "reason",
        each: |service, series| series(None, service.flaps),
    },
    Own {
        name: "ballast_queue_waiting",
        kind: "gauge",
        help: "Clients that wait for a full service.",
        label: "service",
        by: "reason",
        each: |service, series| series(None, service.queue.into()),
    },
    Own {
        name: "ballast_ejections_total",
        kind: "counter",
        help: "Endpoints kept out because they could not be reached, by reason.",
        label: "service",
        by: "reason",
        each: |service, series| {
            for reason in EjectionReason::ALL {
                let count = service.ejections.get(reason.index());
                series(Some(reason.word()), count.copied().unwrap_or(0));
            }
        },
    },
];
