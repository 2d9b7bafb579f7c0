//! Families of the process: haproxy's, ours, and those that every program has.

use std::fmt::Write;

use prometheus::TextEncoder;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;

use super::super::snapshot::Process;
use super::super::workers::OneWorker;
use super::{head, kind_of, label};
use crate::status::SWAP_BOUNDS;

/// All of them.
pub(super) fn write(out: &mut Vec<u8>, process: &Process) {
    haproxys(out, process);
    table(out, process);
    swaps(out, process);
    workers(out, process);
    if !process.accept_errors.is_empty() {
        let name = "ballast_accept_errors_total";
        head(
            out,
            name,
            kind_of(name),
            "Failed accepts by the system's error number.",
        );
        for (errno, count) in &process.accept_errors {
            line(out, format_args!("{name}{{errno=\"{errno}\"}} {count}"));
        }
    }
    let families = ProcessCollector::for_self().collect();
    let text = TextEncoder::new().encode_to_string(&families);
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
}

fn haproxys(out: &mut Vec<u8>, process: &Process) {
    for (name, value, help) in HAPROXYS {
        let value = value(process);
        let name = format!("haproxy_process_{name}");
        head(out, &name, kind_of(&name), help);
        line(out, format_args!("{name} {value}"));
    }
    info(
        out,
        "node",
        "node",
        &process.node,
        "The machine that it runs on.",
    );
    let version = env!("CARGO_PKG_VERSION");
    info(
        out,
        "build_info",
        "version",
        version,
        "The version of this program, which is Ballast.",
    );
}

fn info(out: &mut Vec<u8>, name: &str, key: &str, value: &str, help: &str) {
    let name = format!("haproxy_process_{name}");
    head(out, &name, "gauge", help);
    line(out, format_args!("{name}{{{key}=\""));
    out.pop();
    label(out, value);
    out.extend_from_slice(b"\"} 1\n");
}

fn table(out: &mut Vec<u8>, process: &Process) {
    let generation = process.generation.map(|generation| {
        let help = "The number of the table that is served.";
        ("ballast_table_generation", generation, help)
    });
    let others = [
        (
            "ballast_table_applied_timestamp_seconds",
            process.applied,
            "When the table that is served was applied.",
        ),
        (
            "ballast_table_refused_total",
            process.refused,
            "Tables that were refused.",
        ),
        (
            "ballast_retired_plans",
            process.retired,
            "Earlier tables that somebody still uses.",
        ),
        (
            "ballast_spliced_bytes_total",
            process.spliced,
            "Bytes that went from socket to socket without a copy.",
        ),
        (
            "ballast_task_panics_total",
            process.panics,
            "Tasks that ended in a panic.",
        ),
        (
            "ballast_access_lines_dropped_total",
            process.access_dropped,
            "Access lines that were not written, or not in time.",
        ),
        (
            "ballast_log_lines_dropped_total",
            process.log_dropped,
            "Lines of the process's own log that were not written, or not in time.",
        ),
    ];
    for (name, value, help) in generation.into_iter().chain(others) {
        head(out, name, kind_of(name), help);
        line(out, format_args!("{name} {value}"));
    }
}

