//! The metrics of this process, for Prometheus. Written by every part, rendered by [`crate::admin`].

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::decide::{Desired, PoolRow, Reason, Verdict};
use crate::log;

/// Every counter and gauge.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    decisions: IntCounter,
    decision_seconds: Counter,
    last_decision_seconds: Gauge,
    left_out: IntGauge,
    services: IntGaugeVec,
    pool_addresses: GaugeVec,
    api_errors: IntCounterVec,
    pub(crate) tables: IntCounter,
    pub(crate) table_bytes: IntGauge,
    pub(crate) files: IntCounter,
    pub(crate) failed_writes: IntCounter,
    bad_manifests: IntGauge,
    pub(crate) tables_refused: IntCounter,
    pub(crate) table_refused: IntGauge,
    pub(crate) leader: IntGauge,
    pub(crate) silent_nodes: IntGauge,
    pub(crate) dataplane: IntGauge,
    pub(crate) statuses: IntCounter,
    pub(crate) events: IntCounter,
    pub(crate) events_unsaid: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        let new = Declarations(Registry::new());
        let seconds = opts(
            "decision_seconds_total",
            "Processor time that decisions took.",
        );
        let last_seconds = opts(
            "last_decision_seconds",
            "Processor time that the last decision took.",
        );
        let services = opts("services", "Services by the decision about them.");
        let help = "Requests that the API server refused, by its code, or did not answer.";
        let api_errors = opts("api_errors_total", help);
        Self {
            decisions: new.counter(
                "decisions_total",
                "Decisions about what is served and published.",
            ),
            decision_seconds: new.metric(Counter::with_opts(seconds)),
            last_decision_seconds: new.metric(Gauge::with_opts(last_seconds)),
            tables: new.counter("tables_written_total", "Tables that were written."),
            table_bytes: new.gauge("table_bytes", "Size of the last table that was written."),
            files: new.counter(
                "files_written_total",
                "Times that files beside an unchanged table were written.",
            ),
            failed_writes: new.counter(
                "write_errors_total",
                "Times that the table, or one of its files, could not be written.",
            ),
            bad_manifests: new.gauge(
                "bad_manifests",
                "Files of --manifests that cannot be read as a whole.",
            ),
            tables_refused: new.counter(
                "tables_refused_total",
                "Tables that the data plane refused.",
            ),
            table_refused: new.gauge(
                "table_refused",
                "Whether the data plane refuses the newest table, and serves the one before.",
            ),
            silent_nodes: new.metric(IntGauge::with_opts(Opts::new(
                "ballast_publisher_silent_nodes",
                "Load balancer nodes whose Leases have lapsed.",
            ))),
            leader: new.gauge("leader", "Whether this process writes statuses and events."),
            dataplane: new.gauge(
                "dataplane_ready",
                "Whether the data plane of this node says that it is ready.",
            ),
            statuses: new.counter("status_writes_total", "Patches of Services."),
            events: new.counter(
                "events_total",
                "Events that were written to the API server.",
            ),
            events_unsaid: new.counter(
                "events_unsaid_total",
                "Events that were not written: they were too many, or the API server refused them.",
            ),
            pool_addresses: new.metric(GaugeVec::new(
                Opts::new(
                    "ballast_pool_addresses",
                    "Addresses of address pools, by the kind and name of the pool: used and free.",
                ),
                &["kind", "pool", "state"],
            )),
            left_out: new.gauge(
                "services_left_out",
                "Services that are left out of the table, so that they harm no other.",
            ),
            services: new.metric(IntGaugeVec::new(services, &["verdict"])),
            api_errors: new.metric(IntCounterVec::new(api_errors, &["kind"])),
            registry: new.0,
        }
    }
}

/// Creates metrics, and registers them.
struct Declarations(Registry);

