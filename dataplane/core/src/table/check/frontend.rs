//! What a frontend's fields mean together.

use super::super::http::FrontendHttp;
use super::super::span::Size;
use super::super::tls::FrontendTls;
use super::super::{Affinity, Frontend, Protocol, ProxyVersion, SendProxy, Service};
use super::{Check, Mention};

impl Check<'_> {
    pub(super) fn frontend(&mut self, index: usize, frontend: &Frontend) {
        let at = format_args!("frontends[{index}]").to_string();
        self.labels(&at, &frontend.labels);
        if self.doubt.within(format_args!("{at}.protocol")) {
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
            Protocol::Tcp | Protocol::Udp if frontend.service.is_none() => {
                self.report_missing(
                    at,
                    "service",
                    format!("add service: a {protocol} frontend leads to one service"),
                );
            }
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

    /// What the protocol has no use for.
    fn foreign(&mut self, at: &str, frontend: &Frontend) {
        use Protocol::{Http, Https, Tcp, Tls, Udp};
        let fields: [(bool, &str, &[Protocol], &str); 7] = [
            (
                frontend.service.is_some(),
                "service",
                &[Tcp, Udp],
                "use default: {service: NAME} or routes",
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
                "http/1.1" => {}
                "h2" if http.http2 => {}
                "h2" => self.report(
                    place,
                    "http.http2 is false",
                    "remove h2, or set http.http2: true",
                ),
                _ => self.report(
                    place,
                    format!("protocol https does not speak \"{offered}\""),
                    "expected h2 or http/1.1",
                ),
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
        let route = match place {
            Mention::Service => None,
            Mention::Route(route) => frontend.routes.get(route),
            Mention::Default => frontend.default.as_deref(),
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
