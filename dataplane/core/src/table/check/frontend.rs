//! What a frontend's fields mean together.

use super::super::http::FrontendHttp;
use super::super::span::Size;
use super::super::tls::FrontendTls;
use super::super::{Affinity, Frontend, Http2, OrMap, Protocol, ProxyVersion, SendProxy, Service};
use super::{Inspection, Mention, Owner};

impl Inspection<'_> {
    pub(super) fn frontend(&mut self, index: usize, frontend: &Frontend) {
        let at = format_args!("frontends[{index}]").to_string();
        self.labels(&at, &frontend.labels);
        if self.doubt.within(format_args!("{at}.protocol")) {
            self.targets(&at, frontend);
            return;
        }
        self.required(&at, frontend);
        self.foreign(&at, frontend);
        self.accepted_versions(&at, frontend);
        let head = frontend.http().max_header_bytes;
        if !(Size::kib(1)..=Size::kib(16 * 1024)).contains(&head) {
            self.report(
                format_args!("{at}.http.max-header-bytes"),
                format!("{head} is out of range"),
                "expected 1KiB to 16MiB",
            );
        }
        self.http2(&at, frontend.http());
        if let Some(edits) = &frontend.http().response_headers {
            self.header_edits(&format!("{at}.http.response-headers"), edits);
        }
        for (status, page) in frontend.errors.iter() {
            if let OrMap::Map(page) = page {
                let at = format!("{at}.errors.{}", status.code());
                self.error_page(&at, page);
            }
        }
        if let Some(http) = &frontend.http
            && http.hsts.is_some()
            && frontend.protocol == Protocol::Http
        {
            self.report(
                format_args!("{at}.http.hsts"),
                "browsers ignore hsts on plain http",
                "remove it, or use protocol: https",
            );
        }
        match (&frontend.tls, frontend.protocol) {
            (Some(tls), Protocol::Https) => self.alpn(&at, tls, frontend.http()),
            (Some(tls), Protocol::Tcp) => self.no_header(&at, tls),
            _ => {}
        }
        if let (Some(tls), Protocol::Https | Protocol::Tcp) = (&frontend.tls, frontend.protocol) {
            self.certificate_names(&at, tls);
        }
        if matches!(
            frontend.protocol,
            Protocol::Http | Protocol::Https | Protocol::Tls
        ) {
            self.routes(&at, frontend);
        }
    }

    /// What the protocol asks for.
    fn required(&mut self, at: &str, frontend: &Frontend) {
        let protocol = frontend.protocol;
        match protocol {
            Protocol::Tcp | Protocol::Udp => self.destination(at, frontend),
            Protocol::Https if frontend.tls.is_none() => {
                self.report_missing(
                    at,
                    "tls",
                    "add tls: {certificates: [{cert: FILE}]}, or use protocol: http",
                );
            }
            _ => {}
        }
    }

    /// Connections and datagrams lead to one service, or to several that share them.
    fn destination(&mut self, at: &str, frontend: &Frontend) {
        let has_backends = !frontend.backends.is_empty();
        if self.doubt.within(format_args!("{at}.backends")) {
            return;
        }
        match &frontend.service {
            None if !has_backends => {
                let protocol = frontend.protocol;
                self.report_missing(
                    at,
                    "service",
                    format!("add service: a {protocol} frontend leads to one service"),
                );
            }
            Some(_) if has_backends => {
                self.report(at, "has service and backends at once", "keep one of them");
            }
            _ => {}
        }
        let protocol = frontend.protocol;
        self.backends(at, &frontend.backends, &|field| {
            Some(format!("protocol {protocol} has no {field}"))
        });
    }

    /// The limits of HTTP/2.
    fn http2(&mut self, at: &str, http: &FrontendHttp) {
        if let OrMap::Map(Http2 { memory, .. }) = http.http2
            && memory < LEAST_MEMORY
        {
            self.report(
                format_args!("{at}.http.http2.memory"),
                format!("{memory} is out of range"),
                format!("expected {LEAST_MEMORY} at least"),
            );
        }
    }

    /// What the protocol has no use for.
    fn foreign(&mut self, at: &str, frontend: &Frontend) {
        use Protocol::{Http, Https, Tcp, Tls, Udp};
        let fields: [(bool, &str, &[Protocol], &str); 8] = [
            (
                frontend.service.is_some(),
                "service",
                &[Tcp, Udp],
                "use default: {service: NAME} or routes",
            ),
            (
                !frontend.backends.is_empty(),
                "backends",
                &[Tcp, Udp],
                "use default: {backends: […]} or routes",
            ),
            (frontend.udp.is_some(), "udp", &[Udp], "remove it"),
            (
                frontend.tls.is_some(),
                "tls",
                &[Tcp, Https],
                "remove it, or use protocol: https",
            ),
            (
                frontend.http.is_some(),
                "http",
                &[Http, Https],
                "remove it, or use protocol: http",
            ),
            (
                !frontend.routes.is_empty(),
                "routes",
                &[Http, Https, Tls],
                "use service: NAME",
            ),
            (
                frontend.default.is_some(),
                "default",
                &[Http, Https, Tls],
                "use service: NAME",
            ),
            (
                !frontend.errors.is_empty(),
                "errors",
                &[Http, Https],
                "remove it, or use protocol: http",
            ),
        ];
        for (there, field, protocols, remedy) in fields {
            if there && !protocols.contains(&frontend.protocol) {
                let why = match (field, frontend.protocol) {
                    ("tls", Tls) => "protocol tls passes TLS on unopened".to_owned(),
                    (_, protocol) => format!("protocol {protocol} has no {field}"),
                };
                self.report(format_args!("{at}.{field}"), why, remedy);
            }
        }
    }

    fn accepted_versions(&mut self, at: &str, frontend: &Frontend) {
        let Some(accept) = &frontend.accept_proxy else {
            return;
        };
        let place = format_args!("{at}.accept-proxy.versions").to_string();
        if frontend.protocol.is_udp()
            && !accept.takes(ProxyVersion::V2)
            && !self.doubt.within(&place)
        {
            self.report(
                place,
                "PROXY v1 knows no datagrams",
                "expected v2 for protocol udp",
            );
        }
    }

    /// What https offers must be what is spoken.
    fn alpn(&mut self, at: &str, tls: &FrontendTls, http: &FrontendHttp) {
        for (index, offered) in tls.alpn.iter().flat_map(|offers| offers.iter()).enumerate() {
            let place = format_args!("{at}.tls.alpn[{index}]").to_string();
            match offered.as_str() {
                "http/1.1" | "http/1.0" => {}
                "h2" if http.http2().is_some() => {}
                "h2" => self.report(
                    place,
                    "http.http2 is false",
                    "remove h2, or set http.http2: true",
                ),
                _ => self.report(
                    place,
                    format!("protocol https does not speak \"{offered}\""),
                    "expected h2, http/1.1 or http/1.0",
                ),
            }
        }
    }

    /// The names that certificates are offered for are such as clients ask for.
    fn certificate_names(&mut self, at: &str, tls: &FrontendTls) {
        for (index, certificate) in tls.certificates.iter().enumerate() {
            let Some(hosts) = &certificate.hosts else {
                continue;
            };
            let list = format!("{at}.tls.certificates[{index}].hosts");
            self.stand_once(&list, hosts);
            for (place, host) in hosts.iter().enumerate() {
                if host.is_address() {
                    self.report(
                        format_args!("{list}[{place}]"),
                        format!("no client asks for the address {host} by name"),
                        "remove it: clients that ask for no name get the first certificate",
                    );
                }
            }
        }
    }

    /// Plain bytes have no header that could hold the subject.
    fn no_header(&mut self, at: &str, tls: &FrontendTls) {
        if tls
            .client_auth
            .as_ref()
            .is_some_and(|auth| auth.header.is_some())
        {
            self.report(
                format_args!("{at}.tls.client-auth.header"),
                "protocol tcp has no header",
                "remove it, or use protocol: https",
            );
        }
    }

    /// Whether a service suits the frontend that names it.
    pub(super) fn fits(
        &mut self,
        frontend: &Frontend,
        index: usize,
        place: Mention,
        service: &Service,
        at: usize,
    ) {
        if self
            .doubt
            .within(format_args!("frontends[{index}].protocol"))
        {
            return;
        }
        let route = match place.owner {
            Owner::Frontend => None,
            Owner::Route(route) => frontend.routes.get(route),
            Owner::Default => frontend.default.as_deref(),
        };
        let opened = frontend.protocol.is_http() && !route.is_some_and(|route| route.passthrough);
        let name = &frontend.name;
        if let Some(Affinity::Cookie(_)) = &service.affinity
            && !opened
        {
            self.report_once(
                format!("services[{at}].affinity.cookie"),
                format!(
                    "frontends[{index}] (\"{name}\") relays to this service without reading HTTP"
                ),
                "use {client-ip: 3h}, or a service of its own",
            );
        }
        if service.send_proxy == SendProxy::V1 && frontend.protocol.is_udp() {
            self.report_once(
                format!("services[{at}].send-proxy"),
                format!("v1 knows no datagrams, and frontends[{index}] (\"{name}\") is udp"),
                "expected v2",
            );
        }
    }
}

/// A client's connection of HTTP/2 cannot do with less.
const LEAST_MEMORY: Size = Size::kib(64);
