//! From a `backend` or `listen` section to a service of the table.

use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use ballast_core::table::{
    Affinity, AllDown, Ejection, Endpoint, EndpointTls, Entries, File, HeaderEdits, Health,
    HealthMode, HealthTls, HttpVersion, List, Name, OnGone, OrOff, SendProxy, Service, ServiceHttp,
    ServiceTimeouts, State, Tlv,
};

use super::importer::Importer;
use super::proxy::{Edit, Proxy};
use super::server::{Link, Server, ServerCheck};
use super::words::Line;

/// A service, and what is told beside it.
pub(super) struct Made {
    pub(super) service: Service,
    pub(super) comments: Vec<String>,
}

impl Importer<'_> {
    /// The service of a section; `port_of_bind` is for servers without a port.
    pub(super) fn service(&mut self, proxy: &Proxy, port_of_bind: Option<u16>) -> Option<Made> {
        let Ok(name) = proxy.name.parse() else {
            self.report.left_out(
                &proxy.head,
                "its name is none that a table has; expected letters, digits and _ . : -",
            );
            return None;
        };
        let link = proxy
            .servers
            .first()
            .map(|server| server.settings.link.clone())
            .unwrap_or_default();
        let mut comments = Vec::new();
        let mut endpoints = Vec::new();
        let mut used: Vec<&Server> = Vec::new();
        let mut names = HashSet::new();
        for server in &proxy.servers {
            if server.settings.link != link {
                self.report.left_out(&server.line, "all endpoints of a service are spoken to alike (PROXY header, TLS, HTTP/2), and this one is not as the first; give it a backend of its own");
                continue;
            }
            let Some(address) = server.address(port_of_bind) else {
                self.report.left_out(
                    &server.line,
                    "has no port, and there is not one port of a bind to take; write ADDRESS:PORT",
                );
                continue;
            };
            if ballast_core::table::no_single_host(address.ip()).is_some() {
                self.report.left_out(
                    &server.line,
                    format!(
                        "{} is not the address of one host; write another",
                        address.ip()
                    ),
                );
                continue;
            }
            if used
                .iter()
                .any(|known| known.address(port_of_bind) == Some(address))
            {
                self.report.left_out(&server.line, format!("{address} is an endpoint of this service already; weight gives one more clients"));
                continue;
            }
            if let Some(name) = &server.resolved {
                comments.push(format!("{}: {name} is {}", server.name, address.ip()));
            }
            let name = self.endpoint_name(server, &address.to_string(), &mut names);
            used.push(server);
            endpoints.push(Endpoint {
                address,
                name,
                weight: server.settings.weight.unwrap_or(1),
                state: state(server),
                max_connections: server.settings.max_connections.and_then(NonZeroU32::new),
                node: None,
                zone: None,
            });
        }
        let backups = endpoints
            .iter()
            .filter(|endpoint| endpoint.state == State::Backup);
        if backups.count() > 1 && !proxy.all_backups {
            self.report.note(
                &proxy.head,
                "all backup endpoints share the clients, as with `option allbackups`",
            );
        }
        let (health, checked_alike) = self.health(proxy, &used);
        let slow_start = used.iter().find_map(|server| server.settings.slow_start);
        let on_down = match used.iter().any(|server| server.settings.closes_when_down) {
            true => OnGone::Close,
            false => OnGone::Keep,
        };
        comments.extend(checked_alike);
        let source = proxy
            .source
            .as_deref()
            .map(|text| self.source(&proxy.head, text));
        let service = Service {
            name,
            description: proxy.description.clone(),
            labels: Entries::default(),
            algorithm: proxy.algorithm,
            affinity: self.affinity(proxy),
            send_proxy: match link.proxy {
                0 => SendProxy::Off,
                1 => SendProxy::V1,
                _ => SendProxy::V2,
            },
            send_proxy_tlvs: link
                .proxy_ssl
                .then(|| List::new(vec![Tlv::Authority, Tlv::Ssl])),
            send_proxy_udp: Default::default(),
            retries: proxy.retries.unwrap_or(3),
            max_queue: OrOff::On(MAX_QUEUE),
            source: source.flatten().into_iter().collect(),
            timeouts: timeouts(proxy),
            all_down: match health {
                Some(_) => AllDown::Refuse,
                None => AllDown::TryAll,
            },
            slow_start,
            on_down,
            on_removed: OnGone::Keep,
            health: health.map(Box::new),
            ejection: OrOff::On(Ejection::ABSENT),
            tls: self.endpoint_tls(proxy, &link).map(Box::new),
            http: proxy
                .is_http
                .then(|| self.service_http(proxy, &link))
                .filter(|http| *http != ServiceHttp::default())
                .map(Box::new),
            endpoints,
        };
        Some(Made { service, comments })
    }

    /// The name of an endpoint; `None`: it is shown by its address.
    fn endpoint_name(
        &mut self,
        server: &Server,
        address: &str,
        taken: &mut HashSet<String>,
    ) -> Option<Name> {
        if server.name == address {
            return None;
        }
        let Ok(name) = server.name.parse() else {
            self.report.note(
                &server.line,
                "its name is none that a table has, so it is shown by its address",
            );
            return None;
        };
        if !taken.insert(server.name.clone()) {
            self.report.note(
                &server.line,
                "another server has its name, so it is shown by its address",
            );
            return None;
        }
        Some(name)
    }

    fn source(&mut self, line: &Line, text: &str) -> Option<IpAddr> {
        let bare = text
            .rsplit_once(':')
            .filter(|_| text.parse::<IpAddr>().is_err());
        let host = bare.map_or(text, |(host, _)| host);
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) if ballast_core::table::no_single_host(address).is_none() => {
                Some(address.to_canonical())
            }
            Ok(_) => None,
            Err(_) => {
                self.report
                    .left_out(line, format!("source {text:?} is no address; write one"));
                None
            }
        }
    }

    fn affinity(&mut self, proxy: &Proxy) -> Option<Affinity> {
        if let Some((line, name)) = &proxy.cookie
            && proxy.is_http
            && proxy.servers.iter().any(|server| server.settings.cookie)
        {
            match name.parse() {
                Ok(name) => return Some(Affinity::Cookie(name)),
                Err(_) => self.report.left_out(
                    line,
                    format!("{name:?} is no name of a cookie; write another"),
                ),
            }
        }
        let table = proxy
            .stick
            .table
            .as_ref()
            .filter(|_| proxy.stick.on_client)?;
        let expire = proxy.stick.expire.unwrap_or_else(|| {
            self.report
                .note(table, "without `expire` a client is remembered for 24d");
            super::units::LONGEST
        });
        Some(Affinity::ClientIp(expire))
    }

    fn endpoint_tls(&mut self, proxy: &Proxy, link: &Link) -> Option<EndpointTls> {
        let tls = link.tls.as_ref()?;
        let wanted = tls.verify_host.as_ref().or(tls.sni.as_ref());
        let sni = wanted.and_then(|name| name.parse().ok());
        let file = |path: &Option<String>| path.as_ref().map(|path| file(path));
        let verified = tls.verified;
        if verified
            && sni.is_none()
            && let Some(server) = proxy.servers.first()
        {
            self.report.note(&server.line, "without `sni str(NAME)` the certificate must hold the endpoint's address, which haproxy does not look at");
        }
        Some(EndpointTls {
            sni,
            ca: file(&tls.ca).filter(|_| verified),
            cert: file(&tls.cert),
            key: None,
            insecure: !verified,
            ..EndpointTls::default()
        })
    }

    fn service_http(&mut self, proxy: &Proxy, link: &Link) -> ServiceHttp {
        let edits = |importer: &mut Self, of_response: bool| {
            let edits: Vec<&Edit> = proxy
                .edits
                .iter()
                .filter(|edit| edit.of_response == of_response)
                .collect();
            importer.edits(&edits)
        };
        ServiceHttp {
            version: match link.h2 {
                true => HttpVersion::H2,
                false => HttpVersion::H1,
            },
            reuse: proxy.reuse,
            request_headers: edits(self, false),
            response_headers: edits(self, true),
        }
    }

    fn edits(&mut self, edits: &[&Edit]) -> HeaderEdits {
        let mut set = Vec::new();
        let mut remove = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        // Of two lines about one field the last one counts.
        for edit in edits.iter().rev() {
            let lower = edit.name.to_ascii_lowercase();
            if seen.contains(&lower) {
                self.report
                    .left_out(&edit.line, "a later line is about the same field; keep one");
                continue;
            }
            if ballast_core::http::concerns_connection(&edit.name) {
                self.report.left_out(
                    &edit.line,
                    format!(
                        "{} is about the connection, which is Ballast's own; remove it",
                        edit.name
                    ),
                );
                continue;
            }
            let Ok(name) = edit.name.parse() else {
                self.report.left_out(
                    &edit.line,
                    format!(
                        "{:?} is no name of a header field; write another",
                        edit.name
                    ),
                );
                continue;
            };
            match edit.value.as_ref().map(|value| value.parse()) {
                None => remove.push(name),
                Some(Ok(value)) => set.push((name, value)),
                Some(Err(_)) => {
                    self.report
                        .left_out(&edit.line, "the value has line ends; write it in one line");
                    continue;
                }
            }
            seen.push(lower);
        }
        remove.sort();
        HeaderEdits {
            set: Entries::new(set),
            add: Entries::default(),
            remove: List::new(remove),
        }
    }

    /// How the endpoints are checked, and a comment about servers that say something else.
    fn health(&mut self, proxy: &Proxy, used: &[&Server]) -> (Option<Health>, Option<String>) {
        let Some(first) = used.iter().find(|server| server.settings.is_checked) else {
            return (None, None);
        };
        let checks = &first.settings.checks;
        let unchecked: Vec<&str> = used
            .iter()
            .filter(|server| !server.settings.is_checked)
            .map(|server| server.name.as_str())
            .collect();
        let comment = (!unchecked.is_empty())
            .then(|| format!("haproxy did not check {}", unchecked.join(", ")));
        for server in used
            .iter()
            .filter(|server| server.settings.is_checked && alike(server) != alike(first))
        {
            self.report.left_out(&server.line, "all endpoints of a service are checked alike, as the first one that is checked; give this one a backend of its own");
        }
        if let Some(comment) = &comment {
            self.report.note(
                &first.line,
                format!("all endpoints of a service are checked; {comment}"),
            );
        }
        let health = self.check(proxy, &first.line, checks);
        (Some(health), comment)
    }

    fn check(&mut self, proxy: &Proxy, line: &Line, checks: &ServerCheck) -> Health {
        let mut at_least = |time: Duration| match time < SHORTEST_INTERVAL {
            true => {
                self.report.note(
                    line,
                    format!(
                        "a check every {} ms; Ballast checks every 100 ms at most",
                        time.as_millis()
                    ),
                );
                SHORTEST_INTERVAL
            }
            false => time,
        };
        let interval = at_least(checks.interval.unwrap_or(USUAL_INTERVAL));
        let fast_interval = checks.fast_interval.map(&mut at_least);
        // In haproxy a check has its interval's time, where no `timeout check` says less.
        let timeout = proxy
            .timeouts
            .check
            .map_or(interval, |check| check.min(interval));
        let usual = interval.min(Duration::from_secs(1));
        let check = &proxy.check;
        let tls = match &check.connect {
            Some(connect) => connect.tls,
            None => checks.tls && check.http.is_some() || checks_by_tls(proxy, checks),
        };
        let connect = check.connect.clone().unwrap_or_default();
        let first_port = proxy.servers.first().and_then(|server| server.port);
        let port = connect.port.filter(|port| Some(*port) != first_port);
        let mode = match (&check.http, tls) {
            (Some(_), true) => HealthMode::Https,
            (Some(_), false) => HealthMode::Http,
            (None, _) => HealthMode::Tcp,
        };
        let http = check.http.clone().unwrap_or_default();
        let is_http = check.http.is_some();
        let mut good = |what: &str, text: Option<String>, good: bool| {
            if text.is_some() && !good {
                self.report.left_out(
                    line,
                    format!("{what} of the check is none that a table has; write another"),
                );
            }
            text.filter(|_| good)
        };
        let method = good(
            "the method",
            http.method.clone(),
            http.method
                .as_ref()
                .is_none_or(|text| text.parse::<ballast_core::table::Token>().is_ok()),
        );
        let path = good(
            "the path",
            http.path.clone(),
            http.path
                .as_ref()
                .is_none_or(|text| text.parse::<ballast_core::table::Target>().is_ok()),
        );
        let host = good(
            "the host",
            http.host.clone(),
            http.host.as_ref().is_none_or(|text| {
                !text.is_empty() && text.parse::<ballast_core::table::Value>().is_ok()
            }),
        );
        let tcp = check.tcp.clone().filter(|_| !is_http).unwrap_or_default();
        Health {
            mode,
            port: port.or(checks.port).and_then(std::num::NonZeroU16::new),
            interval,
            fast_interval,
            timeout: (timeout != usual).then_some(timeout),
            rise: checks.rise.unwrap_or(2),
            fall: checks.fall.unwrap_or(3),
            method: method.and_then(|text| text.parse().ok()),
            path: path
                .filter(|path| path != "/")
                .and_then(|text| text.parse().ok()),
            host: host.and_then(|text| text.parse().ok()),
            expect: check
                .expect
                .as_ref()
                .filter(|_| is_http)
                .and_then(|text| text.parse().ok()),
            body: check
                .body
                .as_ref()
                .filter(|_| is_http)
                .and_then(|text| text.parse().ok()),
            send: Some(tcp.send)
                .filter(|text| !text.is_empty())
                .and_then(|text| text.parse().ok()),
            answer: tcp.answer.and_then(|text| text.parse().ok()),
            answer_contains: None,
            tls: connect
                .sni
                .as_ref()
                .or(checks.sni.as_ref())
                .filter(|_| mode == HealthMode::Https)
                .map(|name| HealthTls {
                    sni: name.parse().ok(),
                    ..HealthTls::default()
                }),
        }
    }
}

