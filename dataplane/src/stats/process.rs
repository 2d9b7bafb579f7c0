//! What concerns the process, in haproxy's words and in haproxy's order: `show info` and the metrics `haproxy_process_*`
//! are written from this list.

use std::sync::LazyLock;

use super::snapshot::Process;
use super::value::Value::{self, Count, Days, Level, Seconds, Text};

pub(crate) struct Field {
    /// Its word in `show info`.
    pub(crate) name: &'static str,
    /// Origin, nature and scope, as haproxy's typed output abbreviates them.
    pub(crate) tags: &'static str,
    /// What its metric is called, behind `haproxy_process_`; empty: no metric.
    pub(super) metric: &'static str,
    /// What it means.
    pub(crate) help: &'static str,
    /// `None` where it means nothing here: `show info` leaves it out, but its place counts, and its metric is 0.
    pub(crate) of: Option<fn(&Process) -> Value<'_>>,
}

/// Lines of name, tags, metric and meaning, and the value where there is one.
macro_rules! fields {
    ($($name:literal $tags:ident $metric:literal $help:literal $($of:expr)?;)*) => {
        &[$(Field {
            name: $name,
            tags: stringify!($tags),
            metric: $metric,
            help: $help,
            of: fields!(@ $($of)?),
        }),*]
    };
    (@) => { None };
    (@ $of:expr) => { Some($of) };
}

static BUILT: LazyLock<String> =
    LazyLock::new(|| format!("ballast {}", *crate::process::version::VERSION));

