//! What this process counts, as Prometheus reads it. Written by every part, rendered by [`crate::admin`].

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::decide::{Desired, Reason, Verdict};
use crate::log;

/// Every counter and gauge.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    decisions: AtomicU64,
    decided_micros: AtomicU64,
    last_micros: AtomicU64,
    tables: AtomicU64,
    table_bytes: AtomicU64,
    files: AtomicU64,
    failed_writes: AtomicU64,
    refused: AtomicU64,
    is_refused: AtomicBool,
    leads: AtomicBool,
    dataplane: AtomicBool,
    statuses: AtomicU64,
    events: AtomicU64,
    unsaid: AtomicU64,
    left_out: AtomicU64,
    verdicts: Mutex<BTreeMap<&'static str, usize>>,
    api_errors: Mutex<BTreeMap<String, u64>>,
}

impl Metrics {
    pub(crate) fn decided(&self, took: Duration, desired: &Desired) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.decisions.fetch_add(1, Ordering::Relaxed);
        self.decided_micros.fetch_add(micros, Ordering::Relaxed);
        self.last_micros.store(micros, Ordering::Relaxed);
        let notices = desired.notices.iter().chain(&desired.report.notices);
        let left_out = notices.filter(|notice| notice.reason == Reason::LeftOut);
        let left_out = u64::try_from(left_out.count()).unwrap_or(u64::MAX);
        self.left_out.store(left_out, Ordering::Relaxed);
        let mut verdicts = BTreeMap::from(VERDICTS.map(|verdict| (verdict, 0)));
        for status in &desired.statuses {
            *verdicts.entry(word(status.verdict)).or_default() += 1;
        }
        *self.verdicts.lock().unwrap_or_else(PoisonError::into_inner) = verdicts;
    }

    pub(crate) fn has_decided(&self) -> bool {
        self.decisions.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn table_written(&self, bytes: usize) {
        self.tables.fetch_add(1, Ordering::Relaxed);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.table_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn files_written(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn write_failed(&self) {
        self.failed_writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn table_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn table_is_refused(&self, is_refused: bool) {
        self.is_refused.store(is_refused, Ordering::Relaxed);
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    pub(crate) fn dataplane(&self, is_ready: bool) {
        self.dataplane.store(is_ready, Ordering::Relaxed);
    }

    pub(crate) fn status_written(&self) {
        self.statuses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn event_told(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn event_unsaid(&self) {
        self.unsaid.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what the API server answered, or that it did not.
    pub(crate) fn api_failed(&self, error: &kube::Error) {
        let kind = match error {
            kube::Error::Api(status) => status.code.to_string(),
            _ => "unreachable".to_owned(),
        };
        let mut errors = self
            .api_errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *errors.entry(kind).or_default() += 1;
    }

    /// All of it.
    pub(crate) fn render(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
        let seconds = |micros: &AtomicU64| {
            let micros = micros.load(Ordering::Relaxed);
            format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
        };
        let flag = |flag: &AtomicBool| u8::from(flag.load(Ordering::Relaxed)).to_string();
        let mut text = String::new();
        for (name, kind, help, value) in [
            (
                "decisions_total",
                "counter",
                "Decisions.",
                count(&self.decisions),
            ),
            (
                "decision_seconds_total",
                "counter",
                "Time that they took.",
                seconds(&self.decided_micros),
            ),
            (
                "last_decision_seconds",
                "gauge",
                "Time that the last one took.",
                seconds(&self.last_micros),
            ),
            (
                "tables_written_total",
                "counter",
                "Tables that were written.",
                count(&self.tables),
            ),
            (
                "table_bytes",
                "gauge",
                "Size of the last one that was written.",
                count(&self.table_bytes),
            ),
            (
                "files_written_total",
                "counter",
                "Times that files beside an unchanged table were written.",
                count(&self.files),
            ),
            (
                "write_errors_total",
                "counter",
                "Times that the table, or one of its files, could not be written.",
                count(&self.failed_writes),
            ),
            (
                "tables_refused_total",
                "counter",
                "Tables that the data plane refused.",
                count(&self.refused),
            ),
            (
                "table_refused",
                "gauge",
                "Whether the data plane refuses the newest table, and serves the one before.",
                flag(&self.is_refused),
            ),
            (
                "leader",
                "gauge",
                "Whether this process writes statuses and events.",
                flag(&self.leads),
            ),
            (
                "dataplane_ready",
                "gauge",
                "Whether the data plane of this node says that it is ready.",
                flag(&self.dataplane),
            ),
            (
                "status_writes_total",
                "counter",
                "Patches of Services.",
                count(&self.statuses),
            ),
            (
                "events_total",
                "counter",
                "Events that were told.",
                count(&self.events),
            ),
            (
                "events_unsaid_total",
                "counter",
                "Events that were too many.",
                count(&self.unsaid),
            ),
            (
                "services_left_out",
                "gauge",
                "Services that are left out of the table, so that they harm no other.",
                count(&self.left_out),
            ),
            (
                "log_lines_dropped_total",
                "counter",
                "Lines of the log that were not read, or not written.",
                log::lost().to_string(),
            ),
            (
                "panics_total",
                "counter",
                "Panics: each is a fault of Ballast's.",
                log::panics().to_string(),
            ),
        ] {
            head(&mut text, name, kind, help);
            line(&mut text, format_args!("ballast_controller_{name} {value}"));
        }
        head(
            &mut text,
            "services",
            "gauge",
            "Services by what became of them.",
        );
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        for (verdict, services) in &*verdicts {
            line(
                &mut text,
                format_args!("ballast_controller_services{{verdict=\"{verdict}\"}} {services}"),
            );
        }
        head(
            &mut text,
            "api_errors_total",
            "counter",
            "Requests that the API server refused, by its code, or did not answer.",
        );
        let errors = self
            .api_errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (kind, errors) in &*errors {
            line(
                &mut text,
                format_args!("ballast_controller_api_errors_total{{kind=\"{kind}\"}} {errors}"),
            );
        }
        text
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(
        text,
        format_args!("# HELP ballast_controller_{name} {help}"),
    );
    line(
        text,
        format_args!("# TYPE ballast_controller_{name} {kind}"),
    );
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // A String takes everything.
    _ = writeln!(text, "{arguments}");
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Served => "served",
        Verdict::Pending => "pending",
        Verdict::Routed => "routed",
        Verdict::Released => "released",
        Verdict::LeftAlone => "left-alone",
    }
}

const VERDICTS: [&str; 5] = ["served", "pending", "routed", "released", "left-alone"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_name_with_a_number() {
        let metrics = Metrics::default();
        metrics.leads(true);
        metrics.table_written(12);
        metrics.api_failed(&kube::Error::TlsRequired);
        let text = metrics.render();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("ballast_controller_"), "{line}");
            value.parse::<f64>().unwrap();
        }
        assert!(text.contains("ballast_controller_leader 1\n"));
        assert!(text.contains("kind=\"unreachable\"} 1\n"));
    }
}