/// How a server is checked, with what haproxy takes where it does not say it.
fn alike(server: &Server) -> ServerCheck {
    let checks = server.settings.checks.clone();
    ServerCheck {
        interval: Some(checks.interval.unwrap_or(USUAL_INTERVAL)),
        rise: Some(checks.rise.unwrap_or(2)),
        fall: Some(checks.fall.unwrap_or(3)),
        port: checks.port.filter(|port| Some(*port) != server.port),
        ..checks
    }
}

/// Whether checks speak TLS because the server does, on the server's own port.
fn checks_by_tls(proxy: &Proxy, checks: &ServerCheck) -> bool {
    let first = proxy.servers.first();
    proxy.check.http.is_some()
        && checks.port.is_none()
        && first.is_some_and(|server| server.settings.link.tls.is_some())
}

fn state(server: &Server) -> State {
    match (server.settings.is_disabled, server.settings.is_backup) {
        (true, _) => State::Disabled,
        (false, true) => State::Backup,
        (false, false) => State::Ready,
    }
}

fn timeouts(proxy: &Proxy) -> ServiceTimeouts {
    let timeouts = &proxy.timeouts;
    let absent = ServiceTimeouts::ABSENT;
    // As soon as nothing of a connection is looked at, haproxy has the tunnel's time for both sides.
    let server = match (proxy.is_http, timeouts.tunnel) {
        (false, Some(tunnel)) => Some(tunnel),
        _ => timeouts.server,
    };
    let connect = timeouts.connect.unwrap_or(absent.connect);
    ServiceTimeouts {
        connect,
        queue: timeouts.queue.filter(|queue| *queue != connect),
        server: idle(server, proxy.is_http),
        server_fin: timeouts.server_fin.unwrap_or(absent.server_fin),
        tunnel: match timeouts.tunnel {
            Some(Some(tunnel)) if proxy.is_http => tunnel,
            Some(None) if proxy.is_http => super::units::LONGEST,
            _ => absent.tunnel,
        },
    }
}

/// An idle timeout as a table has it; absent where it is the table's default.
pub(super) fn idle(time: Option<Option<Duration>>, is_http: bool) -> Option<OrOff<Duration>> {
    match time? {
        None => Some(OrOff::Off),
        Some(time) if time == default_idle(is_http) => None,
        Some(time) => Some(OrOff::On(time)),
    }
}

/// The idle timeout of a table that has none.
pub(super) fn default_idle(is_http: bool) -> Duration {
    Duration::from_secs(if is_http { 50 } else { 3600 })
}

/// A path as a table has it.
pub(super) fn file(path: &str) -> File {
    File::from(std::path::PathBuf::from(path))
}

const MAX_QUEUE: NonZeroU32 = match NonZeroU32::new(1024) {
    Some(clients) => clients,
    None => NonZeroU32::MIN,
};

/// What haproxy and a table take without another interval.
const USUAL_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest interval of a table's checks.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
