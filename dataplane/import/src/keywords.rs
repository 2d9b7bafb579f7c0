//! Keywords without a field in the table: which of them nothing is lost by, and which have no counterpart.

/// What becomes of a keyword that no field of the table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    /// Ballast does it anyway, or it changes nothing that anybody sees.
    Needless,
    /// Nothing is lost, for this reason.
    Noted(&'static str),
    /// It is left out.
    Missing,
}

/// The note about each option that chooses ciphers or versions of TLS.
pub(super) const TLS_WORDS: &str =
    "Ballast speaks TLS 1.2 and 1.3 with forward secrecy and authenticated ciphers only";
const TLS: Keyword = Keyword::Noted(TLS_WORDS);
const ACCOUNT: Keyword = Keyword::Noted(
    "the account, the folder and the background are the service manager's; see templates/systemd",
);

/// A keyword of `global`.
pub(super) fn of_global(keyword: &str) -> Option<Keyword> {
    use Keyword::{Missing, Needless, Noted};
    Some(match keyword {
        "user" | "group" | "uid" | "gid" | "chroot" | "master-worker" | "ulimit-n"
        | "set-dumpable" => ACCOUNT,
        "nbproc" | "cpu-map" | "thread-groups" | "numa-cpu-mapping" => Noted(
            "Ballast is one process with a worker for each core; --threads says another number",
        ),
        "server-state-file" | "server-state-base" => {
            Noted("health and counters survive a new table in the same process")
        }
        "daemon"
        | "pidfile"
        | "localpeer"
        | "node"
        | "description"
        | "unix-bind"
        | "spread-checks"
        | "max-spread-checks"
        | "quiet"
        | "zero-warning"
        | "strict-limits"
        | "log-send-hostname"
        | "log-tag"
        | "expose-experimental-directives"
        | "insecure-fork-wanted"
        | "insecure-setuid-wanted"
        | "pp2-never-send-local"
        | "ssl-engine"
        | "ssl-mode-async"
        | "busy-polling"
        | "nosplice"
        | "noepoll"
        | "nokqueue"
        | "nopoll"
        | "noreuseport"
        | "nogetaddrinfo"
        | "nbthread"
        | "default-path"
        | "h1-case-adjust"
        | "h1-case-adjust-file"
        | "h2-workaround-bogus-websocket-clients"
        | "stats-file"
        | "no"
        | "gid-map"
        | "close-spread-time"
        | "grace"
        | "limited-quic"
        | "profiling.tasks"
        | "profiling.memory" => Needless,
        "ssl-default-bind-ciphers"
        | "ssl-default-bind-ciphersuites"
        | "ssl-default-bind-curves"
        | "ssl-default-server-ciphers"
        | "ssl-default-server-ciphersuites"
        | "ssl-default-server-options"
        | "ssl-dh-param-file"
        | "ssl-load-extra-files"
        | "ssl-load-extra-del-ext"
        | "ssl-skip-self-issued-ca"
        | "ssl-propquery"
        | "ssl-provider" => TLS,
        "maxconnrate"
        | "maxsslconn"
        | "maxsslrate"
        | "maxsessrate"
        | "maxpipes"
        | "maxcomprate"
        | "maxcompcpuusage"
        | "maxzlibmem"
        | "ssl-server-verify"
        | "issuers-chain-path"
        | "lua-load"
        | "lua-load-per-thread"
        | "lua-prepend-path"
        | "external-check"
        | "mailers"
        | "cluster-secret"
        | "wurfl-data-file"
        | "deviceatlas-json-file"
        | "51degrees-data-file"
        | "resetenv"
        | "unsetenv"
        | "debug"
        | "fd-hard-limit"
        | "tune"
        | "setcap"
        | "uri-normalizer"
        | "http-err-codes"
        | "http-fail-codes"
        | "anonkey" => Missing,
        _ if keyword.starts_with("tune.") => Noted("Ballast sizes its buffers by itself"),
        _ => return None,
    })
}

