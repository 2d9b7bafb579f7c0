//! Every keyword of haproxy's configuration in one table: where it stands, how many words stand behind it, what becomes of it.

use ballast_core::table::nearest;

use super::importer::Importer;
use super::words::Line;

/// Where a keyword stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the beginning of a section.
    Section,
    Global,
    /// A line of `defaults`, `frontend`, `listen` or `backend`.
    Proxy,
    /// Behind `option`, `stats`, `timeout` and so on.
    Option,
    Stats,
    Timeout,
    Balance,
    Cookie,
    StickTable,
    ForwardFor,
    /// Behind the address of a `bind` or of a `server`.
    Bind,
    Server,
}

/// What becomes of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// The reader of the place knows it.
    Read,
    /// Ballast does it anyway, or it changes nothing that anybody sees.
    Nothing,
    /// Nothing is lost, for this reason.
    Noted(&'static str),
    /// It is left out, with this remedy.
    LeftOut(&'static str),
}

/// Keywords of one place and one fate.
pub(super) struct Row {
    place: Place,
    /// Words behind each that belong to it; counted where several keywords stand in a line.
    arguments: u8,
    pub(super) becomes: Becomes,
    /// Between spaces.
    words: &'static str,
}

/// The row of a keyword.
pub(super) fn row(place: Place, word: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| {
        let mut words = row.words.split_ascii_whitespace();
        row.place == place && words.any(|known| known == word)
    })
}

/// The keywords among these words, each with the word behind it where one belongs to it.
pub(super) fn with_values(words: &[String], place: Place) -> impl Iterator<Item = (&str, &str)> {
    let mut words = words.iter().map(String::as_str);
    std::iter::from_fn(move || {
        let word = words.next()?;
        let has_value = row(place, word).is_some_and(|row| row.arguments > 0);
        let value = has_value.then(|| words.next()).flatten();
        Some((word, value.unwrap_or_default()))
    })
}

/// Whether a keyword stands at this place.
pub(super) fn is_known(place: Place, word: &str) -> bool {
    row(place, word).is_some()
}

/// Whether this `option` chooses a check that a table cannot say.
pub(super) fn is_other_check(name: &str) -> bool {
    OTHER_CHECKS.split(' ').any(|word| word == name)
}

/// The keyword that a wrong word may be meant for.
pub(super) fn meant(place: Place, word: &str) -> Option<&'static str> {
    let rows = TABLE.iter().filter(|row| row.place == place);
    let words: Vec<&str> = rows
        .flat_map(|row| row.words.split_ascii_whitespace())
        .collect();
    nearest(word, words.iter().copied())
}

/// A remedy: the word that is meant, or what to do without one.
pub(super) fn did_you_mean(near: Option<&str>, else_do: &str) -> String {
    near.map_or_else(|| else_do.into(), |near| format!("did you mean {near}?"))
}

impl Importer<'_> {
    /// A keyword that no field of the table stands for, with the words behind it: nothing, a note, a remark, or unknown.
    pub(super) fn keyword(&mut self, line: &Line, place: Place, word: &str, value: &str) {
        let becomes = row(place, word).map(|row| row.becomes);
        let both = format!("`{word} {value}`").replace(" `", "`");
        match becomes {
            Some(Nothing) => {}
            Some(Noted(why)) => self.report.note(
                line,
                match place {
                    Bind => format!("{both}: {why}"),
                    Server => format!("`{word}`: {why}"),
                    _ => why.into(),
                },
            ),
            Some(LeftOut(remedy)) => {
                let why = match place {
                    Bind => {
                        format!("{both} has no counterpart at a frontend of Ballast; {remedy}")
                    }
                    Server => {
                        format!("{both} has no counterpart at an endpoint of Ballast; {remedy}")
                    }
                    Opt => format!("`option {word}` has no counterpart; {remedy}"),
                    _ => format!("`{word}` has no counterpart; {remedy}"),
                };
                self.report.left_out(line, why);
            }
            Some(Read) | None => self.unknown_word(line, place, word),
        }
    }

    /// A word that nothing here knows.
    pub(super) fn unknown_word(&mut self, line: &Line, place: Place, word: &str) {
        self.unknown_words += 1;
        // To look for the nearest word takes time, and where so many are wrong it is no configuration of haproxy.
        let near = Some(word).filter(|_| self.unknown_words <= MOST_GUESSES);
        let remedy = did_you_mean(
            near.and_then(|word| meant(place, word)),
            "remove it, or look it up in haproxy's manual",
        );
        let why = format!("{word:?} is not known here; {remedy}");
        self.report.left_out(line, why);
    }
}

