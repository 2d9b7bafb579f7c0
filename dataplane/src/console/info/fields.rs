//! The names, and what each holds.

use super::Field;
use super::Figure::{Count, Days, Level, Text, Time};

/// Lines of name, tags and meaning, and the value where there is one.
macro_rules! fields {
    ($($name:literal $tags:ident $help:literal $($of:expr)?;)*) => {
        &[$(Field {
            name: $name,
            tags: stringify!($tags),
            help: $help,
            of: fields!(@ $($of)?),
        }),*]
    };
    (@) => { None };
    (@ $of:expr) => { Some($of) };
}

/// In haproxy's order; places count.
pub(super) const FIELDS: &[Field] = fields! {
    "Name" POS "The name of this program" |_| Text("Ballast");
    "Version" POS "Its version" |_| Text(env!("CARGO_PKG_VERSION"));
    "Release_date" POS "When that was released" |_| Text(RELEASED);
    "Nbthread" CGS "Worker threads" |p| Level(p.workers);
    "Nbproc" CGS "Processes" |_| Level(1);
    "Process_num" KGP "The number of this process among them" |_| Level(1);
    "Pid" SGP "The system's number of this process" |p| Level(p.pid);
    "Uptime" MDP "For how long it runs" |p| Days(p.uptime);
    "Uptime_sec" MDP "The same in seconds" |p| Time(p.uptime);
    "Memmax_MB" CLP "A limit of memory; 0: none" |_| Level(0);
    "PoolAlloc_MB" MGP "";
    "PoolUsed_MB" MGP "";
    "PoolFailed" MCP "";
    "Ulimit-n" CLP "Descriptors that there may be" |p| Count(p.descriptors);
    "Maxsock" CLP "Sockets that there may be" |p| Count(p.descriptors);
    "Maxconn" CLP "The most connections that there may be at once" |p| Level(p.limit);
    "Hard_maxconn" CLP "The same" |p| Level(p.limit);
    "CurrConns" MGP "Connections now" |p| Level(p.current);
    "CumConns" MCP "Connections that were accepted" |p| Count(p.connections);
    "CumReq" MCP "Sessions, each of which is one request where no HTTP is spoken" |p| Count(p.sessions);
    "MaxSslConns" CLP "The most TLS connections at once; 0: no limit of their own" |_| Level(0);
    "CurrSslConns" MGP "TLS connections now" |_| Level(0);
    "CumSslConns" MCP "TLS connections in all" |_| Count(0);
    "Maxpipes" CLP "Pipes that there may be, for bytes that go from socket to socket without a copy" |p| Level(p.most_pipes);
    "PipesUsed" MGP "Pipes in use" |p| Level(p.pipes_used);
    "PipesFree" MGP "Pipes that are open and wait for use" |p| Level(p.pipes_free);
    "ConnRate" MRP "Connections in the last second" |p| Level(p.connection_rate.now);
    "ConnRateLimit" CLP "The most connections in a second; 0: no limit" |_| Level(0);
    "MaxConnRate" MMP "The most connections that there were in a second" |p| Level(p.connection_rate.max);
    "SessRate" MRP "Sessions in the last second" |p| Level(p.session_rate.now);
    "SessRateLimit" CLP "The most sessions in a second; 0: no limit" |_| Level(0);
    "MaxSessRate" MMP "The most sessions that there were in a second" |p| Level(p.session_rate.max);
    "SslRate" MRP "TLS sessions in the last second" |_| Level(0);
    "SslRateLimit" CLP "The most TLS sessions in a second; 0: no limit" |_| Level(0);
    "MaxSslRate" MMP "The most TLS sessions that there were in a second" |_| Level(0);
    "SslFrontendKeyRate" MRP "";
    "SslFrontendMaxKeyRate" MMP "";
    "SslFrontendSessionReuse_pct" MGP "";
    "SslBackendKeyRate" MRP "";
    "SslBackendMaxKeyRate" MMP "";
    "SslCacheLookups" MCP "";
    "SslCacheMisses" MCP "";
    "CompressBpsIn" MRP "";
    "CompressBpsOut" MRP "";
    "CompressBpsRateLim" CLP "";
    "ZlibMemUsage" MGP "";
    "MaxZlibMemUsage" CLP "";
    "Tasks" MGP "Tasks of all threads; each connection is one" |p| Level(p.tasks);
    "Run_queue" MGP "Tasks that were woken by another thread and have not run yet" |p| Level(p.ready_tasks);
    "Idle_pct" MaP "How much of the workers' time is left, in percent" |p| Level(p.idle);
    "node" COS "The machine that it runs on" |p| Text(&p.node);
    "description" COS "";
    "Stopping" SGP "1 once the end has begun" |p| Level(p.is_stopping.into());
    "Jobs" MGP "Connections and listening addresses" |p| Level(p.current.saturating_add(p.listening));
    "Unstoppable Jobs" MGP "Those of them that would outlive the end" |_| Level(0);
    "Listeners" MGP "Addresses that it listens at" |p| Level(p.listening);
    "ActivePeers" MGP "Peers that tables are shared with" |_| Level(0);
    "ConnectedPeers" MGP "Those of them that are connected" |_| Level(0);
    "DroppedLogs" MCP "Access lines that could not be written in time" |p| Count(p.access_dropped);
    "BusyPolling" SGP "Whether it polls instead of waiting" |_| Level(0);
    "FailedResolutions" MCP "Names that could not be resolved; it resolves none" |_| Level(0);
    "TotalBytesOut" MCP "Bytes to clients" |p| Count(p.bytes_out);
    "TotalSplicedBytesOut" MCP "Bytes that went from socket to socket without a copy" |p| Count(p.spliced);
    "BytesOutRate" MRP "Bytes to clients in the last second" |p| Level(p.byte_rate.now);
    "DebugCommandsIssued" MCP "";
    "CumRecvLogs" MCP "";
    "Build info" POS "What it was built from" |_| Text(concat!("ballast ", env!("CARGO_PKG_VERSION")));
    "Memmax_bytes" CLP "A limit of memory; 0: none" |_| Level(0);
    "PoolAlloc_bytes" MGP "";
    "PoolUsed_bytes" MGP "";
    "Start_time_sec" SGP "When it began, in seconds since 1970" |p| Count(p.started);
    "Tainted" SGP "";
    "TotalWarnings" MCP "";
    "MaxconnReached" MCP "";
    "BootTime_ms" MGP "";
    "Niced_tasks" MGP "";
    "CurrStreams" MGP "Sessions now" |p| Level(p.current);
    "CumStreams" MCP "Sessions in all" |p| Count(p.sessions);
};

/// Until there is a release.
const RELEASED: &str = "unreleased";
