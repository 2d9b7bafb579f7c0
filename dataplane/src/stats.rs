//! What was counted, in the words of Prometheus. The names are the product's interface.

use std::fmt::Write;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use ballast_core::admit::Refusal;
use ballast_core::counters::Cell;
use ballast_core::plan::{Frontend, FrontendCounters};
use ballast_core::service::EjectionReason;

use crate::runtime::panics;
use crate::status::SWAP_BOUNDS;
use crate::worker::{Shared, WorkerCounters};

/// All metrics, as text.
#[must_use]
pub fn metrics(shared: &Shared) -> String {
    let mut page = Page::default();
    table(&mut page, shared);
    frontends(&mut page, shared);
    services(&mut page, shared);
    process(&mut page, shared);
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Writing into a string cannot fail.
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.write_fmt(line).ok();
    }
}

fn table(page: &mut Page, shared: &Shared) {
    let status = &shared.status;
    if let Some(generation) = shared.live.plan().generation() {
        page.family(
            "ballast_table_generation",
            "gauge",
            "The number of the table that is served.",
        );
        page.line(format_args!("ballast_table_generation {generation}\n"));
    }
    page.family(
        "ballast_table_applied_timestamp_seconds",
        "gauge",
        "When the table that is served was applied.",
    );
    page.line(format_args!(
        "ballast_table_applied_timestamp_seconds {}\n",
        status.applied_at()
    ));
    page.family(
        "ballast_table_refused_total",
        "counter",
        "Tables that were refused.",
    );
    page.line(format_args!(
        "ballast_table_refused_total {}\n",
        status.refused.load(Ordering::Relaxed)
    ));
    page.family(
        "ballast_retired_plans",
        "gauge",
        "Earlier tables that somebody still uses.",
    );
    page.line(format_args!(
        "ballast_retired_plans {}\n",
        status.retired.load(Ordering::Relaxed)
    ));
    let swaps = status.swaps();
    page.family(
        "ballast_swap_seconds",
        "histogram",
        "From the look at a new table to its being served.",
    );
    for (bound, count) in SWAP_BOUNDS.iter().zip(swaps.within) {
        page.line(format_args!(
            "ballast_swap_seconds_bucket{{le=\"{bound}\"}} {count}\n"
        ));
    }
    page.line(format_args!(
        "ballast_swap_seconds_bucket{{le=\"+Inf\"}} {}\n",
        swaps.count
    ));
    page.line(format_args!(
        "ballast_swap_seconds_sum {}\n",
        swaps.sum.as_secs_f64()
    ));
    page.line(format_args!("ballast_swap_seconds_count {}\n", swaps.count));
}

fn frontends(page: &mut Page, shared: &Shared) {
    let plan = shared.live.plan();
    let sum = |frontend: &Frontend, cell: &dyn Fn(&FrontendCounters) -> &Cell| {
        frontend.state().counters().sum(cell)
    };
    page.family(
        "ballast_connections_refused_total",
        "counter",
        "Clients that were turned away, by reason.",
    );
    for frontend in plan.frontends() {
        for refusal in Refusal::ALL {
            let count = sum(frontend, &|counters| &counters.refused[refusal.index()]);
            page.line(format_args!(
                "ballast_connections_refused_total{{frontend=\"{}\",reason=\"{refusal}\"}} {count}\n",
                frontend.name()
            ));
        }
    }
    page.family(
        "ballast_proxy_header_errors_total",
        "counter",
        "Trusted peers without a good PROXY header, by reason.",
    );
    for frontend in plan
        .frontends()
        .iter()
        .filter(|frontend| frontend.accept_proxy().is_some())
    {
        let (bad, late) = (
            sum(frontend, &|counters| &counters.bad_headers),
            sum(frontend, &|counters| &counters.late_headers),
        );
        for (reason, count) in [("bad-header", bad), ("timeout", late)] {
            page.line(format_args!(
                "ballast_proxy_header_errors_total{{frontend=\"{}\",reason=\"{reason}\"}} {count}\n",
                frontend.name()
            ));
        }
    }
    for (name, kind, help, cell) in FRONTEND_FAMILIES {
        page.family(name, kind, help);
        for frontend in plan.frontends() {
            let count = sum(frontend, &cell);
            page.line(format_args!(
                "{name}{{proxy=\"{}\"}} {count}\n",
                frontend.name()
            ));
        }
    }
    page.family(
        "haproxy_frontend_current_sessions",
        "gauge",
        "Connections now.",
    );
    for frontend in plan.frontends() {
        let current = frontend.state().admit().current();
        page.line(format_args!(
            "haproxy_frontend_current_sessions{{proxy=\"{}\"}} {current}\n",
            frontend.name()
        ));
    }
}

