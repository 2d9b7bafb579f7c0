//! How the endpoints of a service are checked: `check` of their lines, and the check of their section.

use std::str::FromStr;
use std::time::Duration;

use ballast_core::table::{
    Health, HealthMode, HealthTls, OrOff, Payload, ServerName, Target, Token, Value,
};

use super::check::{Http, Tcp};
use super::importer::Importer;
use super::proxy::Proxy;
use super::server::{Server, ServerCheck};
use super::services::file;
use super::words::Line;

impl Importer<'_> {
    /// How the endpoints are checked, and a comment about servers that say something else.
    pub(super) fn health(
        &mut self,
        proxy: &Proxy,
        used: &[&Server],
    ) -> (Option<Health>, Option<String>) {
        let Some(first) = used.iter().find(|server| server.settings.is_checked) else {
            return (None, None);
        };
        let checks = &first.settings.checks;
        let (checked, unchecked): (Vec<&Server>, Vec<&Server>) =
            used.iter().partition(|server| server.settings.is_checked);
        let names = unchecked.iter().filter(|server| !server.settings.tracks);
        let names: Vec<&str> = names.map(|server| &*server.name).collect();
        let comment =
            (!names.is_empty()).then(|| format!("haproxy did not check {}", names.join(", ")));
        for server in checked
            .into_iter()
            .filter(|server| alike(server) != alike(first))
        {
            self.report.differs(&server.line, "all endpoints of a service are checked alike, as the first one that is checked; give this one a backend of its own");
        }
        if let Some(comment) = &comment {
            let why = format!(
                "all endpoints of a service are checked, and leave it when their checks fail; {comment}: give these a backend of their own"
            );
            self.report.differs(&first.line, why);
        }
        let health = self.check(proxy, &first.line, checks);
        (Some(health), comment)
    }

    fn check(&mut self, proxy: &Proxy, line: &Line, checks: &ServerCheck) -> Health {
        let mut at_least = |time: Duration| {
            if time < SHORTEST_INTERVAL {
                let often = time.as_millis();
                let why = format!("a check every {often} ms; Ballast checks every 100 ms at most");
                self.report.note(line, why);
            }
            time.max(SHORTEST_INTERVAL)
        };
        let interval = at_least(checks.interval.unwrap_or(USUAL_INTERVAL));
        let fast_interval = checks.fast_interval.map(&mut at_least);
        // In haproxy a check has its interval's time, where no `timeout check` says less.
        let timeout = proxy
            .timeouts
            .get("check")
            .unwrap_or(interval)
            .min(interval);
        let usual = interval.min(Duration::from_secs(1));
        let check = &proxy.check;
        let tls = match check.connect() {
            Some(connect) => connect.tls,
            None => check.http().is_some() && speaks_tls(proxy, checks),
        };
        let connect = check.connect().cloned().unwrap_or_default();
        let of_traffic = proxy.servers.first();
        let of_traffic = of_traffic.is_some_and(|server| server.settings.link.proxy > 0);
        let first_port = proxy.servers.first().and_then(|server| server.port);
        let port = connect.port.filter(|port| Some(*port) != first_port);
        let checked_port = port.or_else(|| checks.port.filter(|port| Some(*port) != first_port));
        if checks.sends_proxy && (!of_traffic || checked_port.is_some()) {
            self.report.left_out(line, "`check-send-proxy`: a check of Ballast sends a PROXY header where clients' connections have one, to their port, and not otherwise; write send-proxy, or let checks come without one");
        }
        let mode = match (check.http(), tls) {
            (Some(_), true) => HealthMode::Https,
            (Some(_), false) => HealthMode::Http,
            (None, _) => HealthMode::Tcp,
        };
        let rules = check.http();
        let is_http = rules.is_some();
        let (method, path, host) = self.asked(rules.map(|rules| &rules.request), line);
        let tcp = match !is_http && check.connect().is_none() && speaks_tls(proxy, checks) {
            true => {
                self.report.differs(line, "haproxy's check speaks TLS, and Ballast's connects only: an endpoint whose TLS or certificate is wrong is up here; write option httpchk");
                Tcp::default()
            }
            false => check.tcp(),
        };
        let expect = rules.and_then(|rules| rules.expect.as_ref());
        let body = rules.and_then(|rules| rules.body.as_ref());
        Health {
            port: port.or(checks.port).and_then(std::num::NonZeroU16::new),
            interval,
            fast_interval,
            timeout: (timeout != usual).then_some(timeout),
            rise: checks.rise.unwrap_or(2),
            fall: checks.fall.unwrap_or(3),
            method,
            path: path.filter(|path: &Target| **path != *"/"),
            host,
            expect: expect.and_then(|text| text.parse().ok()),
            body: body.and_then(|text| text.parse().ok()),
            send: Payload::new(tcp.send),
            answer_contains: tcp.answer.and_then(Payload::new),
            tls: match mode {
                HealthMode::Https => {
                    self.health_tls(proxy, line, connect.sni.or_else(|| checks.sni.clone()))
                }
                _ => None,
            },
            ..Health::new(mode)
        }
    }

    /// Method, path and host of a check's request, as far as a table can have them.
    fn asked(
        &mut self,
        request: Option<&Http>,
        line: &Line,
    ) -> (Option<Token>, Option<Target>, Option<Value>) {
        let Some(request) = request.cloned() else {
            return (None, None, None);
        };
        let line = request.line.as_ref().unwrap_or(line);
        (
            self.field(line, "the method", request.method),
            self.field(line, "the path", request.path),
            self.field(line, "the host", request.host),
        )
    }

    /// A part of a check's request, as far as a table can have it.
    fn field<T: FromStr>(&mut self, line: &Line, what: &str, text: Option<String>) -> Option<T> {
        let parsed = text?.parse().ok();
        if parsed.is_none() {
            let why = format!("{what} of the check is none that a table has; write another");
            self.report.left_out(line, why);
        }
        parsed
    }

    /// Checks verify what the servers' lines verify, where a table can say it.
    fn health_tls(
        &mut self,
        proxy: &Proxy,
        line: &Line,
        asked: Option<String>,
    ) -> Option<HealthTls> {
        let link = proxy.servers.first()?.settings.link.tls.clone();
        let verified = link.filter(|tls| tls.verified);
        let is_verified = verified.is_some();
        let (ca, verify_host, sni) =
            verified.map_or((None, None, None), |tls| (tls.ca, tls.verify_host, tls.sni));
        // Where haproxy's check verifies no name, that of the traffic is verified: an endpoint without it serves nobody.
        let asked = asked.or_else(|| sni.filter(|_| verify_host.is_none()));
        if is_verified && ca.is_none() {
            self.report.differs(line, "the check verifies no certificate: that takes a ca-file, so that an endpoint with a wrong one is up here; write it");
        }
        let name = asked.as_deref().or(verify_host.as_deref());
        self.common_name(line, ca.as_deref(), name);
        let tls = HealthTls {
            verified_name: ca
                .as_ref()
                .and_then(|_| verified_name(asked.as_deref(), verify_host.as_deref())),
            sni: asked.and_then(|name| name.parse().ok()),
            ca: ca.map(|path| file(&path)),
        };
        (tls != HealthTls::default()).then_some(tls)
    }
}

/// The name that haproxy verifies beside the one that it asks for: `verifyhost` where it asks for none, else none.
pub(super) fn verified_name(
    asked: Option<&str>,
    verify_host: Option<&str>,
) -> Option<OrOff<ServerName>> {
    match (asked, verify_host) {
        (Some(_), _) => None,
        (None, Some(name)) => name.parse().ok().map(OrOff::On),
        (None, None) => Some(OrOff::Off),
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

/// Whether haproxy's checks begin with TLS where their rules do not say it: as their line says, or as the server does, on its own port.
fn speaks_tls(proxy: &Proxy, checks: &ServerCheck) -> bool {
    let first = proxy.servers.first();
    let is_tls = first.is_some_and(|server| server.settings.link.tls.is_some());
    checks.tls || is_tls && checks.port.is_none()
}

/// What haproxy and a table take without another interval.
const USUAL_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest interval of a table's checks.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
