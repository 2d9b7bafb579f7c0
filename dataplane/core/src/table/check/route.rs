//! What the routes of a frontend mean, alone and beside each other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::{
    ErrorPage, Frontend, HostPattern, OrMap, PathMatch, Protocol, Reach, Redirect, Rewrite, Route,
};
use super::Inspection;

impl Inspection<'_> {
    pub(super) fn routes(&mut self, frontend_at: &str, frontend: &Frontend) {
        let mut readable = Vec::new();
        for (index, route) in frontend.routes.iter().enumerate() {
            let at = format!("{frontend_at}.routes[{index}]");
            if !self.doubt.within(&at) {
                self.route(&at, route, frontend.protocol);
                readable.push((at, route));
            }
        }
        if let Some(route) = &frontend.default {
            let at = format!("{frontend_at}.default");
            if !self.doubt.within(&at) {
                self.default_route(&at, route);
                self.route(&at, route, frontend.protocol);
                readable.push((at, route));
            }
        }
        self.equal_routes(&readable);
        self.route_names(&readable);
        if frontend.protocol == Protocol::Https {
            self.hidden_routes(&readable);
        }
    }

    /// What holds of routes whatever the protocol is.
    pub(super) fn targets(&mut self, frontend_at: &str, frontend: &Frontend) {
        let routes = frontend.routes.iter().enumerate();
        let routes = routes.map(|(index, route)| (format!("{frontend_at}.routes[{index}]"), route));
        let default = frontend.default.as_deref();
        let default = default.map(|route| (format!("{frontend_at}.default"), route));
        for (at, route) in routes.chain(default) {
            if !self.doubt.within(&at) {
                self.target(&at, route);
            }
        }
    }

    fn default_route(&mut self, at: &str, route: &Route) {
        if route.host.is_some() {
            self.report(
                format_args!("{at}.host"),
                "the default is for any host",
                "use one of routes for this host",
            );
        }
        if route.path.is_some() {
            self.report(
                format_args!("{at}.path"),
                "the default is for any path",
                "use one of routes for this path",
            );
        }
        if route.when.is_some() {
            self.report(
                format_args!("{at}.when"),
                "the default is for any request",
                "use one of routes for these requests",
            );
        }
    }

    fn route(&mut self, at: &str, route: &Route, protocol: Protocol) {
        self.target(at, route);
        if route.passthrough && protocol == Protocol::Http {
            self.report(
                format_args!("{at}.passthrough"),
                "plain http has nothing to leave unopened",
                "remove it, or use protocol: https or tls",
            );
        }
        let is_unopened = protocol == Protocol::Tls || route.passthrough;
        if is_unopened {
            self.unopened(at, route);
        } else if route.alpn.is_some() {
            self.report(
                format_args!("{at}.alpn"),
                "alpn chooses among connections that are relayed unopened",
                "remove it, or add passthrough: true",
            );
        }
        if route.services().next().is_none() {
            self.without_service(at, route);
        }
        self.backends(at, &route.backends, &|field| {
            is_unopened.then(|| format!("a connection that is relayed unopened has no {field}"))
        });
        if let Some(when) = &route.when {
            self.when(at, when);
        }
        for (edits, field) in [
            (&route.request_headers, "request-headers"),
            (&route.response_headers, "response-headers"),
        ] {
            if let Some(edits) = edits {
                self.header_edits(&format!("{at}.{field}"), edits);
            }
        }
        if let Some(OrMap::Map(rewrite)) = &route.rewrite {
            self.rewrite(at, rewrite);
        }
        if let Some(redirect) = &route.redirect {
            self.redirect(at, redirect);
        }
        self.answer(at, route);
        if let Some(page) = &route.denied {
            self.error_page(&format!("{at}.denied"), page);
        }
    }

    /// A route leads to exactly one thing.
    fn target(&mut self, at: &str, route: &Route) {
        let there = [
            (route.service.is_some(), "service"),
            (!route.backends.is_empty(), "backends"),
            (route.redirect.is_some(), "redirect"),
            (route.status.is_some(), "status"),
        ];
        let named: Vec<&str> = there
            .iter()
            .filter(|(there, _)| *there)
            .map(|(_, name)| *name)
            .collect();
        let why = match named.as_slice() {
            [_] => return,
            [] => "leads nowhere".to_owned(),
            several => format!("has {} at once", several.join(" and ")),
        };
        self.report(
            at,
            why,
            "expected exactly one of service, redirect and status; backends may stand for service",
        );
    }

    /// What concerns a service belongs to a route that leads to one.
    fn without_service(&mut self, at: &str, route: &Route) {
        let fields = [
            (
                route.rewrite.is_some(),
                "rewrite",
                "changes what a service gets",
            ),
            (
                route.request_headers.is_some(),
                "request-headers",
                "changes what a service gets",
            ),
            (
                route.timeout.is_some(),
                "timeout",
                "limits how long a service takes",
            ),
        ];
        for (there, field, does) in fields {
            if there {
                self.report(
                    format_args!("{at}.{field}"),
                    format!("{field} {does}"),
                    "add service, or remove it",
                );
            }
        }
    }

    /// Nothing inside a connection that stays closed can be seen or answered.
    fn unopened(&mut self, at: &str, route: &Route) {
        let inside = [
            (route.path.is_some(), "path"),
            (route.r#match != PathMatch::Segment, "match"),
            (route.ignore_case, "ignore-case"),
            (route.when.is_some(), "when"),
            (route.denied.is_some(), "denied"),
            (route.request_headers.is_some(), "request-headers"),
            (route.response_headers.is_some(), "response-headers"),
            (route.rewrite.is_some(), "rewrite"),
            (route.map_back.is_some(), "map-back"),
            (route.timeout.is_some(), "timeout"),
            (route.redirect.is_some(), "redirect"),
            (route.status.is_some(), "status"),
        ];
        for (there, field) in inside {
            if there {
                self.report(
                    format_args!("{at}.{field}"),
                    format!("a connection that is relayed unopened has no {field}"),
                    "remove it, or let TLS end here: protocol: https without passthrough",
                );
            }
        }
    }

    fn redirect(&mut self, at: &str, redirect: &Redirect) {
        let same = redirect.location.is_none()
            && redirect.scheme.is_none()
            && redirect.host.is_none()
            && redirect.port.is_none()
            && redirect.path.is_none()
            && redirect.prefix.is_none();
        if same {
            self.report(
                format_args!("{at}.redirect"),
                "leads back to where the client was",
                "add scheme, host, port or path, or prefix, or location",
            );
        }
        self.redirect_forms(at, redirect);
        if redirect.path.is_some() && redirect.prefix.is_some() {
            self.both_paths(format_args!("{at}.redirect"));
        }
        if let Some(HostPattern::Under(_)) = &redirect.host {
            self.report(
                format_args!("{at}.redirect.host"),
                "is not one host",
                "expected a name without *",
            );
        }
        if let Some(status) = redirect.status
            && !REDIRECTS.contains(&status)
        {
            self.report(
                format_args!("{at}.redirect.status"),
                format!("{status} is not the status of a redirect"),
                "expected 301, 302, 303, 307 or 308",
            );
        }
    }

    /// A whole location has no parts, and a relative one no host.
    fn redirect_forms(&mut self, at: &str, redirect: &Redirect) {
        let origin = [
            (redirect.scheme.is_some(), "scheme"),
            (redirect.host.is_some(), "host"),
            (redirect.port.is_some(), "port"),
        ];
        let path = [
            (redirect.path.is_some(), "path"),
            (redirect.prefix.is_some(), "prefix"),
            (redirect.drop_query, "drop-query"),
            (redirect.relative, "relative"),
        ];
        for (there, field) in origin.into_iter().chain(path) {
            if there && redirect.location.is_some() {
                self.report(
                    format_args!("{at}.redirect.{field}"),
                    "location is the whole answer",
                    "remove it, or location",
                );
            }
        }
        for (there, field) in origin {
            if there && redirect.relative && redirect.location.is_none() {
                self.report(
                    format_args!("{at}.redirect.{field}"),
                    format!("a relative Location has no {field}"),
                    "remove it, or relative",
                );
            }
        }
        if redirect
            .location
            .as_ref()
            .is_some_and(|text| text.trim().is_empty())
        {
            self.report(
                format_args!("{at}.redirect.location"),
                "is empty",
                "expected a path or a URL",
            );
        }
    }

    fn rewrite(&mut self, at: &str, rewrite: &Rewrite) {
        if *rewrite == Rewrite::default() {
            self.report(
                format_args!("{at}.rewrite"),
                "changes nothing",
                "add prefix, path or host, or remove it",
            );
        }
        if rewrite.path.is_some() && rewrite.prefix.is_some() {
            self.both_paths(format_args!("{at}.rewrite"));
        }
        if let Some(HostPattern::Under(_)) = &rewrite.host {
            self.report(
                format_args!("{at}.rewrite.host"),
                "is not one host",
                "expected a name without *",
            );
        }
    }

    fn both_paths(&mut self, at: impl std::fmt::Display) {
        self.report(
            at,
            "has prefix and path at once",
            "keep prefix for the part that matched, or path for the whole",
        );
    }

    /// A body belongs to an answer of our own.
    fn answer(&mut self, at: &str, route: &Route) {
        let body = [
            (route.body_file.is_some(), "body-file"),
            (route.content_type.is_some(), "content-type"),
        ];
        for (there, field) in body {
            match route.status {
                _ if !there => {}
                None => self.report(
                    format_args!("{at}.{field}"),
                    format!("{field} belongs to an answer of Ballast's own"),
                    "add status, or remove it",
                ),
                Some(status @ (204 | 205 | 304)) => self.report(
                    format_args!("{at}.{field}"),
                    format!("an answer with status {status} has no body"),
                    "remove it, or use another status",
                ),
                Some(_) => {}
            }
        }
    }

    /// An answer of the table in place of one of Ballast's own.
    pub(super) fn error_page(&mut self, at: &str, page: &ErrorPage) {
        if let Some(status @ (204 | 205 | 304)) = page.status {
            for (there, field) in [
                (page.body_file.is_some(), "body-file"),
                (page.content_type.is_some(), "content-type"),
            ] {
                if there {
                    self.report(
                        format_args!("{at}.{field}"),
                        format!("an answer with status {status} has no body"),
                        "remove it, or use another status",
                    );
                }
            }
        }
        if let Some(edits) = &page.response_headers {
            self.header_edits(&format!("{at}.response-headers"), edits);
        }
    }

    /// The order in the file means nothing, so no two routes may be for the same requests.
    fn equal_routes(&mut self, routes: &[(String, &Route)]) {
        let mut first: HashMap<Reach<'_>, &str> = HashMap::new();
        for (at, route) in routes {
            match first.entry(Reach::of(route)) {
                Entry::Vacant(free) => _ = free.insert(at),
                Entry::Occupied(taken) => {
                    let why = format!("is for the same requests as {}", taken.get());
                    self.report(at, why, "change host, path or when, or keep one of them");
                }
            }
        }
    }

    /// A name is a label of metrics, so no two routes of a frontend may have the same.
    fn route_names(&mut self, routes: &[(String, &Route)]) {
        let mut first: HashMap<&str, &str> = HashMap::new();
        for (at, route) in routes {
            let Some(name) = &route.name else { continue };
            match first.entry(name) {
                Entry::Vacant(free) => _ = free.insert(at),
                Entry::Occupied(taken) => {
                    let why = format!("\"{name}\" is the name of {} already", taken.get());
                    let remedy = "give each route of a frontend a name of its own";
                    self.report(format_args!("{at}.name"), why, remedy);
                }
            }
        }
    }

    /// Where a host is relayed unopened, its paths are never seen.
    fn hidden_routes(&mut self, routes: &[(String, &Route)]) {
        let closed: HashMap<Option<&HostPattern>, &str> = routes
            .iter()
            .rev()
            .filter(|(_, route)| route.passthrough && route.alpn.is_none())
            .map(|(at, route)| (route.host.as_ref(), at.as_str()))
            .collect();
        for (at, route) in routes {
            if let Some(by) = closed.get(&route.host.as_ref())
                && !route.passthrough
            {
                let why = format!("{by} relays the connections of the same host unopened");
                self.report(at, why, "remove passthrough there, or this route");
            }
        }
    }
}

const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];