type FrontendCell = fn(&FrontendCounters) -> &Cell;

const FRONTEND_FAMILIES: [(&str, &str, &str, FrontendCell); 4] = [
    (
        "haproxy_frontend_connections_total",
        "counter",
        "Connections accepted.",
        |counters| &counters.connections,
    ),
    (
        "haproxy_frontend_sessions_total",
        "counter",
        "Connections let in.",
        |counters| &counters.sessions,
    ),
    (
        "haproxy_frontend_bytes_in_total",
        "counter",
        "Bytes from clients.",
        |counters| &counters.bytes_in,
    ),
    (
        "haproxy_frontend_bytes_out_total",
        "counter",
        "Bytes to clients.",
        |counters| &counters.bytes_out,
    ),
];

fn services(page: &mut Page, shared: &Shared) {
    let plan = shared.live.plan();
    page.family(
        "ballast_service_panic",
        "gauge",
        "1 while checks are ignored, because those of all endpoints fail.",
    );
    for service in plan.services() {
        let panic = u8::from(service.is_panicking());
        page.line(format_args!(
            "ballast_service_panic{{service=\"{}\"}} {panic}\n",
            service.state().name()
        ));
    }
    page.family(
        "ballast_queue_waiting",
        "gauge",
        "Clients that wait for a full service.",
    );
    for service in plan.services() {
        let waiting = service.state().queue().len();
        page.line(format_args!(
            "ballast_queue_waiting{{service=\"{}\"}} {waiting}\n",
            service.state().name()
        ));
    }
    page.family(
        "ballast_ejections_total",
        "counter",
        "Endpoints kept out because they could not be reached, by reason.",
    );
    for service in plan.services() {
        for reason in EjectionReason::ALL {
            let count = service.state().ejections(reason);
            page.line(format_args!(
                "ballast_ejections_total{{service=\"{}\",reason=\"{}\"}} {count}\n",
                service.state().name(),
                reason.word()
            ));
        }
    }
}

fn process(page: &mut Page, shared: &Shared) {
    page.family(
        "ballast_accept_errors_total",
        "counter",
        "Failed accepts by the system's error number.",
    );
    let errors = shared
        .accept_errors
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    for (errno, count) in errors {
        page.line(format_args!(
            "ballast_accept_errors_total{{errno=\"{errno}\"}} {count}\n"
        ));
    }
    page.family(
        "ballast_spliced_bytes_total",
        "counter",
        "Bytes that went from socket to socket without a copy.",
    );
    page.line(format_args!(
        "ballast_spliced_bytes_total {}\n",
        shared
            .counters
            .sum(|counters: &WorkerCounters| &counters.spliced)
    ));
    page.family(
        "ballast_task_panics_total",
        "counter",
        "Tasks that ended in a panic.",
    );
    page.line(format_args!("ballast_task_panics_total {}\n", panics()));
    let collector = prometheus::process_collector::ProcessCollector::for_self();
    let families = prometheus::core::Collector::collect(&collector);
    let text = prometheus::TextEncoder::new().encode_to_string(&families);
    page.0.push_str(&text.unwrap_or_default());
}
