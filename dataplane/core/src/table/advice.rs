//! What a good table says and its author hardly means: warnings of `ballast check`.

use std::net::IpAddr;

use super::http::HeaderEdits;
use super::{
    Bind, ErrorPage, Frontend, Health, HealthMode, HostPattern, OrMap, PathMatch, Problem,
    Protocol, Redirect, Route, RoutingTable,
};

/// A warning for each such place, in the order of the table.
#[must_use]
pub fn advice(table: &RoutingTable) -> Vec<Problem> {
    let mut found = Vec::new();
    for (index, frontend) in table.frontends.iter().enumerate() {
        let at = format!("frontends[{index}]");
        of_binds(&at, frontend, &mut found);
        let routes = frontend.routes.iter().enumerate();
        let routes = routes.map(|(index, route)| (format!("{at}.routes[{index}]"), route));
        let default = frontend.default.as_deref();
        let default = default.map(|route| (format!("{at}.default"), route));
        for (at, route) in routes.chain(default) {
            of_route(&at, route, frontend, &mut found);
        }
        for (status, page) in frontend.errors.iter() {
            if let OrMap::Map(page) = page {
                of_page(format!("{at}.errors.{}", status.code()), page, &mut found);
            }
        }
    }
    for (index, service) in table.services.iter().enumerate() {
        if let Some(health) = service.health.as_deref() {
            of_health(&format!("services[{index}].health"), health, &mut found);
        }
    }
    found
}

/// Addresses that no host has for itself.
fn of_binds(at: &str, frontend: &Frontend, found: &mut Vec<Problem>) {
    for (index, bind) in frontend.bind.iter().enumerate() {
        let Bind::Exact(address) = bind else {
            continue;
        };
        let is_broadcast = matches!(address.ip(), IpAddr::V4(ip) if ip.is_broadcast());
        if is_broadcast || address.ip().is_multicast() {
            found.push(Problem::new(
                format!("{at}.bind[{index}]"),
                format!(
                    "{bind} is an address of many hosts at once, which no client can connect to"
                ),
                "bind an address of this host, or *:PORT",
            ));
        }
    }
}

/// Fields of another mode.
fn of_health(at: &str, health: &Health, found: &mut Vec<Problem>) {
    let mode = health.mode;
    let is_http = matches!(mode, HealthMode::Http | HealthMode::Https);
    let fields = [
        ("method", health.method.is_some(), is_http),
        ("path", health.path.is_some(), is_http),
        ("host", health.host.is_some(), is_http),
        ("expect", health.expect.is_some(), is_http),
        ("body", health.body.is_some(), is_http),
        ("send", health.send.is_some(), !is_http),
        ("answer", health.answer.is_some(), !is_http),
        (
            "answer-contains",
            health.answer_contains.is_some(),
            !is_http,
        ),
        ("tls", health.tls.is_some(), mode == HealthMode::Https),
    ];
    for (field, is_there, has_effect) in fields {
        if is_there && !has_effect && mode != HealthMode::Off {
            found.push(Problem::new(
                format!("{at}.{field}"),
                format!("has no effect with mode: {mode}"),
                "remove it, or choose a mode that uses it",
            ));
        }
    }
}

fn of_route(at: &str, route: &Route, frontend: &Frontend, found: &mut Vec<Problem>) {
    if let Some(redirect) = &route.redirect
        && leads_to_itself(route, redirect, frontend)
    {
        found.push(Problem::new(
            format!("{at}.redirect"),
            "leads to this route again, so that clients go round in circles",
            "change scheme, host, port or path",
        ));
    }
    let methods = route.when.iter().flat_map(|when| when.method.iter());
    for (index, method) in methods.enumerate() {
        let upper = method.to_ascii_uppercase();
        if **method != *upper {
            found.push(Problem::new(
                format!("{at}.when.method[{index}]"),
                format!("\"{method}\" is not \"{upper}\": methods are compared letter by letter"),
                format!("write {upper}, unless clients send it so"),
            ));
        }
    }
    if let Some(page) = &route.denied {
        let at = format!("{at}.denied");
        if route.source_ranges.is_none() {
            found.push(Problem::new(
                at.clone(),
                "nobody is denied by this route",
                "add source-ranges, or remove it",
            ));
        }
        of_page(at, page, found);
    }
    let edits = (&route.request_headers, &route.response_headers);
    of_edits(at, edits, found);
    for (index, backend) in route.backends.iter().enumerate() {
        let edits = (&backend.request_headers, &backend.response_headers);
        of_edits(&format!("{at}.backends[{index}]"), edits, found);
    }
}

