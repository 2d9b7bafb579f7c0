//! What the routes of a frontend mean, alone and beside each other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::{Frontend, HostPattern, PathMatch, Protocol, Redirect, Route};
use super::Check;

impl Check<'_> {
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
        if frontend.protocol == Protocol::Https {
            self.hidden_routes(&readable);
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
        match protocol == Protocol::Tls || route.passthrough {
            true => self.unopened(at, route),
            false if route.alpn.is_some() => self.report(
                format_args!("{at}.alpn"),
                "alpn chooses among connections that are relayed unopened",
                "remove it, or add passthrough: true",
            ),
            false => {}
        }
        if route.rewrite.is_some() && route.service.is_none() {
            self.report(
                format_args!("{at}.rewrite"),
                "rewrite changes what a service gets",
                "add service, or remove it",
            );
        }
        if let Some(redirect) = &route.redirect {
            self.redirect(at, redirect);
        }
        self.answer(at, route);
    }

    /// A route leads to exactly one thing.
    fn target(&mut self, at: &str, route: &Route) {
        let there = [
            (route.service.is_some(), "service"),
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
            "expected exactly one of service, redirect and status",
        );
    }

    /// Nothing inside a connection that stays closed can be seen or answered.
    fn unopened(&mut self, at: &str, route: &Route) {
        let inside = [
            (route.path.is_some(), "path"),
            (route.r#match != PathMatch::Segment, "match"),
            (route.ignore_case, "ignore-case"),
            (route.rewrite.is_some(), "rewrite"),
            (route.map_back.is_some(), "map-back"),
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
        let same = redirect.scheme.is_none()
            && redirect.host.is_none()
            && redirect.port.is_none()
            && redirect.path.is_none();
        if same {
            self.report(
                format_args!("{at}.redirect"),
                "leads back to where the client was",
                "add scheme, host, port or path",
            );
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

    /// The order in the file means nothing, so no two routes may be for the same requests.
    fn equal_routes(&mut self, routes: &[(String, &Route)]) {
        let mut first: HashMap<Reach<'_>, &str> = HashMap::new();
        for (at, route) in routes {
            match first.entry(Reach::of(route)) {
                Entry::Vacant(free) => _ = free.insert(at),
                Entry::Occupied(taken) => {
                    let why = format!("is for the same requests as {}", taken.get());
                    self.report(at, why, "change host or path, or keep one of them");
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

/// Which requests a route is for.
#[derive(PartialEq, Eq, Hash)]
struct Reach<'t> {
    host: Option<&'t HostPattern>,
    path: String,
    kind: PathMatch,
    ignore_case: bool,
    alpn: Vec<&'t str>,
}

impl<'t> Reach<'t> {
    fn of(route: &'t Route) -> Self {
        let mut alpn: Vec<&str> = route
            .alpn
            .iter()
            .flat_map(|offers| offers.iter())
            .map(|offer| &**offer)
            .collect();
        alpn.sort_unstable();
        alpn.dedup();
        let path = route.path();
        // "/" has no letters, and everything below it begins with it.
        let root = path == "/";
        Self {
            host: route.host.as_ref(),
            path: match route.ignore_case {
                true => path.to_ascii_lowercase(),
                false => path.to_owned(),
            },
            kind: match route.r#match {
                PathMatch::Begins if root => PathMatch::Segment,
                kind => kind,
            },
            ignore_case: route.ignore_case && !root,
            alpn,
        }
    }
}

const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];
