//! The columns, in their order.

use std::num::NonZeroU32;

use ballast_core::endpoint::EndpointCounts;
use ballast_core::http::StatusClass;
use ballast_core::table::Algorithm;

use super::super::check::CheckStats;
use super::super::snapshot::{EndpointStats, FrontendStats, Mode, ServiceStats};
use super::super::value::Value::{self, Address, Count, Empty, Level, Signed, Status, Text};
use super::{Column, Unit, status_of};

/// Lines of name, tags, metric, unit and meaning, and then what the column holds of whom.
macro_rules! columns {
    ($($name:literal $tags:ident $metric:literal $unit:ident $help:literal { $($side:ident: $of:expr),* $(,)? })*) => {
        [$(Column {
            $($side: Some($of),)*
            ..empty($name, stringify!($tags), $metric, Unit::$unit, $help)
        }),*]
    };
}

pub(in crate::stats) static COLUMNS: [Column; 119] = columns! {
    "pxname" KNS "" Plain "The name of the frontend or service." {
        frontend: |f| Text(&f.name), backend: |b| Text(&b.name), server: |b, _| Text(&b.name) }
    "svname" KNS "" Plain "FRONTEND, BACKEND or the name of the endpoint." {
        frontend: |_| Text("FRONTEND"), backend: |_| Text("BACKEND"), server: |_, s| Text(&s.name) }
    "qcur" MGP "current_queue" Plain "Clients that wait now." {
        backend: |b| Level(b.queue), server: |_, _| Level(0) }
    "qmax" MMP "max_queue" Plain "The most clients that waited at once." {
        backend: |b| Level(b.queue_peak), server: |_, _| Level(0) }
    "scur" MGP "current_sessions" Plain "Sessions now." {
        frontend: |f| Level(f.current), backend: |b| Level(b.current), server: |_, s| Level(s.current) }
    "smax" MMP "max_sessions" Plain "The most sessions at once." {
        frontend: |f| Level(f.peak), backend: |b| Level(b.peak), server: |_, s| Level(s.peak) }
    "slim" CLP "limit_sessions" Plain "The most sessions that there may be at once." {
        frontend: |f| Level(f.limit), backend: |b| Level(b.limit), server: |_, s| Value::level_or_empty(s.limit) }
    "stot" MCP "sessions_total" Plain "Sessions in all." {
        frontend: |f| Count(f.counts.sessions), backend: |b| Count(b.own.sessions), server: |_, s| Count(s.counts.sessions) }
    "bin" MCP "bytes_in_total" Plain "Bytes from clients." {
        frontend: |f| Count(f.counts.bytes_in), backend: |b| Count(b.counts.bytes_in), server: |_, s| Count(s.counts.bytes_in) }
    "bout" MCP "bytes_out_total" Plain "Bytes to clients." {
        frontend: |f| Count(f.counts.bytes_out), backend: |b| Count(b.counts.bytes_out), server: |_, s| Count(s.counts.bytes_out) }
    "dreq" MCP "requests_denied_total" Plain "Requests that were denied." {
        frontend: |f| Count(f.counts.denied_requests), backend: |_| Count(0) }
    "dresp" MCP "responses_denied_total" Plain "Responses that were denied." {
        frontend: |_| Count(0), backend: |_| Count(0), server: |_, _| Count(0) }
    "ereq" MCP "request_errors_total" Plain "Clients that said something wrong, such as a broken PROXY header, or owed one for too long." {
        frontend: |f| Count(f.bad_requests()) }
    "econ" MCP "connection_errors_total" Plain "Failed attempts to connect; at a service also clients for whom there was nobody to try." {
        backend: |b| Count(b.counts.connect_errors + b.own.unserved), server: |_, s| Count(s.counts.connect_errors) }
    "eresp" MCP "response_errors_total" Plain "Sessions that failed on the endpoint's side." {
        backend: |b| Count(b.counts.response_errors), server: |_, s| Count(s.counts.response_errors) }
    "wretr" MCP "retry_warnings_total" Plain "Further attempts on the same endpoint, after a pause." {
        backend: |b| Count(b.counts.retries), server: |_, s| Count(s.counts.retries) }
    "wredis" MCP "redispatch_warnings_total" Plain "Clients that went on to another endpoint because one could not be reached." {
        backend: |b| Count(b.counts.redispatches), server: |_, s| Count(s.counts.redispatches) }
    "status" SGP "status" States "How it fares." {
        frontend: |f| Text(f.status_word()), backend: status_of, server: |_, s| Status(s.status) }
    "weight" MaP "weight" Plain "The share of clients; at a service that of all endpoints in use together." {
        backend: |b| Level(b.weight), server: |_, s| Level(s.weight) }
    "act" MGP "active_servers" Plain "Ready endpoints that can be used; at an endpoint whether it is no backup." {
        backend: |b| Level(b.usable), server: |_, s| Level((!s.is_backup).into()) }
    "bck" MGP "backup_servers" Plain "Backup endpoints that can be used; at an endpoint whether it is one." {
        backend: |b| Level(b.usable_backups), server: |_, s| Level(s.is_backup.into()) }
    "chkfail" MCP "check_failures_total" Plain "Checks that failed while the endpoint was up." {
        server: |_, s| of_check(s, |_| Count(s.counts.check_failures)) }
    "chkdown" MCP "check_up_down_total" Plain "How often it went from up to down." {
        backend: |b| Count(b.own.downs), server: |_, s| of_check(s, |_| Count(s.counts.downs)) }
    "lastchg" MAP "check_last_change_seconds" Plain "Seconds since it came up or went down." {
        backend: |b| Level(b.changed), server: |_, s| Level(s.changed) }
    "downtime" MCP "downtime_seconds_total" Plain "Seconds that it was down in all." {
        backend: |b| Value::level(b.own.downtime), server: |_, s| of_check(s, |_| Value::level(s.counts.downtime)) }
    "qlimit" CLS "queue_limit" Plain "The most clients that may wait for this endpoint alone." { server: |_, _| Empty }
    "pid" KGP "" Plain "1: there is one process." {
        frontend: |_| Level(1), backend: |_| Level(1), server: |_, _| Level(1) }
    "iid" KGS "" Plain "The number of the frontend or service." {
        frontend: |f| Level(f.iid), backend: |b| Level(b.iid), server: |b, _| Level(b.iid) }
    "sid" KGS "" Plain "The number of the endpoint within its service." {
        frontend: |_| Level(0), backend: |_| Level(0), server: |_, s| Level(s.sid) }
    "throttle" MaP "current_throttle" Plain "Percent of its weight that an endpoint has reached in slow start." {
        server: |_, s| Value::level_or_empty(s.growth.map(u32::from)) }
    "lbtot" MCP "loadbalanced_total" Plain "How often it was chosen." {
        backend: |b| Count(b.counts.picked), server: |_, s| Count(s.counts.picked) }
    "tracked" CNS "" Plain "The endpoint whose state this one shares." {}
    "type" CGS "" Plain "0: frontend, 1: service, 2: endpoint." {
        frontend: |_| Level(0), backend: |_| Level(1), server: |_, _| Level(2) }
    "rate" MRP "current_session_rate" Plain "Sessions in the last second." {
        frontend: |f| Level(f.session_rate.now), backend: |b| Level(b.session_rate.now), server: |_, s| Level(s.session_rate.now) }
    "rate_lim" CLP "limit_session_rate" Plain "The most sessions that there may be in a second; 0: no limit." {
        frontend: |f| Level(f.spec.max_connection_rate.map_or(0, NonZeroU32::get)) }
    "rate_max" MMP "max_session_rate" Plain "The most sessions in a second." {
        frontend: |f| Level(f.session_rate.max), backend: |b| Level(b.session_rate.max), server: |_, s| Level(s.session_rate.max) }
    "check_status" MOP "check_status" States "The result of the last check." {
        server: |_, s| s.check.as_deref().filter(|c| !c.result.is_empty()).map_or(Empty, Value::Check) }
    "check_code" MOP "check_code" IfAny "The HTTP status of the last check." {
        server: |_, s| of_check(s, |c| Value::level_or_empty(c.code.map(u32::from))) }
    "check_duration" MDP "check_duration_seconds" Millis "How long the last check took." {
        server: |_, s| of_check(s, |c| Count(c.took)) }
    "hrsp_1xx" MCP "http_responses_total" Classes "HTTP responses 100 to 199." {
        frontend: |f| frontend_responses(f, StatusClass::Informational), backend: |b| responses(b, &b.counts, StatusClass::Informational), server: |b, s| responses(b, &s.counts, StatusClass::Informational) }
    "hrsp_2xx" MCP "" Http "HTTP responses 200 to 299." {
        frontend: |f| frontend_responses(f, StatusClass::Successful), backend: |b| responses(b, &b.counts, StatusClass::Successful), server: |b, s| responses(b, &s.counts, StatusClass::Successful) }
    "hrsp_3xx" MCP "" Http "HTTP responses 300 to 399." {
        frontend: |f| frontend_responses(f, StatusClass::Redirection), backend: |b| responses(b, &b.counts, StatusClass::Redirection), server: |b, s| responses(b, &s.counts, StatusClass::Redirection) }
    "hrsp_4xx" MCP "" Http "HTTP responses 400 to 499." {
        frontend: |f| frontend_responses(f, StatusClass::ClientError), backend: |b| responses(b, &b.counts, StatusClass::ClientError), server: |b, s| responses(b, &s.counts, StatusClass::ClientError) }
    "hrsp_5xx" MCP "" Http "HTTP responses 500 to 599." {
        frontend: |f| frontend_responses(f, StatusClass::ServerError), backend: |b| responses(b, &b.counts, StatusClass::ServerError), server: |b, s| responses(b, &s.counts, StatusClass::ServerError) }
    "hrsp_other" MCP "" Http "Other HTTP responses." {
        frontend: |f| frontend_responses(f, StatusClass::Other), backend: |b| responses(b, &b.counts, StatusClass::Other), server: |b, s| responses(b, &s.counts, StatusClass::Other) }
    "hanafail" MCP "" Plain "Failures seen by watching traffic." {}
    "req_rate" MRP "" Http "HTTP requests in the last second." {
        frontend: |f| if_http(f.mode, Level(f.request_rate.now)) }
    "req_rate_max" MMP "http_requests_rate_max" Http "The most HTTP requests in a second." {
        frontend: |f| if_http(f.mode, Level(f.request_rate.max)) }
    "req_tot" MCP "http_requests_total" Http "HTTP requests in all; at an endpoint those that it answered." {
        frontend: |f| if_http(f.mode, Count(f.counts.requests)), backend: |b| if_http(b.mode, Count(b.own.sessions)),
        server: |b, s| if_http(b.mode, Count(s.counts.responses.iter().sum())) }
    "cli_abrt" MCP "client_aborts_total" Plain "Sessions that the client cut." {
        backend: |b| Count(b.counts.client_aborts), server: |_, s| Count(s.counts.client_aborts) }
    "srv_abrt" MCP "server_aborts_total" Plain "Sessions that the endpoint cut." {
        backend: |b| Count(b.counts.server_aborts), server: |_, s| Count(s.counts.server_aborts) }
    "comp_in" MCP "http_comp_bytes_in_total" Http "Bytes given to compression, which there is none of." {
        frontend: |_| Count(0), backend: |_| Count(0) }
    "comp_out" MCP "http_comp_bytes_out_total" Http "Bytes that compression gave, which there is none of." {
        frontend: |_| Count(0), backend: |_| Count(0) }
    "comp_byp" MCP "http_comp_bytes_bypassed_total" Http "Bytes that passed compression by, which there is none of." {
        frontend: |_| Count(0), backend: |_| Count(0) }
    "comp_rsp" MCP "http_comp_responses_total" Http "Responses that were compressed: none." {
        frontend: |_| Count(0), backend: |_| Count(0) }
    "lastsess" MAP "last_session_seconds" Plain "Seconds since the last session began; -1: there was none." {
        backend: |b| Signed(b.idle), server: |_, s| Signed(s.idle) }
    "last_chk" MOP "" Plain "What was said at the last check." {
        server: |_, s| of_check(s, |c| Value::text_or_empty(&c.said)) }
    "last_agt" MOP "" Plain "What was said at the last check by an agent." {}
    "qtime" MaP "queue_time_average_seconds" Millis "How long recent sessions waited, on average." {
        backend: |b| Level(b.means.queue), server: |_, s| Level(s.means.queue) }
    "ctime" MaP "connect_time_average_seconds" Millis "How long it took to connect recent sessions, on average." {
        backend: |b| Level(b.means.connect), server: |_, s| Level(s.means.connect) }
    "rtime" MaP "response_time_average_seconds" Millis "How long recent HTTP responses took to begin, on average; 0 where no HTTP is spoken." {
        backend: |b| Level(b.means.response), server: |_, s| Level(s.means.response) }
    "ttime" MaP "total_time_average_seconds" Millis "How long recent sessions took from accept to end, on average." {
        backend: |b| Level(b.means.total), server: |_, s| Level(s.means.total) }
    "agent_status" MOP "" Plain "The result of the last check by an agent." {}
    "agent_code" MOP "" Plain "The code of the last check by an agent." {}
    "agent_duration" MDP "" Millis "How long the last check by an agent took." {}
    "check_desc" MOP "" Plain "What the result of the last check means." {
        server: |_, s| of_check(s, |c| Value::text_or_empty(c.meaning)) }
    "agent_desc" MOP "" Plain "What the result of the last check by an agent means." {}
    "check_rise" CGS "" Plain "Passed checks in a row that make an endpoint up." {
        server: |_, s| of_check(s, |c| Level(c.rise.into())) }
    "check_fall" CGS "" Plain "Failed checks in a row that make an endpoint down." {
        server: |_, s| of_check(s, |c| Level(c.fall.into())) }
    "check_health" CGS "" Plain "From 0 to rise + fall - 1, and up from rise on." {
        server: |_, s| of_check(s, |c| Level(c.health.into())) }
    "agent_rise" CGS "" Plain "The same as check_rise, for an agent." {}
    "agent_fall" CGS "" Plain "The same as check_fall, for an agent." {}
    "agent_health" CGS "" Plain "The same as check_health, for an agent." {}
    "addr" CNS "" Plain "Where the endpoint is." { server: |_, s| Address(s.address) }
    "cookie" CNS "" Plain "The endpoint's cookie." {}
    "mode" CGS "" Plain "tcp, http or udp." {
        frontend: |f| Text(f.mode.word()), backend: |b| Text(b.mode.word()), server: |b, _| Text(b.mode.word()) }
    "algo" CGS "" Plain "How an endpoint is chosen." { backend: |b| Text(algorithm(b.spec.algorithm)) }
    "conn_rate" MRP "" Plain "Connections in the last second." { frontend: |f| Level(f.connection_rate.now) }
    "conn_rate_max" MMP "connections_rate_max" Plain "The most connections in a second." {
        frontend: |f| Level(f.connection_rate.max) }
    "conn_tot" MCP "connections_total" Plain "Connections that were accepted." { frontend: |f| Count(f.counts.connections) }
    "intercepted" MCP "intercepted_requests_total" Http "Requests that Ballast answered itself." {
        frontend: |f| Count(f.counts.intercepted), backend: |_| Count(0) }
    "dcon" MCP "denied_connections_total" Plain "Connections that source ranges or limits did not let in." {
        frontend: |f| Count(f.denied()) }
    "dses" MCP "denied_sessions_total" Plain "Sessions that were denied after they were let in." { frontend: |_| Count(0) }
    "wrew" MCP "failed_header_rewriting_total" Plain "Header edits that failed." {
        frontend: |_| Count(0), backend: |_| Count(0), server: |_, _| Count(0) }
    "connect" MCP "connection_attempts_total" Plain "Attempts to connect." {
        backend: |b| Count(b.counts.dials), server: |_, s| Count(s.counts.dials) }
    "reuse" MCP "connection_reuses_total" Plain "Connections that were used again." {
        backend: |b| Count(b.counts.reuses), server: |_, s| Count(s.counts.reuses) }
    "cache_lookups" MCP "" Http "Looks into a cache, which there is none of." {}
    "cache_hits" MCP "" Http "Answers from a cache, which there is none of." {}
    "srv_icur" MGP "idle_connections_current" Plain "Connections that wait to be used again." { server: |_, s| Level(s.idle_safe + s.idle_unsafe) }
    "src_ilim" CLP "idle_connections_limit" Plain "The most connections that may wait to be used again." { server: |_, _| Empty }
    "qtime_max" MMP "max_queue_time_seconds" Millis "The longest that anybody waited." {
        backend: |b| Count(b.counts.queue_ms_max), server: |_, s| Count(s.counts.queue_ms_max) }
    "ctime_max" MMP "max_connect_time_seconds" Millis "The longest that it took to connect." {
        backend: |b| Count(b.counts.connect_ms_max), server: |_, s| Count(s.counts.connect_ms_max) }
    "rtime_max" MMP "max_response_time_seconds" Millis "The longest that an HTTP response took to begin; 0 where no HTTP is spoken." {
        backend: |b| Count(b.counts.response_ms_max), server: |_, s| Count(s.counts.response_ms_max) }
    "ttime_max" MMP "max_total_time_seconds" Millis "The longest session, from accept to end." {
        backend: |b| Count(b.counts.total_ms_max), server: |_, s| Count(s.counts.total_ms_max) }
    "eint" MCP "internal_errors_total" Plain "Errors of our own." {
        frontend: |_| Count(0), backend: |_| Count(0), server: |_, _| Count(0) }
    "idle_conn_cur" MGP "unsafe_idle_connections_current" Plain "Waiting connections that not every request may use." { server: |_, s| Level(s.idle_unsafe) }
    "safe_conn_cur" MGP "safe_idle_connections_current" Plain "Waiting connections that any request may use." { server: |_, s| Level(s.idle_safe) }
    "used_conn_cur" MGP "used_connections_current" Plain "Connections in use." { server: |_, s| Level(s.current) }
    "need_conn_est" MGP "need_connections_current" Plain "Connections that are needed, as far as can be told." { server: |_, s| Level(s.current) }
    "uweight" MaP "uweight" Plain "The weight that was asked for; at a service that of all endpoints in use together." {
        backend: |b| Level(b.user_weight), server: |_, s| Level(s.user_weight) }
    "agg_server_status" MGP "agg_server_status" States "Endpoints in each state." { backend: |_| Empty }
    "agg_server_check_status" MGP "agg_server_check_status" States "The same, under its former name." { backend: |_| Empty }
    "agg_check_status" MGP "agg_check_status" States "Endpoints by the result of their last check." { backend: |_| Empty }
    "srid" KGS "" Plain "How often the endpoint's number was given anew." { server: |_, _| Level(0) }
    "sess_other" MCP "" Http "Sessions without HTTP at a frontend with HTTP." { frontend: |f| if_http(f.mode, Count(0)) }
    "h1sess" MCP "" Http "Sessions with HTTP/1." { frontend: |f| if_http(f.mode, Count(f.counts.http_sessions.saturating_sub(f.counts.http2_sessions))) }
    "h2sess" MCP "" Http "Sessions with HTTP/2." { frontend: |f| if_http(f.mode, Count(f.counts.http2_sessions)) }
    "h3sess" MCP "" Http "Sessions with HTTP/3." {}
    "req_other" MCP "" Http "Requests in none of the known versions." { frontend: |f| if_http(f.mode, Count(0)) }
    "h1req" MCP "" Http "Requests in HTTP/1." { frontend: |f| if_http(f.mode, Count(f.counts.requests.saturating_sub(f.counts.http2_requests))) }
    "h2req" MCP "" Http "Requests in HTTP/2." { frontend: |f| if_http(f.mode, Count(f.counts.http2_requests)) }
    "h3req" MCP "" Http "Requests in HTTP/3." {}
    "proto" CNS "" Plain "What a listener speaks." {}
    "priv_idle_cur" MGP "private_idle_connections_current" Plain "Waiting connections that belong to one client." { server: |_, s| Level(s.idle_private) }
    "reqbin" MCP "req_bytes_in_total" Plain "Bytes of requests that came in." {
        frontend: |f| Count(f.counts.bytes_in), backend: |b| Count(b.counts.bytes_in), server: |_, s| Count(s.counts.bytes_in) }
    "reqbout" MCP "req_bytes_out_total" Plain "Bytes of requests that went out." {
        frontend: |f| Count(f.counts.bytes_in), backend: |b| Count(b.counts.bytes_in), server: |_, s| Count(s.counts.bytes_in) }
    "resbin" MCP "res_bytes_in_total" Plain "Bytes of responses that came in." {
        frontend: |f| Count(f.counts.bytes_out), backend: |b| Count(b.counts.bytes_out), server: |_, s| Count(s.counts.bytes_out) }
    "resbout" MCP "res_bytes_out_total" Plain "Bytes of responses that went out." {
        frontend: |f| Count(f.counts.bytes_out), backend: |b| Count(b.counts.bytes_out), server: |_, s| Count(s.counts.bytes_out) }
    "cache_hint_hits" MCP "" Http "Early hints from a cache, which there is none of." {}
};