fn of_page(at: String, page: &ErrorPage, found: &mut Vec<Problem>) {
    if *page == ErrorPage::default() {
        found.push(Problem::new(
            at,
            "changes nothing",
            "add status, body-file or response-headers, or remove it",
        ));
    }
}

fn of_edits(at: &str, (request, response): (&Edits, &Edits), found: &mut Vec<Problem>) {
    for (field, edits) in [("request-headers", request), ("response-headers", response)] {
        if edits
            .as_deref()
            .is_some_and(|edits| *edits == HeaderEdits::default())
        {
            found.push(Problem::new(
                format!("{at}.{field}"),
                "changes nothing",
                "add set, add or remove, or remove it",
            ));
        }
    }
}

/// Whether each request that this route redirects would come back to it. In doubt it would not.
fn leads_to_itself(route: &Route, redirect: &Redirect, frontend: &Frontend) -> bool {
    let Redirect {
        scheme,
        host,
        port,
        path,
        prefix,
        location,
        ..
    } = redirect;
    // A location without a scheme and a host is a path, perhaps with a query.
    let location = location.as_deref().map(str::trim);
    if location.is_some_and(|to| !to.starts_with('/') || to.starts_with("//")) {
        return false;
    }
    let location = location.and_then(|to| to.split(['?', '#']).next());
    let path = location.or(path.as_deref());
    let own_scheme = match frontend.protocol {
        Protocol::Http => "http",
        _ => "https",
    };
    // Without a port the one of the scheme is meant, which may be led here by others.
    let same_scheme = scheme.as_ref().is_none_or(|scheme| **scheme == *own_scheme);
    let same_port = port.is_none_or(|port| {
        let mut binds = frontend.bind.iter();
        binds.any(|bind| bind.port() == port.get())
    });
    let same_host = match (host, &route.host) {
        (None, _) | (Some(_), None) => true,
        (Some(HostPattern::Exact(to)), Some(HostPattern::Exact(own))) => to == own,
        _ => false,
    };
    let same_path = match (path, prefix) {
        (Some(to), _) => *to == *route.path(),
        (None, Some(prefix)) => **prefix == *route.path() && route.r#match != PathMatch::Begins,
        (None, None) => true,
    };
    // A request that comes back with another host or path may be another route's.
    let others = || {
        frontend
            .routes
            .iter()
            .filter(|other| !std::ptr::eq(*other, route))
    };
    let is_hidden =
        host.is_some() && route.host.is_none() && others().any(|other| other.host.is_some())
            || path.is_some() && others().any(|other| other.path() == route.path());
    let always = route.when.is_none() && route.source_ranges.is_none();
    same_scheme && same_port && same_host && same_path && always && !is_hidden
}