impl Declarations {
    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.metric(IntCounter::with_opts(opts(name, help)))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.metric(IntGauge::with_opts(opts(name, help)))
    }

    fn metric<T: Collector + Clone + 'static>(&self, metric: prometheus::Result<T>) -> T {
        let metric = metric.and_then(|metric| {
            self.0.register(Box::new(metric.clone()))?;
            Ok(metric)
        });
        metric.expect("the names are constants, valid and distinct")
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("ballast_controller")
}

impl Metrics {
    pub(crate) fn decided(&self, took: Duration, desired: &Desired) {
        self.decisions.inc();
        self.decision_seconds.inc_by(took.as_secs_f64());
        self.last_decision_seconds.set(took.as_secs_f64());
        self.pools(&desired.pools);
        let notices = desired.notices.iter().chain(&desired.report.notices);
        let left_out =
            notices.filter(|notice| matches!(notice.reason, Reason::LeftOut | Reason::TooLarge));
        self.left_out.set(to_gauge(left_out.count()));
        for verdict in Verdict::ALL {
            let services = desired.statuses.iter();
            let services = services.filter(|status| status.verdict == verdict);
            let gauge = self.services.with_label_values(&[verdict.word()]);
            gauge.set(to_gauge(services.count()));
        }
    }

    /// How much of each pool is used, for the process that gives.
    fn pools(&self, pools: &[PoolRow]) {
        self.pool_addresses.reset();
        for PoolRow {
            name,
            source,
            status,
            ..
        } in pools
        {
            for (state, count) in [("used", status.used), ("free", status.free)] {
                let labels = [source.kind(), name, state];
                let gauge = self.pool_addresses.with_label_values(&labels);
                // IPv6 has more addresses than a float has digits.
                #[expect(clippy::cast_precision_loss, reason = "the order of magnitude counts")]
                gauge.set(count as f64);
            }
        }
    }

    /// How many files of the folder of manifests cannot be read as a whole.
    pub(crate) fn manifests_are_bad(&self, files: usize) {
        self.bad_manifests.set(to_gauge(files));
    }

    pub(crate) fn has_decided(&self) -> bool {
        self.decisions.get() > 0
    }

    pub(crate) fn table_written(&self, bytes: u64) {
        self.tables.inc();
        self.table_bytes
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a failed request by the code of the API server's answer, or as unanswered.
    pub(crate) fn api_failed(&self, error: &kube::Error) {
        let kind = match error {
            kube::Error::Api(status) => status.code.to_string(),
            _ => "unreachable".to_owned(),
        };
        self.api_errors.with_label_values(&[&kind]).inc();
    }

    /// All metrics in Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        let mut families = self.registry.gather();
        // The log counts these itself, before there are metrics.
        let mut count_of_log = |name, help, count| {
            if let Ok(counter) = IntCounter::with_opts(opts(name, help)) {
                counter.inc_by(count);
                families.extend(counter.collect());
            }
        };
        let help = "Lines of the log that were not read, or not written.";
        count_of_log("log_lines_dropped_total", help, log::lost());
        let help = "Panics: each is a fault of Ballast's.";
        count_of_log("panics_total", help, log::panics());
        let text = TextEncoder::new().encode_to_string(&families);
        text.unwrap_or_default()
    }
}

fn to_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_name_with_a_number() {
        let metrics = Metrics::default();
        metrics.leader.set(1);
        metrics.table_written(12);
        metrics.api_failed(&kube::Error::TlsRequired);
        let text = metrics.render();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let is_of_publisher = name == "ballast_publisher_silent_nodes";
            assert!(
                name.starts_with("ballast_controller_") || is_of_publisher,
                "{line}"
            );
            value.parse::<f64>().unwrap();
        }
        assert!(text.contains("ballast_controller_leader 1\n"));
        assert!(text.contains("kind=\"unreachable\"} 1\n"));
        let panics = "# HELP ballast_controller_panics_total Panics: each is a fault of Ballast's.\n# TYPE ballast_controller_panics_total counter\n";
        assert!(text.contains(panics), "{text}");
    }
}