/// Never move one, never put one in between.
pub(crate) const FIELDS: &[Field] = fields! {
    "Name" POS "" "The name of this program" |_| Text("Ballast");
    "Version" POS "" "The version of haproxy whose interface this is, and that of Ballast" |_| Text(VERSION);
    "Release_date" POS "" "When that was released" |_| Text(RELEASED);
    "Nbthread" CGS "nbthread" "Worker threads" |p| Level(p.workers);
    "Nbproc" CGS "nbproc" "Processes" |_| Level(1);
    "Process_num" KGP "relative_process_id" "The number of this process among them" |_| Level(1);
    "Pid" SGP "" "The system's number of this process" |p| Level(p.pid);
    "Uptime" MDP "" "For how long it runs" |p| Days(p.uptime);
    "Uptime_sec" MDP "uptime_seconds" "For how long it runs, in seconds" |p| Seconds(p.uptime);
    "Memmax_MB" CLP "" "A limit of memory; 0: none" |_| Level(0);
    "PoolAlloc_MB" MGP "" "";
    "PoolUsed_MB" MGP "" "";
    "PoolFailed" MCP "pool_failures_total" "Failures to get memory: it would have ended";
    "Ulimit-n" CLP "max_fds" "Descriptors that there may be" |p| Count(p.descriptors);
    "Maxsock" CLP "max_sockets" "Sockets that there may be" |p| Count(p.descriptors);
    "Maxconn" CLP "max_connections" "The most connections that there may be at once" |p| Level(p.limit);
    "Hard_maxconn" CLP "hard_max_connections" "The most connections that there may be at once" |p| Level(p.limit);
    "CurrConns" MGP "current_connections" "Connections now" |p| Level(p.current);
    "CumConns" MCP "connections_total" "Connections that were accepted" |p| Count(p.connections);
    "CumReq" MCP "requests_total" "Requests of HTTP, and sessions where no HTTP is spoken" |p| Count(p.requests);
    "MaxSslConns" CLP "max_ssl_connections" "The most TLS connections at once; 0: no limit of their own" |_| Level(0);
    "CurrSslConns" MGP "current_ssl_connections" "TLS connections now" |_| Level(0);
    "CumSslConns" MCP "ssl_connections_total" "TLS connections in all" |_| Count(0);
    "Maxpipes" CLP "max_pipes" "Pipes that there may be, for bytes that go from socket to socket without a copy" |p| Level(p.most_pipes);
    "PipesUsed" MGP "pipes_used_total" "Pipes in use" |p| Level(p.pipes_used);
    "PipesFree" MGP "pipes_free_total" "Pipes that are open and wait for use" |p| Level(p.pipes_free);
    "ConnRate" MRP "current_connection_rate" "Connections in the last second" |p| Level(p.connection_rate.now);
    "ConnRateLimit" CLP "limit_connection_rate" "The most connections in a second; 0: no limit" |_| Level(0);
    "MaxConnRate" MMP "max_connection_rate" "The most connections that there were in a second" |p| Level(p.connection_rate.max);
    "SessRate" MRP "current_session_rate" "Sessions in the last second" |p| Level(p.session_rate.now);
    "SessRateLimit" CLP "limit_session_rate" "The most sessions in a second; 0: no limit" |_| Level(0);
    "MaxSessRate" MMP "max_session_rate" "The most sessions that there were in a second" |p| Level(p.session_rate.max);
    "SslRate" MRP "current_ssl_rate" "TLS sessions in the last second" |_| Level(0);
    "SslRateLimit" CLP "limit_ssl_rate" "The most TLS sessions in a second; 0: no limit" |_| Level(0);
    "MaxSslRate" MMP "max_ssl_rate" "The most TLS sessions that there were in a second" |_| Level(0);
    "SslFrontendKeyRate" MRP "current_frontend_ssl_key_rate" "TLS keys that were agreed on with clients in the last second";
    "SslFrontendMaxKeyRate" MMP "max_frontend_ssl_key_rate" "The most TLS keys that were agreed on with clients in a second";
    "SslFrontendSessionReuse_pct" MGP "frontend_ssl_reuse" "Percent of the TLS sessions of clients that went on with an earlier one's key";
    "SslBackendKeyRate" MRP "current_backend_ssl_key_rate" "TLS keys that were agreed on with endpoints in the last second";
    "SslBackendMaxKeyRate" MMP "max_backend_ssl_key_rate" "The most TLS keys that were agreed on with endpoints in a second";
    "SslCacheLookups" MCP "ssl_cache_lookups_total" "TLS sessions that were looked for in a cache";
    "SslCacheMisses" MCP "ssl_cache_misses_total" "TLS sessions that were not found in a cache";
    "CompressBpsIn" MRP "http_comp_bytes_in_total" "Bytes given to compression, which there is none of";
    "CompressBpsOut" MRP "http_comp_bytes_out_total" "Bytes that compression gave, which there is none of";
    "CompressBpsRateLim" CLP "limit_http_comp" "The most bytes that compression may give in a second; 0: no limit";
    "ZlibMemUsage" MGP "current_zlib_memory" "Memory of compression, which there is none of";
    "MaxZlibMemUsage" CLP "max_zlib_memory" "The most memory that compression may have; 0: no limit";
    "Tasks" MGP "current_tasks" "Tasks of all threads; each connection is one" |p| Level(p.tasks);
    "Run_queue" MGP "current_run_queue" "Tasks that were woken by another thread and have not run yet" |p| Level(p.ready_tasks);
    "Idle_pct" MaP "idle_time_percent" "How much of the workers' time is left, in percent" |p| Level(p.idle);
    "node" COS "" "The machine that it runs on" |p| Text(p.node.lines().next().unwrap_or_default());
    "description" COS "" "";
    "Stopping" SGP "stopping" "1 once the end has begun" |p| Level(p.is_stopping.into());
    "Jobs" MGP "jobs" "Connections and listening addresses" |p| Level(p.current.saturating_add(p.listening));
    "Unstoppable Jobs" MGP "unstoppable_jobs" "Jobs that would outlive the end" |_| Level(0);
    "Listeners" MGP "listeners" "Addresses that it listens at" |p| Level(p.listening);
    "ActivePeers" MGP "active_peers" "Peers that tables are shared with" |_| Level(0);
    "ConnectedPeers" MGP "connected_peers" "Peers that are connected" |_| Level(0);
    "DroppedLogs" MCP "dropped_logs_total" "Access lines that could not be written in time" |p| Count(p.access_dropped);
    "BusyPolling" SGP "busy_polling_enabled" "Whether it polls instead of waiting" |_| Level(0);
    "FailedResolutions" MCP "failed_resolutions" "Names that could not be resolved; it resolves none" |_| Level(0);
    "TotalBytesOut" MCP "bytes_out_total" "Bytes to clients" |p| Count(p.bytes_out);
    "TotalSplicedBytesOut" MCP "spliced_bytes_out_total" "Bytes that went from socket to socket without a copy" |p| Count(p.spliced);
    "BytesOutRate" MRP "bytes_out_rate" "Bytes to clients in the last second" |p| Level(p.byte_rate.now);
    "DebugCommandsIssued" MCP "" "";
    "CumRecvLogs" MCP "recv_logs_total" "Log lines that it received: none";
    "Build info" POS "" "What it was built from" |_| Text(&BUILT);
    "Memmax_bytes" CLP "max_memory_bytes" "A limit of memory; 0: none" |_| Level(0);
    "PoolAlloc_bytes" MGP "" "";
    "PoolUsed_bytes" MGP "" "";
    "Start_time_sec" SGP "start_time_seconds" "When it began, in seconds since 1970" |p| Count(p.started);
    "Tainted" SGP "" "";
    "TotalWarnings" MCP "" "";
    "MaxconnReached" MCP "" "";
    "BootTime_ms" MGP "" "";
    "Niced_tasks" MGP "" "";
    "CurrStreams" MGP "" "Sessions now" |p| Level(p.current);
    "CumStreams" MCP "" "Requests of HTTP, and sessions where no HTTP is spoken" |p| Count(p.requests);
};

/// What haproxy's own tools take for haproxy's version: that of the haproxy whose interface this is. Ballast's is behind it, as
/// distributions write theirs. Tools compare the numbers in front: Ansible's module drains from 1.5 on.
pub(crate) const VERSION: &str = concat!("2.6.0-ballast-", env!("CARGO_PKG_VERSION"));

/// Until there is a release.
const RELEASED: &str = "unreleased";