type Edits = Option<Box<HeaderEdits>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Format, parse};

    fn places(protocol: &str, routes: &[&str]) -> Vec<String> {
        let tls = if protocol == "https" {
            "tls: {certificates: [{cert: x}]},"
        } else {
            ""
        };
        let routes = routes.join(", ");
        let table = format!(
            "version: 1
frontends:
  - {{name: f, bind: [\"127.0.0.1:8080\"], protocol: {protocol}, {tls} routes: [{routes}]}}
services: [{{name: s, endpoints: []}}]
"
        );
        let table = parse(table.as_bytes(), Format::Yaml).unwrap();
        let found = advice(&table).into_iter();
        found
            .map(|found| found.at.replace("frontends[0].routes", ""))
            .collect()
    }

    #[test]
    fn a_redirect_to_itself_is_told() {
        for (protocol, routes, is_told) in [
            ("https", &["{redirect: {scheme: https}}"][..], true),
            ("http", &["{redirect: {scheme: https}}"], false),
            ("http", &["{redirect: {scheme: http}}"], true),
            ("http", &["{redirect: {port: 8080}}"], true),
            ("http", &["{redirect: {port: 8081}}"], false),
            ("http", &["{host: a.test, redirect: {host: a.test}}"], true),
            ("http", &["{host: a.test, redirect: {host: b.test}}"], false),
            (
                "http",
                &["{host: \"*.a.test\", redirect: {host: b.a.test}}"],
                false,
            ),
            ("http", &["{redirect: {host: a.test}}"], true),
            (
                "http",
                &["{redirect: {host: a.test}}", "{host: a.test, service: s}"],
                false,
            ),
            ("http", &["{path: /a, redirect: {path: /a}}"], true),
            ("http", &["{path: /a, redirect: {path: /b}}"], false),
            ("http", &["{path: /a, redirect: {prefix: /a}}"], true),
            (
                "http",
                &["{path: /r, match: exact, redirect: {location: /z}}"],
                false,
            ),
            (
                "http",
                &["{path: /r, redirect: {location: \"/r?a=b\"}}"],
                true,
            ),
            (
                "http",
                &["{redirect: {location: \"https://a.test/\"}}"],
                false,
            ),
            ("http", &["{redirect: {location: \"//a.test/\"}}"], false),
            (
                "http",
                &[
                    "{redirect: {path: /}}",
                    "{path: /, match: exact, service: s}",
                ],
                false,
            ),
            (
                "http",
                &["{path: /a, when: {method: [GET]}, redirect: {path: /a}}"],
                false,
            ),
        ] {
            let found = places(protocol, routes);
            assert_eq!(found == ["[0].redirect"], is_told, "{routes:?}: {found:?}");
            assert_eq!(found.is_empty(), !is_told, "{routes:?}: {found:?}");
        }
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let table = "version: 1
frontends:
  - {name: a, bind: [\"224.0.0.1:80\", \"127.0.0.1:80\", \"255.255.255.255:80\", \"[ff02::1]:80\"], protocol: tcp, service: s}
services:
  - {name: s, health: {mode: http, send: x, path: /}, endpoints: []}
  - {name: t, health: {mode: tcp, send: x, answer: y, expect: \"200\"}, endpoints: []}
  - {name: u, health: {mode: off, path: /}, endpoints: []}
";
        let found = advice(&parse(table.as_bytes(), Format::Yaml).unwrap());
        let places: Vec<&str> = found.iter().map(|found| &*found.at).collect();
        let expected = [
            "frontends[0].bind[0]",
            "frontends[0].bind[2]",
            "frontends[0].bind[3]",
            "services[0].health.send",
            "services[1].health.expect",
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn a_method_in_lower_case_and_edits_of_nothing_are_told() {
        let routes = [
            "{path: /a, service: s, when: {method: [GET, post]}}",
            "{path: /b, service: s, request-headers: {}}",
            "{path: /c, backends: [{service: s, response-headers: {}}]}",
            "{path: /d, service: s, request-headers: {remove: [x]}}",
        ];
        let expected = [
            "[0].when.method[1]",
            "[1].request-headers",
            "[2].backends[0].response-headers",
        ];
        assert_eq!(places("http", &routes), expected);
    }

    #[test]
    fn a_denial_of_nobody_and_a_page_of_nothing_are_told() {
        let routes = [
            "{path: /a, service: s, denied: {status: 404}}",
            "{path: /b, service: s, source-ranges: [10.0.0.0/8], denied: {}}",
            "{path: /c, service: s, source-ranges: [10.0.0.0/8], denied: {status: 404}}",
        ];
        assert_eq!(places("http", &routes), ["[0].denied", "[1].denied"]);
        let table = "version: 1
frontends:
  - name: f
    bind: [\"127.0.0.1:8080\"]
    protocol: http
    errors: {502: {status: 503}, 503: {}, 504: e}
";
        let table = parse(table.as_bytes(), Format::Yaml).unwrap();
        let found: Vec<String> = advice(&table).into_iter().map(|found| found.at).collect();
        assert_eq!(found, ["frontends[0].errors.503"]);
    }
}