/// Nothing where no HTTP is spoken.
fn if_http(mode: Mode, value: Value<'_>) -> Value<'_> {
    match mode {
        Mode::Http => value,
        Mode::Tcp | Mode::Udp => Empty,
    }
}

fn frontend_responses(frontend: &FrontendStats, class: StatusClass) -> Value<'_> {
    let responses = frontend.counts.responses[class.index()];
    if_http(frontend.mode, Count(responses))
}

fn responses<'a>(
    service: &'a ServiceStats,
    counts: &'a EndpointCounts,
    class: StatusClass,
) -> Value<'a> {
    if_http(service.mode, Count(counts.responses[class.index()]))
}

const fn empty(
    name: &'static str,
    tags: &'static str,
    metric: &'static str,
    unit: Unit,
    help: &'static str,
) -> Column {
    Column {
        name,
        tags,
        metric,
        unit,
        help,
        frontend: None,
        backend: None,
        server: None,
    }
}

/// Empty where there are no checks.
fn of_check<'a>(
    endpoint: &'a EndpointStats,
    of: impl Fn(&'a CheckStats) -> Value<'a>,
) -> Value<'a> {
    endpoint.check.as_deref().map_or(Empty, of)
}

/// haproxy's word.
const fn algorithm(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::RoundRobin => "roundrobin",
        Algorithm::LeastConnections => "leastconn",
        Algorithm::SourceHash => "source",
        Algorithm::SourcePortHash => "hash",
        Algorithm::Random => "random",
        Algorithm::First => "first",
    }
}