/// Wrong words for which the nearest right one is looked for.
const MOST_GUESSES: usize = 1000;

/// The note about each option that chooses ciphers of TLS.
const CIPHERS: &str = "Ballast chooses ciphers and curves by itself: those of TLS 1.2 and 1.3 with forward secrecy that authenticate what they encrypt";

const fn of(place: Place, arguments: u8, becomes: Becomes, words: &'static str) -> Row {
    Row {
        place,
        arguments,
        becomes,
        words,
    }
}

use Becomes::{LeftOut, Noted, Nothing, Read};
use Place::{
    Balance, Bind, Cookie, ForwardFor, Global, Option as Opt, Proxy, Section, Server, Stats,
    StickTable, Timeout,
};

const REMOVE: Becomes = LeftOut("remove it");
const ONCE: Becomes =
    Noted("names are resolved once, by the import; import again when an address changes");
const OTHER_CHECKS: &str = "external-check ldap-check mysql-check pgsql-check spop-check";
const CHECKED: Becomes = LeftOut("servers with `check` are checked by a connection");

// One row in a line, and its words below where they are many.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    of(Section, 0, Read, "global defaults frontend listen backend dynamic-update"),
    of(Section, 0, Noted("no peers are needed: a client's first choice is the same on all nodes"), "peers"),
    of(Section, 0, ONCE, "resolvers"),
    of(Section, 0, Noted("it helps to develop haproxy, and serves nobody"), "traces"),
    of(Section, 0, LeftOut("Ballast sends no mail; alerts are Prometheus's, see templates/prometheus"), "mailers"),
    of(Section, 0,
        LeftOut("passwords do not stand in a table; those of the page are in --stats-auth-file, and endpoints ask for others"),
        "userlist"),
    of(Section, 0, LeftOut("Ballast stores no answers; let the endpoints, or a cache in front of them"), "cache"),
    of(Section, 0, LeftOut("Ballast starts no other programs; let the service manager start this one"), "program"),
    of(Section, 0,
        LeftOut("Ballast keeps no ring of log lines; log.to names stdout, unix:PATH or udp:IP:PORT"), "ring"),
    of(Section, 0,
        LeftOut("Ballast does not pass on the log lines of others; let a syslog server do it, or balance it by a udp frontend"),
        "log-forward"),
    of(Section, 0,
        LeftOut("Ballast does not speak FastCGI; put an HTTP server in front of the application"), "fcgi-app"),
    of(Section, 0,
        LeftOut("a table names each certificate at its frontend; write the files behind crt"), "crt-store"),
    of(Section, 0,
        LeftOut("Ballast orders no certificates; let another program order them: changed files are served within 5 s"),
        "acme"),
    of(Section, 0, LeftOut("has no name, by which errorfiles could use it; give it one"), "http-errors"),
    of(Global, 0, Read,
        "ca-base crt-base hard-stop-after log maxconn nbthread presetenv setenv ssl-default-bind-options \
         ssl-default-server-options ssl-load-extra-del-ext ssl-load-extra-files ssl-server-verify stats"),
    of(Global, 0, Noted("the account, the folder and the background are the service manager's; see templates/systemd"),
        "user group uid gid chroot master-worker ulimit-n set-dumpable"),
    of(Global, 0, Noted("Ballast is one process with a worker for each core; --threads says another number"),
        "nbproc cpu-map thread-groups numa-cpu-mapping"),
    of(Global, 0, Noted("health and counters survive a new table in the same process"),
        "server-state-file server-state-base"),
    of(Global, 0, Noted(CIPHERS),
        "ssl-default-bind-ciphers ssl-default-bind-ciphersuites ssl-default-bind-curves ssl-default-server-ciphers \
         ssl-default-server-ciphersuites ssl-dh-param-file ssl-propquery ssl-provider"),
    of(Global, 0, Noted("a table names the files of each certificate"), "ssl-skip-self-issued-ca"),
    of(Global, 0, Nothing,
        "busy-polling close-spread-time daemon default-path description expose-experimental-directives gid-map \
         grace h1-case-adjust h1-case-adjust-file h2-workaround-bogus-websocket-clients insecure-fork-wanted \
         insecure-setuid-wanted limited-quic localpeer log-send-hostname log-tag max-spread-checks no node noepoll \
         nogetaddrinfo nokqueue nopoll noreuseport nosplice pidfile pp2-never-send-local profiling.memory \
         profiling.tasks quiet spread-checks ssl-engine ssl-mode-async stats-file strict-limits unix-bind \
         zero-warning"),
    of(Global, 0, REMOVE,
        "51degrees-data-file anonkey cluster-secret debug deviceatlas-json-file external-check fd-hard-limit \
         http-err-codes http-fail-codes issuers-chain-path lua-load lua-load-per-thread lua-prepend-path mailers \
         maxcompcpuusage maxcomprate maxconnrate maxpipes maxsessrate maxsslconn maxsslrate maxzlibmem resetenv \
         setcap unsetenv uri-normalizer wurfl-data-file"),
    of(Proxy, 0, Read,
        "acl balance bind block clitimeout contimeout cookie default default-server default_backend description \
         disabled enabled errorfile errorfiles hash-balance-factor http-after-response http-check http-error http-request http-response \
         http-reuse log maxconn mode monitor-uri no option rate-limit redirect reqadd reqdel reqidel reqirep reqrep \
         retries rspadd rspdel rspidel server server-template source srvtimeout stats stick stick-table tcp-check \
         tcp-request timeout use_backend"),
    of(Proxy, 0, Nothing,
        "backlog bind-process clitcpka-cnt clitcpka-idle clitcpka-intvl declare grace guid \
         id load-server-state-from-file log-tag max-keep-alive-queue server-state-file-name \
         srvtcpka-cnt srvtcpka-idle srvtcpka-intvl"),
    of(Proxy, 0, Noted("Ballast hashes so that only the clients of an endpoint that leaves move"), "hash-type"),
    of(Proxy, 0, LeftOut("the path of monitor-uri answers always; /readyz of stats.bind only while Ballast serves"),
        "monitor"),
    of(Proxy, 0,
        LeftOut("let endpoints make ids of requests; send-proxy-tlvs of a service has `unique-id` for connections"),
        "unique-id-format unique-id-header"),
    of(Proxy, 0, Noted("cookies of Ballast have values of their own, the same on all nodes"), "dynamic-cookie-key"),
    of(Proxy, 0, LeftOut("let endpoints compress"), "compression"),
    of(Proxy, 0, LeftOut("log.access has haproxy's own forms, and JSON"),
        "error-log-format log-format log-format-sd"),
    of(Proxy, 0, LeftOut("write errorfile for each status"), "errorloc errorloc302 errorloc303"),
    of(Proxy, 0, LeftOut("access lines hold no header fields"), "capture"),
    of(Proxy, 0, LeftOut("max-connections of endpoints are fixed"), "fullconn"),
    of(Proxy, 0, LeftOut("what it denies is served: write http-request deny with conditions on host, path or src"),
        "reqallow reqdeny reqiallow reqideny reqipass reqitarpit reqpass reqtarpit"),
    of(Proxy, 0, LeftOut("answers that it denies are served: let the endpoint deny them"),
        "rspdeny rspideny tcp-response"),
    of(Proxy, 0, LeftOut("an attempt to connect is repeated, and a request that may be"), "retry-on"),
    of(Proxy, 0, LeftOut("give these clients a backend of their own"), "force-persist ignore-persist use-server"),
    of(Proxy, 0, REMOVE,
        "appsession dispatch email-alert external-check filter http-send-name-header log-steps persist quic-initial \
         rspirep rsprep transparent use-fcgi-app"),
    of(Opt, 0, Read,
        "allbackups forceclose forwardfor http-keep-alive http-server-close httpchk httpclose redis-check redispatch smtpchk ssl-hello-chk tcp-check"),
    of(Opt, 0, Nothing,
        "abortonclose clitcpka contstats disable-h2-upgrade dontlog-normal \
         dontlognull h1-case-adjust-bogus-client h1-case-adjust-bogus-server http-buffer-request http-ignore-probes \
         http-no-delay http-pretend-keepalive http-restrict-req-hdr-names \
         http-tunnel http-use-htx http-use-proxy-header http_proxy httplog httpslog idle-close-on-response \
         independent-streams log-health-checks log-separate-errors logasap nolinger persist prefer-last-server \
         socket-stats splice-auto splice-request splice-response srvtcpka tcp-smart-accept \
         tcp-smart-connect tcpka tcplog"),
    of(Opt, 0, LeftOut("Ballast refuses messages that two programs could understand differently"),
        "accept-invalid-http-request accept-invalid-http-response accept-unsafe-violations-in-http-request \
         accept-unsafe-violations-in-http-response"),
    of(Opt, 0, CHECKED, OTHER_CHECKS),
    of(Opt, 0, REMOVE, "checkcache originalto transparent"),
    of(Stats, 0, Read, "admin auth enable http-request scope uri"),
    of(Stats, 0, Nothing,
        "bind-process hide-version maxconn realm refresh show-desc show-legends show-modules show-node socket \
         timeout"),
    of(Timeout, 0, Read,
        "check client client-fin client-hs connect http-keep-alive http-request queue server server-fin tarpit \
         tunnel"),
    of(Balance, 0, Read, "first leastconn random roundrobin source static-rr"),
    of(Cookie, 0, Read, "dynamic httponly indirect insert nocache postonly preserve secure"),
    of(Cookie, 1, Read, "attr domain maxidle maxlife"),
    of(StickTable, 0, Read, "nopurge"),
    of(StickTable, 1, Read, "expire peers size store type"),
    of(ForwardFor, 0, Read, "if-none"),
    of(ForwardFor, 1, Read, "except header"),
    of(Bind, 0, Read,
        "accept-proxy force-sslv3 force-tlsv10 force-tlsv11 force-tlsv12 force-tlsv13 no-sslv3 no-tlsv10 \
         no-tlsv11 no-tlsv12 no-tlsv13 ssl strict-sni"),
    of(Bind, 1, Read,
        "alpn ca-file crl-file crt crt-list interface namespace ssl-max-ver ssl-min-ver tls-ticket-keys verify"),
    of(Bind, 1, Noted(CIPHERS), "ciphers ciphersuites client-sigalgs curves ecdhe sigalgs"),
    of(Bind, 0, Nothing,
        "defer-accept prefer-client-ciphers quic-force-retry tfo tls-tickets v4v6 v6only"),
    of(Bind, 1, Nothing, "backlog gid group id level mode name nice process shards tcp-ut thread uid user"),
    of(Bind, 1, REMOVE,
        "accept-netscaler-cip ca-ignore-err ca-sign-file ca-sign-pass ca-verify-file crt-ignore-err maxconn mss npn proto \
         severity-output"),
    of(Bind, 0, REMOVE,
        "allow-0rtt expose-fd generate-certificates no-alpn no-ca-names ssl-skip-self-issued-ca transparent"),
    of(Bind, 0, Noted("Ballast gives tickets, and replaces their keys by itself"), "no-tls-tickets"),
    of(Server, 0, Read,
        "backup check check-send-proxy check-ssl force-sslv3 force-tlsv10 force-tlsv11 force-tlsv12 force-tlsv13 \
         no-sslv3 no-tlsv10 no-tlsv11 no-tlsv12 no-tlsv13 disabled enabled no-backup no-check no-check-send-proxy no-check-ssl no-send-proxy \
         no-send-proxy-v2 no-ssl non-stick send-proxy send-proxy-v2 send-proxy-v2-ssl send-proxy-v2-ssl-cn ssl stick"),
    of(Server, 1, Read,
        "alpn ca-file check-sni cookie crt downinter fall fastinter inter maxconn on-marked-down port proto \
         proxy-v2-options rise slowstart sni ssl-max-ver ssl-min-ver track verify verifyhost weight"),
    of(Server, 1, ONCE, "init-addr resolve-net resolve-opts resolve-prefer resolvers"),
    of(Server, 1, Noted("an endpoint that cannot be reached is left out in any case; see ejection"),
        "error-limit observe on-error"),
    of(Server, 0, Nothing,
        "check-via-socks4 no-agent-check no-ssl-reuse no-tfo no-tls-tickets no-verifyhost ssl-reuse tfo \
         tls-tickets"),
    of(Server, 1, Nothing,
        "check-alpn check-proto ciphers ciphersuites guid id init-state log-bufsize max-reuse pool-low-conn \
         pool-max-conn pool-purge-delay shard tcp-ut"),
    of(Server, 0, REMOVE, "agent-check"),
    of(Server, 1, REMOVE,
        "addr agent-addr agent-inter agent-port agent-send crl-file hash-key interface maxqueue minconn namespace \
         on-marked-up redir set-proxy-v2-tlv-fmt socks4 source usesrc ws"),
];

#[cfg(test)]
mod tests {
    use super::TABLE;

    #[test]
    fn a_keyword_stands_once_at_its_place() {
        let mut seen = Vec::new();
        for row in TABLE {
            for word in row.words.split_ascii_whitespace() {
                let known = (row.place, word);
                assert!(!seen.contains(&known), "{known:?}");
                seen.push(known);
            }
        }
        assert!(seen.len() > 300, "{}", seen.len());
    }
}