/// An `option` of a proxy.
pub(super) fn of_option(name: &str) -> Option<Keyword> {
    use Keyword::{Missing, Needless, Noted};
    Some(match name {
        "abortonclose"
        | "clitcpka"
        | "srvtcpka"
        | "tcpka"
        | "contstats"
        | "dontlognull"
        | "dontlog-normal"
        | "http-keep-alive"
        | "http-server-close"
        | "http-tunnel"
        | "http-no-delay"
        | "http-pretend-keepalive"
        | "http-buffer-request"
        | "http-ignore-probes"
        | "http-use-proxy-header"
        | "http-use-htx"
        | "http_proxy"
        | "independent-streams"
        | "log-separate-errors"
        | "logasap"
        | "nolinger"
        | "persist"
        | "prefer-last-server"
        | "redispatch"
        | "splice-auto"
        | "splice-request"
        | "splice-response"
        | "socket-stats"
        | "tcp-smart-accept"
        | "tcp-smart-connect"
        | "log-health-checks"
        | "idle-close-on-response"
        | "disable-h2-upgrade"
        | "h1-case-adjust-bogus-client"
        | "h1-case-adjust-bogus-server"
        | "http-restrict-req-hdr-names"
        | "accept-unsafe-violations-in-http-request"
        | "allbackups"
        | "httplog"
        | "tcplog"
        | "httpslog" => Needless,
        "accept-invalid-http-request" | "accept-invalid-http-response" => {
            Noted("Ballast refuses messages that two programs could understand differently")
        }
        "ldap-check" | "mysql-check" | "pgsql-check" | "spop-check" | "external-check"
        | "originalto" | "transparent" | "checkcache" => Missing,
        _ => return None,
    })
}

/// A keyword of a proxy.
pub(super) fn of_proxy(keyword: &str) -> Option<Keyword> {
    use Keyword::{Missing, Needless, Noted};
    Some(match keyword {
        "id"
        | "backlog"
        | "bind-process"
        | "hash-balance-factor"
        | "log-tag"
        | "max-keep-alive-queue"
        | "server-state-file-name"
        | "load-server-state-from-file"
        | "clitcpka-cnt"
        | "clitcpka-idle"
        | "clitcpka-intvl"
        | "srvtcpka-cnt"
        | "srvtcpka-idle"
        | "srvtcpka-intvl"
        | "grace"
        | "enabled"
        | "declare"
        | "guid" => Needless,
        "hash-type" => {
            Noted("Ballast hashes so that only the clients of an endpoint that leaves move")
        }
        "fullconn"
        | "capture"
        | "compression"
        | "dispatch"
        | "email-alert"
        | "error-log-format"
        | "errorloc"
        | "errorloc302"
        | "errorloc303"
        | "external-check"
        | "filter"
        | "force-persist"
        | "http-send-name-header"
        | "ignore-persist"
        | "log-format"
        | "log-format-sd"
        | "log-steps"
        | "monitor"
        | "persist"
        | "retry-on"
        | "tcp-response"
        | "transparent"
        | "unique-id-format"
        | "unique-id-header"
        | "use-fcgi-app"
        | "use-server"
        | "quic-initial"
        | "reqallow"
        | "reqdeny"
        | "reqiallow"
        | "reqideny"
        | "reqipass"
        | "reqpass"
        | "reqtarpit"
        | "reqitarpit"
        | "rspdeny"
        | "rspideny"
        | "rsprep"
        | "rspirep"
        | "appsession"
        | "mode" => Missing,
        _ => return None,
    })
}

/// Words of `global` that a wrong one may be meant for.
pub(super) const GLOBAL_WORDS: &[&str] = &[
    "ca-base",
    "chroot",
    "crt-base",
    "daemon",
    "group",
    "hard-stop-after",
    "log",
    "maxconn",
    "nbproc",
    "nbthread",
    "pidfile",
    "ssl-default-bind-ciphers",
    "ssl-default-bind-options",
    "stats",
    "user",
];

/// Words of a proxy that a wrong one may be meant for.
pub(super) const PROXY_WORDS: &[&str] = &[
    "acl",
    "balance",
    "bind",
    "compression",
    "cookie",
    "default-server",
    "default_backend",
    "description",
    "disabled",
    "errorfile",
    "errorfiles",
    "hash-type",
    "http-check",
    "http-request",
    "http-response",
    "http-reuse",
    "log",
    "log-format",
    "maxconn",
    "mode",
    "monitor-uri",
    "option",
    "rate-limit",
    "redirect",
    "retries",
    "server",
    "server-template",
    "source",
    "stats",
    "stick",
    "stick-table",
    "tcp-check",
    "tcp-request",
    "timeout",
    "use-server",
    "use_backend",
];

/// Options that a wrong one may be meant for.
pub(super) const OPTIONS: &[&str] = &[
    "abortonclose",
    "allbackups",
    "dontlognull",
    "forwardfor",
    "http-keep-alive",
    "http-server-close",
    "httpchk",
    "httpclose",
    "httplog",
    "log-health-checks",
    "mysql-check",
    "redis-check",
    "redispatch",
    "smtpchk",
    "ssl-hello-chk",
    "tcp-check",
    "tcpka",
    "tcplog",
];

/// Words that begin a section.
pub(super) const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "listen",
    "backend",
    "peers",
    "resolvers",
    "userlist",
    "mailers",
    "ring",
    "program",
    "cache",
    "fcgi-app",
    "http-errors",
    "log-forward",
    "crt-store",
    "traces",
    "acme",
    "dynamic-update",
];