fn swaps(out: &mut Vec<u8>, process: &Process) {
    let (name, swaps) = ("ballast_swap_seconds", &process.swaps);
    head(
        out,
        name,
        "histogram",
        "From the look at a new table to its being served.",
    );
    for (bound, count) in SWAP_BOUNDS.iter().zip(swaps.within) {
        line(out, format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
    }
    line(
        out,
        format_args!("{name}_bucket{{le=\"+Inf\"}} {}", swaps.count),
    );
    line(out, format_args!("{name}_sum {}", swaps.sum.as_secs_f64()));
    line(out, format_args!("{name}_count {}", swaps.count));
}

fn workers(out: &mut Vec<u8>, process: &Process) {
    for (name, value, help) in OF_WORKERS {
        head(out, name, kind_of(name), help);
        for (worker, one) in process.each_worker.iter().enumerate() {
            let value = value(one);
            line(out, format_args!("{name}{{worker=\"{worker}\"}} {value}"));
        }
    }
}

fn line(out: &mut Vec<u8>, line: std::fmt::Arguments<'_>) {
    let mut text = String::new();
    // Writing into a string cannot fail.
    writeln!(text, "{line}").unwrap_or_default();
    out.extend_from_slice(text.as_bytes());
}

type OfWorker = fn(&OneWorker) -> u64;

/// Whether the workers have about the same to do.
const OF_WORKERS: [(&str, OfWorker, &str); 3] = [
    (
        "ballast_worker_connections",
        |worker| worker.current,
        "Connections that the worker serves now.",
    ),
    (
        "ballast_worker_accepted_total",
        |worker| worker.accepted,
        "Connections that the worker accepted.",
    ),
    (
        "ballast_worker_handed_over_total",
        |worker| worker.handed_over,
        "Connections that the worker accepted and gave to one that had fewer.",
    ),
];

type OfProcess = fn(&Process) -> u64;

/// haproxy's, with their values and what they mean.
const HAPROXYS: [(&str, OfProcess, &str); 57] = [
    (
        "nbthread",
        |process| process.workers.into(),
        "Worker threads.",
    ),
    ("nbproc", |_| 1, "Processes: one."),
    (
        "relative_process_id",
        |_| 1,
        "The number of this process among them.",
    ),
    (
        "uptime_seconds",
        |process| process.uptime.as_secs(),
        "For how long it runs.",
    ),
    (
        "pool_failures_total",
        |_| 0,
        "Failures to get memory: it would have ended.",
    ),
    (
        "max_fds",
        |process| process.descriptors,
        "Descriptors that there may be.",
    ),
    (
        "max_sockets",
        |process| process.descriptors,
        "Sockets that there may be.",
    ),
    (
        "max_connections",
        |process| process.limit.into(),
        "The most connections that there may be at once.",
    ),
    (
        "hard_max_connections",
        |process| process.limit.into(),
        "The same, as it was at the start.",
    ),
    (
        "current_connections",
        |process| process.current.into(),
        "Connections now.",
    ),
    (
        "connections_total",
        |process| process.connections,
        "Connections that were accepted.",
    ),
    (
        "requests_total",
        |process| process.sessions,
        "Sessions in all, each of which is one request where no HTTP is spoken.",
    ),
    (
        "max_ssl_connections",
        |_| 0,
        "The most TLS connections that there may be; 0: no limit of their own.",
    ),
    ("current_ssl_connections", |_| 0, "TLS connections now."),
    ("ssl_connections_total", |_| 0, "TLS connections in all."),
    (
        "max_pipes",
        |process| process.most_pipes.into(),
        "Pipes that there may be, for bytes that go from socket to socket without a copy.",
    ),
    (
        "pipes_used_total",
        |process| process.pipes_used.into(),
        "Pipes in use.",
    ),
    (
        "pipes_free_total",
        |process| process.pipes_free.into(),
        "Pipes that are open and wait for use.",
    ),
    (
        "current_connection_rate",
        |process| process.connection_rate.now.into(),
        "Connections in the last second.",
    ),
    (
        "limit_connection_rate",
        |_| 0,
        "The most connections that there may be in a second; 0: no limit.",
    ),
    (
        "max_connection_rate",
        |process| process.connection_rate.max.into(),
        "The most connections in a second.",
    ),
    (
        "current_session_rate",
        |process| process.session_rate.now.into(),
        "Sessions in the last second.",
    ),
    (
        "limit_session_rate",
        |_| 0,
        "The most sessions that there may be in a second; 0: no limit.",
    ),
    (
        "max_session_rate",
        |process| process.session_rate.max.into(),
        "The most sessions in a second.",
    ),
    (
        "current_ssl_rate",
        |_| 0,
        "TLS sessions in the last second.",
    ),
    (
        "limit_ssl_rate",
        |_| 0,
        "The most TLS sessions that there may be in a second; 0: no limit.",
    ),
    ("max_ssl_rate", |_| 0, "The most TLS sessions in a second."),
    (
        "current_frontend_ssl_key_rate",
        |_| 0,
        "TLS keys that were agreed on with clients in the last second.",
    ),
    (
        "max_frontend_ssl_key_rate",
        |_| 0,
        "The most TLS keys that were agreed on with clients in a second.",
    ),
    (
        "frontend_ssl_reuse",
        |_| 0,
        "Percent of the TLS sessions of clients that went on with an earlier one's key.",
    ),
    (
        "current_backend_ssl_key_rate",
        |_| 0,
        "TLS keys that were agreed on with endpoints in the last second.",
    ),
    (
        "max_backend_ssl_key_rate",
        |_| 0,
        "The most TLS keys that were agreed on with endpoints in a second.",
    ),
    (
        "ssl_cache_lookups_total",
        |_| 0,
        "TLS sessions that were looked for in a cache.",
    ),
    (
        "ssl_cache_misses_total",
        |_| 0,
        "TLS sessions that were not found in a cache.",
    ),
    (
        "http_comp_bytes_in_total",
        |_| 0,
        "Bytes given to compression, which there is none of.",
    ),
    (
        "http_comp_bytes_out_total",
        |_| 0,
        "Bytes that compression gave, which there is none of.",
    ),
    (
        "limit_http_comp",
        |_| 0,
        "The most bytes that compression may give in a second; 0: no limit.",
    ),
    (
        "current_zlib_memory",
        |_| 0,
        "Memory of compression, which there is none of.",
    ),
    (
        "max_zlib_memory",
        |_| 0,
        "The most memory that compression may have; 0: no limit.",
    ),
    (
        "current_tasks",
        |process| process.tasks.into(),
        "Tasks of all threads; each connection is one.",
    ),
    (
        "current_run_queue",
        |process| process.ready_tasks.into(),
        "Tasks that were woken by another thread and have not run yet.",
    ),
    (
        "idle_time_percent",
        |process| process.idle.into(),
        "How much of the workers' time is left.",
    ),
    (
        "stopping",
        |process| process.is_stopping.into(),
        "1 once the end has begun.",
    ),
    (
        "jobs",
        |process| u64::from(process.current) + u64::from(process.listening),
        "Connections and listening addresses.",
    ),
    (
        "unstoppable_jobs",
        |_| 0,
        "Those of them that would outlive the end: none.",
    ),
    (
        "listeners",
        |process| process.listening.into(),
        "Addresses that it listens at.",
    ),
    (
        "active_peers",
        |_| 0,
        "Peers that tables are shared with: none.",
    ),
    (
        "connected_peers",
        |_| 0,
        "Those of them that are connected: none.",
    ),
    (
        "dropped_logs_total",
        |process| process.access_dropped,
        "Access lines that could not be written in time.",
    ),
    (
        "busy_polling_enabled",
        |_| 0,
        "Whether it polls instead of waiting: no.",
    ),
    (
        "failed_resolutions",
        |_| 0,
        "Names that could not be resolved: it resolves none.",
    ),
    (
        "bytes_out_total",
        |process| process.bytes_out,
        "Bytes to clients.",
    ),
    (
        "spliced_bytes_out_total",
        |process| process.spliced,
        "Bytes that went from socket to socket without a copy.",
    ),
    (
        "bytes_out_rate",
        |process| process.byte_rate.now.into(),
        "Bytes to clients in the last second.",
    ),
    ("max_memory_bytes", |_| 0, "A limit of memory; 0: none."),
    (
        "start_time_seconds",
        |process| process.started,
        "When it began, in seconds since 1970.",
    ),
    (
        "recv_logs_total",
        |_| 0,
        "Log lines that it received: none.",
    ),
];
