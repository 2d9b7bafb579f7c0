//! Families of the process: haproxy's, ours, and those that every program has.

use ballast_core::counters::Counts;
use ballast_core::text::Append;
use prometheus::TextEncoder;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;

use super::super::process::{FIELDS, VERSION};
use super::super::snapshot::Process;
use super::super::value::Value;
use super::{head, kind_of, label};
use crate::process::version::COMMIT;
use crate::worker::WorkerCounts;
use crate::worker::status::SWAP_BOUNDS;

/// All of them.
pub(super) fn write(out: &mut Vec<u8>, process: &Process) {
    haproxys(out, process);
    for (name, value, help) in OWN {
        let value = value(process);
        family(out, name, help, value.map(|value| (String::new(), value)));
    }
    swaps(out, process);
    workers(out, process);
    let errors = process.accept_errors.iter();
    let errors = errors.map(|(errno, count)| (format!("{{errno=\"{errno}\"}}"), *count));
    let help = "Failed accepts by the system's error number.";
    family(out, "ballast_accept_errors_total", help, errors);
    let families = ProcessCollector::for_self().collect();
    let text = TextEncoder::new().encode_to_string(&families);
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
}

fn haproxys(out: &mut Vec<u8>, process: &Process) {
    for field in FIELDS.iter().filter(|field| !field.metric.is_empty()) {
        let name = format!("haproxy_process_{}", field.metric);
        head(out, &name, kind_of(&name), field.help);
        write!(out, "{name} ");
        let value = field.of.map_or(Value::Level(0), |of| of(process));
        value.write(out);
        out.push(b'\n');
    }
    let (node, version) = (
        [("node", &*process.node)],
        [("version", VERSION), ("commit", COMMIT)],
    );
    for (name, labels, help) in [
        (
            "haproxy_process_node",
            &node[..],
            "The machine that it runs on.",
        ),
        (
            "haproxy_process_build_info",
            &version[..],
            "The version of haproxy whose interface this is, that of Ballast, and its commit.",
        ),
    ] {
        head(out, name, "gauge", help);
        write!(out, "{name}");
        for (place, (key, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            write!(out, "{before}{key}=\"");
            label(out, value);
            out.push(b'"');
        }
        out.extend_from_slice(b"} 1\n");
    }
}

/// A family and its series: the labels of each, and its value. Without series it is not there.
fn family(
    out: &mut Vec<u8>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (String, u64)>,
) {
    for (place, (labels, value)) in series.into_iter().enumerate() {
        if place == 0 {
            head(out, name, kind_of(name), help);
        }
        writeln!(out, "{name}{labels} {value}");
    }
}

fn swaps(out: &mut Vec<u8>, process: &Process) {
    let (name, swaps) = ("ballast_swap_seconds", &process.swaps);
    let help = "From the look at a new table to its being served.";
    head(out, name, "histogram", help);
    for (bound, count) in SWAP_BOUNDS.iter().zip(swaps.within) {
        writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}");
    }
    let (count, sum) = (swaps.count, swaps.sum.as_secs_f64());
    writeln!(
        out,
        "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}"
    );
}

/// Whether the workers have about the same to do.
fn workers(out: &mut Vec<u8>, process: &Process) {
    let all = || process.each_worker.iter().enumerate();
    let labels = |worker| format!("{{worker=\"{worker}\"}}");
    let current = all().map(|(worker, one)| (labels(worker), one.current));
    let help = "Connections that the worker serves now.";
    family(out, "ballast_worker_connections", help, current);
    for counter in WorkerCounts::COUNTERS {
        if let Some((name, help)) = counter.metric {
            let series = all().flat_map(|(worker, one)| {
                let counts = (counter.read)(&one.counts).counts.iter();
                counts.map(move |count| (labels(worker), *count))
            });
            family(out, name, help, series);
        }
    }
}

/// Lines of a name, a value and what it means.
macro_rules! own {
    ($($name:literal |$process:ident| $value:expr, $help:literal;)*) => {
        &[$(($name, |$process| $value, $help)),*]
    };
}

type OfProcess = fn(&Process) -> Option<u64>;

const OWN: &[(&str, OfProcess, &str)] = own! {
    "ballast_table_generation" |p| p.generation, "The number of the table that is served.";
    "ballast_table_applied_timestamp_seconds" |p| Some(p.applied), "When the table that is served was applied.";
    "ballast_table_refused_total" |p| Some(p.refused), "Tables that were refused.";
    "ballast_retired_plans" |p| Some(p.retired), "Earlier tables that somebody still uses.";
    "ballast_spliced_bytes_total" |p| Some(p.spliced), "Bytes that went from socket to socket without a copy.";
    "ballast_task_panics_total" |p| Some(p.panics), "Tasks that ended in a panic.";
    "ballast_access_lines_dropped_total" |p| Some(p.access_dropped), "Access lines that were not written, or not in time.";
    "ballast_log_lines_dropped_total" |p| Some(p.log_dropped), "Lines of the process's own log that were not written, or not in time.";
};
